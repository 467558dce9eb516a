"""Polls of one or more queues for the same places: in order of the queues, so many at a time as a worker may claim."""

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
from penstock.sdk.worker.backoff import Backoff
from penstock.sdk.worker.pace import Pace
from penstock.sdk.worker.polling import DRAINING_PAUSE_S, Surroundings, first_steps
from penstock.sdk.worker.slots import Slots
from penstock.sdk.worker.trouble import asked_s, is_fatal, is_passing

Json = dict[str, Any]
KIND = "activity"
TASKS_MAX = 100


def _unbounded() -> int:
    return TASKS_MAX


REST_SECONDS = 0.1


class Ask(Protocol):
    """A poll of one queue: up to so many tasks, under an id, and whether it waits for them."""

    async def __call__(self, tasks_max: int, poll_id: str, *, waits: bool) -> list[Json]: ...


@dataclass(eq=False, slots=True)
class Line:
    """One queue as a round sees it."""

    queue: str
    ask: Ask
    start: Callable[[Json], None]
    hand_back: Callable[[Json], Awaitable[object]]
    around: Surroundings
    room: Callable[[], int] = _unbounded
    """How many more of its tasks this worker may hold; 0: it is left out."""
    rests_until: float = 0.0
    """It has nothing for this worker before then."""


class Rounds:
    """Takes the places that are free and asks queue after queue for tasks; while all are empty it waits at all of them.

    Whatever one of them brings ends the waiting at the others, so that no place is held for a queue that is empty
    while another one has work. What arrives there in that very moment takes a place that is free, or is handed back.
    """

    def __init__(
        self,
        lines: Sequence[Line],
        slots: Slots,
        *,
        batch_max: int = 0,
        claims: Slots | None = None,
        pace: Pace | None = None,
        news: asyncio.Event | None = None,
    ) -> None:
        """`news` is set when a queue that was left out has room again."""
        self._news = news or asyncio.Event()
        self._lines, self._slots, self._claims = lines, slots, claims
        self._batch = min(TASKS_MAX, batch_max or TASKS_MAX)
        self._pace = pace or Pace(None)
        self._late: set[asyncio.Task[object]] = set()
        self._closed = False
        self._started = 0
        """Tasks of this round, each in one of its places."""

    @property
    def has_room(self) -> bool:
        return self._slots.total > 0

    async def run(self) -> None:
        """Until cancelled, or until the server refuses for good: then that is raised."""
        try:
            while True:
                await self._round()
        finally:
            self._closed = True
            for each in list(self._late):
                each.cancel()

    async def _round(self) -> None:
        """One pass through the queues with the places that are free now."""
        places = await self._slots.take(self._slots.total)
        if self._claims is not None:
            fitting = await self._claims.take(places)
            self._slots.give_back(places - fitting)
            places = fitting
        tokens = await self._tokens(places)
        self._started = 0
        self._news.clear()
        try:
            if len(self._lines) > 1:
                await self._pass(tokens)
            if not self._started:
                await self._patiently(tokens)
        finally:
            self._pace.settle(tokens, self._started)
            self._give_back(tokens - self._started)
        if self._started:
            await first_steps()

    def _start(self, line: Line, task: Json) -> None:
        """Start a task in one of the places of this round."""
        line.start(task)
        self._started += 1

    async def _tokens(self, places: int) -> int:
        try:
            tokens = await self._pace.take(places)
        except BaseException:
            self._give_back(places)
            raise
        self._give_back(places - tokens)
        return tokens

    def _give_back(self, places: int) -> None:
        self._slots.give_back(places)
        if self._claims is not None:
            self._claims.give_back(places)

    async def _pass(self, places: int) -> None:
        """Ask each queue once, the first one first."""
        for line in self._lines:
            left = self._fitting(places) - self._started
            if left <= 0:
                break
            most = min(self._batch, left, line.room())
            if most:
                self._came(line, await self._asked(line, most, waits=False), places)

    async def _patiently(self, places: int) -> None:
        """Wait, and rest a moment if a server that is about to end does not let us wait."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        await self._wait(places)
        if not self._started and not self._news.is_set() and loop.time() - began < REST_SECONDS:
            await asyncio.sleep(REST_SECONDS)

    async def _wait(self, places: int) -> None:
        """Wait until one queue has something. With several, each is asked for one task."""
        several = len(self._lines) > 1
        most = 1 if several else min(self._batch, places)
        asking = {
            asyncio.ensure_future(self._asked(line, most, waits=True)): line
            for line in self._lines
            if not several or (line.rests_until <= asyncio.get_running_loop().time() and line.room())
        }
        news = asyncio.ensure_future(self._news.wait())
        try:
            done = await _first({*asking, news}, None if asking else DRAINING_PAUSE_S)
        finally:
            for one in (*asking, news):
                one.cancel()
        for each in sorted(asking.keys() & done, key=lambda one: self._lines.index(asking[one])):
            self._came(asking[each], each.result(), places)

    def _came(self, line: Line, tasks: Sequence[Json], places: int) -> None:
        """Start what fits in the places of this round."""
        fitting = max(0, self._fitting(places) - self._started)
        for task in tasks[:fitting]:
            self._start(line, task)
        self._surplus(line, tasks[fitting:])

    def _fitting(self, places: int) -> int:
        """How many of the places of this round are still there: while it waited, there may have come to be fewer."""
        fitting = min(self._slots.fitting(places), self._pace.fitting(places))
        return fitting if self._claims is None else min(fitting, self._claims.fitting(places))

    async def _asked(self, line: Line, tasks_max: int, *, waits: bool) -> list[Json]:
        """The answer of one queue. A poll that is left is asked for once more: what it got may be on its way."""
        poll_id = f"{KIND}-poll-{secrets.token_hex(12)}"
        pauses = Backoff()
        while True:
            try:
                tasks = await line.ask(tasks_max, poll_id, waits=waits)
            except asyncio.CancelledError:
                if not self._closed:  # what a worker holds that leaves waits for others at once
                    self._later(lambda: self._settle(line, poll_id))
                raise
            except (ServerRefused, Unreachable) as error:
                if is_fatal(error):
                    raise
                pause_s = await self._met(line, error, pauses)
                if pause_s is None:
                    return []
                await asyncio.sleep(pause_s)
            else:
                line.around.trouble.over()
                outcome = "tasks" if tasks else "empty"
                line.around.metrics.count(names.POLLS, kind=KIND, outcome=outcome)
                return tasks

    async def _met(self, line: Line, error: ServerRefused | Unreachable, pauses: Backoff) -> float | None:
        """How long to pause before the same poll is sent again; None: the queue has nothing for us now."""
        line.around.metrics.count(names.POLLS, kind=KIND, outcome="refused")
        if isinstance(error, ServerRefused) and error.reason == Reason.WORKER_NOT_REGISTERED:
            await line.around.register()
            return pauses.pause_s()
        line.around.trouble.met(error)
        if is_passing(error):
            return pauses.pause_s(asked_s(error))
        if len(self._lines) == 1:
            return pauses.pause_s(DRAINING_PAUSE_S)
        line.rests_until = asyncio.get_running_loop().time() + DRAINING_PAUSE_S
        return None

    # What comes for a poll that nobody waits for any more

    def _later(self, work: Callable[[], Awaitable[object]]) -> None:
        task = asyncio.ensure_future(_done(work))
        self._late.add(task)
        task.add_done_callback(self._over)

    def _over(self, task: asyncio.Task[object]) -> None:
        self._late.discard(task)
        if not task.cancelled():
            task.exception()

    async def _settle(self, line: Line, poll_id: str) -> None:
        self._surplus(line, await line.ask(1, poll_id, waits=False))

    def _surplus(self, line: Line, tasks: Sequence[Json]) -> None:
        for task in tasks:
            if self._take_now():
                line.start(task)
            else:
                self._later(partial(line.hand_back, task))

    def _take_now(self) -> bool:
        if self._closed or not self._slots.take_now():
            return False
        if self._claims is None or self._claims.take_now():
            if self._pace.spend_now():
                return True
            self._give_back(1)
            return False
        self._slots.give_back()
        return False


async def _first(awaited: set[asyncio.Future[Any]], seconds: float | None) -> set[asyncio.Future[Any]]:
    done, _ = await asyncio.wait(awaited, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    return done


async def _done(work: Callable[[], Awaitable[object]]) -> object:
    return await work()
