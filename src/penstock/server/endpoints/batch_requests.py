"""Batches: many items in one request, each with an outcome of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import structlog

from penstock.errors import PenstockError, Reason
from penstock.ports.store import Store
from penstock.server.endpoints.pending_operation import PendingOperation, PendingWork
from penstock.server.operation import Body, OperationCall, Response
from penstock.server.problems import body_of, status_of
from penstock.wire.requests import BatchOf
from penstock.wire.unknown_fields import UnknownField, with_warnings

log = structlog.get_logger("penstock.server")


async def run_batch(
    call: OperationCall,
    read: Callable[[Body], PendingWork],
    ignored: Callable[[Body], list[UnknownField]] | None = None,
) -> Response:
    """Handle all items together, so that they share commits. One that is refused does not disturb the others.

    Args:
        call: The request, whose body is a `BatchOf`.
        read: Turns one item into its work, or raises.
        ignored: Fields of one item that are ignored; its outcome names them in `warnings`.
    """
    request: BatchOf = call.body
    results: dict[int, Body] = {}
    deeds: dict[int, PendingOperation[Any]] = {}
    separate: dict[int, Awaitable[Response]] = {}
    for index, item in enumerate(request.items):
        try:
            work = read(item)
        except Exception as error:
            results[index] = _refused(error)
            continue
        if isinstance(work, PendingOperation):
            deeds[index] = work
        else:
            separate[index] = work
    await asyncio.gather(
        _run_in_one_transaction(call.ctx.store, deeds, results),
        *(_run_separately(index, work, results) for index, work in separate.items()),
    )
    items = [_with_warnings(results[index], item, ignored) for index, item in enumerate(request.items)]
    accepted = sum(item["http_status"] < 400 for item in items)
    return Response({"items": items, "accepted": accepted, "refused": len(items) - accepted})


def _with_warnings(result: Body, item: Body, ignored: Callable[[Body], list[UnknownField]] | None) -> Body:
    unknown = ignored(item) if ignored is not None else []
    return with_warnings(result, unknown) if unknown else result


async def _run_in_one_transaction(
    store: Store, deeds: Mapping[int, PendingOperation[Any]], results: dict[int, Body]
) -> None:
    try:
        outcomes = await store.transact_all([operation.transaction for operation in deeds.values()])
    except Exception as error:
        outcomes = [error] * len(deeds)
    for (index, operation), outcome in zip(deeds.items(), outcomes, strict=True):
        results[index] = _response_to(operation, outcome)


async def _run_separately(index: int, work: Awaitable[Response], results: dict[int, Body]) -> None:
    try:
        results[index] = _accepted(await work)
    except Exception as error:
        results[index] = _refused(error)


def _response_to(operation: PendingOperation[Any], outcome: object) -> Body:
    try:
        return _accepted(operation.to_response(outcome))
    except Exception as error:
        return _refused(error)


def _accepted(answer: Response) -> Body:
    return {"http_status": answer.status, **answer.body}


def _refused(error: Exception) -> Body:
    if isinstance(error, PenstockError):
        return {"http_status": status_of(error)} | body_of(error)
    log.error("an item of a batch failed", exc_info=error)
    failed = PenstockError(Reason.SERVER_ERROR, "The server failed; its log says why.", outcome="unknown")
    return {"http_status": status_of(failed)} | body_of(failed)
