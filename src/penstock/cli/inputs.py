"""Reads values that people type: JSON arguments, `key=value` pairs, lengths of time."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from typing import Any, NoReturn

import click

Pair = tuple[str, Any]

_UNIT_SECONDS = {"": 1, "s": 1, "m": 60, "h": 3_600, "d": 86_400}


class Json(click.ParamType[Any]):
    """A JSON value."""

    name = "json"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not isinstance(value, str):
            return value
        try:
            return _read(value)
        except (ValueError, RecursionError):
            self.fail(f"this is not JSON. For a text, quote it twice: '{json.dumps(value)}'.", param, ctx)


class JsonObject(Json):
    """A JSON object."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        read = super().convert(value, param, ctx)
        if not isinstance(read, dict):
            self.fail("""this must be a JSON object, such as '{"owner": "billing"}'.""", param, ctx)
        return read


class Seconds(click.ParamType[int]):
    """A length of time in whole seconds, plain or with a unit: 90, 90s, 15m, 2h, 7d."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        match = re.fullmatch(r"([0-9]{1,12})([smhd]?)", str(value))
        if match is None or int(match[1]) < 1:
            self.fail(
                f"{value!r} is not a length of time of at least a second, such as 90s, 15m or 2h.", param, ctx
            )
        return int(match[1]) * _UNIT_SECONDS[match[2]]


class KeyValue(click.ParamType[Pair]):
    """A `key=value` pair, whose value is JSON where it reads as JSON and text elsewhere."""

    name = "key=value"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Pair:
        if isinstance(value, tuple):
            return value
        key, equals, text = str(value).partition("=")
        if not equals or not key:
            self.fail(f"{value!r} must look like customer=acme.", param, ctx)
        try:
            return key, _read(text)
        except (ValueError, RecursionError):
            return key, text


class Weight(click.FloatRange):
    """A finite weight from 0.001 to 1000."""

    name = "weight"

    def __init__(self) -> None:
        super().__init__(0.001, 1000)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        number = super().convert(value, param, ctx)
        if math.isnan(number):
            self.fail(f"{value!r} is not a number.", param, ctx)
        return number


def arguments(values: Sequence[Any]) -> list[Any]:
    """The argument list: one JSON list is the whole list, anything else is one argument each."""
    if len(values) == 1 and isinstance(values[0], list):
        return list(values[0])
    return list(values)


def pairs(values: Sequence[Pair], flag: str) -> dict[str, Any]:
    """The pairs as one object; a key that is given twice is a usage error."""
    collected: dict[str, Any] = {}
    for key, value in values:
        if key in collected:
            raise click.UsageError(f"{flag} gives {key!r} twice.")
        collected[key] = value
    return collected


def given(**fields: Any) -> dict[str, Any]:
    """Only the fields that were given, so that the server's defaults stand for the rest."""
    return {key: value for key, value in fields.items() if value is not None and value != {}}


def _read(text: str) -> Any:
    return json.loads(text, parse_constant=_refuse_constant, parse_float=_finite)


def _refuse_constant(_name: str) -> NoReturn:
    raise ValueError("JSON has no such number")


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError("too large for a number")
    return number
