"""Open polls of this server: they wait here, and one claim serves all that wait on a queue.

Theory of operation
-------------------
A poll that finds nothing stays open (long polling). The dispatcher keeps the open polls of each queue in order
of arrival, and runs at most one claim per queue at a time. The stages of a poll, in the order of this file:

    poll      take a turn (capacity, request id), then attend
    attend    join the open polls of the queue, wake it, wait for the answer or the end of the wait
    _wake     start the serving task of the queue; while it runs, have it claim once more
    _serve    claim for all open polls, group by group, until no claim asks for another
    _deliver  pass the result of a claim on to its poll

A claim (`engine.matching.claim`) answers every poll that it is given:

    Granted   the poll is answered with its tasks
    Refused   the poll fails with the error
    Held      the poll waits on: for the topic of the queue, for the topics of the scopes in the way, or for the timer
              that is set to the moment at which a limit may open. Without time left it is answered with the hold
    Retry     the claim did not look, or did not see everything: another one follows at once

A queue is woken by the arrival of a poll, by a notification, or by the timer. Whatever arrives while a claim runs sets
`claim_again`, so it is followed by exactly one more: a thousand wakeups cost two claims. Polls of one claim must be
interchangeable. They are grouped by the filter of their worker (types and build), which is remembered from the last
claim, and by whether they prefetch. A filter that was remembered wrongly costs one `Retry`.

Nothing here is truth (`wakeups-are-hints`). A wakeup that is lost is made good by a backstop that looks every second,
in one read for all queues; a poll that is lost with the process is sent again by its worker. The backstop also ends
the subscriptions of queues that no poll waits on, so that a worker that polls again at once does not renew them.

Deadlines
---------
A poll ends when its time is over, whatever the database does. If its claim is under way at that moment the poll waits
for it, for at most `LOOK_GRACE_S`: most claims come back with a task that would otherwise have to be handed back. A
poll whose claim does not come back in that time answers `unavailable`, not `empty`, because nothing is known of its
queue. A claim that comes back later finds no poll, so its tasks are handed back: they wait again, and all that their
grants charged is refunded in the same transaction (`core/scheduling/charges.py`). Handing back is repeated until it
succeeds or the leases have expired (`engine.matching.undelivered`). The same is done with the leases of a claim whose
commit got no reply: if it took effect they are handed back, else there is nothing to undo.

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
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import structlog
from msgspec import Struct

from penstock.core.limits.rate_reports import RateReport
from penstock.core.model import Queue, TaskKind
from penstock.core.scheduling import dispatch
from penstock.core.scheduling.cohorts import check_may_poll
from penstock.core.scheduling.dispatch import Hold, HoldReason, PollStatus, WorkerFilter
from penstock.core.scheduling.leases import SeenLimit, Sightings
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
from penstock.engine.activities.death_detection import record_disconnect
from penstock.engine.context import EngineContext
from penstock.engine.limits.rate_reports import report_rate
from penstock.engine.matching import query_tasks, update_validation
from penstock.engine.matching.claim import claim
from penstock.engine.matching.undelivered import hand_all_back
from penstock.engine.runtime.deadlines import LOOK_GRACE_S, Deadline
from penstock.engine.runtime.ticks import until_tick_s
from penstock.errors import Exhausted, PenstockError, Reason
from penstock.ports.store import Tx
from penstock.ports.tables.tasks import QueryQueue
from penstock.ports.wakeups import Topic, queue_topic, scope_topic

LOOK_AGAIN_S = 1.0
YIELD_AFTER_S = 0.5
"""How long a poll stays open before it may be ended early for a worker that polls one kind after the other."""
YIELD_LOOKS = 2
"""How many times in that span open polls are checked."""
POLLS_PER_CLAIM = 100
DISCONNECTED_S = 1.0
"""A worker that closed the connection of its poll and has not polled again for so long counts as dead."""
REMEMBERED_MAX = 10_000
"""Most queues and workers that are cached."""
_NO_WAIT = contextlib.nullcontext()
WorkerKey = tuple[str, str, TaskKind]
"""The namespace and id of a worker, and the kind of task that it polls for."""
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
    """An open poll."""

    poll: Poll
    worker: WorkerKey
    future: asyncio.Future[PollAnswer]
    patient: bool
    """Whether it stays open after a claim found nothing."""
    opened_at: float
    hold: Hold | None = None
    """The hold of the last claim; None: no claim has come back yet."""
    is_claiming: bool = False
    """Whether a claim for this poll is under way, or follows at once because the last one did not see everything."""
    serves_other: bool = True
    """Whether its worker names types of the other kind too, as far as is known."""

    @property
    def other(self) -> WorkerKey:
        """Its worker, by the other kind of task."""
        other = TaskKind.ACTIVITY if self.poll.kind is TaskKind.WORKFLOW else TaskKind.WORKFLOW
        return self.poll.namespace, self.poll.worker_id, other


@dataclass(eq=False, slots=True)
class _QueuePolls:
    """The open polls of one queue, and whether a claim is under way for them."""

    queue: Queue
    since: float
    """When this server began to know the queue."""
    waiters: dict[_Waiter, None] = field(default_factory=dict)
    claiming: bool = False
    claim_again: bool = False
    unsubscribe: Callable[[], None] | None = None
    """Ends the subscription to the topic of the queue; None: there is none."""
    timer: asyncio.TimerHandle | None = None
    """Fires when a limit that is in the way may open."""
    limit: SeenLimit | None = None
    """The limit that was in the way last: it held back the tasks that waited then."""
    scopes: dict[Topic, Callable[[], None]] = field(default_factory=dict)
    """The topics of scopes that are in the way, each with its function to unsubscribe."""

    @property
    def is_idle(self) -> bool:
        return not self.waiters and not self.claiming


@dataclass(eq=False, slots=True)
class _Turn:
    """Whose turn it is among polls with one request id."""

    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    waiting: int = 0


class Dispatcher:
    """Holds the open polls of this server."""

    def __init__(self, ctx: EngineContext) -> None:
        self._ctx = ctx
        self._queues: dict[tuple[str, str, TaskKind], _QueuePolls] = {}
        """By namespace, name and kind: queues with open polls, and those that had some before."""
        self._filters: dict[WorkerKey, WorkerFilter] = {}
        self._open: Counter[WorkerKey] = Counter()
        self._turns: dict[tuple[str, str, str, TaskKind, str], _Turn] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._draining = asyncio.Event()
        self._backstops: list[asyncio.Task[None]] = []

    @property
    def open_polls(self) -> int:
        return self._open.total()

    @property
    def draining(self) -> asyncio.Event:
        """Set once open polls are to end."""
        return self._draining

    @property
    def is_draining(self) -> bool:
        return self._draining.is_set()

    def start(self) -> None:
        self._backstops = [
            asyncio.create_task(self._look_again_forever(), name="penstock-dispatch-backstop"),
            asyncio.create_task(self._yield_forever(), name="penstock-dispatch-yields"),
        ]

    def drain(self) -> None:
        """End every open poll; polls that arrive from here on get one look and no wait.

        A poll whose claim is under way gets the answer of that claim, as when its time is over.
        """
        self._draining.set()
        for polls in self._queues.values():
            for waiter in list(polls.waiters):
                _out_of_time(polls, waiter)
                if not waiter.future.done():
                    asyncio.get_running_loop().call_later(LOOK_GRACE_S, _answer, waiter, UNAVAILABLE)

    async def close(self) -> None:
        self.drain()
        for backstop in self._backstops:
            backstop.cancel()
        await asyncio.gather(*self._backstops, return_exceptions=True)
        while self._tasks:  # a claim that ends now may still have something to hand back
            await asyncio.wait(self._tasks)
        self._release_idle()

    def run_in_background(self, work: Coroutine[Any, Any, None]) -> None:
        """Run a claim or cleanup; `close` waits for it."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # ── A poll: take a turn, join the polls of the queue, wait ──────────────────────────────────────────────

    async def poll(self, poll: Poll, wait_ms: int) -> PollAnswer:
        """Lease tasks to the caller, or return why not when the wait is over.

        When the caller goes away (this coroutine is cancelled), it gets no task; one that was leased to it in
        that instant waits again.

        Raises:
            Unavailable: the database cannot be used, or did not return the queue in time.
        """
        async with self.turn(poll, wait_ms) as deadline:
            return await self.attend(poll, deadline)

    @contextlib.asynccontextmanager
    async def turn(self, poll: Poll, wait_ms: int) -> AsyncIterator[Deadline]:
        """The time in which a poll is open, and no other one with its request id is attended to."""
        if self._open.total() >= self._ctx.settings.polls.long_polls_max:
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
        worker, deadline = (poll.namespace, poll.worker_id, poll.kind), Deadline(wait_ms)
        self._open[worker] += 1
        try:
            alone = self._one_per_request(poll, poll.poll_request_id) if poll.poll_request_id else _NO_WAIT
            async with deadline.kept(), alone:
                yield deadline
        except asyncio.CancelledError:
            if deadline.left_ms:  # else this side ended it
                self._disconnected(poll)
            raise
        finally:
            self._open[worker] -= 1
            if not self._open[worker]:
                del self._open[worker]

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
        """The answer to a poll whose turn it is."""
        name = (poll.namespace, poll.task_queue, poll.kind)
        polls = self._queues.get(name) or await self._open_queue(poll)
        if poll.activities_per_second_micro is not None and poll.kind is TaskKind.ACTIVITY:
            word = RateReport(poll.activities_per_second_micro, poll.worker_id, poll.activities_burst_ms)
            await report_rate(self._ctx, poll.namespace, poll.task_queue, word)
            polls = self._queues.setdefault(name, polls)  # meanwhile it may have been forgotten as idle
        loop = asyncio.get_running_loop()
        wait_ms = 0 if self._draining.is_set() else deadline.left_ms
        worker = (poll.namespace, poll.worker_id, poll.kind)
        waiter = _Waiter(poll, worker, loop.create_future(), wait_ms > 0, loop.time())
        polls.waiters[waiter] = None
        if polls.unsubscribe is None:
            polls.unsubscribe = self._subscribe(queue_topic(polls.queue.queue_id), polls)
        self._wake(polls)
        ending = loop.call_later(wait_ms / 1000, _out_of_time, polls, waiter)
        unanswered = loop.call_later(wait_ms / 1000 + LOOK_GRACE_S, _answer, waiter, UNAVAILABLE)
        try:
            return await waiter.future
        except asyncio.CancelledError:
            self._hung_up(waiter)
            raise
        finally:
            ending.cancel()
            unanswered.cancel()
            del polls.waiters[waiter]

    async def _open_queue(self, poll: Poll) -> _QueuePolls:
        """The polls of a queue that is not cached; only a worker that may poll it creates a new one."""
        name = namespace, task_queue, kind = poll.namespace, poll.task_queue, poll.kind

        async def operation(tx: Tx) -> Queue:
            worker = await tx.workers.get(namespace, poll.worker_id)
            intents = {each.build_id: each for each in await tx.cohorts.list(namespace, task_queue)}
            check_may_poll(worker, poll.worker_id, task_queue, poll.build_id, intents)
            return await tx.queues.ensure(namespace, task_queue, kind)

        queue = await self._ctx.store.transact(operation, key=f"queue:{namespace}:{task_queue}:{kind}")
        return self._queues.setdefault(name, _QueuePolls(queue, asyncio.get_running_loop().time()))

    def _subscribe(self, topic: Topic, polls: _QueuePolls) -> Callable[[], None]:
        """Claim when a topic is notified; before its commit, where the claim can be committed with it."""
        return self._ctx.wakeups.listen(topic, partial(self._wake, polls), before_commit=True)

    # ── One serving task per queue: claim for all open polls ────────────────────────────────────────────────

    def _wake(self, polls: _QueuePolls) -> None:
        """Start a claim for the open polls; if one is under way, have another follow it."""
        if not polls.waiters:
            return
        if polls.claiming:
            polls.claim_again = True
            return
        polls.claiming = True
        self.run_in_background(self._serve(polls))

    async def _serve(self, polls: _QueuePolls) -> None:
        """Claim for the open polls of a queue until no claim asks for another."""
        try:
            polls.claim_again = True
            while polls.claim_again and polls.waiters:
                polls.claim_again = False
                await self._serve_once(polls)
        except PenstockError as refusal:
            for waiter in list(polls.waiters):
                _refuse(waiter, refusal.with_details())
        except Exception as error:
            log.exception("a claim failed", queue_id=polls.queue.queue_id)
            for waiter in list(polls.waiters):
                _refuse(waiter, error)
        finally:
            polls.claiming = False
            if polls.claim_again:
                self._wake(polls)

    async def _serve_once(self, polls: _QueuePolls) -> None:
        """One claim per group of interchangeable polls; the filter of a worker that has none yet is not known."""
        groups: dict[tuple[WorkerFilter | WorkerKey, bool], list[_Waiter]] = {}
        for waiter in polls.waiters:
            if not waiter.future.done():
                known = self._filters.get(waiter.worker) or waiter.worker
                groups.setdefault((known, waiter.poll.claim_lease_ms is not None), []).append(waiter)
        topics: dict[Topic, None] = {}
        for (known, _), members in groups.items():
            worker_filter = known if isinstance(known, WorkerFilter) else None
            for start in range(0, len(members), POLLS_PER_CLAIM):
                behind = members[start + POLLS_PER_CLAIM :]
                served = members[start : start + POLLS_PER_CLAIM]
                if not await self._claim(polls, served, worker_filter, topics):
                    _found_nothing(behind, served[-1].hold)
                    break
        if topics or polls.scopes:
            self._subscribe_scopes(polls, topics)

    async def _claim(
        self,
        polls: _QueuePolls,
        waiters: Sequence[_Waiter],
        worker_filter: WorkerFilter | None,
        topics: dict[Topic, None],
    ) -> bool:
        """Claim for interchangeable polls; returns whether there may be something for polls behind them.

        The topics of scopes that are in the way are added to `topics`.
        """
        others = False
        while waiters:
            now, asked, open_for_ms = asyncio.get_running_loop().time(), list[Poll](), list[int]()
            for waiter in waiters:
                waiter.is_claiming = True
                asked.append(waiter.poll)
                open_for_ms.append(round((now - waiter.opened_at) * 1000))
            claimed_at = time.monotonic()
            try:
                seen = Sightings(open_for_ms, round((now - polls.since) * 1000), polls.limit)
                results = await claim(
                    self._ctx, polls.queue.queue_id, asked, worker_filter, self.give_back, seen
                )
            finally:
                for waiter in waiters:
                    waiter.is_claiming = False
            for waiter, result in zip(waiters, results, strict=True):
                others = self._deliver(polls, waiter, result, claimed_at, topics) or others
            waiters = [
                waiter
                for waiter, result in zip(waiters, results, strict=True)
                if isinstance(result, Retry) and result.reason is RetryReason.SERVED_APART
            ]
        return others

    def _deliver(
        self,
        polls: _QueuePolls,
        waiter: _Waiter,
        result: ClaimResult,
        claimed_at: float,
        topics: dict[Topic, None],
    ) -> bool:
        """Pass the result of a claim on to its poll, and remember the filter of the worker.

        Returns whether there may be something for polls behind it.
        """
        others = True
        match result:
            case Refused():
                self._filters.pop(waiter.worker, None)
                _refuse(waiter, result.error)
                return True
            case Granted() if waiter.future.done():
                self.give_back(result.leased)
            case Granted():
                waiter.future.set_result(PollAnswer(result.leased, PollStatus.LEASED, claimed_at=claimed_at))
                self._ctx.starts.delivered(polls.queue.queue_id, result.leased)
            case Held():
                others = result.others_may_be_served
                self._hold(polls, waiter, result, topics)
                if not waiter.patient:
                    _answer(waiter, _held(waiter))
            case Retry():
                others = result.reason is not RetryReason.SERVED_APART
                polls.claim_again = polls.claim_again or others
                if result.held is not None:
                    self._hold(polls, waiter, result.held, topics)
                waiter.is_claiming = True
        if len(self._filters) > REMEMBERED_MAX:
            self._filters.clear()
        self._filters[waiter.worker] = result.worker_filter
        return others

    def _hold(self, polls: _QueuePolls, waiter: _Waiter, held: Held, topics: dict[Topic, None]) -> None:
        """Look again when a limit that is in the way may open: by the clock, or by the topic of its scope."""
        waiter.hold = held.hold
        if held.hold.poll_status is PollStatus.THROTTLED:
            polls.limit = SeenLimit(held.hold.reason, held.at_ms)
        topics |= {scope_topic(scope_id): None for scope_id in held.scope_ids}
        if held.retry_in_ms is None:
            return
        loop = asyncio.get_running_loop()
        fires_at = loop.time() + min(held.retry_in_ms / 1000, LOOK_AGAIN_S)
        if polls.timer is not None:
            if loop.time() < polls.timer.when() <= fires_at:
                return
            polls.timer.cancel()
        polls.timer = loop.call_at(fires_at, self._wake, polls)

    def _subscribe_scopes(self, polls: _QueuePolls, topics: Iterable[Topic]) -> None:
        """Subscribe to the scopes that are in the way and to no others.

        Another claim follows a new subscription: the topic may have been notified before.
        """
        wanted = dict.fromkeys(topics)
        for topic in [topic for topic in polls.scopes if topic not in wanted]:
            polls.scopes.pop(topic)()
        for topic in [topic for topic in wanted if topic not in polls.scopes]:
            polls.scopes[topic] = self._subscribe(topic, polls)
            polls.claim_again = True

    # ── Callers that disconnect ─────────────────────────────────────────────────────────────────────────────

    def _hung_up(self, waiter: _Waiter) -> None:
        """The caller is gone: hand back what it was granted in this very moment."""
        done = waiter.future.done() and not waiter.future.cancelled() and waiter.future.exception() is None
        if done and waiter.future.result().leased:
            self.give_back(waiter.future.result().leased)
        waiter.future.cancel()

    def give_back(self, leased: tuple[Leased, ...]) -> None:
        """The answer of a poll was not delivered: let its tasks wait again, and refund what they were charged."""
        self.run_in_background(hand_all_back(self._ctx, leased, self._draining))

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
        self.run_in_background(self._record_disconnect(namespace, worker_id))

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

    # ── The backstop ────────────────────────────────────────────────────────────────────────────────────────

    async def _look_again_forever(self) -> None:
        """Claim where tasks are ready; and everywhere now and then, as a sign of life of the workers that poll."""
        loop = asyncio.get_running_loop()
        everywhere_at = 0.0
        while True:
            await asyncio.sleep(until_tick_s(LOOK_AGAIN_S))
            self._release_idle()
            ready, asked = await self._what_waits()
            if everywhere_at <= loop.time():
                everywhere_at = loop.time() + self._ctx.settings.polls.worker_stale_after_ms / 6_000
                ready = list(self._queues.values())
            for polls in ready:
                self._wake(polls)
            if asked:
                self._ctx.wakeups.notify([query_tasks.topic(*line) for line in asked])

    def _release_idle(self) -> None:
        """End the subscriptions of queues without open polls; forget those queues if too many are cached."""
        idle = [(name, polls) for name, polls in self._queues.items() if polls.is_idle]
        for name, polls in idle:
            if polls.unsubscribe is not None:
                polls.unsubscribe()
                polls.unsubscribe = None
            self._subscribe_scopes(polls, ())
            if polls.timer is not None:
                polls.timer.cancel()
                polls.timer = None
            if len(self._queues) > REMEMBERED_MAX:
                del self._queues[name]

    async def _what_waits(self) -> tuple[Sequence[_QueuePolls], Sequence[QueryQueue]]:
        """The queues with ready tasks, and the queues with pending queries.

        All of them if the store cannot tell, or if queries are unavailable: open polls must learn of it.
        """
        ctx = self._ctx
        queues = {
            polls.queue.queue_id: polls
            for polls in self._queues.values()
            if polls.waiters and not polls.claiming
        }
        lines = ctx.query_polls.lines

        async def operation(tx: Tx) -> tuple[Sequence[_QueuePolls], Sequence[QueryQueue]]:
            ready = await tx.tasks.ready_on(list(queues))
            return [queues[queue_id] for queue_id in ready], await tx.queries.pending_on(lines, tx.now_ms)

        if not queues and not lines:
            return (), ()
        try:
            ready, asked = await ctx.store.read(operation)
        except Exception as error:
            log.warning(
                "cannot read which queues have ready tasks; claiming for all open polls", error=repr(error)
            )
            return list(queues.values()), lines
        return ready, asked if ctx.coordination.is_supported else lines

    # ── Early ends ──────────────────────────────────────────────────────────────────────────────────────────

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
            for polls in self._queues.values()
            for waiter in polls.waiters
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


def _out_of_time(polls: _QueuePolls, waiter: _Waiter) -> None:
    """The wait is over. If a claim for the poll is under way or about to begin, its answer is the poll's answer."""
    if polls.claiming and (waiter.is_claiming or waiter.hold is None or polls.claim_again):
        waiter.patient = False
    else:
        _answer(waiter, _held(waiter))


def _answer(waiter: _Waiter, answer: PollAnswer) -> None:
    if not waiter.future.done():
        waiter.future.set_result(answer)


def _refuse(waiter: _Waiter, error: Exception) -> None:
    if not waiter.future.done():
        waiter.future.set_exception(error)
