"""Worker reports on activity tasks (complete, fail, heartbeat, hand back), timeouts, and expired leases.

Theory of operation
-------------------
An activity attempt is identified by its lease token. A report is accepted only from the holder of the live lease; a
late or repeated report changes nothing (`late-answers-change-nothing`). A repeated report gets the receipt of the
first: the token and outcome of the last report are kept in the task's row.

Every report takes the locks of its run and then of its task, checks the lease, and records outcome, events and
follow-up tasks in one transaction. The same transaction enforces timeouts: a report that arrives after one of the four
activity clocks has expired records the timeout instead, whether or not the sweeper has been there. So the outcome does
not depend on when the sweeper runs.

An attempt ends in one of four ways:

- *completed* or *failed* by report. A failure is retried according to the policy, or closes the activity.
- *throttled* upstream: the failure closes the budget group for all its queues, and the attempt is not counted.
- *timed out* by a clock (start-to-close, schedule-to-start, schedule-to-close, heartbeat).
- *lease expired*: the worker died or was cut off. The task is redelivered, retried or failed as the activity's
  lost-lease option says; worker deaths are counted, and an activity that keeps killing workers is quarantined.

Clock stalls of this server are not held against workers: for a grace period after a stall or a restart, the effective
time of lease checks lies before it (`_now_minus_grace_ms`).

Rejected: enforcing timeouts in the sweeper alone, which let a late completion win or lose by the sweeper's timing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct, field
from msgspec.structs import replace

from penstock.core.history.command_effects import closed
from penstock.core.history.events import CODEC, EventType
from penstock.core.history.payloads import activity_payload
from penstock.core.last_error import join_error
from penstock.core.model import (
    Activity,
    ActivityId,
    ActivityStatus,
    Blob,
    NewEvent,
    Run,
    RunHost,
    RunStatus,
    Task,
    TaskId,
    TaskKind,
    TaskState,
    run_of,
)
from penstock.core.model import task_id as numbered
from penstock.core.operations import journal_lines
from penstock.core.pauses import held_back
from penstock.core.scheduling.leases import (
    HANDED_BACK,
    Report,
    answered,
    freed,
    is_answered,
    is_overdue,
    lease_expired,
    newest_details,
    renew,
    repeated,
    run_timed_out,
    stop_details,
)
from penstock.core.scheduling.retries import (
    NoRetry,
    RetryAt,
    after_failure,
    expired_clock,
    running_deadline_at_ms,
    timeout_types,
    waiting_deadline_at_ms,
)
from penstock.core.scheduling.worker_deaths import (
    QUARANTINED,
    WORKER_CRASHED,
    OnLostLease,
    Quarantine,
    Redeliver,
    after_lost_lease,
    has_restart_grace,
    is_death,
    missed_heartbeat,
    on_lost_lease,
    quarantine,
)
from penstock.core.timestamps import iso, iso_or_none
from penstock.engine.activities import retry_budget
from penstock.engine.activities.death_detection import record_death
from penstock.engine.context import EngineContext
from penstock.engine.limits import budgets
from penstock.engine.runs.fire_closed import report_closed
from penstock.engine.runs.history_writer import append, append_last, record_external_event, requeue
from penstock.errors import Conflict, LeaseLost, NotFound, PenstockError, Reason
from penstock.ports.store import Transaction, Tx


class AttemptFailure(Struct, frozen=True):
    """An attempt's failure as its worker reported it."""

    message: str
    type: str | None = None
    cls: str | None = None
    non_retryable: bool = False
    extra: Mapping[str, Any] = field(default_factory=dict)
    throttled_ms: int | None = None
    """For how long the upstream service asked to be left alone (`Retry-After`); None: not throttled."""
    next_ms: int | None = None
    """Backoff before the next attempt; None: the retry policy decides."""

    def is_timeout(self, kind: str) -> bool:
        """Whether the worker itself ended the attempt because this timeout expired."""
        return self.extra.get("kind") == "timeout" and self.extra.get("timeout_type") == kind

    @property
    def stack(self) -> str | None:
        """The worker's stack trace."""
        trace = self.extra.get("stack_trace")
        return trace if isinstance(trace, str) else None

    @property
    def types(self) -> tuple[str, ...]:
        """The error types that a retry policy matches: of the exception class, or of the expired timeout."""
        clock = self.extra.get("timeout_type") if self.extra.get("kind") == "timeout" else None
        clocks = timeout_types(clock) if isinstance(clock, str) else ()
        return *(each for each in (self.type, self.cls) if each), *clocks


class ActivityReceipt(Struct, frozen=True):
    """What a report was recorded as."""

    task: Task
    run: Run
    activity: Activity
    outcome: str
    next_task_id: TaskId | None = None
    repeated: bool = False
    late: str | None = None
    """The timeout that expired before the report and was recorded in its place."""


def check_recorded(receipt: ActivityReceipt) -> ActivityReceipt:
    """Return the receipt. Raises `LeaseLost` if a timeout was recorded in place of the report."""
    if receipt.late is not None:
        raise _timed_out(receipt.task, receipt.late)
    return receipt


def _timed_out(task: Task, kind: str) -> LeaseLost:
    return LeaseLost(
        Reason.STALE_ATTEMPT,
        f"The report came after the {kind.replace('_', ' ')} timeout of the activity, so it was not recorded. "
        "Raise the timeout, or make the activity stop when it is cancelled.",
        timeout_kind=kind,
        current_attempt=task.attempt,
        task_status=task.state.value,
    )


def completion_transaction(
    ctx: EngineContext, namespace: str, task_id: TaskId, report: Report, result: Blob, cost: int | None = None
) -> Transaction[ActivityReceipt]:
    """Record the result of an activity, and its actual cost if given. Pass the receipt to `check_recorded`."""

    async def operation(tx: Tx) -> ActivityReceipt:
        held = await _open(ctx, tx, namespace, task_id, report)
        if held.before is not None:
            return held.before
        late = _expired_timeout(ctx, tx, held)
        if late is not None:
            return await _time_out_late_report(tx, held, late)
        payload = _attempt_payload(held.activity, report.token)
        payload |= {"result": result, "payload_codec": CODEC}
        event = NewEvent(EventType.ACTIVITY_COMPLETED, payload)
        done = answered(held.task, report, TaskState.DONE, "completed", held.task.available_at_ms, cost)
        budgets.settle_cost(tx, held.task, cost)
        run = await _close_activity(tx, held, ActivityStatus.COMPLETED, event, done, output=result)
        return ActivityReceipt(done, run, held.activity, "completed", _live_task(run))

    return Transaction(operation, run_of(task_id))


async def fail(
    ctx: EngineContext,
    namespace: str,
    task_id: TaskId,
    report: Report,
    failure: AttemptFailure,
    cost: int | None = None,
) -> ActivityReceipt:
    """Commit `failure_transaction`. A throttled failure first makes its budget group closable."""
    if failure.throttled_ms is not None:
        await budgets.make_closable(ctx, task_id)
    failed = failure_transaction(ctx, namespace, task_id, report, failure, cost)
    return check_recorded(await ctx.store.transact(failed.operation, key=failed.key))


def failure_transaction(
    ctx: EngineContext,
    namespace: str,
    task_id: TaskId,
    report: Report,
    failure: AttemptFailure,
    cost: int | None = None,
) -> Transaction[ActivityReceipt]:
    """Record a failed attempt: schedule a retry, or fail the activity. Pass the receipt to `check_recorded`.

    After an expired timeout the timeout is recorded instead, unless the failure reports that same timeout.
    """

    async def operation(tx: Tx) -> ActivityReceipt:
        held = await _open(ctx, tx, namespace, task_id, report)
        if held.before is not None:
            return held.before
        late = _expired_timeout(ctx, tx, held)
        if late is not None and not failure.is_timeout(late):
            return await _time_out_late_report(tx, held, late)
        budgets.settle_cost(tx, held.task, cost)
        if failure.throttled_ms is not None:
            return await _throttled(tx, held, report, failure, failure.throttled_ms, cost)
        if is_stop_requested(held) and failure.extra.get("cancelled"):
            done = answered(held.task, report, TaskState.DONE, "cancelled", held.task.available_at_ms, cost)
            run = await _close_cancelled(tx, held, done, failure.message)
            return ActivityReceipt(done, run, held.activity, "cancelled", _live_task(run))
        held, counted = _count_worker_death(ctx, held, failure)
        verdict = after_failure(
            held.activity, counted.types, counted.non_retryable, tx.now_ms, counted.next_ms
        )
        verdict = NoRetry() if is_stop_requested(held) else verdict
        if isinstance(verdict, RetryAt):
            state = TaskState.READY if verdict.at_ms <= tx.now_ms else TaskState.DELAYED
            delayed = replace(
                answered(held.task, report, state, "failed", verdict.at_ms, cost),
                last_error=join_error(failure.message, failure.stack),
            )
            run = await _schedule_retry(tx, held, delayed, verdict, failure.message, failure.type)
            return ActivityReceipt(delayed, run, held.activity, "failed", delayed.task_id)
        payload = _attempt_payload(held.activity, report.token) | _failure_payload(held.activity, counted)
        done = answered(held.task, report, TaskState.DONE, "failed", held.task.available_at_ms, cost)
        event = NewEvent(EventType.ACTIVITY_FAILED, payload)
        run = await _close_activity(tx, held, ActivityStatus.FAILED, event, done)
        return ActivityReceipt(done, run, held.activity, "failed", _live_task(run))

    return Transaction(operation, run_of(task_id))


async def _throttled(
    tx: Tx, held: HeldTask, report: Report, failure: AttemptFailure, throttled_ms: int, cost: int | None
) -> ActivityReceipt:
    """Close the budget group for `throttled_ms`, delay the task as long, and do not count the attempt."""
    until_ms = await budgets.close(tx, held.task, throttled_ms)
    if is_stop_requested(held):
        done = answered(held.task, report, TaskState.DONE, "throttled", held.task.available_at_ms, cost)
        run = await _close_cancelled(tx, held, done, failure.message)
        return ActivityReceipt(done, run, held.activity, "throttled", _live_task(run))
    delayed = replace(
        answered(held.task, report, TaskState.DELAYED, "throttled", until_ms, cost),
        attempt=held.task.attempt - 1,
        last_error=join_error(failure.message, failure.stack),
    )
    verdict = RetryAt(until_ms, throttled_ms)
    uncharged = replace(held, activity=replace(held.activity, attempt=held.activity.attempt - 1))
    run = await _schedule_retry(tx, uncharged, delayed, verdict, failure.message, failure.type)
    return ActivityReceipt(delayed, run, held.activity, "throttled", delayed.task_id)


class Heartbeat(Struct, frozen=True):
    """Whether the lease was renewed, and whether the activity should stop."""

    task: Task
    run: Run
    activity: Activity
    recorded: bool
    reason: str | None = None
    cancel_requested: bool = False
    """Whether the workflow requested cancellation and waits for the report."""


async def heartbeat(
    ctx: EngineContext,
    namespace: str,
    task_id: TaskId,
    report: Report,
    details: str | None,
    lease_ms: int | None = None,
) -> Heartbeat:
    """Renew the lease and the heartbeat clock, and store the details. An ended lease is never revived."""

    async def operation(tx: Tx) -> Heartbeat:
        run = await tx.runs.lock(run_of(task_id))
        task = await tx.tasks.lock(task_id)
        task, run, activity = await _find_attempt(tx, task, run, namespace, report)
        refusal = _refusal(ctx, tx, HeldTask(task, run, activity), report)
        if refusal is not None:
            return Heartbeat(task, run, activity, recorded=False, reason=refusal.reason.value)
        longest_ms = ctx.settings.leases.activity_lease_ms
        renewed = renew(task, tx.now_ms, task.claimed or min(lease_ms or longest_ms, longest_ms))
        newest = newest_details(
            activity.heartbeat_details, details, same_attempt=activity.heartbeat_at_ms is not None
        )
        renewed_activity = replace(activity, heartbeat_at_ms=tx.now_ms, heartbeat_details=newest)
        if not task.claimed:
            renewed_activity = replace(
                renewed_activity, deadline_at_ms=running_deadline_at_ms(renewed_activity)
            )
        tx.tasks.save(renewed, TaskState.LEASED)
        if ctx.store.journals:
            tx.journal.append(journal_lines.renewed(renewed, tx.now_ms))
        tx.activities.save(renewed_activity)
        tx.workers.touch(namespace, report.owner, tx.now_ms)
        stop_requested = is_stop_requested(HeldTask(renewed, run, renewed_activity))
        return Heartbeat(renewed, run, renewed_activity, recorded=True, cancel_requested=stop_requested)

    return await ctx.store.transact(operation, key=run_of(task_id))


async def status(ctx: EngineContext, namespace: str, task_id: TaskId, report: Report) -> Heartbeat:
    """What a heartbeat would return, without renewing anything."""

    async def operation(tx: Tx) -> Heartbeat:
        run, task = await tx.runs.get(run_of(task_id)), await tx.tasks.get(task_id)
        task, run, activity = await _find_attempt(tx, task, run, namespace, report)
        held = HeldTask(task, run, activity)
        refusal = _refusal(ctx, tx, held, report)
        reason = None if refusal is None else refusal.reason.value
        asked = refusal is None and is_stop_requested(held)
        return Heartbeat(task, run, activity, recorded=False, reason=reason, cancel_requested=asked)

    return await ctx.store.read(operation)


def _refusal(ctx: EngineContext, tx: Tx, held: HeldTask, report: Report) -> PenstockError | None:
    """Why the reporter may not go on: it lost the lease, or a timeout has expired."""
    task, run, activity = held.task, held.run, held.activity
    refusal = _lease_refusal(task, run, activity, report, _now_minus_grace_ms(ctx, tx, task, activity))
    if refusal is not None:
        return refusal
    late = _expired_timeout(ctx, tx, held)
    return None if late is None else _timed_out(task, late)


def hand_back_transaction(
    ctx: EngineContext, namespace: str, task_id: TaskId, report: Report
) -> Transaction[ActivityReceipt]:
    """Return a task that the worker will not run: it is ready again at once, and the attempt is not counted."""

    async def operation(tx: Tx) -> ActivityReceipt:
        run = await tx.runs.lock(run_of(task_id))
        task = await tx.tasks.lock(task_id)
        task, run, activity = await _find_attempt(tx, task, run, namespace, report, may_repeat=True)
        outcome = repeated(task, report)
        if outcome is not None:
            return ActivityReceipt(task, run, activity, outcome, repeated=True)
        held = _check_in_time(ctx, tx, _check_lease(ctx, tx, HeldTask(task, run, activity), report))
        if is_stop_requested(held):
            done = answered(task, report, TaskState.DONE, HANDED_BACK, task.available_at_ms)
            run = await _close_cancelled(tx, held, done, "The worker stopped before the activity ended.")
            return ActivityReceipt(done, run, activity, HANDED_BACK, _live_task(run))
        uncharged = replace(held.task, attempt=held.task.attempt - 1)
        again = held_back(run, answered(uncharged, report, TaskState.READY, HANDED_BACK, tx.now_ms))
        waiting = replace(
            activity,
            status=ActivityStatus.PENDING,
            attempt=again.attempt,
            started_at_ms=None,
            heartbeat_at_ms=None,
        )
        deadline_at_ms = waiting_deadline_at_ms(waiting, again.available_at_ms)
        tx.activities.save(replace(waiting, deadline_at_ms=deadline_at_ms))
        requeue(tx, run, again, TaskState.LEASED)
        return ActivityReceipt(again, run, waiting, HANDED_BACK, again.task_id)

    return Transaction(operation, run_of(task_id))


async def time_out(ctx: EngineContext, activity_id: ActivityId) -> bool:
    """Apply the first of the four activity timeouts that has expired; returns whether one had."""

    async def operation(tx: Tx) -> bool:
        run = await tx.runs.lock(run_of(activity_id))
        activity = await tx.activities.get(activity_id)
        if run is None or activity is None or not activity.status.is_open:
            return False
        task = await tx.tasks.lock(activity.task_id)
        activity = await tx.activities.get(activity_id)
        assert task is not None, "an open activity has a task"
        assert activity is not None
        kind = expired_clock(activity, task.available_at_ms, tx.now_ms)
        if kind is None:
            return False
        await _apply_timeout(tx, HeldTask(task, run, activity), kind)
        return True

    return await ctx.store.transact(operation, key=run_of(activity_id))


async def reclaim(ctx: EngineContext, task_id: TaskId, *, expired_only: bool = True) -> bool:
    """Take back the lease of an activity task that expired, or (`expired_only` False) whose worker deregistered.

    A deregistered worker's task is redelivered. An expired lease counts as a worker death: see `_expire_lease`.
    """

    async def operation(tx: Tx) -> bool:
        run = await tx.runs.lock(run_of(task_id))
        task = await tx.tasks.lock(task_id)
        if run is None or task is None or task.state is not TaskState.LEASED or task.activity_id is None:
            return False
        if not run.is_open:
            tx.tasks.save(freed(task, TaskState.CANCELLED, available_at_ms=tx.now_ms), TaskState.LEASED)
            return True
        assert task.lease_expires_at_ms is not None
        if expired_only and task.lease_expires_at_ms > tx.now_ms:
            return False
        activity = await tx.activities.get(task.activity_id)
        assert activity is not None
        if expired_only and has_restart_grace(activity, task, tx.now_ms, ctx.stall_detector.uptime_ms):
            return False
        if expired_only:
            await record_death(tx, task.namespace, task.lease_owner, task.lease_expires_at_ms)
        if task.claimed:  # prefetched and never started: no attempt was made
            unstarted = replace(task, attempt=task.attempt - 1)
            again = freed(unstarted, TaskState.READY, available_at_ms=tx.now_ms, how="expired")
            requeue(tx, run, again, TaskState.LEASED)
            return True
        message = f"The lease of {task.lease_owner} " + ("expired." if expired_only else "was returned.")
        held = HeldTask(task, run, activity)
        if is_stop_requested(held):
            how = "expired" if expired_only else HANDED_BACK
            done = freed(task, TaskState.DONE, available_at_ms=task.available_at_ms, error=message, how=how)
            await _close_cancelled(tx, held, done, message)
        elif expired_only:
            await _expire_lease(ctx, tx, held, message)
        else:
            _redeliver(tx, held, message, HANDED_BACK)
        return True

    return await ctx.store.transact(operation, key=run_of(task_id))


class HeldTask(Struct, frozen=True):
    """A locked activity task whose lease the reporter holds; `before` is the receipt of a repeated report."""

    task: Task
    run: Run
    activity: Activity
    before: ActivityReceipt | None = None


def is_stop_requested(held: HeldTask) -> bool:
    """Whether the workflow requested cancellation of the activity, so that there is no further attempt."""
    return held.activity.step in held.run.waits.ending


async def _open(ctx: EngineContext, tx: Tx, namespace: str, task_id: TaskId, report: Report) -> HeldTask:
    run = await tx.runs.lock(run_of(task_id))
    task = await tx.tasks.lock(task_id)
    task, run, activity = await _find_attempt(tx, task, run, namespace, report, may_repeat=True)
    outcome = repeated(task, report)
    if outcome is not None:
        return HeldTask(task, run, activity, ActivityReceipt(task, run, activity, outcome, repeated=True))
    held = _check_lease(ctx, tx, HeldTask(task, run, activity), report)
    check_started(task)
    return held


def check_started(task: Task) -> None:
    """Raise `Conflict` for a task that was prefetched and not started."""
    if task.claimed:
        raise Conflict(
            Reason.TASK_NOT_STARTED,
            "The task was prefetched and has no permit to run. Start it before running it: "
            f"POST /api/worker/activity-tasks/{task.task_id}/start.",
            task_status=task.state.value,
        )


async def held_by(ctx: EngineContext, tx: Tx, namespace: str, task_id: TaskId, report: Report) -> HeldTask:
    """Lock a task. Raises unless the reporter holds its live lease and no timeout has expired."""
    run = await tx.runs.lock(run_of(task_id))
    task = await tx.tasks.lock(task_id)
    task, run, activity = await _find_attempt(tx, task, run, namespace, report)
    return _check_in_time(ctx, tx, _check_lease(ctx, tx, HeldTask(task, run, activity), report))


def _expired_timeout(ctx: EngineContext, tx: Tx, held: HeldTask) -> str | None:
    """The timeout that had expired when the report arrived, not counting stalls of this server."""
    now_ms = _now_minus_grace_ms(ctx, tx, held.task, held.activity)
    return expired_clock(held.activity, held.task.available_at_ms, now_ms)


def _check_in_time(ctx: EngineContext, tx: Tx, held: HeldTask) -> HeldTask:
    late = _expired_timeout(ctx, tx, held)
    if late is not None:
        raise _timed_out(held.task, late)
    return held


async def _time_out_late_report(tx: Tx, held: HeldTask, kind: str) -> ActivityReceipt:
    """Record the expired timeout in place of a late report."""
    task, run = await _apply_timeout(tx, held, kind)
    return ActivityReceipt(task, run, held.activity, "timed_out", late=kind)


async def _apply_timeout(tx: Tx, held: HeldTask, kind: str) -> tuple[Task, Run]:
    """Apply a timeout: schedule a retry, or close the activity as timed out."""
    message = f"The activity exceeded its {kind.replace('_', ' ')} timeout."
    stops = is_stop_requested(held)
    if kind == "heartbeat" and stops:  # the worker is gone, as when its lease expires
        at_ms = held.task.available_at_ms
        done = freed(held.task, TaskState.DONE, available_at_ms=at_ms, error=message, how="timed_out")
        return done, await _close_cancelled(tx, held, done, message)
    verdict: RetryAt | NoRetry = NoRetry()
    if held.activity.status is ActivityStatus.RUNNING and not stops and kind != "schedule_to_close":
        verdict = after_failure(held.activity, timeout_types(kind), False, tx.now_ms)
    return await _end_unreported(tx, held, kind, message, verdict)


def _check_lease(ctx: EngineContext, tx: Tx, held: HeldTask, report: Report) -> HeldTask:
    now_ms = _now_minus_grace_ms(ctx, tx, held.task, held.activity)
    refusal = _lease_refusal(held.task, held.run, held.activity, report, now_ms)
    if refusal is not None:
        raise refusal
    return held


async def _find_attempt(
    tx: Tx,
    task: Task | None,
    run: Run | None,
    namespace: str,
    report: Report,
    *,
    may_repeat: bool = False,
) -> tuple[Task, Run, Activity]:
    """The task, run and activity of a report. Raises `NotFound` if the namespace has no such task or attempt."""
    if task is None or run is None or task.namespace != namespace or task.kind is not TaskKind.ACTIVITY:
        raise NotFound(Reason.TASK_NOT_FOUND, "There is no such activity task in this namespace.")
    assert task.activity_id is not None
    activity = await tx.activities.get(task.activity_id)
    assert activity is not None, "an activity task has an activity"
    if not (may_repeat and is_answered(task, report)) and not _existed(task, report):
        raise NotFound(Reason.ATTEMPT_NOT_FOUND, "There is no such attempt of this activity.")
    return task, run, activity


def _existed(task: Task, report: Report) -> bool:
    """Whether the report names this or an earlier attempt of the task.

    The number of an attempt that was not counted may be in use again, so the token is compared first.
    """
    if task.lease_token == report.token:
        return True
    number = attempt_number(report.token)
    if number is None or number > task.attempt:
        return False
    return number < task.attempt or _is_attempt(task, report)


def _is_attempt(task: Task, report: Report) -> bool:
    """Whether the report names the newest attempt, as far as the task's row can tell.

    The row holds the token of the live lease or of the last report; after a reclaim only the number can be compared.
    """
    if task.lease_token is not None:
        return task.lease_token == report.token
    reported = (task.done_token or "").rpartition("/")[2]
    return not task.is_live or reported == report.token or attempt_number(reported) != task.attempt


def _now_minus_grace_ms(ctx: EngineContext, tx: Tx, task: Task, activity: Activity) -> int:
    """The time against which a lease is checked: `now` minus the grace for a stall or restart of this server."""
    uptime_ms = ctx.stall_detector.uptime_ms
    if uptime_ms is not None and has_restart_grace(activity, task, tx.now_ms, uptime_ms):
        return task.leased_at_ms or 0
    return tx.now_ms - ctx.stall_detector.lease_grace_ms


def _lease_refusal(
    task: Task, run: Run, activity: Activity, report: Report, now_ms: int
) -> PenstockError | None:
    """Why the report is refused, or None if the reporter holds the live lease."""
    holds = task.lease_token == report.token
    if holds and task.lease_owner != report.owner:
        return LeaseLost(
            Reason.LEASE_OWNER_MISMATCH,
            f"The task is leased to {task.lease_owner!r}.",
            lease_owner=task.lease_owner,
        )
    closed = _closed_refusal(task, run, activity, now_ms)
    if closed is not None:
        return closed
    is_newest = holds or attempt_number(report.token) == task.attempt
    if not is_newest or task.state is not TaskState.LEASED:
        return LeaseLost(
            Reason.STALE_ATTEMPT,
            "This attempt was superseded; its report was not recorded.",
            current_attempt=task.attempt,
            task_status=task.state.value,
        )
    assert task.lease_expires_at_ms is not None
    return lease_expired(task) if task.lease_expires_at_ms <= now_ms else None


def _closed_refusal(task: Task, run: Run, activity: Activity, now_ms: int) -> PenstockError | None:
    if not run.is_open:
        reason = _CLOSED_REASONS.get(run.status, Reason.RUN_CLOSED)
        return LeaseLost(
            reason, f"The run is {run.status.value}; the report was not recorded.", **stop_details(task, run)
        )
    if is_overdue(run, now_ms):
        return run_timed_out(run)
    if activity.status is ActivityStatus.CANCELLED:
        return LeaseLost(
            Reason.ACTIVITY_CANCELLED,
            "The workflow cancelled the activity; the report was not recorded.",
            cancel_requested=True,
            can_continue=False,
            task_status=task.state.value,
        )
    return None


_CLOSED_REASONS = {
    RunStatus.CANCELLED: Reason.RUN_CANCELLED,
    RunStatus.TERMINATED: Reason.RUN_TERMINATED,
}


async def _close_activity(
    tx: Tx, held: HeldTask, status: ActivityStatus, event: NewEvent, task: Task, output: Blob | None = None
) -> Run:
    """Record the activity's end, and wake its run or close its standalone host run."""
    tx.activities.save(replace(held.activity, status=status, closed_at_ms=tx.now_ms, deadline_at_ms=None))
    tx.tasks.save(task, held.task.state)
    run = replace(held.run, open_activities=held.run.open_activities - 1)
    if is_stop_requested(held):
        kept = run.waits.with_ended(held.activity.step)
        run = replace(run, waits=kept)
    if run.host is RunHost.ACTIVITY:
        run = _close_host(tx, run, status, event, output)
        report_closed(tx, run)
    else:
        run = await record_external_event(tx, run, [event])
    tx.runs.save(run)
    return run


async def _close_cancelled(tx: Tx, held: HeldTask, done: Task, message: str) -> Run:
    """Close an activity as cancelled: it ended without a result after a stop request."""
    payload = _attempt_payload(held.activity, held.task.lease_token or "")
    payload |= {"message": message, "failure_category": "cancelled"}
    return await _close_activity(
        tx, held, ActivityStatus.CANCELLED, NewEvent(EventType.ACTIVITY_CANCELLED, payload), done
    )


def _close_host(tx: Tx, run: Run, status: ActivityStatus, event: NewEvent, output: Blob | None) -> Run:
    if status is ActivityStatus.COMPLETED:
        end = NewEvent(EventType.WORKFLOW_COMPLETED, {"output": output, "payload_codec": CODEC})
        run = append_last(tx, run, [event, end])
        return closed(run, RunStatus.COMPLETED, "completed", tx.now_ms, output)
    copied = (
        "message",
        "exception_class",
        "exception_type",
        "exception",
        "non_retryable",
        "failure_category",
        "timeout_kind",
    )
    end = NewEvent(
        EventType.WORKFLOW_FAILED, {name: event.payload[name] for name in copied if name in event.payload}
    )
    run = append_last(tx, run, [event, end])
    reason = "timed_out" if status is ActivityStatus.TIMED_OUT else "failed"
    return closed(run, RunStatus.FAILED, reason, tx.now_ms)


async def _schedule_retry(
    tx: Tx, held: HeldTask, delayed: Task, verdict: RetryAt, message: str, error_type: str | None
) -> Run:
    if delayed.state is TaskState.READY:
        delayed = await retry_budget.placed(tx, delayed)
    at_ms = delayed.available_at_ms
    delayed = held_back(held.run, delayed)
    waiting = replace(held.activity, status=ActivityStatus.PENDING, started_at_ms=None, heartbeat_at_ms=None)
    deadline_at_ms = waiting_deadline_at_ms(waiting, delayed.available_at_ms)
    tx.activities.save(replace(waiting, deadline_at_ms=deadline_at_ms))
    requeue(tx, held.run, delayed, held.task.state)
    event = NewEvent(
        EventType.ACTIVITY_RETRY_SCHEDULED,
        activity_payload(held.activity)
        | {
            "retry_available_at": iso(at_ms),
            "retry_backoff_seconds": verdict.backoff_s,
            "retry_after_attempt": held.activity.attempt,
            "max_attempts": held.activity.retry.max_attempts,
            "started_at": iso_or_none(held.activity.started_at_ms),
            "message": message,
            "exception_type": error_type,
        }
        | ({"held_by": held.task.held_by} if held.task.held_by else {})
        | _exact_backoff(verdict),
    )
    run = (
        append(tx, held.run, [event])
        if held.run.host is RunHost.ACTIVITY
        else await record_external_event(tx, held.run, [event])
    )
    tx.runs.save(run)
    return run


def _exact_backoff(verdict: RetryAt) -> dict[str, int]:
    """The backoff in milliseconds, if it is not whole seconds."""
    return {"retry_backoff_ms": verdict.backoff_ms} if verdict.backoff_ms % 1000 else {}


async def _expire_lease(ctx: EngineContext, tx: Tx, held: HeldTask, message: str) -> None:
    """Decide what follows the expired lease of a started attempt: redelivery, a retry, failure or quarantine."""
    missed = missed_heartbeat(held.task, tx.now_ms, ctx.stall_detector.uptime_ms)
    most = 0 if missed else ctx.settings.leases.quarantine_after
    verdict = after_lost_lease(held.activity, tx.now_ms, most)
    fails = on_lost_lease(held.activity) is OnLostLease.FAIL
    failure = AttemptFailure(f"{message} Its worker died or was cut off.", WORKER_CRASHED)
    if not missed:
        held, failure = _count_worker_death(ctx, held, failure)
    match verdict:
        case Redeliver():
            _redeliver(tx, held, message, "expired")
        case Quarantine():
            await _fail_after_death(tx, held, failure)
        case NoRetry() if fails:
            await _fail_after_death(tx, held, failure)
        case _:
            await _end_unreported(tx, held, "lease", message, verdict, WORKER_CRASHED if fails else None)


def _count_worker_death(
    ctx: EngineContext, held: HeldTask, failure: AttemptFailure
) -> tuple[HeldTask, AttemptFailure]:
    """Count a worker death if the failure is one; at the quarantine threshold the failure becomes non-retryable."""
    if not is_death(failure.type, failure.extra.get("code")):
        return held, failure
    deaths = held.activity.worker_deaths + 1
    last = quarantine(deaths, ctx.settings.leases.quarantine_after)
    activity = replace(held.activity, worker_deaths=deaths, quarantined=int(last is not None))
    if last is not None:
        extra = dict(failure.extra) | {"code": QUARANTINED, "worker_deaths": deaths}
        failure = replace(
            failure, message=last.failure_message(failure.message), non_retryable=True, extra=extra
        )
    return replace(held, activity=activity), failure


def _redeliver(tx: Tx, held: HeldTask, message: str, how: str) -> None:
    """Make the task ready again at once, without an event in the history."""
    waiting = replace(held.activity, status=ActivityStatus.PENDING, started_at_ms=None)
    again = freed(held.task, TaskState.READY, available_at_ms=tx.now_ms, error=message, how=how)
    again = held_back(held.run, again)
    deadline_at_ms = waiting_deadline_at_ms(waiting, again.available_at_ms)
    tx.activities.save(replace(waiting, deadline_at_ms=deadline_at_ms))
    requeue(tx, held.run, again, TaskState.LEASED)


async def _fail_after_death(tx: Tx, held: HeldTask, failure: AttemptFailure) -> None:
    """Fail the activity because its worker died."""
    task = held.task
    payload = _attempt_payload(held.activity, task.lease_token or "") | _failure_payload(
        held.activity, failure
    )
    ended = freed(
        task,
        TaskState.DONE,
        available_at_ms=task.available_at_ms,
        error=failure.message[:4000],
        how="expired",
    )
    await _close_activity(
        tx, held, ActivityStatus.FAILED, NewEvent(EventType.ACTIVITY_FAILED, payload), ended
    )


async def _end_unreported(
    tx: Tx,
    held: HeldTask,
    kind: str,
    message: str,
    verdict: RetryAt | NoRetry,
    error_type: str | None = None,
) -> tuple[Task, Run]:
    """End an attempt without a report, by a timeout or an expired lease; returns the new task and run."""
    how = "expired" if kind == "lease" else "timed_out"
    if isinstance(verdict, RetryAt):
        state = TaskState.READY if verdict.at_ms <= tx.now_ms else TaskState.DELAYED
        delayed = freed(held.task, state, available_at_ms=verdict.at_ms, error=message, how=how)
        return delayed, await _schedule_retry(tx, held, delayed, verdict, message, error_type)
    payload = activity_payload(held.activity) | {
        "timeout_kind": kind,
        "message": message,
        "closed_reason": "timed_out",
        "failure_category": "timeout",
        "exception_type": "TimeoutError",
        "attempt_number": held.activity.attempt,
        "started_at": iso_or_none(held.activity.started_at_ms),
        "non_retryable": False,
    }
    ended = freed(
        held.task, TaskState.DONE, available_at_ms=held.task.available_at_ms, error=message, how=how
    )
    event = NewEvent(EventType.ACTIVITY_TIMED_OUT, payload)
    return ended, await _close_activity(tx, held, ActivityStatus.TIMED_OUT, event, ended)


def attempt_number(token: str) -> int | None:
    """The number in an attempt id (`3.…`), which distinguishes an old attempt from an unknown one."""
    number, dot, _ = token.partition(".")
    return int(number) if dot and number.isascii() and number.isdigit() and len(number) < 11 else None


def _live_task(run: Run) -> TaskId | None:
    waits = run.host is RunHost.WORKFLOW and run.is_open
    return numbered(run.run_id, run.last_task) if waits else None


def _attempt_payload(activity: Activity, token: str) -> dict[str, Any]:
    payload = activity_payload(activity)
    payload["activity_attempt_id"] = token
    payload["attempt_number"] = activity.attempt
    payload["started_at"] = iso_or_none(activity.started_at_ms)
    return payload


def _failure_payload(activity: Activity, failure: AttemptFailure) -> dict[str, Any]:
    neutral = {
        "type": failure.type,
        "class": failure.cls,
        "message": failure.message,
        "non_retryable": failure.non_retryable,
    } | dict(failure.extra)
    return {
        "message": failure.message,
        "exception_type": failure.type,
        "exception_class": failure.cls,
        "non_retryable": failure.non_retryable,
        "failure_category": "activity",
        "failure_id": f"{activity.activity_id}-f{activity.attempt}",
        "code": failure.extra.get("code"),
        "exception": neutral,
    }
