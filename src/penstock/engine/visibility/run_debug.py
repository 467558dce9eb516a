"""The debug view of a run: its tasks, activities and timers, why it waits, recent failures, and findings."""

from __future__ import annotations

import json
from collections.abc import Sequence
from enum import StrEnum
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace

from penstock.core.audit.bundle import FAILURES, exception, failure
from penstock.core.history import structural_limits
from penstock.core.last_error import split_error
from penstock.core.model import Activity, RecordedEvent, Run, Task, TaskKind, TaskState, Timer
from penstock.engine.context import EngineContext
from penstock.engine.runs.history_writer import is_stranded
from penstock.engine.runs.run_lookup import Located, locate
from penstock.engine.visibility import explanations, task_queues
from penstock.engine.visibility.explanations import WhyResult
from penstock.engine.visibility.task_queues import QueueView
from penstock.engine.visibility.worker_coverage import Unserved, unserved_tasks
from penstock.ports.store import Tx

TASKS_SHOWN: Final = 25
ACTIVITIES_SHOWN: Final = 25
FAILURES_SHOWN: Final = 10
EVENTS_SCANNED_MAX: Final = 500
"""How many of the last events are searched for failures."""


class Severity(StrEnum):
    """How urgent a finding is."""

    ERROR = "error"
    WARNING = "warning"
    INFO = "info"


class DebugFinding(Struct, frozen=True):
    """Something that an operator should know; `code` is its stable identifier."""

    severity: Severity
    code: str
    message: str


class RunDebugView(Struct, frozen=True):
    """A run in one snapshot, its queue, and why it waits."""

    located: Located
    now_ms: int
    tasks: Sequence[Task]
    activities: Sequence[Activity]
    activity_tasks: Sequence[Task | None]
    timers: Sequence[Timer]
    last_event: RecordedEvent | None
    failures: Sequence[dict[str, Any]]
    queue: QueueView
    why: WhyResult | None
    """Only of the current, open run."""
    findings: Sequence[DebugFinding] = ()
    unserved: Sequence[Unserved] = ()
    """Its ready tasks that no worker takes, in all queues."""

    @property
    def run(self) -> Run:
        return self.located.run

    @property
    def workflow_tasks(self) -> Sequence[Task]:
        return [task for task in self.tasks if task.kind is TaskKind.WORKFLOW]

    @property
    def diagnosis(self) -> str:
        """A one-word summary of its state."""
        if not self.run.is_open:
            return "terminal"
        if any(each.severity is not Severity.INFO for each in self.findings):
            return "needs_attention"
        if any(task.state is not TaskState.LEASED for task in self.tasks):
            return "pending_work"
        if not self.tasks:
            return "waiting"
        backlog = sum(stats.ready for stats in self.queue.stats.values())
        return "queue_backlog" if backlog else "running"


async def inspect(
    ctx: EngineContext, namespace: str, workflow_id: str, run_id: str | None = None
) -> RunDebugView:
    async def operation(tx: Tx) -> _Read:
        located = await locate(tx, namespace, workflow_id, run_id)
        return await _read(ctx, tx, located)

    read = await ctx.store.read(operation, long=True)
    run = read.located.run
    queue = await task_queues.describe(ctx, namespace, run.task_queue)
    why = None
    if run.is_open and read.located.is_current:
        why = await explanations.workflow(ctx, namespace, workflow_id)
        if why.run.run_id != run.run_id:
            why = None
    seen = RunDebugView(
        read.located,
        read.now_ms,
        read.tasks,
        read.activities,
        read.activity_tasks,
        read.timers,
        read.events[0] if read.events else None,
        _failures(read.events),
        queue,
        why,
        unserved=read.unserved,
    )
    return replace(seen, findings=findings(ctx, seen))


class _Read(Struct, frozen=True):
    located: Located
    now_ms: int
    tasks: Sequence[Task]
    activities: Sequence[Activity]
    activity_tasks: Sequence[Task | None]
    timers: Sequence[Timer]
    events: Sequence[RecordedEvent]
    unserved: Sequence[Unserved]


async def _read(ctx: EngineContext, tx: Tx, located: Located) -> _Read:
    run = located.run
    open_ = [*await tx.activities.open_of(run.run_id)][:ACTIVITIES_SHOWN] if run.open_activities else []
    tasks = await tx.namespace_stats.live_tasks(run.run_id, TASKS_SHOWN)
    activity_tasks = [await tx.tasks.get(each.task_id) for each in open_]
    all_tasks = [*tasks, *(each for each in activity_tasks if each is not None)]
    return _Read(
        located,
        tx.now_ms,
        tasks,
        open_,
        activity_tasks,
        await tx.timers.open_of(run.run_id) if run.open_timers else (),
        await tx.histories.page_back(run.run_id, run.last_sequence + 1, EVENTS_SCANNED_MAX),
        await unserved_tasks(ctx, tx, all_tasks) if run.is_open else (),
    )


def _failures(events: Sequence[RecordedEvent]) -> Sequence[dict[str, Any]]:
    """The failures among the events, newest first."""
    failed = [event for event in events if event.type in FAILURES][:FAILURES_SHOWN]
    parsed = [(event, json.loads(event.payload)) for event in failed]
    return [failure(event, payload) | {"exception": exception(payload)} for event, payload in parsed]


def findings(ctx: EngineContext, seen: RunDebugView) -> list[DebugFinding]:
    """What an operator should attend to, the most severe first."""
    if not seen.run.is_open:
        return []
    found = [
        *_blocked(seen),
        *_task_problem(seen),
        *_stranded(seen),
        *_expired(seen),
        *_unserved(seen),
        *_near_limits(ctx, seen),
    ]
    return sorted(found, key=lambda each: list(Severity).index(each.severity))


def _blocked(seen: RunDebugView) -> list[DebugFinding]:
    if seen.run.blocked is None:
        return []
    message = seen.run.blocked.message or "The code and the history diverge."
    text = f"Replay is blocked: {message} It continues when a worker with matching code takes it."
    return [DebugFinding(Severity.ERROR, "workflow_replay_blocked", text)]


def _task_problem(seen: RunDebugView) -> list[DebugFinding]:
    run = seen.run
    if not run.task_failures:
        return []
    message, _ = split_error(run.task_error)
    times = "once" if run.task_failures == 1 else f"{run.task_failures} times in a row"
    text = f"The workflow task failed {times}: {message}"
    return [DebugFinding(Severity.ERROR, "task_problem", text)]


def _stranded(seen: RunDebugView) -> list[DebugFinding]:
    if seen.workflow_tasks or not is_stranded(seen.run):
        return []
    text = "The run waits for nothing and has no workflow task. Repair it."
    return [DebugFinding(Severity.ERROR, "repair_attention", text)]


def _expired(seen: RunDebugView) -> list[DebugFinding]:
    tasks = {task.task_id: task for task in (*seen.tasks, *seen.activity_tasks) if task is not None}
    late = [task for task in tasks.values() if (task.lease_expires_at_ms or seen.now_ms + 1) <= seen.now_ms]
    if not late:
        return []
    text = (
        f"{len(late)} leases have expired and will be reclaimed: {', '.join(task.task_id for task in late)}"
    )
    return [DebugFinding(Severity.WARNING, "expired_leases", text)]


def _unserved(seen: RunDebugView) -> list[DebugFinding]:
    """Tasks that no worker takes. The code is the constraint that `why` reports, if the queue has active workers."""
    idle = dict.fromkeys(each.task.task_queue for each in seen.unserved if not each.has_active_worker)
    found = [
        DebugFinding(Severity.WARNING, "no_active_pollers", f"No active worker polls the task queue {queue}.")
        for queue in idle
    ]
    return found + [
        DebugFinding(Severity.WARNING, each.constraint.kind.value, _sentence(each.constraint.message))
        for each in seen.unserved
        if each.has_active_worker
    ]


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}."


def _near_limits(ctx: EngineContext, seen: RunDebugView) -> list[DebugFinding]:
    return [
        DebugFinding(
            Severity.INFO if each.percent < 100 else Severity.WARNING,
            "limit_near",
            f"{each.limit_kind} is {each.current_value} of {each.configured_limit}. {each.advice}",
        )
        for each in structural_limits.limit_warnings(seen.run, ctx.bounds)
    ]
