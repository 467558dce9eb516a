"""Standalone activities: start, describe, list, cancel."""

from __future__ import annotations

from typing import Any

from penstock.core.model import RunHost, RunId
from penstock.engine.visibility import run_reader
from penstock.engine.workflows import run_close, starts
from penstock.engine.workflows.run_close import EndMode
from penstock.engine.workflows.starts import StartOutcome, StartResult
from penstock.ports.tables.runs import RunFilter
from penstock.server.endpoints import batch_requests
from penstock.server.endpoints.page_tokens import decode_page_start, page_token_after_run
from penstock.server.endpoints.pending_operation import PendingOperation, run_operation
from penstock.server.endpoints.workflows.executions import idempotency_key, start_key
from penstock.server.endpoints.workflows.start_requests import parse_activity_start
from penstock.server.operation import OperationCall, Response, text_path
from penstock.wire import responses
from penstock.wire.fields import WORKFLOW_ID_MAX
from penstock.wire.request_parser import parse_strict
from penstock.wire.requests import EndRun, ListActivities, OfActivityRun, ReadActivityResult, StartActivity


async def start(call: OperationCall) -> Response:
    return await run_operation(call.ctx.store, _start(call, call.body, idempotency_key(call)))


async def start_batch(call: OperationCall) -> Response:
    def one(item: dict[str, Any]) -> PendingOperation[StartResult]:
        key = start_key(item.pop("idempotency_key", None), "idempotency_key")
        return _start(call, parse_strict(item, StartActivity), key)

    return await batch_requests.run_batch(call, one)


def _start(call: OperationCall, request: StartActivity, key: str | None) -> PendingOperation[StartResult]:
    return PendingOperation(
        starts.activity_start(call.ctx, *parse_activity_start(request, call.namespace, key)), _started
    )


def _started(started: StartResult) -> Response:
    run = started.run
    assert started.activity is not None
    body = responses.standalone_activity(run, started.activity) | {"outcome": started.outcome.value}
    if started.deduplicated:
        return Response(body | {"deduplicated": True})
    return Response(body, 201 if started.outcome is StartOutcome.STARTED_NEW else 200)


async def describe(call: OperationCall) -> Response:
    view = await run_reader.describe_activity(call.ctx, call.namespace, _id(call), _run_id(call))
    payloads = {
        "input": responses.readable(view.activity.arguments),
        "output": responses.readable(view.run.output),
        "failure": view.failure,
    }
    return Response(responses.standalone_activity(view.run, view.activity) | payloads)


async def result(call: OperationCall) -> Response:
    """Wait for the result; returns the status if there is none after `wait_seconds`."""
    query: ReadActivityResult = call.query
    found = await run_reader.result(
        call.ctx,
        call.namespace,
        _id(call),
        _run_id(call),
        query.wait_seconds * 1000,
        call.dispatcher.draining,
        RunHost.ACTIVITY,
    )
    run = found.run
    return Response(
        {
            "activity_id": run.workflow_id,
            "workflow_run_id": run.run_id,
            "status": run.status.value,
            "is_terminal": run.status.is_terminal,
            "closed_reason": run.closed_reason,
            "result": responses.readable(run.output),
            "result_envelope": responses.envelope(run.output),
            "failure": found.failure,
            "wait_timed_out": run.is_open,
        }
    )


async def list_all(call: OperationCall) -> Response:
    query: ListActivities = call.query
    narrow = RunFilter(call.namespace, RunHost.ACTIVITY, bucket=query.status)
    found = await run_reader.page_activities(
        call.ctx, narrow, decode_page_start(query.next_page_token), query.page_size + 1
    )
    page = found[: query.page_size]
    return Response(
        {
            "activities": [responses.standalone_activity(view.run, view.activity) for view in page],
            "activity_count": len(page),
            "next_page_token": page_token_after_run(page[-1].run) if len(found) > len(page) else None,
        }
    )


async def cancel(call: OperationCall) -> Response:
    request: EndRun = call.body
    run_id = _run_id(call)
    # raises if the id is that of a workflow, which must not be cancelled here
    await run_reader.describe_activity(call.ctx, call.namespace, _id(call), run_id)
    ended = await run_close.end_run(
        call.ctx,
        call.namespace,
        _id(call),
        EndMode.CANCEL,
        request.reason,
        request_id=request.request_id,
        chain=None if run_id is None else RunId(run_id),
    )
    view = await run_reader.describe_activity(call.ctx, call.namespace, _id(call), ended.run.run_id)
    return Response(responses.standalone_activity(view.run, view.activity) | {"outcome": "cancelled"})


def _id(call: OperationCall) -> str:
    return text_path(call, "activity_id", WORKFLOW_ID_MAX)


def _run_id(call: OperationCall) -> str | None:
    """The run, if the id was used more than once; None for the newest."""
    named: OfActivityRun = call.query
    return named.run_id
