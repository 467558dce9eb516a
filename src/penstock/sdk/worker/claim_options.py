"""How a worker claims activity tasks: how many at a time, how many ahead, and for how long."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.sdk.app_config.app import LEASE_LEAST_MS, LEASE_MOST_MS, PREFETCH_MOST, RENEW_AGE_MS


@dataclass(frozen=True, slots=True, kw_only=True)
class Claiming:
    """Zero for a number means: as many as fit."""

    batch_max: int = 0
    """Most tasks of one queue that one request brings."""
    most: int = 0
    """Most tasks that are held and do not run yet."""
    prefetch: int = 0
    """Tasks that are claimed beyond those that can run."""
    lease_ms: int | None = None
    """How long a claim ahead lasts unless it is renewed."""
    renew_age_ms: int = RENEW_AGE_MS
    """A claim that is older and did not start is handed back."""

    def __post_init__(self) -> None:
        for name in ("batch_max", "most", "prefetch"):
            _whole(name, getattr(self, name), 0, PREFETCH_MOST)
        _whole("renew_age_ms", self.renew_age_ms, 1, 2**31)
        if self.lease_ms is not None:
            _whole("lease_ms", self.lease_ms, LEASE_LEAST_MS, LEASE_MOST_MS)
        if bool(self.prefetch) != (self.lease_ms is not None):
            raise ValueError("prefetch and lease_ms belong together: give both, or neither")

    @property
    def is_plain(self) -> bool:
        """Whether nothing is asked for."""
        return self == Claiming()

    def most_with(self, places: int) -> int:
        """How many tasks may be held that do not run yet."""
        return self.most or places + self.prefetch


def _whole(name: str, value: object, least: int, most: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{name} of a Claiming is a whole number, not {type(value).__name__}")
    if not least <= value <= most:
        raise ValueError(f"{name} of a Claiming is {least} to {most}, not {value}")
