"""Parses JSON values into requests; an error names every invalid field."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable
from functools import cache
from typing import Any, TypeVar, get_args, get_origin

import msgspec

from penstock.core import identifiers
from penstock.errors import ValidationFailed
from penstock.schema.nearest import nearest

S = TypeVar("S", bound=msgspec.Struct)
ENTRIES_NAMED_MAX = 10
"""At most so many invalid entries of one mapping are named."""


def parse(body: object, shape: type[S]) -> S:
    """Parse a request body. All invalid fields are reported together."""
    try:
        return msgspec.convert(body, shape, strict=True)
    except msgspec.ValidationError as error:
        raise ValidationFailed(_every_error(body, shape) or {_field(error): [_text(error, body)]}) from None


def parse_parameters(values: dict[str, Any], shape: type[S]) -> S:
    """Parse query parameters, whose values are all text."""
    try:
        return msgspec.convert(values, shape, strict=False)
    except msgspec.ValidationError as error:
        raise ValidationFailed({_field(error): [_text(error, values)]}) from None


def field_error(field: str, problem: str) -> ValidationFailed:
    return ValidationFailed({field: [problem]})


def _every_error(body: object, shape: type[msgspec.Struct]) -> dict[str, list[str]]:
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


def _unknown(body: dict[str, Any], shape: type[msgspec.Struct]) -> dict[str, list[str]]:
    """Unknown fields of a model that forbids them, with the names that are closest."""
    if not shape.__struct_config__.forbid_unknown_fields:
        return {}
    known = [field.encode_name for field in _fields(shape)]
    strange = [name for name in body if name not in known]
    return {name[:64]: [_no_such_field(name, known)] for name in strange[:ENTRIES_NAMED_MAX]}


def _no_such_field(name: str, known: Iterable[str]) -> str:
    near = nearest(name[:64], known)[:2]
    return f"is not a known field; did you mean {' or '.join(near)}?" if near else "is not a known field"


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
    struct = isinstance(kind, type) and issubclass(kind, msgspec.Struct)
    errors: dict[str, list[str]] = {}
    for key, value in entries.items():
        inner = _every_error(value, kind) if struct else _errors_of("body", value, kind)
        for field, problems in inner.items():
            path = f"{name}.{key[:64]}"
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
def _fields(shape: type[msgspec.Struct]) -> tuple[msgspec.structs.FieldInfo, ...]:
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
