"""Polling: many waiting polls of one queue, one decision, leases in the same transaction."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from penstock.core import journal
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
    Worker,
)
from penstock.core.policies import Rules
from penstock.core.scheduling import dispatch, fairness, refunds
from penstock.core.scheduling.cohorts import check_may_poll, is_known_dead
from penstock.core.scheduling.dispatch import Fit, Hold, HoldReason, QueueSnapshot, Settled
from penstock.core.scheduling.fairness import PLACED_AT_ONCE_MAX, Place, Slot
from penstock.core.scheduling.gates import ScopeState, corrected, counted_by, due, unpermitted
from penstock.core.scheduling.leases import UNDELIVERED, freed, grant
from penstock.core.scheduling.refunds import Charge
from penstock.core.scheduling.retries import (
    expired_clock,
    running_deadline_at_ms,
    waiting_deadline_at_ms,
)
from penstock.core.scheduling.slots import Room
from penstock.core.timers import MINUTE_MS
from penstock.engine import reserving, slots
from penstock.engine.activity_reports import attempt_id
from penstock.engine.house import House
from penstock.engine.recording import put_back, rest, seen_by
from penstock.engine.reserving import NOBODY, Reserved
from penstock.engine.sight import look
from penstock.errors import PenstockError
from penstock.ports.store import Line, Tx
from penstock.ports.together import both
from penstock.ports.wakeups import Bell, scope_bell

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


class Verdict(Struct, frozen=True):
    """What a claim says to one poll: tasks, or a hold, or a refusal; and what its worker fits now."""

    leased: tuple[Leased, ...] = ()
    hold: Hold | None = None
    refusal: PenstockError | None = None
    fit: Fit | None = None
    look_again: bool = False
    """Whether there may be more: a key held fewer tasks that fit than it seemed, and others were not asked."""
    look_again_in_ms: int | None = None
    """When a limit that is in the way may open."""
    bells: tuple[Bell, ...] = ()
    """What rings when a scope that is in the way may let something go."""
    reserves: bool = False
    """Whether tasks wait here for other workers, whatever this one was told."""
    postponed: bool = False
    """Whether it was not looked at: other polls are served for themselves first. It is to be asked again at once."""


async def claim(house: House, queue_id: QueueId, polls: Sequence[Poll], fit: Fit | None) -> list[Verdict]:
    """Serve the polls in order of arrival. Polls of workers that do not have this fit are told theirs instead.

    `fit` None: the first worker's fit is used; the dispatcher does not know it yet. A worker for which tasks are
    reserved is served by itself: of the polls only those that may have the same tasks as the first are looked at.
    """

    async def operation(tx: Tx) -> list[Verdict]:
        return await _claim(house, tx, queue_id, polls, fit)

    return await house.store.transact(operation, key=f"queue:{queue_id}", line=Line.CLAIM)


async def _claim(
    house: House, tx: Tx, queue_id: QueueId, polls: Sequence[Poll], fit: Fit | None
) -> list[Verdict]:
    verdicts: dict[int, Verdict] = {}
    workers = await _admit(house, tx, polls, verdicts)
    waiting = [index for index in range(len(polls)) if index not in verdicts]
    fits = {index: dispatch.fit(workers[index], workers[index].types(polls[index].kind)) for index in waiting}
    if waiting and fit is None:
        fit = fits[waiting[0]]
    matching = [index for index in waiting if fits[index] == fit]
    reserved = NOBODY
    if matching and polls[0].kind is TaskKind.WORKFLOW:
        reserved = await reserving.look(house, tx, queue_id, list(workers.values()))
    alike = reserved.like_the_first([polls[index].worker_id for index in matching])
    for index in [index for index, is_alike in zip(matching, alike, strict=True) if not is_alike]:
        verdicts[index] = Verdict(fit=fits[index], postponed=True)
    matching = [index for index in matching if index not in verdicts]
    if fit is not None and matching:
        fit = replace(fit, keepers=reserved.open_to(polls[matching[0]].worker_id))
    ready, queue = await _open_queue(tx, queue_id, fit if matching else None)
    free = await _look_back(tx, polls, matching, verdicts, fits, workers if queue is not None else {})
    open_ = [index for index in matching if index not in verdicts]
    if open_ and ready is not None and queue is not None:
        crew = [workers[index] for index in open_]
        served = await _serve(house, tx, queue, [polls[index] for index in open_], crew, ready, free)
        for place, index in enumerate(open_):
            verdicts[index] = replace(served[place], fit=fits[index])
    nothing = Verdict(hold=Hold(HoldReason.EMPTY))
    for index in waiting:
        verdicts.setdefault(index, replace(nothing, fit=fits[index]))
    for index in matching:
        verdicts[index] = _besides(verdicts[index], reserved, polls[index].worker_id, tx.now_ms)
    return [verdicts[index] for index in range(len(polls))]


def _besides(verdict: Verdict, reserved: Reserved, worker_id: str, now_ms: int) -> Verdict:
    """The verdict, which knows of tasks that wait for others: they are for anybody when nobody comes for them."""
    until_ms = reserved.first_for_anybody_ms(worker_id)
    if until_ms is None or verdict.leased:
        return replace(verdict, reserves=until_ms is not None)
    waits = [until_ms - now_ms] + ([] if verdict.look_again_in_ms is None else [verdict.look_again_in_ms])
    return replace(verdict, reserves=True, look_again_in_ms=max(1, min(waits)))


async def _serve(
    house: House,
    tx: Tx,
    queue: Queue,
    polls: Sequence[Poll],
    crew: Sequence[Worker],
    fit: Fit,
    free: Mapping[str, int],
) -> list[Verdict]:
    """Grant what the slots of the workers leave room for; whoever is full learns that."""
    ahead = polls[0].claim_lease_ms is not None
    room = Room([poll.tasks_max for poll in polls], [poll.worker_id for poll in polls], free)
    nothing = _Outcome([()] * len(polls), Hold(HoldReason.SLOTS))
    outcome = await _grant(house, tx, queue, polls, fit, room) if room.total else nothing
    full = {worker.worker_id: worker for worker in crew if not free[worker.worker_id]}
    again = await slots.heed(tx, list(full.values()), queue.kind, ahead=ahead)
    given = Counter(poll.worker_id for poll, tasks in zip(polls, outcome.shares, strict=True) for _ in tasks)
    verdicts = []
    for place, poll in enumerate(polls):
        verdict = _verdict(outcome, place, tx.now_ms)
        if not verdict.leased and given[poll.worker_id] >= free[poll.worker_id]:
            verdict = _at_its_slots(again.get(poll.worker_id, 0))
        verdicts.append(verdict)
    return verdicts


def _at_its_slots(again_in_ms: int | None) -> Verdict:
    return Verdict(
        hold=Hold(HoldReason.SLOTS), look_again=again_in_ms == 0, look_again_in_ms=again_in_ms or None
    )


class _Outcome(Struct, frozen=True):
    """What a claim came to: the tasks of each poll, why the others wait, and whether to look again at once."""

    shares: Sequence[Sequence[Leased]]
    hold: Hold
    look_again: bool = False
    bells: tuple[Bell, ...] = ()


def _verdict(outcome: _Outcome, place: int, now_ms: int) -> Verdict:
    tasks, hold = tuple(outcome.shares[place]), outcome.hold
    if tasks:
        return Verdict(tasks)
    bells = outcome.bells if hold.scope is not None else ()
    return Verdict((), hold, None, None, outcome.look_again, _in_ms(hold, now_ms), bells)


def _in_ms(hold: Hold, now_ms: int) -> int | None:
    return None if hold.look_again_at_ms is None else max(1, hold.look_again_at_ms - now_ms)


async def _admit(
    house: House, tx: Tx, polls: Sequence[Poll], verdicts: dict[int, Verdict]
) -> dict[int, Worker]:
    """Each poll's worker; polls that may not be served get their refusal."""
    names = list(dict.fromkeys(poll.worker_id for poll in polls))
    namespace, task_queue = polls[0].namespace, polls[0].task_queue
    workers, cohorts = await both(
        tx.workers.get_many(namespace, names), tx.cohorts.list(namespace, task_queue)
    )
    found = dict(zip(names, workers, strict=True))
    intents = {cohort.build_id: cohort for cohort in cohorts}
    admitted: dict[int, Worker] = {}
    touched: set[str] = set()
    for index, poll in enumerate(polls):
        worker = found[poll.worker_id]
        try:
            worker = check_may_poll(worker, poll.worker_id, poll.task_queue, poll.build_id, intents)
        except PenstockError as refusal:
            verdicts[index] = Verdict(refusal=refusal)
            continue
        admitted[index] = worker
        late_ms = house.settings.polls.worker_stale_after_ms // 6
        silent = tx.now_ms - worker.heartbeat_at_ms > late_ms or is_known_dead(worker)
        if worker.worker_id not in touched and silent:
            touched.add(worker.worker_id)
            tx.workers.touch(namespace, worker.worker_id, tx.now_ms)
    return admitted


async def _open_queue(tx: Tx, queue_id: QueueId, fit: Fit | None) -> tuple[Fit | None, Queue | None]:
    """The part of the fit of which something is ready, and the queue, locked; nothing is locked for nothing.

    Whoever holds this lock sees what other servers leased before, also to the same poll sent to them.
    """
    ready = None if fit is None else await tx.tasks.ready_part(queue_id, fit)
    if ready is None:
        return None, None
    queue = await tx.queues.lock(queue_id)
    assert queue is not None, "a queue that is polled exists"
    return ready, queue


async def _look_back(
    tx: Tx,
    polls: Sequence[Poll],
    indices: Sequence[int],
    verdicts: dict[int, Verdict],
    fits: dict[int, Fit],
    workers: Mapping[int, Worker],
) -> Mapping[str, int]:
    """Deliver again what was asked for again; and how many tasks these workers may have beside what they hold."""
    crew = [workers[index] for index in indices if index in workers]
    ahead = polls[0].claim_lease_ms is not None
    _, free = await both(
        _redeliver(tx, polls, indices, verdicts, fits), slots.free(tx, crew, polls[0].kind, ahead=ahead)
    )
    return free


async def _redeliver(
    tx: Tx, polls: Sequence[Poll], indices: Sequence[int], verdicts: dict[int, Verdict], fits: dict[int, Fit]
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
            verdicts[index] = Verdict(tuple(leased), fit=fits[index])


def _next_delivery(task: Task, now_ms: int) -> int:
    """A moment that tells this delivery of a lease from the ones before, so that only the last can be undone."""
    return max(now_ms, (task.leased_at_ms or 0) + 1)


async def _grant(
    house: House, tx: Tx, queue: Queue, polls: Sequence[Poll], fit: Fit, asking: Room
) -> _Outcome:
    """Ask the core who runs next, and record it.

    One looks again when something was taken, but less than planned; or when lanes were seen that do not fit or
    may not go, which now have their place, so that the next look sees further.
    """
    nobody: list[list[Leased]] = [[] for _ in polls]
    if polls[0].claim_lease_ms is not None:
        queue = unpermitted(queue)
    if queue.is_limited and not house.coordination.is_supported():
        return _Outcome(nobody, Hold(HoldReason.UNAVAILABLE))
    running = 0 if polls[0].claim_lease_ms is not None else await running_on(tx, queue)
    allowed = dispatch.own_budget(queue, running, tx.now_ms)
    if isinstance(allowed, Hold):
        if dispatch.owed_window(queue, tx.now_ms) != queue.window:
            keep(tx, queue, *await counting(tx, queue))
        _record_debt(tx, queue)
        return _Outcome(nobody, allowed)
    asked = asking.total
    room = asked if allowed is None else min(asked, allowed)
    sight = await look(tx, queue, fit, room, running)
    scopes, settled_costs = await counting(tx, queue)
    bells = tuple(scope_bell(state.scope_id) for state in scopes.values())
    snapshot = replace(sight.snapshot, scopes=scopes)
    decision = dispatch.decide(snapshot, min(room, PLACED_AT_ONCE_MAX) if sight.is_partial else room, asked)
    planned = None if isinstance(decision, Hold) else decision.plan
    order = () if planned is None else planned.order
    taken = await _take(tx, queue, fit, order)
    unaffordable = _afford(tx, queue, snapshot, taken)
    counts = fairness.counted([slot for slot, _ in taken])
    settled = dispatch.settle(snapshot, counts, sum(task.cost for _, task in taken), planned)
    put_aside = _record(tx, queue, settled, counts)
    if not settled.order:
        keep(tx, queue, scopes, settled_costs)
    if isinstance(decision, Hold):
        return _Outcome(nobody, decision, put_aside > 0 or sight.is_partial, bells)
    tasks = _in_order(taken, settled.order)
    given = len(settled.order)
    short = 0 < given < len(order) or (given < room and (put_aside > 0 or sight.is_partial))
    holders = asking.shares(given)
    charged = refunds.charges(snapshot, settled, tasks, holders)
    shares = await _lease(house, tx, queue, polls, holders, tasks, charged, settled.scopes)
    return _Outcome(shares, unaffordable or decision.hold, short and unaffordable is None, bells)


async def running_on(tx: Tx, queue: Queue) -> int:
    """How many leases of the line count; asked only where they are limited."""
    limit = queue.rules.running_limit
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


async def _take(tx: Tx, queue: Queue, fit: Fit, order: Sequence[Slot]) -> list[tuple[Slot, Task]]:
    """The tasks behind a plan, in its order. A lane may hold fewer that fit than it seemed."""
    if not order:
        return []
    planned = fairness.counted(order)
    wanted = [(level, key, count) for (level, key), count in planned.items()]
    found = await tx.queues.take(queue.queue_id, wanted, fit)
    heads = {slot: iter(tasks) for slot, tasks in zip(planned, found, strict=True)}
    taken = [(slot, next(heads[slot], None)) for slot in order]
    return [(slot, task) for slot, task in taken if task is not None]


def _in_order(taken: Sequence[tuple[Slot, Task]], order: Sequence[Slot]) -> list[Task]:
    """The tasks that were taken, as their lanes are billed for them."""
    heads: dict[Slot, deque[Task]] = {}
    for slot, task in taken:
        heads.setdefault(slot, deque()).append(task)
    return [heads[slot].popleft() for slot in order]


def _afford(tx: Tx, queue: Queue, snapshot: QueueSnapshot, taken: list[tuple[Slot, Task]]) -> Hold | None:
    """Leave out what the budgets of cost do not allow; says so if it is the first in line already."""
    if all(each.cost is None for each in queue.limits.scopes):
        return None
    allowed = dispatch.affordable(queue, snapshot.scopes, [task.cost for _, task in taken], tx.now_ms)
    del taken[0 if isinstance(allowed, Hold) else allowed :]
    return allowed if isinstance(allowed, Hold) else None


def _record_debt(tx: Tx, queue: Queue) -> None:
    """Keep what is owed after a change of the rate or of the clock, though nothing may go: else it never falls due."""
    owed, window = dispatch.owed(queue, tx.now_ms), dispatch.owed_window(queue, tx.now_ms)
    if (owed, window) != (queue.paid_until_ns, queue.window):
        tx.policies.settle(queue.queue_id, owed, queue.aging_turn, window)


def _record(tx: Tx, queue: Queue, settled: Settled, taken: Mapping[Slot, int]) -> int:
    """Record what was billed and placed; returns how many lanes were placed or put aside without giving a task."""
    queue_id, rules = queue.queue_id, queue.rules
    if settled.order:
        for state in settled.scopes:
            tx.scopes.settle(state)
    _record_keys(tx, queue, settled)
    put_aside = 0
    for lane in settled.lanes:
        given = taken.get(lane.slot, 0)
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
    house: House,
    tx: Tx,
    queue: Queue,
    polls: Sequence[Poll],
    holders: Sequence[int],
    tasks: Sequence[Task],
    charged: Sequence[Charge],
    scopes: Sequence[ScopeState],
) -> list[list[Leased]]:
    leases = house.settings.leases
    ends_told, counting_it = counted(queue.rules), counted_by(scopes)
    granted: list[Task] = []
    pages: list[int] = []
    for task, holder in zip(tasks, holders, strict=True):
        poll = polls[holder]
        workflow = task.kind is TaskKind.WORKFLOW
        lease_ms = (
            leases.workflow_lease_ms if workflow else poll.claim_lease_ms or leases.of_activity(poll.lease_ms)
        )
        token = attempt_id(task.attempt + 1, house.entropy.token())
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
    for held in granted if house.journals else ():
        tx.journal.append(journal.granted(queue, held, scopes, tx.now_ms))
    equipped = await _equip(tx, granted, pages, starting=polls[0].claim_lease_ms is None)
    shares: list[list[Leased]] = [[] for _ in polls]
    for leased, holder, charge in zip(equipped, holders, charged, strict=True):
        shares[holder].append(replace(leased, charge=charge))
    return shares


def counted(rules: Rules) -> int:
    """How the end of a lease is told: to its key, or to the queue alone, or to nobody."""
    if rules.counts_leases:
        return 1
    return 0 if rules.running_limit is None else 2


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
    runs, activities = await both(tx.runs.get_many(run_ids), tx.activities.get_many(activity_ids))
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
        0 if run is None else seen_by(run, task.lease_owner) for task, run in zip(tasks, runs, strict=True)
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


async def hand_back(house: House, leased: Leased) -> None:
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
        rested = await rest(tx, run, _undelivered(task, tx.now_ms))
        if rested != run:
            tx.runs.save(rested)

    await house.store.transact(operation, key=f"queue:{queue_id}", line=Line.PERMIT)


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
        tx.policies.touch_key(queue_id, task.key, Place.STALE)
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
    put_back(tx, again, TaskState.LEASED)
