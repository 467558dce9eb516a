"""Histograms of waits: quantiles of bounded error, which may be added up."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from penstock.core.series.waits import GROWTH, KeyWaits, added, bucket_of, most_waits, quantile_ms

MONTH_MS = 31 * 86_400_000
waits = st.lists(st.integers(0, MONTH_MS), min_size=1, max_size=60)


def _of(values: list[int], key: str = "acme") -> KeyWaits:
    counts: dict[int, int] = {}
    for each in values:
        counts[bucket_of(each)] = counts.get(bucket_of(each), 0) + 1
    return most_waits({key: counts}, 1)[0]


@given(waits, st.sampled_from([0.5, 0.9, 0.99, 1.0]))
def test_a_quantile_is_within_a_tenth_of_the_exact_one(values: list[int], share: float) -> None:
    exact = sorted(values)[max(0, math.ceil(share * len(values)) - 1)]
    found = quantile_ms(_of(values).buckets, share)
    assert found == 0 if exact == 0 else exact / GROWTH**0.51 <= found <= exact * GROWTH**0.51


@given(waits, waits)
def test_two_histograms_together_are_that_of_all_waits(some: list[int], others: list[int]) -> None:
    assert added([_of(some)], [_of(others)]) == (_of(some + others),)


def test_the_keys_with_the_most_waits_come_first() -> None:
    assert [each.key for each in added([_of([1], "b"), _of([5, 9], "a")])] == ["a", "b"]


def test_nothing_has_no_quantile() -> None:
    assert quantile_ms((), 0.5) == 0
