"""Mappings from the body of a webhook to a command: templates with placeholders, and routes by content.

A template is a text with placeholders in braces: `order-{data.object.id}`. A placeholder is a path into the JSON body:
names of members and positions in lists, with dots between them; `{}` is the whole body, `{{` and `}}` are braces. There
are no expressions, no defaults and no functions, so that a mapping can be read at a glance and cannot run code.

A text that is one placeholder has the value itself, with its type, where a value is wanted. Everywhere else values are
text: strings and whole numbers only, because the text of anything else is a matter of taste. A path that finds nothing
raises `MappingError`: a command with a hole in its id would reach the wrong run.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from msgspec import Struct

PATH_STEPS_MAX: Final = 20
TEMPLATE_MAX: Final = 1_000
_PIECES: Final = re.compile(r"\{\{|\}\}|\{([^{}]*)\}|[^{}]+")
_INDEX: Final = re.compile(r"0|[1-9][0-9]{0,5}", re.ASCII)
_NOTHING: Final = object()


class MappingError(Exception):
    """A placeholder found no value, or one that cannot be used. `path` is the placeholder."""

    def __init__(self, path: str, problem: str) -> None:
        super().__init__(f"{{{path}}} {problem}")
        self.path = path


class ValuePath(Struct, frozen=True):
    """A path into a JSON value; no steps: the value itself."""

    steps: tuple[str, ...]

    @property
    def text(self) -> str:
        return ".".join(self.steps)

    def value_in(self, event: object) -> object:
        """The value at the path. Raises `MappingError` if there is none."""
        found = self.find(event)
        if found is _NOTHING:
            raise MappingError(self.text, "is not in the body")
        return found

    def find(self, event: object) -> object:
        for step in self.steps:
            if isinstance(event, dict) and step in event:
                event = event[step]
            elif isinstance(event, list) and _INDEX.fullmatch(step) and int(step) < len(event):
                event = event[int(step)]
            else:
                return _NOTHING
        return event


class Template(Struct, frozen=True):
    """Literal texts and placeholders, in order."""

    parts: tuple[str | ValuePath, ...]

    def value(self, event: object) -> object:
        """The value of a lone placeholder with its type, else the text. Raises `MappingError`."""
        if len(self.parts) == 1 and isinstance(self.parts[0], ValuePath):
            return self.parts[0].value_in(event)
        return self.rendered(event)

    def rendered(self, event: object) -> str:
        """The text, with strings and whole numbers in place of the placeholders. Raises `MappingError`."""
        return "".join(part if isinstance(part, str) else _as_text(part, event) for part in self.parts)


class EventRoute(Struct, frozen=True):
    """A command, and the events that it is for. `target` and `arguments` contain templates."""

    action: str
    target: Mapping[str, Template]
    arguments: Any = None
    """A JSON value with templates for texts; None: no arguments."""
    when: tuple[tuple[ValuePath, tuple[object, ...]], ...] = ()
    """Paths with the values that they may have; all must match."""

    def matches(self, event: object) -> bool:
        return all(_is_one_of(path.find(event), allowed) for path, allowed in self.when)

    def command(self, event: object) -> dict[str, Any]:
        """The `action`, `target` and `input` of the event. Raises `MappingError`."""
        return {
            "action": self.action,
            "target": {name: template.rendered(event) for name, template in self.target.items()},
            "input": filled(self.arguments, event),
        }


def parse_path(text: str) -> ValuePath:
    """Raises `ValueError` if the text is not a path."""
    steps = tuple(text.split(".")) if text else ()
    if len(steps) > PATH_STEPS_MAX or not all(steps) or not text.isprintable():
        raise ValueError(
            f"has the path {{{text[:60]}}}: write 1 to {PATH_STEPS_MAX} names with dots between them"
        )
    return ValuePath(steps)


def parse_template(text: str) -> Template:
    """Raises `ValueError` if the text has a brace without its partner."""
    if len(text) > TEMPLATE_MAX:
        raise ValueError(f"must be at most {TEMPLATE_MAX} characters")
    parts: list[str | ValuePath] = []
    at = 0
    while at < len(text):
        piece = _PIECES.match(text, at)
        if piece is None:
            raise ValueError("has a brace without its partner; write {{ or }} for a brace itself")
        at = piece.end()
        if piece.group(1) is not None:
            parts.append(parse_path(piece.group(1)))
        else:
            parts.append({"{{": "{", "}}": "}"}.get(piece.group(), piece.group()))
    return Template(tuple(parts))


def parse_value(value: object) -> object:
    """A JSON value with its texts as templates. Raises `ValueError`."""
    match value:
        case str():
            return parse_template(value)
        case list():
            return [parse_value(each) for each in value]
        case dict():
            return {name: parse_value(each) for name, each in value.items()}
        case None | bool() | int() | float():
            return value
        case _:
            raise ValueError("has a value that JSON does not have, such as a date")


def filled(value: object, event: object) -> object:
    """A parsed value with the placeholders replaced. Raises `MappingError`."""
    match value:
        case Template():
            return value.value(event)
        case list():
            return [filled(each, event) for each in value]
        case dict():
            return {name: filled(each, event) for name, each in value.items()}
        case _:
            return value


def _as_text(path: ValuePath, event: object) -> str:
    value = path.value_in(event)
    if isinstance(value, bool) or not isinstance(value, str | int) or value == "":
        raise MappingError(path.text, "is not a text or a whole number")
    return str(value)


def _is_one_of(value: object, allowed: tuple[object, ...]) -> bool:
    """Equal in value and type: in JSON, true is not 1."""
    return any(type(value) is type(each) and value == each for each in allowed)
