"""The decorators that define workflows and their handlers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, ParamSpec, Protocol, TypeVar, overload

from penstock.sdk.workflows import definitions
from penstock.sdk.workflows.definitions import HandlerUnfinishedPolicy

C = TypeVar("C", bound=type)
F = TypeVar("F", bound=Callable[..., Any])
P = ParamSpec("P")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)
WARN = HandlerUnfinishedPolicy.WARN_AND_ABANDON


@overload
def defn(cls: C) -> C: ...
@overload
def defn(
    *,
    name: str | None = None,
    dynamic: bool = False,
    sandboxed: bool = True,
    failure_exception_types: Sequence[type[BaseException]] = (),
    pack: str | None = None,
) -> Callable[[C], C]: ...
def defn(
    cls: Any = None,
    *,
    name: str | None = None,
    dynamic: bool = False,
    sandboxed: bool = True,
    failure_exception_types: Sequence[type[BaseException]] = (),
    pack: str | None = None,
) -> Any:
    """Make a class a workflow.

    Args:
        cls: the class, if the decorator is used without arguments.
        name: name of the workflow type; the name of the class unless given.
        dynamic: run for every workflow type that the worker has no other class for.
        sandboxed: whether calls of clocks, random number generators and the like are detected.
        failure_exception_types: exceptions that fail the run. Any other exception that is not a `FailureError` counts
            as a bug: the workflow task fails and is retried.
        pack: name of a group of definitions by which worker scopes select them.
    """

    def decorate(cls: C) -> C:
        definition = definitions.define(
            cls,
            name,
            dynamic=dynamic,
            failure_exception_types=tuple(failure_exception_types),
            is_guarded=sandboxed,
            pack=pack,
        )
        setattr(cls, definitions.DEFINITION, definition)
        definition.run.__penstock_owner__ = cls  # type: ignore[attr-defined]
        return cls

    return decorate if cls is None else decorate(cls)


def run(fn: F) -> F:
    """Mark the async run method of a workflow.

    Args:
        fn: the method.
    """
    if not asyncio.iscoroutinefunction(fn):
        raise definitions.DefinitionError(f"{_called(fn)} must be an async method: write `async def`.")
    setattr(fn, definitions.RUN, True)
    return fn


def init(fn: F) -> F:
    """Mark `__init__` to receive the arguments of the run method as well.

    Args:
        fn: the `__init__` method.
    """
    setattr(fn, definitions.INIT, True)
    return fn


@overload
def signal(fn: F) -> F: ...
@overload
def signal(
    *,
    name: str | None = None,
    dynamic: bool = False,
    unfinished_policy: HandlerUnfinishedPolicy = ...,
) -> Callable[[F], F]: ...
def signal(
    fn: Any = None,
    *,
    name: str | None = None,
    dynamic: bool = False,
    unfinished_policy: HandlerUnfinishedPolicy = WARN,
) -> Any:
    """Mark a signal handler.

    Args:
        fn: the method, if the decorator is used without arguments.
        name: name of the signal; that of the method unless given.
        dynamic: handle all signals without a handler: `(self, name, *args)`, or
            `(self, name, args: Sequence[RawValue])` as received.
        unfinished_policy: what happens if the run closes while the handler runs.
    """
    return _handler("signal", fn, name, dynamic=dynamic, policy=unfinished_policy)


@overload
def query(fn: F) -> F: ...
@overload
def query(*, name: str | None = None, dynamic: bool = False) -> Callable[[F], F]: ...
def query(fn: Any = None, *, name: str | None = None, dynamic: bool = False) -> Any:
    """Mark a query handler. It must return immediately and not change anything.

    Args:
        fn: the method, if the decorator is used without arguments.
        name: name of the query; that of the method unless given.
        dynamic: handle all queries without a handler: `(self, name, *args)`, or
            `(self, name, args: Sequence[RawValue])` as received.
    """

    def check(fn: Any) -> None:
        if asyncio.iscoroutinefunction(fn):
            raise definitions.DefinitionError(f"{_called(fn)} answers a query: write `def`, not `async def`.")

    return _handler("query", fn, name, dynamic=dynamic, check=check)


class UpdateMethod(Protocol[P, R_co]):
    """An update handler. `validator` marks the method that may reject the update before it is recorded."""

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R_co: ...

    def validator(self, check: F) -> F:
        """Mark the validator of this update.

        Args:
            check: a method with the parameters of the update. It rejects the update by raising.
        """
        ...


@overload
def update(fn: Callable[P, R]) -> UpdateMethod[P, R]: ...
@overload
def update(
    *,
    name: str | None = None,
    dynamic: bool = False,
    unfinished_policy: HandlerUnfinishedPolicy = ...,
) -> Callable[[Callable[P, R]], UpdateMethod[P, R]]: ...
def update(
    fn: Any = None,
    *,
    name: str | None = None,
    dynamic: bool = False,
    unfinished_policy: HandlerUnfinishedPolicy = WARN,
) -> Any:
    """Mark an update handler. `@that_method.validator` marks the method that may reject the update.

    Args:
        fn: the method, if the decorator is used without arguments.
        name: name of the update; that of the method unless given.
        dynamic: handle all updates without a handler: `(self, name, *args)`, or
            `(self, name, args: Sequence[RawValue])` as received.
        unfinished_policy: what happens if the run closes while the handler runs.
    """

    def add_validator(fn: Any) -> None:
        def validator(check: F) -> F:
            if asyncio.iscoroutinefunction(check):
                raise definitions.DefinitionError(f"{_called(check)} is a validator: write `def`.")
            fn.__penstock_validator__ = check
            return check

        fn.validator = validator

    return _handler(
        "update",
        fn,
        name,
        dynamic=dynamic,
        check=add_validator,
        policy=unfinished_policy,
    )


def _handler(
    kind: str,
    fn: Any,
    name: str | None,
    *,
    dynamic: bool,
    check: Callable[[Any], None] | None = None,
    policy: HandlerUnfinishedPolicy = WARN,
) -> Any:
    if not isinstance(policy, HandlerUnfinishedPolicy):
        raise TypeError(f"unfinished_policy is a HandlerUnfinishedPolicy, not {policy!r}")
    if dynamic and name is not None:
        raise definitions.DefinitionError(
            f"A dynamic handler of {kind}s matches every name: leave `name` out."
        )

    def decorate(fn: F) -> F:
        if not callable(fn):
            raise definitions.DefinitionError(f"@workflow.{kind} goes above a method, not above {fn!r}.")
        if check is not None:
            check(fn)
        setattr(fn, definitions.HANDLER, (kind, None if dynamic else (name or fn.__name__)))
        setattr(fn, definitions.UNFINISHED, policy)
        return fn

    return decorate if fn is None else decorate(fn)


def _called(fn: Any) -> str:
    return getattr(fn, "__qualname__", None) or repr(fn)
