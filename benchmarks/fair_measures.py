"""What an order of dispatches says about fairness: pure arithmetic on keys."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence


def share_error(order: Sequence[str], weights: Mapping[str, float]) -> float:
    """The largest |served - share x N| of any key over all prefixes of the order, in tasks.

    A key is furthest behind just before it is served or at the end, and furthest ahead just after it was served.
    """
    total = sum(weights.values())
    served: Counter[str] = Counter()
    worst = 0.0
    for place, key in enumerate(order):
        share = weights[key] / total
        behind = share * place - served[key]
        served[key] += 1
        worst = max(worst, behind, served[key] - share * (place + 1))
    at_end = (weight / total * len(order) - served[key] for key, weight in weights.items())
    return max(worst, *at_end)


def unserved_percent(order: Iterable[str], keys: Sequence[str]) -> float:
    """How many of the keys were not served at all."""
    seen = set(order)
    return 100 * sum(key not in seen for key in keys) / len(keys)


def first_places(order: Iterable[str], keys: Iterable[str]) -> dict[str, int]:
    """How many dispatches came before each key's first; keys that were not served are left out."""
    wanted = set(keys)
    places: dict[str, int] = {}
    for place, key in enumerate(order):
        if key in wanted and key not in places:
            places[key] = place
    return places


def middle_and_worst(places: Iterable[int]) -> dict[str, float]:
    given = list(places)
    return {"median": statistics.median(given), "worst": max(given)}
