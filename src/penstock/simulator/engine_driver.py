"""The engine as a simulation uses it: starts, claims, reports and changes of limits, on a clock that it moves."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from msgspec import Struct

from penstock.core.history.commands import CompleteWorkflow, ScheduleActivity
from penstock.core.model import (
    Blob,
    PriorityOverride,
    Queue,
    QueueId,
    RetrySchedule,
    RunId,
    Task,
    TaskId,
    TaskKind,
    TaskPriority,
)
from penstock.core.scheduling.leases import Report
from penstock.core.scheduling.polls import ClaimResult, Leased, Poll
from penstock.engine.activities import activity_reports
from penstock.engine.activities.activity_reports import AttemptFailure
from penstock.engine.context import EngineContext
from penstock.engine.maintenance.sweepers.due_tasks import due_tasks
from penstock.engine.matching.claim import claim
from penstock.engine.workers import worker_registry
from penstock.engine.workers.worker_registry import Registration
from penstock.engine.workflows import starts, workflow_reports
from penstock.engine.workflows.starts import STANDALONE_TYPE, Start
from penstock.ports.store import Transaction
from penstock.simulator.workload import SimulatedArrival, WorkerPool

T = TypeVar("T")
NAMESPACE = "default"
NOTHING = Blob("")
RETRIES_MAX = 1_000_000
STARTS_AT_ONCE = 256


class SimulatedClock:
    """A clock that stands still until the next event."""

    def __init__(self, start_ms: int) -> None:
        self._now_ms = start_ms

    def now_ms(self) -> int:
        return self._now_ms

    def move_to(self, at_ms: int) -> None:
        self._now_ms = max(self._now_ms, at_ms)


class SimulationHost(Struct, frozen=True):
    """An assembled engine on an ephemeral store, and its API for changes of limits."""

    ctx: EngineContext
    clock: SimulatedClock
    request: Callable[[str, str, Mapping[str, Any]], Awaitable[Any]]
    """Sends a request to the API: method, path below `/api`, body. Raises what the server refuses."""


class EngineDriver:
    """Carries out the events of a simulation by operations of the engine."""

    def __init__(self, host: SimulationHost) -> None:
        self.ctx, self._clock, self._request = host.ctx, host.clock, host.request
        self._due_tasks = due_tasks(host.ctx)

    def move_to(self, at_ms: int) -> None:
        self._clock.move_to(at_ms)

    async def queue(self, name: str, kind: TaskKind) -> Queue:
        return await self.ctx.store.transact(
            lambda tx: tx.queues.ensure(NAMESPACE, name, kind), key=f"queue:{name}"
        )

    async def configure(self, path: str, settings: Mapping[str, Any]) -> None:
        await self._request("PATCH", path, settings)

    async def register(self, worker_id: str, pool: WorkerPool) -> None:
        is_activity = pool.kind is TaskKind.ACTIVITY
        await worker_registry.register(
            self.ctx,
            Registration(
                NAMESPACE,
                worker_id,
                pool.queue,
                "python",
                activity_types=pool.types if is_activity else (),
                workflow_types=() if is_activity else pool.types,
                workflow_slots=pool.slots,
                activity_slots=pool.slots,
            ),
        )

    async def start(self, arrivals: Sequence[SimulatedArrival]) -> list[RunId]:
        """Start all of them in as few commits as possible, in their order."""
        runs: list[RunId] = []
        for first in range(0, len(arrivals), STARTS_AT_ONCE):
            chunk = arrivals[first : first + STARTS_AT_ONCE]
            begun = await asyncio.gather(*(self._commit(self._start(each)) for each in chunk))
            runs.extend(each.run.run_id for each in begun)
        return runs

    def _start(self, arrival: SimulatedArrival) -> Transaction[starts.StartResult]:
        if arrival.kind is TaskKind.WORKFLOW:
            priority = TaskPriority(arrival.level, arrival.key, arrival.weight_milli)
            request = Start(NAMESPACE, arrival.type, arrival.queue, NOTHING, priority=priority)
            return starts.workflow_start(self.ctx, request)
        command = ScheduleActivity(
            arrival.type,
            arrival.queue,
            NOTHING,
            RetrySchedule(RETRIES_MAX, given=True, backoff_ms=arrival.backoff_ms or (0,)),
            priority=PriorityOverride(arrival.level, arrival.key, arrival.weight_milli, arrival.cost),
        )
        return starts.activity_start(
            self.ctx, Start(NAMESPACE, STANDALONE_TYPE, arrival.queue, NOTHING), command
        )

    async def claim(self, queue_id: QueueId, polls: Sequence[Poll]) -> list[ClaimResult]:
        return await claim(self.ctx, queue_id, polls, None)

    async def report(self, ends: Iterable[tuple[Leased, bool]]) -> list[Task]:
        """Report the ends of leases: done, or failed. Returns the tasks as they are afterwards."""
        return await asyncio.gather(*(self._end(leased, fails=fails) for leased, fails in ends))

    async def _end(self, leased: Leased, *, fails: bool) -> Task:
        task = leased.task
        if task.kind is TaskKind.WORKFLOW:
            report = Report(task.lease_owner or "", str(task.attempt))
            completion = workflow_reports.completion_transaction(
                self.ctx, NAMESPACE, task.task_id, report, [CompleteWorkflow(NOTHING)]
            )
            return (await self._commit(completion)).task
        report = Report(task.lease_owner or "", task.lease_token or "")
        if fails:
            failed = activity_reports.failure_transaction(
                self.ctx, NAMESPACE, task.task_id, report, AttemptFailure("failed")
            )
            return (await self._commit(failed)).task
        completed = activity_reports.completion_transaction(
            self.ctx, NAMESPACE, task.task_id, report, NOTHING
        )
        return (await self._commit(completed)).task

    async def deregister(self, worker_id: str) -> None:
        """Remove a worker that died; its tasks wait again."""
        await worker_registry.deregister(self.ctx, NAMESPACE, worker_id)

    async def task(self, task_id: TaskId) -> Task:
        found = await self.ctx.store.read(lambda tx: tx.tasks.get(task_id))
        assert found is not None, "a task that waits for its retry is kept"
        return found

    async def make_due_tasks_ready(self) -> None:
        while await self._due_tasks.sweep():
            pass

    async def _commit(self, transaction: Transaction[T]) -> T:
        return await self.ctx.store.transact(transaction.operation, key=transaction.key)
