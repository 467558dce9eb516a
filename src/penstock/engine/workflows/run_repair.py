"""Repair: requeueing work that should run and does not, for one run or for a namespace.

Sweepers do this on their own. An operator requests it to skip a backoff, or after manual changes to the database.
"""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

import structlog
from msgspec import Struct
from msgspec.structs import replace

from penstock.core.model import Run, RunId, Task, TaskState
from penstock.engine.activities import activity_reports
from penstock.engine.context import EngineContext
from penstock.engine.runs import operator_commands
from penstock.engine.runs.address import Address, check_open, check_workflow, on_run
from penstock.engine.runs.history_writer import is_stranded, requeue, schedule_next_task
from penstock.engine.workflows import workflow_reports
from penstock.errors import PenstockError
from penstock.ports.gather import gather
from penstock.ports.store import Tx

RUNS_SCANNED_MAX: Final = 1_000
log = structlog.get_logger("penstock.repair")


class RepairOutcome(StrEnum):
    """Whether a run's workflow task was made ready."""

    DISPATCHED = "repair_dispatched"
    NOT_NEEDED = "repair_not_needed"


class RepairResult(Struct, frozen=True):
    """A run and what its repair did."""

    run: Run
    outcome: RepairOutcome


class Candidates(Struct, frozen=True):
    """What could be repaired in a namespace, up to the requested number of each kind."""

    now_ms: int
    tasks: Sequence[Task]
    """Tasks with expired leases."""
    runs: Sequence[Run]
    """Runs whose workflow task is missing."""
    more_tasks: bool = False
    more_runs: bool = False


class RepairFailure(Struct, frozen=True):
    """A task or run that could not be repaired."""

    id: str
    message: str


@dataclass(slots=True)
class RepairSummary:
    """Counts and failures of one repair pass."""

    tasks_found: int = 0
    runs_found: int = 0
    tasks_repaired: int = 0
    runs_repaired: int = 0
    task_failures: list[RepairFailure] = field(default_factory=list)
    run_failures: list[RepairFailure] = field(default_factory=list)


async def repair(ctx: EngineContext, address: Address) -> RepairResult:
    """Make the workflow task of a run ready: end its backoff, reclaim an expired lease, or create a missing one."""

    async def act(tx: Tx, run: Run) -> RepairResult:
        check_workflow(run)
        check_open(run)
        repaired = await _requeue_task(tx, run)
        if repaired.outcome is RepairOutcome.DISPATCHED:
            operator_commands.retain(ctx, tx, run, operator_commands.REPAIR, repaired.outcome)
        return repaired

    repaired = await on_run(ctx, address, act)
    if repaired.outcome is RepairOutcome.NOT_NEEDED and await _take_back(ctx, repaired.run):
        repaired = replace(repaired, outcome=RepairOutcome.DISPATCHED)
        await _retain_reclaim(ctx, repaired.run)
    log.info("repair", run_id=repaired.run.run_id, outcome=repaired.outcome.value)
    return repaired


async def _retain_reclaim(ctx: EngineContext, run: Run) -> None:
    """Record a repair that took back an expired lease, which has a transaction of its own."""

    async def operation(tx: Tx) -> None:
        found = await tx.runs.lock(run.run_id)
        if found is not None:
            outcome = RepairOutcome.DISPATCHED
            operator_commands.retain(ctx, tx, found, operator_commands.REPAIR, outcome)

    await ctx.store.transact(operation, key=run.run_id)


async def candidates(ctx: EngineContext, namespace: str, limit: int) -> Candidates:
    async def operation(tx: Tx) -> Candidates:
        tasks, ids = await gather(
            tx.namespace_stats.overdue_tasks(namespace, tx.now_ms, limit + 1),
            tx.namespace_stats.without_task(namespace, RUNS_SCANNED_MAX, RUNS_SCANNED_MAX),
        )
        found = await tx.runs.get_many(ids) if ids else ()
        runs = [run for run in found if run is not None and is_stranded(run)]
        return Candidates(tx.now_ms, tasks[:limit], runs[:limit], len(tasks) > limit, len(runs) > limit)

    return await ctx.store.read(operation, long=True)


async def repair_all(
    ctx: EngineContext,
    namespace: str,
    limit: int,
    run_ids: Sequence[str] = (),
    workflow_id: str | None = None,
) -> RepairSummary:
    """Repair the candidates of a namespace, or the named runs. A failure does not stop the pass."""
    done = RepairSummary()
    if run_ids or workflow_id is not None:
        chosen = await _chosen(ctx, namespace, run_ids, workflow_id)
    else:
        found = await candidates(ctx, namespace, limit)
        done.tasks_found = len(found.tasks)
        for task in found.tasks:
            done.tasks_repaired += await _attempt(task.task_id, done.task_failures, _reclaim(ctx, task))
        chosen = [run.run_id for run in found.runs]
    done.runs_found = len(chosen)
    for run_id in chosen:
        done.runs_repaired += await _attempt(run_id, done.run_failures, _repair_run(ctx, run_id))
    return done


async def _chosen(
    ctx: EngineContext, namespace: str, run_ids: Sequence[str], workflow_id: str | None
) -> Sequence[RunId]:
    """The named runs that exist in the namespace and are open."""

    async def operation(tx: Tx) -> Sequence[RunId]:
        ids = [RunId(each) for each in dict.fromkeys(run_ids)]
        if workflow_id is not None:
            instance = await tx.runs.instance(namespace, workflow_id)
            ids += [] if instance is None or instance.run_id in ids else [instance.run_id]
        found = await tx.runs.get_many(ids) if ids else ()
        return [run.run_id for run in found if run is not None and run.namespace == namespace and run.is_open]

    return await ctx.store.read(operation)


async def _attempt(name: str, failures: list[RepairFailure], act: Awaitable[bool]) -> bool:
    try:
        return await act
    except PenstockError as error:
        failures.append(RepairFailure(name, error.message))
        return False


async def _reclaim(ctx: EngineContext, task: Task) -> bool:
    if task.activity_id is None:
        return await workflow_reports.reclaim(ctx, task.task_id)
    return await activity_reports.reclaim(ctx, task.task_id)


async def _repair_run(ctx: EngineContext, run_id: RunId) -> bool:
    async def operation(tx: Tx) -> bool:
        run = await tx.runs.lock(run_id)
        if run is None or not run.is_open:
            return False
        return (await _requeue_task(tx, run)).outcome is RepairOutcome.DISPATCHED

    return await ctx.store.transact(operation, key=run_id)


async def _requeue_task(tx: Tx, run: Run) -> RepairResult:
    """Create a missing workflow task, or end the backoff of a failed one."""
    live = await tx.tasks.lock_workflow_task(run.run_id)
    if run.waits.paused is not None:
        return RepairResult(run, RepairOutcome.NOT_NEEDED)
    if live is None:
        if not is_stranded(run):
            return RepairResult(run, RepairOutcome.NOT_NEEDED)
        run = await schedule_next_task(tx, run, wakes=True)
        tx.runs.save(run)
        return RepairResult(run, RepairOutcome.DISPATCHED)
    backs_off = live.state is TaskState.DELAYED and (run.task_failures or run.blocked is not None)
    if not backs_off:
        return RepairResult(run, RepairOutcome.NOT_NEEDED)
    requeue(tx, run, replace(live, state=TaskState.READY, available_at_ms=tx.now_ms), TaskState.DELAYED)
    return RepairResult(run, RepairOutcome.DISPATCHED)


async def _take_back(ctx: EngineContext, run: Run) -> bool:
    """Reclaim the run's workflow task if its lease has expired; returns whether it was."""

    for task in await ctx.store.read(lambda tx: tx.namespace_stats.live_tasks(run.run_id, 25)):
        if task.activity_id is None and task.state is TaskState.LEASED:
            return await workflow_reports.reclaim(ctx, task.task_id)
    return False
