"""Prefetched tasks: renewed while they are likely to start soon, started in order, otherwise handed back."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from penstock.sdk.failures import ServerRefused, Unreachable
from penstock.sdk.lease import LeaseExpired, lease_of
from penstock.sdk.worker.error_policy import is_lease_lost, is_transient, log, retry_after_s
from penstock.sdk.worker.lease_renewal import renewing
from penstock.sdk.worker.matching.backpressure import BackpressureWindow
from penstock.sdk.worker.matching.slots import Slots

Json = dict[str, Any]
BACKOFF_FIRST_S, BACKOFF_MAX_S = 0.02, 0.25
"""First and longest pause before a queue at its cap is tried again."""
RETRY_AFTER_MAX_S = 5.0


class ClaimOutcome(Enum):
    """What happened to a prefetched task."""

    STARTED = "started"
    HAND_BACK = "hand_back"
    LOST = "lost"


@dataclass(frozen=True, slots=True)
class QueueOps:
    """The server calls for prefetched tasks of one queue."""

    queue: str
    rank: int
    """Queues with a lower rank start first."""
    start: Callable[[Json], Awaitable[Json]]
    renew: Callable[[Json], Awaitable[Json]]


@dataclass(eq=False, slots=True)
class _PrefetchedTask:
    queue: str
    order: tuple[int, int]
    since: float
    turn: asyncio.Future[bool] = field(default_factory=lambda: asyncio.get_running_loop().create_future())
    """True: it has a slot. False: it must be handed back."""
    refused: bool = False
    """Whether a start was refused before."""


class Prefetcher:
    """Slots for running tasks, and the prefetched tasks that wait for one.

    Prefetched tasks are renewed while this worker makes progress. If nothing has started for the duration of a lease,
    the waiting tasks are handed back and nothing is prefetched until a slot is free. With several queues, waiting
    tasks that a queue at its cap has in excess are handed back immediately, because other queues could use the
    capacity.
    """

    def __init__(
        self, slots: int, claims: Slots, *, lease_s: float, age_s: float, spare: int | None = None
    ) -> None:
        """`spare` is the number of waiting tasks allowed for queues at their caps; None if there is only one queue."""
        self._slots = self._free = slots
        self._backpressure = BackpressureWindow(claims.total, spare)
        self._claims, self._lease_s, self._age_s = claims, lease_s, age_s
        self._waiting: list[_PrefetchedTask] = []
        self._backoff_until: dict[str, float] = {}
        self._backoffs_s: dict[str, float] = {}
        self._sequence = 0
        self._progress_at = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._closing = False
        self.open = asyncio.Event()
        """Set while prefetching is worthwhile."""
        self.open.set()

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    @property
    def capacity_freed(self) -> asyncio.Event:
        """Set when a queue that had no capacity may be polled again."""
        return self._backpressure.capacity_freed

    def capacity(self, queue: str) -> int:
        """Return how many more tasks of a queue may be prefetched."""
        rests = self._backoff_until.get(queue, 0.0) > asyncio.get_running_loop().time()
        return self._backpressure.capacity(queue, rests=rests)

    def expect(self, queue: str) -> None:
        """Count a task of this queue that is about to be passed to `take`."""
        self._backpressure.entered(queue)

    async def take(self, task: Json, ops: QueueOps) -> ClaimOutcome:
        """Wait for a slot and start the task. A started task keeps its slot until `leave`."""
        waiting = self._join(ops)
        try:
            async with renewing(task, lambda: ops.renew(task)) as keeper:
                outcome = await self._until_started(task, waiting, ops, keeper)
        finally:
            self._remove(waiting)
            self._claims.give_back()
            self._backpressure.left(ops.queue)
        return outcome

    def leave(self, queue: str) -> None:
        """Free the slot of a task that has ended. Other tasks of its queue may now be able to start."""
        self._free += 1
        self._note_progress()
        if self._backpressure.is_limited:
            self._backoff_until.pop(queue, None)
            self._backoffs_s.pop(queue, None)
            self._backpressure.recheck(queue)
        self._admit_waiting()

    def resize(self, slots: int, spare: int | None) -> None:
        """Change the number of slots. With fewer slots nothing starts until enough tasks have ended."""
        self._free += slots - self._slots
        self._slots = slots
        self._backpressure.resize(self._claims.total, spare)
        self._admit_waiting()

    def close(self) -> None:
        """Hand back all tasks that have not started."""
        self._closing = True
        for each in list(self._waiting):
            self._reject(each)

    async def _until_started(
        self, task: Json, waiting: _PrefetchedTask, ops: QueueOps, keeper: asyncio.Task[None]
    ) -> ClaimOutcome:
        while True:
            awaited: set[asyncio.Future[Any]] = {waiting.turn, keeper}
            await asyncio.wait(awaited, return_when=asyncio.FIRST_COMPLETED)
            if not waiting.turn.done():
                return ClaimOutcome.LOST
            if not waiting.turn.result():
                return ClaimOutcome.HAND_BACK
            outcome = await self._try_start(task, waiting, ops)
            if outcome is not None:
                return outcome
            waiting.turn = asyncio.get_running_loop().create_future()
            self._wait(waiting)
            if waiting.refused:
                self._trim(waiting.queue)

    async def _try_start(self, task: Json, waiting: _PrefetchedTask, ops: QueueOps) -> ClaimOutcome | None:
        """Request the permit in a slot that is already taken. None: refused for now."""
        outcome: ClaimOutcome | None = None
        try:
            outcome = await self._request_permit(task, waiting, ops)
        finally:
            if outcome is not ClaimOutcome.STARTED:
                self._free += 1
        if outcome is ClaimOutcome.STARTED:
            self._backoffs_s.pop(ops.queue, None)
            self._note_progress()
            if not waiting.refused:
                self._backpressure.grow(ops.queue)
        else:
            self._admit_waiting()
        return outcome

    async def _request_permit(
        self, task: Json, waiting: _PrefetchedTask, ops: QueueOps
    ) -> ClaimOutcome | None:
        try:
            lease_of(task).check()
            response = await ops.start(task)
        except LeaseExpired:
            return ClaimOutcome.LOST
        except (ServerRefused, Unreachable) as error:
            if is_transient(error):
                self._back_off(ops.queue, retry_after_s(error) or None)
                return None
            if not is_lease_lost(error):
                log.warning("Task %s cannot be started: %s", task["task_id"], error)
            return ClaimOutcome.LOST
        if response["started"]:
            task["lease_expires_at"] = response.get("lease_expires_at")
            gone = self._closing or self._free < 0  # its slot no longer exists
            return ClaimOutcome.HAND_BACK if gone else ClaimOutcome.STARTED
        waiting.refused = True
        self._backpressure.refused(ops.queue)
        self._back_off(ops.queue, response.get("retry_after_seconds"))
        self._trim(ops.queue)
        return None

    # Waiting tasks

    def _join(self, ops: QueueOps) -> _PrefetchedTask:
        loop = asyncio.get_running_loop()
        self._sequence += 1
        waiting = _PrefetchedTask(ops.queue, (ops.rank, self._sequence), loop.time())
        if not self._waiting:
            self._progress_at = loop.time()
        self._wait(waiting)
        return waiting

    def _wait(self, waiting: _PrefetchedTask) -> None:
        self._waiting.append(waiting)
        if self._closing:
            self._reject(waiting)
        self._admit_waiting()
        self._arm_timer()

    def _remove(self, waiting: _PrefetchedTask) -> None:
        if waiting in self._waiting:
            self._waiting.remove(waiting)

    def _reject(self, waiting: _PrefetchedTask) -> None:
        self._remove(waiting)
        if not waiting.turn.done():
            waiting.turn.set_result(False)

    def _trim(self, queue: str) -> None:
        """Hand back all but the oldest waiting tasks that a refused queue may keep."""
        theirs = sorted((each for each in self._waiting if each.queue == queue), key=lambda each: each.order)
        for each in theirs[self._backpressure.keeps(queue) :]:
            self._reject(each)

    def _admit_waiting(self) -> None:
        """Assign free slots to waiting tasks in order."""
        if self._free > 0:
            self.open.set()
        now = asyncio.get_running_loop().time()
        ready = sorted(
            (each for each in self._waiting if self._backoff_until.get(each.queue, 0.0) <= now),
            key=lambda each: each.order,
        )
        for each in ready[: max(0, self._free)]:
            self._free -= 1
            self._remove(each)
            each.turn.set_result(True)

    def _back_off(self, queue: str, hint_s: float | None) -> None:
        """Back off from a queue that is at a limit, or whose server is unreachable."""
        grown = min(BACKOFF_MAX_S, 2 * self._backoffs_s.get(queue, BACKOFF_FIRST_S / 2))
        self._backoffs_s[queue] = grown
        pause_s = grown if hint_s is None else min(RETRY_AFTER_MAX_S, max(BACKOFF_FIRST_S, hint_s))
        loop = asyncio.get_running_loop()
        self._backoff_until[queue] = loop.time() + pause_s
        loop.call_later(pause_s + 0.001, self._backoff_over, queue)

    def _backoff_over(self, queue: str) -> None:
        self._backpressure.recheck(queue)
        self._admit_waiting()

    # Progress

    def _note_progress(self) -> None:
        self._progress_at = asyncio.get_running_loop().time()

    def _arm_timer(self) -> None:
        if self._timer is None and self._waiting:
            self._timer = asyncio.get_running_loop().call_later(self._lease_s / 3, self._check_progress)

    def _check_progress(self) -> None:
        """Hand back tasks that are too old, and all of them if this worker makes no progress: others may be idle."""
        self._timer = None
        now = asyncio.get_running_loop().time()
        stands = self._free <= 0 and now - self._progress_at >= self._lease_s
        for each in list(self._waiting):
            if stands or now - each.since >= self._age_s:
                self._reject(each)
        if stands:
            self.open.clear()
        self._arm_timer()
