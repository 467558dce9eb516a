"""Retry budgets: one row per queue holds the next free slot for a retry."""

from __future__ import annotations

from typing import Protocol

from penstock.core.limits.rates import Rate
from penstock.core.model import QueueId
from penstock.core.scheduling.retries import RetrySlot


class RetryBudgets(Protocol):
    async def take_place(self, queue_id: QueueId) -> RetrySlot | None:
        """Take the next free retry slot of a queue; None if it has no retry budget."""
        ...

    async def change(self, queue_id: QueueId, rate: Rate | None) -> None:
        """Set or remove a queue's retry budget. Retries that have a slot keep it."""
        ...
