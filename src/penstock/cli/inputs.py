"""Reads values that people type: JSON arguments, `key=value` pairs, lengths of time."""

from __future__ import annotations

import json
import math
import re
import sys
from collections.abc import Sequence
from typing import Any, NoReturn

import click

Pair = tuple[str, Any]

_UNIT_SECONDS = {"": 1, "s": 1, "m": 60, "h": 3_600, "d": 86_400}


class JsonParam(click.ParamType[Any]):
    """A JSON value."""

    name = "json"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not isinstance(value, str):
            return value
        try:
            return _read(value)
        except (ValueError, RecursionError):
            self.fail(f"this is not JSON. For a text, quote it twice: '{json.dumps(value)}'.", param, ctx)


class JsonObjectParam(JsonParam):
    """A JSON object."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        read = super().convert(value, param, ctx)
        if not isinstance(read, dict):
            self.fail("""this must be a JSON object, such as '{"owner": "billing"}'.""", param, ctx)
        return read


class SecondsParam(click.ParamType[int]):
    """A length of time in whole seconds, plain or with a unit: 90, 90s, 15m, 2h, 7d."""

    name = "duration"

    def __init__(self, most: int | None = None) -> None:
        self._most = most

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        match = re.fullmatch(r"([0-9]{1,12})([smhd]?)", str(value))
        if match is None or int(match[1]) < 1:
            self.fail(
                f"{value!r} is not a length of time of at least a second, such as 90s, 15m or 2h.", param, ctx
            )
        seconds = int(match[1]) * _UNIT_SECONDS[match[2]]
        if self._most is not None and seconds > self._most:
            self.fail(f"{value!r} is more than {self._most} seconds.", param, ctx)
        return seconds


class KeyValueParam(click.ParamType[Pair]):
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


class MeasureParam(click.ParamType[Any]):
    """A number within bounds, or `default` if there is a default to return to."""

    name = "number"

    def __init__(self, least: float, most: float, *, whole: bool = False, unset: bool = True) -> None:
        self._least, self._most, self._whole, self._unset = least, most, whole, unset

    def get_metavar(self, param: click.Parameter, ctx: click.Context) -> str:
        return ("N" if self._whole else "F") + ("|default" if self._unset else "")

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if value == "default" and self._unset:
            return value
        number = _number(value)
        whole = number is not None and number.is_integer()
        if number is None or not self._least <= number <= self._most or (self._whole and not whole):
            self.fail(f"{value!r} is not {self._wanted()}.", param, ctx)
        return int(number) if whole else number

    def _wanted(self) -> str:
        kind = "a whole number" if self._whole else "a number"
        wanted = f"{kind} from {self._least:,} to {self._most:,}"
        return f"{wanted} or the word default" if self._unset else wanted


class WeightParam(MeasureParam):
    """A weight from 0.001 to 1000."""

    name = "weight"

    def __init__(self, *, unset: bool = False) -> None:
        super().__init__(0.001, 1000, unset=unset)


class LimitParam(MeasureParam):
    """Dispatches per second."""

    def __init__(self, least: float = 0) -> None:
        super().__init__(least, 1_000_000)


class WholeLimitParam(MeasureParam):
    """A count."""

    def __init__(self, least: int = 0, most: int = 1_000_000) -> None:
        super().__init__(least, most, whole=True)


class SpanParam(MeasureParam):
    """A number of seconds, also a part of one."""

    def __init__(self, most: int) -> None:
        super().__init__(0, most)


class KeyParam(click.ParamType[Pair]):
    """A measure for one fairness key; the key ends at the last `=`, since it may hold others."""

    name = "key=value"

    def __init__(self, measure: MeasureParam, example: str) -> None:
        self._measure = measure
        self._example = example

    def get_metavar(self, param: click.Parameter, ctx: click.Context) -> str:
        return f"KEY={self._measure.get_metavar(param, ctx)}"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Pair:
        if isinstance(value, tuple):
            return value
        key, equals, text = str(value).rpartition("=")
        if not equals or not key:
            self.fail(f"{value!r} must look like {self._example}.", param, ctx)
        return key, self._measure.convert(text, param, ctx)


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


def confirm(question: str, yes: bool, refusal: str) -> None:
    """Ask before something is deleted or ended. Without a terminal to ask on, `refusal` is a usage error."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise click.UsageError(refusal)
    click.confirm(question, abort=True, err=True)


CONFIRM_DELETION = "Deleting asks for confirmation; without a terminal, pass --yes."


def given(**fields: Any) -> dict[str, Any]:
    """Only the fields that were given; the server fills in its defaults."""
    return {key: value for key, value in fields.items() if value is not None and value != {}}


def _number(value: Any) -> float | None:
    """A JSON number, or None; NaN and digit separators are not accepted."""
    if re.fullmatch(r"[+-]?[0-9]*\.?[0-9]+(?:[eE][+-]?[0-9]+)?", str(value)) is None:
        return None
    number = float(value)
    return number if math.isfinite(number) else None


def _read(text: str) -> Any:
    return json.loads(text, parse_constant=_refuse_constant, parse_float=_finite)


def _refuse_constant(_name: str) -> NoReturn:
    raise ValueError("JSON has no such number")


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError("too large for a number")
    return number
