"""Standalone activities: start, describe, list, cancel."""

from __future__ import annotations

from typing import Any

from penstock.core.model import Host, RunId
from penstock.engine import closing, reading, starts
from penstock.engine.closing import End
from penstock.engine.starts import Started, StartOutcome
from penstock.ports.store import RunFilter
from penstock.server.endpoints import batches
from penstock.server.endpoints.deeds import Deed, do
from penstock.server.endpoints.paging import next_start, start_token
from penstock.server.endpoints.starting import activity_start
from penstock.server.endpoints.workflows import idempotency_key, start_key
from penstock.server.operation import Answer, Call, text_path
from penstock.wire import rendering
from penstock.wire.fields import WORKFLOW_ID_MAX
from penstock.wire.requests import EndRun, ListActivities, OfActivityRun, ReadActivityResult, StartActivity
from penstock.wire.unknown_fields import parse_known


async def start(call: Call) -> Answer:
    return await do(call.house.store, _start(call, call.body, idempotency_key(call)))


async def start_batch(call: Call) -> Answer:
    def one(item: dict[str, Any]) -> Deed[Started]:
        key = start_key(item.pop("idempotency_key", None), "idempotency_key")
        return _start(call, parse_known(item, StartActivity), key)

    return await batches.each(call, one)


def _start(call: Call, request: StartActivity, key: str | None) -> Deed[Started]:
    return Deed(starts.activity_start(call.house, *activity_start(request, call.namespace, key)), _started)


def _started(started: Started) -> Answer:
    run = started.run
    assert started.activity is not None
    body = rendering.standalone_activity(run, started.activity) | {"outcome": started.outcome.value}
    if started.deduplicated:
        return Answer(body | {"deduplicated": True})
    return Answer(body, 201 if started.outcome is StartOutcome.STARTED_NEW else 200)


async def describe(call: Call) -> Answer:
    view = await reading.describe_activity(call.house, call.namespace, _id(call), _run_id(call))
    return Answer(rendering.standalone_activity(view.run, view.activity))


async def result(call: Call) -> Answer:
    """The result when there is one, or has come while the caller waited; the state when there is none yet."""
    query: ReadActivityResult = call.query
    found = await reading.result(
        call.house,
        call.namespace,
        _id(call),
        _run_id(call),
        query.wait_seconds * 1000,
        call.dispatcher.draining,
        Host.ACTIVITY,
    )
    run = found.run
    return Answer(
        {
            "activity_id": run.workflow_id,
            "workflow_run_id": run.run_id,
            "status": run.status.value,
            "is_terminal": run.status.is_terminal,
            "closed_reason": run.closed_reason,
            "result": rendering.readable(run.output),
            "result_envelope": rendering.envelope(run.output),
            "failure": found.failure,
            "wait_timed_out": run.is_open,
        }
    )


async def list_all(call: Call) -> Answer:
    query: ListActivities = call.query
    narrow = RunFilter(call.namespace, Host.ACTIVITY, bucket=query.status)
    found = await reading.page_activities(
        call.house, narrow, next_start(query.next_page_token), query.page_size + 1
    )
    page = found[: query.page_size]
    return Answer(
        {
            "activities": [rendering.standalone_activity(view.run, view.activity) for view in page],
            "activity_count": len(page),
            "next_page_token": start_token(page[-1].run) if len(found) > len(page) else None,
        }
    )


async def cancel(call: Call) -> Answer:
    request: EndRun = call.body
    run_id = _run_id(call)
    # the id of a workflow names no activity, and must not end that workflow
    await reading.describe_activity(call.house, call.namespace, _id(call), run_id)
    ended = await closing.end_run(
        call.house,
        call.namespace,
        _id(call),
        End.CANCEL,
        request.reason,
        request_id=request.request_id,
        chain=None if run_id is None else RunId(run_id),
    )
    view = await reading.describe_activity(call.house, call.namespace, _id(call), ended.run.run_id)
    return Answer(rendering.standalone_activity(view.run, view.activity) | {"outcome": "cancelled"})


def _id(call: Call) -> str:
    return text_path(call, "activity_id", WORKFLOW_ID_MAX)


def _run_id(call: Call) -> str | None:
    """The run that is meant where the id was used more than once; None: the newest."""
    named: OfActivityRun = call.query
    return named.run_id
