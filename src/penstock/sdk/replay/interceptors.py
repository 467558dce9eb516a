"""Interceptors around workflow code. They are replayed with it, so they must be deterministic as well."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from penstock.sdk.workflows.definitions import Handler


@dataclass(slots=True)
class ExecuteWorkflowInput:
    run_fn: Callable[..., Any]
    args: Sequence[Any]


@dataclass(slots=True)
class HandlerInput:
    """A signal, query or update with its handler."""

    name: str
    args: Sequence[Any]
    handler: Handler


class WorkflowInboundInterceptor:
    """Base class of workflow interceptors. Override the methods to intercept, and call `next`."""

    def __init__(self, next: WorkflowInboundInterceptor) -> None:  # noqa: A002 - the word that interceptors use
        self.next = next

    async def execute_workflow(self, input: ExecuteWorkflowInput) -> Any:  # noqa: A002
        return await self.next.execute_workflow(input)

    async def handle_signal(self, input: HandlerInput) -> None:  # noqa: A002
        await self.next.handle_signal(input)

    async def handle_update(self, input: HandlerInput) -> Any:  # noqa: A002
        return await self.next.handle_update(input)

    def validate_update(self, input: HandlerInput) -> None:  # noqa: A002
        self.next.validate_update(input)

    def handle_query(self, input: HandlerInput) -> Any:  # noqa: A002
        return self.next.handle_query(input)


def chain(interceptors: Sequence[Any], innermost: WorkflowInboundInterceptor) -> WorkflowInboundInterceptor:
    """Build the chain, first interceptor outermost. Interceptors without `intercept_workflow` are skipped."""
    found = innermost
    for each in reversed(interceptors):
        around = getattr(each, "intercept_workflow", None)
        if around is not None:
            found = around(found)
    return found
