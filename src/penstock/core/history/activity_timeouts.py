"""The clocks of an activity when it is scheduled: each is cut to those around it, and to the budget of its run."""

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
    """The longest that one run may take; None: as long as it likes."""
    budget_s = earliest(run.run_timeout_s, run.execution_timeout_s)
    return None if budget_s is None else budget_s * 1000


def effective_timeouts(asked: ActivityTimeouts, budget_ms: int | None) -> ActivityTimeouts:
    """What is in force of the clocks that were asked for.

    All of them end with the run at the latest. An attempt and the wait for it end with the whole, which is the run's
    budget where nothing else is said; silence is allowed for no longer than an attempt.
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
    """What the event says of clocks that were cut: what was asked for. What is in force stands in its policy."""
    pairs = [(name, getattr(asked, own), getattr(effective, own)) for name, own in _NAMES]
    shorter = {name: was for name, was, now in pairs if was is not None and was != now}
    return {"asked_timeouts": shorter} if shorter else {}


def _within(clock_ms: int | None, around_ms: int | None) -> int | None:
    return None if clock_ms is None else earliest(clock_ms, around_ms)
