"""Retry budgets in SQL: one row per queue that has one."""

from __future__ import annotations

from penstock.core.limits.rates import NANO_PER_MS, Rate
from penstock.core.model import QueueId
from penstock.core.scheduling.retries import RetrySlot
from penstock.stores.sql.session import Repository


class SqlRetryBudgets(Repository):
    async def take_place(self, queue_id: QueueId) -> RetrySlot | None:
        rows = await self._session.fetch("take_retry_place", queue_id, self._now_ns)
        return RetrySlot(*rows[0][1:]) if rows else None

    async def change(self, queue_id: QueueId, rate: Rate | None) -> None:
        if rate is None:
            await self._session.fetch("drop_retry_budget", queue_id)
        else:
            await self._session.fetch("set_retry_budget", queue_id, rate.interval_ns, self._now_ns)
        await self._session.fetch("give_back_retry_places", queue_id)

    @property
    def _now_ns(self) -> int:
        return self._session.now_ms * NANO_PER_MS
