"""Which of the known names was most likely meant by one that is unknown."""

from __future__ import annotations

import re
from collections.abc import Iterable

_MOST = 3
_BETWEEN_TOKENS = re.compile(r"[-_.:/\s]+")


def nearest(word: str, names: Iterable[str]) -> list[str]:
    """Up to three names: those the fewest typing errors away, else those that contain every part of the word."""
    known = sorted(set(names))
    folded = word.strip().casefold()
    if not folded or not known:
        return []
    return _few_edits_away(folded, known) or _with_every_token(folded, known)


def _few_edits_away(word: str, known: list[str]) -> list[str]:
    distances = [
        (distance, name)
        for name in known
        if (distance := edits(word, name.casefold(), most=_MOST)) is not None
    ]
    if not distances:
        return []
    fewest, closest = min(distances)
    longest = max(len(word), len(closest))
    if fewest > max(1, min(_MOST, longest // 3)):
        return []
    return [name for distance, name in distances if distance == fewest][:_MOST]


def _with_every_token(word: str, known: list[str]) -> list[str]:
    wanted = _tokens(word)
    found = [name for name in known if wanted and wanted <= _tokens(name.casefold())]
    return found if len(found) <= _MOST else []


def _tokens(name: str) -> set[str]:
    return set(_BETWEEN_TOKENS.split(name)) - {""}


def edits(one: str, other: str, *, most: int) -> int | None:
    """How many letters to add, drop, change or swap with their neighbour turn one word into the other.

    None if these are more than `most`; that is found soon, so that many names can be looked through.
    """
    if abs(len(one) - len(other)) > most:
        return None
    one, other = _without_what_is_alike(one, other)
    before: list[int] = []
    last = list(range(len(other) + 1))
    for row, letter in enumerate(one, start=1):
        line = [row]
        for column, wanted in enumerate(other, start=1):
            fewest = min(last[column] + 1, line[-1] + 1, last[column - 1] + (letter != wanted))
            if row > 1 and column > 1 and letter == other[column - 2] and one[row - 2] == wanted:
                fewest = min(fewest, before[column - 2] + 1)
            line.append(fewest)
        if min(line) > most and min(last) > most:
            return None
        before, last = last, line
    return last[-1] if last[-1] <= most else None


def _without_what_is_alike(one: str, other: str) -> tuple[str, str]:
    """Both words without their common beginning and their common end."""
    shorter = min(len(one), len(other))
    begin = next((at for at in range(shorter) if one[at] != other[at]), shorter)
    one, other = one[begin:], other[begin:]
    shorter -= begin
    end = next((at for at in range(shorter) if one[-1 - at] != other[-1 - at]), shorter)
    return one[: len(one) - end], other[: len(other) - end]
