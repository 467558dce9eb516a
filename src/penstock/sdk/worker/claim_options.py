"""How a worker claims activity tasks: batch size, prefetch, and the lease of prefetched tasks."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.sdk.app_config.app import LEASE_LEAST_MS, LEASE_MOST_MS, PREFETCH_MOST, RENEW_AGE_MS


@dataclass(frozen=True, slots=True, kw_only=True)
class Claiming:
    """Options of `Worker(claiming=...)`. Zero means no limit of its own."""

    batch_max: int = 0
    """Maximum number of tasks of one queue that one poll returns."""
    most: int = 0
    """Maximum number of prefetched tasks that wait for a slot."""
    prefetch: int = 0
    """Number of tasks to claim beyond those that can run now."""
    lease_ms: int | None = None
    """Lease of a prefetched task in milliseconds, until it is renewed."""
    renew_age_ms: int = RENEW_AGE_MS
    """A prefetched task that has not started after this time is handed back."""

    def __post_init__(self) -> None:
        for name in ("batch_max", "most", "prefetch"):
            _check_integer(name, getattr(self, name), 0, PREFETCH_MOST)
        _check_integer("renew_age_ms", self.renew_age_ms, 1, 2**31)
        if self.lease_ms is not None:
            _check_integer("lease_ms", self.lease_ms, LEASE_LEAST_MS, LEASE_MOST_MS)
        if bool(self.prefetch) != (self.lease_ms is not None):
            raise ValueError("prefetch and lease_ms belong together: pass both, or neither")

    @property
    def is_plain(self) -> bool:
        """Whether every option has its default: no batch limit and no prefetch."""
        return self == Claiming()

    def max_prefetched(self, slots: int) -> int:
        """Return how many prefetched tasks a worker with this many slots may hold."""
        return self.most or slots + self.prefetch


def _check_integer(name: str, value: object, minimum: int, maximum: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{name} of a Claiming is a whole number, not {type(value).__name__}")
    if not minimum <= value <= maximum:
        raise ValueError(f"{name} of a Claiming is {minimum} to {maximum}, not {value}")
