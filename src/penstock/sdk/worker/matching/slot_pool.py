"""Activity slots, shared by all queues of a worker."""

from __future__ import annotations

from collections.abc import Sized
from typing import Any

from penstock.sdk.activities.process_pool.pool import ProcessPool
from penstock.sdk.converters import DataConverter
from penstock.sdk.worker.matching.prefetcher import Prefetcher
from penstock.sdk.worker.matching.rate_limiter import RateLimiter
from penstock.sdk.worker.matching.round_robin_poller import PolledQueue, RoundRobinPoller
from penstock.sdk.worker.matching.slots import Slots
from penstock.sdk.worker.options import WorkerOptions

Json = dict[str, Any]


class SlotPool:
    """The slots, processes and prefetched tasks of a worker, for any number of queues."""

    def __init__(
        self, options: WorkerOptions, converter: DataConverter, *, runs_activities: bool, queues: int = 1
    ) -> None:
        self._options, self._converter, self._queues = options, converter, queues
        claiming = options.claiming
        self.activity_slots = options.max_concurrent_activity_tasks if runs_activities else 0
        self.slots = Slots(self._max_held)
        self.rate_limiter = RateLimiter(options.max_activities_per_second)
        self._claims: Slots | None = None
        self.prefetcher: Prefetcher | None = None
        if claiming.lease_ms is not None and self.activity_slots:
            self._claims = Slots(self._max_prefetched)
            self.prefetcher = Prefetcher(
                self.activity_slots,
                self._claims,
                lease_s=claiming.lease_ms / 1000,
                age_s=claiming.renew_age_ms / 1000,
                spare=self._spare,
            )
        self.uses_round_robin = queues > 1 or not claiming.is_plain
        """Whether the queues are polled in turn for the same slots."""
        self._batch = claiming.batch_max
        if claiming.most and self.prefetcher is None:
            self._batch = min(self._batch or claiming.most, claiming.most)
        self._processes: ProcessPool | None = None
        self._polled_queues: list[PolledQueue] = []
        self._task_runners: list[Sized] = []

    @property
    def _max_held(self) -> int:
        return self.activity_slots + self._options.claiming.prefetch if self.activity_slots else 0

    @property
    def _max_prefetched(self) -> int:
        return min(self._max_held, self._options.claiming.max_prefetched(self.activity_slots))

    @property
    def _spare(self) -> int | None:
        return min(self._options.claiming.prefetch, self._max_prefetched - 1) if self._queues > 1 else None

    def resize(self, options: WorkerOptions) -> None:
        """Change the numbers of slots and the rate. A kind without slots stays without."""
        self._options = options
        self.rate_limiter.change(options.max_activities_per_second)
        if not self.activity_slots:
            return
        self.activity_slots = options.max_concurrent_activity_tasks
        self.slots.resize(self._max_held)
        if self._claims is not None and self.prefetcher is not None:
            self._claims.resize(self._max_prefetched)
            self.prefetcher.resize(self.activity_slots, self._spare)
        if self._processes is not None:
            self._processes.resize(self._max_processes)

    @property
    def _max_processes(self) -> int:
        local = self._options.max_concurrent_local_activities
        return self._options.process_slots or max(1, self.activity_slots + local)

    @property
    def available(self) -> int:
        return max(0, self.activity_slots - sum(map(len, self._task_runners)))

    @property
    def processes(self) -> ProcessPool:
        """The process pool, created on first use."""
        if self._processes is None:
            options = self._options
            self._processes = ProcessPool(
                self._max_processes,
                self._converter,
                method=options.process_start_method,
                recycle_after=options.process_recycle_after,
                recycle_over_bytes=options.process_recycle_over_bytes,
            )
        return self._processes

    def join(self, polled_queue: PolledQueue, task_runner: Sized) -> None:
        """Add a queue. Queues are polled in the order in which they join."""
        self._polled_queues.append(polled_queue)
        self._task_runners.append(task_runner)

    def shared_poller(self, polled_queue: PolledQueue) -> RoundRobinPoller | None:
        """Return the poller of all queues, for the first queue to run; None for the others."""
        if not self.uses_round_robin or self._polled_queues[0] is not polled_queue:
            return None
        return RoundRobinPoller(
            self._polled_queues,
            self.slots,
            batch_max=self._batch,
            claims=self._claims,
            rate_limiter=self.rate_limiter,
            capacity_freed=None if self.prefetcher is None else self.prefetcher.capacity_freed,
        )
