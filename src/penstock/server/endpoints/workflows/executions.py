"""Workflows: start, describe, runs, history, cancel, terminate."""

from __future__ import annotations

from typing import Any

from penstock.core.history.events import CODEC
from penstock.engine.visibility import run_reader
from penstock.engine.visibility.run_reader import HistoryPage, RunDescription
from penstock.engine.workflows import cancellation_requests, run_close, starts
from penstock.engine.workflows.run_close import EndMode
from penstock.engine.workflows.starts import StartOutcome, StartResult
from penstock.server.endpoints import batch_requests
from penstock.server.endpoints.page_tokens import decode_page_start, decode_sequence, page_token_after_run
from penstock.server.endpoints.pending_operation import PendingOperation, run_operation
from penstock.server.endpoints.workflows.addresses import address, scope, workflow_id
from penstock.server.endpoints.workflows.start_requests import parse_workflow_start
from penstock.server.operation import Body, OperationCall, Response, text_path
from penstock.wire import responses
from penstock.wire.activities.progress import open_activity
from penstock.wire.matching.tasks import cancellation_observation
from penstock.wire.request_parser import field_error, parse_strict
from penstock.wire.requests import EndRun, ListRuns, ReadHistory, RequestCancellation, StartWorkflow
from penstock.wire.workflows.events import commands, history_events, is_signal, signal

IDEMPOTENCY_KEY_MAX = 255


async def start(call: OperationCall) -> Response:
    return await run_operation(call.ctx.store, _start(call, call.body, call.document, idempotency_key(call)))


async def start_batch(call: OperationCall) -> Response:
    def one(item: dict[str, Any]) -> PendingOperation[StartResult]:
        key = start_key(item.pop("idempotency_key", None), "idempotency_key")
        return _start(call, parse_strict(item, StartWorkflow), item, key)

    return await batch_requests.run_batch(call, one)


def _start(
    call: OperationCall, request: StartWorkflow, document: Body, key: str | None
) -> PendingOperation[StartResult]:
    start = parse_workflow_start(request, document, call.namespace, key, call.ctx.settings.limits)
    return PendingOperation(starts.workflow_start(call.ctx, start), start_response)


def start_response(started: StartResult) -> Response:
    run = started.run
    body = {
        "workflow_id": run.workflow_id,
        "run_id": run.run_id,
        "workflow_type": run.workflow_type,
        "namespace": run.namespace,
        "task_queue": run.task_queue,
        "status": run.status.value,
        "business_key": run.business_key,
        "payload_codec": CODEC,
        "outcome": started.outcome.value,
        **responses.standing(run),
        **responses.unique(run),
        **({"waits_to_start": True} if run.waits.to_start else {}),
    }
    if started.deduplicated:
        return Response(body | {"deduplicated": True}, 200)
    return Response(body, 201 if started.outcome is StartOutcome.STARTED_NEW else 200)


def idempotency_key(call: OperationCall) -> str | None:
    return start_key(call.headers.get("idempotency-key", "").strip(" \t") or None, "Idempotency-Key")


def start_key(key: object, field: str) -> str | None:
    """Check an idempotency key; an invalid one is an error, because the caller relies on it."""
    if key is None:
        return None
    if not isinstance(key, str) or not 1 <= len(key) <= IDEMPOTENCY_KEY_MAX or not key.isprintable():
        raise field_error(field, f"must be 1 to {IDEMPOTENCY_KEY_MAX} visible characters")
    return key


async def describe(call: OperationCall) -> Response:
    target = address(call)
    view = await run_reader.describe(
        call.ctx, target.namespace, target.workflow_id, target.run_id, chain=target.chain
    )
    return Response(_detail(call, view))


def _detail(call: OperationCall, view: RunDescription) -> dict[str, Any]:
    detail = responses.run_detail(view.run, view.status, view.run_count, view.is_current, call.ctx.bounds)
    asked = view.run.waits.cancellation
    if asked is not None:
        delivered = asked.delivery is not None or view.run.waits.cancelling
        detail["cancellation_request"] = responses.cancellation(asked) | {"delivered": delivered}
    return detail | {
        "pending_activities": [
            open_activity(each) | {"pause": responses.pause(view.run.waits.paused_steps.get(each.step))}
            for each in view.activities
        ],
        "updates": [responses.update(each) for each in view.updates],
        "signals": [signal(each) for each in view.requests if is_signal(each)],
        "commands": commands(view.run, view.requests, view.operator_commands),
    }


async def runs(call: OperationCall) -> Response:
    query: ListRuns = call.query
    after = decode_page_start(query.next_page_token)
    found = await run_reader.runs_of(call.ctx, call.namespace, workflow_id(call), after, query.page_size + 1)
    page = found.runs[: query.page_size]
    return Response(
        {
            "workflow_id": workflow_id(call),
            "run_count": found.run_count,
            "runs": [
                responses.run_summary(run) | {"is_current_run": run.run_id == found.current_run_id}
                for run in page
            ],
            "next_page_token": page_token_after_run(page[-1]) if len(found.runs) > len(page) else None,
        }
    )


async def history(call: OperationCall) -> Response:
    """A page of a run's history, forwards or from the end backwards; of the current run unless the path names one."""
    query: ReadHistory = call.query
    run_id = text_path(call, "run_id") if "run_id" in call.path else None
    run_id = run_id or (await run_reader.describe(call.ctx, call.namespace, workflow_id(call))).run.run_id
    if query.order == "desc":
        before = decode_sequence(query.next_page_token) if query.next_page_token is not None else None
        page = await run_reader.history_back(
            call.ctx, call.namespace, workflow_id(call), run_id, before, query.page_size, audit=query.derived
        )
        return _history(page)
    wait_ms = call.ctx.settings.polls.poll_timeout_ms if query.wait_new_event else 0
    page = await run_reader.history(
        call.ctx,
        call.namespace,
        workflow_id(call),
        run_id,
        decode_sequence(query.next_page_token),
        query.page_size,
        wait_ms,
        call.dispatcher.draining,
        audit=query.derived,
    )
    return _history(page)


def _history(page: HistoryPage) -> Response:
    return Response(
        {
            "workflow_id": page.run.workflow_id,
            "run_id": page.run.run_id,
            "events": history_events(page.events, page.derived, page.run, page.declared),
            "next_page_token": responses.page_token(page.events[-1].sequence) if page.more else None,
        }
    )


async def cancel(call: OperationCall) -> Response:
    return await _end(call, EndMode.CANCEL)


async def request_cancellation(call: OperationCall) -> Response:
    """Request that a run cancels and cleans up until a deadline."""
    request: RequestCancellation = call.body
    receipt = await cancellation_requests.request(
        call.ctx, address(call), request.reason, request.cleanup_timeout_seconds
    )
    run = receipt.run
    return Response(
        {
            "accepted": True,
            "duplicate": receipt.duplicate,
            "workflow_id": run.workflow_id,
            "run_id": run.run_id,
            "workflow_type": run.workflow_type,
            "outcome": run_close.CANCEL_REQUESTED_OUTCOME,
            "status": run.status.value,
            "command_status": "accepted",
            "command_id": receipt.asked.id,
            "command_source": "control_plane",
            "target_scope": scope(address(call)),
            "reason": None,
            "cancellation_request": cancellation_observation(receipt.asked),
        }
    )


async def terminate(call: OperationCall) -> Response:
    return await _end(call, EndMode.TERMINATE)


async def _end(call: OperationCall, end: EndMode) -> Response:
    request: EndRun = call.body
    target = address(call)
    ended = await run_close.end_run(
        call.ctx,
        target.namespace,
        target.workflow_id,
        end,
        request.reason,
        target.run_id,
        request.request_id,
        target.chain,
    )
    run = ended.run
    return Response(
        {
            "workflow_id": run.workflow_id,
            "run_id": run.run_id,
            "workflow_type": run.workflow_type,
            "outcome": ended.outcome,
            "status": run.status.value,
            "command_status": "accepted",
            "command_id": run_close.command_id(run, end),
            "command_source": "control_plane",
            "target_scope": scope(target),
            "request_id": request.request_id,
            "reason": None,
            "rejection_reason": None,
            "validation_errors": [],
        }
    )
