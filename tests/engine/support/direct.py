"""Engine transactions run one at a time, where the server would batch them with others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from penstock.core.history.commands import Command, ScheduleActivity
from penstock.core.messaging.messages import Cursor
from penstock.core.model import Blob, TaskId
from penstock.core.scheduling.leases import Report
from penstock.engine.activities import activity_reports
from penstock.engine.activities.activity_reports import ActivityReceipt
from penstock.engine.context import EngineContext
from penstock.engine.workflows import starts, workflow_reports
from penstock.engine.workflows.starts import Start, StartResult
from penstock.engine.workflows.workflow_reports import WorkflowTaskReceipt
from penstock.ports.store import Transaction

T = TypeVar("T")


async def commit(ctx: EngineContext, transaction: Transaction[T]) -> T:
    return await ctx.store.transact(transaction.operation, key=transaction.key)


async def start_activity(ctx: EngineContext, request: Start, command: ScheduleActivity) -> StartResult:
    return await commit(ctx, starts.activity_start(ctx, request, command))


async def complete_activity(
    ctx: EngineContext, namespace: str, task_id: TaskId, report: Report, result: Blob, cost: int | None = None
) -> ActivityReceipt:
    completion = activity_reports.completion_transaction(ctx, namespace, task_id, report, result, cost)
    return activity_reports.check_recorded(await commit(ctx, completion))


async def hand_back_activity(
    ctx: EngineContext, namespace: str, task_id: TaskId, report: Report
) -> ActivityReceipt:
    return await commit(ctx, activity_reports.hand_back_transaction(ctx, namespace, task_id, report))


async def complete_workflow_task(
    ctx: EngineContext,
    namespace: str,
    task_id: TaskId,
    report: Report,
    commands: Sequence[Command],
    cursors: Sequence[Cursor] = (),
    *,
    concurrent: bool = False,
    cached: bool = False,
    sticky_ms: int = 0,
) -> WorkflowTaskReceipt:
    completion = workflow_reports.completion_transaction(
        ctx,
        namespace,
        task_id,
        report,
        commands,
        cursors,
        concurrent=concurrent,
        cached=cached,
        sticky_ms=sticky_ms,
    )
    return workflow_reports.check_recorded(await commit(ctx, completion))


async def hand_back_workflow_task(
    ctx: EngineContext, namespace: str, task_id: TaskId, report: Report
) -> WorkflowTaskReceipt:
    return await commit(ctx, workflow_reports.hand_back_transaction(ctx, namespace, task_id, report))
