"""Workflow definitions: a class with its handlers, as collected by the decorators and validated at definition time."""

from __future__ import annotations

import hashlib
import inspect
import logging
import types
import typing
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from penstock.sdk.failures import FailureError

DEFINITION = "__penstock_workflow__"
RUN = "__penstock_run__"
INIT = "__penstock_init__"
HANDLER = "__penstock_handler__"
OF_TEMPORAL = "__temporal_workflow_definition"
"""What temporalio's decorator sets on a class."""
UNFINISHED = "__penstock_unfinished__"
LOG = logging.getLogger("penstock.workflow")
POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


class DefinitionError(ValueError):
    """A definition is invalid; the message says what is wrong and how to fix it."""


class HandlerUnfinishedPolicy(Enum):
    """What happens if a run closes while a handler of a signal or an update runs."""

    WARN_AND_ABANDON = 1
    """Warn with `UnfinishedSignalHandlersWarning` or `UnfinishedUpdateHandlersWarning`, and abandon the handler."""
    ABANDON = 2
    """Abandon the handler."""


class UnfinishedSignalHandlersWarning(RuntimeWarning):
    """A run has closed while handlers of signals ran."""


class UnfinishedUpdateHandlersWarning(RuntimeWarning):
    """A run has closed while handlers of updates ran."""


@dataclass(frozen=True, slots=True)
class Parameters:
    """The parameters of a function without `self`."""

    types: tuple[Any, ...]
    """Type hints in order; `Any` where there is none."""
    required: int
    names: tuple[str, ...]
    variadic: bool = False

    def accepts(self, count: int) -> bool:
        return self.required <= count and (self.variadic or count <= len(self.types))

    def in_words(self) -> str:
        most = "or more" if self.variadic else ""
        if not self.variadic and len(self.types) != self.required:
            most = f"to {len(self.types)}"
        return " ".join(part for part in (str(self.required), most) if part)


@dataclass(frozen=True, slots=True)
class Handler:
    """A method that handles a signal, query or update."""

    kind: str
    name: str | None
    """None matches every name without a handler."""
    fn: Callable[..., Any]
    parameters: Parameters
    result: Any
    is_async: bool
    validator: Callable[..., Any] | None = None
    description: str = ""
    warns_if_unfinished: bool = True
    source: Callable[..., Any] | None = None
    """The function of a handler that was set at run time; None for a method."""

    def called_on(self, instance: Any) -> Callable[..., Any]:
        """Return the handler as code calls it."""
        return types.MethodType(self.fn, instance) if self.source is None else self.source


@dataclass(frozen=True, slots=True)
class WorkflowDefinition:
    name: str | None
    """None matches every type without a definition."""
    cls: type
    run: Callable[..., Any]
    parameters: Parameters
    result: Any
    signals: Mapping[str | None, Handler] = field(default_factory=dict)
    queries: Mapping[str | None, Handler] = field(default_factory=dict)
    updates: Mapping[str | None, Handler] = field(default_factory=dict)
    takes_input: bool = False
    """Whether `__init__` receives the arguments as well."""
    failure_exception_types: tuple[type[BaseException], ...] = ()
    is_guarded: bool = True
    fingerprint: str = ""
    pack: str | None = None
    """Worker scopes select workflows by it."""

    def fails_by(self, error: BaseException) -> bool:
        """Whether an error that leaves the code fails the run; any other error is a bug and fails the task."""
        return isinstance(error, (FailureError, TimeoutError, *self.failure_exception_types))

    def failure_in(self, error: BaseException) -> BaseException | None:
        """Return the failure that an error leaving the code represents; None if the error is a bug.

        A group of one exception represents that exception: a `TaskGroup` wraps the error that ended it, and Python
        before 3.11.4 wraps what is raised inside `except*`. A group of several is a failure if each of them is.
        """
        sole = sole_exception(error)
        if self.fails_by(sole):
            return sole
        if self.fails_by(error):
            return error
        if isinstance(sole, BaseExceptionGroup) and all(
            self.failure_in(each) is not None for each in sole.exceptions
        ):
            return sole
        return None

    @staticmethod
    def of(cls: type) -> WorkflowDefinition:
        found = cls.__dict__.get(DEFINITION)
        if not isinstance(found, WorkflowDefinition):
            if OF_TEMPORAL in vars(cls):
                raise DefinitionError(
                    f"{_called(cls)} is decorated by temporalio: write `from penstock import workflow`. "
                    "`penstock migrate temporal PATH` rewrites the imports of a program."
                )
            raise DefinitionError(
                f"{_called(cls)} is not a workflow: put @workflow.defn above the class and @workflow.run above "
                "its run method."
            )
        return found


def sole_exception(error: BaseException) -> BaseException:
    """Return the only exception inside nested groups of one; any other error unchanged."""
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error


def define(
    cls: type,
    name: str | None,
    *,
    dynamic: bool,
    failure_exception_types: tuple[type[BaseException], ...] = (),
    is_guarded: bool = True,
    pack: str | None = None,
) -> WorkflowDefinition:
    """Read a workflow class. Raises `DefinitionError`."""
    if not inspect.isclass(cls):
        raise DefinitionError(f"@workflow.defn goes above a class, not above {cls!r}.")
    runs = _marked(cls, RUN)
    if not runs:
        raise DefinitionError(f"{_called(cls)} has no run method: put @workflow.run above one async method.")
    if len(runs) > 1:
        raise DefinitionError(
            f"{_called(cls)} has several run methods: {_names(runs)}. Keep one @workflow.run."
        )
    run = runs[0]
    if run.__qualname__ != f"{cls.__qualname__}.{run.__name__}":
        raise DefinitionError(
            f"{_called(cls)} inherits its run method from {run.__qualname__.rpartition('.')[0]}: define one in the "
            "class itself, so that the class shows what runs."
        )
    hints = _hints(run)
    definition = WorkflowDefinition(
        name=None if dynamic else (name or cls.__name__),
        cls=cls,
        run=run,
        parameters=parameters_of(run, hints, f"the run method of {_called(cls)}"),
        result=hints.get("return"),
        signals=_handlers(cls, "signal"),
        queries=_handlers(cls, "query"),
        updates=_handlers(cls, "update"),
        takes_input=bool(getattr(cls.__init__, INIT, False)),
        failure_exception_types=failure_exception_types,
        is_guarded=is_guarded,
        fingerprint=_fingerprint(cls),
        pack=_checked_pack(pack, cls),
    )
    if not definition.takes_input and _required(cls.__init__) > 0:
        raise DefinitionError(
            f"{_called(cls)}.__init__ takes arguments: put @workflow.init above it if it should receive those of the "
            "run method, or remove them."
        )
    return definition


def _checked_pack(pack: object, cls: type) -> str | None:
    if pack is not None and not isinstance(pack, str):
        raise DefinitionError(f"the pack of {_called(cls)} is text, not {type(pack).__name__}.")
    if pack is not None and (not pack.isprintable() or not pack or pack != pack.strip()):
        raise DefinitionError(f"the pack of {_called(cls)} is visible characters, not {pack!r}.")
    return pack


def parameters_of(
    fn: Callable[..., Any], hints: Mapping[str, Any], what: str, *, has_self: bool = True
) -> Parameters:
    """Return the parameters after `self`. Keyword-only parameters cannot be sent and are refused."""
    found = list(inspect.signature(fn).parameters.values())[has_self:]
    types: list[Any] = []
    names: list[str] = []
    required, variadic = 0, False
    for each in found:
        if each.kind is inspect.Parameter.VAR_POSITIONAL:
            variadic = True
        elif each.kind in POSITIONAL:
            types.append(hints.get(each.name, Any))
            names.append(each.name)
            required += each.default is inspect.Parameter.empty
        else:
            raise DefinitionError(
                f"{what} takes {each.name!r} by keyword only; arguments are sent by position, so remove the *."
            )
    return Parameters(tuple(types), required, tuple(names), variadic)


def handler_from(
    kind: str, name: str | None, fn: Callable[..., Any], validator: Callable[..., Any] | None
) -> Handler:
    """Return a handler set at run time: a function without `self`."""

    def method(_: Any, *arguments: Any) -> Any:
        return fn(*arguments)

    def check(_: Any, *arguments: Any) -> Any:
        assert validator is not None
        return validator(*arguments)

    hints = _hints(fn)
    found = parameters_of(fn, hints, f"the handler of {kind} {name!r}", has_self=False)
    return Handler(
        kind=kind,
        name=name,
        fn=method,
        parameters=found,
        result=hints.get("return"),
        is_async=inspect.iscoroutinefunction(fn),
        validator=None if validator is None else check,
        source=fn,
    )


def handler_of(fn: Callable[..., Any]) -> tuple[str, str | None] | None:
    """Return kind and name if a method is a handler."""
    found: tuple[str, str | None] | None = getattr(fn, HANDLER, None)
    return found


def definition_of(workflow: Any) -> WorkflowDefinition | None:
    """Return the definition of a class or its run method; None for a name."""
    if isinstance(workflow, str):
        return None
    if inspect.isclass(workflow):
        return WorkflowDefinition.of(workflow)
    owner = getattr(workflow, "__penstock_owner__", None)
    if owner is not None:
        return WorkflowDefinition.of(owner)
    raise DefinitionError(
        f"{_called(workflow)} is not a workflow: pass the class, its @workflow.run method, or its name."
    )


def _handlers(cls: type, kind: str) -> dict[str | None, Handler]:
    found: dict[str | None, Handler] = {}
    for fn in _marked(cls, HANDLER):
        marked = handler_of(fn)
        if marked is None or marked[0] != kind:
            continue
        name = marked[1]
        if name in found:
            shown = "for all names" if name is None else repr(name)
            raise DefinitionError(f"{_called(cls)} has two handlers of {kind} {shown}: rename one of them.")
        hints = _hints(fn)
        what = f"the handler of {kind} {name!r} of {_called(cls)}"
        found[name] = Handler(
            kind=kind,
            name=name,
            fn=fn,
            parameters=parameters_of(fn, hints, what),
            result=hints.get("return"),
            is_async=inspect.iscoroutinefunction(fn),
            validator=getattr(fn, "__penstock_validator__", None),
            description=(inspect.getdoc(fn) or "").partition("\n")[0],
            warns_if_unfinished=getattr(fn, UNFINISHED, None) is not HandlerUnfinishedPolicy.ABANDON,
        )
    return found


def _marked(cls: type, mark: str) -> list[Callable[..., Any]]:
    """Return the methods with a mark in source order, those of base classes last."""
    seen: dict[str, Callable[..., Any]] = {}
    for base in cls.__mro__:
        for name, value in vars(base).items():
            if callable(value) and hasattr(value, mark):
                seen.setdefault(name, value)
    return list(seen.values())


def _hints(fn: Callable[..., Any]) -> dict[str, Any]:
    """Return type hints as far as they can be resolved.

    A name that exists only for type checkers gives none, and is logged.
    """
    try:
        return typing.get_type_hints(fn)
    except (NameError, TypeError, AttributeError):
        return dict(_resolved(fn))


def _resolved(fn: Callable[..., Any]) -> Iterator[tuple[str, Any]]:
    for name, annotation in getattr(fn, "__annotations__", {}).items():
        alone = types.SimpleNamespace(__annotations__={name: annotation})
        try:
            yield name, typing.get_type_hints(alone, getattr(fn, "__globals__", None))[name]
        except (NameError, TypeError, AttributeError):
            LOG.warning(
                "The type %r of %r in %s cannot be resolved: it arrives as plain data. Import it where it runs.",
                annotation,
                name,
                _called(fn),
            )


def _required(fn: Any) -> int:
    if fn is object.__init__:
        return 0
    found = list(inspect.signature(fn).parameters.values())[1:]
    return sum(each.kind in POSITIONAL and each.default is inspect.Parameter.empty for each in found)


def _fingerprint(cls: type) -> str:
    """A hash of the class's source, by which the server detects workers with different code."""
    try:
        text = inspect.getsource(cls)
    except (OSError, TypeError):
        text = repr(sorted(name for name in vars(cls)))
    return "sha256:" + hashlib.sha256(text.encode()).hexdigest()


def _called(thing: Any) -> str:
    return getattr(thing, "__qualname__", None) or repr(thing)


def _names(fns: list[Callable[..., Any]]) -> str:
    return ", ".join(fn.__name__ for fn in fns)
