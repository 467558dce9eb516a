"""Interceptors around workflow code. They are replayed with it, so they must be deterministic as well."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from penstock.sdk.workflow_port.outbound import InterceptedPort, PortOutbound, WorkflowOutboundInterceptor
from penstock.sdk.workflow_port.port import WorkflowPort
from penstock.sdk.workflows.definitions import Handler


@dataclass(slots=True)
class ExecuteWorkflowInput:
    """The run method with its arguments, and the headers of the start."""

    run_fn: Callable[..., Any]
    args: Sequence[Any]
    headers: Mapping[str, Any] = field(default_factory=dict)


@dataclass(slots=True)
class HandleSignalInput:
    """A signal with its handler."""

    signal: str
    args: Sequence[Any]
    handler: Handler = field(repr=False)
    headers: Mapping[str, Any] = field(default_factory=dict)


@dataclass(slots=True)
class HandleQueryInput:
    """A query with its handler."""

    query: str
    args: Sequence[Any]
    handler: Handler = field(repr=False)
    headers: Mapping[str, Any] = field(default_factory=dict)


@dataclass(slots=True)
class HandleUpdateInput:
    """An update with its handler. A validator is called before the update has an id that code may use."""

    update: str
    args: Sequence[Any]
    handler: Handler = field(repr=False)
    headers: Mapping[str, Any] = field(default_factory=dict)
    id: str = ""


class WorkflowInboundInterceptor:
    """Base class of workflow interceptors. Override the methods to intercept, and call `next`.

    Args:
        next: the next link, towards the code.
    """

    def __init__(self, next: WorkflowInboundInterceptor) -> None:  # noqa: A002 - the word that interceptors use
        self.next = next

    def init(self, outbound: WorkflowOutboundInterceptor) -> None:
        """Add links around what the code starts and sends: pass on `MyOutbound(outbound)`.

        Args:
            outbound: the chain so far; its last link is the engine.
        """
        self.next.init(outbound)

    async def execute_workflow(self, input: ExecuteWorkflowInput) -> Any:  # noqa: A002
        return await self.next.execute_workflow(input)

    async def handle_signal(self, input: HandleSignalInput) -> None:  # noqa: A002
        await self.next.handle_signal(input)

    def handle_query(self, input: HandleQueryInput) -> Any:  # noqa: A002
        return self.next.handle_query(input)

    def handle_update_validator(self, input: HandleUpdateInput) -> None:  # noqa: A002
        self.next.handle_update_validator(input)

    async def handle_update_handler(self, input: HandleUpdateInput) -> Any:  # noqa: A002
        return await self.next.handle_update_handler(input)


class CodeInvoker(WorkflowInboundInterceptor):
    """The innermost link: calls the workflow code itself.

    Args:
        instance: returns the instance of the workflow class.
    """

    def __init__(self, instance: Callable[[], Any]) -> None:
        super().__init__(self)
        self._instance = instance
        self.outbound: WorkflowOutboundInterceptor | None = None

    def init(self, outbound: WorkflowOutboundInterceptor) -> None:
        self.outbound = outbound

    async def execute_workflow(self, input: ExecuteWorkflowInput) -> Any:  # noqa: A002
        return await input.run_fn(self._instance(), *input.args)

    async def handle_signal(self, input: HandleSignalInput) -> None:  # noqa: A002
        await self._invoke(input)

    def handle_query(self, input: HandleQueryInput) -> Any:  # noqa: A002
        return input.handler.fn(self._instance(), *input.args)

    def handle_update_validator(self, input: HandleUpdateInput) -> None:  # noqa: A002
        if input.handler.validator is not None:
            input.handler.validator(self._instance(), *input.args)

    async def handle_update_handler(self, input: HandleUpdateInput) -> Any:  # noqa: A002
        return await self._invoke(input)

    async def _invoke(self, input: HandleSignalInput | HandleUpdateInput) -> Any:  # noqa: A002
        result = input.handler.fn(self._instance(), *input.args)
        return await result if inspect.isawaitable(result) else result


@dataclass(frozen=True, slots=True)
class WorkflowInterceptorClassInput:
    """What `Interceptor.workflow_interceptor_class` gets. It has no fields yet."""


def chain(
    interceptors: Sequence[Any], innermost: CodeInvoker, port: WorkflowPort
) -> tuple[WorkflowInboundInterceptor, Any]:
    """Build the chain of a run, first interceptor outermost, and the port that its code uses.

    Interceptors without a link for workflows are skipped.
    """
    found: WorkflowInboundInterceptor = innermost
    for each in reversed(interceptors):
        found = _around(each, found)
    if found is innermost:
        return innermost, port
    root = PortOutbound(port)
    found.init(root)
    outbound = innermost.outbound
    return found, port if outbound is None or outbound is root else InterceptedPort(port, outbound)


def _around(interceptor: Any, inner: WorkflowInboundInterceptor) -> WorkflowInboundInterceptor:
    around = getattr(interceptor, "intercept_workflow", None)
    if around is not None:
        linked: WorkflowInboundInterceptor = around(inner)
        return linked
    class_of = getattr(interceptor, "workflow_interceptor_class", None)
    kind = None if class_of is None else class_of(WorkflowInterceptorClassInput())
    return inner if kind is None else kind(inner)
