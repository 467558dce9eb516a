"""The rows and indexes of the memory store."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field

from msgspec import Struct

from penstock.core.limits.admission import Admission
from penstock.core.limits.policies import KeySettings, PolicyChange
from penstock.core.messaging.messages import Message, MessageStream
from penstock.core.messaging.streams import StreamItem, WorkflowStream
from penstock.core.model import (
    Activity,
    ActivityId,
    ChildRun,
    Cohort,
    Instance,
    Namespace,
    NewEvent,
    OutboxMessage,
    QueryTask,
    Queue,
    QueueId,
    RecordedEvent,
    RetainedRequest,
    Run,
    RunId,
    Task,
    TaskId,
    TaskKind,
    Timer,
    Update,
    WorkerRecord,
)
from penstock.core.scheduling.fairness import Lane, VirtualClock
from penstock.core.scheduling.gates import ScopeState
from penstock.core.scheduling.retries import RetrySlot
from penstock.stores.memory.changes import Changes, Index

LaneId = tuple[QueueId, int, str]
RequestName = tuple[str, str, str, str]
"""Namespace, workflow id, kind and the caller's id."""
StreamName = tuple[str, str, str]
"""Namespace, workflow id and the name of a stream of messages."""
IN_FORCE = "in force"
"""The key of the one admission row."""


class Meter(Struct, frozen=True):
    """Tasks added and dispatched by a queue in one calendar minute."""

    added: int = 0
    dispatched: int = 0


class LaneMeter(Struct, frozen=True):
    """Dispatches of a lane in the calendar minute of its last claim, and in the minute before."""

    minute: int = 0
    dispatched: int = 0
    dispatched_before: int = 0

    def at(self, minute: int) -> LaneMeter:
        """The meter as of another minute."""
        if minute == self.minute:
            return self
        return LaneMeter(minute, 0, self.dispatched if minute == self.minute + 1 else 0)


class KeyRow(Struct, frozen=True):
    """A fairness key of a queue over all levels: its settings, its rate debt and its leases."""

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
    runs_blocked: Index[tuple[str, str], RunId, None] = field(default_factory=Index)
    """By namespace and task queue."""

    events: dict[tuple[RunId, int], RecordedEvent] = field(default_factory=dict)
    last_event: dict[RunId, int] = field(default_factory=dict)
    ends: dict[RunId, int] = field(default_factory=dict)
    """The event that closed each run."""
    buffers: Index[RunId, int, NewEvent] = field(default_factory=Index)

    activities: dict[ActivityId, Activity] = field(default_factory=dict)
    activities_open: Index[RunId, ActivityId, None] = field(default_factory=Index)
    activities_with_deadline: dict[ActivityId, int] = field(default_factory=dict)
    """Open activities only."""

    timers: dict[str, Timer] = field(default_factory=dict)
    timers_open: Index[RunId, str, int] = field(default_factory=Index)
    """When each open timer fires, by run."""

    children: Index[RunId, int, ChildRun] = field(default_factory=Index)
    """By the parent's run and step."""
    outbox: dict[str, OutboxMessage] = field(default_factory=dict)
    updates: dict[str, Update] = field(default_factory=dict)
    updates_of: Index[RunId, int, str] = field(default_factory=Index)
    """By number."""
    requests: dict[RequestName, RetainedRequest] = field(default_factory=dict)
    requests_of: Index[RunId, RequestName, None] = field(default_factory=Index)

    message_streams: dict[StreamName, MessageStream] = field(default_factory=dict)
    messages: Index[StreamName, int, Message] = field(default_factory=Index)
    """By position."""
    message_ids: Index[StreamName, str, int] = field(default_factory=Index)
    streams: Index[RunId, str, WorkflowStream] = field(default_factory=Index)
    """By the run that writes them, and name."""
    stream_items: Index[tuple[RunId, str], int, StreamItem] = field(default_factory=Index)
    """By offset."""
    stream_keys: Index[tuple[RunId, str], str, int] = field(default_factory=Index)

    tasks: dict[TaskId, Task] = field(default_factory=dict)
    tasks_live: Index[RunId, TaskId, None] = field(default_factory=Index)
    tasks_ready: Index[LaneId, int, TaskId] = field(default_factory=Index)
    """By sequence number."""
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
    clocks: Index[QueueId, int, VirtualClock] = field(default_factory=Index)
    meters: dict[tuple[QueueId, int], Meter] = field(default_factory=dict)
    keys: Index[QueueId, str, KeyRow] = field(default_factory=Index)
    policy_changes: Index[QueueId, tuple[int, int], PolicyChange] = field(default_factory=Index)
    """By version and place in the change."""

    retry_budgets: dict[QueueId, RetrySlot] = field(default_factory=dict)
    """The next free slot of each queue that has a budget."""

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
    """Time and text of each line."""
    journal_numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    workers: dict[tuple[str, str], WorkerRecord] = field(default_factory=dict)
    cohorts: dict[tuple[str, str, str], Cohort] = field(default_factory=dict)
    nonces: dict[tuple[str, str], int] = field(default_factory=dict)
    queries: dict[str, QueryTask] = field(default_factory=dict)
    search_attributes: Index[str, str, str] = field(default_factory=Index)
    """The type of each, by namespace and name."""
    remains: dict[RunId, int] = field(default_factory=dict)
    """Deleted runs that have rows left, with their last event."""


class MemoryRepository(Struct):
    """The tables as one operation sees them: it reads them directly, and changes them only through `_changes`."""

    _tables: Tables
    _changes: Changes
    _now_ms: int
