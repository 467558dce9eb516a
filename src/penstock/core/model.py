"""The domain model: rows and values that every package shares, as frozen structs."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from functools import cached_property
from typing import Any, NewType

from msgspec import Struct

from penstock.core.limits.admission import NO_LIMITS, QueueLimits
from penstock.core.limits.policies import NO_POLICY, PLAIN, PLAIN_BY_ARRIVAL, Policy, Rules, rules
from penstock.core.limits.rate_reports import WorkerRate
from penstock.core.limits.windows import NOTHING, Counts
from penstock.core.priority_levels import LEVEL_DEFAULT
from penstock.core.schedules.record import FireKey
from penstock.core.waits import NO_WAITS, Waits

RunId = NewType("RunId", str)
TaskId = NewType("TaskId", str)
ActivityId = NewType("ActivityId", str)
TimerId = NewType("TimerId", str)
QueueId = NewType("QueueId", int)
Blob = NewType("Blob", str)
"""An encoded payload: base64 of one Avro single-object value. Only the wire package decodes it."""

Json = Mapping[str, Any]

WEIGHT_DEFAULT_MILLI = 1000
UNKEYED = ""


class TaskKind(StrEnum):
    WORKFLOW = "workflow"
    ACTIVITY = "activity"


class TaskState(StrEnum):
    """A task is in exactly one of these states: `no-lost-ready-task`."""

    READY = "ready"
    DELAYED = "delayed"
    LEASED = "leased"
    DONE = "done"
    CANCELLED = "cancelled"


class RunStatus(StrEnum):
    PENDING = "pending"
    RUNNING = "running"
    WAITING = "waiting"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"
    TERMINATED = "terminated"

    @property
    def is_terminal(self) -> bool:
        return self in _TERMINAL

    @property
    def bucket(self) -> str:
        """One of the three groups that lists are filtered by."""
        if not self.is_terminal:
            return "running"
        return "completed" if self is RunStatus.COMPLETED else "failed"


_TERMINAL = frozenset({RunStatus.COMPLETED, RunStatus.FAILED, RunStatus.CANCELLED, RunStatus.TERMINATED})


class RunHost(StrEnum):
    """What a run executes: workflow code, or one standalone activity."""

    WORKFLOW = "workflow"
    ACTIVITY = "activity"


class ActivityStatus(StrEnum):
    PENDING = "pending"
    RUNNING = "running"
    COMPLETED = "completed"
    FAILED = "failed"
    TIMED_OUT = "timed_out"
    CANCELLED = "cancelled"

    @property
    def is_open(self) -> bool:
        return self in (ActivityStatus.PENDING, ActivityStatus.RUNNING)


class WorkerStatus(StrEnum):
    ACTIVE = "active"
    DRAINING = "draining"
    STALE = "stale"


def task_id(run_id: RunId, number: int) -> TaskId:
    """Task ids contain their run, so that operations on one run can be serialized before anything is read."""
    return TaskId(f"{run_id}-{number}")


def run_of(identifier: str) -> RunId:
    """The run of a task, activity or timer id; for an invalid id, a run that does not exist."""
    return RunId(identifier.rpartition("-")[0])


class NewEvent(Struct, frozen=True):
    """An event that has no sequence number yet."""

    type: str
    payload: Json


class RecordedEvent(Struct, frozen=True):
    """An event of a history; `payload` is JSON text, passed through unparsed."""

    run_id: RunId
    sequence: int
    type: str
    payload: str
    recorded_at_ms: int
    task_id: str | None

    @property
    def id(self) -> str:
        return f"{self.run_id}-{self.sequence}"


class Namespace(Struct, frozen=True):
    name: str
    description: str | None
    retention_days: int
    status: str
    external_storage: str | None
    created_at_ms: int
    updated_at_ms: int
    fair: int = 1
    """Whether its task queues use fairness keys by default."""


class TaskPriority(Struct, frozen=True):
    """The order of a task in its queue: priority level, fairness key and weight, and its estimated cost."""

    level: int = LEVEL_DEFAULT
    key: str = UNKEYED
    weight_milli: int = WEIGHT_DEFAULT_MILLI
    cost: int = 0
    """The estimated cost, for budgets that count cost."""


class PriorityOverride(Struct, frozen=True):
    """The priority that a command sets for its task. Missing fields are inherited, except the cost."""

    level: int | None = None
    key: str | None = None
    weight_milli: int | None = None
    cost: int | None = None

    def over(self, inherited: TaskPriority) -> TaskPriority:
        return TaskPriority(
            level=inherited.level if self.level is None else self.level,
            key=inherited.key if self.key is None else self.key,
            weight_milli=inherited.weight_milli if self.weight_milli is None else self.weight_milli,
            cost=self.cost or 0,
        )


class RetrySchedule(Struct, frozen=True):
    """How often, and after which pauses, an activity or child is retried."""

    max_attempts: int = 1
    given: bool = False
    """False: no retry policy was set. A failure is final then, and a lost lease leads to redelivery."""
    backoff_s: tuple[int, ...] = ()
    non_retryable_error_types: tuple[str, ...] = ()
    backoff_ms: tuple[int, ...] = ()
    """Pauses in milliseconds; take precedence over `backoff_s`."""

    def pause_ms(self, attempt: int) -> int:
        """The pause after an attempt; the last one repeats."""
        pauses, unit_ms = (self.backoff_ms, 1) if self.backoff_ms else (self.backoff_s, 1000)
        return pauses[min(attempt - 1, len(pauses) - 1)] * unit_ms if pauses else 0


NO_RETRY = RetrySchedule()


class ClosePolicy(StrEnum):
    """What happens to an open child when its parent closes."""

    ABANDON = "abandon"
    REQUEST_CANCEL = "request_cancel"
    TERMINATE = "terminate"
    REQUEST_CANCELLATION = "request_cancellation"


class Lineage(Struct, frozen=True):
    """Where a run comes from: a parent that waits for it, or a run that it continues or retries. Never changes."""

    parent_run_id: RunId | None = None
    parent_workflow_id: str | None = None
    parent_step: int | None = None
    parent_close_policy: ClosePolicy = ClosePolicy.ABANDON
    continued_from: RunId | None = None
    retried_from: RunId | None = None
    attempt: int = 1
    retry: RetrySchedule = NO_RETRY
    """Of a child: the retries before its failure is reported to its parent."""
    first_run_id: RunId | None = None
    """The first run of the chain. None: this is the first one, or it predates the field."""
    fire: FireKey | None = None
    """The fire of a schedule that started the chain; its last run reports its end to the schedule."""
    concurrency_key: str | None = None
    """The key that the start gave the chain for caps on runs."""
    unique_key: str | None = None
    """The unique key of the start (`core/starts/unique_starts.py`)."""
    unique_until: str | None = None
    """How long a run of the chain holds it, a `UniqueUntil`."""
    copies: tuple[tuple[int, RunId], ...] = ()
    """The parts of its history that other runs recorded, in order: the last event of each part, and the run."""

    @property
    def is_child(self) -> bool:
        return self.parent_run_id is not None


NO_LINEAGE = Lineage()


class ReplayBlock(Struct, frozen=True):
    """Why no worker can go on with a run: its code and the run's history diverge.

    The fields are shown to operators under these names.
    """

    reason: str = "nondeterminism"
    sequence: int | None = None
    """The step at which they diverge."""
    event_sequence: int | None = None
    event_type: str | None = None
    recorded: tuple[str, ...] = ()
    """Types of the events that the history has at that step."""
    yielded: str | None = None
    """What the code did there instead."""
    message: str = ""
    worker_id: str | None = None
    build_id: str | None = None
    fingerprint: str | None = None
    since: str | None = None
    """When this was first reported, in ISO 8601."""


class Run(Struct, frozen=True):
    """One execution of a workflow, or of a standalone activity. `Runs.save` writes the columns that change."""

    run_id: RunId
    namespace: str
    workflow_id: str
    run_number: int
    host: RunHost
    workflow_type: str
    task_queue: str
    business_key: str | None
    level: int
    key: str
    weight_milli: int
    compatibility: str | None
    input: Blob
    memo: str
    search_attributes: str
    execution_timeout_s: int | None
    run_timeout_s: int | None
    execution_deadline_at_ms: int | None
    run_deadline_at_ms: int | None
    started_at_ms: int
    start_key: str | None = None
    """The caller's idempotency key: a repeated start with the same key returns the same run."""
    # columns that change
    status: RunStatus = RunStatus.PENDING
    closed_reason: str | None = None
    output: Blob | None = None
    closed_at_ms: int | None = None
    last_progress_at_ms: int = 0
    deadline_at_ms: int | None = None
    last_sequence: int = 0
    last_step: int = 0
    last_task: int = 0
    open_activities: int = 0
    open_timers: int = 0
    buffered: int = 0
    task_failures: int = 0
    task_error: str | None = None
    lineage: Lineage = NO_LINEAGE
    open_children: int = 0
    open_updates: int = 0
    unseen_signals: int = 0
    """Signals since the last completed workflow task."""
    last_request: int = 0
    """The number of signals, updates and other requests accepted."""
    owed: int = 0
    """Whether another workflow task must follow the live one."""
    waits: Waits = NO_WAITS
    """What wakes the code."""
    blocked: ReplayBlock | None = None
    archived_at_ms: int | None = None

    @property
    def is_open(self) -> bool:
        return self.status not in _TERMINAL

    @property
    def priority(self) -> TaskPriority:
        return TaskPriority(self.level, self.key, self.weight_milli)


class Instance(Struct, frozen=True):
    """A workflow id in its namespace, with its latest run."""

    namespace: str
    workflow_id: str
    run_id: RunId
    run_count: int


class Queue(Struct, frozen=True, dict=True):
    """The tasks of one kind in a task queue; the row that a claim locks."""

    queue_id: QueueId
    namespace: str
    name: str
    kind: TaskKind
    paused: int = 0
    policy: Policy = NO_POLICY
    worker_rate: WorkerRate | None = None
    """The rate that workers reported last, possibly expired."""
    paid_until_ns: int = 0
    """The theoretical arrival time of the queue's rate (`limits/rates.py`)."""
    aging_turn: int = 0
    """Dispatches since a starving level last had its turn."""
    fair_by_default: int = 1
    """The namespace's default for fairness."""
    window: Counts = NOTHING
    """Dispatches of the last minute; kept only while they are limited."""
    limits: QueueLimits = NO_LIMITS
    """Its limits and those of its scopes: declared, and set by operators."""
    at_ms: int = 0
    """When it was read: settings that expired before do not apply."""

    @cached_property
    def rules(self) -> Rules:
        """The rules that follow from its settings and limits, computed once; most queues have none of either."""
        policy, limits = self.policy, self.limits
        declared = limits.leases, limits.rate_max_micro, self.worker_rate
        if not policy.settings and not policy.limited_keys and declared == (None, None, None):
            return PLAIN if self.fair_by_default else PLAIN_BY_ARRIVAL
        return rules(
            policy.at(self.at_ms),
            fair_by_default=bool(self.fair_by_default),
            worker_rate=self.reported_rate,
            lease_cap=limits.leases,
            rate_max_micro=limits.rate_max_micro,
        )

    @property
    def reported_rate(self) -> WorkerRate | None:
        """The rate that workers reported, unless it has expired."""
        rate = self.worker_rate
        return rate if rate is not None and rate.holds_at(self.at_ms) else None

    @property
    def is_limited(self) -> bool:
        """Whether it has a limit that servers must coordinate."""
        limits = self.limits
        return bool(limits.scopes) or self.rules.lease_cap is not None or limits.dispatches is not None

    @property
    def may_hold_back(self) -> bool:
        """Whether it, its scopes or its keys have any limit."""
        rules, limits = self.rules, self.limits
        leases_or_rates = (rules.lease_cap, rules.queue_rate, limits.dispatches)
        return bool(limits.scopes) or rules.limits_keys or leases_or_rates != (None, None, None)


class Task(Struct, frozen=True):
    """A unit of work that a worker leases. A retry is the same task with a higher attempt."""

    task_id: TaskId
    queue_id: QueueId
    namespace: str
    task_queue: str
    kind: TaskKind
    run_id: RunId
    activity_id: ActivityId | None
    type: str
    compatibility: str | None
    level: int
    key: str
    state: TaskState
    available_at_ms: int
    enqueued_at_ms: int
    attempt: int = 0
    lease_owner: str | None = None
    lease_token: str | None = None
    lease_expires_at_ms: int | None = None
    leased_at_ms: int | None = None
    poll_request_id: str | None = None
    done_token: str | None = None
    """The lease whose report was accepted last, so that a repeated report gets the same response."""
    done_digest: str | None = None
    done_outcome: str | None = None
    last_error: str | None = None
    counted: int = 0
    """1: its lease counts for its key; 2: it does not, but its end must notify the queue."""
    cost: int = 0
    """The estimated cost; settled with the real cost when the task ends."""
    scopes: str = ""
    """Ids of the scopes that count its lease, as ` 3 7 `."""
    claimed: int = 0
    """Of a prefetched task: the lease time until it is started; no limit counts the lease before. 0: not prefetched."""
    granted_at_ms: int | None = None
    """When its lease began to count, also after a redelivery."""
    update_id: str | None = None
    """The update that this workflow task applies; None: an ordinary workflow task."""
    retry_due_at_ms: int | None = None
    """When its retry was due, if the retry budget of its queue moved it to a later time."""
    sticky_worker_id: str | None = None
    """The worker that has its run cached and may take it exclusively until `sticky_until_ms`."""
    sticky_until_ms: int | None = None
    held_by: str = ""
    """What held it back until its last lease, a `HoldReason`; empty: nothing, or no server saw it."""
    seq: int = 0
    """Order of arrival, assigned by the store on insert: tasks of a key are first in, first out."""
    ended_lease: str | None = None
    """The lease that ended with this change, how, and its real cost: passed to the store, not stored."""
    ended_how: str | None = None
    ended_cost: int | None = None
    ended_refunded: bool = False
    """Whether the lease was never delivered, and its charges are refunded."""

    @property
    def is_live(self) -> bool:
        return self.state in (TaskState.READY, TaskState.DELAYED, TaskState.LEASED)

    def is_sticky(self, now_ms: int) -> bool:
        """Whether it is still reserved for its sticky worker."""
        return self.sticky_until_ms is not None and self.sticky_until_ms > now_ms


class ActivityTimeouts(Struct, frozen=True):
    """The four timeouts of an activity, in milliseconds; None: not set."""

    schedule_to_start_ms: int | None = None
    start_to_close_ms: int | None = None
    schedule_to_close_ms: int | None = None
    heartbeat_ms: int | None = None


class Activity(Struct, frozen=True):
    """A scheduled activity with all its attempts."""

    activity_id: ActivityId
    run_id: RunId
    task_id: TaskId
    step: int
    activity_type: str
    task_queue: str
    arguments: Blob
    retry: RetrySchedule
    timeouts: ActivityTimeouts
    extra: str
    """JSON text of further fields of the command (parallel group, cancellation policy), copied into events."""
    scheduled_at_ms: int
    status: ActivityStatus = ActivityStatus.PENDING
    attempt: int = 0
    started_at_ms: int | None = None
    heartbeat_at_ms: int | None = None
    heartbeat_details: str | None = None
    deadline_at_ms: int | None = None
    closed_at_ms: int | None = None
    worker_deaths: int = 0
    """The number of workers that died while running it."""
    quarantined: int = 0
    """Whether it was closed because of worker deaths."""


class ChildState(StrEnum):
    OPEN = "open"
    CLOSED = "closed"
    CANCELLED = "cancelled"
    """Cancelled by a selection: its result is ignored."""


class ChildRun(Struct, frozen=True):
    """A workflow started by a run that waits for it."""

    parent_run_id: RunId
    step: int
    namespace: str
    workflow_id: str
    run_id: RunId
    """The first of its runs."""
    workflow_type: str
    policy: ClosePolicy
    extra: str
    """JSON text of further fields of the command, copied into events."""
    state: ChildState = ChildState.OPEN


class OutboxKind(StrEnum):
    CHILD_ENDED = "child_ended"
    CHILD_STARTED = "child_started"
    """It is retried, or continued in another run."""
    CANCEL = "cancel"
    TERMINATE = "terminate"
    EXTERNAL_SIGNAL = "external_signal"
    EXTERNAL_CANCEL = "external_cancel"
    EXTERNAL_ANSWER = "external_answer"
    """The outcome of a signal or cancel request that a run sent to another run."""
    FIRE_CLOSED = "fire_closed"
    """The run that a schedule started has closed."""


class OutboxMessage(Struct, frozen=True):
    """A message from one run to another: recorded in the transaction that causes it, delivered once."""

    message_id: str
    namespace: str
    workflow_id: str
    run_id: str
    """Empty: the latest run of the workflow id."""
    kind: OutboxKind
    payload: str
    created_at_ms: int


class UpdateStatus(StrEnum):
    ACCEPTED = "accepted"
    COMPLETED = "completed"
    FAILED = "failed"


class Update(Struct, frozen=True):
    """An update that a caller sent to a run, and its outcome."""

    update_id: str
    run_id: RunId
    namespace: str
    workflow_id: str
    number: int
    """In order of acceptance; they are applied one after the other."""
    name: str
    arguments: Blob
    request_id: str | None
    status: UpdateStatus
    outcome: str | None
    """JSON text: the result, or how it failed."""
    accepted_at_ms: int
    closed_at_ms: int | None = None


class RetainedRequest(Struct, frozen=True):
    """An accepted request with a request id: a repetition gets the same receipt."""

    namespace: str
    workflow_id: str
    kind: str
    request_id: str
    run_id: RunId
    number: int
    name: str
    digest: str
    receipt: str
    at_ms: int


class TimerState(StrEnum):
    OPEN = "open"
    FIRED = "fired"
    CANCELLED = "cancelled"


class Timer(Struct, frozen=True):
    timer_id: TimerId
    run_id: RunId
    step: int
    delay_s: int
    fire_at_ms: int
    extra: str
    state: TimerState = TimerState.OPEN


PREFETCH_BUFFER = "max_claimed_activity_tasks"
"""The capability by which a worker prefetches more tasks than it has slots."""


class WorkerRecord(Struct, frozen=True):
    """A registered worker process: its types, its slots and its last heartbeat."""

    namespace: str
    worker_id: str
    task_queue: str
    runtime: str
    sdk_version: str | None
    build_id: str | None
    workflow_types: tuple[str, ...]
    activity_types: tuple[str, ...]
    fingerprints: Mapping[str, str]
    workflow_slots: int
    activity_slots: int
    status: WorkerStatus
    advertised: Json
    """Capabilities and message contracts, stored as sent."""
    task_slots: Json | None
    process_metrics: Json | None
    heartbeat_interval_s: int | None
    registered_at_ms: int
    heartbeat_at_ms: int
    updated_at_ms: int
    session_at_ms: int = 0
    """When the current process registered; older leases do not use its slots."""

    def types(self, kind: TaskKind) -> tuple[str, ...]:
        return self.workflow_types if kind is TaskKind.WORKFLOW else self.activity_types

    def slots(self, kind: TaskKind) -> int:
        return self.workflow_slots if kind is TaskKind.WORKFLOW else self.activity_slots

    def claims(self, kind: TaskKind) -> int:
        """How many tasks it may have prefetched and not started: its slots, or its buffer if that is larger."""
        buffer = self.advertised.get(PREFETCH_BUFFER) if kind is TaskKind.ACTIVITY else None
        slots = self.slots(kind)
        return max(slots, buffer) if slots and isinstance(buffer, int) else slots

    def knows(self, workflow_type: str) -> bool:
        """Whether it has the code of a type; without a list of types it has all, if it takes workflow tasks."""
        return workflow_type in self.workflow_types if self.workflow_types else self.workflow_slots > 0


class Cohort(Struct, frozen=True):
    """The workers of one build on a queue, and their rollout state."""

    namespace: str
    task_queue: str
    build_id: str
    """Empty: workers without a build id."""
    drain_intent: str
    drained_at_ms: int | None
    promoted_at_ms: int | None
    rolled_back_at_ms: int | None
    new_start_selected: int
    updated_at_ms: int


class QueryKind(StrEnum):
    """What a query task asks of replayed state."""

    QUERY = "query"
    UPDATE_VALIDATION = "update_validation"
    """Whether the code accepts an update."""


class QueryState(StrEnum):
    PENDING = "pending"
    LEASED = "leased"
    ANSWERED = "answered"
    FAILED = "failed"


class QueryTask(Struct, frozen=True):
    """A query of a run's replayed state. It is not recorded in the history, and lives as long as its caller waits."""

    query_id: str
    namespace: str
    task_queue: str
    run_id: RunId
    workflow_type: str
    compatibility: str | None
    name: str
    arguments: Blob
    created_at_ms: int
    expires_at_ms: int
    state: QueryState = QueryState.PENDING
    attempt: int = 0
    lease_owner: str | None = None
    lease_expires_at_ms: int | None = None
    outcome: str | None = None
    """JSON text: the result or the failure."""
    kind: QueryKind = QueryKind.QUERY


class QueueStats(Struct, frozen=True):
    """Exact counts of a queue, from the rows that claims use."""

    ready: int = 0
    leased: int = 0
    delayed: int = 0
    expired: int = 0
    added_last_minute: int = 0
    dispatched_last_minute: int = 0
    oldest: Task | None = None
    claimed: int = 0
    """How many of `leased` are prefetched and not started: they use no slot of their worker."""
    counted: int = 0
    """The leases that limits count, expired ones included."""

    @property
    def running(self) -> int:
        """The leases that use a slot of their worker."""
        return self.leased - self.claimed
