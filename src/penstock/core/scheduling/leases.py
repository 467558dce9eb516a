"""Leases: grant, renewal, end, and who may report.

A lease gives one worker the exclusive right to a task until it expires; its token fences late reports.
`late-answers-change-nothing`: a report is accepted only from the holder of the live lease.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct
from msgspec.structs import replace

from penstock.core import json_text
from penstock.core.model import Run, RunStatus, Task, TaskKind, TaskState
from penstock.core.scheduling.dispatch import HoldReason
from penstock.core.timestamps import iso, iso_or_none
from penstock.errors import Conflict, LeaseLost, NotFound, Reason

HANDED_BACK = "handed_back"
"""End of a lease whose task was handed back: it is requeued, and no attempt is charged."""


UNDELIVERED = "undelivered"
"""End of a lease that never reached its worker: the task is requeued and its charges are refunded."""


ASYNC_OWNER = "async-completion"
"""The owner of the lease of an attempt that is completed from outside a worker; no worker may have this id."""
NEVER_MS = 253_402_300_799_000
"""The end of the year 9999: such a lease does not expire, its attempt ends by a report or by a timeout."""


class SeenLimit(Struct, frozen=True):
    """A limit that held a queue when a server looked."""

    reason: HoldReason
    at_ms: int


class Sightings(Struct, frozen=True):
    """What this server saw of a queue before a claim."""

    open_for_ms: Sequence[int]
    """How long each poll of the claim has been open."""
    watched_ms: int
    """Since when it has known the queue: a server that was just started has seen nothing."""
    limit: SeenLimit | None
    """The limit that was in the way last."""


class Report(Struct, frozen=True):
    """The lease that a report is about, and a digest of the report."""

    owner: str
    token: str
    """The attempt of a workflow task, or the attempt id of an activity."""
    digest: str = ""


def grant(
    task: Task,
    owner: str,
    token: str,
    now_ms: int,
    lease_ms: int,
    poll_request_id: str | None,
    *,
    counted: int = 0,
    scopes: str = "",
    claimed: int = 0,
    seen: Sightings | None = None,
    poll: int = 0,
    limited: bool = False,
) -> Task:
    """Lease a task, and record what had held it back as far as the server that leases it saw it.

    That is a limit, if it was seen in the way while the task was ready. Else it is slots, if the task was ready before
    its poll came, because workers with a free slot poll all the time; where there are limits, only if the server would
    have seen them in the way. Else the task waited for its claim alone.

    Args:
        seen: what the server saw of the queue before; None: nothing.
        poll: which of the polls of the claim takes the task.
        limited: whether the queue has limits.
    """
    assert task.state is TaskState.READY, "only a ready task can be granted"
    ready_ms = max(task.available_at_ms, task.enqueued_at_ms)
    held_by = ""
    if seen is not None and seen.limit is not None and seen.limit.at_ms >= ready_ms:
        held_by = seen.limit.reason.value
    elif seen is not None and ready_ms < now_ms - seen.open_for_ms[poll]:
        held_by = "" if limited and ready_ms < now_ms - seen.watched_ms else HoldReason.SLOTS.value
    return replace(
        task,
        state=TaskState.LEASED,
        attempt=task.attempt + 1,
        lease_owner=owner,
        lease_token=token,
        lease_expires_at_ms=now_ms + lease_ms,
        leased_at_ms=now_ms,
        granted_at_ms=now_ms,
        poll_request_id=poll_request_id,
        sticky_worker_id=None,
        sticky_until_ms=None,
        counted=counted,
        scopes=scopes,
        claimed=claimed,
        held_by=held_by,
    )


def renew(task: Task, now_ms: int, lease_ms: int) -> Task:
    """A renewal never shortens a lease, whatever the order of heartbeats."""
    assert task.lease_expires_at_ms is not None
    return replace(task, lease_expires_at_ms=max(task.lease_expires_at_ms, now_ms + lease_ms))


def detached(task: Task) -> Task:
    """A leased task whose worker has let go of it. It counts as running under all limits, but uses no slot."""
    assert task.state is TaskState.LEASED, "only a leased task can be let go of"
    return replace(task, lease_owner=ASYNC_OWNER, lease_expires_at_ms=NEVER_MS)


def lease_ends_after_ms(expires_at_ms: int, looked_at_ms: int, looked_after_ms: int) -> int:
    """How long after the arrival of a request the lease in its response ends.

    A worker that counts this from the time at which it sent the request never outlives the lease, however late the
    response comes and whatever its clock shows: only durations are added.

    Args:
        expires_at_ms: when the lease ends, by the clock of the store.
        looked_at_ms: the time of the transaction that granted, redelivered or renewed it, by the same clock.
        looked_after_ms: from the arrival of the request to the beginning of that transaction, by a monotonic clock
            that was read before the transaction read its time.
    """
    return max(0, looked_after_ms + expires_at_ms - looked_at_ms)


def newest_details(before: str | None, reported: str | None, *, same_attempt: bool = True) -> str | None:
    """The progress details after a heartbeat: its own, unless a later heartbeat arrived before it.

    A heartbeat without details changes nothing. Each attempt has its own sequence.
    """
    if reported is None:
        return before
    known, newest = _sequence(before), _sequence(reported)
    overtaken = same_attempt and known is not None and newest is not None and newest < known
    return before if overtaken else reported


def _sequence(details: str | None) -> int | None:
    reported = json_text.read(details) if details is not None else None
    sequence = reported.get("sequence") if isinstance(reported, dict) else None
    return sequence if isinstance(sequence, int) else None


def freed(
    task: Task, state: TaskState, *, available_at_ms: int, error: str | None = None, how: str | None = None
) -> Task:
    """The task after its lease ended without a report; `how` goes to the journal."""
    return replace(
        task,
        state=state,
        available_at_ms=available_at_ms,
        ended_lease=task.lease_token,
        ended_how=how,
        lease_token=None,
        lease_owner=None,
        lease_expires_at_ms=None,
        poll_request_id=None,
        last_error=error if error is not None else task.last_error,
    )


def answered(
    task: Task, report: Report, state: TaskState, outcome: str, available_at_ms: int, cost: int | None = None
) -> Task:
    """The task after its lease ended by an accepted report; a repetition of the report gets the same response.

    `cost` is the real cost, if it was reported.
    """
    return replace(
        freed(task, state, available_at_ms=available_at_ms, how=outcome),
        done_token=f"{report.owner}/{report.token}",
        done_digest=report.digest,
        done_outcome=outcome,
        ended_cost=cost,
    )


def is_answered(task: Task, report: Report) -> bool:
    """Whether a report on this lease was accepted before."""
    return task.done_token is not None and task.done_token == f"{report.owner}/{report.token}"


def repeated(task: Task, report: Report) -> str | None:
    """The outcome of the accepted report, if this is a repetition of it."""
    if not is_answered(task, report):
        return None
    if task.done_digest != report.digest:
        raise Conflict(
            Reason.COMPLETION_CONFLICT,
            "This lease has already been reported with another outcome; the first one counts.",
            accepted_outcome=task.done_outcome,
        )
    return task.done_outcome


def check_workflow_report(
    task: Task | None, run: Run | None, namespace: str, report: Report, now_ms: int
) -> Task:
    """The task, if the reporter holds its live lease; else raises an error that says why not."""
    if task is None or run is None or task.namespace != namespace or task.kind is not TaskKind.WORKFLOW:
        raise NotFound(Reason.TASK_NOT_FOUND, "There is no such task in this namespace.")
    if not run.is_open:
        raise _run_closed(task, run)
    _check_lease(task, report, now_ms)
    return task


def _check_lease(task: Task, report: Report, now_ms: int) -> None:
    if task.state is not TaskState.LEASED:
        raise _not_leased(task)
    assert task.lease_expires_at_ms is not None
    if task.lease_expires_at_ms <= now_ms:
        raise lease_expired(task)
    if task.lease_owner != report.owner:
        raise LeaseLost(
            Reason.LEASE_OWNER_MISMATCH,
            f"The task is leased to {task.lease_owner!r}.",
            lease_owner=task.lease_owner,
        )
    if str(task.attempt) != report.token:
        raise LeaseLost(
            Reason.WORKFLOW_TASK_ATTEMPT_MISMATCH,
            f"The task is in attempt {task.attempt}, the report is for attempt {report.token}.",
            current_attempt=task.attempt,
        )


def is_overdue(run: Run, now_ms: int) -> bool:
    """Whether the execution or run timeout has passed, even if that is not recorded yet."""
    return run.deadline_at_ms is not None and run.deadline_at_ms <= now_ms


def run_timed_out(run: Run) -> LeaseLost:
    return LeaseLost(
        Reason.RUN_TIMED_OUT,
        "The deadline of the run has passed, so nothing was recorded. The run ends as timed out, or as cancelled if "
        "it was the deadline of its cleanup.",
        run_status=run.status.value,
        can_continue=False,
    )


def lease_expired(task: Task) -> LeaseLost:
    assert task.lease_expires_at_ms is not None
    return LeaseLost(
        Reason.LEASE_EXPIRED,
        "The lease has expired, so nothing was recorded. The task is redelivered, or has failed if its "
        "retry policy or its timeouts allow no further attempt.",
        task_status=task.state.value,
        lease_owner=task.lease_owner,
        lease_expires_at=iso(task.lease_expires_at_ms),
    )


def _not_leased(task: Task) -> LeaseLost:
    return LeaseLost(Reason.TASK_NOT_LEASED, "The task is not leased.", task_status=task.state.value)


def _run_closed(task: Task, run: Run) -> LeaseLost:
    held = task.state is TaskState.LEASED
    reason = Reason.RUN_ALREADY_CLOSED if held else Reason.RUN_CLOSED
    return LeaseLost(reason, f"The run is {run.status.value}.", **stop_details(task, run))


def stop_details(task: Task, run: Run) -> dict[str, object]:
    """Error details for a worker whose run no longer needs its result."""
    return {
        "stop_reason": f"run_{run.status.value}" if run.status in _STOPS else "run_closed",
        "cancel_requested": run.status in (RunStatus.CANCELLED, RunStatus.TERMINATED),
        "can_continue": False,
        "run_status": run.status.value,
        "run_closed_reason": run.closed_reason,
        "run_closed_at": iso_or_none(run.closed_at_ms),
        "task_status": task.state.value,
        "lease_owner": task.lease_owner,
        "lease_expires_at": iso_or_none(task.lease_expires_at_ms),
    }


_STOPS = (RunStatus.CANCELLED, RunStatus.TERMINATED, RunStatus.COMPLETED, RunStatus.FAILED)
