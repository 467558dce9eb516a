"""Errors in queries, with position and suggestion."""

from __future__ import annotations

import string
from collections.abc import Iterable

from penstock.schema.nearest import edits, nearest

TYPOS_MAX = 2


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


def field_meant(name: str, known: Iterable[str]) -> str | None:
    """The known name that was most likely meant: another case, or one or two typos.

    Narrower than `nearest`, since any name may be that of an attribute: a part of a name is no typo.
    """
    for found in nearest(name, known):
        typos = edits(name.casefold(), found.casefold(), most=min(TYPOS_MAX, len(name) // 4))
        if typos == 0 or (typos is not None and _word(found) != _word(name)):
            return found
    return None


def _word(name: str) -> str:
    """A name without its number: `Amount2` is not a typo of `Amount`."""
    return name.casefold().rstrip(string.digits)
