"""Problems and warnings of nested configuration values, each with its path."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from penstock.schema.paths import shown_path
from penstock.settings.types.invalid_value import SHOWN_CHARACTERS_MAX, quoted
from penstock.settings.types.json_text import JsonMembers, NumberText

_INTEGER_MAX = 2**63

Steps = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ConfigPath:
    """The path of a configuration value, and a function that finds its source."""

    steps: Steps
    origin_of: Callable[[Steps], str]

    def at(self, name: str) -> ConfigPath:
        return ConfigPath((*self.steps, name), self.origin_of)

    @property
    def path(self) -> str:
        return shown_path(self.steps)

    @property
    def source(self) -> str:
        return self.origin_of(self.steps)


@dataclass(frozen=True, slots=True)
class Diagnostics:
    """Reasons not to start, and what an operator should know; one line each, and each line once."""

    problems: dict[str, None] = field(default_factory=dict)
    cautions: dict[str, None] = field(default_factory=dict)

    def refuse(self, source: str, path: str, text: str) -> None:
        self.problems[f"{source}: {path}: {text}"] = None

    def caution(self, source: str, path: str, text: str) -> None:
        self.cautions[f"{source}: {path}: {text}"] = None


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
        case JsonMembers():
            return "an object"
        case dict():
            return "a table"
        case list():
            return "a list"
        case _:
            return "a date or time"
