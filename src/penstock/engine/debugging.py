"""Looking inside a run: what it does, what it waits for, what failed of late, and what somebody should see to."""

from __future__ import annotations

import json
from collections.abc import Sequence
from enum import StrEnum
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace

from penstock.core.history import bounds
from penstock.core.history.bundle import FAILURES, exception, failure
from penstock.core.last_error import split_error
from penstock.core.model import Activity, RecordedEvent, Run, Task, TaskKind, TaskState, Timer
from penstock.engine import explaining, queues
from penstock.engine.crews import Unserved, unserved_tasks
from penstock.engine.explaining import Explained
from penstock.engine.house import House
from penstock.engine.locating import Located, locate
from penstock.engine.queues import QueueView
from penstock.engine.repairing import is_stranded
from penstock.ports.store import Tx

TASKS_SHOWN: Final = 25
ACTIVITIES_SHOWN: Final = 25
FAILURES_SHOWN: Final = 10
EVENTS_LOOKED_AT: Final = 500
"""How far back failures are looked for."""


class Severity(StrEnum):
    ERROR = "error"
    WARNING = "warning"
    INFO = "info"


class Finding(Struct, frozen=True):
    """Something that an operator should know, with the word by which programs know it."""

    severity: Severity
    code: str
    message: str


class Inside(Struct, frozen=True):
    """A run at one moment, its queue and why it waits."""

    located: Located
    now_ms: int
    tasks: Sequence[Task]
    activities: Sequence[Activity]
    activity_tasks: Sequence[Task | None]
    timers: Sequence[Timer]
    last_event: RecordedEvent | None
    failures: Sequence[dict[str, Any]]
    queue: QueueView
    why: Explained | None
    """Of a current run that is open."""
    findings: Sequence[Finding] = ()
    unserved: Sequence[Unserved] = ()
    """Its ready tasks that no worker takes, of every queue."""

    @property
    def run(self) -> Run:
        return self.located.run

    @property
    def workflow_tasks(self) -> Sequence[Task]:
        return [task for task in self.tasks if task.kind is TaskKind.WORKFLOW]

    @property
    def diagnosis(self) -> str:
        """The one word for its state."""
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


async def look(house: House, namespace: str, workflow_id: str, run_id: str | None = None) -> Inside:
    async def operation(tx: Tx) -> _Read:
        located = await locate(tx, namespace, workflow_id, run_id)
        return await _read(house, tx, located)

    read = await house.store.read(operation, long=True)
    run = read.located.run
    queue = await queues.describe(house, namespace, run.task_queue)
    why = None
    if run.is_open and read.located.is_current:
        why = await explaining.workflow(house, namespace, workflow_id)
        if why.run.run_id != run.run_id:
            why = None
    seen = Inside(
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
    return replace(seen, findings=findings(house, seen))


class _Read(Struct, frozen=True):
    located: Located
    now_ms: int
    tasks: Sequence[Task]
    activities: Sequence[Activity]
    activity_tasks: Sequence[Task | None]
    timers: Sequence[Timer]
    events: Sequence[RecordedEvent]
    unserved: Sequence[Unserved]


async def _read(house: House, tx: Tx, located: Located) -> _Read:
    run = located.run
    open_ = [*await tx.activities.open_of(run.run_id)][:ACTIVITIES_SHOWN] if run.open_activities else []
    tasks = await tx.survey.live_tasks(run.run_id, TASKS_SHOWN)
    activity_tasks = [await tx.tasks.get(each.task_id) for each in open_]
    all_tasks = [*tasks, *(each for each in activity_tasks if each is not None)]
    return _Read(
        located,
        tx.now_ms,
        tasks,
        open_,
        activity_tasks,
        await tx.timers.open_of(run.run_id) if run.open_timers else (),
        await tx.histories.page_back(run.run_id, run.last_sequence + 1, EVENTS_LOOKED_AT),
        await unserved_tasks(house, tx, all_tasks) if run.is_open else (),
    )


def _failures(events: Sequence[RecordedEvent]) -> Sequence[dict[str, Any]]:
    """The newest first."""
    failed = [event for event in events if event.type in FAILURES][:FAILURES_SHOWN]
    told = [(event, json.loads(event.payload)) for event in failed]
    return [failure(event, payload) | {"exception": exception(payload)} for event, payload in told]


def findings(house: House, seen: Inside) -> list[Finding]:
    """What somebody should see to, the worst first."""
    if not seen.run.is_open:
        return []
    found = [
        *_blocked(seen),
        *_task_problem(seen),
        *_stranded(seen),
        *_expired(seen),
        *_unserved(seen),
        *_near_limits(house, seen),
    ]
    return sorted(found, key=lambda each: list(Severity).index(each.severity))


def _blocked(seen: Inside) -> list[Finding]:
    if seen.run.blocked is None:
        return []
    told = json.loads(seen.run.blocked).get("message") or "The code and the history part."
    text = f"Replay is blocked: {told} It goes on when a worker with code that fits takes it."
    return [Finding(Severity.ERROR, "workflow_replay_blocked", text)]


def _task_problem(seen: Inside) -> list[Finding]:
    run = seen.run
    if not run.task_failures:
        return []
    message, _ = split_error(run.task_error)
    times = "once" if run.task_failures == 1 else f"{run.task_failures} times in a row"
    text = f"The workflow task failed {times}: {message}"
    return [Finding(Severity.ERROR, "task_problem", text)]


def _stranded(seen: Inside) -> list[Finding]:
    if seen.workflow_tasks or not is_stranded(seen.run):
        return []
    text = "The run waits for nothing and has no workflow task. Repair it."
    return [Finding(Severity.ERROR, "repair_attention", text)]


def _expired(seen: Inside) -> list[Finding]:
    tasks = {task.task_id: task for task in (*seen.tasks, *seen.activity_tasks) if task is not None}
    late = [task for task in tasks.values() if (task.lease_expires_at_ms or seen.now_ms + 1) <= seen.now_ms]
    if not late:
        return []
    text = f"{len(late)} leases have ended and will be taken back: {', '.join(task.task_id for task in late)}"
    return [Finding(Severity.WARNING, "expired_leases", text)]


def _unserved(seen: Inside) -> list[Finding]:
    """The code is the constraint that `why` names, unless the queue has no active worker at all."""
    idle = dict.fromkeys(each.task.task_queue for each in seen.unserved if not each.has_active_worker)
    found = [
        Finding(Severity.WARNING, "no_active_pollers", f"No active worker polls the task queue {queue}.")
        for queue in idle
    ]
    return found + [
        Finding(Severity.WARNING, each.constraint.kind.value, _sentence(each.constraint.message))
        for each in seen.unserved
        if each.has_active_worker
    ]


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}."


def _near_limits(house: House, seen: Inside) -> list[Finding]:
    return [
        Finding(
            Severity.INFO if each.percent < 100 else Severity.WARNING,
            "limit_near",
            f"{each.limit_kind} is {each.current_value} of {each.configured_limit}. {each.advice}",
        )
        for each in bounds.pressures(seen.run, house.bounds)
    ]
