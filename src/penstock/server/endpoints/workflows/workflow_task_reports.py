"""The worker protocol: history pages, heartbeats and outcomes of workflow tasks."""

from __future__ import annotations

from typing import Any

from penstock.core.history import divergence
from penstock.core.history.cancellation import delivery_fields
from penstock.core.messaging.messages import Cursor
from penstock.core.model import Run, TaskId
from penstock.core.scheduling.leases import Report
from penstock.core.scheduling.polls import HISTORY_PAGE_DEFAULT
from penstock.core.timestamps import iso
from penstock.core.waits import CancellationDelivery
from penstock.engine.runs import history_writer
from penstock.engine.visibility import run_reader
from penstock.engine.workflows import cancellation_requests, workflow_reports
from penstock.engine.workflows.workflow_reports import WorkflowTaskReceipt
from penstock.ports.store import Transaction
from penstock.server.endpoints.page_tokens import decode_sequence
from penstock.server.endpoints.pending_operation import PendingOperation, PendingWork, run_operation
from penstock.server.endpoints.task_reports import (
    HAND_BACK,
    ReportsByAction,
    TaskErrorDetails,
    path_task_id,
    run_reports,
    without_nul,
)
from penstock.server.operation import OperationCall, Response
from penstock.wire.matching.tasks import cancellation_request, worker_event
from penstock.wire.request_parser import field_error
from penstock.wire.requests import (
    CompleteWorkflowTask,
    DeliverCancellation,
    FailWorkflowTask,
    ReadTaskHistory,
    TaskLease,
)
from penstock.wire.responses import page_token, warnings
from penstock.wire.workflows.commands import parse_commands


async def read_task_history(call: OperationCall) -> Response:
    request: ReadTaskHistory = call.body
    task_id = path_task_id(call)
    with _workflow_task_errors(call, request, task_id):
        held = await workflow_reports.hold(call.ctx, call.namespace, task_id, _report(request))
    after = decode_sequence(request.next_history_page_token)
    limit = request.history_page_size or HISTORY_PAGE_DEFAULT
    page = await run_reader.task_history(call.ctx, held.run.run_id, after, limit)
    return Response(
        {
            "task_id": held.task.task_id,
            "workflow_task_attempt": held.task.attempt,
            "history_events": [worker_event(event) for event in page.events],
            "total_history_events": page.run.last_sequence,
            "next_history_page_token": page_token(page.events[-1].sequence) if page.more else None,
        }
    )


async def heartbeat_workflow_task(call: OperationCall) -> Response:
    request: TaskLease = call.body
    task_id = path_task_id(call)
    with _workflow_task_errors(call, request, task_id):
        receipt = await workflow_reports.heartbeat(call.ctx, call.namespace, task_id, _report(request))
    assert receipt.task.lease_expires_at_ms is not None
    return Response(
        {
            "task_id": receipt.task.task_id,
            "lease_owner": receipt.task.lease_owner,
            "workflow_task_attempt": receipt.task.attempt,
            "renewed": True,
            "lease_expires_at": iso(receipt.task.lease_expires_at_ms),
            "lease_ends_after_ms": call.ctx.settings.leases.workflow_lease_ms,
            "run_status": receipt.run.status.value,
            "task_status": receipt.task.state.value,
            "reason": None,
        }
        | cancellation_request(receipt.run, leased_before=True)
    )


async def deliver_cancellation(call: OperationCall) -> Response:
    """Raise the requested cancellation at a call of the task's code."""
    request: DeliverCancellation = call.body
    task_id = path_task_id(call)
    delivery = CancellationDelivery(
        request.sequence,
        request.call_kind,
        request.sequence_span or 1,
        request.operation_sequence,
        request.operation_sequence_span or 1,
    )
    _check_delivery(delivery)
    with _workflow_task_errors(call, request, task_id):
        receipt = await cancellation_requests.deliver(
            call.ctx, call.namespace, task_id, _report(request, call.digest), request.request_id, delivery
        )
    common = {
        "task_id": receipt.task.task_id,
        "workflow_task_attempt": request.workflow_task_attempt,
        "workflow_id": receipt.run.workflow_id,
        "workflow_run_id": receipt.run.run_id,
        "reason": receipt.waiting,
        "delivered": receipt.waiting is None,
        "claim_released": receipt.waiting is not None,
    }
    if receipt.asked is None:
        return Response(common)
    return Response(
        common
        | {"request_id": receipt.asked.id, "duplicate": receipt.duplicate}
        | delivery_fields(delivery)
        | {"cleanup_deadline_at": iso(receipt.asked.deadline_at_ms)}
    )


def _check_delivery(delivery: CancellationDelivery) -> None:
    """Only parallel groups span several steps, and only handles of selections stand for an earlier operation."""
    if delivery.kind != "parallel" and delivery.span != 1:
        raise field_error("sequence_span", f"must be 1 for a call of kind {delivery.kind}")
    if (delivery.kind == "selection_handle") != (delivery.operation is not None):
        raise field_error("operation_sequence", "is for selection_handle, which needs it")
    if delivery.operation is None and delivery.operation_span != 1:
        raise field_error("operation_sequence_span", "is for selection_handle")


async def complete_workflow_task(call: OperationCall) -> Response:
    return await run_operation(
        call.ctx.store, _complete_workflow(call, path_task_id(call), call.body, call.digest)
    )


async def fail_workflow_task(call: OperationCall) -> Response:
    return await run_operation(
        call.ctx.store, _fail_workflow(call, path_task_id(call), call.body, call.digest)
    )


async def report_workflow_tasks(call: OperationCall) -> Response:
    return await run_reports(call, _REPORTS)


def _complete_workflow(
    call: OperationCall, task_id: TaskId, request: CompleteWorkflowTask, digest: str
) -> PendingOperation[WorkflowTaskReceipt]:
    concurrent = bool(request.concurrent)
    transaction = workflow_reports.completion_transaction(
        call.ctx,
        call.namespace,
        task_id,
        _report(request, digest),
        parse_commands(request.commands, call.namespace, concurrent=concurrent),
        _cursors(request),
        concurrent=concurrent,
        cached=bool(request.cached),
        sticky_ms=request.sticky_timeout_ms or 0,
        reads=[each.stream_name for each in request.message_stream_waits or ()],
    )

    def response(receipt: WorkflowTaskReceipt) -> Response:
        run = workflow_reports.check_recorded(receipt).run
        return Response(
            _workflow_receipt(receipt, request.workflow_task_attempt)
            | {
                "run_id": run.run_id,
                "created_task_ids": list(receipt.created),
                "warnings": warnings(run, call.ctx.bounds),
            }
            | _cached_through(run, request)
        )

    return PendingOperation(transaction, response, _workflow_task_errors(call, request, task_id).add)


def _cached_through(run: Run, request: CompleteWorkflowTask) -> dict[str, Any]:
    """The last event in the cache of a worker that keeps the run; its next task continues from there."""
    return {"cached_through": history_writer.cached_up_to(run, request.lease_owner)} if request.cached else {}


def _cursors(request: CompleteWorkflowTask) -> list[Cursor]:
    return [Cursor(each.stream_name, each.through_position) for each in request.message_stream_cursors or ()]


def _fail_workflow(
    call: OperationCall, task_id: TaskId, request: FailWorkflowTask, digest: str
) -> PendingWork:
    report, message, kind = (
        _report(request, digest),
        without_nul(request.failure.message),
        request.failure.type,
    )
    if divergence.of(kind, message) is not None:
        return _fail_diverged(call, task_id, request, report, message)
    transaction = workflow_reports.failure_transaction(
        call.ctx, call.namespace, task_id, report, message, kind, stack=_stack(request)
    )
    return _requeue(call, task_id, request, transaction)


async def _fail_diverged(
    call: OperationCall, task_id: TaskId, request: FailWorkflowTask, report: Report, message: str
) -> Response:
    """Fail a task whose code diverged from the history, which is read before the transaction."""
    with _workflow_task_errors(call, request, task_id):
        receipt = await workflow_reports.fail(
            call.ctx, call.namespace, task_id, report, message, request.failure.type, _stack(request)
        )
    return _next_task_response(receipt, request)


def _stack(request: FailWorkflowTask) -> str | None:
    stack = request.failure.stack_trace
    return None if stack is None else without_nul(stack)


def _hand_back_workflow(
    call: OperationCall, task_id: TaskId, request: TaskLease, digest: str
) -> PendingOperation[WorkflowTaskReceipt]:
    transaction = workflow_reports.hand_back_transaction(
        call.ctx, call.namespace, task_id, _report(request, digest)
    )
    return _requeue(call, task_id, request, transaction)


def _requeue(
    call: OperationCall, task_id: TaskId, request: TaskLease, transaction: Transaction[WorkflowTaskReceipt]
) -> PendingOperation[WorkflowTaskReceipt]:
    return PendingOperation(
        transaction,
        lambda receipt: _next_task_response(receipt, request),
        lambda error: _workflow_task_errors(call, request, task_id).add(error),
    )


def _next_task_response(receipt: WorkflowTaskReceipt, request: TaskLease) -> Response:
    next_task = receipt.task.task_id if receipt.task.is_live else None
    return Response(_workflow_receipt(receipt, request.workflow_task_attempt) | {"next_task_id": next_task})


def _workflow_receipt(receipt: WorkflowTaskReceipt, attempt: int) -> dict[str, Any]:
    return {
        "task_id": receipt.task.task_id,
        "workflow_task_attempt": attempt,
        "outcome": receipt.outcome,
        "run_status": "running" if receipt.run.is_open else receipt.run.status.value,
        "recorded": True,
        "already_accepted": receipt.repeated,
        "reason": None,
    }


def _workflow_task_errors(call: OperationCall, lease: TaskLease, task_id: TaskId) -> TaskErrorDetails:
    return TaskErrorDetails(call, lease, task_id, workflow_task_attempt=lease.workflow_task_attempt)


def _report(request: TaskLease, digest: str = "") -> Report:
    return Report(request.lease_owner, str(request.workflow_task_attempt), digest)


_REPORTS: ReportsByAction = {
    "complete": (CompleteWorkflowTask, _complete_workflow),
    "fail": (FailWorkflowTask, _fail_workflow),
    HAND_BACK: (TaskLease, _hand_back_workflow),
}
