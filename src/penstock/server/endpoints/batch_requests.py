"""Batches: many items in one request, each with its own outcome."""

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
from penstock.wire.request_parser import UnknownField, with_warnings
from penstock.wire.requests import BatchOf

log = structlog.get_logger("penstock.server")


async def run_batch(
    call: OperationCall,
    parse_item: Callable[[Body], PendingWork],
    ignored: Callable[[Body], list[UnknownField]] | None = None,
) -> Response:
    """Run all items together, so that they share commits. A rejected item does not affect the others.

    Args:
        call: The request, whose body is a `BatchOf`.
        parse_item: Parses one item into a pending operation, or raises.
        ignored: Returns the unknown fields of one item, which are listed in the `warnings` of its outcome.
    """
    request: BatchOf = call.body
    results: dict[int, Body] = {}
    operations: dict[int, PendingOperation[Any]] = {}
    separate: dict[int, Awaitable[Response]] = {}
    for index, item in enumerate(request.items):
        try:
            work = parse_item(item)
        except Exception as error:
            results[index] = _rejected(error)
            continue
        if isinstance(work, PendingOperation):
            operations[index] = work
        else:
            separate[index] = work
    await asyncio.gather(
        _run_in_one_transaction(call.ctx.store, operations, results),
        *(_run_separately(index, work, results) for index, work in separate.items()),
    )
    items = [_with_warnings(results[index], item, ignored) for index, item in enumerate(request.items)]
    accepted = sum(item["http_status"] < 400 for item in items)
    return Response({"items": items, "accepted": accepted, "refused": len(items) - accepted})


def _with_warnings(result: Body, item: Body, ignored: Callable[[Body], list[UnknownField]] | None) -> Body:
    unknown = ignored(item) if ignored is not None else []
    return with_warnings(result, unknown) if unknown else result


async def _run_in_one_transaction(
    store: Store, operations: Mapping[int, PendingOperation[Any]], results: dict[int, Body]
) -> None:
    try:
        outcomes = await store.transact_all([operation.transaction for operation in operations.values()])
    except Exception as error:
        outcomes = [error] * len(operations)
    for (index, operation), outcome in zip(operations.items(), outcomes, strict=True):
        results[index] = _response_to(operation, outcome)


async def _run_separately(index: int, work: Awaitable[Response], results: dict[int, Body]) -> None:
    try:
        results[index] = _accepted(await work)
    except Exception as error:
        results[index] = _rejected(error)


def _response_to(operation: PendingOperation[Any], outcome: object) -> Body:
    try:
        return _accepted(operation.to_response(outcome))
    except Exception as error:
        return _rejected(error)


def _accepted(response: Response) -> Body:
    return {"http_status": response.status, **response.body}


def _rejected(error: Exception) -> Body:
    if isinstance(error, PenstockError):
        return {"http_status": status_of(error)} | body_of(error)
    log.error("an item of a batch failed", exc_info=error)
    failed = PenstockError(
        Reason.SERVER_ERROR, "The server failed; see its log for the cause.", outcome="unknown"
    )
    return {"http_status": status_of(failed)} | body_of(failed)
