"""`nearest`: the names most likely meant by an unknown one, for every "did you mean" of the code base.

The first of these rules that finds something:

1. Edit distance, case-folded, a swap of neighbours counting as one edit (optimal string alignment). Names at the
   minimum distance are suggested if it is at most max(1, min(3, longest length / 3)).
2. Names that contain every token of the unknown one ("openai" -> "openai-queue"), if there are at most three.
3. Names in which every token of the unknown one begins a token ("prio" -> "priority"), if there are at most three.

`difflib` ratios were rejected: they rank transpositions low, miss the token rule and pick one of several equals.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

_MOST = 3
LENGTH_MAX = 300
"""Longer names get no suggestions: they are not typing errors."""
BUDGET = 400_000
HINTS_MAX = 50
_BETWEEN_TOKENS = re.compile(r"[-_.:/\s]+")


def nearest(name: str, candidates: Iterable[str]) -> list[str]:
    """Up to three candidates, alphabetically; empty if none is close."""
    known = sorted(set(candidates))
    folded = name.strip().casefold()
    if not folded or not known or len(folded) > LENGTH_MAX:
        return []
    return (
        _few_edits_away(folded, known)
        or _with_every_token(folded, known, str.__eq__)
        or _with_every_token(folded, known, _begins)
    )


def _few_edits_away(name: str, known: list[str]) -> list[str]:
    fewest = max(1, min(_MOST, (len(name) + _MOST) // 3))
    found: list[str] = []
    distance_from = _EditDistance(name)
    for candidate in known:
        distance = distance_from.to(candidate.casefold(), fewest)
        if distance is None:
            continue
        if distance < fewest:
            fewest, found = distance, []
        found.append(candidate)
    if not found or fewest > max(1, min(_MOST, max(len(name), len(found[0])) // 3)):
        return []
    return found[:_MOST]


def _with_every_token(name: str, known: list[str], fits: Callable[[str, str], bool]) -> list[str]:
    wanted = _tokens(name)
    found = [
        candidate
        for candidate in known
        if wanted
        and all(any(fits(each, token) for token in _tokens(candidate.casefold())) for each in wanted)
    ]
    return found if len(found) <= _MOST else []


def _begins(token: str, whole: str) -> bool:
    return token == whole or (len(token) >= _MOST and whole.startswith(token))


def _tokens(name: str) -> set[str]:
    return set(_BETWEEN_TOKENS.split(name)) - {""}


def by_nearness(name: str, candidates: Iterable[str]) -> list[str]:
    """All candidates, those with the fewest edits first."""
    folded = name.casefold()[:LENGTH_MAX]
    distance_from = _EditDistance(folded)

    def edits_to(candidate: str) -> tuple[int, str]:
        other = candidate.casefold()
        return distance_from.to(other, max(len(folded), len(other))) or 0, candidate

    return sorted(candidates, key=edits_to)


def edits(one: str, other: str, *, most: int) -> int | None:
    """Insertions, deletions, substitutions and swaps of neighbours from one to the other; None above `most`."""
    return _EditDistance(one).to(other, most)


class _EditDistance:
    """Optimal string alignment distance from one word to many, bit-parallel.

    Myers (1999) with the transpositions of Hyyrö (2003): a column of the dynamic-programming table is two
    integers, `more` and `less`, whose bits tell where the table rises and falls. Files may hold thousands of
    names, and this takes one pass over each of them.
    """

    def __init__(self, word: str) -> None:
        self._length = len(word)
        self._places: dict[str, int] = {}
        for place, letter in enumerate(word):
            self._places[letter] = self._places.get(letter, 0) | 1 << place

    def to(self, other: str, most: int) -> int | None:
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
    """`nearest` with a budget, for files in which thousands of names may be unknown.

    After `HINTS_MAX` names, or `BUDGET` letters compared, it suggests nothing more.
    """

    def __init__(self) -> None:
        self._left = HINTS_MAX
        self._letters = BUDGET

    def __call__(self, name: str, candidates: Iterable[str]) -> list[str]:
        if self._left <= 0 or self._letters <= 0:
            return []
        known = list(candidates)
        self._left -= 1
        self._letters -= len(name) * len(known)
        return nearest(name, known)
