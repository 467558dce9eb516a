"""The kinds of value a dispatch file may hold: each reads one strictly and describes itself to editors."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, time, timedelta
from math import isfinite
from typing import Any, Protocol

from penstock.dispatch.durations import parse_duration
from penstock.dispatch.options import UNLIMITED
from penstock.dispatch.retry import FOR_EVER

QUEUE_NAME_MAX = 200
NAME_MAX = 255
"""No server takes a longer one."""
RESERVED_PREFIX = "__penstock"
LONGEST = timedelta(days=3650)
"""No server takes a longer one."""
_ZERO = timedelta(0)


class FieldKind(Protocol):
    """Turns a TOML value into ours, or raises `ValueError` with what would be right."""

    @property
    def is_textual(self) -> bool:
        """Whether an environment variable is used verbatim instead of being parsed as TOML."""

    def read(self, value: object) -> object: ...

    def schema(self) -> dict[str, Any]: ...


@dataclass(frozen=True, slots=True)
class DurationField:
    """A duration; above zero unless `or_zero`, at most `most`, or `unlimited` if `or_unlimited`."""

    or_zero: bool = False
    most: timedelta | None = None
    or_unlimited: bool = False
    is_textual = False

    def read(self, value: object) -> object:
        if self.or_unlimited and value == UNLIMITED:
            return UNLIMITED
        duration = parse_duration(_without_sign(value))
        if isinstance(value, str) and value.strip().startswith("-"):
            duration = -duration
        if duration < _ZERO or (duration == _ZERO and not self.or_zero):
            raise ValueError(f"{value!r} must be {'0 or above' if self.or_zero else 'above 0'}")
        if duration > (self.most or LONGEST):
            raise ValueError(f"{value!r} must be at most {self.most or LONGEST}")
        return duration

    def schema(self) -> dict[str, Any]:
        number = {"minimum": 0} if self.or_zero else {"exclusiveMinimum": 0}
        text = {"type": "string", "minLength": 1, "examples": ["0:10:00", "PT10M", "1h30m"]}
        return {"anyOf": [text, {"type": "number", **number}]}


@dataclass(frozen=True, slots=True)
class WholeField:
    """A whole number within bounds, or `unlimited` if `or_unlimited`."""

    least: int
    or_unlimited: bool = False
    most: int = FOR_EVER
    is_textual = False

    def read(self, value: object) -> object:
        if self.or_unlimited and value == UNLIMITED:
            return UNLIMITED
        instead = f" or {UNLIMITED!r}" if self.or_unlimited else ""
        if isinstance(value, bool) or not isinstance(value, int):
            raise ValueError(f"{_shown(value)} is not a whole number{instead}")
        if value < self.least:
            raise ValueError(f"{value} must be {self.least} or more{instead and ', or ' + repr(UNLIMITED)}")
        if value > self.most:
            raise ValueError(f"{value} must be at most {self.most}{instead}")
        return value

    def schema(self) -> dict[str, Any]:
        number: dict[str, Any] = {"type": "integer", "minimum": self.least}
        if self.most != FOR_EVER:
            number["maximum"] = self.most
        return {"anyOf": [number, {"const": UNLIMITED}]} if self.or_unlimited else number


@dataclass(frozen=True, slots=True)
class NumberField:
    """A finite number within bounds; whole ones are welcome."""

    least: float | None = None
    above: float | None = None
    most: float | None = None
    is_textual = False

    def read(self, value: object) -> object:
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise ValueError(f"{_shown(value)} is not a number")
        if not _is_finite(value):
            raise ValueError(f"{value} is not a finite number")
        if self.above is not None and value <= self.above:
            raise ValueError(f"{value} must be above {self.above:g}")
        if self.least is not None and value < self.least:
            raise ValueError(f"{value} must be {self.least:g} or more")
        if self.most is not None and value > self.most:
            raise ValueError(f"{value} must be at most {self.most:g}")
        return float(value)

    def schema(self) -> dict[str, Any]:
        bounds = {"minimum": self.least, "exclusiveMinimum": self.above, "maximum": self.most}
        return {"type": "number", **{name: bound for name, bound in bounds.items() if bound is not None}}


@dataclass(frozen=True, slots=True)
class FlagField:
    """True or false."""

    is_textual = False

    def read(self, value: object) -> object:
        if not isinstance(value, bool):
            raise ValueError(f"{_shown(value)} is not true or false")
        return value

    def schema(self) -> dict[str, Any]:
        return {"type": "boolean"}


@dataclass(frozen=True, slots=True)
class TextField:
    """Non-empty text, or one of `words`."""

    words: tuple[str, ...] = ()
    reserved: tuple[str, ...] = ()
    is_textual = True

    def read(self, value: object) -> object:
        if not isinstance(value, str):
            raise ValueError(f"{_shown(value)} is not a text")
        if value in self.reserved:
            raise ValueError(f"{value!r} is reserved, not implemented; use {self.words[0]!r}")
        if self.words and value not in self.words:
            raise ValueError(f"{value!r} is unknown; known: {', '.join(map(repr, self.words))}")
        if not value.strip():
            raise ValueError("must not be empty")
        return value

    def schema(self) -> dict[str, Any]:
        return {"enum": list(self.words)} if self.words else {"type": "string", "minLength": 1}


@dataclass(frozen=True, slots=True)
class RoutingKeyField:
    """A routing key: any non-empty text, verbatim."""

    is_textual = True

    def read(self, value: object) -> object:
        if not isinstance(value, str) or not value:
            raise ValueError("a routing key must not be empty here; calls without one go to the default")
        return value

    def schema(self) -> dict[str, Any]:
        return {"type": "string", "minLength": 1}


@dataclass(frozen=True, slots=True)
class QueueNameField:
    """The name of a task queue."""

    is_textual = True

    def read(self, value: object) -> object:
        if not isinstance(value, str):
            raise ValueError(f"{_shown(value)} is not the name of a task queue")
        if not value.strip():
            raise ValueError("the name of a task queue must not be empty")
        if len(value) > QUEUE_NAME_MAX:
            raise ValueError(
                f"a task queue's name has at most {QUEUE_NAME_MAX} characters, this one {len(value)}"
            )
        if not value.isprintable():
            raise ValueError(f"{value!a} has control characters or other invisible ones")
        if value.startswith(RESERVED_PREFIX):
            raise ValueError(f"{value!r}: names that begin with {RESERVED_PREFIX!r} are reserved")
        return value

    def schema(self) -> dict[str, Any]:
        return {"type": "string", "minLength": 1, "maxLength": QUEUE_NAME_MAX}


@dataclass(frozen=True, slots=True)
class NameListField:
    """A list of texts that are not empty."""

    is_textual = False

    def read(self, value: object) -> object:
        if not isinstance(value, list | tuple):
            raise ValueError(f"{_shown(value)} is not a list of names")
        for item in value:
            if not isinstance(item, str) or not item.strip():
                raise ValueError(f"{_shown(item)} is not a name; every item is a text that is not empty")
            if len(item) > NAME_MAX:
                raise ValueError(f"a name has at most {NAME_MAX} characters, {item[:20]!r}… has {len(item)}")
            if not item.isprintable():
                raise ValueError(f"{item!a} has control characters or other invisible ones")
        return tuple(value)

    def schema(self) -> dict[str, Any]:
        return {"type": "array", "items": {"type": "string", "minLength": 1, "maxLength": NAME_MAX}}


@dataclass(frozen=True, slots=True)
class IgnoredField:
    """Something that is not used here: any value."""

    is_textual = False

    def read(self, value: object) -> object:
        return value

    def schema(self) -> dict[str, Any]:
        return {}


def _without_sign(value: object) -> object:
    return value.strip().removeprefix("-") if isinstance(value, str) else value


def _is_finite(value: float) -> bool:
    try:
        return isfinite(value)
    except OverflowError:
        return False


def _shown(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, dict):
        return "a table"
    if isinstance(value, date | time):
        return str(value)
    return repr(value)
