"""Worker slots: how many tasks of each kind a worker may be given.

What it runs and what it prefetched are counted apart. What runs is bounded by its slots. What is prefetched is bounded
by its slots as well, or by the buffer that it registered if that is larger (`prefetch.py`). `worker-never-over-filled`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import Struct

from penstock.core.model import TaskKind, WorkerRecord
from penstock.core.scheduling.polls import Poll

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


def free_slots(worker: WorkerRecord, kind: TaskKind, load: SlotUsage, *, prefetch: bool = False) -> int:
    """How many tasks more a worker may run, or prefetch; none if it has fewer slots now than it had."""
    if prefetch:
        return max(0, worker.claims(kind) - load.prefetched)
    return max(0, worker.slots(kind) - load.running)


def retry_in_ms(free: int, load: SlotUsage) -> int | None:
    """When to look again at a worker that was full: 0 at once, None when the end of a lease is announced."""
    if free:
        return 0
    return RETRY_MS if load.unannounced else None


def total_room(polls: Sequence[Poll], free: Mapping[str, int]) -> int:
    """How many tasks the polls may take together: what each asks for, within the free slots of its worker."""
    asked: dict[str, int] = {}
    for poll in polls:
        asked[poll.worker_id] = asked.get(poll.worker_id, 0) + poll.tasks_max
    return sum(min(most, free[worker_id]) for worker_id, most in asked.items())


def round_robin(polls: Sequence[Poll], free: Mapping[str, int], count: int) -> list[int]:
    """The index of the poll that gets the n-th of `count` tasks: one for each poll in turn, in order of arrival."""
    assert count <= total_room(polls, free), "more tasks than the polls have capacity for"
    chosen: list[int] = []
    asked, left = [poll.tasks_max for poll in polls], dict(free)
    while len(chosen) < count:
        for index, poll in enumerate(polls):
            if asked[index] > 0 and left[poll.worker_id] > 0 and len(chosen) < count:
                chosen.append(index)
                asked[index] -= 1
                left[poll.worker_id] -= 1
    return chosen
