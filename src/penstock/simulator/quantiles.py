"""Distributions given by their quantiles, and draws that depend on nothing but their labels."""

from __future__ import annotations

from bisect import bisect_right
from hashlib import blake2b
from itertools import pairwise

from msgspec import Struct

_SCALE = float(1 << 64)


def uniform(seed: int, *labels: object) -> float:
    """A number in [0, 1) that is the same for the same seed and labels, on every machine."""
    text = "\x1f".join(map(str, (seed, *labels)))
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest()) / _SCALE


class Quantiles(Struct, frozen=True):
    """A distribution as a piecewise linear quantile function.

    Invariant: probabilities rise from 0 to 1, and values do not fall.
    """

    probabilities: tuple[float, ...]
    values: tuple[float, ...]

    @staticmethod
    def constant(value: float) -> Quantiles:
        return Quantiles((0.0, 1.0), (value, value))

    def at(self, probability: float) -> float:
        """The value below which this share of all values lies."""
        right = min(bisect_right(self.probabilities, probability), len(self.values) - 1)
        low, high = self.probabilities[right - 1], self.probabilities[right]
        share = (probability - low) / (high - low) if high > low else 1.0
        return self.values[right - 1] + share * (self.values[right] - self.values[right - 1])

    @property
    def mean(self) -> float:
        pairs = list(zip(self.probabilities, self.values, strict=True))
        return sum((later - earlier) * (low + high) / 2 for (earlier, low), (later, high) in pairwise(pairs))
