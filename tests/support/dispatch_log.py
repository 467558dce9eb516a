"""What was handed out: of whom, in which order, and when by the servers' clock."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import datetime
from fractions import Fraction
from itertools import accumulate
from math import floor
from typing import Any

Json = dict[str, Any]


def standing(key: str, count: int = 1, **fields: Any) -> list[Json]:
    """As many tasks of one key."""
    return [{"fairness_key": key} | fields for _ in range(count)]


def keys(tasks: Iterable[Json]) -> list[str]:
    """Whose task was handed out, one after the other."""
    return [task["fairness_key"] or "" for task in tasks]


def counts(tasks: Iterable[Json]) -> Counter[str]:
    """How many each key was given."""
    return Counter(keys(tasks))


def names(tasks: Iterable[Json]) -> list[str]:
    return [str(task["workflow_id"]) for task in tasks]


def of(key: str, tasks: Iterable[Json]) -> list[Json]:
    return [task for task in tasks if (task["fairness_key"] or "") == key]


def positions(key: str, tasks: Iterable[Json]) -> list[int]:
    """After how many others each task of the key came."""
    return [place for place, each in enumerate(keys(tasks)) if each == key]


def furthest_from_share(order: Sequence[str], key: str, share: float) -> float:
    """How far a key was ahead of or behind its share, at worst, over all beginnings of the order."""
    given = accumulate(each == key for each in order)
    return max(abs(got - share * number) for number, got in enumerate(given, 1))


def leased_at_ms(task: Json) -> int:
    """When it was handed out, but for the length of a lease, which is the same for all."""
    return round(datetime.fromisoformat(task["lease_expires_at"]).timestamp() * 1000)


def most_over_rate(tasks: Iterable[Json], rate: float, burst: int) -> float:
    """How far the fullest of all intervals is over `burst + rate * time`; not above 0 where a rate is kept."""
    moments = sorted(leased_at_ms(task) for task in tasks)
    return max(
        (last - first + 1) - burst - rate * (moments[last] - moments[first]) / 1000
        for first in range(len(moments))
        for last in range(first, len(moments))
    )


def found_by_rate(claims: Sequence[Sequence[Json]], key: str | None, rate: int, burst: int) -> list[int]:
    """How many each claim must find at its moment, of a key or of all: what a bucket of this rate holds then."""
    held, at_ms, found = Fraction(burst), leased_at_ms(claims[0][0]), []
    for claim in claims:
        now_ms = leased_at_ms(claim[0])
        held = min(Fraction(burst), held + Fraction(rate * (now_ms - at_ms), 1000))
        found.append(floor(held))
        held, at_ms = held - (len(claim) if key is None else counts(claim)[key]), now_ms
    return found
