"""Tasks that were claimed ahead: kept while they may start soon, started in order, else handed back."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from penstock.sdk.failures import ServerRefused, Unreachable
from penstock.sdk.lease import LeaseEnded, lease_of
from penstock.sdk.worker.held import Held
from penstock.sdk.worker.leases import renewing
from penstock.sdk.worker.slots import Slots
from penstock.sdk.worker.trouble import asked_s, is_lost, is_passing, log

Json = dict[str, Any]
REST_FIRST_S, REST_MOST_S = 0.02, 0.25
"""How long a queue that is at its cap is left alone before it is asked again."""
HINT_MOST_S = 5.0


class Claimed(Enum):
    """What became of a claim."""

    STARTED = "started"
    HAND_BACK = "hand_back"
    LOST = "lost"


@dataclass(frozen=True, slots=True)
class Dealings:
    """What is done with claims of one queue at the server."""

    queue: str
    rank: int
    """The queue with the lowest goes first."""
    start: Callable[[Json], Awaitable[Json]]
    renew: Callable[[Json], Awaitable[Json]]


@dataclass(eq=False, slots=True)
class _Waiting:
    queue: str
    order: tuple[int, int]
    since: float
    turn: asyncio.Future[bool] = field(default_factory=lambda: asyncio.get_running_loop().create_future())
    """True: a place is there for it. False: it is to be handed back."""
    refused: bool = False
    """Whether it was kept from starting before."""


class Ahead:
    """Places for tasks that run, and the claims that wait for one.

    A claim is renewed while this worker moves. Once nothing has started for as long as a claim lasts, what waits is
    handed back for others, and nothing is claimed until a place is free again. What a queue at its cap has too many
    waiting is handed back at once if there are other queues, which could use the places for claims.
    """

    def __init__(
        self, places: int, claims: Slots, *, lease_s: float, age_s: float, spare: int | None = None
    ) -> None:
        """`spare` is how many claims may wait for queues at their caps; None: it is one queue."""
        self._places = self._free = places
        self._held = Held(claims.total, spare)
        self._claims, self._lease_s, self._age_s = claims, lease_s, age_s
        self._waiting: list[_Waiting] = []
        self._rests: dict[str, float] = {}
        self._pauses: dict[str, float] = {}
        self._numbers = 0
        self._moved_at = 0.0
        self._alarm: asyncio.TimerHandle | None = None
        self._closing = False
        self.open = asyncio.Event()
        """Whether it is worth claiming more."""
        self.open.set()

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    @property
    def news(self) -> asyncio.Event:
        """Set when a queue may be asked again that had no room."""
        return self._held.news

    def room(self, queue: str) -> int:
        """How many more tasks of a queue may be claimed."""
        rests = self._rests.get(queue, 0.0) > asyncio.get_running_loop().time()
        return self._held.room(queue, rests=rests)

    def expect(self, queue: str) -> None:
        """A task of this queue is about to be taken."""
        self._held.entered(queue)

    async def take(self, task: Json, with_: Dealings) -> Claimed:
        """Wait for a place and start the task, which was expected; a started one has its place until `leave`."""
        waiting = self._enter(with_)
        try:
            async with renewing(task, lambda: with_.renew(task)) as keeper:
                how = await self._until_started(task, waiting, with_, keeper)
        finally:
            self._forget(waiting)
            self._claims.give_back()
            self._held.left(with_.queue)
        return how

    def leave(self, queue: str) -> None:
        """A task has ended, and with it perhaps what kept others of its queue from starting."""
        self._free += 1
        self._moved()
        if self._held.is_counting:
            self._rests.pop(queue, None)
            self._pauses.pop(queue, None)
            self._held.look_again(queue)
        self._next()

    def resize(self, places: int, spare: int | None) -> None:
        """Let more tasks run from now on, or fewer as soon as enough have ended; its claims have been resized."""
        self._free += places - self._places
        self._places = places
        self._held.resize(self._claims.total, spare)
        self._next()

    def close(self) -> None:
        """Have everything handed back that did not start."""
        self._closing = True
        for each in list(self._waiting):
            self._turn_away(each)

    async def _until_started(
        self, task: Json, waiting: _Waiting, with_: Dealings, keeper: asyncio.Task[None]
    ) -> Claimed:
        while True:
            awaited: set[asyncio.Future[Any]] = {waiting.turn, keeper}
            await asyncio.wait(awaited, return_when=asyncio.FIRST_COMPLETED)
            if not waiting.turn.done():
                return Claimed.LOST
            if not waiting.turn.result():
                return Claimed.HAND_BACK
            how = await self._try(task, waiting, with_)
            if how is not None:
                return how
            waiting.turn = asyncio.get_running_loop().create_future()
            self._wait(waiting)
            if waiting.refused:
                self._thin(waiting.queue)

    async def _try(self, task: Json, waiting: _Waiting, with_: Dealings) -> Claimed | None:
        """Ask for the permit, in a place that was given. None: not now."""
        how: Claimed | None = None
        try:
            lease_of(task).check()
            answer = await with_.start(task)
            if answer["started"]:
                task["lease_expires_at"] = answer.get("lease_expires_at")
                gone = self._closing or self._free < 0  # its place is no more
                how = Claimed.HAND_BACK if gone else Claimed.STARTED
            else:
                waiting.refused = True
                self._held.refused(with_.queue)
                self._rest(with_.queue, answer.get("retry_after_seconds"))
                self._thin(with_.queue)
        except LeaseEnded:
            how = Claimed.LOST
        except (ServerRefused, Unreachable) as error:
            if is_passing(error):
                self._rest(with_.queue, asked_s(error) or None)
            else:
                how = Claimed.LOST
                if not is_lost(error):
                    log.warning("Task %s cannot be started: %s", task["task_id"], error)
        finally:
            if how is not Claimed.STARTED:
                self._free += 1
        if how is Claimed.STARTED:
            self._pauses.pop(with_.queue, None)
            self._moved()
            if not waiting.refused:
                self._held.started_at_once(with_.queue)
        else:
            self._next()
        return how

    # Who waits

    def _enter(self, with_: Dealings) -> _Waiting:
        loop = asyncio.get_running_loop()
        self._numbers += 1
        waiting = _Waiting(with_.queue, (with_.rank, self._numbers), loop.time())
        if not self._waiting:
            self._moved_at = loop.time()
        self._wait(waiting)
        return waiting

    def _wait(self, waiting: _Waiting) -> None:
        self._waiting.append(waiting)
        if self._closing:
            self._turn_away(waiting)
        self._next()
        self._watch()

    def _forget(self, waiting: _Waiting) -> None:
        if waiting in self._waiting:
            self._waiting.remove(waiting)

    def _turn_away(self, waiting: _Waiting) -> None:
        self._forget(waiting)
        if not waiting.turn.done():
            waiting.turn.set_result(False)

    def _thin(self, queue: str) -> None:
        """Of a queue that is refused, keep the oldest that may wait here."""
        theirs = sorted((each for each in self._waiting if each.queue == queue), key=lambda each: each.order)
        for each in theirs[self._held.keeps(queue) :]:
            self._turn_away(each)

    def _next(self) -> None:
        """Give free places to those whose turn it is."""
        if self._free > 0:
            self.open.set()
        now = asyncio.get_running_loop().time()
        ready = sorted(
            (each for each in self._waiting if self._rests.get(each.queue, 0.0) <= now),
            key=lambda each: each.order,
        )
        for each in ready[: max(0, self._free)]:
            self._free -= 1
            self._forget(each)
            each.turn.set_result(True)

    def _rest(self, queue: str, hint_s: float | None) -> None:
        """Leave a queue alone for a moment: it is at a limit, or the server is away."""
        grown = min(REST_MOST_S, 2 * self._pauses.get(queue, REST_FIRST_S / 2))
        self._pauses[queue] = grown
        pause_s = grown if hint_s is None else min(HINT_MOST_S, max(REST_FIRST_S, hint_s))
        loop = asyncio.get_running_loop()
        self._rests[queue] = loop.time() + pause_s
        loop.call_later(pause_s + 0.001, self._rested, queue)

    def _rested(self, queue: str) -> None:
        self._held.look_again(queue)
        self._next()

    # Whether it moves

    def _moved(self) -> None:
        self._moved_at = asyncio.get_running_loop().time()

    def _watch(self) -> None:
        if self._alarm is None and self._waiting:
            self._alarm = asyncio.get_running_loop().call_later(self._lease_s / 3, self._look)

    def _look(self) -> None:
        """Hand back what is too old, and everything while nothing moves here: others may be idle."""
        self._alarm = None
        now = asyncio.get_running_loop().time()
        stands = self._free <= 0 and now - self._moved_at >= self._lease_s
        for each in list(self._waiting):
            if stands or now - each.since >= self._age_s:
                self._turn_away(each)
        if stands:
            self.open.clear()
        self._watch()
