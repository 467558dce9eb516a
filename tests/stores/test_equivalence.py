"""Every store gives tasks away in the same order: the memory store is the model."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from penstock.core.model import Queue, Task, TaskState
from penstock.core.scheduling.dispatch import Fit
from penstock.core.scheduling.fairness import Clockwork, Lane
from penstock.ports.store import Store
from penstock.stores.memory import MemoryStore
from penstock.wakeups.local import LocalWakeups
from tests.stores.working import ANYTHING, a_queue, claim, enqueue, look, record
from tests.support.builders import a_task, released
from tests.support.clock import ManualClock

KEYS = ("", "a", "B", "ä", "z" * 64, "tenant-1", "tenant-10", "tenant-2")
TYPES = ("Charge", "Ship", "Pack")
BUILDS = (None, None, "build-1", "build-2")
WEIGHTS = (1, 400, 1000, 1000, 2500, 1_000_000)
FITS = (
    ANYTHING,
    Fit((), "build-1"),
    Fit(("Charge",), None),
    Fit(("Pack", "Ship"), "build-2"),
    Fit(TYPES, "build-1"),
)


class Player:
    """Plays a history that is drawn from a seed and notes what was dispatched."""

    def __init__(self, store: Store, seed: int) -> None:
        self._store = store
        self._dice = random.Random(seed)
        self._tasks = 0
        self._held: list[Task] = []
        self.dispatched: list[str] = []

    async def play(self, steps: int) -> None:
        self._queue = await a_queue(self._store)
        moves = (self._enqueue, self._enqueue, self._claim, self._finish, self._give_back, self._cancel)
        for _ in range(steps):
            await self._dice.choice(moves)()
        while await self._claim_with(Fit(TYPES, "build-1")) + await self._claim_with(Fit(TYPES, "build-2")):
            pass

    async def state(self) -> tuple[Sequence[Lane], Sequence[Clockwork]]:
        """What the next claim would decide on."""
        await self._enqueue()
        queue_id = self._queue.queue_id
        lanes = await look(self._store, lambda tx: tx.queues.lanes(queue_id, ANYTHING, 100))
        return [*lanes], [*await look(self._store, lambda tx: tx.queues.clocks(queue_id))]

    async def _enqueue(self) -> None:
        dice = self._dice
        key, level, weight = dice.choice(KEYS), dice.choice((0, 3, 3, 9)), dice.choice(WEIGHTS)
        tasks = [self._draw(self._queue, key, level) for _ in range(dice.randint(1, 6))]
        await enqueue(self._store, *tasks, weight_milli=weight)

    def _draw(self, queue: Queue, key: str, level: int) -> Task:
        self._tasks += 1
        kind, build = self._dice.choice(TYPES), self._dice.choice(BUILDS)
        return a_task(queue, f"r{self._tasks}-1", key=key, level=level, type=kind, compatibility=build)

    async def _claim(self) -> None:
        await self._claim_with(self._dice.choice(FITS))

    async def _claim_with(self, fit: Fit) -> int:
        granted = await claim(self._store, self._queue.queue_id, self._dice.choice((1, 2, 7)), fit)
        self.dispatched += [task.task_id for task in granted]
        self._held += granted
        return len(granted)

    async def _finish(self) -> None:
        await self._end(TaskState.DONE)

    async def _give_back(self) -> None:
        await self._end(TaskState.READY)

    async def _end(self, state: TaskState) -> None:
        if self._held:
            task = self._held.pop(self._dice.randrange(len(self._held)))
            ended = released(task, state)
            await record(self._store, lambda tx: tx.tasks.save(ended, TaskState.LEASED))

    async def _cancel(self) -> None:
        """Cancel the oldest ready task, if there is one."""
        queue_id = self._queue.queue_id
        oldest = (await look(self._store, lambda tx: tx.queues.stats(queue_id, 0))).oldest
        if oldest is not None and self._dice.random() < 0.3:
            gone = released(oldest, TaskState.CANCELLED)
            await record(self._store, lambda tx: tx.tasks.save(gone, TaskState.READY))


@pytest.mark.parametrize("seed", range(6))
async def test_the_same_history_gives_the_same_order_as_in_the_model(
    store: Store, clock: ManualClock, seed: int
):
    model, candidate = Player(MemoryStore(clock, LocalWakeups()), seed), Player(store, seed)
    await model.play(60)
    await candidate.play(60)
    assert len(model.dispatched) > 40
    assert candidate.dispatched == model.dispatched
    assert await candidate.state() == await model.state()
