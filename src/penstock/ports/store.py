"""The store as the engine sees it: operations that read, decide and record in one transaction.

An operation is a coroutine function of a `Tx`. It *awaits* reads (`await tx.runs.lock(…)`), calls the core for the
decision, and *records* writes (`tx.runs.save(…)`, no await). The store guarantees:

1. All writes of an operation are committed together before its caller gets the result, or none is.
2. An operation that raises writes nothing.
3. On one node, operations with the same `key` run one after the other in the order of submission; across nodes the
   row locks that they take (`lock`) serialize them.
4. `tx.now_ms` is constant inside a transaction, and is the database's clock where nodes share a database.

An operation writes each row at most once and does not read its own writes. It may be retried from the beginning after
a serialization failure, so it must have no side effect except through `tx`.
Locks are taken in one order everywhere: admission, queue, scope, run, task, key, lane. Ended leases are counted in rows
of their own, which are locked only while a transaction commits.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from enum import StrEnum
from typing import Any, Generic, Protocol, TypeVar

from msgspec import Struct

from penstock.core.limits.admission import Admission, Declaration
from penstock.core.limits.policies import KeySettings, KeyState, Policy, PolicyChange
from penstock.core.limits.rate_reports import WorkerRate
from penstock.core.limits.windows import Counts
from penstock.core.model import (
    Activity,
    ActivityId,
    ChildRun,
    Cohort,
    Instance,
    Namespace,
    NewEvent,
    OutboxMessage,
    QueryKind,
    QueryTask,
    Queue,
    QueueId,
    QueueStats,
    RecordedEvent,
    RetainedRequest,
    Run,
    RunId,
    Task,
    TaskId,
    TaskKind,
    TaskPriority,
    TaskState,
    Timer,
    Update,
    WorkerRecord,
    WorkerStatus,
)
from penstock.core.scheduling.backlog import Backlog, LaneBacklog
from penstock.core.scheduling.dispatch import BlockedLanes, WorkerFilter
from penstock.core.scheduling.fairness import ALL_LEVELS, Arrival, Lane, LaneState, Starving, VirtualClock
from penstock.core.scheduling.gates import ScopeState
from penstock.core.scheduling.slots import SlotUsage
from penstock.core.why.position import LevelCounts
from penstock.errors import Reason
from penstock.ports.namespace_stats import NamespaceStats
from penstock.ports.next_due import NextDue
from penstock.ports.retention import Retention
from penstock.ports.retry_budgets import RetryBudgets
from penstock.ports.streams import Messages, Streams
from penstock.ports.visibility import PageStart as PageStart
from penstock.ports.visibility import Visibility
from penstock.ports.wakeups import Topic

T = TypeVar("T")


class TransactionClass(StrEnum):
    """Which group of transactions an operation is committed with; claims must not wait behind bulk starts."""

    WORK = "work"
    CLAIM = "claim"
    PERMIT = "permit"
    """Starts of prefetched tasks: they lock the same rows as claims, in another order."""
    CHANGE = "change"
    """Changes that count the effects of other operations: never in one transaction with them."""


class StoreHealth(Struct, frozen=True):
    """Whether a store's writes go through."""

    stalled_ms: int = 0
    """The age of the oldest commit in progress; 0 if there is none."""
    refusal: Reason | None = None
    """Why a recent write failed: the disk is full or broken."""


class Namespaces(Protocol):
    async def get(self, name: str) -> Namespace | None: ...
    async def list(self) -> Sequence[Namespace]: ...
    async def reserve(self, namespace: Namespace) -> bool:
        """Insert unless the name is taken; returns False then. The operation must not raise after it."""
        ...

    def save(self, namespace: Namespace) -> None: ...
    def delete(self, name: str) -> None: ...
    async def is_empty(self, name: str) -> bool:
        """Whether it has no run, task queue or worker."""
        ...


class RunFilter(Struct, frozen=True):
    """A filter for lists of runs; fields that are None match everything."""

    namespace: str
    host: str
    type: str | None = None
    bucket: str | None = None
    text: str | None = None
    """Part of the workflow id or business key."""


class Runs(Protocol):
    async def reserve(self, instance: Instance) -> Instance:
        """Insert the workflow id unless it exists; returns the row that is stored."""
        ...

    async def reserve_all(self, instances: Sequence[Instance]) -> Sequence[Instance]:
        """`reserve` for several workflow ids."""
        ...

    async def instance(self, namespace: str, workflow_id: str) -> Instance | None: ...
    async def named(
        self, namespace: str, workflow_id: str, run_id: RunId | None
    ) -> tuple[Instance, Run | None] | None:
        """A workflow id, and the given run (which may belong to another id) or else its latest run."""
        ...

    async def get(self, run_id: RunId) -> Run | None: ...
    async def get_many(self, run_ids: Sequence[RunId]) -> Sequence[Run | None]: ...
    async def lock(self, run_id: RunId) -> Run | None: ...
    async def of_instance(
        self, namespace: str, workflow_id: str, after: PageStart | None, limit: int
    ) -> Sequence[Run]:
        """The runs of a workflow id, the oldest first."""
        ...

    async def page(self, narrow: RunFilter, after: PageStart | None, limit: int) -> Sequence[Run]: ...
    async def overdue(self, now_ms: int, limit: int) -> Sequence[RunId]: ...
    async def blocked(self, namespace: str, task_queue: str, limit: int) -> Sequence[RunId]:
        """Open runs of a queue whose code and history diverge."""
        ...

    def insert(self, run: Run) -> None: ...
    def save(self, run: Run) -> None:
        """Update the columns that change during a run; not its memo and search attributes."""
        ...

    def save_attributes(self, run: Run) -> None:
        """Update the memo and the search attributes."""
        ...

    def succeed(self, instance: Instance) -> None:
        """Update the latest run of a workflow id."""
        ...


PAGE_BYTES = 4_000_000
"""A page of a history ends with the event that reaches this size."""


class Histories(Protocol):
    async def page(self, run_id: RunId, after: int, limit: int) -> Sequence[RecordedEvent]:
        """Up to `limit` events after a sequence number; fewer if they are large, but at least one if there is any."""
        ...

    async def first_pages(
        self, run_ids: Sequence[RunId], limits: Sequence[int], after: Sequence[int] = ()
    ) -> Sequence[Sequence[RecordedEvent]]:
        """One page of each history, with its own limit, from the beginning or after a sequence number."""
        ...

    async def page_back(self, run_id: RunId, before: int, limit: int) -> Sequence[RecordedEvent]:
        """The last events before a sequence number, newest first."""
        ...

    async def last_of_type(self, run_id: RunId, types: Sequence[str]) -> RecordedEvent | None: ...
    async def buffered(self, run_id: RunId) -> Sequence[NewEvent]:
        """Events buffered until the leased workflow task ends, in order of arrival."""
        ...

    def append(self, events: Sequence[RecordedEvent]) -> None: ...
    def buffer(self, run_id: RunId, number: int, event: NewEvent) -> None: ...
    def clear_buffer(self, run_id: RunId) -> None: ...


class Activities(Protocol):
    async def get(self, activity_id: ActivityId) -> Activity | None: ...
    async def get_many(self, activity_ids: Sequence[ActivityId]) -> Sequence[Activity | None]: ...
    async def open_of(self, run_id: RunId) -> Sequence[Activity]: ...
    async def overdue(self, now_ms: int, limit: int) -> Sequence[ActivityId]: ...
    def insert(self, activity: Activity) -> None: ...
    def save(self, activity: Activity) -> None: ...


class Children(Protocol):
    async def get(self, parent_run_id: RunId, step: int) -> ChildRun | None: ...
    async def open_of(self, parent_run_id: RunId) -> Sequence[ChildRun]: ...
    async def all_of(self, parent_run_id: RunId) -> Sequence[ChildRun]: ...
    def insert(self, child: ChildRun) -> None: ...
    def save(self, child: ChildRun) -> None: ...


class Outbox(Protocol):
    async def get(self, message_id: str) -> OutboxMessage | None: ...
    async def lock(self, message_id: str) -> OutboxMessage | None:
        """Lock the message itself, where there may be no receiving run to lock."""
        ...

    async def waiting(self, limit: int) -> Sequence[str]:
        """Ids of undelivered messages, oldest first."""
        ...

    def insert(self, message: OutboxMessage) -> None: ...
    def delete(self, message_id: str) -> None: ...


class Updates(Protocol):
    async def get(self, update_id: str) -> Update | None: ...
    async def next_accepted(self, run_id: RunId) -> Update | None:
        """The update of a run that is applied next."""
        ...

    async def accepted_of(self, run_id: RunId) -> Sequence[Update]: ...
    async def all_of(self, run_id: RunId) -> Sequence[Update]: ...
    def insert(self, update: Update) -> None: ...
    def save(self, update: Update) -> None:
        """Record the outcome of an update, or its move to the run that continues its own."""
        ...


class Requests(Protocol):
    async def get(
        self, namespace: str, workflow_id: str, kind: str, request_id: str
    ) -> RetainedRequest | None: ...
    async def all_of(self, run_id: RunId) -> Sequence[RetainedRequest]: ...
    def insert(self, request: RetainedRequest) -> None: ...


class Timers(Protocol):
    async def get(self, timer_id: str) -> Timer | None: ...
    async def open_of(self, run_id: RunId) -> Sequence[Timer]: ...
    async def due(self, now_ms: int, limit: int) -> Sequence[str]: ...
    async def next_due_at_ms(self) -> int | None: ...
    def insert(self, timer: Timer) -> None: ...
    def save(self, timer: Timer) -> None: ...


class Tasks(Protocol):
    async def get(self, task_id: TaskId) -> Task | None: ...
    async def lock(self, task_id: TaskId) -> Task | None: ...
    async def lock_live_of(self, run_id: RunId) -> Sequence[Task]:
        """Every live task of the run (ready, delayed or leased), locked."""
        ...

    async def lock_workflow_task(self, run_id: RunId) -> Task | None:
        """The run's live workflow task, locked; there is at most one."""
        ...

    async def redelivered(self, namespace: str, polls: Sequence[tuple[str, str]]) -> Sequence[Sequence[Task]]:
        """For each (worker id, poll request id): the live leases that the same poll request already got."""
        ...

    async def leased_by(self, namespace: str, worker_id: str) -> Sequence[TaskId]: ...
    async def held(
        self, namespace: str, kind: TaskKind, sessions: Sequence[tuple[str, int]]
    ) -> Sequence[SlotUsage]:
        """The slots each worker uses, by leases granted since its session began: (worker id, session start)."""
        ...

    async def notify_at_ends(self, namespace: str, kind: TaskKind, worker_ids: Sequence[str]) -> None:
        """Notify the queue's topic when a lease of these workers ends, from now on.

        Does not cover leases whose end is being committed concurrently; `held` counts those.
        """
        ...

    async def leases_on(self, queue_id: QueueId, limit: int) -> Sequence[Task]: ...
    async def expired(self, now_ms: int, limit: int) -> Sequence[TaskId]: ...
    async def due(self, now_ms: int, limit: int) -> Sequence[TaskId]: ...
    async def next_due_at_ms(self) -> int | None:
        """When the next delayed task becomes ready."""
        ...

    async def any_ready(self, queue_id: QueueId, worker_filter: WorkerFilter) -> bool: ...
    async def ready_on(self, queue_ids: Sequence[QueueId]) -> Sequence[QueueId]:
        """Those of the queues that have a ready task, for any worker."""
        ...

    async def matchable(self, queue_id: QueueId, worker_filter: WorkerFilter) -> WorkerFilter | None:
        """The filter, narrowed to types that have ready tasks; None if there are none."""
        ...

    async def sticky(self, queue_id: QueueId) -> Mapping[str, int]:
        """The workers that have sticky ready tasks in the queue, with the time at which the first of each expires."""
        ...

    def insert(self, task: Task, priority: TaskPriority) -> None:
        """Enqueue a new task: its row and, if it is ready, its lane's count."""
        ...

    def save(self, task: Task, was: TaskState) -> None:
        """Update the state; the lane's count follows when the task enters or leaves `ready`.

        When a counted lease ends, the counts of its key and scopes go down, the key's blocked lanes become dirty, and
        the topics of the queue and the scopes are notified.
        """
        ...

    def lease(self, task: Task) -> None:
        """Record a grant. `Queues.settle` has billed the lane and lowered its count."""
        ...


class Queues(Protocol):
    async def ensure(self, namespace: str, name: str, kind: TaskKind) -> Queue:
        """The queue, created if it is new. It may come from a cache: only its identity is reliable."""
        ...

    async def find(self, namespace: str, name: str) -> Sequence[Queue]: ...
    async def list(self, namespace: str) -> Sequence[Queue]: ...
    async def lock(self, queue_id: QueueId) -> Queue | None: ...
    async def lanes(
        self, queue_id: QueueId, worker_filter: WorkerFilter, room: int, levels: tuple[int, int] = ALL_LEVELS
    ) -> Sequence[Lane]:
        """The first `room` ready lanes with matching tasks, of a range of levels."""
        ...

    async def lanes_to_tag(
        self, queue_id: QueueId, worker_filter: WorkerFilter, lane_state: LaneState
    ) -> Sequence[Lane]:
        """A bounded number of new or dirty lanes, marked with whether they have matching tasks."""
        ...

    async def lanes_due(self, queue_id: QueueId, worker_filter: WorkerFilter, now_ms: int) -> Sequence[Lane]:
        """A bounded number of throttled lanes that may go again, marked with whether they have matching tasks."""
        ...

    async def wake_due_lanes(self, queue_id: QueueId, now_ms: int) -> None:
        """Mark every throttled lane that may go again as dirty."""
        ...

    async def arrivals(
        self,
        queue_id: QueueId,
        worker_filter: WorkerFilter,
        room: int,
        now_ms: int,
        levels: tuple[int, int] = ALL_LEVELS,
    ) -> Sequence[tuple[Arrival, Lane]]:
        """The first matching ready tasks in order of level and arrival, each with its lane.

        Tasks in blocked and throttled lanes are skipped.
        """
        ...

    async def blocked(self, queue_id: QueueId) -> BlockedLanes: ...
    async def starving(self, queue_id: QueueId, since_ms: int, most: int) -> Sequence[Starving]:
        """For each level that has any: how many of its `most` oldest ready tasks were enqueued before a time."""
        ...

    async def running(self, queue_id: QueueId, most: int) -> int:
        """The number of leased tasks, counted up to `most`."""
        ...

    async def clocks(self, queue_id: QueueId) -> Sequence[VirtualClock]: ...
    async def rebase(self, queue_id: QueueId, clock: VirtualClock) -> None:
        """Subtract a level's virtual time from the clock and all tags of the level."""
        ...

    async def take(
        self, queue_id: QueueId, wanted: Sequence[tuple[int, str, int]], worker_filter: WorkerFilter
    ) -> Sequence[Sequence[Task]]:
        """For each (level, key, count): the first matching ready tasks of that lane, locked, oldest first."""
        ...

    async def stats(self, queue_id: QueueId, now_ms: int) -> QueueStats: ...
    async def totals(self, namespace: str, kind: TaskKind, minute: int) -> tuple[int, int]:
        """The leased tasks of a kind in a namespace, and its dispatches in a minute, over all queues."""
        ...

    async def backlog(self, queue_id: QueueId, now_ms: int, top: int) -> Backlog:
        """Waiting tasks by level, and the `top` lanes with the most tasks."""
        ...

    async def lane(self, queue_id: QueueId, level: int, key: str, now_ms: int) -> LaneBacklog | None:
        """One busy lane, in any state."""
        ...

    async def lanes_before(
        self, queue_id: QueueId, level: int, rank: int, tag: int, most: int
    ) -> Sequence[Lane]:
        """The first ready lanes of a level up to a rank and tag."""
        ...

    async def count_lanes_before(self, queue_id: QueueId, level: int, rank: int, tag: int, most: int) -> int:
        """The number of `lanes_before`, counted up to `most`."""
        ...

    async def new_lanes(self, queue_id: QueueId, level: int, most: int) -> Sequence[Lane]:
        """The first new lanes of a level, by key."""
        ...

    async def count_before(self, queue_id: QueueId, level: int, key: str | None, seq: int, most: int) -> int:
        """The number of ready tasks of a lane, or of a level (`key` None), ahead of one, counted up to `most`."""
        ...

    async def head(self, queue_id: QueueId, level: int, key: str | None) -> Task | None:
        """The oldest ready task of a lane, or of a level (`key` None)."""
        ...

    async def route_heads(self, queue_id: QueueId, most: int) -> Sequence[Task]:
        """One ready task of each route (type and build), for up to `most` routes in order of type and build.

        The cost depends on the number of routes, not of tasks.
        """
        ...

    async def count_route(self, queue_id: QueueId, type_: str, build_id: str | None, most: int) -> int:
        """The number of ready tasks of this type and build, counted up to `most`."""
        ...

    async def level_counts(
        self, queue_id: QueueId, to_level: int, now_ms: int, most: int
    ) -> Sequence[LevelCounts]:
        """Waiting and recently dispatched tasks of each level up to one, over up to `most` lanes a level."""
        ...

    async def dispatched(self, queue_id: QueueId, minute: int) -> int:
        """The dispatches of a calendar minute."""
        ...

    def settle(self, queue_id: QueueId, lane: Lane, taken: int) -> None:
        """Update a lane after a claim. Its count is lowered, not set, because enqueues do not lock the lane's queue.

        The lane becomes new if its weight changed meanwhile. A lane blocked at a lease cap (`held_at`) becomes dirty
        instead if its key, as it will be committed, is below the cap.
        """
        ...

    def refund(self, queue_id: QueueId, level: int, key: str, stride: int, minute: int) -> None:
        """Refund a task that was granted in this calendar minute and never delivered.

        The lane's tag goes back by `stride`, or the stride of its present weight if that is less, and the lane's meter
        of that minute goes down by one. Call it under the queue's lock; `Tasks.save` puts the task back into the lane.
        """
        ...

    def save_clock(self, queue_id: QueueId, clock: VirtualClock) -> None: ...
    def count_dispatches(self, queue_id: QueueId, minute: int, count: int) -> None: ...
    async def idle_lanes(self, limit: int) -> Sequence[tuple[QueueId, int, str]]:
        """Keyed lanes without tasks whose tag is behind the clock: their rows have no information left."""
        ...

    def drop_lane(self, queue_id: QueueId, level: int, key: str) -> None:
        """Delete a lane if it is still idle."""
        ...

    async def any_meter_before(self, minute: int) -> bool: ...
    def forget_meters(self, before_minute: int) -> None: ...


class Policies(Protocol):
    """A queue's settings and the rows of its keys. Written under the queue's lock."""

    async def key_states(self, queue_id: QueueId, keys: Sequence[str]) -> Mapping[str, KeyState]:
        """The keys that have a row."""
        ...

    async def key_settings(self, queue_id: QueueId, keys: Sequence[str]) -> Mapping[str, KeySettings]:
        """The keys that have settings."""
        ...

    async def keys_with_settings(self, queue_id: QueueId, limit: int) -> Sequence[KeySettings]: ...
    async def count_keys_with_settings(self, queue_id: QueueId) -> int: ...
    async def changes(self, queue_id: QueueId, limit: int) -> Sequence[PolicyChange]:
        """The log, newest version first."""
        ...

    async def count_leases(self, queue_id: QueueId) -> None:
        """Mark every lease of the queue as counted, and set the number of running tasks of each key.

        Only in `TransactionClass.CHANGE`: it relies on row locks, which do not separate operations that share a
        transaction.
        """
        ...

    async def rank_lanes(self, queue_id: QueueId, *, by_running: bool) -> None:
        """Set the rank of every busy lane by its key's running tasks, or reset all ranks."""
        ...

    async def idle_keys(self, now_ms: int, limit: int) -> Sequence[tuple[QueueId, str]]:
        """Keys without settings, running tasks or rate debt: their rows have no information left."""
        ...

    def save(self, queue_id: QueueId, policy: Policy) -> None: ...
    def save_worker_rate(self, queue_id: QueueId, rate: WorkerRate | None) -> None: ...
    def save_key(self, queue_id: QueueId, settings: KeySettings) -> None: ...
    def log(self, queue_id: QueueId, changes: Sequence[PolicyChange]) -> None: ...
    def forget_changes(self, queue_id: QueueId, up_to_version: int) -> None: ...
    def spend(self, queue_id: QueueId, key: str, paid_until_ns: int | None, leased: int) -> None:
        """Update a key's rate debt (None: unchanged) and add to its counted leases."""
        ...

    def settle(self, queue_id: QueueId, paid_until_ns: int, aging_turn: int, window: Counts) -> None:
        """Update the queue's rate debt, aging turn and dispatch window."""
        ...

    def touch_key(self, queue_id: QueueId, key: str, lane_state: LaneState) -> None:
        """Set the state of a key's busy lanes, except new ones, so that the next claim evaluates them."""
        ...

    def rerank_others(self, queue_id: QueueId, level: int, key: str) -> None:
        """Mark the key's ready lanes at other levels as dirty, after a dispatch at this level."""
        ...

    def reset_lanes(self, queue_id: QueueId, lane_state: LaneState) -> None:
        """Set the state of every dirty, throttled or blocked lane: dirty to evaluate it again, ready to release it."""
        ...

    def drop_key(self, queue_id: QueueId, key: str) -> None:
        """Delete a key's row if it still has no information."""
        ...


class Scopes(Protocol):
    """Limits shared by several queues. Changed under the locks of the admission row and of every affected queue."""

    async def admission(self) -> Admission:
        """All limits that are in force."""
        ...

    async def lock_admission(self) -> Admission: ...
    async def lock_queues(self, namespace: str | None) -> Sequence[Queue]:
        """Lock every queue of a namespace, or of all: none of them grants anything meanwhile."""
        ...

    async def names(self, after: str, limit: int) -> Sequence[str]:
        """Names of scopes with counters, in order."""
        ...

    async def ids(self, names: Sequence[str]) -> Sequence[int]:
        """The scopes' ids; new scopes are created."""
        ...

    async def lock(self, scope_ids: Sequence[int]) -> Sequence[ScopeState]:
        """The counters of scopes by id, locked until the commit."""
        ...

    async def find(self, names: Sequence[str]) -> Sequence[ScopeState]:
        """The counters of those of the scopes that have any; not locked."""
        ...

    async def settlements(self, scope_id: int) -> Sequence[tuple[int, int]]:
        """Take the differences between real and estimated costs, as (granted at, amount)."""
        ...

    async def counted(self, scope_id: int, queue_ids: Sequence[QueueId]) -> int:
        """The number of leases of these queues that the scope counts."""
        ...

    async def difference(self, scope_id: int) -> int:
        """The scope's counter minus the leases that it counts, in one snapshot."""
        ...

    async def adopt(self, scope_id: int, queue_ids: Sequence[QueueId]) -> int:
        """Have the scope count every lease of these queues; returns how many are new to it."""
        ...

    async def hold(self, scope_id: int, queue_ids: Sequence[QueueId]) -> int:
        """Like `counted`, with the leases locked until the commit."""
        ...

    async def holders(self, scope_id: int, queue_id: QueueId, limit: int) -> Sequence[Task]:
        """The leases of a queue that the scope counts, by expiry."""
        ...

    async def changes(self, name: str, limit: int) -> Sequence[PolicyChange]: ...
    def settle(self, state: ScopeState) -> None:
        """Update the counters of a scope, except ended leases, which are counted where they end."""
        ...

    def settle_cost(self, scope_id: int, at_ms: int, amount: int) -> None:
        """Record a difference between real and estimated cost: more is counted now, less returned to `at_ms`."""
        ...

    async def any_settlement_before(self, at_ms: int) -> bool: ...
    def forget_settlements(self, before_ms: int) -> None:
        """Delete differences that were not taken and are outside of every window."""
        ...

    def cool(self, scope_id: int, until_ms: int) -> None:
        """Close a scope until a time, unless it is closed for longer already."""
        ...

    def save_policy(self, scope_id: int, policy: Policy) -> None: ...
    def log(self, name: str, changes: Sequence[PolicyChange]) -> None: ...
    def forget_changes(self, name: str, up_to_version: int) -> None: ...
    def declare(self, declaration: Declaration, by: str) -> None: ...
    def stamp(self, stamp: str, queue_ids: Sequence[QueueId]) -> None:
        """Set the version of the limits, and the queues that must use it."""
        ...


class Journal(Protocol):
    async def page(self, after: int, limit: int) -> Sequence[tuple[int, str]]: ...
    async def any_before(self, at_ms: int) -> bool: ...
    def append(self, line: Mapping[str, Any]) -> None: ...
    def forget(self, before_ms: int) -> None: ...


QueryQueue = tuple[QueryKind, str, str]
"""A queue of query tasks: kind, namespace and task queue."""


class Queries(Protocol):
    async def get(self, query_id: str) -> QueryTask | None: ...
    async def lock(self, query_id: str) -> QueryTask | None: ...
    async def count_pending(
        self, namespace: str, task_queue: str, now_ms: int, kind: QueryKind = QueryKind.QUERY
    ) -> int: ...
    async def lock_next(
        self,
        namespace: str,
        task_queue: str,
        worker_filter: WorkerFilter,
        now_ms: int,
        kind: QueryKind = QueryKind.QUERY,
    ) -> QueryTask | None:
        """The oldest matching pending query whose caller still waits, locked."""
        ...

    async def pending_on(self, queues: Sequence[QueryQueue], now_ms: int) -> Sequence[QueryQueue]:
        """Those of the queues that have a pending query."""
        ...

    async def lapsed(self, now_ms: int, limit: int) -> Sequence[str]:
        """Queries whose caller is gone or whose lease has expired."""
        ...

    def insert(self, query: QueryTask) -> None: ...
    def save(self, query: QueryTask) -> None: ...
    def delete(self, query_id: str) -> None: ...


class Workers(Protocol):
    async def get(self, namespace: str, worker_id: str) -> WorkerRecord | None: ...
    async def get_many(self, namespace: str, worker_ids: Sequence[str]) -> Sequence[WorkerRecord | None]: ...
    async def list(self, namespace: str, task_queue: str | None) -> Sequence[WorkerRecord]: ...
    async def silent(self, since_ms: int, limit: int) -> Sequence[tuple[str, str]]:
        """Workers (namespace, id) without a heartbeat since a time, longest first."""
        ...

    def save(self, worker: WorkerRecord) -> None:
        """Insert or replace a registration."""
        ...

    def mark(self, namespace: str, worker_id: str, status: WorkerStatus) -> None:
        """Update only the status of a worker, if it still exists."""
        ...

    def heartbeat(self, worker: WorkerRecord) -> None:
        """Update the heartbeat time and reported state of a worker, if it still exists."""
        ...

    def touch(self, namespace: str, worker_id: str, now_ms: int) -> None: ...
    def delete(self, namespace: str, worker_id: str) -> None: ...


class Cohorts(Protocol):
    async def get(self, namespace: str, task_queue: str, build_id: str) -> Cohort | None: ...
    async def promoted(self, namespace: str, task_queue: str) -> Cohort | None:
        """The cohort that new runs are pinned to, if an operator chose one."""
        ...

    async def list(self, namespace: str, task_queue: str) -> Sequence[Cohort]: ...
    def save(self, cohort: Cohort) -> None: ...


class Nonces(Protocol):
    async def register(self, key: str, nonce: str, expires_at_ms: int) -> bool:
        """Store a nonce; returns False if it was seen before."""
        ...

    async def any_expired(self, now_ms: int) -> bool: ...
    def forget(self, before_ms: int) -> None: ...


class Tx(Protocol):
    """The transaction of one operation: all access to the store goes through its tables."""

    @property
    def now_ms(self) -> int: ...
    @property
    def namespaces(self) -> Namespaces: ...
    @property
    def runs(self) -> Runs: ...
    @property
    def histories(self) -> Histories: ...
    @property
    def activities(self) -> Activities: ...
    @property
    def timers(self) -> Timers: ...
    @property
    def children(self) -> Children: ...
    @property
    def outbox(self) -> Outbox: ...
    @property
    def updates(self) -> Updates: ...
    @property
    def requests(self) -> Requests: ...
    @property
    def messages(self) -> Messages: ...
    @property
    def streams(self) -> Streams: ...
    @property
    def tasks(self) -> Tasks: ...
    @property
    def queues(self) -> Queues: ...
    @property
    def policies(self) -> Policies: ...
    @property
    def scopes(self) -> Scopes: ...
    @property
    def journal(self) -> Journal: ...
    @property
    def retry_budgets(self) -> RetryBudgets: ...
    @property
    def workers(self) -> Workers: ...
    @property
    def cohorts(self) -> Cohorts: ...
    @property
    def queries(self) -> Queries: ...
    @property
    def nonces(self) -> Nonces: ...
    @property
    def visibility(self) -> Visibility: ...
    @property
    def retention(self) -> Retention: ...
    @property
    def namespace_stats(self) -> NamespaceStats: ...
    @property
    def next_due(self) -> NextDue: ...

    def wake(self, topic: Topic) -> None:
        """Notify a topic after the commit, on every node that shares the store."""
        ...


Operation = Callable[[Tx], Awaitable[T]]


class Transaction(Struct, Generic[T], frozen=True):
    """An operation and the key that serializes it."""

    operation: Operation[T]
    key: str


class Store(Protocol):
    @property
    def journals(self) -> bool:
        """Whether the journal is on: ended leases are written to it, so grants must be, too."""
        ...

    async def transact(
        self, operation: Operation[T], *, key: str, tx_class: TransactionClass = TransactionClass.WORK
    ) -> T:
        """Run an operation and return its result after the commit."""
        ...

    async def transact_all(self, transactions: Sequence[Transaction[T]]) -> Sequence[T | Exception]:
        """Run several operations of one caller, and return after the commit of the last.

        The outcomes are in order: the result of each operation, or the exception that it raised. Raises if none of
        them was accepted.
        """
        ...

    async def read(self, operation: Operation[T], *, long: bool = False) -> T:
        """Run an operation that writes nothing, in one snapshot of committed data.

        `long`: it may read much, and must not delay short reads.
        """
        ...

    async def check(self) -> None:
        """Raise `Unavailable` if the database does not respond."""
        ...

    def health(self) -> StoreHealth:
        """What this process knows about its writes; no I/O."""
        ...

    async def close(self) -> None: ...
