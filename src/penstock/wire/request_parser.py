"""Parses JSON values into request models: invalid fields are errors, and unknown ones errors or warnings.

msgspec stops at the first invalid field and ignores unknown ones, so a misspelt field (`max_concurent_activity_tasks`)
would silently mean the default. Here an error names every invalid field, and every request is compared with its model,
nested objects included. What an unknown field leads to depends on the route:

- Penstock's own routes reject the request (422) before anything is done (`parse_strict`);
- routes of the public contract accept it and list each field in `warnings` (`unknown_fields`), because the contract
  promises that unknown fields are ignored, and a newer client may send fields that this server does not know yet.

Objects whose keys belong to the caller (`input`, `memo`, `search_attributes`, `details` …) are typed as `Any` or as a
plain `dict` and are not checked. Commands of a workflow task are plain objects as well, but their `type` determines
their model, so they are checked too.

PHP encodes an object without fields as `[]`. That is read as an empty object where a field holds an object or mapping
and no list (`memo`, `retry_policy`, `workflow_definition_fingerprints`), and nothing else would be valid there.

A valid request costs one conversion by msgspec and one comparison of key sets per object. Everything about a model is
computed once; errors are found by converting field after field, which only invalid requests pay for.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from itertools import islice
from types import UnionType
from typing import Annotated, Any, Final, NamedTuple, TypeVar, Union, get_args, get_origin

import msgspec
from msgspec import Struct

from penstock.core import identifiers
from penstock.errors import ValidationFailed
from penstock.schema.nearest import nearest
from penstock.wire import command_shapes as shapes
from penstock.wire.requests import CompleteWorkflowTask, RequestModel

S = TypeVar("S", bound=Struct)
ENTRIES_NAMED_MAX: Final = 10
"""At most so many invalid entries of one mapping are named."""
NAMED_MAX: Final = 10
"""Most unknown fields that one response names."""
_NAME_SHOWN_MAX: Final = 64
_COMMON_COMMAND_FIELDS: Final = frozenset(
    {"type", "namespace", "summary", "cancellation_policy", "parallel_group_path", "observability_context"}
).union(field.encode_name for field in msgspec.structs.fields(shapes.SelectEntry))
"""Fields that commands of several types have; the group of a step is repeated flat beside its path."""


def parse(body: object, shape: type[S]) -> S:
    """Parse a request body. All invalid fields are reported together."""
    try:
        return msgspec.convert(body, shape, strict=True)
    except msgspec.ValidationError as error:
        as_objects = _with_empty_objects(body, shape)
        if as_objects != body:
            return parse(as_objects, shape)
        raise ValidationFailed(_every_error(body, shape) or {_field(error): [_text(error, body)]}) from None


def has_no_required_field(shape: type[Struct]) -> bool:
    return not any(field.required for field in _fields(shape))


def parse_parameters(values: dict[str, Any], shape: type[S]) -> S:
    """Parse query parameters, whose values are all text."""
    try:
        return msgspec.convert(values, shape, strict=False)
    except msgspec.ValidationError as error:
        raise ValidationFailed({_field(error): [_text(error, values)]}) from None


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


def field_error(field: str, problem: str) -> ValidationFailed:
    return ValidationFailed({field: [problem]})


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
    plan = _plan(shape, also)
    if document.keys() <= plan.known and not plan.nested and not plan.has_commands:
        return []
    return list(islice(_in_object(document, plan, ""), NAMED_MAX))


def with_warnings(body: dict[str, Any], unknown: Iterable[UnknownField]) -> dict[str, Any]:
    """Add the fields that were ignored to the warnings of a response."""
    return body | {"warnings": [*body.get("warnings", ()), *(each.warning for each in unknown)]}


class _Plan(NamedTuple):
    """What to check in objects of one model."""

    known: frozenset[str]
    suggestable: tuple[str, ...]
    """The fields that may be suggested: those with an effect."""
    nested: tuple[_Nested, ...]
    has_commands: bool


class _Nested(NamedTuple):
    """A field that holds an object of a model, or a list or mapping of such objects."""

    name: str
    shape: type[Struct]
    is_mapping: bool


def _in_object(document: Mapping[str, Any], plan: _Plan, path: str) -> Iterator[UnknownField]:
    if not document.keys() <= plan.known:
        for name in document:
            if name not in plan.known:
                yield _unknown_field(name, path, plan.suggestable)
    for nested in plan.nested:
        value = document.get(nested.name)
        if value is not None:
            yield from _in_value(value, nested, f"{path}{nested.name}")
    if plan.has_commands:
        yield from _in_commands(document.get("commands"))


def _in_value(value: object, nested: _Nested, path: str) -> Iterator[UnknownField]:
    """Check every object in `value`; other values are left to the parser."""
    if nested.is_mapping or isinstance(value, list):
        entries = (
            value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
        )
        for key, each in entries:
            if isinstance(each, dict):
                yield from _in_object(each, _plan(nested.shape), f"{path}.{str(key)[:_NAME_SHOWN_MAX]}.")
    elif isinstance(value, dict):
        yield from _in_object(value, _plan(nested.shape), f"{path}.")


def _in_commands(commands: object) -> Iterator[UnknownField]:
    if not isinstance(commands, list):
        return
    for index, command in enumerate(commands):
        kind = command.get("type") if isinstance(command, dict) else None
        shape = shapes.COMMAND_SHAPES.get(kind) if isinstance(kind, str) else None
        if shape is not None:
            yield from _in_object(command, _plan(shape, _COMMON_COMMAND_FIELDS), f"commands.{index}.")


@cache
def _plan(shape: type[Struct], also: frozenset[str] = frozenset()) -> _Plan:
    fields = _fields(shape)
    names = tuple(field.encode_name for field in fields)
    nested = [
        _Nested(field.encode_name, inner, is_mapping)
        for field in fields
        for inner, is_mapping in _shapes_in(field.type, is_mapping=False)
    ]
    ignored = shape.IGNORED_FIELDS if issubclass(shape, RequestModel) else frozenset()
    return _Plan(also.union(names, ignored), names, tuple(nested), shape is CompleteWorkflowTask)


def _shapes_in(kind: Any, *, is_mapping: bool) -> Iterator[tuple[type[Struct], bool]]:
    """The models inside a type, through unions, lists and mappings."""
    if isinstance(kind, type) and issubclass(kind, Struct):
        yield kind, is_mapping
        return
    inside_mapping = is_mapping or get_origin(kind) is dict
    for inner in get_args(kind):
        if not isinstance(inner, msgspec.Meta):
            yield from _shapes_in(inner, is_mapping=inside_mapping)


def _unknown_field(name: str, path: str, known: Iterable[str]) -> UnknownField:
    shown = name[:_NAME_SHOWN_MAX]
    return UnknownField(f"{path}{shown}", tuple(nearest(shown, known)[:2]))


def _with_empty_objects(document: object, shape: type[Struct]) -> object:
    """The document with `{}` for each `[]` that stands for an object, at any depth."""
    if not isinstance(document, dict):
        return document
    kinds = {field.encode_name: _value_types(field.type) for field in _fields(shape)}
    return {name: _with_empty_object(value, kinds.get(name, ())) for name, value in document.items()}


def _with_empty_object(value: object, kinds: tuple[Any, ...]) -> object:
    shapes_here = [each for each in kinds if isinstance(each, type) and issubclass(each, Struct)]
    if value == [] and not any(each in (Any, list) or get_origin(each) is list for each in kinds):
        is_mapping = any(each is dict or get_origin(each) is dict for each in kinds)
        return {} if is_mapping or any(map(has_no_required_field, shapes_here)) else value
    if isinstance(value, dict) and len(shapes_here) == 1:
        return _with_empty_objects(value, shapes_here[0])
    if isinstance(value, list):
        inside = next((_value_types(get_args(each)[0]) for each in kinds if get_origin(each) is list), ())
        return [_with_empty_object(each, inside) for each in value]
    return value


def _value_types(kind: Any) -> tuple[Any, ...]:
    """The members of a type that is a union, without annotations."""
    if get_origin(kind) in (Union, UnionType):
        return tuple(inner for each in get_args(kind) for inner in _value_types(each))
    return _value_types(get_args(kind)[0]) if get_origin(kind) is Annotated else (kind,)


def _every_error(body: object, shape: type[Struct]) -> dict[str, list[str]]:
    if not isinstance(body, dict):
        return {"body": ["must be a JSON object"]}
    errors = _unknown(body, shape)
    for field in _fields(shape):
        name = field.encode_name
        if name not in body:
            if field.required:
                errors[name] = ["is required"]
            continue
        errors |= _errors_of(name, body[name], field.type)
    return errors


def _unknown(body: dict[str, Any], shape: type[Struct]) -> dict[str, list[str]]:
    """Unknown fields of a model that forbids them, with the names that are closest."""
    if not shape.__struct_config__.forbid_unknown_fields:
        return {}
    known = [field.encode_name for field in _fields(shape)]
    strange = [name for name in body if name not in known]
    found = [_unknown_field(name, "", known) for name in strange[:ENTRIES_NAMED_MAX]]
    return {each.path: [each.problem] for each in found}


def _errors_of(name: str, value: object, kind: Any) -> dict[str, list[str]]:
    """Errors of one field; of a mapping, those of its first invalid entries."""
    try:
        msgspec.convert(value, kind, strict=True)
    except msgspec.ValidationError as error:
        inside = _value_kind(kind)
        if isinstance(value, dict) and inside is not None and "[...]" in str(error):
            return _entry_errors(name, value, inside)
        inner = _field(error)
        return {name if inner == "body" else f"{name}.{inner}": [_text(error, value)]}
    return {}


def _entry_errors(name: str, entries: dict[str, Any], kind: Any) -> dict[str, list[str]]:
    struct = isinstance(kind, type) and issubclass(kind, Struct)
    errors: dict[str, list[str]] = {}
    for key, value in entries.items():
        inner = _every_error(value, kind) if struct else _errors_of("body", value, kind)
        for field, problems in inner.items():
            path = f"{name}.{key[:_NAME_SHOWN_MAX]}"
            errors[path if field == "body" else f"{path}.{field}"] = problems
        if len(errors) >= ENTRIES_NAMED_MAX:
            break
    return errors


def _value_kind(kind: Any) -> Any:
    """The value type of a mapping among the types of a field; None if there is none."""
    if get_origin(kind) is dict:
        return get_args(kind)[1]
    return next((found for each in get_args(kind) if (found := _value_kind(each)) is not None), None)


@cache
def _fields(shape: type[Struct]) -> tuple[msgspec.structs.FieldInfo, ...]:
    """Cached, because msgspec evaluates all annotations on each call, at a hundred times the cost of an error."""
    return msgspec.structs.fields(shape)


def _field(error: msgspec.ValidationError) -> str:
    """msgspec's `$.commands[0].type` in the contract's form `commands.0.type`."""
    found = re.search(r"(?:at|in) `\$(.*)`$", str(error))
    if not found:
        missing = re.search(r"missing required field `(\w+)`", str(error))
        return missing[1] if missing else "body"
    path = re.sub(r"\[(\d+|\.\.\.)\]", r".\1", found[1]).strip(".")
    return path or "body"


def _text(error: msgspec.ValidationError, body: object) -> str:
    """msgspec's message; for a string that does not match its pattern, the first invalid character instead."""
    text = re.sub(r" - at `.*`$", "", str(error))
    pattern = re.search(r"matching regex (['\"].*['\"])$", text)
    if pattern is None:
        return text
    value = _value_at(body, _field(error))
    return identifiers.problem_with(value if isinstance(value, str) else None, ast.literal_eval(pattern[1]))


def _value_at(body: object, path: str) -> object:
    """The value at a path such as `commands.0.type`; None if there is none."""
    value = body
    for part in () if path == "body" else path.split("."):
        if isinstance(value, list) and part.isdecimal() and int(part) < len(value):
            value = value[int(part)]
        elif isinstance(value, dict):
            value = value.get(part)
        else:
            return None
    return value
