"""When the next timed event of each kind is due, in one query."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Protocol


class Due(StrEnum):
    """Kinds of timed events."""

    LEASE = "lease"
    """A lease expires."""
    TIMER = "timer"
    TASK = "task"
    """A delayed task becomes ready."""
    ACTIVITY = "activity"
    """A timeout of an activity."""
    RUN = "run"
    QUERY = "query"
    """A query's deadline, or the expiry of its lease."""
    OUTBOX = "outbox"
    """An undelivered message; always due."""
    STREAM = "stream"
    SCHEDULE = "schedule"
    CHANGE_SET = "change_set"
    """A change set is to be applied, or its time is over."""
    RUN_PLACE = "run_place"
    """A run waits to start; always due."""


class NextDue(Protocol):
    async def until(self, at_ms: int) -> Mapping[Due, int]:
        """When the first event of each kind is due, for kinds with an event due by `at_ms`."""
        ...
