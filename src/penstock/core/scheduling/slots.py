"""How many tasks a worker may be given: never more than the slots that it registered, of each kind.

What it runs and what it fetched ahead are counted apart. What runs is bounded by its slots. What is fetched ahead is
bounded by its slots as well, or by the buffer that it registered if that is larger. `worker-never-over-filled`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import Struct

from penstock.core.model import TaskKind, WorkerRecord


class SlotUsage(Struct, frozen=True):
    """What a worker holds of one kind of task."""

    running: int = 0
    ahead: int = 0
    """Fetched ahead of time, and not started yet."""
    untold: int = 0
    """How many of all of them end without telling their queue."""


def free_slots(worker: WorkerRecord, kind: TaskKind, held: SlotUsage, *, ahead: bool = False) -> int:
    """How many tasks more a worker may run, or fetch ahead; none if it has fewer slots than it had."""
    return max(0, worker.claims(kind) - held.ahead if ahead else worker.slots(kind) - held.running)


class PollSlots(Struct, frozen=True):
    """What the polls of one claim may take together: what each asks for, and what its worker has slots for."""

    wanted: Sequence[int]
    workers: Sequence[str]
    """Whose poll each is; a worker may have several."""
    free: Mapping[str, int]

    @property
    def total(self) -> int:
        asked: dict[str, int] = {}
        for worker_id, most in zip(self.workers, self.wanted, strict=True):
            asked[worker_id] = asked.get(worker_id, 0) + most
        return sum(min(most, self.free[worker_id]) for worker_id, most in asked.items())

    def shares(self, count: int) -> list[int]:
        """Which poll gets the n-th task: one each in order of arrival, then round again where there is room."""
        assert count <= self.total, "nobody is given more than there is room for"
        holders: list[int] = []
        left, free = list(self.wanted), dict(self.free)
        while len(holders) < count:
            for index, worker_id in enumerate(self.workers):
                if left[index] > 0 and free[worker_id] > 0 and len(holders) < count:
                    holders.append(index)
                    left[index] -= 1
                    free[worker_id] -= 1
        return holders
