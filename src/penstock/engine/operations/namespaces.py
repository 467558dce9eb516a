"""Namespaces: creating, changing and deleting the unit of isolation."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct
from msgspec.structs import replace

from penstock.core.model import Namespace
from penstock.core.schedules.record import ScheduleRecord
from penstock.engine.context import EngineContext
from penstock.engine.operations import retention
from penstock.engine.operations.retention import Obstacle, PruneScope
from penstock.engine.schedules import lifecycle
from penstock.errors import Conflict, NotFound, Reason
from penstock.ports.store import Tx
from penstock.ports.tables.schedules import ScheduleFilter
from penstock.ports.wakeups import queue_topic

RUNS_AT_ONCE = 200
"""How many runs or schedules of a namespace that is deleted are looked up at once."""


async def create(
    ctx: EngineContext, name: str, description: str | None, retention_days: int | None, *, fair: bool = True
) -> Namespace:
    async def operation(tx: Tx) -> Namespace:
        namespace = Namespace(
            name,
            description,
            retention_days or ctx.settings.retention_days_default,
            "active",
            None,
            tx.now_ms,
            tx.now_ms,
            int(fair),
        )
        if not await tx.namespaces.reserve(namespace):
            raise Conflict(
                Reason.NAMESPACE_ALREADY_EXISTS,
                f"The namespace {name!r} exists already. Reuse it, or choose a distinct name.",
                namespace=name,
            )
        return namespace

    return await ctx.store.transact(operation, key=f"namespace:{name}")


async def ensure(ctx: EngineContext, name: str) -> None:
    """Create a namespace unless it exists; used for the default namespace at startup."""

    async def operation(tx: Tx) -> None:
        days = ctx.settings.retention_days_default
        await tx.namespaces.reserve(Namespace(name, None, days, "active", None, tx.now_ms, tx.now_ms))

    await ctx.store.transact(operation, key=f"namespace:{name}")


async def describe(ctx: EngineContext, name: str) -> Namespace:
    found = await find(ctx, name)
    if found is None:
        raise not_found(name)
    return found


async def find(ctx: EngineContext, name: str) -> Namespace | None:
    return await ctx.store.read(lambda tx: tx.namespaces.get(name))


async def list_namespaces(ctx: EngineContext) -> Sequence[Namespace]:
    return await ctx.store.read(lambda tx: tx.namespaces.list(), long=True)


async def update(
    ctx: EngineContext,
    name: str,
    description: str | None,
    retention_days: int | None,
    *,
    fair: bool | None = None,
) -> Namespace:
    """Change the given properties; None leaves one as it is. A change of the dispatch order wakes open polls."""

    async def operation(tx: Tx) -> Namespace:
        found = await tx.namespaces.get(name)
        if found is None:
            raise not_found(name)
        changed = replace(
            found,
            description=found.description if description is None else description,
            retention_days=found.retention_days if retention_days is None else retention_days,
            updated_at_ms=tx.now_ms,
            fair=found.fair if fair is None else int(fair),
        )
        tx.namespaces.save(changed)
        if changed.fair != found.fair:
            for queue in await tx.queues.list(name):
                tx.wake(queue_topic(queue.queue_id))
        return changed

    return await ctx.store.transact(operation, key=f"namespace:{name}")


async def store_payloads(ctx: EngineContext, name: str, storage: str) -> Namespace:
    """Store a namespace's external payload storage policy (JSON text)."""

    async def operation(tx: Tx) -> Namespace:
        found = await tx.namespaces.get(name)
        if found is None:
            raise not_found(name)
        changed = replace(found, external_storage=storage, updated_at_ms=tx.now_ms)
        tx.namespaces.save(changed)
        return changed

    return await ctx.store.transact(operation, key=f"namespace:{name}")


class DeletedNamespace(Struct, frozen=True):
    """A namespace that was deleted, and how many rows went with it."""

    namespace: Namespace
    runs: int
    workers: int
    search_attributes: int
    schedules: int


async def delete(ctx: EngineContext, name: str, *, with_closed_runs: bool = False) -> DeletedNamespace:
    """Delete a namespace: an empty one, or one whose runs are all closed, with these runs, its schedules, workers
    and queues.

    Raises `Conflict` if it is the default or is not empty. Runs are deleted one by one; if the call is interrupted,
    the namespace stays, and a repetition deletes the rest.
    """
    schedules = await _delete_schedules(ctx, name) if with_closed_runs else 0
    runs = await _delete_closed_runs(ctx, name) if with_closed_runs else 0

    async def operation(tx: Tx) -> DeletedNamespace:
        found = await _deletable(ctx, tx, name)
        if with_closed_runs:
            empty = not await tx.namespaces.has_runs(name) and not await _some_schedules(tx, name)
        else:
            empty = await tx.namespaces.is_empty(name)
        if not empty:
            raise _not_empty(name)
        workers = await tx.namespaces.clear(name) if with_closed_runs else 0
        attributes = len(await tx.visibility.types(name))
        tx.namespaces.delete(name)
        tx.visibility.unregister_all(name)
        deleted = replace(found, status="deleted", updated_at_ms=tx.now_ms)
        return DeletedNamespace(deleted, runs, workers, attributes, schedules)

    return await ctx.store.transact(operation, key=f"namespace:{name}")


async def _delete_schedules(ctx: EngineContext, name: str) -> int:
    """Delete the schedules of a namespace whose runs are all closed; returns how many there were."""
    await ctx.store.read(lambda tx: _check_all_closed(ctx, tx, name))
    deleted = 0
    while found := await ctx.store.read(lambda tx: _some_schedules(tx, name)):
        for each in found:
            await lifecycle.delete(ctx, name, each.schedule_id)
        deleted += len(found)
    return deleted


async def _some_schedules(tx: Tx, name: str) -> Sequence[ScheduleRecord]:
    return await tx.schedules.page(ScheduleFilter(name), None, RUNS_AT_ONCE)


async def _check_all_closed(ctx: EngineContext, tx: Tx, name: str) -> None:
    await _deletable(ctx, tx, name)
    if (await tx.namespace_stats.open_runs(name, 1)).by_status:
        raise _not_empty(name)


async def _delete_closed_runs(ctx: EngineContext, name: str) -> int:
    """Delete the runs of a namespace if all of them are closed; returns how many there were."""
    await ctx.store.read(lambda tx: _check_all_closed(ctx, tx, name))
    deleted, obstacle = 0, None
    while run_ids := await retention.closed(ctx, name, RUNS_AT_ONCE):
        pruned = [await retention.prune(ctx, each, name, PruneScope.CLOSED) for each in run_ids]
        gone = sum(each.obstacle is None for each in pruned)
        if not gone:
            obstacle = next((each.obstacle for each in pruned if each.obstacle is not Obstacle.GONE), None)
            if obstacle is not None:
                raise _not_empty(name, obstacle)
        deleted += gone
    return deleted


async def _deletable(ctx: EngineContext, tx: Tx, name: str) -> Namespace:
    found = await tx.namespaces.get(name)
    if found is None:
        raise not_found(name)
    if name == ctx.settings.default_namespace:
        raise Conflict(
            Reason.NAMESPACE_PROTECTED,
            f"{name!r} is the default namespace of this server and cannot be deleted.",
            namespace=name,
        )
    return found


def _not_empty(name: str, obstacle: Obstacle | None = None) -> Conflict:
    return Conflict(
        Reason.NAMESPACE_NOT_EMPTY,
        f"{name!r} still holds runs, task queues or workers, so it was not deleted.",
        namespace=name,
        obstacle=None if obstacle is None else obstacle.value,
        remediation="Cancel or terminate its open runs, then delete it with ?with_closed_runs=true, "
        "or with `penstock namespace delete NAME --with-closed-runs`.",
    )


def not_found(name: str) -> NotFound:
    return NotFound(
        Reason.NAMESPACE_NOT_FOUND,
        f"There is no namespace {name!r}.",
        namespace=name,
        remediation="Create the namespace, or correct the X-Namespace header of the client.",
    )
