"""Executes the fetches that an operation awaits in one step: few statements for many of them.

Fetches of one statement are executed as one from `MERGE_FROM` on, if it has a text for many values. A long read, such
as a page of the dashboard, asks for dozens of small things in each of a few steps; their statements become the parts of
one `UNION ALL`:

    SELECT 0, p.* FROM (first) p  UNION ALL  SELECT 1, p.*, NULL FROM (second) p

Each row begins with the number of its part and is filled up with NULL to the width of the widest part. How wide a
statement is, SQLite says when it is executed for the first time, alone. SQLite executes the parts one after the other,
so the rows of each keep their order. Short reads and writes are not merged: preparing a new text costs more than the
calls into a library that it saves.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import groupby
from operator import attrgetter
from typing import Any, Final

import msgspec

from penstock.stores.sql.catalogue import Statement
from penstock.stores.sql.session import Fetch, Row, Rows
from penstock.stores.sqlite.connections import sqlite3

MERGE_FROM: Final = 4
"""From this many equal fetches on, they are executed as one."""
SEPARATOR: Final = "\nUNION ALL\n"
PARTS_MAX: Final = 100
"""Most parts of a merged text; SQLite allows 500."""
_PARAMETER = re.compile(r"\?(\d+)")


def execute(cursor: sqlite3.Cursor, fetches: Any) -> list[Rows]:
    """The rows of each fetch of a short read or a write."""
    expect(fetches)
    if len(fetches) < MERGE_FROM:
        return [cursor.execute(fetch.statement.sql, fetch.values).fetchall() for fetch in fetches]
    return _distributed(fetches, (cursor.execute(part.sql, part.values) for part in _parts(fetches)))


class MergedReads:
    """Executes the fetches of long reads, and remembers how many columns each statement has."""

    def __init__(self) -> None:
        self._widths: dict[str, int] = {}

    def execute(self, cursor: sqlite3.Cursor, fetches: Any) -> list[Rows]:
        """The rows of each fetch of a step, by as few statements as possible."""
        expect(fetches)
        parts = _parts(fetches)
        found: list[Rows] = []
        for first in range(0, len(parts), PARTS_MAX):
            found += self._execute_parts(cursor, parts[first : first + PARTS_MAX])
        return _distributed(fetches, found)

    def _execute_parts(self, cursor: sqlite3.Cursor, parts: Sequence[_Part]) -> Iterable[Rows]:
        texts = tuple(part.sql for part in parts)
        widths = tuple(self._widths.get(text, 0) for text in texts)
        if len(parts) < 2 or not all(widths):
            return [self._execute_alone(cursor, part) for part in parts]
        rows: list[list[Row]] = [[] for _ in parts]
        values = [value for part in parts for value in part.values]
        for row in cursor.execute(_merged(texts, widths), values):
            number = row[0]
            rows[number].append(row[1 : widths[number] + 1])
        return rows

    def _execute_alone(self, cursor: sqlite3.Cursor, part: _Part) -> Rows:
        rows: Rows = cursor.execute(part.sql, part.values).fetchall()
        self._widths[part.sql] = len(cursor.description)
        return rows


class _Part(msgspec.Struct, frozen=True):
    """One text with its values, which answers one fetch or several of one statement."""

    sql: str
    values: Sequence[Any]


def expect(fetches: Any) -> None:
    """Raise unless an operation awaits the store."""
    if not isinstance(fetches, tuple):
        raise RuntimeError(f"an operation awaited {fetches!r}; it may await only the store")


def _groups(fetches: Sequence[Fetch]) -> Iterable[tuple[Statement, Sequence[Fetch], bool]]:
    """Fetches of one statement that follow each other, and whether they are executed as one."""
    for statement, equal in groupby(fetches, attrgetter("statement")):
        mine = tuple(equal)
        yield statement, mine, statement.many is not None and len(mine) >= MERGE_FROM


def _parts(fetches: Sequence[Fetch]) -> Sequence[_Part]:
    parts: list[_Part] = []
    for statement, mine, as_one in _groups(fetches):
        if as_one:
            assert statement.many is not None
            texts = msgspec.json.encode([fetch.values[0] for fetch in mine]).decode()
            parts.append(_Part(statement.many, (texts,)))
        else:
            parts += [_Part(statement.sql, fetch.values) for fetch in mine]
    return parts


def _distributed(fetches: Sequence[Fetch], found: Iterable[Iterable[Row]]) -> list[Rows]:
    """The rows of each fetch, from the rows of each part."""
    rest = iter(found)
    answers: list[Rows] = []
    for _, mine, as_one in _groups(fetches):
        if as_one:
            shares: list[list[Row]] = [[] for _ in mine]
            for row in next(rest):
                shares[row[0] - 1].append(row)
            answers += shares
        else:
            answers += [list(next(rest)) for _ in mine]
    return answers


@lru_cache(maxsize=512)
def _merged(texts: tuple[str, ...], widths: tuple[int, ...]) -> str:
    """One text for several; its parameters are theirs, one after the other."""
    widest, taken, parts = max(widths), 0, []
    for number, (text, width) in enumerate(zip(texts, widths, strict=True)):
        filling = ", NULL" * (widest - width)
        parts.append(f"SELECT {number}, p.*{filling} FROM ({_shifted(text, taken)}) p")
        taken += max((int(found) for found in _PARAMETER.findall(text)), default=0)
    return SEPARATOR.join(parts)


def _shifted(text: str, by: int) -> str:
    return _PARAMETER.sub(lambda found: f"?{int(found[1]) + by}", text)
