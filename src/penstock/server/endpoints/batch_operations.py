"""Cancel, terminate or signal all open runs that a query finds: first seen, then done, portion by portion."""

from __future__ import annotations

from penstock.core.model import Blob
from penstock.engine import batch_operations, visibility
from penstock.engine.batch_operations import FAILURES_TOLD, Act, Batch, Failure
from penstock.engine.visibility import Wanted
from penstock.server.endpoints.paging import next_start, place_token
from penstock.server.endpoints.talking import operation_name
from penstock.server.operation import Answer, Body, Call
from penstock.wire import payloads, rendering
from penstock.wire.parsing import refuse
from penstock.wire.visibility import BATCH_RUNS_MAX, BatchOperation


async def carry_out(call: Call) -> Answer:
    request: BatchOperation = call.body
    batch, after = _batch(call, request), next_start(request.token)
    told: Body = {"operation": batch.act.value, "request_id": batch.request_id}
    if request.dry_run:
        return Answer(told | {"dry_run": True} | await _preview(call, batch))
    most = request.max_runs or BATCH_RUNS_MAX
    outcome = await batch_operations.carry_out(call.house, batch, after, most)
    return Answer(
        told
        | {
            "dry_run": False,
            "matched": outcome.matched,
            "acted": outcome.acted,
            "cancel_requested": outcome.asked,
            "skipped": outcome.skipped,
            "failed": len(outcome.failures),
            "failures": [_failure(each) for each in outcome.failures[:FAILURES_TOLD]],
            "next_token": None if outcome.after is None else place_token(outcome.after),
        }
    )


async def _preview(call: Call, batch: Batch) -> Body:
    preview = await batch_operations.preview(call.house, batch)
    return {
        "matched": preview.count.total,
        "complete": preview.count.complete,
        "sample": [rendering.run_summary(run) for run in preview.sample],
        "acted": 0,
        "skipped": 0,
        "failed": 0,
        "failures": [],
        "next_token": None,
    }


def _batch(call: Call, request: BatchOperation) -> Batch:
    act = Act(request.operation)
    if act is Act.SIGNAL and request.signal_name is None:
        raise refuse("signal_name", "is required for a signal")
    if act is not Act.SIGNAL and (request.signal_name is not None or request.input is not None):
        raise refuse("signal_name" if request.signal_name is not None else "input", "is for signals only")
    if request.signal_name is not None:
        operation_name(call, request.signal_name, "signal_name")
    return Batch(
        act=act,
        wanted=Wanted(call.namespace, visibility.read_query(request.query)),
        request_id=request.request_id or call.house.entropy.new_id(),
        reason=request.reason,
        signal_name=request.signal_name or "",
        arguments=Blob(payloads.parse(request.input, "input").blob),
    )


def _failure(failure: Failure) -> Body:
    return {
        "workflow_id": failure.run.workflow_id,
        "run_id": failure.run.run_id,
        "reason": failure.error.reason.value,
        "message": failure.error.message,
    }
