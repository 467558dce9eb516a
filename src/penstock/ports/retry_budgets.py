"""The retry budgets of lines: one row per line says which place among its retries is free next."""

from __future__ import annotations

from typing import Protocol

from penstock.core.limits.rates import Rate
from penstock.core.model import QueueId
from penstock.core.scheduling.retries import RetrySlot


class RetryBudgets(Protocol):
    async def take_place(self, queue_id: QueueId) -> RetrySlot | None:
        """The next free place among the retries of a line, which nobody else gets; None: it has no budget."""
        ...

    async def change(self, queue_id: QueueId, rate: Rate | None) -> None:
        """Give a line another budget, or none. Retries that have a place already are due as they were before."""
        ...
