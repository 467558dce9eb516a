"""Shell-style patterns of routing keys: what fits one, and keys that fit two at once."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable, Iterator
from fnmatch import translate

_TOKEN = re.compile(r"\*+|\?|\[!?\]?[^\]]*\]|.", re.DOTALL)
_FILLERS = ("", "x", "0")
_STATES_MAX = 1_000


def rule_of(pattern: str) -> re.Pattern[str]:
    """The compiled pattern for a whole key."""
    return re.compile(translate(pattern))


def keys_of_both(one: str, other: str) -> Iterator[str]:
    """Examples of keys that fit both patterns: the shortest, and some with letters that neither names."""
    reported: set[str] = set()
    for filler in _FILLERS:
        if filler and "*" not in one:
            return
        key = _shortest(one.replace("*", f"*{filler}*") if filler else one, other)
        if key is not None and key not in reported:
            reported.add(key)
            yield key


def _shortest(one: str, other: str) -> str | None:
    """The shortest key for both, by going through both patterns side by side."""
    left, right = _TOKEN.findall(one), _TOKEN.findall(other)
    waiting = deque([(0, 0, "")])
    seen: set[tuple[int, int]] = set()
    while waiting and len(seen) < _STATES_MAX:
        here, there, key = waiting.popleft()
        if (here, there) in seen:
            continue
        seen.add((here, there))
        if here == len(left) and there == len(right):
            return key
        waiting.extendleft(_without_a_letter(left, right, here, there, key))
        if here == len(left) or there == len(right):
            continue
        for letter in _letters(left[here], right[there]):
            to_here, to_there = _after(left[here], here, letter), _after(right[there], there, letter)
            if to_here is not None and to_there is not None:
                waiting.append((to_here, to_there, key + letter))
    return None


def _letters(one: str, other: str) -> Iterable[str]:
    """Candidate letters that both tokens may match."""
    if one[0] == other[0] == "*":
        return ()
    for token in (one, other):
        if len(token) == 1 and token not in "*?":
            return token
    return sorted({"x", "0", *one[1:], *other[1:]})


def _without_a_letter(
    left: list[str], right: list[str], here: int, there: int, key: str
) -> Iterator[tuple[int, int, str]]:
    """Positions reachable without a letter: a star matches the empty text."""
    if here < len(left) and left[here][0] == "*":
        yield here + 1, there, key
    if there < len(right) and right[there][0] == "*":
        yield here, there + 1, key


def _after(token: str, at: int, letter: str) -> int | None:
    """The position of a pattern after a letter; None if it does not match."""
    if token[0] == "*":
        return at
    is_taken = token in ("?", letter) or (len(token) > 1 and rule_of(token).match(letter) is not None)
    return at + 1 if is_taken else None
