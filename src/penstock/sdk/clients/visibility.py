"""Listing and counting workflows, and batch operations on them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

from penstock.sdk.call_targets import UNSET, signal_target
from penstock.sdk.clients import batch_operations
from penstock.sdk.clients.base_client import BaseClient
from penstock.sdk.clients.batch_operations import BatchPreview, BatchResult
from penstock.sdk.clients.descriptions import WorkflowExecution, WorkflowExecutionCount
from penstock.sdk.connection.transport import route

PAGE = 200


class WorkflowVisibility(BaseClient):
    """The part of `Client` that finds workflows and acts on many at once."""

    async def list_workflows(
        self, query: str | None = None, *, page_size: int = PAGE, limit: int | None = None
    ) -> AsyncIterator[WorkflowExecution]:
        """Yield the runs that match a query, newest first. Pages are fetched on demand.

        Args:
            query: a visibility query; None matches all runs.
            page_size: runs per request.
            limit: maximum number of runs; None is all.
        """
        async for body in self._pages("workflows", {"query": query}, page_size, limit):
            yield WorkflowExecution.read(body)

    async def count_workflows(
        self, query: str | None = None, *, by_status: bool = False
    ) -> WorkflowExecutionCount:
        """Return how many runs match a query.

        Args:
            query: a visibility query; None matches all runs.
            by_status: whether to count each status separately, too.
        """
        response = await self.transport.control(
            "GET",
            route("workflows", "count"),
            idempotent=True,
            query={"query": query, "group_by": "status" if by_status else None},
        )
        return WorkflowExecutionCount(response["count"], response["complete"], response.get("groups") or {})

    async def preview_batch(self, query: str) -> BatchPreview:
        """Return the open runs that a batch operation with this query would act on. Nothing is changed.

        Args:
            query: a visibility query.
        """
        return await batch_operations.preview(self.transport, query)

    async def cancel_workflows(
        self, query: str, *, reason: str | None = None, request_id: str | None = None
    ) -> BatchResult:
        """Cancel all open runs that match a query.

        Args:
            query: a visibility query.
            reason: recorded with each run.
            request_id: identifies the operation, so that a repeated call has no additional effect; None generates
                one.
        """
        return await batch_operations.carry_out(self.transport, "cancel", query, request_id, reason=reason)

    async def terminate_workflows(
        self, query: str, *, reason: str | None = None, request_id: str | None = None
    ) -> BatchResult:
        """Terminate all open runs that match a query.

        Args:
            query: a visibility query.
            reason: recorded with each run.
            request_id: identifies the operation, so that a repeated call has no additional effect; None generates
                one.
        """
        return await batch_operations.carry_out(self.transport, "terminate", query, request_id, reason=reason)

    async def signal_workflows(
        self,
        query: str,
        signal: str | Callable[..., Any],
        arg: Any = UNSET,
        *,
        args: Sequence[Any] = (),
        request_id: str | None = None,
    ) -> BatchResult:
        """Send a signal to all open runs that match a query.

        Args:
            query: a visibility query.
            signal: the signal method, or its name.
            arg: the only argument of the signal.
            args: the arguments, if there are several.
            request_id: identifies the operation: each run receives the signal once; None generates one.
        """
        called = signal_target(signal)
        arguments = self.data_converter.encode_arguments(
            called.arguments(arg, args), f'signal "{called.name}"'
        )
        return await batch_operations.carry_out(
            self.transport, "signal", query, request_id, signal_name=called.name, input=arguments
        )
