"""Worker slots: how many tasks of each kind a worker may be given.

What it runs and what it prefetched are counted apart. What runs is bounded by its slots. What is prefetched is bounded
by its slots as well, or by the buffer that it registered if that is larger (`prefetch.py`). `worker-never-over-filled`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import Struct

from penstock.core.model import TaskKind, WorkerRecord

RETRY_MS = 50
"""How soon to look again at a full worker one of whose leases is being reported on right now."""


class SlotUsage(Struct, frozen=True):
    """How many leases of one kind of task a worker holds."""

    running: int = 0
    prefetched: int = 0
    """Leased ahead of time and not started."""
    unannounced: int = 0
    """How many of all of them will end without a notification to their queue."""


NO_LOAD = SlotUsage()


def free_slots(worker: WorkerRecord, kind: TaskKind, load: SlotUsage) -> int:
    """How many tasks more a worker may run; none if it has fewer slots now than it had."""
    return max(0, worker.slots(kind) - load.running)


def retry_in_ms(free: int, load: SlotUsage) -> int | None:
    """When to look again at a worker that was full: 0 at once, None when the end of a lease is announced."""
    if free:
        return 0
    return RETRY_MS if load.unannounced else None


class PollSlots(Struct, frozen=True):
    """How many tasks the polls of one claim may take together: what each asks for, within its worker's slots."""

    wanted: Sequence[int]
    workers: Sequence[str]
    """The worker of each poll; a worker may have several polls."""
    free: Mapping[str, int]

    @property
    def total(self) -> int:
        asked: dict[str, int] = {}
        for worker_id, most in zip(self.workers, self.wanted, strict=True):
            asked[worker_id] = asked.get(worker_id, 0) + most
        return sum(min(most, self.free[worker_id]) for worker_id, most in asked.items())

    def shares(self, count: int) -> list[int]:
        """Which poll gets the n-th task: one each in order of arrival, then round again where there is room."""
        assert count <= self.total, "no worker gets more than it has room for"
        holders: list[int] = []
        left, free = list(self.wanted), dict(self.free)
        while len(holders) < count:
            for index, worker_id in enumerate(self.workers):
                if left[index] > 0 and free[worker_id] > 0 and len(holders) < count:
                    holders.append(index)
                    left[index] -= 1
                    free[worker_id] -= 1
        return holders
