"""Line numbers of the values in a TOML text, for error messages.

`tomli` reports no positions, so this scans the text a second time. It expects text that `tomli` has accepted: it
skips strings, comments and scalars, and records the line of every table, key and array element. Where it does not
understand the text it stops; a missing line number only makes a message less precise.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

import tomli

from penstock.schema.paths import KeyPath

_STRING = re.compile(
    r'"""(?:[^\\]|\\.)*?"""(?:"{0,2})|\'\'\'.*?\'\'\'(?:\'{0,2})|"(?:[^"\\\n]|\\.)*"|\'[^\'\n]*\'', re.S
)
_KEY = re.compile(
    r'\s*((?:"(?:[^"\\\n]|\\.)*"|\'[^\'\n]*\'|[A-Za-z0-9_-]+)'
    r'(?:[ \t]*\.[ \t]*(?:"(?:[^"\\\n]|\\.)*"|\'[^\'\n]*\'|[A-Za-z0-9_-]+))*)[ \t]*'
)
_HEADER = re.compile(r"(\[\[?)" + _KEY.pattern + r"\]")


def lines_of(text: str) -> dict[KeyPath, int]:
    """The line where each table and each value is given, by its path."""
    scan = _Scan(text.replace("\r\n", "\n"))
    scan.document()
    return scan.lines


@dataclass(slots=True)
class _Scan:
    text: str
    at: int = 0
    lines: dict[KeyPath, int] = field(default_factory=dict)
    counted: dict[KeyPath, int] = field(default_factory=dict)
    line: int = 1
    line_at: int = 0
    """Up to where lines were counted."""

    def document(self) -> None:
        table: KeyPath = ()
        while self._past_blanks():
            if header := _HEADER.match(self.text, self.at):
                table = self._header(header)
            elif key := _KEY.match(self.text, self.at):
                self._pair(table, key)
            else:
                return

    def _header(self, found: re.Match[str]) -> KeyPath:
        table: KeyPath = steps_of(found[2])
        if found[1] == "[[":
            self.counted[table] = place = self.counted.get(table, -1) + 1
            table = (*table, place)
        self._note(table)
        self.at = found.end() + (found[1] == "[[")
        return table

    def _pair(self, table: KeyPath, found: re.Match[str]) -> None:
        path = (*table, *steps_of(found[1]))
        self._past_blanks()
        self._note(path)
        self.at = self.text.index("=", found.end()) + 1
        self._value(path)

    def _value(self, path: KeyPath) -> None:
        self._past_blanks()
        if text := _STRING.match(self.text, self.at):
            self.at = text.end()
        elif self.text[self.at] == "{":
            self._inline(path)
        elif self.text[self.at] == "[":
            self._array(path)
        else:
            while self.at < len(self.text) and self.text[self.at] not in ",]}#\n":
                self.at += 1

    def _inline(self, path: KeyPath) -> None:
        self.at += 1
        while self._past_blanks(",") and self.text[self.at] != "}":
            key = _KEY.match(self.text, self.at)
            if key is None:
                return
            self._pair(path, key)
        self.at += 1

    def _array(self, path: KeyPath) -> None:
        self.at += 1
        place = 0
        while self._past_blanks(",") and self.text[self.at] != "]":
            self._note((*path, place))
            self._value((*path, place))
            place += 1
        self.at += 1

    def _past_blanks(self, also: str = "") -> bool:
        """Skip blanks, newlines and comments; False at the end of the text."""
        while self.at < len(self.text):
            if self.text[self.at] == "#":
                end = self.text.find("\n", self.at)
                self.at = len(self.text) if end < 0 else end
            elif self.text[self.at].isspace() or self.text[self.at] in also:
                self.at += 1
            else:
                return True
        return False

    def _note(self, path: KeyPath) -> None:
        self.line += self.text.count("\n", self.line_at, self.at)
        self.line_at = self.at
        for depth in range(1, len(path) + 1):
            self.lines.setdefault(path[:depth], self.line)


def steps_of(key: str) -> tuple[str, ...]:
    """The steps of a key as TOML writes it, `a.b.c` with quotes where needed."""
    value: object = tomli.loads(f"{key} = 0")
    steps: list[str] = []
    while isinstance(value, dict):
        ((step, value),) = value.items()
        steps.append(step)
    return tuple(steps)
