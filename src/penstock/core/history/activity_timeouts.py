"""Effective activity timeouts: each is bounded by the enclosing timeouts and by the run's."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from penstock.core.model import ActivityTimeouts, Run
from penstock.core.timestamps import earliest

_NAMES = (
    ("start_to_close_timeout_ms", "start_to_close_ms"),
    ("schedule_to_start_timeout_ms", "schedule_to_start_ms"),
    ("schedule_to_close_timeout_ms", "schedule_to_close_ms"),
    ("heartbeat_timeout_ms", "heartbeat_ms"),
)


def run_budget_ms(run: Run) -> int | None:
    """The longest time one run may take; None: unlimited."""
    budget_s = earliest(run.run_timeout_s, run.execution_timeout_s)
    return None if budget_s is None else budget_s * 1000


def effective_timeouts(asked: ActivityTimeouts, budget_ms: int | None) -> ActivityTimeouts:
    """The timeouts in force for the requested ones.

    Schedule-to-close is at most the run's budget, and is that by default. Schedule-to-start and start-to-close are at
    most schedule-to-close; the heartbeat timeout is at most start-to-close.
    """
    whole = earliest(asked.schedule_to_close_ms, budget_ms)
    if whole is None and asked.heartbeat_ms is None:
        return asked
    attempt = _within(asked.start_to_close_ms, whole)
    return replace(
        asked,
        schedule_to_close_ms=whole,
        start_to_close_ms=attempt,
        schedule_to_start_ms=_within(asked.schedule_to_start_ms, whole),
        heartbeat_ms=_within(asked.heartbeat_ms, earliest(attempt, whole)),
    )


def timeout_fields(asked: ActivityTimeouts, effective: ActivityTimeouts) -> dict[str, Any]:
    """Event fields for shortened timeouts: the requested values. The effective ones are in the retry policy."""
    pairs = [(name, getattr(asked, own), getattr(effective, own)) for name, own in _NAMES]
    shorter = {name: was for name, was, now in pairs if was is not None and was != now}
    return {"asked_timeouts": shorter} if shorter else {}


def _within(clock_ms: int | None, around_ms: int | None) -> int | None:
    return None if clock_ms is None else earliest(clock_ms, around_ms)
