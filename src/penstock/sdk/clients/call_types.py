"""Types of the calls that clients make: the callables, by arity, and the options of updates."""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, ParamSpec, Protocol, TypeAlias, TypedDict, TypeVar

SelfT = TypeVar("SelfT")
ArgT = TypeVar("ArgT")
ResultT = TypeVar("ResultT")
ResultT_co = TypeVar("ResultT_co", covariant=True)
P = ParamSpec("P")

AsyncFunction0: TypeAlias = Callable[[], Awaitable[ResultT]]
Function0: TypeAlias = Callable[[], ResultT]
AsyncFunction1: TypeAlias = Callable[[ArgT], Awaitable[ResultT]]
Function1: TypeAlias = Callable[[ArgT], ResultT]
AsyncMethod0: TypeAlias = Callable[[SelfT], Awaitable[ResultT]]
SyncMethod0: TypeAlias = Callable[[SelfT], ResultT]
AsyncMethod1: TypeAlias = Callable[[SelfT, ArgT], Awaitable[ResultT]]
SyncMethod1: TypeAlias = Callable[[SelfT, ArgT], ResultT]
AsyncCallable: TypeAlias = Callable[..., Awaitable[ResultT]]


class NamedCallArgs(TypedDict, total=False):
    """Several arguments of something that is called by name."""

    args: Sequence[Any]


class HandleWithResult(Protocol[ResultT_co]):
    """A handle whose result can be awaited."""

    async def result(self) -> ResultT_co: ...


def awaiting_result(
    start: Callable[P, Coroutine[Any, Any, HandleWithResult[ResultT]]],
) -> Callable[P, Coroutine[Any, Any, ResultT]]:
    """Make the method `execute_…` from `start_…`, which it calls: the same call, which also waits for the result."""
    name = start.__name__

    @functools.wraps(start)
    async def execute(*args: P.args, **kwargs: P.kwargs) -> ResultT:
        handle = await getattr(args[0], name)(*args[1:], **kwargs)  # a subclass may override it
        result: ResultT = await handle.result()
        return result

    execute.__name__ = name.replace("start_", "execute_")
    execute.__qualname__ = start.__qualname__.replace(name, execute.__name__)
    execute.__doc__ = f"Call `{name}` with these arguments, wait for the result of the handle, and return it."
    return execute
