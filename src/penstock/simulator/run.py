"""One run: the heap of events, and claims for the queues in which something may go on.

Events of one instant are carried out in a fixed order (`_Rank`): changes of limits, workers that join, ends of tasks,
retries, arrivals, workers that leave or die. Then every queue that one of them concerns is claimed for, until nothing
more is granted. A claim that is held sets an event for the moment at which its limit may open.

The engine returns exactly what a server would; this module only keeps what it needs to know whom to ask next: how many
tasks wait in each queue, and which workers have free slots. A run with the same workload makes the same claims in the
same order.
"""

from __future__ import annotations

import heapq
import itertools
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from functools import partial
from typing import Any

from penstock.core.model import Queue, RunId, Task, TaskId, TaskState
from penstock.core.scheduling.dispatch import HoldReason
from penstock.core.scheduling.polls import TASKS_PER_POLL_MAX, Granted, Held, Leased, Poll, Refused, Retry
from penstock.ports.wakeups import queue_topic, scope_topic
from penstock.simulator.engine_driver import NAMESPACE, EngineDriver, SimulationHost
from penstock.simulator.measures import HeldBackBy, Measures, QueueName
from penstock.simulator.workload import SimulatedArrival, WorkerPool, Workload
from penstock.wire.limits.limit_paths import LimitSettings, requests_for

POLLS_PER_CLAIM = 100
_CAUSES = {
    HoldReason.PAUSED: HeldBackBy.PAUSED,
    HoldReason.QUEUE_RATE: HeldBackBy.QUEUE_RATE,
    HoldReason.QUEUE_LEASE_CAP: HeldBackBy.QUEUE_LEASE_CAP,
    HoldReason.QUEUE_DISPATCHES: HeldBackBy.QUEUE_DISPATCHES,
    HoldReason.KEY_LIMITS: HeldBackBy.KEY_LIMITS,
    HoldReason.SCOPE_PAUSED: HeldBackBy.SCOPE_PAUSED,
    HoldReason.SCOPE_LEASE_CAP: HeldBackBy.SCOPE_LEASE_CAP,
    HoldReason.SCOPE_DISPATCHES: HeldBackBy.SCOPE_DISPATCHES,
    HoldReason.SCOPE_COST: HeldBackBy.SCOPE_COST,
    HoldReason.COOLING: HeldBackBy.COOLING,
    HoldReason.SLOTS: HeldBackBy.SLOTS,
}
Progress = Callable[[int, int], None]
"""Called now and then with the number of tasks that have ended, and of all tasks."""


class _Rank(IntEnum):
    """The order of events of one instant."""

    LIMITS = 0
    JOIN = 1
    END = 2
    RETRY = 3
    LOOK = 4
    LEAVE = 5


@dataclass(slots=True)
class _SimulatedTask:
    """A task that has arrived."""

    arrival: SimulatedArrival
    queue: _SimulatedQueue
    ready_at_ms: int
    ended_attempts: int = 0


@dataclass(slots=True, eq=False)
class _SimulatedWorker:
    worker_id: str
    pool: WorkerPool
    free: int
    leases: dict[TaskId, Leased] = field(default_factory=dict)
    takes: bool = True
    """Whether it still polls."""


@dataclass(slots=True, eq=False)
class _SimulatedQueue:
    name: QueueName
    row: Queue
    groups: dict[tuple[str, ...], list[_SimulatedWorker]] = field(default_factory=dict)
    """Its workers by the types that they take."""
    looks_at_ms: int | None = None
    scopes: set[int] = field(default_factory=set)
    """Scopes whose limits held it when it was last claimed for."""
    forget: list[Callable[[], None]] = field(default_factory=list)

    @property
    def workers(self) -> list[_SimulatedWorker]:
        return [worker for group in self.groups.values() for worker in group]


class Simulation:
    """Runs one workload on an assembled engine, which must be new."""

    def __init__(self, host: SimulationHost, workload: Workload, on_progress: Progress | None = None) -> None:
        """Prepare a run; `run` carries it out.

        Args:
            host: the engine, with nothing in its store.
            workload: what arrives, who works, and under which limits.
            on_progress: is told how far it is.
        """
        self._driver, self._wakeups = EngineDriver(host), host.ctx.wakeups
        self._workload, self._on_progress = workload, on_progress
        self.measures = Measures()
        self._events: list[tuple[int, int, int, Callable[[], Any]]] = []
        self._numbers = itertools.count()
        self._queues: dict[QueueName, _SimulatedQueue] = {}
        self._tasks: dict[RunId, _SimulatedTask] = {}
        self._dirty: dict[_SimulatedQueue, None] = {}
        self._ends: list[tuple[_SimulatedWorker, Leased]] = []
        self._next_arrival = self._completed = 0
        self._open = [index for index, each in enumerate(workload.arrivals) if each.after is None]
        """Arrivals that come at their time, by their place in the workload."""
        self._caused: list[tuple[int, int]] = []
        """A heap of arrivals whose cause has ended: when they come, and their place in the workload."""
        self._causes: defaultdict[int, list[int]] = defaultdict(list)
        for index, each in enumerate(workload.arrivals):
            if each.after is not None:
                self._causes[each.after].append(index)
        self._index: dict[RunId, int] = {}

    @property
    def grants(self) -> list[tuple[int, int]]:
        """Each grant: its time, and the place of the task among the arrivals."""
        found = self.measures.dispatches
        return list(zip(found[::3], found[1::3], strict=True))

    async def run(self) -> Measures:
        """Carry out all events until the end of the workload, and return what was measured."""
        self._driver.move_to(self._workload.start_ms)
        self._plan()
        while (at_ms := self._next_ms()) is not None and at_ms <= self._workload.until_ms:
            self._driver.move_to(self._workload.start_ms + at_ms)
            self.measures.advance(at_ms)
            await self._carry_out(at_ms)
            await self._claim_for_all()
            self._report_progress()
            if self._workload.until_clear and at_ms and self.measures.is_clear:
                break
        for queue in self._queues.values():
            _unsubscribe(queue)
        self.measures.finish()
        return self.measures

    def _plan(self) -> None:
        for limits in self._workload.limits:
            self._at(limits.at_ms, _Rank.LIMITS, partial(self._change_limits, limits))
        for number, pool in enumerate(self._workload.pools):
            for each in range(pool.count):
                worker = _SimulatedWorker(f"w{number}-{each}", pool, pool.slots)
                self._at(pool.joins_ms, _Rank.JOIN, partial(self._join, worker))
                if pool.leaves_ms is not None:
                    self._at(pool.leaves_ms, _Rank.LEAVE, partial(self._leave, worker))
                if pool.dies_ms is not None:
                    self._at(pool.dies_ms, _Rank.LEAVE, partial(self._die, worker))

    def _at(self, at_ms: int, rank: _Rank, event: Callable[[], Any]) -> None:
        heapq.heappush(self._events, (at_ms, rank, next(self._numbers), event))

    def _next_ms(self) -> int | None:
        found = [self._events[0][0]] if self._events else []
        if self._next_arrival < len(self._open):
            found.append(self._workload.arrivals[self._open[self._next_arrival]].at_ms)
        if self._caused:
            found.append(self._caused[0][0])
        return min(found, default=None)

    async def _carry_out(self, at_ms: int) -> None:
        """Carry out what happens at this instant; arrivals come after ends and retries, and before departures."""
        while self._events and self._events[0][0] == at_ms and self._events[0][1] < _Rank.LEAVE:
            await _done(heapq.heappop(self._events)[3]())
        await self._report_ends()
        await self._arrive(at_ms)
        while self._events and self._events[0][0] == at_ms:
            await _done(heapq.heappop(self._events)[3]())
        await self._report_ends()

    # ── Workers and limits ──────────────────────────────────────────────────────────────────────────────

    async def _change_limits(self, limits: LimitSettings) -> None:
        for path, body in requests_for(limits):
            await self._driver.configure(path, body)
        self._dirty.update(dict.fromkeys(self._queues.values()))

    async def _join(self, worker: _SimulatedWorker) -> None:
        queue = await self._queue((worker.pool.queue, worker.pool.kind))
        await self._driver.register(worker.worker_id, worker.pool)
        queue.groups.setdefault(worker.pool.types, []).append(worker)
        self.measures.queue(queue.name).slots += worker.pool.slots
        self._dirty[queue] = None

    def _leave(self, worker: _SimulatedWorker) -> None:
        """Take no more tasks; those that run are finished."""
        if worker.takes:
            worker.takes = False
            self.measures.queue((worker.pool.queue, worker.pool.kind)).slots -= worker.pool.slots

    def _die(self, worker: _SimulatedWorker) -> None:
        """Stop at once. The leases are held until they would expire; the tasks wait again from then on."""
        self._leave(worker)
        lost, worker.leases = list(worker.leases.values()), {}
        back_ms = self.measures.now_ms + self._workload.lease_ms
        self._at(back_ms, _Rank.RETRY, partial(self._take_back, worker, lost))

    async def _take_back(self, worker: _SimulatedWorker, lost: Sequence[Leased]) -> None:
        await self._driver.deregister(worker.worker_id)
        for leased in lost:
            simulated = self._tasks[leased.task.run_id]
            self.measures.ended(simulated.queue.name, simulated.arrival.key)
            self._ready(simulated)

    async def _queue(self, name: QueueName) -> _SimulatedQueue:
        found = self._queues.get(name)
        if found is None:
            found = self._queues[name] = _SimulatedQueue(name, await self._driver.queue(*name))
            mark = partial(self._dirty.__setitem__, found, None)
            found.forget.append(self._wakeups.listen(queue_topic(found.row.queue_id), mark))
        return found

    # ── Tasks ───────────────────────────────────────────────────────────────────────────────────────────

    async def _arrive(self, at_ms: int) -> None:
        indices = self._arriving(at_ms)
        if not indices:
            return
        arriving = [self._workload.arrivals[index] for index in indices]
        queues = [await self._queue((each.queue, each.kind)) for each in arriving]
        runs = await self._driver.start(arriving)
        for index, arrival, queue, run_id in zip(indices, arriving, queues, runs, strict=True):
            simulated = self._tasks[run_id] = _SimulatedTask(arrival, queue, at_ms)
            self._index[run_id] = index
            self.measures.queue(queue.name).key(arrival.key).arrived += 1
            self._ready(simulated)

    def _arriving(self, at_ms: int) -> list[int]:
        """The arrivals of this instant, in the order of the workload."""
        arrivals, found = self._workload.arrivals, list[int]()
        while self._next_arrival < len(self._open):
            index = self._open[self._next_arrival]
            if arrivals[index].at_ms > at_ms:
                break
            found.append(index)
            self._next_arrival += 1
        while self._caused and self._caused[0][0] <= at_ms:
            found.append(heapq.heappop(self._caused)[1])
        return sorted(found)

    def _ready(self, simulated: _SimulatedTask) -> None:
        simulated.ready_at_ms = self.measures.now_ms
        self.measures.ready(simulated.queue.name, simulated.arrival.key)
        self._dirty[simulated.queue] = None

    def _begin(self, worker: _SimulatedWorker, leased: Leased) -> None:
        simulated = self._tasks[leased.task.run_id]
        arrival, now_ms = simulated.arrival, self.measures.now_ms
        wait_ms = now_ms - simulated.ready_at_ms
        self.measures.dispatched(simulated.queue.name, arrival.key, self._index[leased.task.run_id], wait_ms)
        worker.free -= 1
        worker.leases[leased.task.task_id] = leased
        attempt = arrival.attempts[min(simulated.ended_attempts, len(arrival.attempts) - 1)]
        self._at(now_ms + attempt.duration_ms, _Rank.END, partial(self._end, worker, leased))

    def _end(self, worker: _SimulatedWorker, leased: Leased) -> None:
        """Note an end, to be reported with the others of this instant; a worker that has died reports nothing."""
        if worker.leases.get(leased.task.task_id) is leased:
            self._ends.append((worker, leased))

    async def _report_ends(self) -> None:
        ends, self._ends = self._ends, []
        if not ends:
            return
        fails: list[tuple[Leased, bool]] = []
        for _, leased in ends:
            simulated = self._tasks[leased.task.run_id]
            attempts = simulated.arrival.attempts
            fails.append((leased, attempts[min(simulated.ended_attempts, len(attempts) - 1)].fails))
        tasks = await self._driver.report(fails)
        for (worker, leased), (_, failed), task in zip(ends, fails, tasks, strict=True):
            worker.free += 1
            del worker.leases[leased.task.task_id]
            self._ended(leased, task, failed=failed)

    def _ended(self, leased: Leased, task: Task, *, failed: bool) -> None:
        simulated = self._tasks[leased.task.run_id]
        queue, key = simulated.queue, simulated.arrival.key
        of_key = self.measures.queue(queue.name).key(key)
        self.measures.ended(queue.name, key)
        self._dirty[queue] = None
        simulated.ended_attempts += 1
        if not failed:
            of_key.completed += 1
            self._completed += 1
            del self._tasks[leased.task.run_id]
            self._cause(self._index.pop(leased.task.run_id))
            return
        of_key.failed_attempts += 1
        if task.state is TaskState.READY:
            self._ready(simulated)
        elif task.state is TaskState.DELAYED:
            self._retry_at(task)

    def _cause(self, index: int) -> None:
        """Have what this end causes arrive after its think time."""
        for follower in self._causes.pop(index, ()):
            think_ms = self._workload.arrivals[follower].think_ms
            heapq.heappush(self._caused, (self.measures.now_ms + think_ms, follower))

    def _retry_at(self, task: Task) -> None:
        at_ms = max(task.available_at_ms - self._workload.start_ms, self.measures.now_ms)
        self._at(at_ms, _Rank.RETRY, partial(self._retry, task.task_id))

    async def _retry(self, task_id: TaskId) -> None:
        """The pause before a retry is over; the retry budget of the queue may make it longer."""
        await self._driver.make_due_tasks_ready()
        task = await self._driver.task(task_id)
        if task.state is TaskState.DELAYED:
            self._retry_at(task)
        else:
            self._ready(self._tasks[task.run_id])

    # ── Claims ──────────────────────────────────────────────────────────────────────────────────────────

    async def _claim_for_all(self) -> None:
        while self._dirty:
            queue = next(iter(self._dirty))
            del self._dirty[queue]
            await self._claim_for(queue)

    async def _claim_for(self, queue: _SimulatedQueue) -> None:
        """Claim until nothing more is granted, and note what is in the way."""
        measured = self.measures.queue(queue.name)
        causes = [await self._claim_for_group(queue, group) for group in queue.groups.values()]
        if not measured.waiting:
            return
        limits = [each for each in causes if each not in (HeldBackBy.SLOTS, HeldBackBy.NO_WORKER_FOR_TYPE)]
        takes = any(worker.takes for worker in queue.workers)
        if limits and limits[0] is not None:
            measured.cause = limits[0]
        elif not takes:
            measured.cause = HeldBackBy.NO_WORKER
        else:
            measured.cause = HeldBackBy.SLOTS if HeldBackBy.SLOTS in causes else HeldBackBy.NO_WORKER_FOR_TYPE

    async def _claim_for_group(
        self, queue: _SimulatedQueue, group: list[_SimulatedWorker]
    ) -> HeldBackBy | None:
        """Claim for workers that take the same types; returns what holds the tasks that are left."""
        measured = self.measures.queue(queue.name)
        while measured.waiting:
            asking = _asking(group, measured.waiting)
            if not asking:
                return HeldBackBy.SLOTS
            polls = [_poll(worker, queue) for worker in asking]
            results = await self._driver.claim(queue.row.queue_id, polls)
            again, held = False, None
            for worker, result in zip(asking, results, strict=True):
                match result:
                    case Granted():
                        again = True
                        for leased in result.leased:
                            self._begin(worker, leased)
                    case Retry():
                        again = True
                    case Held():
                        held = held or result
                    case Refused():
                        raise result.error
            if held is not None and (not again or held.hold.reason is not HoldReason.EMPTY):
                self._note_hold(queue, held)
                return _CAUSES.get(held.hold.reason, HeldBackBy.NO_WORKER_FOR_TYPE)
        return None

    def _note_hold(self, queue: _SimulatedQueue, held: Held) -> None:
        for scope_id in set(held.scope_ids) - queue.scopes:
            mark = partial(self._dirty.__setitem__, queue, None)
            queue.forget.append(self._wakeups.listen(scope_topic(scope_id), mark))
            queue.scopes.add(scope_id)
        if held.retry_in_ms is None:
            return
        at_ms = self.measures.now_ms + max(1, held.retry_in_ms)
        if queue.looks_at_ms is None or at_ms < queue.looks_at_ms:
            queue.looks_at_ms = at_ms
            self._at(at_ms, _Rank.LOOK, partial(self._look, queue, at_ms))

    def _look(self, queue: _SimulatedQueue, at_ms: int) -> None:
        if queue.looks_at_ms == at_ms:
            queue.looks_at_ms = None
            self._dirty[queue] = None

    def _report_progress(self) -> None:
        if self._on_progress is not None:
            self._on_progress(self._completed, len(self._workload.arrivals))


async def _done(result: Any) -> None:
    if result is not None:
        await result


def _asking(group: Sequence[_SimulatedWorker], waiting: int) -> list[_SimulatedWorker]:
    """Workers with free slots, as many as the waiting tasks can use; those with the most free slots first."""
    able = sorted((each for each in group if each.takes and each.free), key=lambda each: -each.free)
    found: list[_SimulatedWorker] = []
    room = 0
    for each in able[:POLLS_PER_CLAIM]:
        if room >= waiting:
            break
        found.append(each)
        room += min(each.free, TASKS_PER_POLL_MAX)
    return found


def _poll(worker: _SimulatedWorker, queue: _SimulatedQueue) -> Poll:
    name, kind = queue.name
    tasks_max = min(worker.free, TASKS_PER_POLL_MAX)
    return Poll(NAMESPACE, worker.worker_id, name, kind, tasks_max=tasks_max, history_page=1)


def _unsubscribe(queue: _SimulatedQueue) -> None:
    for forget in queue.forget:
        forget()
