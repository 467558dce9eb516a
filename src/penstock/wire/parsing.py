"""From a JSON value to a request, or to an error that names every field that is wrong."""

from __future__ import annotations

import re
from functools import cache
from typing import Any, TypeVar

import msgspec

from penstock.errors import ValidationFailed

S = TypeVar("S", bound=msgspec.Struct)


def parse(body: object, shape: type[S]) -> S:
    """Read a request body. All fields are checked; all that are wrong are reported together."""
    try:
        return msgspec.convert(body, shape, strict=True)
    except msgspec.ValidationError as error:
        raise ValidationFailed(_every_error(body, shape) or {_field(error): [_text(error)]}) from None


def lenient(values: dict[str, Any], shape: type[S]) -> S:
    """Read query parameters, where every value arrives as text."""
    try:
        return msgspec.convert(values, shape, strict=False)
    except msgspec.ValidationError as error:
        raise ValidationFailed({_field(error): [_text(error)]}) from None


def refuse(field: str, problem: str) -> ValidationFailed:
    return ValidationFailed({field: [problem]})


def _every_error(body: object, shape: type[msgspec.Struct]) -> dict[str, list[str]]:
    if not isinstance(body, dict):
        return {"body": ["must be a JSON object"]}
    errors: dict[str, list[str]] = {}
    for field in _fields(shape):
        name = field.encode_name
        if name not in body:
            if field.required:
                errors[name] = ["is required"]
            continue
        try:
            msgspec.convert(body[name], field.type, strict=True)
        except msgspec.ValidationError as error:
            inner = _field(error)
            errors[name if inner == "body" else f"{name}.{inner}"] = [_text(error)]
    return errors


@cache
def _fields(shape: type[msgspec.Struct]) -> tuple[msgspec.structs.FieldInfo, ...]:
    """Kept, because msgspec evaluates every annotation anew: a hundred times the cost of a refusal."""
    return msgspec.structs.fields(shape)


def _field(error: msgspec.ValidationError) -> str:
    """msgspec's `$.commands[0].type` in the contract's form `commands.0.type`."""
    found = re.search(r"at `(?:key in )?\$(.*)`$", str(error))
    if not found:
        missing = re.search(r"missing required field `(\w+)`", str(error))
        return missing[1] if missing else "body"
    path = re.sub(r"\[(\d+|\.\.\.)\]", r".\1", found[1]).strip(".")
    return path or "body"


def _text(error: msgspec.ValidationError) -> str:
    text = re.sub(r" - at `.*`$", "", str(error))
    return re.sub(r"matching regex .*", "without control characters or characters outside its alphabet", text)
