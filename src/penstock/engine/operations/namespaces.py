"""Namespaces: creating, changing and deleting the unit of isolation."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from penstock.core.model import Namespace
from penstock.engine.context import EngineContext
from penstock.errors import Conflict, NotFound, Reason
from penstock.ports.store import Tx
from penstock.ports.wakeups import queue_topic


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


async def delete(ctx: EngineContext, name: str) -> Namespace:
    """Delete an empty namespace. Raises `Conflict` if it has runs, queues or workers, or is the default."""

    async def operation(tx: Tx) -> Namespace:
        found = await tx.namespaces.get(name)
        if found is None:
            raise not_found(name)
        if name == ctx.settings.default_namespace:
            raise Conflict(
                Reason.NAMESPACE_PROTECTED,
                f"{name!r} is the default namespace of this server and cannot be deleted.",
                namespace=name,
            )
        if not await tx.namespaces.is_empty(name):
            raise Conflict(
                Reason.NAMESPACE_NOT_EMPTY,
                f"{name!r} still holds runs, task queues or workers, so it was not deleted.",
                namespace=name,
            )
        tx.namespaces.delete(name)
        tx.visibility.unregister_all(name)
        return replace(found, status="deleted", updated_at_ms=tx.now_ms)

    return await ctx.store.transact(operation, key=f"namespace:{name}")


def not_found(name: str) -> NotFound:
    return NotFound(
        Reason.NAMESPACE_NOT_FOUND,
        f"There is no namespace {name!r}.",
        namespace=name,
        remediation="Create the namespace, or correct the X-Namespace header of the client.",
    )
