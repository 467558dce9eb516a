"""Due times of a server whose clock stands still, and running what is due."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from penstock.core.model import ActivityId, Namespace, TaskKind, TaskState, WorkerRecord
from penstock.core.scheduling import dispatch
from penstock.core.scheduling.leases import renew
from penstock.engine.activities import activity_reports
from penstock.engine.context import EngineContext
from penstock.engine.maintenance.run_cap_sweepers import waiting_runs
from penstock.engine.maintenance.sweepers.due_tasks import due_tasks
from penstock.engine.maintenance.sweepers.due_timers import due_schedules, due_timers
from penstock.engine.maintenance.sweepers.overdue_runs import overdue_runs
from penstock.engine.maintenance.sweepers.pending_outbox import pending_outbox
from penstock.engine.workflows.start_caps import UNTIL_ADMITTED_MS
from penstock.ports.store import Tx
from penstock.ports.tables.next_due import Due
from penstock.ports.wakeups import queue_topic

FOR_EVER_MS = 1 << 60
AT_ONCE = 256
RECHECK_MS = 1000
"""Interval at which tasks held by a limit are checked again."""
HELD_MS_MAX = 3_600_000
"""How long time is advanced for nothing but tasks held by limits."""


@dataclass(frozen=True, slots=True)
class ActivityAttempt:
    """One attempt of an activity, identified by its lease."""

    task_id: str
    token: str


class DueEvents:
    """The due times of one server, in addition to those of its clock's alarms."""

    def __init__(self, ctx: EngineContext) -> None:
        self._ctx = ctx
        self._outbox = pending_outbox(ctx)
        self._waiting_runs = waiting_runs(ctx)
        self._duties = (due_timers(ctx), due_schedules(ctx), due_tasks(ctx), overdue_runs(ctx))
        self._held_ms = 0
        """Time skipped while only limits held tasks back."""

    async def deliver(self) -> bool:
        """Deliver outbox messages between runs, and admit runs that wait to start. Returns whether there were any."""
        delivered = await self._outbox.sweep()
        await self._waiting_runs.sweep()
        return delivered > 0

    async def is_working(self, asleep: Collection[ActivityAttempt]) -> bool:
        """Whether a task is running, except for activities that sleep by this clock."""

        async def operation(tx: Tx) -> bool:
            for task_id in await tx.tasks.expired(FOR_EVER_MS, AT_ONCE + len(asleep)):
                task = await tx.tasks.get(task_id)
                if task is not None and ActivityAttempt(task.task_id, task.lease_token or "") not in asleep:
                    return True
            return False

        return await self._ctx.store.read(operation)

    async def next_due_ms(self) -> int | None:
        """Return when something is next due; None for never."""

        async def operation(tx: Tx) -> int | None:
            task_at_ms = await tx.tasks.next_due_at_ms()
            if task_at_ms is not None and task_at_ms >= UNTIL_ADMITTED_MS:
                task_at_ms = None  # a run waits to start, which time does not change
            found = [await tx.timers.next_due_at_ms(), task_at_ms]
            due = await tx.next_due.until(FOR_EVER_MS)
            found.append(due.get(Due.SCHEDULE))
            for activity_id in await tx.activities.overdue(FOR_EVER_MS, 1):
                activity = await tx.activities.get(activity_id)
                found.append(None if activity is None else activity.deadline_at_ms)
            for run_id in await tx.runs.overdue(FOR_EVER_MS, 1):
                run = await tx.runs.get(run_id)
                found.append(None if run is None else run.deadline_at_ms)
            moments = [each for each in found if each is not None]
            if await _any_held(tx):
                self._held_ms += RECHECK_MS
            else:
                self._held_ms = 0
            if 0 < self._held_ms <= HELD_MS_MAX:
                moments.append(tx.now_ms + RECHECK_MS)
            return min(moments, default=None)

        return await self._ctx.store.read(operation)

    async def keep_alive(self) -> None:
        """Keep workers and leases alive after a skip, as their heartbeats would have."""
        leases = self._ctx.settings.leases

        async def operation(tx: Tx) -> None:
            for namespace in await tx.namespaces.list():
                for worker in await tx.workers.list(namespace.name, None):
                    tx.workers.touch(namespace.name, worker.worker_id, tx.now_ms)
            for task_id in await tx.tasks.expired(FOR_EVER_MS, 100 * AT_ONCE):
                task = await tx.tasks.lock(task_id)
                assert task is not None
                is_workflow = task.kind is TaskKind.WORKFLOW
                lease_ms = leases.workflow_lease_ms if is_workflow else leases.activity_lease_ms
                tx.tasks.save(renew(task, tx.now_ms, lease_ms), TaskState.LEASED)

        await self._ctx.store.transact(operation, key="testing")

    async def fire_due(self) -> None:
        """Run everything that is due now."""
        for duty in self._duties:
            while await duty.sweep():
                pass
        while overdue := await self._overdue_activities():
            for activity_id in overdue:
                await activity_reports.time_out(self._ctx, activity_id)
        if self._held_ms:
            await self._recheck_held()

    async def _overdue_activities(self) -> Sequence[ActivityId]:
        async def operation(tx: Tx) -> Sequence[ActivityId]:
            return await tx.activities.overdue(tx.now_ms, AT_ONCE)

        return await self._ctx.store.read(operation)

    async def _recheck_held(self) -> None:
        """Let polls check whether the limits that blocked them are open now."""

        async def operation(tx: Tx) -> list[str]:
            return [
                queue_topic(queue.queue_id)
                for namespace in await tx.namespaces.list()
                for queue in await tx.queues.list(namespace.name)
            ]

        self._ctx.wakeups.notify(await self._ctx.store.read(operation))


async def _any_held(tx: Tx) -> bool:
    """Whether a task waits although a worker could run it: while everything is idle, a limit holds it."""
    for namespace in await tx.namespaces.list():
        for worker in await tx.workers.list(namespace.name, None):
            if await _waits_for(tx, namespace, worker):
                return True
    return False


async def _waits_for(tx: Tx, namespace: Namespace, worker: WorkerRecord) -> bool:
    for queue in await tx.queues.find(namespace.name, worker.task_queue):
        fit = dispatch.sticky_filter_for(worker, queue.kind)
        if await _has_room(tx, worker, queue.kind) and await tx.tasks.any_ready(queue.queue_id, fit):
            return True
    return False


async def _has_room(tx: Tx, worker: WorkerRecord, kind: TaskKind) -> bool:
    held = [await tx.tasks.get(each) for each in await tx.tasks.leased_by(worker.namespace, worker.worker_id)]
    return sum(task is not None and task.kind is kind for task in held) < worker.slots(kind)
