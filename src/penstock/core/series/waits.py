"""How long tasks waited before they started, as histograms of fixed relative error that can be added up.

A bucket holds the waits of up to `GROWTH` times its lower bound, as in HDR histograms and DDSketch: so a quantile is
at most 12% too long or too short, whatever its size, and a hundred and twenty buckets reach from a millisecond to a
month. Histograms of several steps and servers are added bucket by bucket, which quantiles could not be.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct

GROWTH = 1.2
"""The upper bound of a bucket by its lower one."""
_LOG = math.log(GROWTH)


class KeyWaits(Struct, frozen=True, array_like=True):
    """The waits of the tasks of a key that started."""

    key: str
    buckets: tuple[tuple[int, int], ...]
    """Bucket and number of waits, by bucket; empty ones are left out."""

    @property
    def count(self) -> int:
        return sum(count for _, count in self.buckets)


def bucket_of(wait_ms: int) -> int:
    """The bucket of a wait; 0 is less than a millisecond."""
    return 0 if wait_ms < 1 else 1 + int(math.log(wait_ms) / _LOG + 1e-9)


def middle_ms(bucket: int) -> float:
    """The wait that stands for all of a bucket: the geometric mean of its bounds."""
    return 0.0 if bucket == 0 else GROWTH ** (bucket - 0.5)


def quantile_ms(buckets: Iterable[tuple[int, int]], share: float) -> float:
    """The wait that at least a share of all did not exceed; 0 for none.

    Args:
        buckets: Bucket and number of waits, by bucket.
        share: Between 0 and 1; 0.5 is the median.
    """
    ordered = sorted(buckets)
    wanted = share * sum(count for _, count in ordered)
    seen = 0
    for bucket, count in ordered:
        seen += count
        if seen >= wanted:
            return middle_ms(bucket)
    return 0.0


def added(*waits: Sequence[KeyWaits]) -> tuple[KeyWaits, ...]:
    """Several histograms of each key as one; the keys with the most waits first."""
    found: dict[str, dict[int, int]] = {}
    for each in (each for some in waits for each in some):
        counts = found.setdefault(each.key, {})
        for bucket, count in each.buckets:
            counts[bucket] = counts.get(bucket, 0) + count
    return most_waits(found, len(found))


def most_waits(counts: Mapping[str, Mapping[int, int]], most: int) -> tuple[KeyWaits, ...]:
    """Histograms by key as values, those with the most waits.

    Args:
        counts: Of each key, the number of waits by bucket.
        most: How many keys are kept.
    """
    rows = [KeyWaits(key, tuple(sorted(buckets.items()))) for key, buckets in counts.items()]
    return tuple(sorted(rows, key=lambda each: (-each.count, each.key))[:most])
