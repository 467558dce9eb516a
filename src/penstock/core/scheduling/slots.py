"""Worker slots: how many tasks of each kind a worker may be given.

Running and prefetched tasks are counted separately. Running tasks are bounded by the worker's slots; prefetched ones by
its slots, too, or by its buffer if that is larger. `worker-never-over-filled`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import Struct

from penstock.core.model import TaskKind, WorkerRecord


class SlotUsage(Struct, frozen=True):
    """The tasks of one kind that a worker holds."""

    running: int = 0
    ahead: int = 0
    """Prefetched and not started."""
    untold: int = 0
    """How many of them end without notifying their queue."""


def free_slots(worker: WorkerRecord, kind: TaskKind, held: SlotUsage, *, ahead: bool = False) -> int:
    """How many more tasks a worker may run, or prefetch; 0 if it holds more than it has slots for."""
    return max(0, worker.claims(kind) - held.ahead if ahead else worker.slots(kind) - held.running)


class PollSlots(Struct, frozen=True):
    """The capacity of the polls of one claim: what each requests, within the free slots of its worker."""

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
        """The poll that gets the n-th task: round robin in order of arrival."""
        assert count <= self.total, "more tasks than the polls have capacity for"
        holders: list[int] = []
        left, free = list(self.wanted), dict(self.free)
        while len(holders) < count:
            for index, worker_id in enumerate(self.workers):
                if left[index] > 0 and free[worker_id] > 0 and len(holders) < count:
                    holders.append(index)
                    left[index] -= 1
                    free[worker_id] -= 1
        return holders
