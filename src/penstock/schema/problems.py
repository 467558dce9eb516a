"""Problems of configuration values: what is wrong, where, and how to fix it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import date, time

from penstock.schema.nearest import nearest

SHOWN_CHARACTERS_MAX = 60
_INTEGER_MAX = 2**63

Suggest = Callable[[str, Iterable[str]], list[str]]


class InvalidValue(ValueError):
    """A value breaks its rule. The message follows the name of the value; what to do may follow after `; `."""

    def __init__(self, message: str, line: int | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.line = line


@dataclass(frozen=True, slots=True)
class Problem:
    """One problem: the full path of the value, what is wrong, and how to fix it."""

    path: str
    message: str
    hint: str = ""
    origin: str = ""
    """Where the value was given: `penstock.toml:12`, an environment variable, a flag."""

    def __str__(self) -> str:
        where = f"{self.path} ({self.origin})" if self.path and self.origin else self.path or self.origin
        return f"{where}: {self.text}" if where else self.text

    @property
    def text(self) -> str:
        """The message with its hint."""
        return f"{self.message}; {self.hint}" if self.hint else self.message


@dataclass(frozen=True, slots=True)
class NumberText:
    """A number of JSON that is not whole, not finite or beyond all bounds, as it was written."""

    text: str


def quoted(text: str, most: int = SHOWN_CHARACTERS_MAX) -> str:
    """The text in quotes, short and with every control character escaped, safe for a terminal or a log."""
    if len(text) > most:
        text = text[:most] + "..."
    return json.dumps(text).replace("\x7f", "\\u007f")


def shown(value: object) -> str:
    """A value as it was written, short and safe for a terminal; nested values only by their type."""
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case NumberText(text):
            return text if len(text) <= SHOWN_CHARACTERS_MAX else f"{text[:SHOWN_CHARACTERS_MAX]}..."
        case int():
            return str(value) if abs(value) < _INTEGER_MAX else "a number beyond 64 bits"
        case float():
            return str(value)
        case str():
            return quoted(value)
        case dict():
            return str(getattr(value, "word", "a table"))
        case list() | tuple():
            return "a list"
        case date() | time():
            return f"the date or time {value}"
        case _:
            return type(value).__name__


def either(names: Iterable[str]) -> str:
    """`'a' or 'b'`"""
    return " or ".join(map(repr, names))


def hint_towards(word: str, known: Iterable[str], suggest: Suggest = nearest) -> str:
    """A suggestion as the end of a sentence; empty if no name is near."""
    near = suggest(word, known)
    return f"did you mean {either(near)}?" if near else ""
