"""Who runs next: all rules of a claim, as one pure plan.

Theory of operation
-------------------
A *claim* serves the open polls of one task queue in one transaction: it reads what it must know, decides, and records
leases and counters before it commits. This module is the decision, and nothing else decides. It is written sans-I/O,
as h11 is for HTTP: `plan_claim` is a generator that yields what it has to read (a `Need`), is sent the rows, and
returns a `ClaimPlan`. `engine.matching.claim` drives it against a store in ten lines; tests drive it against dicts.

    polls ─▶ check ─▶ gather ─▶ redeliver ─▶ slots ─▶ gates ─▶ fairness ─▶ cost ─▶ plan
             Refused  Retry     Granted      Held     Held     Held        Held

1. *check*: a poll of a worker that is unknown, registered elsewhere or drained is `Refused`.
2. *gather*: polls of one claim are interchangeable. Workers that take other types or another build, or other sticky
   tasks (`sticky.py`), than the first get `Retry`, and the dispatcher claims for them next.
3. *redeliver*: a poll that repeats its `poll_request_id` gets the live leases of the first one, and nothing new.
4. *slots*: each worker takes at most its free slots (`slots.py`), or its free buffer for prefetch (`prefetch.py`).
5. *gates*: pauses, caps, rates and windows of the queue, then of its scopes (`gates.py`). A closed gate holds.
6. *fairness*: which lanes go, by level and virtual time (`fairness.py`), within the limits of their keys.
7. *cost*: of the tasks in that order, as many as the cost budgets afford. None is stepped over.

Why a generator
---------------
Reading everything first would cost statements that most claims never need: an idle poll asks three questions and locks
nothing, scopes are locked only if the queue's own gates are open, and tasks are fetched only from lanes that won. So
the plan asks in stages, in the order in which locks must be taken. Between two needs it is a plain function.

Invariants kept here
--------------------
* `cap-never-exceeded`, `budget-never-overspent`: a plan grants no more than the tightest gate allows, and charges
  exactly what it grants (`dispatch.settle`, `charges.py`).
* `one-live-lease`: a task stands in at most one grant of a plan; the store hands out ready tasks only.
* `worker-never-over-filled`: no poll gets more than it asked for, no worker more than its free slots.
* `fair-share`: lanes are billed for what they gave, never for what they seemed to have.
* `work-conserving`: a poll without tasks has a `Hold` with a reason, or is retried at once. If a task is eligible, a
  slot free and every gate open, the plan grants it or asks to look again.
* Locks are taken in one order: queue row, then scopes by id, then tasks. A poll that finds nothing locks nothing.

Rejected
--------
* One SQL statement that selects by priority and locks (`FOR UPDATE SKIP LOCKED`), as most queues do: exact shares and
  shared budgets cannot be stated in it, and the rules could not be tested without a database.
* A claim per poll: a thousand waiting polls would lock one queue row a thousand times for one task.
* Callbacks into the store from the rules: the same order of reads, but no longer a function of values.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Generator, Iterable, Mapping, Sequence
from itertools import chain
from typing import Any, TypeVar

from msgspec import Struct, field
from msgspec.structs import replace

from penstock.core.model import Cohort, Queue, Task, TaskKind, WorkerRecord
from penstock.core.scheduling import charges, dispatch, prefetch, slots, sticky
from penstock.core.scheduling.charges import Charge, Ledger, LockedScopes
from penstock.core.scheduling.cohorts import check_may_poll, is_known_dead
from penstock.core.scheduling.dispatch import Grants, Hold, HoldReason, QueueSnapshot, WorkerFilter
from penstock.core.scheduling.fairness import TAGGED_AT_ONCE_MAX, LaneKey
from penstock.core.scheduling.gates import ScopeState
from penstock.core.scheduling.polls import Held, Poll, Refused, Retry, RetryReason
from penstock.core.scheduling.slots import SlotUsage
from penstock.core.scheduling.sticky import StickyTasks
from penstock.errors import PenstockError

T = TypeVar("T")
EMPTY = Hold(HoldReason.EMPTY)
FULL = Hold(HoldReason.SLOTS)


# ── What a claim reads ──────────────────────────────────────────────────────────────────────────────────


class ClaimSnapshot(Struct, frozen=True):
    """What every claim reads first: the polls, and what decides whether they may be served."""

    polls: Sequence[Poll]
    """At least one; all of one queue and kind, and all prefetching or none."""
    workers: Mapping[str, WorkerRecord | None]
    """By id: the workers of the polls, and those that tasks are sticky to."""
    cohorts: Mapping[str, Cohort]
    """By build."""
    now_ms: int
    stale_after_ms: int
    """After how long without a heartbeat a worker counts as dead."""
    worker_filter: WorkerFilter | None = None
    """The filter that the dispatcher remembers for these workers; None: that of the first poll."""
    sticky_until: Mapping[str, int] = field(default_factory=dict)
    """Workers that ready tasks of the queue are sticky to, and when the first task of each is released."""
    coordinated: bool = True
    """False: servers cannot agree on limits now, so queues with limits are held."""


class Need(Struct, frozen=True):
    """A question to the store: the plan yields it and is sent the answer, which the docstring of each need names."""


class LockedQueue(Struct, frozen=True):
    """A queue with ready tasks, under its lock."""

    queue: Queue
    ready: WorkerFilter
    """The part of the filter of which tasks are ready."""
    loads: Mapping[str, SlotUsage]
    """What each worker holds."""


class QueueState(Struct, frozen=True):
    """What is ready for some workers, and what their polls leased before."""

    locked: LockedQueue | None = None
    """None: nothing is ready, so nothing is locked."""
    redelivered: Sequence[Sequence[Task]] = ()
    """For each poll with a request id, in order: what it leased before."""


class NeedQueue(Need, frozen=True):
    """Is anything ready; if so, lock the queue and count what the workers hold: `QueueState`."""

    worker_filter: WorkerFilter
    polls: Sequence[Poll]
    workers: Sequence[WorkerRecord]


class NeedLeaseCount(Need, frozen=True):
    """How many leases of the queue count against its cap: `int`."""

    queue: Queue


class NeedScopes(Need, frozen=True):
    """Lock the scopes of the queue: `LockedScopes`."""

    queue: Queue


class LaneView(Struct, frozen=True):
    """The lanes that may go next, and the scopes of their queue under their locks."""

    snapshot: QueueSnapshot
    scopes: LockedScopes = charges.NO_SCOPES
    is_partial: bool = False
    """More lanes need a tag than one claim tags (`TAGGED_AT_ONCE_MAX`); another claim must follow."""


class NeedLanes(Need, frozen=True):
    """At least `room` lanes of each level that could go next, then the scopes: `LaneView`."""

    queue: Queue
    worker_filter: WorkerFilter
    room: int
    leases: int


class NeedTasks(Need, frozen=True):
    """The first tasks of each lane, which may hold fewer than planned: a sequence of `Task` for each lane."""

    queue: Queue
    worker_filter: WorkerFilter
    counts: Mapping[LaneKey, int]


class NeedLeaseEnds(Need, frozen=True):
    """Announce the ends of all leases of full workers, then count again what they hold: `SlotUsage` by worker."""

    workers: Sequence[WorkerRecord]
    kind: TaskKind


Planning = Generator[Need, Any, T]


# ── What a claim records ────────────────────────────────────────────────────────────────────────────────


class Grant(Struct, frozen=True):
    """A ready task for one of the polls."""

    task: Task
    poll: int
    charge: Charge


class ClaimPlan(Struct, frozen=True):
    """Everything to record, and the answer to every poll."""

    polls: Sequence[Poll]
    filters: Mapping[int, WorkerFilter]
    """The filter of each poll that was not refused, by its index."""
    answers: Mapping[int, Held | Refused | Retry]
    """By index; a poll that is missing gets the tasks of its grants or redeliveries."""
    alive: Sequence[str] = ()
    """Workers whose poll counts as the heartbeat that they owe."""
    redelivered: Sequence[tuple[int, Task]] = ()
    grants: Sequence[Grant] = ()
    queue: Queue | None = None
    """As the polls see it, which for prefetch is without its limits; None: no counter changes."""
    ledger: Ledger = Ledger()
    scopes: Sequence[ScopeState] = ()
    """The scopes that count the new leases."""


# ── The plan ────────────────────────────────────────────────────────────────────────────────────────────


def plan_claim(snapshot: ClaimSnapshot) -> Planning[ClaimPlan]:
    """Decide which polls get which tasks, and why the others get none."""
    checked = _check_workers(snapshot)
    group = _gather(snapshot, checked)
    served = (yield from _serve(snapshot, group)) if group.indices else _Served()
    return ClaimPlan(
        snapshot.polls,
        checked.filters,
        {**checked.refusals, **group.skipped, **served.answers},
        checked.alive,
        served.redelivered,
        served.dispatched.grants,
        served.dispatched.queue,
        served.dispatched.ledger,
        served.dispatched.scopes,
    )


class _CheckedPolls(Struct, frozen=True):
    """The polls that may be served, by index."""

    workers: Mapping[int, WorkerRecord]
    filters: Mapping[int, WorkerFilter]
    refusals: Mapping[int, Refused]
    alive: Sequence[str]


def _check_workers(snapshot: ClaimSnapshot) -> _CheckedPolls:
    """Check the worker of each poll, and note whose heartbeat is due: a poll is a sign of life."""
    workers: dict[int, WorkerRecord] = {}
    filters: dict[int, WorkerFilter] = {}
    refusals: dict[int, Refused] = {}
    alive: dict[str, None] = {}
    late_ms, rows, cohorts = snapshot.stale_after_ms // 6, snapshot.workers, snapshot.cohorts
    for index, poll in enumerate(snapshot.polls):
        name = poll.worker_id
        try:
            worker = check_may_poll(rows[name], name, poll.task_queue, poll.build_id, cohorts)
        except PenstockError as refusal:
            refusals[index] = Refused(refusal)
            continue
        workers[index] = worker
        filters[index] = dispatch.filter_for(worker, poll.kind)
        if snapshot.now_ms - worker.heartbeat_at_ms > late_ms or is_known_dead(worker):
            alive[name] = None
    return _CheckedPolls(workers, filters, refusals, list(alive))


class _Group(Struct, frozen=True):
    """The polls that this claim serves: their workers may take the same tasks."""

    indices: Sequence[int]
    polls: Sequence[Poll]
    workers: Sequence[WorkerRecord]
    worker_filter: WorkerFilter
    """The tasks that these workers may take, without sticky ones."""
    takes: WorkerFilter
    """The same, with sticky ones."""
    sticky: StickyTasks
    skipped: Mapping[int, Retry]

    def without(self, indices: set[int]) -> _Group:
        """The group without polls that are served already."""
        left = [position for position, index in enumerate(self.indices) if index not in indices]
        return replace(
            self,
            indices=[self.indices[position] for position in left],
            polls=[self.polls[position] for position in left],
            workers=[self.workers[position] for position in left],
        )

    def free_slots(self, loads: Mapping[str, SlotUsage]) -> dict[str, int]:
        """How many tasks each worker may be given."""
        kind, is_prefetch = self.polls[0].kind, self.polls[0].claim_lease_ms is not None
        return {
            each.worker_id: slots.free_slots(each, kind, loads[each.worker_id], prefetch=is_prefetch)
            for each in self.workers
            if each.worker_id in loads
        }


_NO_FILTER = WorkerFilter((), None)


def _gather(snapshot: ClaimSnapshot, checked: _CheckedPolls) -> _Group:
    """Choose the polls that are served together: those that may take the same tasks as the first."""
    filters, skipped = checked.filters, dict[int, Retry]()
    if not filters:
        return _Group((), (), (), _NO_FILTER, _NO_FILTER, sticky.NONE, skipped)
    wanted = snapshot.worker_filter or next(iter(filters.values()))
    tasks = _sticky_tasks(snapshot, checked) if snapshot.sticky_until else sticky.NONE
    indices: list[int] = []
    polls: list[Poll] = []
    workers: list[WorkerRecord] = []
    open_to: tuple[str, ...] = ()
    for index, own in filters.items():
        poll = snapshot.polls[index]
        mine = tasks.open_to(poll.worker_id) if tasks.until_ms else ()
        if own != wanted:
            skipped[index] = Retry(RetryReason.OTHER_FILTER, own)
        elif indices and mine != open_to:
            skipped[index] = Retry(RetryReason.SERVED_APART, own)
        else:
            indices.append(index)
            polls.append(poll)
            workers.append(checked.workers[index])
            open_to = mine
    takes = replace(wanted, sticky_workers=open_to) if open_to else wanted
    return _Group(indices, polls, workers, wanted, takes, tasks, skipped)


def _sticky_tasks(snapshot: ClaimSnapshot, checked: _CheckedPolls) -> StickyTasks:
    polling = {worker.worker_id for worker in checked.workers.values()}
    queue, cohorts = snapshot.polls[0].task_queue, snapshot.cohorts
    now_ms, stale_ms = snapshot.now_ms, snapshot.stale_after_ms
    lost = sticky.lost(snapshot.sticky_until, polling, snapshot.workers, queue, cohorts, now_ms, stale_ms)
    return StickyTasks(snapshot.sticky_until, lost)


class _Dispatched(Struct, frozen=True):
    """What the queue gives: the grants, and the hold of polls that get none."""

    grants: Sequence[Grant] = ()
    hold: Hold = FULL
    more_to_see: bool = False
    queue: Queue | None = None
    ledger: Ledger = Ledger()
    scopes: Sequence[ScopeState] = ()
    """As charged for the grants."""
    locked: LockedScopes = charges.NO_SCOPES
    """As they were found."""


_NOTHING = _Dispatched()


class _Served(Struct, frozen=True):
    """What the polls of a group get."""

    answers: Mapping[int, Held | Retry] = field(default_factory=dict)
    redelivered: Sequence[tuple[int, Task]] = ()
    dispatched: _Dispatched = _NOTHING


def _serve(snapshot: ClaimSnapshot, group: _Group) -> Planning[_Served]:
    """Repeat old answers, then dispatch as many tasks as there are free slots."""
    state: QueueState = yield NeedQueue(group.takes, group.polls, group.workers)
    redelivered = _redeliver(group, state, snapshot.now_ms) if state.redelivered else ()
    if redelivered:
        group = group.without({index for index, _ in redelivered})
    locked = state.locked
    if locked is None or not group.indices:
        return _Served(_empty(group, snapshot), redelivered)
    free = group.free_slots(locked.loads)
    room = slots.total_room(group.polls, free)
    dispatched = (yield from _dispatch(snapshot, group, locked, free, room)) if room else _NOTHING
    answers = yield from _answers(snapshot, group, dispatched, free)
    return _Served(answers, redelivered, dispatched)


def _redeliver(group: _Group, state: QueueState, now_ms: int) -> list[tuple[int, Task]]:
    """The live leases of polls that are repeated because their answer was lost.

    Each delivery of a lease has a moment of its own, so that only the last one can be undone.
    """
    asked = [
        at for at, poll in zip(group.indices, group.polls, strict=True) if poll.poll_request_id is not None
    ]
    return [
        (index, replace(task, leased_at_ms=max(now_ms, (task.leased_at_ms or 0) + 1)))
        for index, tasks in zip(asked, state.redelivered, strict=True)
        for task in tasks
        if task.kind is group.polls[0].kind and (task.lease_expires_at_ms or 0) > now_ms
    ]


# ── Gates, fairness, cost ───────────────────────────────────────────────────────────────────────────────


def _dispatch(
    snapshot: ClaimSnapshot, group: _Group, locked: LockedQueue, free: Mapping[str, int], room: int
) -> Planning[_Dispatched]:
    """Ask the gates of the queue itself first: while one is closed, nothing else need be read or locked."""
    queue, is_prefetch, leases = locked.queue, group.polls[0].claim_lease_ms is not None, 0
    if is_prefetch:
        queue = prefetch.without_limits(queue)
    if not snapshot.coordinated and queue.is_limited:
        return _Dispatched(hold=Hold(HoldReason.UNAVAILABLE))
    if not is_prefetch and queue.rules.lease_cap is not None:
        leases = yield NeedLeaseCount(queue)
    allowed = dispatch.allowance(queue, leases, snapshot.now_ms)
    if isinstance(allowed, Hold):
        return (yield from _closed(queue, allowed, snapshot.now_ms))
    most = room if allowed is None else min(room, allowed)
    view: LaneView = yield NeedLanes(queue, locked.ready, most, leases)
    decision = dispatch.decide(
        view.snapshot, min(most, TAGGED_AT_ONCE_MAX) if view.is_partial else most, room
    )
    if isinstance(decision, Hold):
        return _none(queue, view, decision)
    order = decision.plan.order
    found: Sequence[Sequence[Task]] = yield NeedTasks(queue, locked.ready, Counter(order))
    taken = _in_order(order, chain.from_iterable(found))
    return _charge(group, queue, view, decision, taken, free, most)


def _closed(queue: Queue, hold: Hold, now_ms: int) -> Planning[_Dispatched]:
    """A gate of the queue itself is closed. What it owes is kept, so that it falls due though nothing goes."""
    scopes = charges.NO_SCOPES
    if dispatch.window_debt(queue, now_ms) != queue.window:
        scopes = yield NeedScopes(queue)
    ledger = charges.ledger_of_closed_queue(queue, scopes, now_ms)
    return _Dispatched(hold=hold, queue=queue, ledger=ledger)


def _none(queue: Queue, view: LaneView, hold: Hold) -> _Dispatched:
    """No lane may go. Those that were tagged or put aside are recorded, so that the next claim reads beyond them."""
    settled = dispatch.settle(view.snapshot, {})
    ledger = charges.ledger_of(queue, settled, {}, view.scopes, view.snapshot.now_ms)
    more = view.is_partial or bool(ledger.lanes)
    return _Dispatched((), hold, more, queue, ledger, settled.scopes, view.scopes)


def _in_order(order: Sequence[LaneKey], tasks: Iterable[Task]) -> list[Task]:
    """The tasks in the order of a plan, of each lane first in, first out; one that holds too few is stepped over."""
    lanes: dict[LaneKey, deque[Task]] = {}
    for task in tasks:
        lanes.setdefault((task.level, task.key), deque()).append(task)
    return [lanes[lane_key].popleft() for lane_key in order if lanes.get(lane_key)]


def _charge(
    group: _Group,
    queue: Queue,
    view: LaneView,
    decision: Grants,
    taken: list[Task],
    free: Mapping[str, int],
    most: int,
) -> _Dispatched:
    """Leave out what the cost budgets do not allow, bill the lanes for what they gave, and hand the tasks round.

    Look again when something was taken, but less than planned; or when there was room, and lanes were tagged or put
    aside without giving a task: the next claim reads beyond them.
    """
    snapshot = view.snapshot
    taken, unaffordable = _afford(queue, view, taken) if queue.limits.scopes else (taken, None)
    counts = Counter((task.level, task.key) for task in taken)
    settled = dispatch.settle(snapshot, counts, sum(task.cost for task in taken), decision.plan)
    ledger = charges.ledger_of(queue, settled, counts, view.scopes, snapshot.now_ms)
    given = len(settled.order)
    sees_further = view.is_partial or len(ledger.lanes) > len(counts)
    more = unaffordable is None and (0 < given < len(decision.plan.order) or (given < most and sees_further))
    billed = _in_order(settled.order, taken)
    holders = slots.round_robin(group.polls, free, given)
    charged = charges.charges(snapshot, settled, billed, holders)
    grants = [
        Grant(task, group.indices[holder], charge)
        for task, holder, charge in zip(billed, holders, charged, strict=True)
    ]
    hold = unaffordable or decision.hold
    return _Dispatched(grants, hold, more, queue, ledger, settled.scopes, view.scopes)


def _afford(queue: Queue, view: LaneView, taken: list[Task]) -> tuple[list[Task], Hold | None]:
    """As many of the tasks, in order, as the cost budgets allow; a hold if not even the first.

    None is stepped over: a dear task would wait for ever behind cheap ones.
    """
    if all(each.cost is None for each in queue.limits.scopes):
        return taken, None
    costs = [task.cost for task in taken]
    allowed = dispatch.affordable(queue, view.scopes.states, costs, view.snapshot.now_ms)
    return ([], allowed) if isinstance(allowed, Hold) else (taken[:allowed], None)


# ── The answers ─────────────────────────────────────────────────────────────────────────────────────────


def _empty(group: _Group, snapshot: ClaimSnapshot) -> dict[int, Held | Retry]:
    return {index: _held(group, position, EMPTY, snapshot) for position, index in enumerate(group.indices)}


def _answers(
    snapshot: ClaimSnapshot, group: _Group, dispatched: _Dispatched, free: Mapping[str, int]
) -> Planning[dict[int, Held | Retry]]:
    """The answers to polls that get no task."""
    served = {grant.poll for grant in dispatched.grants}
    given = Counter(snapshot.polls[grant.poll].worker_id for grant in dispatched.grants)
    full = {each.worker_id: each for each in group.workers if not free[each.worker_id]}
    loads: Mapping[str, SlotUsage] = {}
    if full:
        loads = yield NeedLeaseEnds(list(full.values()), group.polls[0].kind)
    free_now = group.free_slots(loads) if full else {}
    answers: dict[int, Held | Retry] = {}
    for position, index in enumerate(group.indices):
        name = group.polls[position].worker_id
        if index in served:
            continue
        if given[name] >= free[name]:
            again_ms = slots.retry_in_ms(free_now[name], loads[name]) if name in loads else 0
            answers[index] = _full(_held(group, position, FULL, snapshot), again_ms)
        else:
            held = _held(group, position, dispatched.hold, snapshot, dispatched.locked)
            answers[index] = _retry(held) if dispatched.more_to_see else held
    return answers


def _full(held: Held, again_ms: int | None) -> Held | Retry:
    """The answer to a poll whose worker has no free slot.

    `again_ms` is 0 where a slot became free meanwhile, or where this claim filled the worker: the next one announces
    the ends of its leases.
    """
    match again_ms:
        case 0:
            return _retry(held)
        case None:
            return held
        case _:
            return replace(held, retry_in_ms=min(again_ms, held.retry_in_ms or again_ms))


def _retry(held: Held) -> Retry:
    return Retry(RetryReason.MORE_TO_SEE, held.worker_filter, held)


def _held(
    group: _Group,
    position: int,
    hold: Hold,
    snapshot: ClaimSnapshot,
    scopes: LockedScopes = charges.NO_SCOPES,
) -> Held:
    """The hold of one poll. Tasks that are sticky to other workers end it when they are released."""
    release_ms = group.sticky.next_release_ms(group.polls[position].worker_id)
    moments = [at_ms for at_ms in (hold.look_again_at_ms, release_ms) if at_ms is not None]
    return Held(
        hold,
        group.worker_filter,
        snapshot.now_ms,
        max(1, min(moments) - snapshot.now_ms) if moments else None,
        tuple(state.scope_id for state in scopes.states.values()) if hold.scope is not None else (),
        hold.reason is HoldReason.SLOTS or release_ms is not None,
    )
