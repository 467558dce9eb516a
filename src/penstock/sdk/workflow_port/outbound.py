"""Interceptors around what workflow code asks of its engine.

`InterceptedPort` stands between the functions of `penstock.workflow` and the port of an engine. It turns each call into
an input that interceptors may change, and the last link hands it to the port. Headers that an interceptor adds go
behind the arguments of the call, so no engine has to know of them. A run without outbound interceptors keeps the port
of its engine.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NoReturn

from penstock.dispatch import DispatchConfig
from penstock.sdk.call_targets import CallTarget
from penstock.sdk.converters.headers import with_headers
from penstock.sdk.workflow_port.continue_as_new import NextRun
from penstock.sdk.workflow_port.info import Info
from penstock.sdk.workflow_port.port import Options, WorkflowPort


@dataclass(slots=True)
class ScheduleActivityInput:
    """An activity that workflow code starts. `options` are those of the call."""

    activity: str
    args: Sequence[Any]
    options: Options
    called: CallTarget = field(repr=False)
    routing_key: str | None = None
    config: DispatchConfig | None = field(default=None, repr=False)
    headers: Mapping[str, Any] = field(default_factory=dict)


@dataclass(slots=True)
class StartLocalActivityInput:
    """A local activity that workflow code starts."""

    activity: str
    args: Sequence[Any]
    options: Options
    called: CallTarget = field(repr=False)
    result_type: Any = None
    headers: Mapping[str, Any] = field(default_factory=dict)


@dataclass(slots=True)
class StartChildWorkflowInput:
    """A child workflow that workflow code starts."""

    workflow: str
    args: Sequence[Any]
    id: str
    options: Options
    called: CallTarget = field(repr=False)
    headers: Mapping[str, Any] = field(default_factory=dict)


@dataclass(slots=True)
class SignalChildWorkflowInput:
    """A signal to a child."""

    signal: str
    args: Sequence[Any]
    child_workflow_id: str
    called: CallTarget = field(repr=False)
    child: Any = field(default=None, repr=False)
    headers: Mapping[str, Any] = field(default_factory=dict)


@dataclass(slots=True)
class SignalExternalWorkflowInput:
    """A signal to another workflow."""

    signal: str
    args: Sequence[Any]
    workflow_id: str
    workflow_run_id: str | None
    called: CallTarget = field(repr=False)
    headers: Mapping[str, Any] = field(default_factory=dict)


@dataclass(slots=True)
class ContinueAsNewInput:
    """The end of a run to continue as a new one."""

    workflow: str
    args: Sequence[Any]
    successor: NextRun = field(repr=False)
    headers: Mapping[str, Any] = field(default_factory=dict)


class WorkflowOutboundInterceptor:
    """Base class of interceptors around what workflow code starts and sends. Override methods, and call `next`.

    They are replayed with the code, so they must be deterministic as well.

    Args:
        next: the next link, towards the engine.
    """

    def __init__(self, next: WorkflowOutboundInterceptor) -> None:  # noqa: A002 - the word that interceptors use
        self.next = next

    def info(self) -> Info:
        """Return what `workflow.info` returns."""
        return self.next.info()

    def start_activity(self, input: ScheduleActivityInput) -> Any:  # noqa: A002
        """Start an activity and return its handle."""
        return self.next.start_activity(input)

    def start_local_activity(self, input: StartLocalActivityInput) -> Any:  # noqa: A002
        """Start a local activity and return its handle."""
        return self.next.start_local_activity(input)

    async def start_child_workflow(self, input: StartChildWorkflowInput) -> Any:  # noqa: A002
        """Start a child workflow and return its handle."""
        return await self.next.start_child_workflow(input)

    async def signal_child_workflow(self, input: SignalChildWorkflowInput) -> None:  # noqa: A002
        await self.next.signal_child_workflow(input)

    async def signal_external_workflow(self, input: SignalExternalWorkflowInput) -> None:  # noqa: A002
        await self.next.signal_external_workflow(input)

    def continue_as_new(self, input: ContinueAsNewInput) -> NoReturn:  # noqa: A002
        self.next.continue_as_new(input)


class PortOutbound(WorkflowOutboundInterceptor):
    """The last link: asks the port of the engine.

    Args:
        port: the port of the run.
    """

    def __init__(self, port: WorkflowPort) -> None:
        super().__init__(self)
        self._port = port

    def info(self) -> Info:
        return self._port.info

    def start_activity(self, input: ScheduleActivityInput) -> Any:  # noqa: A002
        called = _renamed(input.called, input.activity)
        return self._port.start_activity(
            called, with_headers(input.args, input.headers), input.options, input.routing_key, input.config
        )

    def start_local_activity(self, input: StartLocalActivityInput) -> Any:  # noqa: A002
        called = _renamed(input.called, input.activity)
        return self._port.start_local_activity(
            called, with_headers(input.args, input.headers), input.options, input.result_type
        )

    async def start_child_workflow(self, input: StartChildWorkflowInput) -> Any:  # noqa: A002
        called = _renamed(input.called, input.workflow)
        return await self._port.start_child(
            called, with_headers(input.args, input.headers), input.id, input.options
        )

    async def signal_child_workflow(self, input: SignalChildWorkflowInput) -> None:  # noqa: A002
        called = _renamed(input.called, input.signal)
        await self._port.signal_workflow(
            input.child_workflow_id,
            None,
            called,
            with_headers(input.args, input.headers),
            child=input.child,
        )

    async def signal_external_workflow(self, input: SignalExternalWorkflowInput) -> None:  # noqa: A002
        called = _renamed(input.called, input.signal)
        await self._port.signal_workflow(
            input.workflow_id, input.workflow_run_id, called, with_headers(input.args, input.headers)
        )

    def continue_as_new(self, input: ContinueAsNewInput) -> NoReturn:  # noqa: A002
        called = _renamed(input.successor.called, input.workflow)
        self._port.continue_as_new(
            replace(input.successor, called=called, arguments=with_headers(input.args, input.headers))
        )


class InterceptedPort:
    """The port of a run whose calls pass interceptors.

    Args:
        port: the port of the engine.
        outbound: the first link of the chain.
    """

    def __init__(self, port: WorkflowPort, outbound: WorkflowOutboundInterceptor) -> None:
        self._port, self._outbound = port, outbound

    def __getattr__(self, name: str) -> Any:
        return getattr(self._port, name)

    def __setattr__(self, name: str, value: Any) -> None:
        if name.startswith("_"):
            super().__setattr__(name, value)
        else:
            setattr(self._port, name, value)

    @property
    def info(self) -> Info:
        return self._outbound.info()

    def continue_as_new(self, successor: NextRun) -> NoReturn:
        self._outbound.continue_as_new(
            ContinueAsNewInput(successor.called.name, successor.arguments, successor)
        )

    def start_activity(
        self,
        called: CallTarget,
        arguments: Sequence[Any],
        options: Options,
        routing_key: str | None,
        config: DispatchConfig | None,
    ) -> Any:
        return self._outbound.start_activity(
            ScheduleActivityInput(called.name, arguments, options, called, routing_key, config)
        )

    def start_local_activity(
        self, called: CallTarget, arguments: Sequence[Any], options: Options, result_type: Any
    ) -> Any:
        return self._outbound.start_local_activity(
            StartLocalActivityInput(called.name, arguments, options, called, result_type)
        )

    async def start_child(
        self, called: CallTarget, arguments: Sequence[Any], child_id: str, options: Options
    ) -> Any:
        return await self._outbound.start_child_workflow(
            StartChildWorkflowInput(called.name, arguments, child_id, options, called)
        )

    async def signal_workflow(
        self,
        workflow_id: str,
        run_id: str | None,
        called: CallTarget,
        arguments: Sequence[Any],
        *,
        child: Any = None,
    ) -> None:
        if child is not None:
            await self._outbound.signal_child_workflow(
                SignalChildWorkflowInput(called.name, arguments, workflow_id, called, child)
            )
            return
        await self._outbound.signal_external_workflow(
            SignalExternalWorkflowInput(called.name, arguments, workflow_id, run_id, called)
        )


def _renamed(called: CallTarget, name: str) -> CallTarget:
    """Return the target under the name that an interceptor may have changed."""
    return called if called.name == name else replace(called, name=name)
