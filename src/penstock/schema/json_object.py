"""A JSON object in a setting: keeps repeated names and odd numbers, and reports errors by line and column."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import ClassVar, NoReturn

from penstock.schema.kinds import Kind
from penstock.schema.problems import InvalidValue, NumberText, quoted

_DIGITS_MAX = 20
_SHOWN_BEFORE = 40
_SHOWN_AFTER = 24


class JsonMembers(dict[str, object]):
    """A JSON object that records repeated names."""

    repeated: tuple[str, ...] = ()
    word: ClassVar[str] = "an object"


@dataclass(frozen=True, slots=True)
class JsonObject(Kind):
    """A JSON object in a text; `holds` names its content, which a shape checks."""

    holds: str

    @property
    def expects(self) -> str:
        return f"a JSON object of {self.holds}"

    def parse(self, text: str) -> JsonMembers:
        return _parse_object(text)

    def show(self, value: object) -> str:
        assert isinstance(value, dict)
        return "1 key" if len(value) == 1 else f"{len(value)} keys"


def _parse_object(text: str) -> JsonMembers:
    """The object that the text holds, or `InvalidValue` with line and column of the error."""
    value: object = None
    try:
        value = json.loads(
            text,
            object_pairs_hook=_members,
            parse_int=_whole,
            parse_float=NumberText,
            parse_constant=NumberText,
        )
    except json.JSONDecodeError as error:
        _refuse(error)
    except RecursionError:
        raise InvalidValue("is nested too deep") from None
    if not isinstance(value, JsonMembers):
        raise InvalidValue(f"must be a JSON object, {{...}}, not {quoted(text.strip())}")
    return value


def _members(pairs: list[tuple[str, object]]) -> JsonMembers:
    members = JsonMembers(pairs)
    if len(members) < len(pairs):
        names = [name for name, _ in pairs]
        members.repeated = tuple(dict.fromkeys(name for name in names if names.count(name) > 1))
    return members


def _whole(text: str) -> int | NumberText:
    return int(text) if len(text) <= _DIGITS_MAX else NumberText(text)


def _refuse(error: json.JSONDecodeError) -> NoReturn:
    place = f"line {error.lineno}, column {error.colno}"
    advice = ""
    if error.pos == 0 and error.doc[:1] in ("'", '"'):
        advice = "; quotes around the whole belong to the shell, so leave them out where no shell reads it"
    raise InvalidValue(f"is not valid JSON: {place}: {error.msg}: {_pointed(error)}{advice}") from None


def _pointed(error: json.JSONDecodeError) -> str:
    """The line as it was written, with a mark where reading stopped."""
    line, at = error.doc.split("\n")[error.lineno - 1], error.colno - 1
    before, after = line[:at], line[at:]
    cut = "..." if len(before) > _SHOWN_BEFORE else ""
    rest = "..." if len(after) > _SHOWN_AFTER else ""
    end = "" if after else " (nothing more)"
    return f"{cut}{_plain(before[-_SHOWN_BEFORE:])} >>>{_plain(after[:_SHOWN_AFTER])}{rest}{end}".strip()


def _plain(text: str) -> str:
    return "".join(character if character.isprintable() else "?" for character in text)
