"""Resolves a class, function or name to the workflow, activity, signal, query or update that a caller means."""

from __future__ import annotations

import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from penstock.sdk.activities.defaults import NONE, ActivityDefaults
from penstock.sdk.activities.definition import ActivityDefinition
from penstock.sdk.activities.routing import checked_key
from penstock.sdk.workflows.definitions import Parameters, definition_of, handler_of, parameters_of


class _Unset:
    """Marks a missing argument, because None is a valid one."""

    def __repr__(self) -> str:
        return "…"


UNSET: Final[Any] = _Unset()


@dataclass(frozen=True, slots=True)
class CallTarget:
    """What is called: its name, parameters and result type, as far as they are known here."""

    kind: str
    name: str
    result_type: Any = None
    min_args: int = 0
    max_args: int | None = None
    """None is any number of arguments."""
    parameters: Sequence[tuple[str, Any]] = ()
    """Names with their type hints, if known."""
    definition: ActivityDefinition | None = None
    """The definition of an activity that is given as a function."""

    @property
    def takes(self) -> str:
        """The accepted arguments, for messages."""
        names = [name for name, _ in self.parameters]
        if not names:
            return "no arguments"
        number = str(len(names)) if self.min_args == len(names) else f"{self.min_args} to {len(names)}"
        return f"{number} argument{'' if number == '1' else 's'} ({', '.join(names)})"

    @property
    def defaults(self) -> ActivityDefaults:
        return NONE if self.definition is None else self.definition.defaults

    def routing_key(self, given: Sequence[Any], options: Mapping[str, Any]) -> str | None:
        """Return the routing key: that of the call, or one computed from the arguments. Raises `RoutingKeyError`."""
        if "routing_key" in options:
            return checked_key(options["routing_key"], f'{self.kind} "{self.name}"')
        return None if self.definition is None else self.definition.routing_key(given)

    def arguments(self, arg: Any, args: Sequence[Any]) -> list[Any]:
        """Return the arguments of a call. Those that the code certainly cannot accept are refused here."""
        if isinstance(args, str | bytes) and args:
            if self.max_args != 1:
                raise TypeError(
                    f"args of {self.kind} {self.name!r} must be a list of arguments, not one text"
                )
            args = [args]  # the code takes one argument, so a list can only be that argument
        if arg is not UNSET and args:
            raise TypeError(f"{self.kind} {self.name!r}: pass one argument, or several as args=[…], not both")
        given = list(args) if arg is UNSET else [arg]
        self._check(given)
        return given

    def _check(self, given: Sequence[Any]) -> None:
        if len(given) < self.min_args or (self.max_args is not None and len(given) > self.max_args):
            raise TypeError(f"{self.kind} {self.name!r} takes {self.takes}; {len(given)} given")
        for number, (value, (name, hint)) in enumerate(zip(given, self.parameters, strict=False), 1):
            if not _may_fit(value, hint):
                problem = f"{self.kind} {self.name!r}: argument {number} ({name}) must be {hint.__name__}"
                raise TypeError(f"{problem}, not {type(value).__name__}")


def workflow_target(workflow: object) -> CallTarget:
    """Resolve a workflow given as a class, run method or name."""
    if isinstance(workflow, str):
        return by_name("workflow", workflow)
    found = definition_of(workflow)
    if found is None or found.name is None:
        raise TypeError("A dynamic workflow runs for every name: start it by name")
    return _with_parameters(CallTarget("workflow", found.name, found.result), found.parameters)


def signal_target(signal: object) -> CallTarget:
    """Resolve a signal given as its handler or name."""
    return _handler_named("signal", signal)


def query_target(query: object) -> CallTarget:
    return _handler_named("query", query)


def update_target(update: object) -> CallTarget:
    return _handler_named("update", update)


def activity_target(activity: object) -> CallTarget:
    """Resolve an activity given as a function or name."""
    if isinstance(activity, str):
        return by_name("activity", activity)
    found = ActivityDefinition.must_be(activity)
    if found.name is None:
        raise TypeError("A dynamic activity runs for every name: start it by name")
    hints = tuple(zip(found.parameters, found.arg_types, strict=True))
    return CallTarget("activity", found.name, found.ret_type, found.required, len(hints), hints, found)


def _handler_named(kind: str, handler: object) -> CallTarget:
    if isinstance(handler, str):
        return by_name(kind, handler)
    marked = handler_of(handler) if callable(handler) else None
    if not callable(handler) or marked is None or marked[0] != kind:
        shown = getattr(handler, "__qualname__", repr(handler))
        raise TypeError(
            f"{shown} is not a workflow {kind}: pass a method decorated with @workflow.{kind}, or its name"
        )
    if marked[1] is None:
        raise TypeError(f"A dynamic {kind} handler matches every name: pass the name")
    hints = hints_of(handler)
    return _with_parameters(
        CallTarget(kind, marked[1], hints.get("return")),
        parameters_of(handler, hints, f"{kind} {marked[1]!r}"),
    )


def _with_parameters(called: CallTarget, parameters: Parameters) -> CallTarget:
    max_args = None if parameters.variadic else len(parameters.types)
    hints = tuple(zip(parameters.names, parameters.types, strict=True))
    return replace(called, min_args=parameters.required, max_args=max_args, parameters=hints)


def hints_of(function: Callable[..., Any]) -> dict[str, Any]:
    """Return type hints as far as they can be resolved here."""
    try:
        return typing.get_type_hints(function)
    except (NameError, TypeError):
        return {}


def by_name(kind: str, name: str) -> CallTarget:
    if not name:
        raise ValueError(f"The name of a {kind} must not be empty")
    return CallTarget(kind, name)


_PLAIN: Final = (bool, int, float, str, bytes, list, dict)


def _may_fit(value: object, hint: Any) -> bool:
    """Return False only for plain values that certainly do not match the hint; the converter decides the rest."""
    if not any(hint is each for each in _PLAIN):
        return True
    kind = next((each for each in _PLAIN if isinstance(value, each)), None)
    if value is None or kind is hint:
        return value is not None
    return kind is None or (hint, kind) in ((float, int), (bytes, str))
