"""Which of the known names was most likely meant by one that is unknown."""

from __future__ import annotations

import re
from collections.abc import Iterable

_MOST = 3
LETTERS_MAX = 300
"""Nobody mistypes a name that is longer."""
BUDGET = 400_000
HINTS_MAX = 50
_BETWEEN_TOKENS = re.compile(r"[-_.:/\s]+")


def nearest(word: str, names: Iterable[str]) -> list[str]:
    """Up to three names: those the fewest typing errors away, else those that contain every part of the word."""
    known = sorted(set(names))
    folded = word.strip().casefold()
    if not folded or not known or len(folded) > LETTERS_MAX:
        return []
    return _few_edits_away(folded, known) or _with_every_token(folded, known)


def _few_edits_away(word: str, known: list[str]) -> list[str]:
    """The closer a name that was found, the less is looked at in the others."""
    fewest = max(1, min(_MOST, (len(word) + _MOST) // 3))
    found: list[str] = []
    looked_for = _EditDistance(word)
    for name in known:
        distance = looked_for.edits_to(name.casefold(), fewest)
        if distance is None:
            continue
        if distance < fewest:
            fewest, found = distance, []
        found.append(name)
    if not found or fewest > max(1, min(_MOST, max(len(word), len(found[0])) // 3)):
        return []
    return found[:_MOST]


def _with_every_token(word: str, known: list[str]) -> list[str]:
    wanted = _tokens(word)
    found = [name for name in known if wanted and wanted <= _tokens(name.casefold())]
    return found if len(found) <= _MOST else []


def _tokens(name: str) -> set[str]:
    return set(_BETWEEN_TOKENS.split(name)) - {""}


def edits(one: str, other: str, *, most: int) -> int | None:
    """How many letters to add, drop, change or swap with their neighbour turn one word into the other.

    None if these are more than `most`.
    """
    return _EditDistance(one).edits_to(other, most)


class _EditDistance:
    """A word that is compared with many: its letters are kept as bits, a column of the usual table is one number.

    The way of Myers, with the swaps of Hyyrö: a bit of `more` or `less` says whether the table rises or falls there.
    """

    def __init__(self, word: str) -> None:
        self._length = len(word)
        self._places: dict[str, int] = {}
        for place, letter in enumerate(word):
            self._places[letter] = self._places.get(letter, 0) | 1 << place

    def edits_to(self, other: str, most: int) -> int | None:
        left = len(other)
        distance = self._length
        if abs(distance - left) > most:
            return None
        if not distance:
            return left
        whole, lowest = (1 << distance) - 1, 1 << (distance - 1)
        more, less, same, before = whole, 0, 0, 0
        for letter in other:
            here = self._places.get(letter, 0)
            swapped = (((whole ^ same) & here) << 1) & before
            same = ((((here & more) + more) ^ more) | here | less | swapped) & whole
            risen, fallen = less | (whole ^ (same | more)), same & more
            distance += bool(risen & lowest) - bool(fallen & lowest)
            left -= 1
            if distance - left > most:
                return None
            risen = risen << 1 | 1
            more, less, before = (fallen << 1 | ~(same | risen)) & whole, risen & same, here
        return distance if distance <= most else None


class Suggestions:
    """Near names for the first words only: where most are unknown, another thing is wrong than their spelling.

    The budget is counted in letters that are looked at.
    """

    def __init__(self) -> None:
        self._left = HINTS_MAX
        self._letters = BUDGET

    def __call__(self, word: str, names: Iterable[str]) -> list[str]:
        if self._left <= 0 or self._letters <= 0:
            return []
        known = list(names)
        self._left -= 1
        self._letters -= len(word) * len(known)
        return nearest(word, known)
