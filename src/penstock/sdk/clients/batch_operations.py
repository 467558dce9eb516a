"""Batch operations: an action on all open runs that match a query, with a preview."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from penstock.sdk.clients.descriptions import Json, WorkflowExecution
from penstock.sdk.clients.interceptors import new_id
from penstock.sdk.connection.transport import Transport, route

PORTION_SECONDS: Final = 120.0
"""A batch of 500 runs may take long on a busy server."""


@dataclass(frozen=True, slots=True)
class BatchFailure:
    """A run for which the operation failed."""

    workflow_id: str
    run_id: str
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class BatchResult:
    """The outcome of a batch operation."""

    matched: int
    acted: int
    skipped: int
    """Runs that closed in the meantime, so that there was nothing to do."""
    failed: int
    failures: Sequence[BatchFailure] = ()
    """The first failures of each batch; `failed` counts all."""


@dataclass(frozen=True, slots=True)
class BatchPreview:
    """The open runs that match a query. Nothing was changed."""

    matched: int
    complete: bool
    """False if there are more runs than counted."""
    sample: Sequence[WorkflowExecution] = field(repr=False)
    """The newest of them."""


async def preview(transport: Transport, query: str) -> BatchPreview:
    """Return what a batch operation would act on."""
    response = await _send(transport, {"operation": "terminate", "query": query, "dry_run": True})
    sample = [WorkflowExecution.read(each) for each in response["sample"]]
    return BatchPreview(response["matched"], response["complete"], sample)


async def carry_out(
    transport: Transport,
    operation: Literal["cancel", "terminate", "signal"],
    query: str,
    request_id: str | None,
    **fields: Any,
) -> BatchResult:
    """Act on all open runs that match the query, in batches. A repeated call does what is left."""
    body: Json = {"operation": operation, "query": query, "request_id": request_id or new_id()}
    body |= {name: value for name, value in fields.items() if value is not None}
    counts = dict.fromkeys(("matched", "acted", "skipped", "failed"), 0)
    failures: list[BatchFailure] = []
    token: str | None = None
    while True:
        response = await _send(transport, body | ({} if token is None else {"token": token}))
        counts = {name: count + response[name] for name, count in counts.items()}
        failures += [_failure(each) for each in response["failures"]]
        token = response["next_token"]
        if token is None:
            return BatchResult(**counts, failures=failures)


async def _send(transport: Transport, body: Json) -> Json:
    path = route("workflows", "batch-operations")
    return await transport.control("POST", path, body, idempotent=True, timeout_s=PORTION_SECONDS)


def _failure(body: Mapping[str, Any]) -> BatchFailure:
    return BatchFailure(body["workflow_id"], body["run_id"], body["reason"], body["message"])
