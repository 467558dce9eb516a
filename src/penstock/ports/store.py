"""The truth, as the engine sees it: operations that read, decide and record in one transaction.

An operation is a coroutine function of a `Tx`. It *awaits* what it must know (`await tx.runs.lock(…)`), asks the
core, and *records* what was decided (`tx.runs.save(…)`, no await). The store keeps four promises:

1. Everything that an operation recorded is committed together, before its caller is answered, or nothing is.
2. An operation that raises records nothing.
3. Operations with one `key` run one after the other, in the order in which they were handed in, on this node;
   across nodes the locks that they take (`lock`) keep them apart.
4. `tx.now_ms` does not change inside a transaction, and is the database's time where nodes share one.

An operation writes each row at most once and does not read what it recorded. It may be run again from its
beginning when the database asks for a retry, so it must have no effect but through `tx`.
Locks are taken in one order everywhere: admission, queue, scope, run, task, key, lane; what ends is counted in
rows of its own, which nobody locks for longer than the end of a transaction.
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
    """Which stream of operations a transaction joins; claims must not wait behind bulk starts."""

    WORK = "work"
    CLAIM = "claim"
    PERMIT = "permit"
    """For tasks that are started after they were handed out: they lock what claims lock, but not as late."""
    CHANGE = "change"
    """For changes that count what others do: never in one transaction with those."""


class StoreHealth(Struct, frozen=True):
    """How the writes of a store fare."""

    stalled_ms: int = 0
    """For how long the oldest commit under way has not come back; 0 where none is under way."""
    refusal: Reason | None = None
    """Why a write was refused a moment ago: the disk is full, or fails."""


class Namespaces(Protocol):
    async def get(self, name: str) -> Namespace | None: ...
    async def list(self) -> Sequence[Namespace]: ...
    async def reserve(self, namespace: Namespace) -> bool:
        """Insert unless the name is taken; False then. Nothing may be refused after it."""
        ...

    def save(self, namespace: Namespace) -> None: ...
    def delete(self, name: str) -> None: ...
    async def is_empty(self, name: str) -> bool:
        """True when no run, task queue or worker belongs to it."""
        ...


class RunFilter(Struct, frozen=True):
    """What a list of runs is narrowed by; None narrows nothing."""

    namespace: str
    host: str
    type: str | None = None
    bucket: str | None = None
    text: str | None = None
    """Part of the workflow id or business key."""


class Runs(Protocol):
    async def reserve(self, instance: Instance) -> Instance:
        """Take the workflow id, or learn who has it: the returned row is the one that stands."""
        ...

    async def reserve_all(self, instances: Sequence[Instance]) -> Sequence[Instance]:
        """The same for several workflow ids."""
        ...

    async def instance(self, namespace: str, workflow_id: str) -> Instance | None: ...
    async def named(
        self, namespace: str, workflow_id: str, run_id: RunId | None
    ) -> tuple[Instance, Run | None] | None:
        """A workflow id, and the run that is named, which may be another id's, or else its last one."""
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
        """Open runs of a queue whose replay parts from their history."""
        ...

    def insert(self, run: Run) -> None: ...
    def save(self, run: Run) -> None:
        """Record what changes as a run goes on; not its memo and search attributes."""
        ...

    def save_attributes(self, run: Run) -> None:
        """Record the memo and the search attributes, which change seldom."""
        ...

    def succeed(self, instance: Instance) -> None:
        """Let a workflow id name its next run."""
        ...


PAGE_BYTES = 4_000_000
"""A page of a history ends with the event that makes it as large as this."""


class Histories(Protocol):
    async def page(self, run_id: RunId, after: int, limit: int) -> Sequence[RecordedEvent]:
        """The events after a sequence: so many, or fewer where they are large; one at least, if there is any."""
        ...

    async def first_pages(
        self, run_ids: Sequence[RunId], limits: Sequence[int], after: Sequence[int] = ()
    ) -> Sequence[Sequence[RecordedEvent]]:
        """The first page of several histories, each with its own limit; or of what comes after a sequence of each."""
        ...

    async def page_back(self, run_id: RunId, before: int, limit: int) -> Sequence[RecordedEvent]:
        """The last events before a sequence, the newest first."""
        ...

    async def last_of_type(self, run_id: RunId, types: Sequence[str]) -> RecordedEvent | None: ...
    async def buffered(self, run_id: RunId) -> Sequence[NewEvent]:
        """Events that wait for the leased workflow task to end, in order of arrival."""
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
        """The letter, for one whose receiver may not be there to be locked instead."""
        ...

    async def waiting(self, limit: int) -> Sequence[str]:
        """Letters that were not delivered yet, the oldest first."""
        ...

    def insert(self, letter: OutboxMessage) -> None: ...
    def delete(self, message_id: str) -> None: ...


class Updates(Protocol):
    async def get(self, update_id: str) -> Update | None: ...
    async def next_accepted(self, run_id: RunId) -> Update | None:
        """The update of a run that is to be applied next."""
        ...

    async def accepted_of(self, run_id: RunId) -> Sequence[Update]: ...
    async def all_of(self, run_id: RunId) -> Sequence[Update]: ...
    def insert(self, update: Update) -> None: ...
    def save(self, update: Update) -> None:
        """Record what became of an update; it may go on to the run that continues its own."""
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
        """The run's live workflow task, if it has one; there is at most one."""
        ...

    async def redelivered(self, namespace: str, polls: Sequence[tuple[str, str]]) -> Sequence[Sequence[Task]]:
        """For each (worker id, poll request id): what this very poll has already leased and still holds."""
        ...

    async def leased_by(self, namespace: str, worker_id: str) -> Sequence[TaskId]: ...
    async def held(
        self, namespace: str, kind: TaskKind, sessions: Sequence[tuple[str, int]]
    ) -> Sequence[SlotUsage]:
        """What each worker holds of what was granted to it since a moment: (worker id, since when)."""
        ...

    async def notify_at_ends(self, namespace: str, kind: TaskKind, worker_ids: Sequence[str]) -> None:
        """From now on the queue's bell rings when a lease of these workers ends.

        Except for leases that somebody reports on in this moment: `held` tells which are not told of.
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
        """Those of the queues on which something is ready, for whomever."""
        ...

    async def matchable(self, queue_id: QueueId, worker_filter: WorkerFilter) -> WorkerFilter | None:
        """The fit narrowed to types of which something is ready; None when nothing is."""
        ...

    async def sticky(self, queue_id: QueueId) -> Mapping[str, int]:
        """The workers for which ready tasks of a line are reserved now, and when the first of each is for anybody."""
        ...

    def insert(self, task: Task, priority: TaskPriority) -> None:
        """Put a new task in line: its row, and its lane's count when it is ready."""
        ...

    def save(self, task: Task, was: TaskState) -> None:
        """Record a change of state; the lane's count follows when the task enters or leaves `ready`.

        When a counted lease ends, its key runs one less, the key's held lanes are looked at again, and the
        queue's bell rings; the scopes that count it count one less, and their bells ring.
        """
        ...

    def lease(self, task: Task) -> None:
        """Record a grant. The lane was billed by `Queues.settle`, which also lowered its count."""
        ...


class Queues(Protocol):
    async def ensure(self, namespace: str, name: str, kind: TaskKind) -> Queue:
        """The queue, made if need be. It may be remembered from before: only who it is can be relied on."""
        ...

    async def find(self, namespace: str, name: str) -> Sequence[Queue]: ...
    async def list(self, namespace: str) -> Sequence[Queue]: ...
    async def lock(self, queue_id: QueueId) -> Queue | None: ...
    async def lanes(
        self, queue_id: QueueId, worker_filter: WorkerFilter, room: int, levels: tuple[int, int] = ALL_LEVELS
    ) -> Sequence[Lane]:
        """The `room` least ready lanes that fit, of the levels from the first to the second named."""
        ...

    async def lanes_to_tag(
        self, queue_id: QueueId, worker_filter: WorkerFilter, lane_state: LaneState
    ) -> Sequence[Lane]:
        """The lanes that are fresh, or those that are stale (a bounded number), marked with whether they fit."""
        ...

    async def lanes_due(self, queue_id: QueueId, worker_filter: WorkerFilter, now_ms: int) -> Sequence[Lane]:
        """The lanes that waited for tokens until now (a bounded number), marked with whether they fit."""
        ...

    async def wake_due_lanes(self, queue_id: QueueId, now_ms: int) -> None:
        """Make stale, at once, every lane that waited for tokens until now."""
        ...

    async def arrivals(
        self,
        queue_id: QueueId,
        worker_filter: WorkerFilter,
        room: int,
        now_ms: int,
        levels: tuple[int, int] = ALL_LEVELS,
    ) -> Sequence[tuple[Arrival, Lane]]:
        """The first ready tasks that fit in order of level and arrival, each with its lane.

        Tasks in lanes that are held, or that wait for tokens still, are stepped over.
        """
        ...

    async def blocked(self, queue_id: QueueId) -> BlockedLanes: ...
    async def starving(self, queue_id: QueueId, since_ms: int, most: int) -> Sequence[Starving]:
        """For each level: how many of its `most` oldest ready tasks came before a moment; levels with none left out."""
        ...

    async def running(self, queue_id: QueueId, most: int) -> int:
        """How many tasks are leased; not counted beyond `most`."""
        ...

    async def clocks(self, queue_id: QueueId) -> Sequence[VirtualClock]: ...
    async def rebase(self, queue_id: QueueId, clock: VirtualClock) -> None:
        """Subtract a level's virtual time from itself and from all its tags, at once."""
        ...

    async def take(
        self, queue_id: QueueId, wanted: Sequence[tuple[int, str, int]], worker_filter: WorkerFilter
    ) -> Sequence[Sequence[Task]]:
        """For each (level, key, count): the first ready tasks of that lane that fit, locked, oldest first."""
        ...

    async def stats(self, queue_id: QueueId, now_ms: int) -> QueueStats: ...
    async def totals(self, namespace: str, kind: TaskKind, minute: int) -> tuple[int, int]:
        """How many tasks of a kind a namespace leases, and how many it gave in a minute, over all its queues."""
        ...

    async def backlog(self, queue_id: QueueId, now_ms: int, top: int) -> Backlog:
        """What waits, by level, and the `top` lanes with the most tasks."""
        ...

    async def lane(self, queue_id: QueueId, level: int, key: str, now_ms: int) -> LaneBacklog | None:
        """One busy lane, wherever it stands."""
        ...

    async def lanes_before(
        self, queue_id: QueueId, level: int, rank: int, tag: int, most: int
    ) -> Sequence[Lane]:
        """The least ready lanes of a level whose rank and tag are not beyond a point."""
        ...

    async def count_lanes_before(self, queue_id: QueueId, level: int, rank: int, tag: int, most: int) -> int:
        """How many `lanes_before` there are; not counted beyond `most`."""
        ...

    async def new_lanes(self, queue_id: QueueId, level: int, most: int) -> Sequence[Lane]:
        """The first lanes of a level that are to be placed, by key."""
        ...

    async def count_before(self, queue_id: QueueId, level: int, key: str | None, seq: int, most: int) -> int:
        """How many ready tasks of a lane, or of a level (`key` None), came before one; not beyond `most`."""
        ...

    async def head(self, queue_id: QueueId, level: int, key: str | None) -> Task | None:
        """The ready task of a lane, or of a level (`key` None), that came first."""
        ...

    async def route_heads(self, queue_id: QueueId, most: int) -> Sequence[Task]:
        """One ready task of each route (type and build), of at most so many routes in order of type and build.

        What it costs depends on the number of routes, not on the number of tasks.
        """
        ...

    async def count_route(self, queue_id: QueueId, type_: str, build_id: str | None, most: int) -> int:
        """How many ready tasks have this type and need this build, counted up to `most`."""
        ...

    async def level_counts(
        self, queue_id: QueueId, to_level: int, now_ms: int, most: int
    ) -> Sequence[LevelCounts]:
        """What may go at each level down to one, and what went of late; of at most so many lanes a level."""
        ...

    async def dispatched(self, queue_id: QueueId, minute: int) -> int:
        """How many tasks went in a calendar minute."""
        ...

    def settle(self, queue_id: QueueId, lane: Lane, taken: int) -> None:
        """Record where a lane stands after a claim. Its count is lowered, not set, since tasks join all the time.

        A weight that came since makes it fresh again. One that is held at a running limit (`held_at`) is stale
        instead when its key, read as it will be committed, runs less.
        """
        ...

    def refund(self, queue_id: QueueId, level: int, key: str, stride: int, minute: int) -> None:
        """A task of a lane, granted in this calendar minute, was never delivered.

        Its lane is paid back `stride`, or the stride of its weight now if that is less, and the lane's meter of
        that minute counts one less. To be called under the queue's lock; the task joins the lane by `Tasks.save`.
        """
        ...

    def save_clock(self, queue_id: QueueId, clock: VirtualClock) -> None: ...
    def count_dispatches(self, queue_id: QueueId, minute: int, count: int) -> None: ...
    async def idle_lanes(self, limit: int) -> Sequence[tuple[QueueId, int, str]]:
        """Keyed lanes without tasks whose tag virtual time has passed: their rows tell nothing any more."""
        ...

    def drop_lane(self, queue_id: QueueId, level: int, key: str) -> None:
        """Forget a lane, if it is still idle."""
        ...

    async def any_meter_before(self, minute: int) -> bool: ...
    def forget_meters(self, before_minute: int) -> None: ...


class Policies(Protocol):
    """What operators and workers asked of a line, and the rows of its keys. Written under the queue's lock."""

    async def key_states(self, queue_id: QueueId, keys: Sequence[str]) -> Mapping[str, KeyState]:
        """The keys that have a row."""
        ...

    async def key_settings(self, queue_id: QueueId, keys: Sequence[str]) -> Mapping[str, KeySettings]:
        """The keys that an operator asked something for."""
        ...

    async def keys_with_settings(self, queue_id: QueueId, limit: int) -> Sequence[KeySettings]: ...
    async def count_keys_with_settings(self, queue_id: QueueId) -> int: ...
    async def changes(self, queue_id: QueueId, limit: int) -> Sequence[PolicyChange]:
        """The log, newest version first."""
        ...

    async def count_leases(self, queue_id: QueueId) -> None:
        """Mark every lease of the queue as counted, and set what each key runs to what it does.

        Only on the line of changes: the leases are held still by their locks, which do not part operations that
        share a transaction.
        """
        ...

    async def rank_lanes(self, queue_id: QueueId, *, by_running: bool) -> None:
        """Give every busy lane its rank by what its key runs, or take all ranks away."""
        ...

    async def idle_keys(self, now_ms: int, limit: int) -> Sequence[tuple[QueueId, str]]:
        """Keys without settings that run nothing and owe nothing: their rows tell nothing any more."""
        ...

    def save(self, queue_id: QueueId, policy: Policy) -> None: ...
    def save_worker_rate(self, queue_id: QueueId, rate: WorkerRate | None) -> None: ...
    def save_key(self, queue_id: QueueId, settings: KeySettings) -> None: ...
    def log(self, queue_id: QueueId, changes: Sequence[PolicyChange]) -> None: ...
    def forget_changes(self, queue_id: QueueId, up_to_version: int) -> None: ...
    def spend(self, queue_id: QueueId, key: str, paid_until_ns: int | None, leased: int) -> None:
        """Record what a key has paid (None: nothing new) and how many more leases of it are counted."""
        ...

    def settle(self, queue_id: QueueId, paid_until_ns: int, aging_turn: int, window: Counts) -> None:
        """Record what the queue as a whole has paid, whose turn it is, and what went in the last minute."""
        ...

    def touch_key(self, queue_id: QueueId, key: str, lane_state: LaneState) -> None:
        """Have the next claim look at a key's busy lanes, unless they are fresh already."""
        ...

    def rerank_others(self, queue_id: QueueId, level: int, key: str) -> None:
        """The key was given something at this level: its ready lanes at other levels are stale."""
        ...

    def reset_lanes(self, queue_id: QueueId, lane_state: LaneState) -> None:
        """Have the next claim look at every lane that stands aside (stale), or let them all go (ready)."""
        ...

    def drop_key(self, queue_id: QueueId, key: str) -> None:
        """Forget a key's row, if it still tells nothing."""
        ...


class Scopes(Protocol):
    """Limits that several lines share. Changed under the lock of the admission and of every line concerned."""

    async def admission(self) -> Admission:
        """All limits that are in force."""
        ...

    async def lock_admission(self) -> Admission: ...
    async def lock_queues(self, namespace: str | None) -> Sequence[Queue]:
        """Every line of a namespace, or of all, locked: none of them grants anything meanwhile."""
        ...

    async def names(self, after: str, limit: int) -> Sequence[str]:
        """The scopes that have counted something, by name."""
        ...

    async def ids(self, names: Sequence[str]) -> Sequence[int]:
        """The scopes' ids; those that are new are made."""
        ...

    async def lock(self, scope_ids: Sequence[int]) -> Sequence[ScopeState]:
        """What scopes count, by id; nobody else adds to it until the commit."""
        ...

    async def find(self, names: Sequence[str]) -> Sequence[ScopeState]:
        """What those of the scopes count that have counted something already."""
        ...

    async def settlements(self, scope_id: int) -> Sequence[tuple[int, int]]:
        """Take what tasks cost more or less than estimated, as (when they were granted, how much)."""
        ...

    async def counted(self, scope_id: int, queue_ids: Sequence[QueueId]) -> int:
        """How many leases of these lines the scope counts."""
        ...

    async def difference(self, scope_id: int) -> int:
        """By how many the scope counts more than there are leases that say so; seen at one moment."""
        ...

    async def adopt(self, scope_id: int, queue_ids: Sequence[QueueId]) -> int:
        """Have the scope count every lease of these lines; returns how many it did not count before."""
        ...

    async def hold(self, scope_id: int, queue_ids: Sequence[QueueId]) -> int:
        """As `counted`, and none of them ends before the commit."""
        ...

    async def holders(self, scope_id: int, queue_id: QueueId, limit: int) -> Sequence[Task]:
        """The leases of a line that the scope counts, those that end first at the front."""
        ...

    async def changes(self, name: str, limit: int) -> Sequence[PolicyChange]: ...
    def settle(self, state: ScopeState) -> None:
        """Record what a scope counts, except what ended: that is counted where leases end."""
        ...

    def settle_cost(self, scope_id: int, at_ms: int, amount: int) -> None:
        """Say that a task cost more than estimated now, or less than was reserved at a moment."""
        ...

    async def any_settlement_before(self, at_ms: int) -> bool: ...
    def forget_settlements(self, before_ms: int) -> None:
        """Forget those that nobody took and that no window holds any more."""
        ...

    def cool(self, scope_id: int, until_ms: int) -> None:
        """Close a scope until a moment, unless it is closed for longer already."""
        ...

    def save_policy(self, scope_id: int, policy: Policy) -> None: ...
    def log(self, name: str, changes: Sequence[PolicyChange]) -> None: ...
    def forget_changes(self, name: str, up_to_version: int) -> None: ...
    def declare(self, declaration: Declaration, by: str) -> None: ...
    def stamp(self, stamp: str, queue_ids: Sequence[QueueId]) -> None:
        """Say that limits have changed, and which lines have to go by the new ones."""
        ...


class Journal(Protocol):
    async def page(self, after: int, limit: int) -> Sequence[tuple[int, str]]: ...
    async def any_before(self, at_ms: int) -> bool: ...
    def append(self, line: Mapping[str, Any]) -> None: ...
    def forget(self, before_ms: int) -> None: ...


QueryQueue = tuple[QueryKind, str, str]
"""Where questions wait: their kind, the namespace and the task queue."""


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
        """The oldest pending query of a kind that fits and whose caller still waits, locked."""
        ...

    async def pending_on(self, lines: Sequence[QueryQueue], now_ms: int) -> Sequence[QueryQueue]:
        """Those of the lines in which a question waits."""
        ...

    async def lapsed(self, now_ms: int, limit: int) -> Sequence[str]:
        """Queries whose caller has gone or whose lease has ended."""
        ...

    def insert(self, query: QueryTask) -> None: ...
    def save(self, query: QueryTask) -> None: ...
    def delete(self, query_id: str) -> None: ...


class Workers(Protocol):
    async def get(self, namespace: str, worker_id: str) -> WorkerRecord | None: ...
    async def get_many(self, namespace: str, worker_ids: Sequence[str]) -> Sequence[WorkerRecord | None]: ...
    async def list(self, namespace: str, task_queue: str | None) -> Sequence[WorkerRecord]: ...
    async def silent(self, since_ms: int, limit: int) -> Sequence[tuple[str, str]]:
        """Workers (namespace, id) that were last heard before a moment, the longest silent first."""
        ...

    def save(self, worker: WorkerRecord) -> None:
        """Record a registration, whole."""
        ...

    def mark(self, namespace: str, worker_id: str, status: WorkerStatus) -> None:
        """Record only what the operator wants of a worker, if it is still there."""
        ...

    def heartbeat(self, worker: WorkerRecord) -> None:
        """Record only that a worker was heard, and what it said of its state, if it is still there."""
        ...

    def touch(self, namespace: str, worker_id: str, now_ms: int) -> None: ...
    def delete(self, namespace: str, worker_id: str) -> None: ...


class Cohorts(Protocol):
    async def get(self, namespace: str, task_queue: str, build_id: str) -> Cohort | None: ...
    async def promoted(self, namespace: str, task_queue: str) -> Cohort | None:
        """The cohort that new runs are pinned to, if the operator chose one."""
        ...

    async def list(self, namespace: str, task_queue: str) -> Sequence[Cohort]: ...
    def save(self, cohort: Cohort) -> None: ...


class Nonces(Protocol):
    async def register(self, key: str, nonce: str, expires_at_ms: int) -> bool:
        """Remember a nonce; False when it was seen before."""
        ...

    async def any_expired(self, now_ms: int) -> bool: ...
    def forget(self, before_ms: int) -> None: ...


class Tx(Protocol):
    """One operation's view of the store. The nouns are the doors; there is no other way in."""

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
        """Ring after the commit, on every node that shares the store."""
        ...


Operation = Callable[[Tx], Awaitable[T]]


class Transaction(Struct, Generic[T], frozen=True):
    """An operation, and the key under which it runs."""

    operation: Operation[T]
    key: str


class Store(Protocol):
    @property
    def journals(self) -> bool:
        """Whether the ends of leases are told in the journal, so that their beginnings should be, too."""
        ...

    async def transact(
        self, operation: Operation[T], *, key: str, tx_class: TransactionClass = TransactionClass.WORK
    ) -> T:
        """Run the operation and answer after its commit."""
        ...

    async def transact_all(self, asked: Sequence[Transaction[T]]) -> Sequence[T | Exception]:
        """Run several operations of one caller, and answer once after the commit of the last of them.

        Each has an outcome of its own, in the order in which they were handed in: its answer, or what it raised.
        Raises when none of them is taken.
        """
        ...

    async def read(self, operation: Operation[T], *, long: bool = False) -> T:
        """Run an operation that records nothing; it sees only what is committed, and all of it at one moment.

        `long`: it may look at much, and must keep no short one waiting.
        """
        ...

    async def check(self) -> None:
        """Raise `Unavailable` when the database does not answer."""
        ...

    def health(self) -> StoreHealth:
        """How writes fare, as far as it is known here. Asks nobody, and never waits."""
        ...

    async def close(self) -> None: ...


async def one_by_one(store: Store, asked: Sequence[Transaction[T]]) -> Sequence[T | Exception]:
    """`transact_all` for stores to which operations that come together are no less work."""
    outcomes: list[T | Exception] = []
    for each in asked:
        try:
            outcomes.append(await store.transact(each.operation, key=each.key))
        except Exception as error:
            outcomes.append(error)
    return outcomes
