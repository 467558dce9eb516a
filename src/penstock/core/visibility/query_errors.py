"""Errors in queries, with position and suggestion."""

from __future__ import annotations

import string
from collections.abc import Iterable, Sequence

TYPOS_MAX = 2
SAID_MAX = 128


class QueryProblem(Exception):
    """An invalid query. `position` counts characters from 1."""

    def __init__(self, message: str, position: int, expected: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.position = position
        self.expected = expected

    def __str__(self) -> str:
        wanted = f" Expected {self.expected}." if self.expected else ""
        return f"At {self.position}: {self.message}{wanted}"


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The known name that was most likely meant: another case, or one or two typos."""
    said = name.lower()[:SAID_MAX]
    typos = [
        (_distance(said, each.lower()), each) for each in known if abs(len(each) - len(said)) <= TYPOS_MAX
    ]
    fewest, found = min(typos, default=(len(said), ""))
    same_word = found.lower() != said and _word(found.lower()) == _word(said)
    return None if same_word or fewest > min(TYPOS_MAX, len(said) // 4) else found


def by_nearness(name: str, known: Iterable[str]) -> list[str]:
    """All known names, the most similar first."""
    said = name.lower()[:SAID_MAX]
    return sorted(known, key=lambda each: (_distance(said, each.lower()), each))


def _word(name: str) -> str:
    """A name without its number: `Amount2` is not a typo of `Amount`."""
    return name.rstrip(string.digits)


def _distance(one: str, other: str) -> int:
    """The Damerau-Levenshtein distance."""
    earlier: Sequence[int] = ()
    before: Sequence[int] = ()
    row: Sequence[int] = range(len(other) + 1)
    for place, letter in enumerate(one, 1):
        earlier, before, row = before, row, [place]
        for column, wanted in enumerate(other, 1):
            typos = min(before[column] + 1, row[-1] + 1, before[column - 1] + (letter != wanted))
            if place > 1 and column > 1 and one[place - 2] + letter == wanted + other[column - 2]:
                typos = min(typos, earlier[column - 2] + 1)
            row.append(typos)
    return row[-1]
