"""The kinds of value: each says what it expects, reads a value strictly, and describes itself to editors."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import timedelta
from math import isfinite
from typing import Any, ClassVar, Literal

from penstock.schema.durations import parse_duration
from penstock.schema.problems import InvalidValue, shown

Unlimited = Literal["unlimited"]
UNLIMITED: Unlimited = "unlimited"
COUNT_MAX = 2**31 - 1
"""The largest count that the wire format holds."""
DURATION_MAX = timedelta(days=3650)
"""No server takes a longer one."""
NOT_BLANK = re.compile(r".*\S.*", re.DOTALL)
_WHOLE = re.compile(r"0|[1-9][0-9]{0,18}", re.ASCII)
_ZERO = timedelta(0)
_YES, _NO = ("true", "1", "yes", "on"), ("false", "0", "no", "off")


class Kind:
    """A kind of value. The base class takes any."""

    __slots__ = ()
    toml_types: ClassVar[tuple[type, ...]] = (str,)
    """The types that a file may give where the environment has a text."""
    may_be_empty: ClassVar[bool] = False
    is_textual: ClassVar[bool] = False
    """Whether a text of the environment is the value itself, and not TOML to be parsed."""

    @property
    def expects(self) -> str:
        """What would be right, as it follows "must be"."""
        return "a value"

    def read(self, value: object) -> Any:
        """The value of what TOML or JSON holds, or `InvalidValue`."""
        return value

    def parse(self, text: str) -> Any:
        """The value of a text of the environment, or `InvalidValue`."""
        return self.read(text)

    def show(self, value: object) -> str:
        """The value as an operator may see it."""
        return str(value)

    def schema(self) -> dict[str, Any]:
        """The JSON Schema of the value."""
        return {}

    def refuse(self, value: object) -> InvalidValue:
        return InvalidValue(f"must be {self.expects}, not {shown(value)}")


@dataclass(frozen=True, slots=True)
class Whole(Kind):
    """A whole number between two bounds, both allowed, or `unlimited` if `or_unlimited`."""

    least: int
    most: int | None = None
    """None: no bound of its own; `COUNT_MAX` holds."""
    unit: str = ""
    or_unlimited: bool = False
    toml_types: ClassVar[tuple[type, ...]] = (int, str)

    @property
    def expects(self) -> str:
        unit = f" of {self.unit}" if self.unit else ""
        bounds = f", {self.least} or more" if self.most is None else f" from {self.least} to {self.most}"
        return f"a whole number{unit}{bounds}" + (f', or "{UNLIMITED}"' if self.or_unlimited else "")

    def read(self, value: object) -> int | Unlimited:
        if self.or_unlimited and value == UNLIMITED:
            return UNLIMITED
        if not isinstance(value, int) or isinstance(value, bool) or not self._fits(value):
            raise self.refuse(value)
        return int(value)

    def parse(self, text: str) -> int:
        if not _WHOLE.fullmatch(text) or not self._fits(int(text)):
            raise self.refuse(text)
        return int(text)

    def _fits(self, value: int) -> bool:
        if self.most is None and value > COUNT_MAX:
            raise InvalidValue(f"must be at most {COUNT_MAX}, not {shown(value)}")
        return self.least <= value <= (COUNT_MAX if self.most is None else self.most)

    def schema(self) -> dict[str, Any]:
        number: dict[str, Any] = {"type": "integer", "minimum": self.least}
        if self.most is not None:
            number["maximum"] = self.most
        return {"anyOf": [number, {"const": UNLIMITED}]} if self.or_unlimited else number


@dataclass(frozen=True, slots=True)
class Number(Kind):
    """A finite number within bounds; whole ones are welcome."""

    least: float | None = None
    above: float | None = None
    most: float | None = None

    @property
    def expects(self) -> str:
        bounds = (("above", self.above), ("at least", self.least), ("at most", self.most))
        return "a finite number " + ", ".join(f"{word} {at:g}" for word, at in bounds if at is not None)

    def read(self, value: object) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float) or not self._fits(value):
            raise self.refuse(value)
        return float(value)

    def _fits(self, value: float) -> bool:
        try:
            is_finite = isfinite(value)
        except OverflowError:
            return False
        return (
            is_finite
            and (self.above is None or value > self.above)
            and (self.least is None or value >= self.least)
            and (self.most is None or value <= self.most)
        )

    def schema(self) -> dict[str, Any]:
        bounds = {"minimum": self.least, "exclusiveMinimum": self.above, "maximum": self.most}
        return {"type": "number", **{name: bound for name, bound in bounds.items() if bound is not None}}


@dataclass(frozen=True, slots=True)
class Duration(Kind):
    """A duration; above zero unless `or_zero`, at most `most`, or `unlimited` if `or_unlimited`."""

    or_zero: bool = False
    most: timedelta = DURATION_MAX
    or_unlimited: bool = False

    def read(self, value: object) -> timedelta | Unlimited:
        if self.or_unlimited and value == UNLIMITED:
            return UNLIMITED
        is_negative = isinstance(value, str) and value.strip().startswith("-")
        duration = parse_duration(value.strip()[1:] if isinstance(value, str) and is_negative else value)
        duration = -duration if is_negative else duration
        if duration < _ZERO or (duration == _ZERO and not self.or_zero):
            raise InvalidValue(f"must be {'0 or above' if self.or_zero else 'above 0'}, not {shown(value)}")
        if duration > self.most:
            raise InvalidValue(f"must be at most {self.most}, not {shown(value)}")
        return duration

    def schema(self) -> dict[str, Any]:
        number = {"minimum": 0} if self.or_zero else {"exclusiveMinimum": 0}
        text = {"type": "string", "minLength": 1, "examples": ["0:10:00", "PT10M", "1h30m"]}
        return {"anyOf": [text, {"type": "number", **number}]}


@dataclass(frozen=True, slots=True)
class Flag(Kind):
    """True or false; as a text, the usual words for them."""

    toml_types: ClassVar[tuple[type, ...]] = (bool, int, str)

    @property
    def expects(self) -> str:
        return "true or false (or 1/0, yes/no, on/off)"

    def read(self, value: object) -> bool:
        if not isinstance(value, bool):
            raise InvalidValue(f"must be true or false, not {shown(value)}")
        return value

    def parse(self, text: str) -> bool:
        if text.lower() not in (*_YES, *_NO):
            raise self.refuse(text)
        return text.lower() in _YES

    def show(self, value: object) -> str:
        return "true" if value else "false"

    def schema(self) -> dict[str, Any]:
        return {"type": "boolean"}


@dataclass(frozen=True, slots=True)
class Choice(Kind):
    """One of several words, such as the members of an enum; letters of either case do in the environment."""

    words: Iterable[str]
    reserved: tuple[str, ...] = ()
    is_textual: ClassVar[bool] = True

    @property
    def expects(self) -> str:
        *first, last = map(str, self.words)
        return f"{', '.join(first)} or {last}" if first else last

    def read(self, value: object) -> str:
        if value in self.reserved:
            raise InvalidValue(f"{shown(value)} is reserved, not implemented; use {self.expects}")
        for word in self.words:
            if word == value:
                return word
        raise self.refuse(value)

    def parse(self, text: str) -> str:
        for word in self.words:
            if word == text.lower():
                return word
        raise self.refuse(text)

    def schema(self) -> dict[str, Any]:
        return {"enum": list(self.words)}


@dataclass(frozen=True, slots=True)
class Text(Kind):
    """A text that a pattern matches whole, within a length; `convert` makes a value of it, or refuses."""

    wanted: str = "a text that is not empty"
    pattern: re.Pattern[str] = NOT_BLANK
    length_max: int | None = None
    is_printable: bool = False
    is_secret: bool = False
    """Whether a refusal must not repeat the text."""
    convert: Callable[[str], Any] = field(default=str, compare=False)
    is_textual: ClassVar[bool] = True

    @property
    def expects(self) -> str:
        return self.wanted

    def read(self, value: object) -> Any:
        if not isinstance(value, str) or not self._fits(value):
            raise self.refuse(value)
        return self.convert(value)

    def _fits(self, text: str) -> bool:
        return (
            (self.length_max is None or len(text) <= self.length_max)
            and self.pattern.fullmatch(text) is not None
            and (not self.is_printable or text.isprintable())
        )

    def refuse(self, value: object) -> InvalidValue:
        if self.is_secret:
            return InvalidValue(f"must be {self.expects} (at most {self.length_max} characters)")
        return Kind.refuse(self, value)

    def schema(self) -> dict[str, Any]:
        bound = {} if self.length_max is None else {"maxLength": self.length_max}
        return {"type": "string", "minLength": 1, **bound}


@dataclass(frozen=True, slots=True)
class TextList(Kind):
    """A list of texts, in the environment with commas between them; each of them once if `is_set`."""

    wanted: str
    item: Text
    is_set: bool = False
    toml_types: ClassVar[tuple[type, ...]] = (list, str)
    may_be_empty: ClassVar[bool] = True

    @property
    def expects(self) -> str:
        return self.wanted

    def read(self, value: object) -> tuple[Any, ...]:
        if not isinstance(value, list | tuple):
            raise self.refuse(value)
        items = [self.item.read(each) for each in value]
        return tuple(dict.fromkeys(items) if self.is_set else items)

    def parse(self, text: str) -> tuple[Any, ...]:
        """An empty part is refused as a slip (`a,,b`), except that an empty text is an empty list."""
        return self.read([each.strip() for each in text.split(",")] if text.strip() else [])

    def show(self, value: object) -> str:
        assert isinstance(value, tuple)
        return ", ".join(map(str, value))

    def schema(self) -> dict[str, Any]:
        return {"type": "array", "items": self.item.schema()}
