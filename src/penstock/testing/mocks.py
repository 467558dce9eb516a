"""Mocked activities: with the name and signature of the original, and a result of the test's choice."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from typing import Any, ParamSpec, Protocol, TypeVar, cast, overload

from penstock.sdk.activities.definition import MARK, ActivityDefinition, ActivityMark

P = ParamSpec("P")
T = TypeVar("T")
ReturnT_co = TypeVar("ReturnT_co", covariant=True)

_UNSET: Any = object()


class MockedActivity(Protocol[P, ReturnT_co]):
    """An activity for `Worker(activities=[...])` that records its calls."""

    calls: list[tuple[Any, ...]]
    """The arguments of each call in order, including retries."""

    async def __call__(self, *args: P.args, **kwargs: P.kwargs) -> ReturnT_co: ...


@overload
def mocked(activity: Callable[P, Awaitable[T]], *, returns: T) -> MockedActivity[P, T]: ...
@overload
def mocked(activity: Callable[P, T], *, returns: T) -> MockedActivity[P, T]: ...
@overload
def mocked(
    activity: Callable[P, Awaitable[T]],
    *,
    side_effect: Callable[P, Awaitable[T]] | Callable[P, T] | BaseException | type[BaseException],
) -> MockedActivity[P, T]: ...
@overload
def mocked(
    activity: Callable[P, T],
    *,
    side_effect: Callable[P, Awaitable[T]] | Callable[P, T] | BaseException | type[BaseException],
) -> MockedActivity[P, T]: ...
def mocked(activity: Any, *, returns: Any = _UNSET, side_effect: Any = _UNSET) -> Any:
    """Mock an activity.

    The mock runs in the event loop, whatever the activity runs in, so that it may `await env.sleep(...)`.

    Args:
        activity: the activity to replace.
        returns: the result of each call.
        side_effect: a function of the activity's arguments, sync or async, whose result is returned, or an error to
            raise.
    """
    definition = ActivityDefinition.must_be(activity)
    if (returns is _UNSET) == (side_effect is _UNSET):
        raise TypeError(f"The mock of {definition.label} needs either returns= or side_effect=")
    if side_effect is not _UNSET and not callable(side_effect) and not isinstance(side_effect, BaseException):
        raise TypeError(
            f"side_effect is a function or an error, not {type(side_effect).__name__}; for a value use returns="
        )
    calls: list[tuple[Any, ...]] = []

    async def stand_in(*args: Any, **kwargs: Any) -> Any:
        calls.append(_bound(shape, args, kwargs))
        return returns if side_effect is _UNSET else await _effect(side_effect, args, kwargs)

    shape = _shape(definition)
    mock: Any = stand_in
    mock.__name__ = mock.__qualname__ = definition.name or "dynamic"
    mock.__doc__ = inspect.getdoc(definition.fn)
    mock.__signature__ = shape
    mock.__annotations__ = _annotations(definition)
    given = ActivityMark(
        definition.name,
        definition.dynamic,
        None,
        definition.auto_heartbeat,
        definition.routing,
        definition.tags,
        definition.pack,
        definition.defaults,
    )
    setattr(mock, MARK, given)
    mock.calls = calls
    return cast(MockedActivity[..., Any], mock)


async def _effect(side_effect: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    if isinstance(side_effect, BaseException) or _is_error(side_effect):
        raise side_effect
    found = side_effect(*args, **kwargs)
    return await found if inspect.isawaitable(found) else found


def _is_error(side_effect: Any) -> bool:
    return isinstance(side_effect, type) and issubclass(side_effect, BaseException)


def _shape(definition: ActivityDefinition) -> inspect.Signature:
    """Return the signature as callers see it: without the instance of a method."""
    own = inspect.signature(definition.fn)
    return own.replace(parameters=[own.parameters[name] for name in definition.parameters])


def _annotations(definition: ActivityDefinition) -> dict[str, Any]:
    hints = dict(zip(definition.parameters, definition.arg_types, strict=True))
    given = {name: hint for name, hint in hints.items() if hint is not None}
    return given | ({} if definition.ret_type is None else {"return": definition.ret_type})


def _bound(shape: inspect.Signature, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
    """Return the arguments in order, including those given by name."""
    return shape.bind(*args, **kwargs).args
