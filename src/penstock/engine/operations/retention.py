"""Retention: closed runs older than their namespace's retention period are archived and deleted.

Deletion is two-phase. One transaction removes the run's row and inserts a tombstone, so readers see all of the run or
nothing. Its other rows, which may be many, are deleted in batches, so that no transaction is long. If a server dies in
between, any server resumes from the tombstone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from penstock.core.model import ChildState, Instance, Run, RunId
from penstock.core.operations.run_counts import PurgedRows
from penstock.core.timestamps import MINUTE_MS
from penstock.engine.context import EngineContext
from penstock.engine.operations import archival
from penstock.ports.store import Tx

DAY_MS: Final = 24 * 60 * MINUTE_MS
ROWS_AT_ONCE: Final = 1_000
"""How many rows of a table are deleted in one transaction."""


NOTHING: Final = PurgedRows()


class Obstacle(StrEnum):
    """Why a run was not deleted."""

    GONE = "run_not_found"
    OPEN = "run_open"
    NOT_EXPIRED = "not_expired"
    WORK_LEFT = "tasks_not_ended"
    AWAITED = "awaited_by_parent"
    OLDER_RUNS = "older_runs_remain"


class PruneScope(StrEnum):
    """Which closed runs may be deleted."""

    EXPIRED = "expired"
    CLOSED = "closed"
    NAMED = "named"
    """A closed run that a caller named: it is not archived first, and may be the newest of several."""


class Pruned(Struct, frozen=True):
    """The result for one run: deleted, or an obstacle."""

    run_id: RunId
    obstacle: Obstacle | None = None
    cleared: PurgedRows = NOTHING


class Expired(Struct, frozen=True):
    """Expired runs of a namespace, up to a limit."""

    retention_days: int
    cutoff_ms: int
    run_ids: Sequence[RunId]
    more: bool


async def expired(ctx: EngineContext, namespace: str, limit: int) -> Expired:
    async def operation(tx: Tx) -> Expired:
        found = await tx.namespaces.get(namespace)
        days = ctx.settings.retention_days_default if found is None else found.retention_days
        cutoff_ms = tx.now_ms - days * DAY_MS
        run_ids = await tx.retention.expired(namespace, cutoff_ms, limit + 1)
        return Expired(days, cutoff_ms, run_ids[:limit], len(run_ids) > limit)

    return await ctx.store.read(operation)


async def closed(ctx: EngineContext, namespace: str, limit: int) -> Sequence[RunId]:
    """The closed runs of a namespace, those that closed first at the front."""
    return await ctx.store.read(lambda tx: tx.retention.expired(namespace, tx.now_ms + 1, limit))


async def prune(
    ctx: EngineContext,
    run_id: RunId,
    namespace: str | None = None,
    scope: PruneScope = PruneScope.EXPIRED,
    record: Callable[[Tx, Run], None] | None = None,
) -> Pruned:
    """Archive and delete one run, unless there is an obstacle. `record` is called in the deleting transaction.

    Raises `Unavailable` if the archive cannot be written; then nothing is deleted.
    """
    run, obstacle = await _look(ctx, run_id, namespace, scope)
    if run is None and namespace is None:
        return Pruned(run_id, obstacle, await clear(ctx, run_id))
    if run is None or obstacle is not None:
        return Pruned(run_id, obstacle)
    if scope is not PruneScope.NAMED:
        await archival.keep(ctx, run)
    await _release_workflow_id(ctx, run)

    async def operation(tx: Tx) -> Obstacle | None:
        found = await tx.runs.lock(run_id)
        if found is None:
            return Obstacle.GONE
        found_obstacle = await _obstacle(tx, found, scope)
        if found_obstacle is None:
            tx.retention.forget(found, await _instance_left(tx, found))
            if record is not None:
                record(tx, found)
        return found_obstacle

    obstacle = await ctx.store.transact(operation, key=run_id)
    if obstacle is not None:
        return Pruned(run_id, obstacle)
    ctx.upkeep.runs_pruned += 1
    return Pruned(run_id, None, await clear(ctx, run_id))


async def _instance_left(tx: Tx, run: Run) -> Instance | None:
    """The workflow id as it names the run before this one, if this one is the newest of several."""
    instance = await tx.runs.instance(run.namespace, run.workflow_id)
    if instance is None or instance.run_id != run.run_id:
        return None
    previous = await tx.retention.newest_other(run)
    return None if previous is None else replace(instance, run_id=previous)


async def _release_workflow_id(ctx: EngineContext, run: Run) -> None:
    """Delete the run's request ids and messages in batches; a closed run gets no new ones."""

    while await ctx.store.transact(lambda tx: tx.retention.unlink(run.run_id, ROWS_AT_ONCE), key=run.run_id):
        pass


async def clear(ctx: EngineContext, run_id: RunId) -> PurgedRows:
    """Delete the remaining rows of a deleted run in batches."""

    async def operation(tx: Tx) -> PurgedRows:
        if await tx.runs.get(run_id) is not None:
            return PurgedRows()
        cleared = await tx.retention.clear(run_id, ROWS_AT_ONCE)
        if not cleared.full:
            tx.retention.bury(run_id)
        return cleared

    cleared = PurgedRows(full=True)
    while cleared.full:
        cleared += await ctx.store.transact(operation, key=f"remains:{run_id}")
    return cleared


async def _look(
    ctx: EngineContext, run_id: RunId, namespace: str | None, scope: PruneScope
) -> tuple[Run | None, Obstacle | None]:
    async def operation(tx: Tx) -> tuple[Run | None, Obstacle | None]:
        run = await tx.runs.get(run_id)
        if run is None or namespace not in (None, run.namespace):
            return None, Obstacle.GONE
        return run, await _obstacle(tx, run, scope)

    return await ctx.store.read(operation)


async def _obstacle(tx: Tx, run: Run, scope: PruneScope) -> Obstacle | None:
    if run.closed_at_ms is None:
        return Obstacle.OPEN
    if scope is PruneScope.EXPIRED and not await _is_expired(tx, run.namespace, run.closed_at_ms):
        return Obstacle.NOT_EXPIRED
    if await tx.namespace_stats.live_tasks(run.run_id, 1):
        return Obstacle.WORK_LEFT
    instance = await tx.runs.instance(run.namespace, run.workflow_id)
    if instance is None or instance.run_id != run.run_id:
        return None
    if await _is_awaited_by_parent(tx, run):
        return Obstacle.AWAITED
    if scope is PruneScope.NAMED or await tx.retention.newest_other(run) is None:
        return None
    return Obstacle.OLDER_RUNS


async def _is_expired(tx: Tx, name: str, closed_at_ms: int) -> bool:
    namespace = await tx.namespaces.get(name)
    return namespace is None or closed_at_ms < tx.now_ms - namespace.retention_days * DAY_MS


async def _is_awaited_by_parent(tx: Tx, run: Run) -> bool:
    """Whether an open parent has not received the child's outcome yet."""
    origin = run.lineage
    if origin.parent_run_id is None or origin.parent_step is None:
        return False
    parent = await tx.runs.get(origin.parent_run_id)
    if parent is None or not parent.is_open:
        return False
    child = await tx.children.get(origin.parent_run_id, origin.parent_step)
    return child is not None and child.state is ChildState.OPEN
