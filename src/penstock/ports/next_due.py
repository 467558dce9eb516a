"""What time will bring: one look says when the first thing of each kind is due."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Protocol


class Due(StrEnum):
    """What may be due."""

    LEASE = "lease"
    """A lease that ends, and with it the wait for whoever holds it."""
    TIMER = "timer"
    TASK = "task"
    """A task that rests, and waits in line from then on."""
    ACTIVITY = "activity"
    """An activity of which a clock runs out."""
    RUN = "run"
    QUERY = "query"
    """A question whose caller or worker goes."""
    OUTBOX = "letter"
    """Due at any time."""
    STREAM = "stream"


class NextDue(Protocol):
    async def until(self, at_ms: int) -> Mapping[Due, int]:
        """When the first of each is due, for those of which something is due by then."""
        ...
