"""Interceptors around activities."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(slots=True)
class ExecuteActivityInput:
    fn: Callable[..., Any]
    args: Sequence[Any]


class ActivityInboundInterceptor:
    """Base class of activity interceptors. They run in the event loop, wherever the activity runs."""

    def __init__(self, next: ActivityInboundInterceptor) -> None:  # noqa: A002 - the name that people know
        self.next = next

    async def execute_activity(self, input: ExecuteActivityInput) -> Any:  # noqa: A002 - the name that people know
        return await self.next.execute_activity(input)


class ActivityInvoker(ActivityInboundInterceptor):
    """The innermost link: runs the activity itself."""

    def __init__(self, run: Callable[[ExecuteActivityInput], Any]) -> None:
        self._run = run

    async def execute_activity(self, input: ExecuteActivityInput) -> Any:  # noqa: A002 - the name that people know
        return await self._run(input)


def chain(interceptors: Sequence[Any], innermost: ActivityInvoker) -> ActivityInboundInterceptor:
    """Build the chain, first interceptor outermost. Interceptors without `intercept_activity` are skipped."""
    found: ActivityInboundInterceptor = innermost
    for each in reversed(interceptors):
        around = getattr(each, "intercept_activity", None)
        if around is not None:
            found = around(found)
    return found
