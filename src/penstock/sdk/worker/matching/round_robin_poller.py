"""Polls several queues for a shared set of slots, in order of the queues and in batches of limited size."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

from penstock.errors import Reason
from penstock.sdk.failures import ServerRefused, Unreachable
from penstock.sdk.worker import metrics as names
from penstock.sdk.worker.error_policy import is_fatal, is_transient, retry_after_s
from penstock.sdk.worker.matching.backoff import Backoff
from penstock.sdk.worker.matching.poller import DRAINING_PAUSE_S, PollContext, let_tasks_start
from penstock.sdk.worker.matching.rate_limiter import RateLimiter
from penstock.sdk.worker.matching.slots import Slots

Json = dict[str, Any]
KIND = "activity"
TASKS_MAX = 100


def _unbounded() -> int:
    return TASKS_MAX


FAILED_POLL_PAUSE_S = 0.1


class PollRequest(Protocol):
    """Polls one queue for up to `tasks_max` tasks, either waiting for them or not."""

    async def __call__(self, tasks_max: int, poll_id: str, *, waits: bool) -> list[Json]: ...


@dataclass(eq=False, slots=True)
class PolledQueue:
    """One queue of the round."""

    queue: str
    ask: PollRequest
    start: Callable[[Json], None]
    hand_back: Callable[[Json], Awaitable[object]]
    poll_context: PollContext
    capacity: Callable[[], int] = _unbounded
    """How many more tasks of this queue the worker may hold; 0 skips the queue."""
    empty_until: float = 0.0
    """The queue has nothing for this worker before this time."""


class RoundRobinPoller:
    """Takes the free slots and polls the queues in order without waiting; while all are empty it waits at all of
    them.

    The first queue that returns tasks ends the wait at the others, so that no slot is held for an empty queue while
    another one has work. A task that arrives at the same moment takes a free slot or is handed back.
    """

    def __init__(
        self,
        polled_queues: Sequence[PolledQueue],
        slots: Slots,
        *,
        batch_max: int = 0,
        claims: Slots | None = None,
        rate_limiter: RateLimiter | None = None,
        capacity_freed: asyncio.Event | None = None,
    ) -> None:
        """`capacity_freed` is set when a queue that was skipped has capacity again."""
        self._capacity_freed = capacity_freed or asyncio.Event()
        self._polled_queues, self._slots, self._claims = polled_queues, slots, claims
        self._batch = min(TASKS_MAX, batch_max or TASKS_MAX)
        self._rate_limiter = rate_limiter or RateLimiter(None)
        self._background: set[asyncio.Task[object]] = set()
        self._closed = False
        self._started = 0
        """Tasks started in this round, each in one of its slots."""

    @property
    def has_slots(self) -> bool:
        return self._slots.total > 0

    async def run(self) -> None:
        """Poll until cancelled. Raises a fatal refusal of the server."""
        try:
            while True:
                await self._round()
        finally:
            self._closed = True
            for each in list(self._background):
                each.cancel()

    async def _round(self) -> None:
        """Poll the queues once with the slots that are free now."""
        taken = await self._slots.take(self._slots.total)
        if self._claims is not None:
            fitting = await self._claims.take(taken)
            self._slots.give_back(taken - fitting)
            taken = fitting
        tokens = await self._tokens(taken)
        self._started = 0
        self._capacity_freed.clear()
        try:
            if len(self._polled_queues) > 1:
                await self._poll_each_once(tokens)
            if not self._started:
                await self._long_poll(tokens)
        finally:
            self._rate_limiter.settle(tokens, self._started)
            self._give_back(tokens - self._started)
        if self._started:
            await let_tasks_start()

    def _start(self, polled_queue: PolledQueue, task: Json) -> None:
        """Start a task in one of the slots of this round."""
        polled_queue.start(task)
        self._started += 1

    async def _tokens(self, taken: int) -> int:
        try:
            tokens = await self._rate_limiter.take(taken)
        except BaseException:
            self._give_back(taken)
            raise
        self._give_back(taken - tokens)
        return tokens

    def _give_back(self, taken: int) -> None:
        self._slots.give_back(taken)
        if self._claims is not None:
            self._claims.give_back(taken)

    async def _poll_each_once(self, taken: int) -> None:
        """Poll each queue once, without waiting, in order."""
        for polled_queue in self._polled_queues:
            left = self._fitting(taken) - self._started
            if left <= 0:
                break
            tasks_max = min(self._batch, left, polled_queue.capacity())
            if tasks_max:
                self._start_tasks(polled_queue, await self._poll(polled_queue, tasks_max, waits=False), taken)

    async def _long_poll(self, taken: int) -> None:
        """Wait at all queues. Pause if a server that is shutting down returns immediately."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        await self._wait(taken)
        if (
            not self._started
            and not self._capacity_freed.is_set()
            and loop.time() - began < FAILED_POLL_PAUSE_S
        ):
            await asyncio.sleep(FAILED_POLL_PAUSE_S)

    async def _wait(self, taken: int) -> None:
        """Wait until one queue has tasks. With several queues, each poll asks for one task."""
        several = len(self._polled_queues) > 1
        tasks_max = 1 if several else min(self._batch, taken)
        asking = {
            asyncio.ensure_future(self._poll(polled_queue, tasks_max, waits=True)): polled_queue
            for polled_queue in self._polled_queues
            if not several
            or (polled_queue.empty_until <= asyncio.get_running_loop().time() and polled_queue.capacity())
        }
        capacity_freed = asyncio.ensure_future(self._capacity_freed.wait())
        try:
            done = await _first_completed({*asking, capacity_freed}, None if asking else DRAINING_PAUSE_S)
        finally:
            for one in (*asking, capacity_freed):
                one.cancel()
        for each in sorted(asking.keys() & done, key=lambda one: self._polled_queues.index(asking[one])):
            self._start_tasks(asking[each], each.result(), taken)

    def _start_tasks(self, polled_queue: PolledQueue, tasks: Sequence[Json], taken: int) -> None:
        """Start the tasks that fit in the slots of this round."""
        fitting = max(0, self._fitting(taken) - self._started)
        for task in tasks[:fitting]:
            self._start(polled_queue, task)
        self._start_or_hand_back(polled_queue, tasks[fitting:])

    def _fitting(self, taken: int) -> int:
        """Return how many slots of this round still exist. Their number may have shrunk during the wait."""
        fitting = min(self._slots.fitting(taken), self._rate_limiter.fitting(taken))
        return fitting if self._claims is None else min(fitting, self._claims.fitting(taken))

    async def _poll(self, polled_queue: PolledQueue, tasks_max: int, *, waits: bool) -> list[Json]:
        """Return the tasks of one queue. An abandoned poll is repeated once, because its tasks may be on their way."""
        poll_id = f"{KIND}-poll-{secrets.token_hex(12)}"
        pauses = Backoff()
        while True:
            try:
                tasks = await polled_queue.ask(tasks_max, poll_id, waits=waits)
            except asyncio.CancelledError:
                if not self._closed:  # deregistration redelivers the leases of a worker that shuts down
                    self._in_background(lambda: self._recover_abandoned_poll(polled_queue, poll_id))
                raise
            except (ServerRefused, Unreachable) as error:
                if is_fatal(error):
                    raise
                pause_s = await self._on_poll_error(polled_queue, error, pauses)
                if pause_s is None:
                    return []
                await asyncio.sleep(pause_s)
            else:
                polled_queue.poll_context.error_policy.report_recovery()
                outcome = "tasks" if tasks else "empty"
                polled_queue.poll_context.metrics.count(names.POLLS, kind=KIND, outcome=outcome)
                return tasks

    async def _on_poll_error(
        self, polled_queue: PolledQueue, error: ServerRefused | Unreachable, pauses: Backoff
    ) -> float | None:
        """Return the pause before the same poll is resent; None if the queue has nothing for this worker now."""
        polled_queue.poll_context.metrics.count(names.POLLS, kind=KIND, outcome="refused")
        if isinstance(error, ServerRefused) and error.reason == Reason.WORKER_NOT_REGISTERED:
            await polled_queue.poll_context.register()
            return pauses.pause_s()
        polled_queue.poll_context.error_policy.report_error(error)
        if is_transient(error):
            return pauses.pause_s(retry_after_s(error))
        if len(self._polled_queues) == 1:
            return pauses.pause_s(DRAINING_PAUSE_S)
        polled_queue.empty_until = asyncio.get_running_loop().time() + DRAINING_PAUSE_S
        return None

    # Tasks of abandoned polls

    def _in_background(self, work: Callable[[], Awaitable[object]]) -> None:
        task = asyncio.ensure_future(_await(work))
        self._background.add(task)
        task.add_done_callback(self._background_done)

    def _background_done(self, task: asyncio.Task[object]) -> None:
        self._background.discard(task)
        if not task.cancelled():
            task.exception()

    async def _recover_abandoned_poll(self, polled_queue: PolledQueue, poll_id: str) -> None:
        self._start_or_hand_back(polled_queue, await polled_queue.ask(1, poll_id, waits=False))

    def _start_or_hand_back(self, polled_queue: PolledQueue, tasks: Sequence[Json]) -> None:
        for task in tasks:
            if self._reserve_now():
                polled_queue.start(task)
            else:
                self._in_background(partial(polled_queue.hand_back, task))

    def _reserve_now(self) -> bool:
        if self._closed or not self._slots.take_now():
            return False
        if self._claims is None or self._claims.take_now():
            if self._rate_limiter.spend_now():
                return True
            self._give_back(1)
            return False
        self._slots.give_back()
        return False


async def _first_completed(
    awaited: set[asyncio.Future[Any]], seconds: float | None
) -> set[asyncio.Future[Any]]:
    done, _ = await asyncio.wait(awaited, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    return done


async def _await(work: Callable[[], Awaitable[object]]) -> object:
    return await work()
