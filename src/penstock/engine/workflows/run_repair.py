"""Repairing: what should run and does not is put in line again, for one run or for all that are found.

Sweepers do this by themselves; an operator asks for it who does not want to wait for a rest to end, or whose
database was changed by hand.
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
from penstock.engine.runs.address import Address, check_open, check_workflow, on_run
from penstock.engine.runs.history_writer import is_stranded, requeue, schedule_next_task
from penstock.engine.workflows import workflow_reports
from penstock.errors import PenstockError
from penstock.ports.store import Tx

RUNS_SCANNED_MAX: Final = 1_000
log = structlog.get_logger("penstock.repair")


class RepairOutcome(StrEnum):
    DISPATCHED = "repair_dispatched"
    NOT_NEEDED = "repair_not_needed"


class RepairResult(Struct, frozen=True):
    run: Run
    outcome: RepairOutcome


class Candidates(Struct, frozen=True):
    """What could be repaired in a namespace; of each kind at most as many as were asked for."""

    now_ms: int
    tasks: Sequence[Task]
    """Leases that have ended."""
    runs: Sequence[Run]
    """Runs whose workflow task is missing."""
    more_tasks: bool = False
    more_runs: bool = False


class RepairFailure(Struct, frozen=True):
    id: str
    message: str


@dataclass(slots=True)
class RepairPass:
    """What one pass found and did."""

    tasks_found: int = 0
    runs_found: int = 0
    tasks_repaired: int = 0
    runs_repaired: int = 0
    task_failures: list[RepairFailure] = field(default_factory=list)
    run_failures: list[RepairFailure] = field(default_factory=list)


async def repair(ctx: EngineContext, address: Address) -> RepairResult:
    """Have the current run of a workflow decided as soon as a worker is free.

    A workflow task that rests after a failure is ready at once; one that is missing is made.
    """

    async def act(tx: Tx, run: Run) -> RepairResult:
        check_workflow(run)
        check_open(run)
        return await _mend(tx, run)

    repaired = await on_run(ctx, address, act)
    if repaired.outcome is RepairOutcome.NOT_NEEDED and await _take_back(ctx, repaired.run):
        repaired = replace(repaired, outcome=RepairOutcome.DISPATCHED)
    log.info("repair", run_id=repaired.run.run_id, outcome=repaired.outcome.value)
    return repaired


async def candidates(ctx: EngineContext, namespace: str, limit: int) -> Candidates:
    async def operation(tx: Tx) -> Candidates:
        tasks = await tx.namespace_stats.overdue_tasks(namespace, tx.now_ms, limit + 1)
        ids = await tx.namespace_stats.without_task(namespace, RUNS_SCANNED_MAX, RUNS_SCANNED_MAX)
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
) -> RepairPass:
    """Repair what is found in a namespace, or what is named; what fails does not keep the rest from it."""
    done = RepairPass()
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
    """The named runs that are there and open; runs of other namespaces are not there."""

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
        return (await _mend(tx, run)).outcome is RepairOutcome.DISPATCHED

    return await ctx.store.transact(operation, key=run_id)


async def _mend(tx: Tx, run: Run) -> RepairResult:
    live = await tx.tasks.lock_workflow_task(run.run_id)
    if live is None:
        if not is_stranded(run):
            return RepairResult(run, RepairOutcome.NOT_NEEDED)
        run = await schedule_next_task(tx, run, wakes=True)
        tx.runs.save(run)
        return RepairResult(run, RepairOutcome.DISPATCHED)
    rests = live.state is TaskState.DELAYED and (run.task_failures or run.blocked is not None)
    if not rests:
        return RepairResult(run, RepairOutcome.NOT_NEEDED)
    requeue(tx, replace(live, state=TaskState.READY, available_at_ms=tx.now_ms), TaskState.DELAYED)
    return RepairResult(run, RepairOutcome.DISPATCHED)


async def _take_back(ctx: EngineContext, run: Run) -> bool:
    """Whether the run's workflow task was leased beyond its end, and waits again now."""

    async def operation(tx: Tx) -> Sequence[Task]:
        return await tx.namespace_stats.live_tasks(run.run_id, 25)

    for task in await ctx.store.read(operation):
        if task.activity_id is None and task.state is TaskState.LEASED:
            return await workflow_reports.reclaim(ctx, task.task_id)
    return False
