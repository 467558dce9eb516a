"""An engine on an ephemeral store with a manual clock, and the steps that its tests are made of."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar

from penstock.core.history.commands import Command, CompleteWorkflow, ScheduleActivity
from penstock.core.model import (
    Activity,
    ActivityTimeouts,
    Blob,
    Queue,
    RecordedEvent,
    RetrySchedule,
    Run,
    RunHost,
    RunId,
    Task,
    TaskId,
    TaskKind,
    WorkerRecord,
)
from penstock.core.scheduling.leases import Report
from penstock.core.scheduling.polls import ClaimResult, Granted, Leased, Poll, Refused
from penstock.engine.activities import activity_reports
from penstock.engine.activities.activity_reports import ActivityReceipt, AttemptFailure, Heartbeat
from penstock.engine.context import EngineContext
from penstock.engine.maintenance.sweepers.due_tasks import due_tasks
from penstock.engine.maintenance.sweepers.due_timers import due_timers
from penstock.engine.matching.claim import claim as claim_tasks
from penstock.engine.workers import worker_registry
from penstock.engine.workers.worker_registry import Registration
from penstock.engine.workflows import starts, workflow_reports
from penstock.engine.workflows.starts import STANDALONE_TYPE, Start
from penstock.engine.workflows.workflow_reports import WorkflowTaskReceipt
from penstock.ports.store import Tx
from penstock.settings import load
from penstock.stores.sqlite.store import SqliteStore
from penstock.wakeups.local import LocalWakeups
from tests.engine.support import direct
from tests.engine.support.tables import Tables
from tests.support.builders import NOW_MS
from tests.support.clock import ManualClock
from tests.support.entropy import CountingEntropy
from tests.support.ephemeral import ephemeral_store

T = TypeVar("T")
WORKFLOW, ACTIVITY = TaskKind.WORKFLOW, TaskKind.ACTIVITY
NOTHING = Blob("")
SLOTS = 100_000
"""Enough slots for every test that does not set them."""
DONE = CompleteWorkflow(Blob("AQ=="))


def charge(
    retry: RetrySchedule | None = None, queue: str | None = None, activity_type: str = "Charge", **limits: int
) -> ScheduleActivity:
    """A command to run an activity; limits in milliseconds."""
    return ScheduleActivity(
        activity_type, queue, Blob("AA=="), retry or RetrySchedule(), ActivityTimeouts(**limits)
    )


def tries(most: int, *backoff_s: int, never: tuple[str, ...] = ()) -> RetrySchedule:
    return RetrySchedule(most, True, backoff_s, never)


@dataclass(frozen=True)
class Scene:
    """One server's engine for tests."""

    ctx: EngineContext
    clock: ManualClock
    wakeups: LocalWakeups

    @cached_property
    def tables(self) -> Tables:
        """Direct access to the rows, for what no operation returns."""
        store = self.ctx.store
        assert isinstance(store, SqliteStore)
        return Tables(store)

    # ── Callers ─────────────────────────────────────────────────────────────────────────────────────────

    async def start(self, workflow_id: str | None = "order-1", **changes: Any) -> Run:
        return (await starts.start_workflow(self.ctx, a_start(workflow_id, **changes))).run

    async def start_activity(
        self, activity_id: str | None = "charge-1", command: ScheduleActivity | None = None, **changes: Any
    ) -> Run:
        request = a_start(activity_id, workflow_type=STANDALONE_TYPE, **changes)
        return (await direct.start_activity(self.ctx, request, command or charge())).run

    # ── Workers ─────────────────────────────────────────────────────────────────────────────────────────

    async def register(self, worker_id: str = "w1", **changes: Any) -> WorkerRecord:
        slots = {"workflow_slots": SLOTS, "activity_slots": SLOTS}
        payload: dict[str, Any] = {"task_queue": "orders", "runtime": "python"} | slots | changes
        return await worker_registry.register(self.ctx, Registration("default", worker_id, **payload))

    async def queue(self, kind: TaskKind, name: str = "orders") -> Queue:
        async def operation(tx: Tx) -> Queue:
            return await tx.queues.ensure("default", name, kind)

        return await self.ctx.store.transact(operation, key=f"queue:{name}")

    async def ask(self, *asked: Poll) -> list[ClaimResult]:
        """The results of one claim for some polls of one queue."""
        queue = await self.queue(asked[0].kind, asked[0].task_queue)
        return await claim_tasks(self.ctx, queue.queue_id, asked, None)

    async def claim(self, kind: TaskKind, worker_id: str = "w1", **changes: Any) -> Leased | None:
        """Claim one task for a worker, registering it if necessary; None if there is none."""
        poll = a_poll(kind, worker_id, **changes)
        if await self.read(lambda tx: tx.workers.get("default", worker_id)) is None:
            await self.register(worker_id, task_queue=poll.task_queue)
        [verdict] = await self.ask(poll)
        match verdict:
            case Refused():
                raise verdict.error
            case Granted():
                return verdict.leased[0]
            case _:
                return None

    async def take(self, kind: TaskKind, worker_id: str = "w1", **changes: Any) -> Leased:
        """`claim` a task that must exist."""
        leased = await self.claim(kind, worker_id, **changes)
        assert leased is not None, f"no {kind} task waits"
        return leased

    async def complete(
        self,
        leased: Leased,
        *commands: Command,
        report: Report | None = None,
        namespace: str = "default",
        concurrent: bool = False,
        cached: bool = False,
        sticky_ms: int = 0,
    ) -> WorkflowTaskReceipt:
        return await direct.complete_workflow_task(
            self.ctx,
            namespace,
            leased.task.task_id,
            report or of(leased),
            commands,
            concurrent=concurrent,
            cached=cached,
            sticky_ms=sticky_ms,
        )

    async def decide(
        self, *commands: Command, concurrent: bool = False, cached: bool = False
    ) -> WorkflowTaskReceipt:
        """Claim the ready workflow task and complete it with these commands."""
        leased = await self.take(WORKFLOW)
        return await self.complete(leased, *commands, concurrent=concurrent, cached=cached)

    async def fail(
        self, leased: Leased, message: str = "boom", kind: str | None = None, report: Report | None = None
    ) -> WorkflowTaskReceipt:
        return await workflow_reports.fail(
            self.ctx, "default", leased.task.task_id, report or of(leased), message, kind
        )

    async def heartbeat_workflow_task(self, leased: Leased) -> WorkflowTaskReceipt:
        return await workflow_reports.heartbeat(self.ctx, "default", leased.task.task_id, of(leased))

    async def finish(
        self, leased: Leased, result: str = "Ag==", report: Report | None = None
    ) -> ActivityReceipt:
        return await direct.complete_activity(
            self.ctx, "default", leased.task.task_id, report or of(leased), Blob(result)
        )

    async def fail_activity(
        self, leased: Leased, failure: AttemptFailure | None = None, report: Report | None = None
    ) -> ActivityReceipt:
        return await activity_reports.fail(
            self.ctx, "default", leased.task.task_id, report or of(leased), failure or AttemptFailure("boom")
        )

    async def heartbeat(self, leased: Leased, details: str | None = None) -> Heartbeat:
        return await activity_reports.heartbeat(self.ctx, "default", leased.task.task_id, of(leased), details)

    # ── Time ────────────────────────────────────────────────────────────────────────────────────────────

    async def advance(self, by_ms: int) -> None:
        """Advance the clock, then run what became due: delayed tasks and timers."""
        self.clock.advance(by_ms)
        await due_tasks(self.ctx).sweep()
        await due_timers(self.ctx).sweep()

    # ── Looking ─────────────────────────────────────────────────────────────────────────────────────────

    async def read(self, question: Callable[[Tx], Awaitable[T]]) -> T:
        async def operation(tx: Tx) -> T:
            return await question(tx)

        return await self.ctx.store.read(operation)

    async def events(self, run_id: RunId) -> Sequence[RecordedEvent]:
        return await self.read(lambda tx: tx.histories.page(run_id, 0, 10_000))

    async def types(self, run_id: RunId) -> list[str]:
        return [event.type for event in await self.events(run_id)]

    async def payload(self, run_id: RunId, sequence: int) -> dict[str, Any]:
        """The payload of an event; negative indexes count from the end."""
        events = await self.events(run_id)
        return dict(json.loads(events[sequence].payload))

    def run(self, run_id: RunId) -> Run:
        found = self.tables.read(lambda tx: tx.runs.get(run_id))
        assert found is not None
        return found

    def task(self, task_id: TaskId) -> Task:
        found = self.tables.read(lambda tx: tx.tasks.get(task_id))
        assert found is not None
        return found

    def activity(self, leased: Leased) -> Activity:
        assert leased.activity is not None
        activity_id = leased.activity.activity_id
        found = self.tables.read(lambda tx: tx.activities.get(activity_id))
        assert found is not None
        return found

    def live(self, run_id: RunId) -> list[Task]:
        return self.tables.live_tasks(run_id)


def a_scene(**settings: str) -> Scene:
    """An engine on an empty store; settings by their names without prefix, in lower case."""
    clock, wakeups = ManualClock(NOW_MS), LocalWakeups()
    given = {"DW_AUTH_DRIVER": "none"} | {f"DW_{name.upper()}": value for name, value in settings.items()}
    ctx = EngineContext(ephemeral_store(clock, wakeups), wakeups, CountingEntropy(), load(given))
    return Scene(ctx, clock, wakeups)


def a_start(workflow_id: str | None = "order-1", **changes: Any) -> Start:
    payload: dict[str, Any] = {
        "namespace": "default",
        "workflow_type": "Order",
        "task_queue": "orders",
        "input": NOTHING,
    } | changes
    return Start(workflow_id=workflow_id, **payload)


def a_poll(kind: TaskKind, worker_id: str = "w1", **changes: Any) -> Poll:
    payload: dict[str, Any] = {"namespace": "default", "task_queue": "orders"} | changes
    return Poll(worker_id=worker_id, kind=kind, **payload)


def of(leased: Leased, digest: str = "digest", owner: str | None = None) -> Report:
    """A report of the holder of this lease."""
    task = leased.task
    assert task.lease_owner is not None
    assert task.lease_token is not None
    token = str(task.attempt) if task.kind is WORKFLOW else task.lease_token
    return Report(owner or task.lease_owner, token, digest)


def activity_of(run: Run) -> str:
    assert run.host is RunHost.ACTIVITY
    return f"{run.run_id}-a1"
