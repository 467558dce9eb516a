"""Reads settings from a TOML file, with the line of each."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import tomli

from penstock.schema.paths import KeyPath
from penstock.schema.toml_lines import lines_of
from penstock.settings.types.invalid_value import InvalidValue, quoted
from penstock.settings.types.secret_files import is_open_to_others

_BYTES_MAX = 1_048_576


@dataclass(frozen=True, slots=True)
class TomlFile:
    """The top-level keys of one file. Its text is kept out of `repr`: it may hold secrets."""

    path: Path
    is_open_to_others: bool
    _entries: dict[str, object]
    _lines: Mapping[KeyPath, int]

    def __repr__(self) -> str:
        return f"TomlFile({str(self.path)!r})"

    def items(self) -> list[tuple[str, object]]:
        return list(self._entries.items())

    def origin_of(self, path: tuple[str, ...]) -> str:
        """The location of a value for messages, `penstock.toml line 3`: its own line, else its table's."""
        for depth in range(len(path), 0, -1):
            if (line := self._lines.get(path[:depth])) is not None:
                return f"{self.name} line {line}"
        return self.name

    @property
    def name(self) -> str:
        return shown_file(self.path)


def read_toml_file(path: Path) -> TomlFile:
    """The file's keys, or `InvalidValue` with line and column where it is not TOML."""
    text, status = _read(path)
    entries: dict[str, object] = {}
    problem = None
    try:
        entries = tomli.loads(text)
    except tomli.TOMLDecodeError as error:
        problem = f"line {error.lineno}, column {error.colno}: {_plain(error.msg)}"
    except (ValueError, RecursionError):
        problem = "a number is too long or a value is nested too deep"
    if problem is not None:
        raise InvalidValue(f"is not valid TOML: {problem}")
    return TomlFile(path, is_open_to_others(status), entries, lines_of(text))


def shown_file(path: Path) -> str:
    """The path for messages: as it is if printable, else quoted and escaped."""
    text = str(path)
    return text if text.isprintable() and len(text) <= 200 else quoted(text)


def _read(path: Path) -> tuple[str, os.stat_result]:
    try:
        with path.open("rb") as file:
            status = os.fstat(file.fileno())
            content = file.read(_BYTES_MAX + 1)
    except (OSError, ValueError) as error:
        cause = error.strerror if isinstance(error, OSError) else None
        raise InvalidValue(f"cannot be read: {cause or 'not a path'}") from None
    if len(content) > _BYTES_MAX:
        raise InvalidValue(f"is larger than {_BYTES_MAX} bytes")
    try:
        return content.decode("utf-8-sig"), status
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
    raise InvalidValue(f"is not valid TOML: line {line}: not UTF-8 text")


def _plain(message: str) -> str:
    return message if message.isprintable() else quoted(message)
