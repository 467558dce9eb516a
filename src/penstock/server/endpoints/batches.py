"""Batches: many items in one request, each with an outcome of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import structlog

from penstock.errors import PenstockError, Reason
from penstock.server.operation import Answer, Call
from penstock.server.problems import body_of, status_of
from penstock.wire.requests import BatchOf

log = structlog.get_logger("penstock.server")


async def each(call: Call, handle: Callable[[dict[str, Any]], Awaitable[Answer]]) -> Answer:
    """Handle all items together, so that they share commits. One that is refused does not disturb the others."""
    request: BatchOf = call.body

    async def one(item: dict[str, Any]) -> dict[str, Any]:
        try:
            answer = await handle(item)
        except PenstockError as refusal:
            return {"http_status": status_of(refusal)} | body_of(refusal)
        except Exception:
            log.exception("an item of a batch failed")
            failed = PenstockError(
                Reason.SERVER_ERROR, "The server failed; its log says why.", outcome="unknown"
            )
            return {"http_status": status_of(failed)} | body_of(failed)
        return {"http_status": answer.status, **answer.body}

    results = await asyncio.gather(*(one(item) for item in request.items))
    accepted = sum(result["http_status"] < 400 for result in results)
    return Answer({"items": results, "accepted": accepted, "refused": len(results) - accepted})
