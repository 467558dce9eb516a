"""Open polls of this server: they wait here, and one claim serves all that wait on a queue.

Theory of operation
-------------------
A poll that finds nothing stays open (long polling). The dispatcher keeps the open polls of each queue in order
of arrival, and runs at most one claim per queue at a time. A claim (`engine.matching.claim`) answers every poll
that it is given:

    Granted   the poll is answered with its tasks
    Refused   the poll fails with the error
    Held      the poll waits on: for the topic of the queue, for the topics of the scopes in the way, or for the timer
              that is set to the moment at which a limit may open. Without time left it is answered with the hold
    Retry     the claim did not look, or did not see everything: another one follows at once

A claim is started by the arrival of a poll, by a wakeup, or by the timer. Whatever arrives while a claim runs sets
`claim_again`, so it is followed by exactly one more: a thousand wakeups cost two claims. Polls of one claim must be
interchangeable. They are grouped by the filter of their worker (types and build), which is remembered from the last
claim, and by whether they prefetch. A filter that was remembered wrongly costs one `Retry`.

Nothing here is truth (`wakeups-are-hints`). A wakeup that is lost is made good by a backstop that looks every second,
in one read for all queues; a poll that is lost with the process is sent again by its worker.

Deadlines
---------
A poll ends when its time is over, whatever the database does. If its claim is under way at that moment the poll waits
for it, for at most `LOOK_GRACE_S`: most claims come back with a task that would otherwise have to be handed back. A
poll whose claim does not come back in that time answers `unavailable`, not `empty`, because nothing is known of its
queue. A claim that comes back later finds no poll, so its tasks are handed back: they wait again, and all that their
grants charged is refunded in the same transaction (`core/scheduling/charges.py`). Handing back is repeated until it
succeeds or the leases have expired.

Early ends
----------
A worker that polls workflow tasks and activity tasks one after the other, with one connection, would wait for the one
kind while the other has work. Such polls are ended early with `empty`, after `YIELD_AFTER_S`.

Rejected
--------
* A claim per poll, with `SKIP LOCKED`: every wakeup would start as many transactions as there are polls.
* Handing tasks to polls from memory, filled by one reader: a crash would lose what memory held, and fairness would
  be decided twice.
* Waking only as many polls as tasks arrived: the count would have to be exact across servers to lose nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import structlog
from msgspec import Struct

from penstock.core.limits.rate_reports import RateReport
from penstock.core.model import Queue, QueueId, TaskKind
from penstock.core.scheduling import dispatch
from penstock.core.scheduling.cohorts import check_may_poll
from penstock.core.scheduling.dispatch import Hold, HoldReason, PollStatus, WorkerFilter
from penstock.core.scheduling.polls import (
    ClaimResult,
    Granted,
    Held,
    Leased,
    Poll,
    Refused,
    Retry,
    RetryReason,
)
from penstock.engine.activities.worker_deaths import record_disconnect
from penstock.engine.context import EngineContext
from penstock.engine.limits.rate_reports import report_rate
from penstock.engine.matching import query_tasks, update_validation
from penstock.engine.matching.claim import claim
from penstock.engine.matching.undelivered import hand_back
from penstock.engine.runtime.deadlines import LOOK_GRACE_S, Deadline
from penstock.engine.runtime.ticks import until_tick_s
from penstock.errors import Exhausted, PenstockError, Reason
from penstock.ports.store import QueryQueue, Tx
from penstock.ports.wakeups import Topic, queue_topic, scope_topic

LOOK_AGAIN_S = 1.0
HAND_BACK_AGAIN_S = (0.1, 0.2, 0.5, 1.0)
"""Backoff of retries when a task cannot be handed back; the last one repeats."""
YIELD_AFTER_S = 0.5
"""How long a poll stays open before it may be ended early for a worker that polls one kind after the other."""
YIELD_LOOKS = 2
"""How many times in that span open polls are checked."""
POLLS_PER_CLAIM = 100
DISCONNECTED_S = 1.0
"""A worker that closed the connection of its poll and has not polled again for so long counts as dead."""
REMEMBERED_MAX = 10_000
"""Most queues and workers that are cached; beyond it the cache is cleared."""
_NO_WAIT = contextlib.nullcontext()
log = structlog.get_logger("penstock.dispatcher")


class PollAnswer(Struct, frozen=True):
    """The outcome of a poll."""

    leased: tuple[Leased, ...]
    status: PollStatus
    hold: HoldReason | None = None
    """What was in the way, where nothing was leased."""
    claimed_at: float = 0.0
    """When the claim that leased the tasks began, by this process's monotonic clock."""


UNAVAILABLE = PollAnswer((), PollStatus.UNAVAILABLE, HoldReason.UNAVAILABLE)
"""For a poll whose claim did not come back in time."""


@dataclass(eq=False, slots=True)
class _Waiter:
    poll: Poll
    queue: Queue
    future: asyncio.Future[PollAnswer]
    patient: bool
    """Whether it stays open after a claim found nothing."""
    hold: Hold | None = None
    """The hold of the last claim; None: no claim has come back yet."""
    is_claiming: bool = False
    """Whether a claim for this poll is under way, or follows at once because the last one did not see everything."""
    serves_other: bool = True
    """Whether its worker names types of the other kind too, as far as is known."""
    opened_at: float = field(default_factory=lambda: asyncio.get_running_loop().time())

    @property
    def who(self) -> tuple[str, str, TaskKind]:
        """Its worker, by the kind of task that it polls for."""
        return self.poll.namespace, self.poll.worker_id, self.poll.kind

    @property
    def other(self) -> tuple[str, str, TaskKind]:
        """Its worker, by the other kind of task."""
        other = TaskKind.ACTIVITY if self.poll.kind is TaskKind.WORKFLOW else TaskKind.WORKFLOW
        return self.poll.namespace, self.poll.worker_id, other


@dataclass(eq=False, slots=True)
class _QueuePolls:
    """The open polls of one queue, and whether a claim is under way for them."""

    waiters: dict[_Waiter, None] = field(default_factory=dict)
    claiming: bool = False
    claim_again: bool = False
    unsubscribe: Callable[[], None] | None = None
    timer: asyncio.TimerHandle | None = None
    """Fires when a limit that is in the way may open."""
    scopes: dict[Topic, Callable[[], None]] = field(default_factory=dict)
    """The topics of scopes that are in the way, each with its function to unsubscribe."""


@dataclass(eq=False, slots=True)
class _Turn:
    """Whose turn it is among polls with one request id."""

    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    waiting: int = 0


class Dispatcher:
    """Holds the open polls of this server."""

    def __init__(self, ctx: EngineContext) -> None:
        self._ctx = ctx
        self._by_queue: dict[QueueId, _QueuePolls] = {}
        self._filters: dict[tuple[str, str, TaskKind], WorkerFilter] = {}
        self._open: dict[tuple[str, str, TaskKind], int] = {}
        self._queues: dict[tuple[str, str, TaskKind], Queue] = {}
        self._turns: dict[tuple[str, str, str, TaskKind, str], _Turn] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._draining = asyncio.Event()
        self._backstops: list[asyncio.Task[None]] = []

    @property
    def open_polls(self) -> int:
        return sum(self._open.values())

    def start(self) -> None:
        self._backstops = [
            asyncio.create_task(self._look_again_forever(), name="penstock-dispatch-backstop"),
            asyncio.create_task(self._yield_forever(), name="penstock-dispatch-yields"),
        ]

    @property
    def draining(self) -> asyncio.Event:
        """Set once open polls are to end."""
        return self._draining

    @property
    def is_draining(self) -> bool:
        return self._draining.is_set()

    def drain(self) -> None:
        """End every open poll; polls that arrive from here on get one look and no wait.

        A poll whose claim is under way gets the answer of that claim, as when its time is over.
        """
        self._draining.set()
        for open_ in self._by_queue.values():
            for waiter in list(open_.waiters):
                _out_of_time(open_, waiter)
                if not waiter.future.done():
                    asyncio.get_running_loop().call_later(LOOK_GRACE_S, _answer, waiter, UNAVAILABLE)

    async def close(self) -> None:
        self.drain()
        for backstop in self._backstops:
            backstop.cancel()
        await asyncio.gather(*self._backstops, return_exceptions=True)
        while self._tasks:  # a claim that ends now may still have something to hand back
            await asyncio.wait(self._tasks)

    async def poll(self, poll: Poll, wait_ms: int) -> PollAnswer:
        """Lease tasks to the caller, or return why not when the wait is over.

        When the caller goes away (this coroutine is cancelled), it gets no task; one that was leased to it in
        that instant waits again.

        Raises:
            Unavailable: the database cannot be used, or did not tell in time which queue this is.
        """
        deadline = Deadline(wait_ms)
        async with deadline.kept(), self.turn(poll, deadline):
            return await self.attend(poll, deadline)

    @contextlib.asynccontextmanager
    async def turn(self, poll: Poll, deadline: Deadline) -> AsyncIterator[None]:
        """The time in which a poll is open, and no other one with its request id is attended to."""
        if self.open_polls >= self._ctx.settings.polls.long_polls_max:
            raise Exhausted(
                Reason.LONG_POLL_CAPACITY_EXHAUSTED,
                "This server holds as many polls as it may. Try again in a moment, or another server.",
                poll_status="long_poll_capacity_exhausted",
                task=None,
                task_kind=f"{poll.kind.value}_task",
                task_queue=poll.task_queue,
                retryable=True,
                retry_after_seconds=1,
            )
        who = (poll.namespace, poll.worker_id, poll.kind)
        self._open[who] = self._open.get(who, 0) + 1
        try:
            alone = self._one_per_request(poll, poll.poll_request_id) if poll.poll_request_id else _NO_WAIT
            async with alone:
                yield
        except asyncio.CancelledError:
            if deadline.left_ms:  # else this side ended it, or the caller gave up on a silent database
                self._disconnected(poll)
            raise
        finally:
            self._open[who] -= 1
            if not self._open[who]:
                del self._open[who]

    def _disconnected(self, poll: Poll) -> None:
        """A worker hung up. If it does not poll again, it is dead: nothing is to wait for it any longer.

        Only polls for workflow tasks count: tasks are sticky to workers that poll for those, and workers end polls for
        activity tasks by themselves.
        """
        if poll.kind is TaskKind.WORKFLOW and not self._draining.is_set():
            loop = asyncio.get_running_loop()
            loop.call_later(DISCONNECTED_S, self._look_after, poll.namespace, poll.worker_id)

    def _look_after(self, namespace: str, worker_id: str) -> None:
        if self._draining.is_set() or any((namespace, worker_id, kind) in self._open for kind in TaskKind):
            return
        self.undo(self._record_disconnect(namespace, worker_id))

    async def _record_disconnect(self, namespace: str, worker_id: str) -> None:
        try:
            dead = await record_disconnect(self._ctx, namespace, worker_id, round(DISCONNECTED_S * 1000))
        except PenstockError as error:
            log.warning(
                "cannot record that a worker disconnected", worker=worker_id, reason=error.reason.value
            )
            return
        if dead:
            log.info("worker disconnected; its sticky tasks are for other workers", worker=worker_id)

    @contextlib.asynccontextmanager
    async def _one_per_request(self, poll: Poll, request_id: str) -> AsyncIterator[None]:
        """Serialize polls with one request id: a repeated poll gets what the first one got."""
        name = (poll.namespace, poll.worker_id, poll.task_queue, poll.kind, request_id)
        turn = self._turns.setdefault(name, _Turn())
        turn.waiting += 1
        try:
            async with turn.lock:
                yield
        finally:
            turn.waiting -= 1
            if not turn.waiting:
                self._turns.pop(name, None)

    async def attend(self, poll: Poll, deadline: Deadline) -> PollAnswer:
        """What a poll gets whose turn it is."""
        queue = await self._queue(poll)
        if poll.activities_per_second_micro is not None and poll.kind is TaskKind.ACTIVITY:
            word = RateReport(poll.activities_per_second_micro, poll.worker_id, poll.activities_burst_ms)
            await report_rate(self._ctx, poll.namespace, poll.task_queue, word)
        wait_ms = deadline.left_ms
        patient = wait_ms > 0 and not self._draining.is_set()
        waiter = _Waiter(poll, queue, asyncio.get_running_loop().create_future(), patient)
        open_ = self._join(waiter)
        self._wake(queue.queue_id)
        try:
            return await self._wait(open_, waiter, wait_ms if patient else 0)
        except asyncio.CancelledError:
            self._hung_up(waiter)
            raise
        finally:
            open_.waiters.pop(waiter, None)
            self._end_if_idle(queue.queue_id, open_)

    async def _wait(self, open_: _QueuePolls, waiter: _Waiter, wait_ms: int) -> PollAnswer:
        loop = asyncio.get_running_loop()
        ending = loop.call_later(wait_ms / 1000, _out_of_time, open_, waiter)
        unanswered = loop.call_later(wait_ms / 1000 + LOOK_GRACE_S, _answer, waiter, UNAVAILABLE)
        try:
            return await waiter.future
        finally:
            ending.cancel()
            unanswered.cancel()

    def _hung_up(self, waiter: _Waiter) -> None:
        """The caller is gone: hand back what it was granted in this very moment."""
        done = waiter.future.done() and not waiter.future.cancelled() and waiter.future.exception() is None
        if done and waiter.future.result().leased:
            self.give_back(waiter.future.result().leased)
        waiter.future.cancel()

    async def _queue(self, poll: Poll) -> Queue:
        """The queue of a poll; only a worker that may poll it creates a new one."""
        namespace, name, kind = poll.namespace, poll.task_queue, poll.kind
        known = self._queues.get((namespace, name, kind))
        if known is not None:
            return known

        async def operation(tx: Tx) -> Queue:
            worker = await tx.workers.get(poll.namespace, poll.worker_id)
            intents = {each.build_id: each for each in await tx.cohorts.list(poll.namespace, poll.task_queue)}
            check_may_poll(worker, poll.worker_id, poll.task_queue, poll.build_id, intents)
            return await tx.queues.ensure(namespace, name, kind)

        queue = await self._ctx.store.transact(operation, key=f"queue:{namespace}:{name}:{kind}")
        if len(self._queues) > REMEMBERED_MAX:
            self._queues.clear()
        self._queues[namespace, name, kind] = queue
        return queue

    def _join(self, waiter: _Waiter) -> _QueuePolls:
        queue_id = waiter.queue.queue_id
        open_ = self._by_queue.get(queue_id)
        if open_ is None:
            open_ = self._by_queue[queue_id] = _QueuePolls()
            open_.unsubscribe = self._subscribe(queue_topic(queue_id), queue_id)
        open_.waiters[waiter] = None
        return open_

    def _end_if_idle(self, queue_id: QueueId, open_: _QueuePolls) -> None:
        if not open_.waiters and not open_.claiming and self._by_queue.get(queue_id) is open_:
            if open_.unsubscribe is not None:
                open_.unsubscribe()
            self._subscribe_scopes(queue_id, open_, ())
            if open_.timer is not None:
                open_.timer.cancel()
            del self._by_queue[queue_id]

    def _wake(self, queue_id: QueueId) -> None:
        """Start a claim for the open polls; if one is under way, have another follow it."""
        open_ = self._by_queue.get(queue_id)
        if open_ is None or not open_.waiters:
            return
        if open_.claiming:
            open_.claim_again = True
            return
        open_.claiming = True
        task = asyncio.create_task(self._serve(queue_id, open_))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, queue_id: QueueId, open_: _QueuePolls) -> None:
        try:
            while True:
                open_.claim_again = False
                served = await self._serve_once(queue_id, open_)
                if not open_.waiters or not (open_.claim_again or served):
                    return
        except PenstockError as refusal:
            for waiter in list(open_.waiters):
                _refuse(waiter, refusal.with_details())
        except Exception as error:
            log.exception("a claim failed", queue_id=queue_id)
            for waiter in list(open_.waiters):
                _refuse(waiter, error)
        finally:
            open_.claiming = False
            if open_.claim_again:
                self._wake(queue_id)
            self._end_if_idle(queue_id, open_)

    async def _serve_once(self, queue_id: QueueId, open_: _QueuePolls) -> bool:
        """One claim per group of interchangeable polls; returns whether another look must follow.

        That is so when a claim did not see everything, or when a scope is in the way that is not subscribed to yet.
        """
        again = False
        topics: dict[Topic, None] = {}
        for worker_filter, members in self._groups(open_):
            for start in range(0, len(members), POLLS_PER_CLAIM):
                slice_ = members[start : start + POLLS_PER_CLAIM]
                others, unsure = await self._claim_for(queue_id, slice_, worker_filter, topics)
                again = again or unsure
                if not others and not unsure:
                    _found_nothing(members[start + POLLS_PER_CLAIM :], slice_[-1].hold)
                    break
        return self._subscribe_scopes(queue_id, open_, topics) or again

    def _groups(self, open_: _QueuePolls) -> list[tuple[WorkerFilter | None, list[_Waiter]]]:
        """The open polls of a queue that one claim may serve together, with the filter of their workers.

        None: the filter of a worker is not known yet, so its polls are claimed for alone.
        """
        groups: dict[tuple[WorkerFilter | tuple[str, str, TaskKind], bool], list[_Waiter]] = {}
        for waiter in open_.waiters:
            if not waiter.future.done():
                known = self._filters.get(waiter.who) or waiter.who
                groups.setdefault((known, waiter.poll.claim_lease_ms is not None), []).append(waiter)
        return [
            (known if isinstance(known, WorkerFilter) else None, members)
            for (known, _), members in groups.items()
        ]

    async def _claim_for(
        self,
        queue_id: QueueId,
        waiters: list[_Waiter],
        worker_filter: WorkerFilter | None,
        topics: dict[Topic, None],
    ) -> tuple[bool, bool]:
        """Claim for interchangeable polls; returns whether others may be served, and whether to look again.

        The topics of scopes that are in the way are added to `topics`.
        """
        others = again = False
        while waiters:
            claimed_at = time.monotonic()
            results = await self._claim(queue_id, waiters, worker_filter)
            apart: list[_Waiter] = []
            for waiter, result in zip(waiters, results, strict=True):
                self._deliver(waiter, result, claimed_at)
                match result:
                    case Retry(reason=RetryReason.SERVED_APART):
                        apart.append(waiter)
                    case Retry():
                        again = True
                    case Held():
                        others = others or result.others_may_be_served
                    case Granted() | Refused():
                        others = True
            self._await_limits(queue_id, results, topics)
            waiters = apart
        return others, again

    def _await_limits(
        self, queue_id: QueueId, results: Sequence[ClaimResult], topics: dict[Topic, None]
    ) -> None:
        """Look again when a limit that is in the way may open: by the clock, or by the topic of its scope."""
        held = [each.held if isinstance(each, Retry) else each for each in results]
        waits_ms = []
        for each in held:
            if isinstance(each, Held):
                topics |= {scope_topic(scope_id): None for scope_id in each.scope_ids}
                waits_ms += [] if each.retry_in_ms is None else [each.retry_in_ms]
        if waits_ms:
            self._set_timer(queue_id, min(waits_ms))

    async def _claim(
        self, queue_id: QueueId, waiters: list[_Waiter], worker_filter: WorkerFilter | None
    ) -> list[ClaimResult]:
        for waiter in waiters:
            waiter.is_claiming = True
        try:
            return await claim(self._ctx, queue_id, [waiter.poll for waiter in waiters], worker_filter)
        finally:
            for waiter in waiters:
                waiter.is_claiming = False

    def _subscribe_scopes(self, queue_id: QueueId, open_: _QueuePolls, topics: Iterable[Topic]) -> bool:
        """Subscribe to the scopes that are in the way and to no others; returns whether another claim must follow.

        That is so for a new topic: it may have been notified before it was subscribed.
        """
        wanted = dict.fromkeys(topics)
        for topic in [topic for topic in open_.scopes if topic not in wanted]:
            open_.scopes.pop(topic)()
        new = [topic for topic in wanted if topic not in open_.scopes]
        for topic in new:
            open_.scopes[topic] = self._subscribe(topic, queue_id)
        return bool(new)

    def _subscribe(self, topic: Topic, queue_id: QueueId) -> Callable[[], None]:
        """Claim when a topic is notified; before its commit, where the claim can be committed with it."""
        return self._ctx.wakeups.listen(topic, lambda: self._wake(queue_id), before_commit=True)

    def _set_timer(self, queue_id: QueueId, wait_ms: int) -> None:
        open_ = self._by_queue.get(queue_id)
        if open_ is None:
            return
        loop = asyncio.get_running_loop()
        fires_at = loop.time() + min(wait_ms / 1000, LOOK_AGAIN_S)
        if open_.timer is not None and loop.time() < open_.timer.when() <= fires_at:
            return
        if open_.timer is not None:
            open_.timer.cancel()
        open_.timer = loop.call_at(fires_at, self._wake, queue_id)

    def _deliver(self, waiter: _Waiter, result: ClaimResult, claimed_at: float) -> None:
        """Pass the result of a claim on to its poll, and remember the filter of the worker."""
        match result:
            case Refused():
                self._filters.pop(waiter.who, None)
                _refuse(waiter, result.error)
                return
            case Granted() if waiter.future.done():
                self.give_back(result.leased)
            case Granted():
                _answer(waiter, PollAnswer(result.leased, PollStatus.LEASED, claimed_at=claimed_at))
            case Held():
                waiter.hold = result.hold
                if not waiter.patient:
                    _answer(waiter, _held(waiter))
            case Retry():
                waiter.is_claiming = True
                waiter.hold = waiter.hold if result.held is None else result.held.hold
        if len(self._filters) > REMEMBERED_MAX:
            self._filters.clear()
        self._filters[waiter.who] = result.worker_filter

    def give_back(self, leased: tuple[Leased, ...]) -> None:
        """The answer of a poll was not delivered: let its tasks wait again, and refund what they were charged.

        From the last to the first: the refund of a rate relies on it (`rates.returned`).
        """

        async def hand_all_back() -> None:
            for each in reversed(leased):
                await self._hand_back(each)

        self.undo(hand_all_back())

    async def _hand_back(self, leased: Leased) -> None:
        """Hand one task back, again and again while the store fails; an expired lease is left to its sweeper."""
        loop = asyncio.get_running_loop()
        lease_ms = (leased.task.lease_expires_at_ms or 0) - (leased.task.leased_at_ms or 0)
        gives_up_at = loop.time() + lease_ms / 1000
        waits = itertools.chain(HAND_BACK_AGAIN_S, itertools.repeat(HAND_BACK_AGAIN_S[-1]))
        for wait_s in waits:
            try:
                await hand_back(self._ctx, leased)
            except Exception as error:
                if self.is_draining or loop.time() + wait_s >= gives_up_at:
                    log.warning(
                        "a task that was not delivered cannot be handed back; its lease will expire",
                        task_id=leased.task.task_id,
                        error=repr(error),
                    )
                    return
            else:
                return
            await asyncio.sleep(wait_s)

    def undo(self, work: Coroutine[Any, Any, None]) -> None:
        """Run cleanup in the background; `close` waits for it."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _look_again_forever(self) -> None:
        """Claim where tasks are ready; and everywhere now and then, as a sign of life of the workers that poll."""
        loop = asyncio.get_running_loop()
        everywhere_at = 0.0
        while True:
            await asyncio.sleep(until_tick_s(LOOK_AGAIN_S))
            ready, asked = await self._what_waits()
            if everywhere_at <= loop.time():
                everywhere_at = loop.time() + self._ctx.settings.polls.worker_stale_after_ms / 6_000
                ready = list(self._by_queue)
            for queue_id in ready:
                self._wake(queue_id)
            if asked:
                self._ctx.wakeups.notify([query_tasks.topic(*line) for line in asked])

    async def _what_waits(self) -> tuple[Sequence[QueueId], Sequence[QueryQueue]]:
        """The queues with ready tasks, and the queues with pending queries.

        All of them if the store cannot tell, or if queries are unavailable: open polls must learn of it.
        """
        ctx = self._ctx
        queues = [
            queue_id for queue_id, open_ in self._by_queue.items() if open_.waiters and not open_.claiming
        ]
        lines = ctx.query_polls.lines

        async def operation(tx: Tx) -> tuple[Sequence[QueueId], Sequence[QueryQueue]]:
            return await tx.tasks.ready_on(queues), await tx.queries.pending_on(lines, tx.now_ms)

        if not queues and not lines:
            return (), ()
        try:
            ready, asked = await ctx.store.read(operation)
        except Exception as error:
            log.warning(
                "cannot read which queues have ready tasks; claiming for all open polls", error=repr(error)
            )
            return queues, lines
        return ready, asked if ctx.coordination.is_supported() else lines

    async def _yield_forever(self) -> None:
        while True:
            await asyncio.sleep(until_tick_s(YIELD_AFTER_S / YIELD_LOOKS))
            lone = self._lone()
            if lone:
                await self._yield(lone)

    def _lone(self) -> list[_Waiter]:
        """Polls that wait long enough, of workers that do not poll the other kind though they name types of it."""
        opened_by = asyncio.get_running_loop().time() - YIELD_AFTER_S
        kinds = Counter((namespace, worker_id) for namespace, worker_id, _ in self._open)
        if len(kinds) * len(TaskKind) == len(self._open):
            return []
        return [
            waiter
            for open_ in self._by_queue.values()
            for waiter in open_.waiters
            if waiter.patient
            and waiter.serves_other
            and waiter.opened_at <= opened_by
            and waiter.other not in self._open
        ]

    async def _yield(self, waiters: Sequence[_Waiter]) -> None:
        """End early the polls of workers that poll one kind at a time while the other kind has work for them."""

        async def operation(tx: Tx) -> list[bool | None]:
            return [await _other_has_work(tx, waiter) for waiter in waiters]

        try:
            found = await self._ctx.store.read(operation)
        except Exception as error:
            log.warning("cannot read whether the other kind of task is ready", error=repr(error))
            return
        for waiter, has_work in zip(waiters, found, strict=True):
            waiter.serves_other = has_work is not None
            if has_work and waiter.hold is not None and not waiter.is_claiming:
                _answer(waiter, _held(waiter))


async def _other_has_work(tx: Tx, waiter: _Waiter) -> bool | None:
    """Whether there is work of the other kind for the worker of a poll; None where it names no types of it."""
    namespace, worker_id, other = waiter.other
    worker = await tx.workers.get(namespace, worker_id)
    if worker is None or not worker.types(other):
        return None
    worker_filter = dispatch.sticky_filter_for(worker, other)
    for queue in await tx.queues.find(namespace, waiter.poll.task_queue):
        if queue.kind is other and await tx.tasks.any_ready(queue.queue_id, worker_filter):
            return True
    return other is TaskKind.WORKFLOW and await update_validation.waits_for(tx, worker)


def _found_nothing(waiters: Sequence[_Waiter], hold: Hold | None) -> None:
    """Polls behind those that found nothing need no claim: there is nothing for them either."""
    for waiter in waiters:
        waiter.hold = hold or waiter.hold
        if not waiter.patient:
            _answer(waiter, _held(waiter))


def _held(waiter: _Waiter) -> PollAnswer:
    """The answer to a poll that gets nothing; its queue is unknown while no claim has come back."""
    if waiter.hold is None or waiter.is_claiming:
        return UNAVAILABLE
    return PollAnswer((), waiter.hold.poll_status, waiter.hold.reason)


def _out_of_time(open_: _QueuePolls, waiter: _Waiter) -> None:
    """The wait is over. If a claim for the poll is under way or about to begin, its answer is the poll's answer."""
    if open_.claiming and (waiter.is_claiming or waiter.hold is None or open_.claim_again):
        waiter.patient = False
    else:
        _answer(waiter, _held(waiter))


def _answer(waiter: _Waiter, answer: PollAnswer) -> None:
    if not waiter.future.done():
        waiter.future.set_result(answer)


def _refuse(waiter: _Waiter, error: Exception) -> None:
    if not waiter.future.done():
        waiter.future.set_exception(error)
