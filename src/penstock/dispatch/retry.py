"""How often and how soon something is tried again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import lru_cache
from math import ceil, isfinite
from typing import Any

from penstock.schema.kinds import COUNT_MAX

FOR_EVER = COUNT_MAX
"""The largest number of attempts that the wire format holds."""
PAUSES_MAX = 100
"""So many pauses are sent; the last one repeats."""
PAUSE_MAX = timedelta(days=365)
"""No pause on the wire is longer."""


_SHORTEST, _LONGEST = timedelta(milliseconds=1), timedelta(days=3650)
"""Bounds of an interval on Temporal, where an unset maximum is 100 times the first."""


class _TracedPolicy:
    """A hidden field for the resolution, which equality, `repr` and serialization ignore."""

    __slots__ = ("resolution",)
    resolution: object


@dataclass(frozen=True, slots=True)
class RetryPolicy(_TracedPolicy):
    """Pauses grow from `initial_interval` by `backoff_coefficient` up to `maximum_interval` (100 times the first)."""

    initial_interval: timedelta = timedelta(seconds=1)
    backoff_coefficient: float = 2.0
    maximum_interval: timedelta | None = None
    maximum_attempts: int = 0
    """0: for ever."""
    non_retryable_error_types: Sequence[str] | None = None

    def __post_init__(self) -> None:
        if self.initial_interval < timedelta(0):
            raise ValueError("initial_interval must not be negative")
        if not isfinite(self.backoff_coefficient) or self.backoff_coefficient < 1:
            raise ValueError(f"backoff_coefficient must be at least 1, not {self.backoff_coefficient}")
        is_retried = self.maximum_attempts != 1
        if is_retried and self.maximum_interval is not None and self.maximum_interval < self.initial_interval:
            raise ValueError("maximum_interval must not be shorter than initial_interval")
        if isinstance(self.maximum_attempts, bool) or not 0 <= self.maximum_attempts <= FOR_EVER:
            raise ValueError(f"maximum_attempts must be 0 (for ever) or more, not {self.maximum_attempts}")

    def marked(self, resolution: object) -> RetryPolicy:
        """A copy that carries its resolution."""
        policy = replace(self)
        object.__setattr__(policy, "resolution", resolution)
        return policy

    def on_the_wire(self) -> dict[str, Any]:
        pauses = self.pauses_ms()
        return {
            "max_attempts": self.maximum_attempts or FOR_EVER,
            "backoff_ms": pauses,
            "backoff_seconds": [ceil(pause / 1000) for pause in pauses],
            "non_retryable_error_types": list(self.non_retryable_error_types or ()),
        }

    def apply_to_proto(self, proto: Any) -> None:
        """Fill Temporal's message, so that `to_execute_kwargs()` can be splatted into temporalio's `execute_activity`.

        Args:
            proto: `temporalio.api.common.v1.RetryPolicy`.
        """
        longest = self.maximum_interval or self.initial_interval * 100
        proto.initial_interval.FromTimedelta(max(self.initial_interval, _SHORTEST))
        proto.backoff_coefficient = float(self.backoff_coefficient)
        proto.maximum_interval.FromTimedelta(max(min(longest, _LONGEST), _SHORTEST))
        proto.maximum_attempts = self.maximum_attempts
        proto.non_retryable_error_types.extend(self.non_retryable_error_types or ())

    def pauses_ms(self) -> list[int]:
        """The backoff intervals, up to the point where they stop growing."""
        longest = self.maximum_interval or self.initial_interval * 100
        return list(
            _pauses_ms(self.initial_interval, self.backoff_coefficient, longest, self.maximum_attempts)
        )


@lru_cache(maxsize=256)
def _pauses_ms(initial: timedelta, coefficient: float, longest: timedelta, attempts: int) -> tuple[int, ...]:
    """Worked out once: most activities of a program share a policy or two."""
    pauses: list[int] = []
    pause = initial / timedelta(milliseconds=1)
    most = min(longest, PAUSE_MAX) / timedelta(milliseconds=1)
    while len(pauses) < min(PAUSES_MAX, (attempts or FOR_EVER) - 1):
        pauses.append(_whole(min(pause, most)))
        if pause >= most or coefficient == 1:
            break
        pause *= coefficient
    return tuple(pauses)


def _whole(pause_ms: float) -> int:
    """Round up, so that no interval becomes 0 and an unlimited retry never spins."""
    return max(1, round(pause_ms)) if pause_ms else 0
