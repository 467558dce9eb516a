"""Many at once: one thing done to all open runs that a query finds, seen before it is done."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from penstock.sdk.clients.descriptions import Json, WorkflowExecution
from penstock.sdk.clients.interceptors import new_id
from penstock.sdk.connection.transport import Transport, route

PORTION_SECONDS: Final = 120.0
"""A portion of 500 runs may take long on a busy server."""


@dataclass(frozen=True, slots=True)
class BatchFailure:
    """A run for which it could not be done."""

    workflow_id: str
    run_id: str
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class BatchResult:
    """What became of the runs that were found."""

    matched: int
    acted: int
    skipped: int
    """Closed meanwhile: there was nothing left to do."""
    failed: int
    failures: Sequence[BatchFailure] = ()
    """The first of each portion; `failed` counts all."""


@dataclass(frozen=True, slots=True)
class BatchPreview:
    """The open runs that a query finds now. Nothing was done."""

    matched: int
    complete: bool
    """False: there are at least so many."""
    sample: Sequence[WorkflowExecution] = field(repr=False)
    """The newest of them."""


async def preview(transport: Transport, query: str) -> BatchPreview:
    """What a batch operation would act on."""
    answer = await _ask(transport, {"operation": "terminate", "query": query, "dry_run": True})
    sample = [WorkflowExecution.read(each) for each in answer["sample"]]
    return BatchPreview(answer["matched"], answer["complete"], sample)


async def carry_out(
    transport: Transport,
    operation: Literal["cancel", "terminate", "signal"],
    query: str,
    request_id: str | None,
    **fields: Any,
) -> BatchResult:
    """Act on all open runs that the query finds, portion by portion. Sent again, it does what is left to do."""
    asked: Json = {"operation": operation, "query": query, "request_id": request_id or new_id()}
    asked |= {name: value for name, value in fields.items() if value is not None}
    counts = dict.fromkeys(("matched", "acted", "skipped", "failed"), 0)
    failures: list[BatchFailure] = []
    token: str | None = None
    while True:
        answer = await _ask(transport, asked | ({} if token is None else {"token": token}))
        counts = {name: count + answer[name] for name, count in counts.items()}
        failures += [_failure(each) for each in answer["failures"]]
        token = answer["next_token"]
        if token is None:
            return BatchResult(**counts, failures=failures)


async def _ask(transport: Transport, body: Json) -> Json:
    path = route("workflows", "batch-operations")
    return await transport.control("POST", path, body, idempotent=True, timeout_s=PORTION_SECONDS)


def _failure(body: Mapping[str, Any]) -> BatchFailure:
    return BatchFailure(body["workflow_id"], body["run_id"], body["reason"], body["message"])
