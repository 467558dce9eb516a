"""What a claim writes: counters, lane tags, leases and the journal; and the answers of its polls."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from penstock.core.model import Activity, ActivityStatus, Queue, QueueId, Task, TaskKind, TaskState
from penstock.core.operations import journal_lines
from penstock.core.scheduling.charges import Charge, Ledger
from penstock.core.scheduling.claim import ClaimPlan
from penstock.core.scheduling.dispatch import HoldReason
from penstock.core.scheduling.gates import ScopeState, counted_by
from penstock.core.scheduling.leases import Sightings, grant
from penstock.core.scheduling.polls import ClaimResult, Granted, Held, Leased, Poll
from penstock.core.scheduling.retries import expired_clock, running_deadline_at_ms
from penstock.engine.context import EngineContext
from penstock.ports.gather import gather
from penstock.ports.store import Tx

TO_THE_QUEUE = 2
"""The end of such a lease is notified to its queue (`Rules.announced`)."""


class _Delivery(Struct, frozen=True):
    """A leased task on its way to a poll."""

    poll: int
    task: Task
    charge: Charge | None = None
    starts: bool = False
    """Whether the attempt begins now: it is neither a redelivery nor prefetched."""


async def record_plan(
    ctx: EngineContext, tx: Tx, plan: ClaimPlan, seen: Sightings | None
) -> list[ClaimResult]:
    """Write everything that a plan decided, in the transaction that it was decided in; answer every poll."""
    for worker_id in plan.alive:
        tx.workers.touch(plan.polls[0].namespace, worker_id, tx.now_ms)
    if plan.queue is not None:
        _record_ledger(tx, plan.queue.queue_id, plan.ledger)
    deliveries = [_Delivery(index, task) for index, task in _redeliver(tx, plan)] if plan.redelivered else []
    deliveries += _lease(ctx, tx, plan, seen) if plan.grants else ()
    shares = await _shares(tx, plan.polls, deliveries) if deliveries else {}
    return [
        Granted(tuple(shares[index]), plan.filters[index]) if index in shares else plan.answers[index]
        for index in range(len(plan.polls))
    ]


def _redeliver(tx: Tx, plan: ClaimPlan) -> list[tuple[int, Task]]:
    """Save the leases that are delivered again.

    They were read before the plan announced the ends of the leases of full workers, so that is repeated here.
    """
    full = {
        plan.polls[index].worker_id
        for index, answer in plan.answers.items()
        if isinstance(answer, Held) and answer.hold.reason is HoldReason.SLOTS
    }
    found: list[tuple[int, Task]] = []
    for index, task in plan.redelivered:
        if task.lease_owner in full:
            task = replace(task, counted=task.counted or TO_THE_QUEUE)
        tx.tasks.save(task, TaskState.LEASED)
        found.append((index, task))
    return found


def _record_ledger(tx: Tx, queue_id: QueueId, ledger: Ledger) -> None:
    if ledger.scopes:
        record_scopes(tx, ledger.scopes)
    if ledger.queue is not None:
        account = ledger.queue
        tx.policies.settle(queue_id, account.paid_until_ns, account.aging_turn, account.window)
    for key, (paid_until_ns, leases) in ledger.keys.items():
        tx.policies.spend(queue_id, key, paid_until_ns, leases)
    for lane, given in ledger.lanes:
        if ledger.reranks and given:
            tx.policies.rerank_others(queue_id, lane.level, lane.key)
    tx.queues.settle(queue_id, ledger.lanes, ledger.clocks, ledger.dispatched)


def record_scopes(tx: Tx, scopes: Sequence[ScopeState]) -> None:
    for state in scopes:
        tx.scopes.settle(state)


def _lease(ctx: EngineContext, tx: Tx, plan: ClaimPlan, seen: Sightings | None) -> list[_Delivery]:
    """Lease the granted tasks, and append them to the journal. A token is the number of the attempt and a secret."""
    queue, leases = plan.queue, ctx.settings.leases
    assert queue is not None, "what is granted waited in a queue"
    counted, scopes = queue.rules.announced, counted_by(plan.scopes)
    deliveries: list[_Delivery] = []
    for granted in plan.grants:
        poll, task = plan.polls[granted.poll], granted.task
        if task.kind is TaskKind.WORKFLOW:
            lease_ms = leases.workflow_lease_ms
        else:
            longest_ms = leases.activity_lease_ms
            lease_ms = poll.claim_lease_ms or min(poll.lease_ms or longest_ms, longest_ms)
        leased = grant(
            task,
            poll.worker_id,
            f"{task.attempt + 1}.{ctx.entropy.token()}",
            tx.now_ms,
            lease_ms,
            poll.poll_request_id,
            counted=counted,
            scopes=scopes,
            claimed=poll.claim_lease_ms or 0,
            seen=seen,
            poll=granted.poll,
            limited=queue.may_hold_back,
        )
        tx.tasks.lease(leased)
        deliveries.append(_Delivery(granted.poll, leased, granted.charge, poll.claim_lease_ms is None))
    if ctx.store.journals:
        _journal(tx, plan, queue, deliveries, seen)
    return deliveries


def _journal(
    tx: Tx, plan: ClaimPlan, queue: Queue, deliveries: Sequence[_Delivery], seen: Sightings | None
) -> None:
    """Append the grants to the journal, in the order of the plan."""
    lanes = [lane for lane, _ in plan.ledger.lanes]
    grants = journal_lines.GrantJournal(queue, plan.scopes, lanes, tx.now_ms)
    for each in deliveries:
        open_for_ms = None if seen is None else seen.open_for_ms[each.poll]
        tx.journal.append(grants.line(each.task, open_for_ms))


async def _shares(
    tx: Tx, polls: Sequence[Poll], deliveries: Sequence[_Delivery]
) -> Mapping[int, Sequence[Leased]]:
    """The tasks of each poll, by its index, with everything that the worker needs to run them."""
    if polls[0].kind is TaskKind.WORKFLOW:
        found = await _with_histories(tx, polls, deliveries)
    else:
        found = await _with_activities(tx, deliveries)
    shares: dict[int, list[Leased]] = {}
    for delivery, leased in zip(deliveries, found, strict=True):
        shares.setdefault(delivery.poll, []).append(leased)
    return shares


async def _with_activities(tx: Tx, deliveries: Sequence[_Delivery]) -> Sequence[Leased]:
    """Activities with their arguments and their runs. An attempt begins, unless its schedule-to-start timeout passed.

    Such a task is granted all the same: its activity times out at the next sweep or report, and no result of it counts.
    """
    runs, activities = await gather(
        tx.runs.get_many([each.task.run_id for each in deliveries]),
        tx.activities.get_many([each.task.activity_id for each in deliveries if each.task.activity_id]),
    )
    found: list[Leased] = []
    for each, run, activity in zip(deliveries, runs, activities, strict=True):
        assert run is not None, "a task has a run"
        assert activity is not None, "an activity task has an activity"
        if each.starts:
            if expired_clock(activity, each.task.available_at_ms, tx.now_ms) is None:
                activity = begun(activity, each.task, tx.now_ms)
            else:
                activity = replace(activity, attempt=each.task.attempt)
            tx.activities.save(activity)
        found.append(Leased(each.task, run, activity, charge=each.charge))
    return found


async def _with_histories(tx: Tx, polls: Sequence[Poll], deliveries: Sequence[_Delivery]) -> Sequence[Leased]:
    """Runs with the first page of their histories, after the events that the worker has in memory."""
    run_ids = [each.task.run_id for each in deliveries]
    runs = await tx.runs.get_many(run_ids)
    seen: list[int] = []
    for each, run in zip(deliveries, runs, strict=True):
        cached = None if run is None else run.waits.cached
        seen.append(cached[1] if cached is not None and cached[0] == each.task.lease_owner else 0)
    pages = [polls[each.poll].history_page for each in deliveries]
    histories = await tx.histories.first_pages(run_ids, pages, seen)
    found: list[Leased] = []
    for each, run, events, known in zip(deliveries, runs, histories, seen, strict=True):
        assert run is not None, "a task has a run"
        found.append(Leased(each.task, run, events=events, seen=known, charge=each.charge))
    return found


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
