"""How well forecasts of starts held: each is judged by what happened, and their coverage is the share that held.

A forecast says that a task starts between two instants, if the load stays as it is. It *held* if the task started in
that range, was *early* if it started before, and *late* if it started after it or still waits when the range is over.
A task that went away without a start (cancelled, or started where nobody saw it) judges nothing. The instants are
given whole seconds of grace, because that is how finely people read them.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum

from msgspec import Struct

GRACE_MS = 1_000
"""How far outside its range a start may lie and still count as in it."""


class ForecastOutcome(StrEnum):
    """What became of a forecast."""

    HELD = "held"
    EARLY = "early"
    LATE = "late"


class StartForecast(Struct, frozen=True):
    """A task, and the range in which it was expected to start."""

    task_id: str
    made_at_ms: int
    from_ms: int
    to_ms: int


class ForecastCoverage(Struct, frozen=True):
    """How many of the judged forecasts held."""

    held: int = 0
    early: int = 0
    late: int = 0

    @property
    def judged(self) -> int:
        return self.held + self.early + self.late

    @property
    def share(self) -> float | None:
        """The share that held; None before the first one is judged."""
        return self.held / self.judged if self.judged else None


def outcome(forecast: StartForecast, started_at_ms: int | None, now_ms: int) -> ForecastOutcome | None:
    """What became of a forecast; None while that is open.

    Args:
        forecast: The forecast.
        started_at_ms: When its task started; None: it still waits.
        now_ms: The present time.
    """
    seen_ms = now_ms if started_at_ms is None else started_at_ms
    if seen_ms > forecast.to_ms + GRACE_MS:
        return ForecastOutcome.LATE
    if started_at_ms is None:
        return None
    return ForecastOutcome.EARLY if started_at_ms < forecast.from_ms - GRACE_MS else ForecastOutcome.HELD


def coverage(outcomes: Iterable[ForecastOutcome]) -> ForecastCoverage:
    """The coverage of judged forecasts."""
    found = list(outcomes)
    return ForecastCoverage(
        found.count(ForecastOutcome.HELD),
        found.count(ForecastOutcome.EARLY),
        found.count(ForecastOutcome.LATE),
    )
