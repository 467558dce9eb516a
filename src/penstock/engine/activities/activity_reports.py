"""What workers report on activity tasks: complete, fail, heartbeat; and what happens when nobody reports."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct, field
from msgspec.structs import replace

from penstock.core.history import waits
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
from penstock.engine.activities.worker_deaths import record_death
from penstock.engine.context import EngineContext
from penstock.engine.limits import budgets
from penstock.engine.runs.history_writer import append, append_last, record_external_event, requeue
from penstock.errors import Conflict, LeaseLost, NotFound, PenstockError, Reason
from penstock.ports.store import Transaction, Tx


class AttemptFailure(Struct, frozen=True):
    """How an attempt failed, in the worker's words."""

    message: str
    type: str | None = None
    cls: str | None = None
    non_retryable: bool = False
    extra: Mapping[str, Any] = field(default_factory=dict)
    throttled_ms: int | None = None
    """Refused upstream, which asks to be left alone for so long; None: it failed by itself."""
    next_ms: int | None = None
    """How long to wait before another attempt; None: as the policy says."""

    def is_timeout(self, kind: str) -> bool:
        """Whether the worker itself has ended the attempt because this timeout had run out."""
        return self.extra.get("kind") == "timeout" and self.extra.get("timeout_type") == kind

    @property
    def stack(self) -> str | None:
        """Where the code of the worker raised it."""
        trace = self.extra.get("stack_trace")
        return trace if isinstance(trace, str) else None

    @property
    def types(self) -> tuple[str, ...]:
        """The names by which a retry policy may know it: of its class, or of the clock that ran out."""
        clock = self.extra.get("timeout_type") if self.extra.get("kind") == "timeout" else None
        clocks = timeout_types(clock) if isinstance(clock, str) else ()
        return *(each for each in (self.type, self.cls) if each), *clocks


class ActivityReceipt(Struct, frozen=True):
    task: Task
    run: Run
    activity: Activity
    outcome: str
    next_task_id: TaskId | None = None
    repeated: bool = False
    late: str | None = None
    """Which timeout had run out before the report: the timeout was recorded, the report was not."""


def check_recorded(receipt: ActivityReceipt) -> ActivityReceipt:
    """The receipt, or the refusal of a report that came after a timeout of its attempt."""
    if receipt.late is not None:
        raise _timed_out(receipt.task, receipt.late)
    return receipt


def _timed_out(task: Task, kind: str) -> LeaseLost:
    return LeaseLost(
        Reason.STALE_ATTEMPT,
        f"The report came after the {kind.replace('_', ' ')} timeout of the activity, so it was not recorded. "
        "Give the activity more time, or let its code end when it is cancelled.",
        timeout_kind=kind,
        current_attempt=task.attempt,
        task_status=task.state.value,
    )


def completion_transaction(
    ctx: EngineContext, namespace: str, task_id: TaskId, report: Report, result: Blob, cost: int | None = None
) -> Transaction[ActivityReceipt]:
    """The same as an operation that is yet to be carried out; its receipt has to be `check_recorded`."""

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
    """Record a failed attempt: another one follows, or the activity has failed."""
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
    """The same as an operation that is yet to be carried out; its receipt has to be `check_recorded`.

    A failure that comes after a timeout is not recorded, unless it reports that very timeout.
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
        held, told = _count_worker_death(ctx, held, failure)
        verdict = after_failure(held.activity, told.types, told.non_retryable, tx.now_ms, told.next_ms)
        verdict = NoRetry() if is_stop_requested(held) else verdict
        if isinstance(verdict, RetryAt):
            state = TaskState.READY if verdict.at_ms <= tx.now_ms else TaskState.DELAYED
            resting = replace(
                answered(held.task, report, state, "failed", verdict.at_ms, cost),
                last_error=join_error(failure.message, failure.stack),
            )
            run = await _schedule_retry(tx, held, resting, verdict, failure.message, failure.type)
            return ActivityReceipt(resting, run, held.activity, "failed", resting.task_id)
        payload = _attempt_payload(held.activity, report.token) | _failure_payload(held.activity, told)
        done = answered(held.task, report, TaskState.DONE, "failed", held.task.available_at_ms, cost)
        event = NewEvent(EventType.ACTIVITY_FAILED, payload)
        run = await _close_activity(tx, held, ActivityStatus.FAILED, event, done)
        return ActivityReceipt(done, run, held.activity, "failed", _live_task(run))

    return Transaction(operation, run_of(task_id))


async def _throttled(
    tx: Tx, held: HeldTask, report: Report, failure: AttemptFailure, throttled_ms: int, cost: int | None
) -> ActivityReceipt:
    """Close the budget group for everybody; the task waits as long, and this attempt does not count."""
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
    """Whether the worker may go on, and until when it holds the task."""

    task: Task
    run: Run
    activity: Activity
    recorded: bool
    reason: str | None = None
    cancel_requested: bool = False
    """Whether the workflow asked it to stop, and waits for its report."""


async def heartbeat(
    ctx: EngineContext,
    namespace: str,
    task_id: TaskId,
    report: Report,
    details: str | None,
    lease_ms: int | None = None,
) -> Heartbeat:
    """Renew the lease and the heartbeat clock; a lease that ended is never brought back."""

    async def operation(tx: Tx) -> Heartbeat:
        run = await tx.runs.lock(run_of(task_id))
        task = await tx.tasks.lock(task_id)
        task, run, activity = await _find_attempt(tx, task, run, namespace, report)
        refusal = _lease_refusal(task, run, activity, report, _now_minus_grace_ms(ctx, tx, task, activity))
        late = None if refusal is not None else _expired_timeout(ctx, tx, HeldTask(task, run, activity))
        if late is not None:
            refusal = _timed_out(task, late)
        if refusal is not None:
            return Heartbeat(task, run, activity, recorded=False, reason=refusal.reason.value)
        renewed = renew(task, tx.now_ms, task.claimed or ctx.settings.leases.of_activity(lease_ms))
        told = newest_details(
            activity.heartbeat_details, details, same_attempt=activity.heartbeat_at_ms is not None
        )
        beat = replace(activity, heartbeat_at_ms=tx.now_ms, heartbeat_details=told)
        if not task.claimed:
            beat = replace(beat, deadline_at_ms=running_deadline_at_ms(beat))
        tx.tasks.save(renewed, TaskState.LEASED)
        if ctx.journals:
            tx.journal.append(journal_lines.renewed(renewed, tx.now_ms))
        tx.activities.save(beat)
        tx.workers.touch(namespace, report.owner, tx.now_ms)
        asked = is_stop_requested(HeldTask(renewed, run, beat))
        return Heartbeat(renewed, run, beat, recorded=True, cancel_requested=asked)

    return await ctx.store.transact(operation, key=run_of(task_id))


def hand_back_transaction(
    ctx: EngineContext, namespace: str, task_id: TaskId, report: Report
) -> Transaction[ActivityReceipt]:
    """The same as an operation that is yet to be carried out."""

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
            run = await _close_cancelled(tx, held, done, "The worker stopped before the activity had ended.")
            return ActivityReceipt(done, run, activity, HANDED_BACK, _live_task(run))
        uncharged = replace(held.task, attempt=held.task.attempt - 1)
        again = answered(uncharged, report, TaskState.READY, HANDED_BACK, tx.now_ms)
        waiting = replace(
            activity,
            status=ActivityStatus.PENDING,
            attempt=again.attempt,
            started_at_ms=None,
            heartbeat_at_ms=None,
        )
        tx.activities.save(replace(waiting, deadline_at_ms=waiting_deadline_at_ms(waiting, tx.now_ms)))
        requeue(tx, again, TaskState.LEASED)
        return ActivityReceipt(again, run, waiting, HANDED_BACK, again.task_id)

    return Transaction(operation, run_of(task_id))


async def time_out(ctx: EngineContext, activity_id: ActivityId) -> bool:
    """Apply whichever of the four clocks has run out."""

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
    """Take back the lease of an activity task that nobody renewed, or whose worker has left.

    Work that a worker left is delivered again. One that was not heard of any more died: what follows is decided.
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
        if expired_only and has_restart_grace(activity, task, tx.now_ms, ctx.stall_detector.fresh_ms):
            return False
        if expired_only:
            await record_death(tx, task.namespace, task.lease_owner, task.lease_expires_at_ms)
        if task.claimed:  # handed out ahead of time and never started: no attempt was made
            unstarted = replace(task, attempt=task.attempt - 1)
            again = freed(unstarted, TaskState.READY, available_at_ms=tx.now_ms, how="expired")
            requeue(tx, again, TaskState.LEASED)
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
    task: Task
    run: Run
    activity: Activity
    before: ActivityReceipt | None = None


def is_stop_requested(held: HeldTask) -> bool:
    """Whether the workflow asked the activity to stop and waits for its end: there is no further attempt."""
    return waits.is_ending(held.run.waits, held.activity.step)


async def _open(ctx: EngineContext, tx: Tx, namespace: str, task_id: TaskId, report: Report) -> HeldTask:
    run = await tx.runs.lock(run_of(task_id))
    task = await tx.tasks.lock(task_id)
    task, run, activity = await _find_attempt(tx, task, run, namespace, report, may_repeat=True)
    outcome = repeated(task, report)
    if outcome is not None:
        return HeldTask(task, run, activity, ActivityReceipt(task, run, activity, outcome, repeated=True))
    held = _check_lease(ctx, tx, HeldTask(task, run, activity), report)
    if task.claimed:
        raise Conflict(
            Reason.TASK_NOT_STARTED,
            "The task was handed out ahead of time and has no permit to run. Start it before it is run: "
            f"POST /api/worker/activity-tasks/{task_id}/start.",
            task_status=task.state.value,
        )
    return held


async def held_by(ctx: EngineContext, tx: Tx, namespace: str, task_id: TaskId, report: Report) -> HeldTask:
    """The task, if the reporter holds its live lease and no timeout has run out; else the refusal that says why not."""
    run = await tx.runs.lock(run_of(task_id))
    task = await tx.tasks.lock(task_id)
    task, run, activity = await _find_attempt(tx, task, run, namespace, report)
    return _check_in_time(ctx, tx, _check_lease(ctx, tx, HeldTask(task, run, activity), report))


def _expired_timeout(ctx: EngineContext, tx: Tx, held: HeldTask) -> str | None:
    """Which timeout had run out when the report came; time in which this server could not be reached is excused."""
    now_ms = _now_minus_grace_ms(ctx, tx, held.task, held.activity)
    return expired_clock(held.activity, held.task.available_at_ms, now_ms)


def _check_in_time(ctx: EngineContext, tx: Tx, held: HeldTask) -> HeldTask:
    late = _expired_timeout(ctx, tx, held)
    if late is not None:
        raise _timed_out(held.task, late)
    return held


async def _time_out_late_report(tx: Tx, held: HeldTask, kind: str) -> ActivityReceipt:
    """Record the timeout that had run out before a report, in its place."""
    task, run = await _apply_timeout(tx, held, kind)
    return ActivityReceipt(task, run, held.activity, "timed_out", late=kind)


async def _apply_timeout(tx: Tx, held: HeldTask, kind: str) -> tuple[Task, Run]:
    """Apply a timeout: another attempt follows, or the activity has timed out."""
    message = f"The activity exceeded its {kind.replace('_', ' ')} timeout."
    stops = is_stop_requested(held)
    if kind == "heartbeat" and stops:  # its worker is gone, as when its lease runs out
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
    if task is None or run is None or task.namespace != namespace or task.kind is not TaskKind.ACTIVITY:
        raise NotFound(Reason.TASK_NOT_FOUND, "There is no such activity task in this namespace.")
    assert task.activity_id is not None
    activity = await tx.activities.get(task.activity_id)
    assert activity is not None, "an activity task has an activity"
    if may_repeat and is_answered(task, report):  # its number may be free again, if it was not charged
        return task, run, activity
    if task.lease_token == report.token:
        return task, run, activity
    number = attempt_number(report.token)
    if number is None or number > task.attempt or (number == task.attempt and not _is_attempt(task, report)):
        raise NotFound(Reason.ATTEMPT_NOT_FOUND, "There is no such attempt of this activity.")
    return task, run, activity


def _is_attempt(task: Task, report: Report) -> bool:
    """Whether the report names the newest attempt, as far as the task still knows it.

    The token of a live lease is known, and that of an attempt which was reported; one whose lease was taken
    back is not, and its number must do.
    """
    if task.lease_token is not None:
        return task.lease_token == report.token
    reported = (task.done_token or "").rpartition("/")[2]
    return not task.is_live or reported == report.token or attempt_number(reported) != task.attempt


def _now_minus_grace_ms(ctx: EngineContext, tx: Tx, task: Task, activity: Activity) -> int:
    """The moment to which a lease is held: no later than its own, if its worker could not be heard."""
    fresh_ms = ctx.stall_detector.fresh_ms
    if fresh_ms is not None and has_restart_grace(activity, task, tx.now_ms, fresh_ms):
        return task.leased_at_ms or 0
    return tx.now_ms - ctx.stall_detector.lease_grace_ms


def _lease_refusal(
    task: Task, run: Run, activity: Activity, report: Report, now_ms: int
) -> PenstockError | None:
    holds = task.lease_token == report.token
    if holds and task.lease_owner != report.owner:
        return LeaseLost(
            Reason.LEASE_OWNER_MISMATCH,
            f"The task is leased to {task.lease_owner!r}.",
            lease_owner=task.lease_owner,
        )
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
            "The workflow gave the activity up; the report was not recorded.",
            cancel_requested=True,
            can_continue=False,
            task_status=task.state.value,
        )
    is_newest = holds or attempt_number(report.token) == task.attempt
    if not is_newest or task.state is not TaskState.LEASED:
        return LeaseLost(
            Reason.STALE_ATTEMPT,
            "This attempt was superseded; its report was not recorded.",
            current_attempt=task.attempt,
            task_status=task.state.value,
        )
    assert task.lease_expires_at_ms is not None
    if task.lease_expires_at_ms <= now_ms:
        return lease_expired(task)
    return None


_CLOSED_REASONS = {
    RunStatus.CANCELLED: Reason.RUN_CANCELLED,
    RunStatus.TERMINATED: Reason.RUN_TERMINATED,
}


async def _close_activity(
    tx: Tx, held: HeldTask, status: ActivityStatus, event: NewEvent, task: Task, output: Blob | None = None
) -> Run:
    """The activity has ended: record it, and let the run (or the standalone host) go on."""
    tx.activities.save(replace(held.activity, status=status, closed_at_ms=tx.now_ms, deadline_at_ms=None))
    tx.tasks.save(task, held.task.state)
    run = replace(held.run, open_activities=held.run.open_activities - 1)
    if is_stop_requested(held):
        kept = waits.parse(run.waits).with_ended(held.activity.step)
        run = replace(run, waits=waits.text(kept))
    if run.host is RunHost.ACTIVITY:
        run = _close_host(tx, run, status, event, output)
    else:
        run = await record_external_event(tx, run, [event])
    tx.runs.save(run)
    return run


async def _close_cancelled(tx: Tx, held: HeldTask, done: Task, message: str) -> Run:
    """An activity that was asked to stop has ended without a result: it was cancelled."""
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
    waiting = replace(held.activity, status=ActivityStatus.PENDING, started_at_ms=None, heartbeat_at_ms=None)
    tx.activities.save(replace(waiting, deadline_at_ms=waiting_deadline_at_ms(waiting, at_ms)))
    requeue(tx, delayed, held.task.state)
    event = NewEvent(
        EventType.ACTIVITY_RETRY_SCHEDULED,
        activity_payload(held.activity)
        | {
            "retry_available_at": iso(at_ms),
            "retry_backoff_seconds": verdict.backoff_s,
            "retry_after_attempt": held.activity.attempt,
            "max_attempts": held.activity.retry.max_attempts,
            "message": message,
            "exception_type": error_type,
        }
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
    """The pause to the millisecond, where whole seconds do not say it."""
    return {"retry_backoff_ms": verdict.backoff_ms} if verdict.backoff_ms % 1000 else {}


async def _expire_lease(ctx: EngineContext, tx: Tx, held: HeldTask, message: str) -> None:
    """The worker of a started attempt died: its lease ran out."""
    missed = missed_heartbeat(held.task, tx.now_ms, ctx.stall_detector.fresh_ms)
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
    """The same, with the worker's death counted if the failure is one, and final if it was one too many."""
    if not is_death(failure.type, failure.extra.get("code")):
        return held, failure
    deaths = held.activity.worker_deaths + 1
    last = quarantine(deaths, ctx.settings.leases.quarantine_after)
    activity = replace(held.activity, worker_deaths=deaths, quarantined=int(last is not None))
    if last is not None:
        extra = dict(failure.extra) | {"code": QUARANTINED, "worker_deaths": deaths}
        failure = replace(failure, message=last.told(failure.message), non_retryable=True, extra=extra)
    return replace(held, activity=activity), failure


def _redeliver(tx: Tx, held: HeldTask, message: str, how: str) -> None:
    """The task waits again at once, and no event tells of it."""
    waiting = replace(held.activity, status=ActivityStatus.PENDING, started_at_ms=None)
    tx.activities.save(replace(waiting, deadline_at_ms=waiting_deadline_at_ms(waiting, tx.now_ms)))
    again = freed(held.task, TaskState.READY, available_at_ms=tx.now_ms, error=message, how=how)
    requeue(tx, again, TaskState.LEASED)


async def _fail_after_death(tx: Tx, held: HeldTask, failure: AttemptFailure) -> None:
    """The activity has failed with its worker."""
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
    """An attempt ended without a report: by a clock, or because its lease ran out. The task and its run after that."""
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
        "non_retryable": False,
    }
    ended = freed(
        held.task, TaskState.DONE, available_at_ms=held.task.available_at_ms, error=message, how=how
    )
    event = NewEvent(EventType.ACTIVITY_TIMED_OUT, payload)
    return ended, await _close_activity(tx, held, ActivityStatus.TIMED_OUT, event, ended)


def attempt_number(token: str) -> int | None:
    """The number inside an attempt id (`3.…`), so that an old attempt is told apart from an unknown one."""
    number, dot, _ = token.partition(".")
    return int(number) if dot and number.isascii() and number.isdigit() and len(number) < 11 else None


def attempt_id(number: int, secret: str) -> str:
    return f"{number}.{secret}"


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
