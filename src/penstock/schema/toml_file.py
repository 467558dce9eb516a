"""Reads TOML files, with the line of each value."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tomli

from penstock.schema.paths import KeyPath
from penstock.schema.problems import InvalidValue, quoted
from penstock.schema.toml_lines import lines_of

DEPTH_MAX = 40
"""Deeper than any valid value; deeper tables are refused."""
_TOO_DEEP = "is not valid TOML: a number is too long or a value is nested too deep"


@dataclass(frozen=True, slots=True, repr=False)
class TomlFile:
    """The tables of one file. There is no `repr`: they may hold secrets."""

    document: dict[str, Any]
    lines: dict[KeyPath, int]
    status: os.stat_result

    def line_of(self, path: KeyPath) -> int | None:
        """The line of a value, else of the table around it."""
        found = (self.lines.get(path[:depth]) for depth in range(len(path), 0, -1))
        return next((line for line in found if line is not None), None)


def read_toml_file(path: Path, bytes_max: int) -> TomlFile:
    """The file's tables, or `InvalidValue` with the line of what is not TOML."""
    text, status = read_text(path, bytes_max)
    problem = None
    document: dict[str, Any] = {}
    lines: dict[KeyPath, int] = {}
    try:
        document = tomli.loads(text)
        lines = lines_of(text)
    except tomli.TOMLDecodeError as error:
        message = error.msg if error.msg.isprintable() else quoted(error.msg)
        place = f"line {error.lineno}, column {error.colno}"
        problem = InvalidValue(f"is not valid TOML: {place}: {message}", error.lineno)
    except (ValueError, RecursionError):
        problem = InvalidValue(_TOO_DEEP)
    if problem is not None:
        raise problem  # outside the handler, so that the error carries no text of the file
    if any(len(where) > DEPTH_MAX for where in lines):
        raise InvalidValue(_TOO_DEEP)
    return TomlFile(document, lines, status)


def read_text(path: Path, bytes_max: int) -> tuple[str, os.stat_result]:
    """The text of a file and its status, or `InvalidValue`."""
    try:
        with path.open("rb") as file:
            status = os.fstat(file.fileno())
            content = file.read(bytes_max + 1)
    except (OSError, ValueError) as error:
        cause = error.strerror if isinstance(error, OSError) else None
        raise InvalidValue(f"cannot be read: {cause or 'not a path'}") from None
    if len(content) > bytes_max:
        raise InvalidValue(f"is larger than {bytes_max} bytes")
    try:
        return content.decode("utf-8-sig"), status
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
    raise InvalidValue(f"is not valid TOML: line {line}: not UTF-8 text", line)
