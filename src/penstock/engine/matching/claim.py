"""Polling: many waiting polls of one queue, one decision, leases in the same transaction."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from penstock.core.limits.policies import Rules
from penstock.core.model import (
    Activity,
    ActivityId,
    ActivityStatus,
    Queue,
    QueueId,
    RecordedEvent,
    Run,
    Task,
    TaskKind,
    TaskState,
    WorkerRecord,
)
from penstock.core.operations import journal_lines
from penstock.core.scheduling import dispatch, fairness, refunds
from penstock.core.scheduling.cohorts import check_may_poll, is_known_dead
from penstock.core.scheduling.dispatch import Hold, HoldReason, QueueSnapshot, Settled, WorkerFilter
from penstock.core.scheduling.fairness import TAGGED_AT_ONCE_MAX, LaneKey, LaneState
from penstock.core.scheduling.gates import ScopeState, corrected, counted_by, due, unpermitted
from penstock.core.scheduling.leases import UNDELIVERED, freed, grant
from penstock.core.scheduling.refunds import Charge
from penstock.core.scheduling.retries import (
    expired_clock,
    running_deadline_at_ms,
    waiting_deadline_at_ms,
)
from penstock.core.scheduling.slots import PollSlots
from penstock.core.timestamps import MINUTE_MS
from penstock.engine.activities.activity_reports import attempt_id
from penstock.engine.context import EngineContext
from penstock.engine.matching import slots, sticky
from penstock.engine.matching.snapshot import load_snapshot
from penstock.engine.matching.sticky import NOBODY, Reserved
from penstock.engine.runs.history_writer import back_off, cached_up_to, requeue
from penstock.errors import PenstockError
from penstock.ports.gather import gather
from penstock.ports.store import TransactionClass, Tx
from penstock.ports.wakeups import Topic, scope_topic

HISTORY_PAGE_DEFAULT = 500
TASKS_PER_POLL_MAX = 100


class Poll(Struct, frozen=True):
    """One open request for tasks."""

    namespace: str
    worker_id: str
    task_queue: str
    kind: TaskKind
    build_id: str | None = None
    poll_request_id: str | None = None
    tasks_max: int = 1
    history_page: int = HISTORY_PAGE_DEFAULT
    activities_per_second_micro: int | None = None
    """How many activities its worker wants the queue to hand out in a million seconds; None: no opinion."""
    activities_burst_ms: int | None = None
    """For how long what was not handed out is saved up, by the same worker."""
    claim_lease_ms: int | None = None
    """How long tasks are leased that are handed out ahead of time; None: they are to be run at once."""
    lease_ms: int | None = None
    """How long activity tasks are leased at most; None: as long as the server says."""


class Leased(Struct, frozen=True):
    """A task in a worker's hands, with what it needs to do it."""

    task: Task
    run: Run
    activity: Activity | None = None
    events: Sequence[RecordedEvent] = ()
    seen: int = 0
    """Up to which event the worker knows the history, because it keeps the run in memory."""
    charge: Charge | None = None
    """What its grant charged, to be refunded if it is not delivered; None: it was granted by an earlier poll."""


class ClaimResult(Struct, frozen=True):
    """What a claim says to one poll: tasks, or a hold, or a refusal; and what its worker fits now."""

    leased: tuple[Leased, ...] = ()
    hold: Hold | None = None
    refusal: PenstockError | None = None
    worker_filter: WorkerFilter | None = None
    look_again: bool = False
    """Whether there may be more: a key held fewer tasks that fit than it seemed, and others were not asked."""
    look_again_in_ms: int | None = None
    """When a limit that is in the way may open."""
    topics: tuple[Topic, ...] = ()
    """What rings when a scope that is in the way may let something go."""
    reserves: bool = False
    """Whether tasks wait here for other workers, whatever this one was told."""
    postponed: bool = False
    """Whether it was not looked at: other polls are served for themselves first. It is to be asked again at once."""


async def claim(
    ctx: EngineContext, queue_id: QueueId, polls: Sequence[Poll], worker_filter: WorkerFilter | None
) -> list[ClaimResult]:
    """Serve the polls in order of arrival. Polls of workers that do not have this fit are told theirs instead.

    `worker_filter` None: the first worker's fit is used; the dispatcher does not know it yet.
    A worker for which tasks are
    reserved is served by itself: of the polls only those that may have the same tasks as the first are looked at.
    """

    async def operation(tx: Tx) -> list[ClaimResult]:
        return await _claim(ctx, tx, queue_id, polls, worker_filter)

    return await ctx.store.transact(operation, key=f"queue:{queue_id}", tx_class=TransactionClass.CLAIM)


async def _claim(
    ctx: EngineContext, tx: Tx, queue_id: QueueId, polls: Sequence[Poll], worker_filter: WorkerFilter | None
) -> list[ClaimResult]:
    verdicts: dict[int, ClaimResult] = {}
    workers = await _admit(ctx, tx, polls, verdicts)
    waiting = [index for index in range(len(polls)) if index not in verdicts]
    fits = {
        index: dispatch.filter_for(workers[index], workers[index].types(polls[index].kind))
        for index in waiting
    }
    if waiting and worker_filter is None:
        worker_filter = fits[waiting[0]]
    matching = [index for index in waiting if fits[index] == worker_filter]
    reserved = NOBODY
    if matching and polls[0].kind is TaskKind.WORKFLOW:
        reserved = await sticky.load_sticky(ctx, tx, queue_id, list(workers.values()))
    alike = reserved.like_the_first([polls[index].worker_id for index in matching])
    for index in [index for index, is_alike in zip(matching, alike, strict=True) if not is_alike]:
        verdicts[index] = ClaimResult(worker_filter=fits[index], postponed=True)
    matching = [index for index in matching if index not in verdicts]
    if worker_filter is not None and matching:
        worker_filter = replace(worker_filter, sticky_workers=reserved.open_to(polls[matching[0]].worker_id))
    ready, queue = await _open_queue(tx, queue_id, worker_filter if matching else None)
    free = await _look_back(tx, polls, matching, verdicts, fits, workers if queue is not None else {})
    open_ = [index for index in matching if index not in verdicts]
    if open_ and ready is not None and queue is not None:
        crew = [workers[index] for index in open_]
        served = await _serve(ctx, tx, queue, [polls[index] for index in open_], crew, ready, free)
        for lane_state, index in enumerate(open_):
            verdicts[index] = replace(served[lane_state], worker_filter=fits[index])
    nothing = ClaimResult(hold=Hold(HoldReason.EMPTY))
    for index in waiting:
        verdicts.setdefault(index, replace(nothing, worker_filter=fits[index]))
    for index in matching:
        verdicts[index] = _besides(verdicts[index], reserved, polls[index].worker_id, tx.now_ms)
    return [verdicts[index] for index in range(len(polls))]


def _besides(verdict: ClaimResult, reserved: Reserved, worker_id: str, now_ms: int) -> ClaimResult:
    """The verdict, which knows of tasks that wait for others: they are for anybody when nobody comes for them."""
    until_ms = reserved.first_for_anybody_ms(worker_id)
    if until_ms is None or verdict.leased:
        return replace(verdict, reserves=until_ms is not None)
    waits = [until_ms - now_ms] + ([] if verdict.look_again_in_ms is None else [verdict.look_again_in_ms])
    return replace(verdict, reserves=True, look_again_in_ms=max(1, min(waits)))


async def _serve(
    ctx: EngineContext,
    tx: Tx,
    queue: Queue,
    polls: Sequence[Poll],
    crew: Sequence[WorkerRecord],
    worker_filter: WorkerFilter,
    free: Mapping[str, int],
) -> list[ClaimResult]:
    """Grant what the slots of the workers leave room for; whoever is full learns that."""
    ahead = polls[0].claim_lease_ms is not None
    room = PollSlots([poll.tasks_max for poll in polls], [poll.worker_id for poll in polls], free)
    nothing = _Outcome([()] * len(polls), Hold(HoldReason.SLOTS))
    outcome = await _grant(ctx, tx, queue, polls, worker_filter, room) if room.total else nothing
    full = {worker.worker_id: worker for worker in crew if not free[worker.worker_id]}
    again = await slots.heed(tx, list(full.values()), queue.kind, ahead=ahead)
    given = Counter(poll.worker_id for poll, tasks in zip(polls, outcome.shares, strict=True) for _ in tasks)
    verdicts = []
    for lane_state, poll in enumerate(polls):
        verdict = _verdict(outcome, lane_state, tx.now_ms)
        if not verdict.leased and given[poll.worker_id] >= free[poll.worker_id]:
            verdict = _at_its_slots(again.get(poll.worker_id, 0))
        verdicts.append(verdict)
    return verdicts


def _at_its_slots(again_in_ms: int | None) -> ClaimResult:
    return ClaimResult(
        hold=Hold(HoldReason.SLOTS), look_again=again_in_ms == 0, look_again_in_ms=again_in_ms or None
    )


class _Outcome(Struct, frozen=True):
    """What a claim came to: the tasks of each poll, why the others wait, and whether to look again at once."""

    shares: Sequence[Sequence[Leased]]
    hold: Hold
    look_again: bool = False
    topics: tuple[Topic, ...] = ()


def _verdict(outcome: _Outcome, lane_state: int, now_ms: int) -> ClaimResult:
    tasks, hold = tuple(outcome.shares[lane_state]), outcome.hold
    if tasks:
        return ClaimResult(tasks)
    topics = outcome.topics if hold.scope is not None else ()
    return ClaimResult((), hold, None, None, outcome.look_again, _in_ms(hold, now_ms), topics)


def _in_ms(hold: Hold, now_ms: int) -> int | None:
    return None if hold.look_again_at_ms is None else max(1, hold.look_again_at_ms - now_ms)


async def _admit(
    ctx: EngineContext, tx: Tx, polls: Sequence[Poll], verdicts: dict[int, ClaimResult]
) -> dict[int, WorkerRecord]:
    """Each poll's worker; polls that may not be served get their refusal."""
    names = list(dict.fromkeys(poll.worker_id for poll in polls))
    namespace, task_queue = polls[0].namespace, polls[0].task_queue
    workers, cohorts = await gather(
        tx.workers.get_many(namespace, names), tx.cohorts.list(namespace, task_queue)
    )
    found = dict(zip(names, workers, strict=True))
    intents = {cohort.build_id: cohort for cohort in cohorts}
    admitted: dict[int, WorkerRecord] = {}
    touched: set[str] = set()
    for index, poll in enumerate(polls):
        worker = found[poll.worker_id]
        try:
            worker = check_may_poll(worker, poll.worker_id, poll.task_queue, poll.build_id, intents)
        except PenstockError as refusal:
            verdicts[index] = ClaimResult(refusal=refusal)
            continue
        admitted[index] = worker
        late_ms = ctx.settings.polls.worker_stale_after_ms // 6
        silent = tx.now_ms - worker.heartbeat_at_ms > late_ms or is_known_dead(worker)
        if worker.worker_id not in touched and silent:
            touched.add(worker.worker_id)
            tx.workers.touch(namespace, worker.worker_id, tx.now_ms)
    return admitted


async def _open_queue(
    tx: Tx, queue_id: QueueId, worker_filter: WorkerFilter | None
) -> tuple[WorkerFilter | None, Queue | None]:
    """The part of the fit of which something is ready, and the queue, locked; nothing is locked for nothing.

    Whoever holds this lock sees what other servers leased before, also to the same poll sent to them.
    """
    ready = None if worker_filter is None else await tx.tasks.matchable(queue_id, worker_filter)
    if ready is None:
        return None, None
    queue = await tx.queues.lock(queue_id)
    assert queue is not None, "a queue that is polled exists"
    return ready, queue


async def _look_back(
    tx: Tx,
    polls: Sequence[Poll],
    indices: Sequence[int],
    verdicts: dict[int, ClaimResult],
    fits: dict[int, WorkerFilter],
    workers: Mapping[int, WorkerRecord],
) -> Mapping[str, int]:
    """Deliver again what was asked for again; and how many tasks these workers may have beside what they hold."""
    crew = [workers[index] for index in indices if index in workers]
    ahead = polls[0].claim_lease_ms is not None
    _, free = await gather(
        _redeliver(tx, polls, indices, verdicts, fits), slots.free(tx, crew, polls[0].kind, ahead=ahead)
    )
    return free


async def _redeliver(
    tx: Tx,
    polls: Sequence[Poll],
    indices: Sequence[int],
    verdicts: dict[int, ClaimResult],
    fits: dict[int, WorkerFilter],
) -> None:
    """A poll that is repeated, because its answer was lost, gets the same tasks and no new ones."""
    asked = [index for index in indices if polls[index].poll_request_id is not None]
    if not asked:
        return
    pairs = [(polls[index].worker_id, polls[index].poll_request_id or "") for index in asked]
    held = await tx.tasks.redelivered(polls[0].namespace, pairs)
    for index, tasks in zip(asked, held, strict=True):
        live = [
            task
            for task in tasks
            if task.kind is polls[index].kind and (task.lease_expires_at_ms or 0) > tx.now_ms
        ]
        if live:
            live = [replace(task, leased_at_ms=_next_delivery(task, tx.now_ms)) for task in live]
            for task in live:
                tx.tasks.save(task, TaskState.LEASED)
            leased = await _equip(tx, live, [polls[index].history_page] * len(live))
            verdicts[index] = ClaimResult(tuple(leased), worker_filter=fits[index])


def _next_delivery(task: Task, now_ms: int) -> int:
    """A moment that tells this delivery of a lease from the ones before, so that only the last can be undone."""
    return max(now_ms, (task.leased_at_ms or 0) + 1)


async def _grant(
    ctx: EngineContext,
    tx: Tx,
    queue: Queue,
    polls: Sequence[Poll],
    worker_filter: WorkerFilter,
    asking: PollSlots,
) -> _Outcome:
    """Ask the core who runs next, and record it.

    One looks again when something was taken, but less than planned; or when lanes were seen that do not fit or
    may not go, which now have their place, so that the next look sees further.
    """
    nobody: list[list[Leased]] = [[] for _ in polls]
    if polls[0].claim_lease_ms is not None:
        queue = unpermitted(queue)
    if queue.is_limited and not ctx.coordination.is_supported():
        return _Outcome(nobody, Hold(HoldReason.UNAVAILABLE))
    running = 0 if polls[0].claim_lease_ms is not None else await running_on(tx, queue)
    allowed = dispatch.own_budget(queue, running, tx.now_ms)
    if isinstance(allowed, Hold):
        if dispatch.window_debt(queue, tx.now_ms) != queue.window:
            keep(tx, queue, *await counting(tx, queue))
        _record_debt(tx, queue)
        return _Outcome(nobody, allowed)
    asked = asking.total
    room = asked if allowed is None else min(asked, allowed)
    sight = await load_snapshot(tx, queue, worker_filter, room, running)
    scopes, settled_costs = await counting(tx, queue)
    topics = tuple(scope_topic(state.scope_id) for state in scopes.values())
    snapshot = replace(sight.snapshot, scopes=scopes)
    decision = dispatch.decide(snapshot, min(room, TAGGED_AT_ONCE_MAX) if sight.is_partial else room, asked)
    planned = None if isinstance(decision, Hold) else decision.plan
    order = () if planned is None else planned.order
    taken = await _take(tx, queue, worker_filter, order)
    unaffordable = _afford(tx, queue, snapshot, taken)
    counts = fairness.count_by_lane([lane_key for lane_key, _ in taken])
    settled = dispatch.settle(snapshot, counts, sum(task.cost for _, task in taken), planned)
    put_aside = _record(tx, queue, settled, counts)
    if not settled.order:
        keep(tx, queue, scopes, settled_costs)
    if isinstance(decision, Hold):
        return _Outcome(nobody, decision, put_aside > 0 or sight.is_partial, topics)
    tasks = _in_order(taken, settled.order)
    given = len(settled.order)
    short = 0 < given < len(order) or (given < room and (put_aside > 0 or sight.is_partial))
    holders = asking.shares(given)
    charged = refunds.charges(snapshot, settled, tasks, holders)
    shares = await _lease(ctx, tx, queue, polls, holders, tasks, charged, settled.scopes)
    return _Outcome(shares, unaffordable or decision.hold, short and unaffordable is None, topics)


async def running_on(tx: Tx, queue: Queue) -> int:
    """How many leases of the line count; asked only where they are limited."""
    limit = queue.rules.lease_cap
    return 0 if limit is None else await tx.queues.running(queue.queue_id, limit)


async def counting(tx: Tx, queue: Queue) -> tuple[dict[str, ScopeState], Sequence[ScopeState]]:
    """What the scopes of a line count, locked; and which of them differ from their rows.

    Those are the ones whose tasks turned out to cost something else: if nothing is granted, they are to be kept.
    """
    scopes = {each.name: each for each in queue.limits.scopes}
    if not scopes:
        return {}, ()
    states = {state.name: state for state in await tx.scopes.lock(await tx.scopes.ids(list(scopes)))}
    settled: list[ScopeState] = []
    for name, rules in scopes.items():
        if rules.cost is not None:
            settlements = await tx.scopes.settlements(states[name].scope_id)
            states[name] = corrected(rules, states[name], settlements, tx.now_ms)
            settled += [states[name]] if settlements else []
    return states, settled


def keep(tx: Tx, queue: Queue, scopes: Mapping[str, ScopeState], settled: Sequence[ScopeState]) -> None:
    """Record what tasks turned out to cost, and what falls due after a change of the clock, though nothing goes."""
    for rules in queue.limits.scopes:
        state = due(rules, scopes[rules.name], tx.now_ms)
        if state != scopes[rules.name] or scopes[rules.name] in settled:
            tx.scopes.settle(state)


async def _take(
    tx: Tx, queue: Queue, worker_filter: WorkerFilter, order: Sequence[LaneKey]
) -> list[tuple[LaneKey, Task]]:
    """The tasks behind a plan, in its order. A lane may hold fewer that fit than it seemed."""
    if not order:
        return []
    planned = fairness.count_by_lane(order)
    wanted = [(level, key, count) for (level, key), count in planned.items()]
    found = await tx.queues.take(queue.queue_id, wanted, worker_filter)
    heads = {lane_key: iter(tasks) for lane_key, tasks in zip(planned, found, strict=True)}
    taken = [(lane_key, next(heads[lane_key], None)) for lane_key in order]
    return [(lane_key, task) for lane_key, task in taken if task is not None]


def _in_order(taken: Sequence[tuple[LaneKey, Task]], order: Sequence[LaneKey]) -> list[Task]:
    """The tasks that were taken, as their lanes are billed for them."""
    heads: dict[LaneKey, deque[Task]] = {}
    for lane_key, task in taken:
        heads.setdefault(lane_key, deque()).append(task)
    return [heads[lane_key].popleft() for lane_key in order]


def _afford(tx: Tx, queue: Queue, snapshot: QueueSnapshot, taken: list[tuple[LaneKey, Task]]) -> Hold | None:
    """Leave out what the budgets of cost do not allow; says so if it is the first in line already."""
    if all(each.cost is None for each in queue.limits.scopes):
        return None
    allowed = dispatch.affordable(queue, snapshot.scopes, [task.cost for _, task in taken], tx.now_ms)
    del taken[0 if isinstance(allowed, Hold) else allowed :]
    return allowed if isinstance(allowed, Hold) else None


def _record_debt(tx: Tx, queue: Queue) -> None:
    """Keep what is owed after a change of the rate or of the clock, though nothing may go: else it never falls due."""
    owed, window = dispatch.queue_debt(queue, tx.now_ms), dispatch.window_debt(queue, tx.now_ms)
    if (owed, window) != (queue.paid_until_ns, queue.window):
        tx.policies.settle(queue.queue_id, owed, queue.aging_turn, window)


def _record(tx: Tx, queue: Queue, settled: Settled, taken: Mapping[LaneKey, int]) -> int:
    """Record what was billed and placed; returns how many lanes were placed or put aside without giving a task."""
    queue_id, rules = queue.queue_id, queue.rules
    if settled.order:
        for state in settled.scopes:
            tx.scopes.settle(state)
    _record_keys(tx, queue, settled)
    put_aside = 0
    for lane in settled.lanes:
        given = taken.get(lane.lane_key, 0)
        put_aside += not given
        tx.queues.settle(queue_id, lane, given)
        if rules.counts_running and given:
            tx.policies.rerank_others(queue_id, lane.level, lane.key)
    for clock in settled.clocks:
        tx.queues.save_clock(queue_id, clock)
    if settled.order:
        tx.queues.count_dispatches(queue_id, tx.now_ms // MINUTE_MS, len(settled.order))
    return put_aside


def _record_keys(tx: Tx, queue: Queue, settled: Settled) -> None:
    """Record what the queue and its keys have paid, and what each key runs, where that is counted.

    The row of a key whose lane is held, or ranked by what it runs, is written too: that keeps the end of a lease
    waiting until the lane is recorded, so that whoever ends it finds the lane and has it looked at again.
    """
    rules = queue.rules
    before = (queue.paid_until_ns, queue.aging_turn, queue.window)
    if (settled.paid_until_ns, settled.aging_turn, settled.window) != before:
        tx.policies.settle(queue.queue_id, settled.paid_until_ns, settled.aging_turn, settled.window)
    keys = dict.fromkeys(settled.paid)
    if rules.counts_leases:
        keys |= dict.fromkeys(settled.spent)
        keys |= dict.fromkeys(
            lane.key for lane in settled.lanes if lane.held_at is not None or rules.counts_running
        )
    for key in keys:
        leased = settled.spent.get(key, 0) if rules.counts_leases else 0
        tx.policies.spend(queue.queue_id, key, settled.paid.get(key), leased)


async def _lease(
    ctx: EngineContext,
    tx: Tx,
    queue: Queue,
    polls: Sequence[Poll],
    holders: Sequence[int],
    tasks: Sequence[Task],
    charged: Sequence[Charge],
    scopes: Sequence[ScopeState],
) -> list[list[Leased]]:
    leases = ctx.settings.leases
    ends_told, counting_it = counted(queue.rules), counted_by(scopes)
    granted: list[Task] = []
    pages: list[int] = []
    for task, holder in zip(tasks, holders, strict=True):
        poll = polls[holder]
        workflow = task.kind is TaskKind.WORKFLOW
        lease_ms = (
            leases.workflow_lease_ms if workflow else poll.claim_lease_ms or leases.of_activity(poll.lease_ms)
        )
        token = attempt_id(task.attempt + 1, ctx.entropy.token())
        held = grant(
            task,
            poll.worker_id,
            token,
            tx.now_ms,
            lease_ms,
            poll.poll_request_id,
            counted=ends_told,
            scopes=counting_it,
            claimed=poll.claim_lease_ms or 0,
        )
        granted.append(held)
        pages.append(poll.history_page)
        tx.tasks.lease(held)
    for held in granted if ctx.journals else ():
        tx.journal.append(journal_lines.granted(queue, held, scopes, tx.now_ms))
    equipped = await _equip(tx, granted, pages, starting=polls[0].claim_lease_ms is None)
    shares: list[list[Leased]] = [[] for _ in polls]
    for leased, holder, charge in zip(equipped, holders, charged, strict=True):
        shares[holder].append(replace(leased, charge=charge))
    return shares


def counted(rules: Rules) -> int:
    """How the end of a lease is told: to its key, or to the queue alone, or to nobody."""
    if rules.counts_leases:
        return 1
    return 0 if rules.lease_cap is None else 2


async def _equip(
    tx: Tx, tasks: Sequence[Task], pages: Sequence[int], *, starting: bool = False
) -> list[Leased]:
    """Add what the worker needs: the run with its history, or the activity with its arguments.

    An activity whose schedule-to-start timeout has run out does not begin, though its task is granted: it times out at
    the next sweep or report, and no result of it counts.
    """
    run_ids = [task.run_id for task in tasks]
    if tasks and tasks[0].kind is TaskKind.WORKFLOW:
        return await _with_histories(tx, tasks, await tx.runs.get_many(run_ids), pages)
    activity_ids = [task.activity_id for task in tasks if task.activity_id]
    runs, activities = await gather(tx.runs.get_many(run_ids), tx.activities.get_many(activity_ids))
    leased: list[Leased] = []
    for task, run, activity in zip(tasks, runs, activities, strict=True):
        assert run is not None, "a task has a run"
        assert activity is not None, "an activity task has an activity"
        if starting:
            late = expired_clock(activity, task.available_at_ms, tx.now_ms) is not None
            activity = replace(activity, attempt=task.attempt) if late else begun(activity, task, tx.now_ms)
            tx.activities.save(activity)
        leased.append(Leased(task, run, activity))
    return leased


async def _with_histories(
    tx: Tx, tasks: Sequence[Task], runs: Sequence[Run | None], pages: Sequence[int]
) -> list[Leased]:
    seen = [
        0 if run is None else cached_up_to(run, task.lease_owner)
        for task, run in zip(tasks, runs, strict=True)
    ]
    histories = await tx.histories.first_pages([task.run_id for task in tasks], pages, seen)
    return [
        Leased(task, run, events=events, seen=known)
        for task, run, events, known in zip(tasks, runs, histories, seen, strict=True)
        if run is not None
    ]


def begun(activity: Activity, task: Task, now_ms: int) -> Activity:
    """The activity with its clocks set: an attempt at it begins."""
    started = replace(
        activity,
        status=ActivityStatus.RUNNING,
        attempt=task.attempt,
        started_at_ms=now_ms,
        heartbeat_at_ms=None,
    )
    deadline_at_ms = running_deadline_at_ms(started)
    if deadline_at_ms == started.deadline_at_ms:
        return started
    return replace(started, deadline_at_ms=deadline_at_ms)


async def hand_back(ctx: EngineContext, leased: Leased) -> None:
    """Undo a lease that was not delivered: the task waits again, no attempt is charged, and its charge is refunded.

    All of it happens in one transaction, once: a lease that has ended, or was delivered again, is left alone.
    """
    queue_id, task_id = leased.task.queue_id, leased.task.task_id
    token, delivered = leased.task.lease_token, leased.task.leased_at_ms

    async def operation(tx: Tx) -> None:
        queue = await tx.queues.lock(queue_id)
        assert queue is not None, "a task that was leased has a queue"
        scopes = await _charged_scopes(tx, leased)
        run = await tx.runs.lock(leased.task.run_id)
        task = await tx.tasks.lock(task_id)
        if run is None or task is None or (task.lease_token, task.leased_at_ms) != (token, delivered):
            return
        charge = leased.charge or refunds.of_row(queue, task, scopes)
        await _refund(tx, queue, task, scopes, charge)
        if task.activity_id is not None:
            await _hand_back_activity(tx, task, task.activity_id)
            return
        rested = await back_off(tx, run, _undelivered(task, tx.now_ms))
        if rested != run:
            tx.runs.save(rested)

    await ctx.store.transact(operation, key=f"queue:{queue_id}", tx_class=TransactionClass.PERMIT)


async def _charged_scopes(tx: Tx, leased: Leased) -> Sequence[ScopeState]:
    """The scopes that the grant was counted in, locked."""
    if leased.charge is not None:
        ids = [each.scope_id for each in leased.charge.scopes]
    else:
        ids = [int(scope_id) for scope_id in leased.task.scopes.split()]
    return await tx.scopes.lock(ids) if ids else ()


async def _refund(tx: Tx, queue: Queue, task: Task, scopes: Sequence[ScopeState], charge: Charge) -> None:
    """Record what the queue, its key, its lane, its scopes and its meters count without this grant."""
    queue_id, key = queue.queue_id, None
    if charge.key_rate is not None:
        key = (await tx.policies.key_states(queue_id, [task.key])).get(task.key)
    refund = refunds.refund(queue, key, scopes, charge, tx.now_ms)
    if (refund.paid_until_ns, refund.window) != (queue.paid_until_ns, queue.window):
        tx.policies.settle(queue_id, refund.paid_until_ns, queue.aging_turn, refund.window)
    if refund.key_paid_until_ns is not None:
        tx.policies.spend(queue_id, task.key, refund.key_paid_until_ns, 0)
        tx.policies.touch_key(queue_id, task.key, LaneState.DIRTY)
    for state in refund.scopes:
        tx.scopes.settle(state)
    minute = charge.granted_at_ms // MINUTE_MS
    tx.queues.refund(queue_id, task.level, task.key, charge.stride, minute)
    if tx.now_ms // MINUTE_MS - minute <= 1:  # older meters may be deleted already
        tx.queues.count_dispatches(queue_id, minute, -1)


def _undelivered(task: Task, now_ms: int) -> Task:
    freed_task = freed(task, TaskState.READY, available_at_ms=now_ms, how=UNDELIVERED)
    return replace(freed_task, ended_refunded=True)


async def _hand_back_activity(tx: Tx, task: Task, activity_id: ActivityId) -> None:
    again = _undelivered(replace(task, attempt=task.attempt - 1), tx.now_ms)
    activity = await tx.activities.get(activity_id)
    assert activity is not None
    waiting = replace(activity, status=ActivityStatus.PENDING, attempt=again.attempt, started_at_ms=None)
    deadline = waiting_deadline_at_ms(waiting, tx.now_ms)
    tx.activities.save(replace(waiting, deadline_at_ms=deadline))
    requeue(tx, again, TaskState.LEASED)
