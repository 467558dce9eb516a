"""Workflows: start, describe, runs, history, cancel, terminate."""

from __future__ import annotations

from typing import Any

from penstock.core.history.events import CODEC
from penstock.engine import closing, reading, starts
from penstock.engine.closing import End
from penstock.engine.reading import HistoryPage, RunView
from penstock.engine.starts import Started, StartOutcome
from penstock.server.endpoints import batches
from penstock.server.endpoints.addressing import address, scope, workflow_id
from penstock.server.endpoints.deeds import Deed, do
from penstock.server.endpoints.paging import after_sequence, next_start, start_token
from penstock.server.endpoints.starting import workflow_start
from penstock.server.operation import Answer, Call, text_path
from penstock.wire import rendering, strict_json
from penstock.wire.parsing import refuse
from penstock.wire.progress import open_activity
from penstock.wire.requests import EndRun, ListRuns, ReadHistory, StartWorkflow
from penstock.wire.unknown_fields import parse_known

IDEMPOTENCY_KEY_MAX = 255


async def start(call: Call) -> Answer:
    body = strict_json.loads(call.raw) if call.raw else {}
    return await do(call.house.store, _start(call, call.body, body, idempotency_key(call)))


async def start_batch(call: Call) -> Answer:
    def one(item: dict[str, Any]) -> Deed[Started]:
        key = start_key(item.pop("idempotency_key", None), "idempotency_key")
        return _start(call, parse_known(item, StartWorkflow), item, key)

    return await batches.each(call, one)


def _start(call: Call, request: StartWorkflow, body: object, key: str | None) -> Deed[Started]:
    limits = call.house.settings.limits
    asked = workflow_start(request, body if isinstance(body, dict) else {}, call.namespace, key, limits)
    return Deed(starts.workflow_start(call.house, asked), started_body)


def started_body(started: Started) -> Answer:
    run = started.run
    answer = {
        "workflow_id": run.workflow_id,
        "run_id": run.run_id,
        "workflow_type": run.workflow_type,
        "namespace": run.namespace,
        "task_queue": run.task_queue,
        "status": run.status.value,
        "business_key": run.business_key,
        "payload_codec": CODEC,
        "outcome": started.outcome.value,
        "priority": run.level,
        "fairness_key": run.key or None,
        "fairness_weight": run.weight_milli / 1000,
    }
    if started.deduplicated:
        return Answer(answer | {"deduplicated": True}, 200)
    return Answer(answer, 201 if started.outcome is StartOutcome.STARTED_NEW else 200)


def idempotency_key(call: Call) -> str | None:
    return start_key(call.headers.get("idempotency-key", "").strip(" \t") or None, "Idempotency-Key")


def start_key(key: object, field: str) -> str | None:
    """A key that cannot be kept is refused: a caller who sends one counts on it."""
    if key is None:
        return None
    if not isinstance(key, str) or not 1 <= len(key) <= IDEMPOTENCY_KEY_MAX or not key.isprintable():
        raise refuse(field, f"must be 1 to {IDEMPOTENCY_KEY_MAX} visible characters")
    return key


async def describe(call: Call) -> Answer:
    meant = address(call)
    view = await reading.describe(
        call.house, meant.namespace, meant.workflow_id, meant.run_id, chain=meant.chain
    )
    return Answer(_detail(call, view))


def _detail(call: Call, view: RunView) -> dict[str, Any]:
    detail = rendering.run_detail(view.run, view.status, view.run_count, view.is_current, call.house.bounds)
    return detail | {"pending_activities": [open_activity(each) for each in view.activities]}


async def runs(call: Call) -> Answer:
    query: ListRuns = call.query
    after = next_start(query.next_page_token)
    found = await reading.runs_of(call.house, call.namespace, workflow_id(call), after, query.page_size + 1)
    page = found.runs[: query.page_size]
    return Answer(
        {
            "workflow_id": workflow_id(call),
            "run_count": found.run_count,
            "runs": [rendering.run_summary(run) for run in page],
            "next_page_token": start_token(page[-1]) if len(found.runs) > len(page) else None,
        }
    )


async def history(call: Call) -> Answer:
    """A page of the named run's history, or of the current one's: forwards from a place, or back from the end."""
    query: ReadHistory = call.query
    named = text_path(call, "run_id") if "run_id" in call.path else None
    run_id = named or (await reading.describe(call.house, call.namespace, workflow_id(call))).run.run_id
    if query.order == "desc":
        before = after_sequence(query.next_page_token) if query.next_page_token is not None else None
        page = await reading.history_back(
            call.house, call.namespace, workflow_id(call), run_id, before, query.page_size
        )
        return _history(page)
    wait_ms = call.house.settings.polls.poll_timeout_ms if query.wait_new_event else 0
    page = await reading.history(
        call.house,
        call.namespace,
        workflow_id(call),
        run_id,
        after_sequence(query.next_page_token),
        query.page_size,
        wait_ms,
        call.dispatcher.draining,
    )
    return _history(page)


def _history(page: HistoryPage) -> Answer:
    return Answer(
        {
            "workflow_id": page.run.workflow_id,
            "run_id": page.run.run_id,
            "events": [rendering.control_event(event, page.run) for event in page.events],
            "next_page_token": rendering.page_token(page.events[-1].sequence) if page.more else None,
        }
    )


async def cancel(call: Call) -> Answer:
    return await _end(call, End.CANCEL)


async def terminate(call: Call) -> Answer:
    return await _end(call, End.TERMINATE)


async def _end(call: Call, end: End) -> Answer:
    request: EndRun = call.body
    meant = address(call)
    ended = await closing.end_run(
        call.house,
        meant.namespace,
        meant.workflow_id,
        end,
        request.reason,
        meant.run_id,
        request.request_id,
        meant.chain,
    )
    run = ended.run
    return Answer(
        {
            "workflow_id": run.workflow_id,
            "run_id": run.run_id,
            "workflow_type": run.workflow_type,
            "outcome": ended.outcome,
            "status": run.status.value,
            "command_status": "accepted",
            "command_id": f"{run.run_id}-{end.value}",
            "command_source": "control_plane",
            "target_scope": scope(meant),
            "request_id": request.request_id,
            "reason": None,
            "rejection_reason": None,
            "validation_errors": [],
        }
    )
