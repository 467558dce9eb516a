"""What a TOML file says about the settings, with the line of each."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

import tomli

from penstock.settings.types.invalid_value import InvalidValue, quoted
from penstock.settings.types.secret_files import is_open_to_others

_BYTES_MAX = 1_048_576


@dataclass(frozen=True, slots=True)
class TomlFile:
    """The top-level keys of one file. Its text is kept out of `repr`: it may hold secrets."""

    path: Path
    is_open_to_others: bool
    _entries: dict[str, object]
    _lines: dict[str, int]
    _nested_lines: dict[tuple[str, ...], int]

    def __repr__(self) -> str:
        return f"TomlFile({str(self.path)!r})"

    def items(self) -> list[tuple[str, object]]:
        return list(self._entries.items())

    def origin(self, key: str) -> str:
        """Where a key stands, for messages: `penstock.toml line 3`."""
        line = self._lines.get(key)
        return f"{self.name} line {line}" if line is not None else self.name

    def origin_of(self, steps: tuple[str, ...]) -> str:
        """The same for a value in a table of tables: its own line, or that of the table around it."""
        for depth in range(len(steps), 0, -1):
            if (line := self._nested_lines.get(steps[:depth])) is not None:
                return f"{self.name} line {line}"
        return self.origin(steps[0])

    @property
    def name(self) -> str:
        return shown_path(self.path)


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
    nested = _line_of_each_nested(text) if any(isinstance(each, dict) for each in entries.values()) else {}
    return TomlFile(path, is_open_to_others(status), entries, _line_of_each(entries, text), nested)


def shown_path(path: Path) -> str:
    """The path as it may stand in a message: bare if it is plain, quoted and escaped otherwise."""
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


def _line_of_each(entries: dict[str, object], text: str) -> dict[str, int]:
    """The line where each key first opens a line. A hint for the reader: tomli itself does not tell."""
    lines: dict[str, int] = {}
    for number, line in enumerate(text.split("\n"), start=1):
        found = re.match(r"""\s*\[{0,2}\s*["']?([A-Za-z0-9_-]+)["']?\s*[=.\]]""", line)
        if found and found[1] in entries:
            lines.setdefault(found[1], number)
    return lines


def _line_of_each_nested(text: str) -> dict[tuple[str, ...], int]:
    """The line of each table and of each value in one: every line is read by itself. A hint like the other."""
    lines: dict[tuple[str, ...], int] = {}
    table: tuple[str, ...] = ()
    for number, line in enumerate(text.split("\n"), start=1):
        try:
            steps = _steps(tomli.loads(line.strip()))
        except (ValueError, RecursionError):
            continue
        if line.lstrip().startswith("["):
            table, steps = steps, ()
        path = (*table, *steps)
        for depth in range(1, len(path) + 1):
            lines.setdefault(path[:depth], number)
    return lines


def _steps(value: object) -> tuple[str, ...]:
    """The names that lead into tables which hold one thing each."""
    steps: tuple[str, ...] = ()
    while isinstance(value, dict) and len(value) == 1:
        (name, value), *_ = value.items()
        steps = (*steps, name)
    return steps
