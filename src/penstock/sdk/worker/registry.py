"""The workflows and activities of a worker by name, validated when the worker is created."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from penstock.core.messaging.contracts import ANY_UPDATE
from penstock.schema.nearest import nearest
from penstock.sdk.activities.definition import ActivityDefinition
from penstock.sdk.worker import handler_contracts
from penstock.sdk.workflows.definitions import WorkflowDefinition

Json = dict[str, Any]


class UnknownWorkflowTypeError(Exception):
    """The worker received a task for a workflow type that is not registered with it."""


class WorkerRegistry:
    """Workflows and activities by name. Errors name the definition and how to fix it."""

    def __init__(self, workflows: Sequence[Any], activities: Sequence[Any]) -> None:
        _check_sequence("workflows", workflows)
        _check_sequence("activities", activities)
        self.workflows: dict[str | None, WorkflowDefinition] = _by_name(
            "workflow", [(_workflow(each), each) for each in workflows]
        )
        self.activities: dict[str | None, ActivityDefinition] = _by_name(
            "activity", [(ActivityDefinition.to_run(each), each) for each in activities]
        )
        if not self.workflows and not self.activities:
            raise ValueError("This worker has nothing to run: pass workflows=[…], activities=[…] or both")

    def workflow(self, name: str) -> WorkflowDefinition:
        """Return the definition of a workflow type; a dynamic workflow matches types without a definition."""
        found = self.workflows.get(name) or self.workflows.get(None)
        if found is None:
            known = sorted(each for each in self.workflows if each is not None)
            near = nearest(name, known)
            hint = f' Did you mean "{near[0]}"?' if near else ""
            raise UnknownWorkflowTypeError(
                f'This worker has no workflow "{name}"; it has {", ".join(known) or "none"}.{hint} '
                "Add the class to Worker(workflows=[…]), or let a worker on another queue have it."
            )
        return found

    @property
    def workflow_types(self) -> list[str]:
        """The workflow types to poll for; empty if a dynamic workflow accepts any."""
        return _names(self.workflows)

    @property
    def activity_types(self) -> list[str]:
        return _names(self.activities)

    @property
    def fingerprints(self) -> dict[str, str]:
        return {name: each.fingerprint for name, each in self.workflows.items() if name is not None}

    @property
    def validates(self) -> bool:
        """Whether any update has a validator."""
        return any(
            _may_set_validators(one.cls) or any(each.validator is not None for each in one.updates.values())
            for one in self.workflows.values()
        )

    def command_contracts(self, *, with_parameters: bool) -> dict[str, Json]:
        """Return the handler contracts of each workflow. Kinds whose handlers may be set at run time are left out."""
        named = {name: each for name, each in self.workflows.items() if name is not None}
        return {name: _contract(each, with_parameters) for name, each in named.items()}


def _contract(definition: WorkflowDefinition, with_parameters: bool) -> Json:
    body: Json = {}
    kinds: tuple[tuple[str, str, Mapping[str | None, Any]], ...] = (
        ("query", "queries", definition.queries),
        ("signal", "signals", definition.signals),
        ("update", "updates", definition.updates),
    )
    for kind, plural, handlers in kinds:
        named = {name: each.fn for name, each in handlers.items() if name is not None}
        if len(named) == len(handlers) and not _may_set_more(definition.cls, kind):
            body[plural] = sorted(named)
        if with_parameters:
            body[f"{kind}_contracts"] = handler_contracts.contract(named)
    validated = {name for name, each in definition.updates.items() if each.validator is not None}
    if None in validated or _may_set_validators(definition.cls):
        validated.add(ANY_UPDATE)
    body["update_validators"] = sorted(name for name in validated if name is not None)
    return body


def _may_set_more(cls: type, kind: str) -> bool:
    """Whether the code may set handlers of this kind at run time, judged by the source of its modules."""
    return any(f"set_{kind}_handler" in source for source in _sources(cls))


def _may_set_validators(cls: type) -> bool:
    """Whether the code may set update handlers with validators at run time, judged by the source of its modules."""
    return any("set_update_handler" in source and "validator=" in source for source in _sources(cls))


def _sources(cls: type) -> set[str]:
    return {_source(name) for name in {base.__module__ for base in cls.__mro__ if base is not object}}


def _source(module: str) -> str:
    """Return the source of a module, or text that matches everything if it cannot be read."""
    try:
        return inspect.getsource(sys.modules[module])
    except (KeyError, OSError, TypeError):
        return "set_signal_handler set_query_handler set_update_handler validator="


def _workflow(given: Any) -> WorkflowDefinition:
    if isinstance(given, type):
        return WorkflowDefinition.of(given)
    if isinstance(given, str):
        raise TypeError(f"{given!r} is a name: pass the class decorated with @workflow.defn")
    what = getattr(given, "__qualname__", None) or type(given).__name__
    raise TypeError(f"{what} is not a class: pass the class decorated with @workflow.defn")


def _by_name(kind: str, given: Sequence[tuple[Any, Any]]) -> dict[str | None, Any]:
    found: dict[str | None, Any] = {}
    first: dict[str | None, Any] = {}
    for definition, source in given:
        if definition.name in found:
            raise ValueError(_twice(kind, definition.name, first[definition.name], source))
        found[definition.name], first[definition.name] = definition, source
    return found


def _twice(kind: str, name: str | None, one: Any, other: Any) -> str:
    called = f"a dynamic {kind}" if name is None else f'{kind} "{name}"'
    if one is other:
        return f"{called} is registered twice: leave one out"
    way = "only one can be dynamic" if name is None else f"rename one with @{kind}.defn(name=…)"
    return f"{called} is both {_place(one)} and {_place(other)}: {way}"


def _place(given: Any) -> str:
    return f"{getattr(given, '__module__', '?')}.{getattr(given, '__qualname__', type(given).__qualname__)}"


def _names(definitions: Mapping[str | None, Any]) -> list[str]:
    return [] if None in definitions else sorted(name for name in definitions if name is not None)


def _check_sequence(name: str, given: object) -> None:
    if isinstance(given, str) or not isinstance(given, Sequence):
        raise TypeError(f"{name} is a list: {name}=[…]")
