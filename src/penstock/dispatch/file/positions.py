"""The line of every value in a TOML text, for messages. The text is known to be valid."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

import tomli

from penstock.dispatch.paths import Path

_STRING = re.compile(
    r'"""(?:[^\\]|\\.)*?"""(?:"{0,2})|\'\'\'.*?\'\'\'(?:\'{0,2})|"(?:[^"\\\n]|\\.)*"|\'[^\'\n]*\'', re.S
)
_KEY = re.compile(
    r'\s*((?:"(?:[^"\\\n]|\\.)*"|\'[^\'\n]*\'|[A-Za-z0-9_-]+)'
    r'(?:[ \t]*\.[ \t]*(?:"(?:[^"\\\n]|\\.)*"|\'[^\'\n]*\'|[A-Za-z0-9_-]+))*)[ \t]*'
)
_HEADER = re.compile(r"(\[\[?)" + _KEY.pattern + r"\]")


def lines_of(text: str) -> dict[Path, int]:
    """The line where each table and each value is given, by its path."""
    scan = _Scan(text.replace("\r\n", "\n"))
    scan.document()
    return scan.lines


@dataclass(slots=True)
class _Scan:
    text: str
    at: int = 0
    lines: dict[Path, int] = field(default_factory=dict)
    counted: dict[Path, int] = field(default_factory=dict)
    line: int = 1
    line_at: int = 0
    """Up to where lines were counted."""

    def document(self) -> None:
        table: Path = ()
        while self._past_blanks():
            if header := _HEADER.match(self.text, self.at):
                table = self._header(header)
            elif key := _KEY.match(self.text, self.at):
                self._pair(table, key)
            else:
                return

    def _header(self, found: re.Match[str]) -> Path:
        table = _steps(found[2])
        if found[1] == "[[":
            self.counted[table] = place = self.counted.get(table, -1) + 1
            table = (*table, place)
        self._note(table)
        self.at = found.end() + (found[1] == "[[")
        return table

    def _pair(self, table: Path, found: re.Match[str]) -> None:
        path = (*table, *_steps(found[1]))
        self._past_blanks()
        self._note(path)
        self.at = self.text.index("=", found.end()) + 1
        self._value(path)

    def _value(self, path: Path) -> None:
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

    def _inline(self, path: Path) -> None:
        self.at += 1
        while self._past_blanks(",") and self.text[self.at] != "}":
            key = _KEY.match(self.text, self.at)
            if key is None:
                return
            self._pair(path, key)
        self.at += 1

    def _array(self, path: Path) -> None:
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

    def _note(self, path: Path) -> None:
        self.line += self.text.count("\n", self.line_at, self.at)
        self.line_at = self.at
        for depth in range(1, len(path) + 1):
            self.lines.setdefault(path[:depth], self.line)


def _steps(key: str) -> Path:
    value: object = tomli.loads(f"{key} = 0")
    steps: list[str] = []
    while isinstance(value, dict):
        ((step, value),) = value.items()
        steps.append(step)
    return tuple(steps)
