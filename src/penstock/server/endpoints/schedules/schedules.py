"""Schedules: create, read, change, pause, resume, delete."""

from __future__ import annotations

from typing import Any, Final

from msgspec.structs import replace

from penstock.core.schedules.explanation import explain_schedule
from penstock.core.schedules.preview import SpecWarning, in_words
from penstock.core.schedules.record import SchedulePolicies, ScheduleRecord
from penstock.core.schedules.spec import fires_at_ms
from penstock.engine.schedules import actions, lifecycle, previews, selections, zones
from penstock.engine.schedules.actions import StoredAction
from penstock.engine.schedules.lifecycle import NewSchedule
from penstock.engine.schedules.selections import BulkChange, ScheduleCriteria
from penstock.engine.schedules.zones import is_newer, spec_of, timing_of
from penstock.engine.visibility import run_search
from penstock.errors import InvalidInput, Reason
from penstock.ports.tables.schedules import ScheduleFilter
from penstock.ports.tables.visibility import PageStart
from penstock.server.endpoints.page_tokens import decode_page_start, encode_page_start
from penstock.server.endpoints.schedules import schedule_requests as parsed
from penstock.server.operation import Body, OperationCall, Response, text_path
from penstock.wire import responses
from penstock.wire.schedules import bodies
from penstock.wire.schedules.requests import (
    BATCH_SCHEDULES_MAX,
    BatchSchedules,
    CreateSchedule,
    ListSchedules,
    NoteSchedule,
    ReadScheduleHistory,
    UpdateSchedule,
)

HISTORY_LIMIT_MAX: Final = 500
FAILURES_REPORTED: Final = 20


async def create(call: OperationCall) -> Response:
    request: CreateSchedule = call.body
    limits = call.ctx.settings.limits
    action = parsed.stored_action(parsed.action_document(request.action), call.namespace, limits)
    record = await lifecycle.create(
        call.ctx,
        NewSchedule(
            namespace=call.namespace,
            schedule_id=request.schedule_id,
            spec=parsed.spec_text(request.spec),
            action=actions.encode(action),
            action_type=action.type,
            policies=parsed.policies(request, SchedulePolicies()),
            memo=parsed.memo(request.memo, limits),
            search_attributes=parsed.search_attributes(request.search_attributes, limits),
            note=request.note,
            paused=bool(request.paused),
        ),
    )
    warnings = await _unserved(call, action)
    return Response(_outcome(record, "created") | with_warnings(warnings), 201)


async def describe(call: OperationCall) -> Response:
    view = await lifecycle.describe(call.ctx, call.namespace, schedule_id(call))
    body = schedule_body(view.record)
    words = in_words(spec_of(view.record))
    body["info"] |= bodies.details(view.recent, view.buffered, view.next_at_ms, words)
    return Response(body)


async def why(call: OperationCall) -> Response:
    view = await lifecycle.describe(call.ctx, call.namespace, schedule_id(call))
    found = explain_schedule(view.record, view.now_ms, zones.VERSION)
    return Response(
        {
            "schedule_id": view.record.schedule_id,
            "status": view.record.status.value,
            "waits_for": found.wait.value,
            "explanation": " ".join(found.sentences),
            "sentences": list(found.sentences),
        }
    )


async def list_all(call: OperationCall) -> Response:
    query: ListSchedules = call.query
    narrow = ScheduleFilter(call.namespace, query.status, query.workflow_type)
    wanted = ScheduleCriteria(narrow, None if query.query is None else run_search.read_query(query.query))
    found = await selections.select(
        call.ctx, wanted, decode_page_start(query.next_page_token), query.page_size
    )
    rows = [schedule_body(each) for each in found.schedules]
    return Response({"schedules": rows, "next_page_token": _token(found.after)})


async def change_all(call: OperationCall) -> Response:
    """Pause or resume all schedules that a query finds, or only count them."""
    request: BatchSchedules = call.body
    change = BulkChange(request.operation)
    narrow = ScheduleFilter(call.namespace)
    wanted = ScheduleCriteria(narrow, run_search.read_query(request.query))
    common: Body = {"operation": change.value, "dry_run": bool(request.dry_run)}
    if request.dry_run:
        preview = await selections.preview_change(call.ctx, wanted, change)
        return Response(
            common
            | {
                "matched": preview.matched,
                "complete": preview.complete,
                "sample": [schedule_body(each) for each in preview.sample],
                "acted": 0,
                "next_token": None,
            }
        )
    most = request.max_schedules or BATCH_SCHEDULES_MAX
    before = decode_page_start(request.token)
    done = await selections.change_all(call.ctx, wanted, change, request.note, before, most)
    failed = len(done.failures)
    return Response(
        common
        | {
            "matched": done.matched,
            "acted": done.acted,
            "skipped": done.matched - done.acted - failed,
            "failed": failed,
            "failures": [
                {
                    "schedule_id": each.schedule_id,
                    "reason": each.error.reason.value,
                    "message": each.error.message,
                }
                for each in done.failures[:FAILURES_REPORTED]
            ],
            "next_token": _token(done.after),
        }
    )


async def update(call: OperationCall) -> Response:
    request: UpdateSchedule = call.body
    limits = call.ctx.settings.limits
    given: dict[str, Any] = {}
    if request.spec is not None:
        given["spec"] = parsed.spec_text(request.spec)
    if request.memo is not None:
        given["memo"] = parsed.memo(request.memo, limits)
    if request.search_attributes is not None:
        given["search_attributes"] = parsed.search_attributes(request.search_attributes, limits)
    if request.note is not None:
        given["note"] = request.note
    action = None if request.action is None else parsed.action_document(request.action)

    def change(record: ScheduleRecord) -> ScheduleRecord:
        changed = replace(record, policies=parsed.policies(request, record.policies), **given)
        if action is None:
            return changed
        document = parsed.merged_action(actions.decode(record.action), action)
        stored = parsed.stored_action(document, call.namespace, limits)
        return replace(changed, action=actions.encode(stored), action_type=stored.type)

    record = await lifecycle.update(call.ctx, call.namespace, schedule_id(call), change, request.if_version)
    return Response(_outcome(record, "updated") | {"version": record.version})


async def pause(call: OperationCall) -> Response:
    request: NoteSchedule = call.body
    record = await lifecycle.pause(call.ctx, call.namespace, schedule_id(call), request.note)
    return Response(_outcome(record, "paused"))


async def resume(call: OperationCall) -> Response:
    request: NoteSchedule = call.body
    record = await lifecycle.resume(call.ctx, call.namespace, schedule_id(call), request.note)
    return Response(_outcome(record, "resumed"))


async def delete(call: OperationCall) -> Response:
    record = await lifecycle.delete(call.ctx, call.namespace, schedule_id(call))
    return Response(_outcome(record, "deleted"))


async def history(call: OperationCall) -> Response:
    query: ReadScheduleHistory = call.query
    limit = min(max(query.limit, 1), HISTORY_LIMIT_MAX)
    name = schedule_id(call)
    found = await lifecycle.history(
        call.ctx, call.namespace, name, _after_sequence(query.after_sequence), limit + 1
    )
    page = found[:limit]
    has_more = len(found) > limit
    return Response(
        {
            "schedule_id": name,
            "namespace": call.namespace,
            "events": [bodies.event(each) for each in page],
            "next_cursor": page[-1].sequence if has_more else None,
            "has_more": has_more,
        }
    )


def schedule_id(call: OperationCall) -> str:
    return text_path(call, "schedule_id")


def schedule_body(record: ScheduleRecord) -> Body:
    action = actions.decode(record.action)
    shown = action.shown | {"input": responses.envelope(action.start.input)}
    return bodies.schedule(record, shown, _next_at_ms(record))


def _next_at_ms(record: ScheduleRecord) -> int | None:
    """When the next moment fires, with its jitter."""
    if not record.is_active or record.nominal_at_ms is None:
        return None
    if not record.progress.buffered or is_newer(record):
        return record.nominal_at_ms if record.due_at_ms is None else record.due_at_ms
    # a buffered fire may be due before the next moment
    timing = timing_of(record)
    return fires_at_ms(timing.spec, timing.zone, record.schedule_key, record.nominal_at_ms)


def _token(place: PageStart | None) -> str | None:
    return None if place is None else encode_page_start(place)


def with_warnings(warnings: list[SpecWarning]) -> Body:
    """The warnings of a response, if there are any."""
    if not warnings:
        return {}
    return {"warnings": [{"reason": each.reason.value, "message": each.message} for each in warnings]}


def _outcome(record: ScheduleRecord, outcome: str) -> Body:
    return {"schedule_id": record.schedule_id, "outcome": outcome}


async def _unserved(call: OperationCall, action: StoredAction) -> list[SpecWarning]:
    queue = action.start.task_queue
    is_activity = action.command is not None
    return [*await previews.unserved(call.ctx, call.namespace, queue, action.type, is_activity=is_activity)]


def _after_sequence(text: str | None) -> int:
    if text is None:
        return 0
    if not text.isascii() or not text.isdigit() or len(text) > 15:
        errors = {"after_sequence": ["must be an integer of at least 0"]}
        raise InvalidInput(
            Reason.INVALID_AFTER_SEQUENCE,
            "The cursor of a schedule's history is the sequence of an event.",
            errors=errors,
            validation_errors=errors,
        )
    return int(text)
