"""A queue as the core sees it: lanes and clocks that are handed in, decided on, and kept."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace

from penstock.core.model import Queue, QueueId, TaskKind
from penstock.core.scheduling.dispatch import Grants, Hold, QueueSnapshot, decide, settle
from penstock.core.scheduling.fairness import Clockwork, Lane

LEVEL = 3
Slot = tuple[int, str]
QUEUE = Queue(QueueId(1), "default", "orders", TaskKind.ACTIVITY)


class QueueModel:
    """Marks lanes for placing as a store does, and records what `settle` says; the rest is the core's."""

    def __init__(self, *, virtual: int = 0) -> None:
        self.lanes: dict[Slot, Lane] = {}
        self.clocks: dict[int, Clockwork] = {LEVEL: Clockwork(LEVEL, virtual)} if virtual else {}
        self.bills: list[tuple[Slot, int]] = []
        """Each dispatch with the tag that its lane carries afterwards."""

    def enqueue(self, key: str, count: int = 1, *, weight: int | None = None, level: int = LEVEL) -> None:
        """`weight` in thousandths; None keeps the lane's."""
        lane = self.lanes.get((level, key))
        if lane is None:
            lane = Lane(level, key, 0, weight or 1000, weight or 1000, 0, place=1)
        wanted = weight or lane.wanted_milli
        place = 1 if lane.count == 0 or wanted != lane.weight_milli else lane.place
        self.lanes[level, key] = replace(lane, count=lane.count + count, wanted_milli=wanted, place=place)

    def reweight(self, key: str, weight: int, *, level: int = LEVEL) -> None:
        self.enqueue(key, 0, weight=weight, level=level)

    def snapshot(self, room: int, fits: Callable[[Slot], bool] = lambda _: True) -> QueueSnapshot:
        """What a store shows: the lanes to be placed, and the `room` least others that fit."""
        busy = [lane for lane in self.lanes.values() if lane.count]
        fresh = [replace(lane, fits=int(fits((lane.level, lane.key)))) for lane in busy if lane.place]
        others = [lane for lane in busy if not lane.place and fits((lane.level, lane.key))]
        least = sorted(others, key=lambda lane: (lane.level, lane.tag, lane.key))[:room]
        return QueueSnapshot(QUEUE, [*fresh, *least], list(self.clocks.values()))

    def claim(
        self,
        room: int,
        *,
        fits: Callable[[Slot], bool] = lambda _: True,
        gives: Callable[[Slot, int], int] = lambda _, planned: planned,
    ) -> list[Slot]:
        """Dispatch up to `room` tasks; `gives` says how many of the planned ones a lane really has."""
        snapshot = self.snapshot(room, fits)
        decision = decide(snapshot, room)
        if isinstance(decision, Hold):
            return []
        assert isinstance(decision, Grants)
        taken = {slot: gives(slot, count) for slot, count in decision.counts().items()}
        settled = settle(snapshot, {slot: count for slot, count in taken.items() if count})
        for lane in settled.lanes:
            slot = (lane.level, lane.key)
            before = self.lanes[slot]
            left = before.count - taken.get(slot, 0)
            assert left == lane.count
            self.lanes[slot] = replace(lane, count=left, place=0, fits=1)
        self.clocks |= {clock.level: clock for clock in settled.clocks}
        self.bills += [(slot, self.lanes[slot].tag) for slot in settled.order]
        return list(settled.order)

    def keys(self, room: int, batch: int | None = None) -> list[str]:
        """The keys of the next `room` dispatches, claimed in batches."""
        served: list[str] = []
        while len(served) < room:
            slots = self.claim(min(batch or room, room - len(served)))
            if not slots:
                break
            served += [key for _, key in slots]
        return served

    def served(self, room: int, batch: int | None = None) -> Counter[str]:
        return Counter(self.keys(room, batch))

    def virtual(self, level: int = LEVEL) -> int:
        return self.clocks[level].virtual if level in self.clocks else 0

    def waiting(self) -> int:
        return sum(lane.count for lane in self.lanes.values())
