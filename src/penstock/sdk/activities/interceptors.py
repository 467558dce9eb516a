"""Interceptors around activities."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from penstock.sdk.activities.context import ActivityContext
from penstock.sdk.activities.info import ActivityInfo


@dataclass(slots=True)
class ExecuteActivityInput:
    """The function with its arguments, and the headers of the call."""

    fn: Callable[..., Any]
    args: Sequence[Any]
    headers: Mapping[str, Any] = field(default_factory=dict)


class ActivityOutboundInterceptor:
    """Base class of interceptors around what activity code asks of its worker. Override methods, and call `next`.

    Activities in processes ask their process, so that these links are not called for them.

    Args:
        next: the next link, towards the worker.
    """

    def __init__(self, next: ActivityOutboundInterceptor) -> None:  # noqa: A002 - the name that people know
        self.next = next

    def info(self) -> ActivityInfo:
        """Return what `activity.info` returns."""
        return self.next.info()

    def heartbeat(self, *details: Any) -> None:
        """Record a heartbeat.

        Args:
            details: those of `activity.heartbeat`.
        """
        self.next.heartbeat(*details)


class ActivityInboundInterceptor:
    """Base class of activity interceptors. They run in the event loop, wherever the activity runs.

    Args:
        next: the next link, towards the code.
    """

    def __init__(self, next: ActivityInboundInterceptor) -> None:  # noqa: A002 - the name that people know
        self.next = next

    def init(self, outbound: ActivityOutboundInterceptor) -> None:
        """Add links around what the code asks: pass on `MyOutbound(outbound)`.

        Args:
            outbound: the chain so far; its last link is the worker.
        """
        self.next.init(outbound)

    async def execute_activity(self, input: ExecuteActivityInput) -> Any:  # noqa: A002 - the name that people know
        return await self.next.execute_activity(input)


class ActivityInvoker(ActivityInboundInterceptor):
    """The innermost link: runs the activity itself."""

    def __init__(self, run: Callable[[ExecuteActivityInput], Any]) -> None:
        self._run = run
        self.outbound: ActivityOutboundInterceptor | None = None

    def init(self, outbound: ActivityOutboundInterceptor) -> None:
        self.outbound = outbound

    async def execute_activity(self, input: ExecuteActivityInput) -> Any:  # noqa: A002 - the name that people know
        return await self._run(input)


class _WorkerOutbound(ActivityOutboundInterceptor):
    """The last link: the context that the worker made."""

    def __init__(self, context: ActivityContext) -> None:
        super().__init__(self)
        self._info, self._heartbeat = context.info, context.heartbeat

    def info(self) -> ActivityInfo:
        return self._info

    def heartbeat(self, *details: Any) -> None:
        self._heartbeat(details)


def chain(
    interceptors: Sequence[Any], innermost: ActivityInvoker, context: ActivityContext
) -> ActivityInboundInterceptor:
    """Build the chain, first interceptor outermost. Interceptors without `intercept_activity` are skipped.

    Links around what the code asks are put into its context.
    """
    found: ActivityInboundInterceptor = innermost
    for each in reversed(interceptors):
        around = getattr(each, "intercept_activity", None)
        if around is not None:
            found = around(found)
    root = _WorkerOutbound(context)
    found.init(root)
    outbound = innermost.outbound
    if outbound is not None and outbound is not root:
        context.heartbeat = lambda details: outbound.heartbeat(*details)
        context.shown_info = outbound.info
    return found
