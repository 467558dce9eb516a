"""Batch operations: cancel, terminate or signal all open runs that a query finds, page by page, with a dry run."""

from __future__ import annotations

from penstock.core.model import Blob
from penstock.engine.operations import batch_operations
from penstock.engine.operations.batch_operations import (
    FAILURES_REPORTED,
    BatchAction,
    BatchJob,
    BatchRunFailure,
)
from penstock.engine.visibility import run_search
from penstock.engine.visibility.run_search import RunCriteria
from penstock.server.endpoints.messaging.signals_and_updates import operation_name
from penstock.server.endpoints.page_tokens import decode_page_start, encode_page_start
from penstock.server.operation import Body, OperationCall, Response
from penstock.wire import payloads, responses
from penstock.wire.request_parser import field_error
from penstock.wire.visibility.searches import BATCH_RUNS_MAX, BatchOperation


async def run_batch(call: OperationCall) -> Response:
    request: BatchOperation = call.body
    batch, after = _batch(call, request), decode_page_start(request.token)
    common: Body = {"operation": batch.act.value, "request_id": batch.request_id}
    if request.dry_run:
        return Response(common | {"dry_run": True} | await _preview(call, batch))
    most = request.max_runs or BATCH_RUNS_MAX
    outcome = await batch_operations.run_batch(call.ctx, batch, after, most)
    return Response(
        common
        | {
            "dry_run": False,
            "matched": outcome.matched,
            "acted": outcome.acted,
            "cancel_requested": outcome.asked,
            "skipped": outcome.skipped,
            "failed": len(outcome.failures),
            "failures": [_failure(each) for each in outcome.failures[:FAILURES_REPORTED]],
            "next_token": None if outcome.after is None else encode_page_start(outcome.after),
        }
    )


async def _preview(call: OperationCall, batch: BatchJob) -> Body:
    preview = await batch_operations.preview(call.ctx, batch)
    return {
        "matched": preview.count.total,
        "complete": preview.count.complete,
        "sample": [responses.run_summary(run) for run in preview.sample],
        "acted": 0,
        "skipped": 0,
        "failed": 0,
        "failures": [],
        "next_token": None,
    }


def _batch(call: OperationCall, request: BatchOperation) -> BatchJob:
    action = BatchAction(request.operation)
    if action is BatchAction.SIGNAL and request.signal_name is None:
        raise field_error("signal_name", "is required for a signal")
    if action is not BatchAction.SIGNAL and (request.signal_name is not None or request.input is not None):
        raise field_error(
            "signal_name" if request.signal_name is not None else "input", "is only for signals"
        )
    if request.signal_name is not None:
        operation_name(call, request.signal_name, "signal_name")
    return BatchJob(
        act=action,
        wanted=RunCriteria(call.namespace, run_search.read_query(request.query)),
        request_id=request.request_id or call.ctx.entropy.new_id(),
        reason=request.reason,
        signal_name=request.signal_name or "",
        arguments=Blob(payloads.parse(request.input, "input").blob),
    )


def _failure(failure: BatchRunFailure) -> Body:
    return {
        "workflow_id": failure.run.workflow_id,
        "run_id": failure.run.run_id,
        "reason": failure.error.reason.value,
        "message": failure.error.message,
    }
