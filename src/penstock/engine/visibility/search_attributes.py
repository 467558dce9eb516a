"""Search attributes of a namespace: registration, and checking values against the registered types."""

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
    return await ctx.store.read(lambda tx: types(tx, namespace))


async def check_values(tx: Tx, namespace: str, values: Mapping[str, Any], field: str) -> None:
    """Raise `ValidationFailed` for values that do not match their registered types."""
    problems = check(values, await types(tx, namespace)) if values else {}
    if problems:
        raise ValidationFailed({f"{field}.{name}": problem for name, problem in problems.items()})


async def check_start(tx: Tx, namespace: str, attributes: str) -> None:
    """Check the search attributes of a start, given as JSON text."""
    await check_values(
        tx, namespace, json.loads(attributes) if attributes != "{}" else {}, "search_attributes"
    )


async def register(ctx: EngineContext, namespace: str, name: str, type_: str) -> None:
    limit = ctx.settings.limits.search_attributes_max
    if is_reserved(name):
        raise Conflict(
            Reason.NAME_RESERVED,
            f"{name!r} is reserved in queries. Choose another name.",
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
    """Unregister an attribute. Values that runs have stay, and remain searchable."""
    if name in SYSTEM:
        raise Conflict(
            Reason.SYSTEM_ATTRIBUTE,
            f"{name!r} is a system attribute of every run and cannot be removed.",
            name=name,
        )

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
        f"A namespace has at most {limit} search attributes. Delete one that is no longer used.",
        limit=limit,
        errors=errors,
        validation_errors=errors,
    )
