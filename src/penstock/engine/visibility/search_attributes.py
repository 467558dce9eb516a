"""Search attributes of a namespace: registered with a type, which values must then have."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from penstock.core.visibility.attributes import check, is_reserved
from penstock.core.visibility.fields import SYSTEM
from penstock.engine.context import EngineContext
from penstock.errors import Conflict, InvalidInput, NotFound, Reason, ValidationFailed
from penstock.ports.store import Tx


async def types(tx: Tx, namespace: str) -> Mapping[str, str]:
    """The registered search attributes, each with its type."""
    return await tx.visibility.types(namespace)


async def registered(ctx: EngineContext, namespace: str) -> Mapping[str, str]:
    async def operation(tx: Tx) -> Mapping[str, str]:
        return await types(tx, namespace)

    return await ctx.store.read(operation)


async def check_values(tx: Tx, namespace: str, values: Mapping[str, Any], field: str) -> None:
    """Refuse values that are not of the types that their attributes are registered with."""
    problems = check(values, await types(tx, namespace)) if values else {}
    if problems:
        raise ValidationFailed({f"{field}.{name}": told for name, told in problems.items()})


async def check_start(tx: Tx, namespace: str, attributes: str) -> None:
    """The same for the attributes of a start, which are JSON text."""
    await check_values(
        tx, namespace, json.loads(attributes) if attributes != "{}" else {}, "search_attributes"
    )


async def register(ctx: EngineContext, namespace: str, name: str, type_: str) -> None:
    limit = ctx.settings.limits.search_attributes_max
    if is_reserved(name):
        raise Conflict(
            Reason.NAME_RESERVED,
            f"{name!r} means something of its own in queries. Choose another name.",
            name=name,
        )

    async def operation(tx: Tx) -> None:
        standing = await types(tx, namespace)
        if name not in standing and len(standing) >= limit:
            raise _limit_reached(limit)
        if name in standing or not await tx.visibility.register(namespace, name, type_):
            raise _exists(name, standing.get(name))

    await ctx.store.transact(operation, key=f"search attributes:{namespace}")


async def unregister(ctx: EngineContext, namespace: str, name: str) -> None:
    """Forget a type. Values that runs have stay, and can be asked for as before."""
    if name in SYSTEM:
        raise Conflict(Reason.SYSTEM_ATTRIBUTE, f"Every run has {name!r}; it stays.", name=name)

    async def operation(tx: Tx) -> None:
        if name not in await types(tx, namespace):
            raise NotFound(
                Reason.ATTRIBUTE_NOT_FOUND, f"No search attribute {name!r} is registered.", name=name
            )
        tx.visibility.unregister(namespace, name)

    await ctx.store.transact(operation, key=f"search attributes:{namespace}")


def _exists(name: str, type_: str | None) -> Conflict:
    standing = f" as {type_}" if type_ else ""
    return Conflict(
        Reason.ATTRIBUTE_ALREADY_EXISTS,
        f"The search attribute {name!r} is registered already{standing}. Delete it first to change its type.",
        name=name,
        type=type_,
    )


def _limit_reached(limit: int) -> InvalidInput:
    errors = {"name": [f"would be one more than {limit}"]}
    return InvalidInput(
        Reason.SEARCH_ATTRIBUTE_LIMIT_REACHED,
        f"A namespace has at most {limit} search attributes. Delete one that nobody asks for.",
        limit=limit,
        errors=errors,
        validation_errors=errors,
    )
