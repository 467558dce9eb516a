"""Every row that the memory store holds, and the indexes that find them."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field

from penstock.core.admission import Admission
from penstock.core.model import (
    Activity,
    ActivityId,
    Cohort,
    Event,
    Instance,
    Namespace,
    QueryTask,
    Queue,
    QueueId,
    RecordedEvent,
    Run,
    RunId,
    Task,
    TaskId,
    TaskKind,
    Timer,
    Worker,
)
from penstock.core.policies import KeySettings, PolicyChange
from penstock.core.scheduling.fairness import Clockwork, Lane
from penstock.core.scheduling.gates import ScopeState
from penstock.stores.memory.changes import Index

LaneId = tuple[QueueId, int, str]
IN_FORCE = "in force"
"""Where the one admission stands."""


@dataclass(frozen=True, slots=True)
class Meter:
    """What one queue did in one calendar minute."""

    added: int = 0
    dispatched: int = 0


@dataclass(frozen=True, slots=True)
class LaneMeter:
    """What one lane gave in the calendar minute of its last claim, and in the minute before that one."""

    minute: int = 0
    dispatched: int = 0
    dispatched_before: int = 0

    def at(self, minute: int) -> LaneMeter:
        """The same, seen from another minute."""
        if minute == self.minute:
            return self
        return LaneMeter(minute, 0, self.dispatched if minute == self.minute + 1 else 0)


@dataclass(frozen=True, slots=True)
class KeyRow:
    """One key of a line over all levels: what was asked for it, what it has paid and what it runs."""

    settings: KeySettings
    paid_until_ns: int = 0
    running: int = 0


@dataclass(slots=True)
class Tables:
    namespaces: dict[str, Namespace] = field(default_factory=dict)

    instances: dict[tuple[str, str], Instance] = field(default_factory=dict)
    runs: dict[RunId, Run] = field(default_factory=dict)
    runs_of: Index[tuple[str, str], RunId, None] = field(default_factory=Index)
    runs_with_deadline: dict[RunId, int] = field(default_factory=dict)
    """Open runs only."""

    events: dict[tuple[RunId, int], RecordedEvent] = field(default_factory=dict)
    last_event: dict[RunId, int] = field(default_factory=dict)
    buffers: Index[RunId, int, Event] = field(default_factory=Index)

    activities: dict[ActivityId, Activity] = field(default_factory=dict)
    activities_open: Index[RunId, ActivityId, None] = field(default_factory=Index)
    activities_with_deadline: dict[ActivityId, int] = field(default_factory=dict)
    """Open activities only."""

    timers: dict[str, Timer] = field(default_factory=dict)
    timers_open: Index[RunId, str, int] = field(default_factory=Index)
    """When each open timer fires, by run."""

    tasks: dict[TaskId, Task] = field(default_factory=dict)
    tasks_live: Index[RunId, TaskId, None] = field(default_factory=Index)
    tasks_ready: Index[LaneId, int, TaskId] = field(default_factory=Index)
    """By place in line."""
    tasks_delayed: Index[QueueId, TaskId, int] = field(default_factory=Index)
    """When each becomes ready."""
    tasks_leased: Index[QueueId, TaskId, int] = field(default_factory=Index)
    """When each lease ends."""
    task_numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    queues: dict[QueueId, Queue] = field(default_factory=dict)
    queue_names: dict[tuple[str, str, TaskKind], QueueId] = field(default_factory=dict)
    queue_numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))
    lanes: dict[LaneId, Lane] = field(default_factory=dict)
    lanes_busy: Index[QueueId, LaneId, None] = field(default_factory=Index)
    """Lanes with a task that is ready."""
    lane_meters: dict[LaneId, LaneMeter] = field(default_factory=dict)
    clocks: Index[QueueId, int, Clockwork] = field(default_factory=Index)
    meters: dict[tuple[QueueId, int], Meter] = field(default_factory=dict)
    keys: Index[QueueId, str, KeyRow] = field(default_factory=Index)
    policy_changes: Index[QueueId, tuple[int, int], PolicyChange] = field(default_factory=Index)
    """By version and place in the change."""

    admission: dict[str, Admission] = field(default_factory=lambda: {IN_FORCE: Admission()})
    scopes: dict[int, ScopeState] = field(default_factory=dict)
    scope_names: dict[str, int] = field(default_factory=dict)
    scope_numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))
    scope_changes: Index[str, tuple[int, int], PolicyChange] = field(default_factory=Index)
    """By version and place in the change."""
    costed: dict[int, bool] = field(default_factory=dict)
    """The scopes that have ever counted cost."""
    settlements: Index[int, int, tuple[int, int]] = field(default_factory=Index)
    """When a task was granted, and how much more it cost than estimated; by scope."""
    settlement_numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    journal: dict[int, tuple[int, str]] = field(default_factory=dict)
    """When each line was told, and the line."""
    journal_numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    workers: dict[tuple[str, str], Worker] = field(default_factory=dict)
    cohorts: dict[tuple[str, str, str], Cohort] = field(default_factory=dict)
    nonces: dict[tuple[str, str], int] = field(default_factory=dict)
    queries: dict[str, QueryTask] = field(default_factory=dict)
