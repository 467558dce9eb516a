"""Finds fields of a request that its model does not define.

msgspec ignores unknown fields, so a misspelt one (`max_concurent_activity_tasks`) would silently mean the default.
Every request is therefore compared with its model, nested objects included. The consequence depends on the route:

- Penstock's own routes reject the request (422) before anything is done;
- routes of the public contract accept it and list each field in `warnings`, because the contract promises that unknown
  fields are ignored, and a newer client may send fields that this server does not know yet.

Objects whose keys belong to the caller (`input`, `memo`, `search_attributes`, `details` …) are typed as `Any` or as a
plain `dict` and are not checked. Commands of a workflow task are plain objects as well, but their `type` determines
their model, so they are checked too.

The cost on the hot path is one comparison of two key sets per object; everything else is computed once per model.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from typing import Any, Final, NamedTuple, TypeVar, get_args, get_origin

import msgspec
from msgspec import Struct

from penstock.errors import ValidationFailed
from penstock.schema.nearest import nearest
from penstock.wire.request_parser import parse
from penstock.wire.requests import CompleteWorkflowTask, RequestModel
from penstock.wire.workflows import command_shapes as shapes

S = TypeVar("S", bound=Struct)
NAMED_MAX: Final = 10
"""Most unknown fields that one response names."""
_NAME_SHOWN_MAX: Final = 64
_COMMON_COMMAND_FIELDS: Final = frozenset(
    {"type", "namespace", "summary", "cancellation_policy", "parallel_group_path", "observability_context"}
).union(field.encode_name for field in msgspec.structs.fields(shapes.SelectEntry))
"""Fields that commands of several types have; the group of a step is repeated flat beside its path."""
_COMMANDS: Final[Mapping[str, type[RequestModel]]] = {
    "schedule_activity": shapes.ScheduleActivityCommand,
    "record_local_activity": shapes.LocalActivityCommand,
    "start_timer": shapes.StartTimerCommand,
    "start_child_workflow": shapes.StartChildCommand,
    "record_side_effect": shapes.SideEffectCommand,
    "record_version_marker": shapes.VersionMarkerCommand,
    "upsert_search_attributes": shapes.UpsertSearchAttributesCommand,
    "upsert_memo": shapes.UpsertMemoCommand,
    "open_condition_wait": shapes.ConditionWaitCommand,
    "complete_update": shapes.CompleteUpdateCommand,
    "fail_update": shapes.FailUpdateCommand,
    "cancel_selection_operation": shapes.CancelSelectionCommand,
    "complete_workflow": shapes.CompleteWorkflowCommand,
    "fail_workflow": shapes.FailWorkflowCommand,
    "continue_as_new": shapes.ContinueAsNewCommand,
    "cancel_step": shapes.CancelStepCommand,
    "signal_external_workflow": shapes.SignalExternalCommand,
    "cancel_external_workflow": shapes.CancelExternalCommand,
    "cancel_workflow": shapes.CancelWorkflowCommand,
}


class UnknownField(NamedTuple):
    """One unknown field: its path, such as `failure.mesage`, and known fields of similar spelling."""

    path: str
    nearest: tuple[str, ...]

    @property
    def problem(self) -> str:
        return (
            f"is not a known field; did you mean {' or '.join(self.nearest)}?"
            if self.nearest
            else "is not a known field"
        )

    @property
    def warning(self) -> dict[str, Any]:
        """The field as an entry of `warnings`."""
        return {
            "reason": "unknown_field",
            "field": self.path,
            "nearest_fields": list(self.nearest),
            "message": f"{self.path} {self.problem} It was ignored."
            if self.nearest
            else f"{self.path} {self.problem}. It was ignored.",
        }


def unknown_fields(
    document: object, shape: type[Struct], also: frozenset[str] = frozenset()
) -> list[UnknownField]:
    """The fields of `document` that `shape` does not define, at most `NAMED_MAX` of them.

    Args:
        document: The request as JSON. Values of the wrong type are left to the parser.
        shape: The model of the request.
        also: Additional known names at the top level.
    """
    if not isinstance(document, dict):
        return []
    found: list[UnknownField] = []
    for unknown in _in_object(document, shape, "", also):
        found.append(unknown)
        if len(found) == NAMED_MAX:
            break
    return found


def with_warnings(body: dict[str, Any], unknown: Iterable[UnknownField]) -> dict[str, Any]:
    """Add the fields that were ignored to the warnings of a response."""
    return body | {"warnings": [*body.get("warnings", ()), *(each.warning for each in unknown)]}


def parse_strict(body: object, shape: type[S]) -> S:
    """Parse a request body; unknown fields are errors."""
    unknown = unknown_fields(body, shape)
    if not unknown:
        return parse(body, shape)
    errors = {each.path: [each.problem] for each in unknown}
    try:
        parse(body, shape)
    except ValidationFailed as error:
        errors = error.details["errors"] | errors
    raise ValidationFailed(errors)


class _Plan(NamedTuple):
    """What to check in objects of one model."""

    known: frozenset[str]
    suggestable: tuple[str, ...]
    """The fields that may be suggested: those with an effect."""
    nested: tuple[_Nested, ...]


class _Nested(NamedTuple):
    """A field that holds an object of a model, or a list or mapping of such objects."""

    name: str
    shape: type[Struct]
    is_mapping: bool


def _in_object(
    document: Mapping[str, Any], shape: type[Struct], path: str, also: frozenset[str] = frozenset()
) -> Iterator[UnknownField]:
    plan = _plan(shape, also)
    if not document.keys() <= plan.known:
        for name in document:
            if name not in plan.known:
                yield UnknownField(f"{path}{name[:_NAME_SHOWN_MAX]}", _nearest(name, plan.suggestable))
    for nested in plan.nested:
        value = document.get(nested.name)
        if value is not None:
            yield from _in_value(value, nested, f"{path}{nested.name}")
    if shape is CompleteWorkflowTask:
        yield from _in_commands(document.get("commands"))


def _in_value(value: object, nested: _Nested, path: str) -> Iterator[UnknownField]:
    """Check every object in `value`; other values are left to the parser."""
    if nested.is_mapping or isinstance(value, list):
        entries = (
            value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
        )
        for key, each in entries:
            if isinstance(each, dict):
                yield from _in_object(each, nested.shape, f"{path}.{str(key)[:_NAME_SHOWN_MAX]}.")
    elif isinstance(value, dict):
        yield from _in_object(value, nested.shape, f"{path}.")


def _in_commands(commands: object) -> Iterator[UnknownField]:
    if not isinstance(commands, list):
        return
    for index, command in enumerate(commands):
        kind = command.get("type") if isinstance(command, dict) else None
        shape = _COMMANDS.get(kind) if isinstance(kind, str) else None
        if shape is not None:
            yield from _in_object(command, shape, f"commands.{index}.", _COMMON_COMMAND_FIELDS)


@cache
def _plan(shape: type[Struct], also: frozenset[str]) -> _Plan:
    fields = msgspec.structs.fields(shape)
    names = tuple(field.encode_name for field in fields)
    nested = [
        _Nested(field.encode_name, inner, is_mapping)
        for field in fields
        for inner, is_mapping in _shapes_in(field.type, is_mapping=False)
    ]
    return _Plan(also.union(names, _ignored_fields(shape)), names, tuple(nested))


def _ignored_fields(shape: type[Struct]) -> frozenset[str]:
    """Fields of the contract that a model accepts and ignores."""
    return shape.IGNORED_FIELDS if issubclass(shape, RequestModel) else frozenset()


def _shapes_in(kind: Any, *, is_mapping: bool) -> Iterator[tuple[type[Struct], bool]]:
    """The models inside a type, through unions, lists and mappings."""
    if isinstance(kind, type) and issubclass(kind, Struct):
        yield kind, is_mapping
        return
    inside_mapping = is_mapping or get_origin(kind) is dict
    for inner in get_args(kind):
        if not isinstance(inner, msgspec.Meta):
            yield from _shapes_in(inner, is_mapping=inside_mapping)


def _nearest(name: str, known: Iterable[str]) -> tuple[str, ...]:
    return tuple(nearest(name[:_NAME_SHOWN_MAX], known)[:2])
