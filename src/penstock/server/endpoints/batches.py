"""Batches: many items in one request, each with an outcome of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import structlog

from penstock.errors import PenstockError, Reason
from penstock.ports.store import Store
from penstock.server.endpoints.deeds import Deed, Work
from penstock.server.operation import Answer, Body, Call
from penstock.server.problems import body_of, status_of
from penstock.wire.requests import BatchOf
from penstock.wire.unknown_fields import UnknownField, with_warnings

log = structlog.get_logger("penstock.server")


async def each(
    call: Call,
    read: Callable[[Body], Work],
    ignored: Callable[[Body], list[UnknownField]] | None = None,
) -> Answer:
    """Handle all items together, so that they share commits. One that is refused does not disturb the others.

    Args:
        call: The request, whose body is a `BatchOf`.
        read: Turns one item into its work, or raises.
        ignored: Fields of one item that are ignored; its outcome names them in `warnings`.
    """
    request: BatchOf = call.body
    results: dict[int, Body] = {}
    deeds: dict[int, Deed[Any]] = {}
    apart: dict[int, Awaitable[Answer]] = {}
    for place, item in enumerate(request.items):
        try:
            work = read(item)
        except Exception as error:
            results[place] = _refused(error)
            continue
        if isinstance(work, Deed):
            deeds[place] = work
        else:
            apart[place] = work
    await asyncio.gather(
        _do_together(call.house.store, deeds, results),
        *(_do_apart(place, work, results) for place, work in apart.items()),
    )
    items = [_warned(results[place], item, ignored) for place, item in enumerate(request.items)]
    accepted = sum(item["http_status"] < 400 for item in items)
    return Answer({"items": items, "accepted": accepted, "refused": len(items) - accepted})


def _warned(result: Body, item: Body, ignored: Callable[[Body], list[UnknownField]] | None) -> Body:
    unknown = ignored(item) if ignored is not None else []
    return with_warnings(result, unknown) if unknown else result


async def _do_together(store: Store, deeds: Mapping[int, Deed[Any]], results: dict[int, Body]) -> None:
    try:
        outcomes = await store.transact_each([deed.asked for deed in deeds.values()])
    except Exception as error:
        outcomes = [error] * len(deeds)
    for (place, deed), outcome in zip(deeds.items(), outcomes, strict=True):
        results[place] = _told(deed, outcome)


async def _do_apart(place: int, work: Awaitable[Answer], results: dict[int, Body]) -> None:
    try:
        results[place] = _accepted(await work)
    except Exception as error:
        results[place] = _refused(error)


def _told(deed: Deed[Any], outcome: object) -> Body:
    try:
        return _accepted(deed.told(outcome))
    except Exception as error:
        return _refused(error)


def _accepted(answer: Answer) -> Body:
    return {"http_status": answer.status, **answer.body}


def _refused(error: Exception) -> Body:
    if isinstance(error, PenstockError):
        return {"http_status": status_of(error)} | body_of(error)
    log.error("an item of a batch failed", exc_info=error)
    failed = PenstockError(Reason.SERVER_ERROR, "The server failed; its log says why.", outcome="unknown")
    return {"http_status": status_of(failed)} | body_of(failed)
