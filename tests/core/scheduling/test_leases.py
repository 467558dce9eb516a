"""The right of one worker to one task until a moment, and who may still report."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from penstock.core.model import Run, RunStatus, Task, TaskKind, TaskState
from penstock.core.scheduling.leases import (
    Report,
    answered,
    check_workflow_report,
    freed,
    grant,
    lease_ends_after_ms,
    lease_expired,
    renew,
    repeated,
    stop_details,
)
from penstock.core.timestamps import iso
from penstock.errors import Conflict, LeaseLost, NotFound, PenstockError, Reason
from tests.core.scheduling.queue_model import QUEUE
from tests.support.builders import NOW_MS, a_run, a_task

LEASE_MS = 60_000
WORKFLOWS = replace(QUEUE, kind=TaskKind.WORKFLOW)
HOLDER = Report("worker-1", "1", "digest-1")


def ready() -> Task:
    return a_task(WORKFLOWS)


def held(**changes: Any) -> Task:
    return replace(grant(ready(), "worker-1", "1.secret", NOW_MS, LEASE_MS, "poll-1"), **changes)


def check(task: Task | None, run: Run | None, report: Report = HOLDER, **changes: Any) -> Task:
    asked: dict[str, Any] = {"namespace": "default", "now_ms": NOW_MS} | changes
    return check_workflow_report(task, run, asked["namespace"], report, asked["now_ms"])


def refusal(task: Task | None, run: Run | None, report: Report = HOLDER, **changes: Any) -> PenstockError:
    with pytest.raises(PenstockError) as refused:
        check(task, run, report, **changes)
    return refused.value


# ── Grant, renew, free ──────────────────────────────────────────────────────────────────────────────────


def test_a_grant_counts_an_attempt_and_says_whose_and_until_when():
    task = held()
    assert (task.state, task.attempt) == (TaskState.LEASED, 1)
    assert (task.lease_owner, task.lease_token, task.poll_request_id) == ("worker-1", "1.secret", "poll-1")
    assert (task.leased_at_ms, task.lease_expires_at_ms) == (NOW_MS, NOW_MS + LEASE_MS)


def test_a_grant_ends_the_reservation():
    task = replace(ready(), sticky_worker_id="worker-1", sticky_until_ms=NOW_MS + 1)
    assert (task.is_sticky(NOW_MS), task.is_sticky(NOW_MS + 1)) == (True, False)
    granted = grant(task, "worker-1", "1.secret", NOW_MS, LEASE_MS, None)
    assert (granted.sticky_worker_id, granted.sticky_until_ms) == (None, None)


@pytest.mark.parametrize("state", [state for state in TaskState if state is not TaskState.READY])
def test_only_a_ready_task_can_be_granted(state: TaskState):
    with pytest.raises(AssertionError):
        grant(replace(ready(), state=state), "worker-1", "t", NOW_MS, LEASE_MS, None)


@given(beats=st.lists(st.tuples(st.integers(0, 10**6), st.integers(1, 10**6))))
def test_a_lease_only_ever_grows_whichever_heartbeat_comes_last(beats: list[tuple[int, int]]):
    task = held()
    for after_ms, lease_ms in beats:
        before = task.lease_expires_at_ms or 0
        task = renew(task, NOW_MS + after_ms, lease_ms)
        assert task.lease_expires_at_ms == max(before, NOW_MS + after_ms + lease_ms)


def test_a_freed_task_has_no_holder_and_keeps_its_attempts_and_last_error():
    task = freed(held(last_error="before"), TaskState.DELAYED, available_at_ms=NOW_MS + 5)
    assert (task.lease_owner, task.lease_token, task.lease_expires_at_ms) == (None, None, None)
    assert task.poll_request_id is None
    assert (task.state, task.available_at_ms, task.attempt) == (TaskState.DELAYED, NOW_MS + 5, 1)
    assert task.last_error == "before"
    assert freed(held(), TaskState.READY, available_at_ms=0, error="lost").last_error == "lost"


# ── The same report once more ───────────────────────────────────────────────────────────────────────────


def test_a_report_sent_again_gets_the_same_answer():
    task = answered(held(), HOLDER, TaskState.DONE, "completed", NOW_MS)
    assert task.state is TaskState.DONE
    assert repeated(task, HOLDER) == "completed"


def test_a_lease_reported_again_with_another_outcome_conflicts_and_the_first_counts():
    task = answered(held(), HOLDER, TaskState.DONE, "completed", NOW_MS)
    with pytest.raises(Conflict) as refused:
        repeated(task, replace(HOLDER, digest="other"))
    assert refused.value.reason is Reason.COMPLETION_CONFLICT
    assert refused.value.details["accepted_outcome"] == "completed"


@pytest.mark.parametrize("other", [Report("worker-2", "1", "digest-1"), Report("worker-1", "2", "digest-1")])
def test_another_lease_is_not_a_repetition(other: Report):
    task = answered(held(), HOLDER, TaskState.DONE, "completed", NOW_MS)
    assert repeated(task, other) is None


def test_a_task_that_nobody_reported_repeats_nothing():
    assert repeated(held(), HOLDER) is None


def test_a_failure_is_remembered_while_the_task_is_in_its_next_attempt():
    rested = answered(held(), HOLDER, TaskState.READY, "failed", NOW_MS)
    again = grant(rested, "worker-2", "2.secret", NOW_MS, LEASE_MS, None)
    assert repeated(again, HOLDER) == "failed"


# ── Who may report ──────────────────────────────────────────────────────────────────────────────────────


def test_the_holder_of_the_live_lease_may_report():
    task = held()
    assert check(task, a_run()) is task


@pytest.mark.parametrize(
    ("task", "run", "changes"),
    [
        (None, a_run(), {}),
        (held(), None, {}),
        (held(), a_run(), {"namespace": "other"}),
        (held(kind=TaskKind.ACTIVITY), a_run(), {}),
    ],
)
def test_a_task_that_is_not_there_for_the_caller_is_not_found(
    task: Task | None, run: Run | None, changes: dict[str, Any]
):
    """`namespaces-never-mix`: another namespace's task looks like none at all."""
    told = refusal(task, run, **changes)
    assert isinstance(told, NotFound)
    assert told.reason is Reason.TASK_NOT_FOUND


@pytest.mark.parametrize("state", [TaskState.READY, TaskState.DELAYED, TaskState.DONE, TaskState.CANCELLED])
def test_a_task_that_nobody_holds_takes_no_report(state: TaskState):
    told = refusal(replace(ready(), state=state), a_run())
    assert isinstance(told, LeaseLost)
    assert told.reason is Reason.TASK_NOT_LEASED
    assert told.details["task_status"] == state.value


def test_a_lease_has_expired_in_its_last_millisecond():
    task = held()
    assert check(task, a_run(), now_ms=NOW_MS + LEASE_MS - 1) is task
    told = refusal(task, a_run(), now_ms=NOW_MS + LEASE_MS)
    assert told.reason is Reason.LEASE_EXPIRED
    assert told.details == {
        "task_status": "leased",
        "lease_owner": "worker-1",
        "lease_expires_at": iso(NOW_MS + LEASE_MS),
    }


def test_somebody_else_is_told_who_holds_the_lease():
    told = refusal(held(), a_run(), Report("worker-2", "1"))
    assert told.reason is Reason.LEASE_OWNER_MISMATCH
    assert told.details["lease_owner"] == "worker-1"


def test_an_earlier_attempt_of_the_same_worker_is_told_the_present_one():
    told = refusal(held(attempt=2), a_run())
    assert told.reason is Reason.WORKFLOW_TASK_ATTEMPT_MISMATCH
    assert told.details["current_attempt"] == 2


def test_refusals_come_in_the_order_of_the_contract():
    stranger = Report("worker-2", "9")
    late = NOW_MS + LEASE_MS
    assert refusal(held(), a_run(), stranger, now_ms=late).reason is Reason.LEASE_EXPIRED
    assert refusal(held(), a_run(), stranger).reason is Reason.LEASE_OWNER_MISMATCH
    assert refusal(held(), a_run(), replace(stranger, owner="worker-1")).reason is (
        Reason.WORKFLOW_TASK_ATTEMPT_MISMATCH
    )


@pytest.mark.parametrize(
    ("status", "stop_reason", "cancelled"),
    [
        (RunStatus.CANCELLED, "run_cancelled", True),
        (RunStatus.TERMINATED, "run_terminated", True),
        (RunStatus.COMPLETED, "run_completed", False),
        (RunStatus.FAILED, "run_failed", False),
    ],
)
def test_a_worker_whose_run_has_closed_is_told_how(status: RunStatus, stop_reason: str, cancelled: bool):
    run = a_run(status=status, closed_reason=status.value, closed_at_ms=NOW_MS)
    told = refusal(replace(ready(), state=TaskState.CANCELLED), run)
    assert told.reason is Reason.RUN_CLOSED
    assert told.details == {
        "stop_reason": stop_reason,
        "cancel_requested": cancelled,
        "can_continue": False,
        "run_status": status.value,
        "run_closed_reason": status.value,
        "run_closed_at": iso(NOW_MS),
        "task_status": "cancelled",
        "lease_owner": None,
        "lease_expires_at": None,
    }


def test_a_run_that_is_neither_open_nor_known_to_have_ended_has_just_closed():
    assert stop_details(held(), a_run())["stop_reason"] == "run_closed"


def test_an_expired_lease_does_not_promise_another_poll_to_a_task_that_may_have_failed_for_good() -> None:
    told = lease_expired(a_task(WORKFLOWS, lease_expires_at_ms=1)).message
    assert "or has failed" in told


# ── How long a worker may believe in a lease ────────────────────────────────────────────────────────────


@given(
    skew_ms=st.integers(-1_000_000, 1_000_000),
    on_the_way_ms=st.integers(0, 10_000),
    waited_ms=st.integers(0, 60_000),
    before_the_look_ms=st.integers(0, 5_000),
    lease_ms=st.integers(100, 600_000),
)
def test_a_worker_that_counts_from_the_sending_of_its_poll_never_outlives_its_lease(
    skew_ms: int, on_the_way_ms: int, waited_ms: int, before_the_look_ms: int, lease_ms: int
) -> None:
    """Whatever delays the request, the claim and the answer, and however far the clocks are apart."""
    sent_ms = 0
    arrived_ms = sent_ms + on_the_way_ms
    claim_began_ms = arrived_ms + waited_ms
    granted_ms = claim_began_ms + before_the_look_ms
    store_granted_ms = granted_ms + skew_ms
    span_ms = lease_ends_after_ms(store_granted_ms + lease_ms, store_granted_ms, waited_ms)
    assert sent_ms + span_ms <= granted_ms + lease_ms
    assert span_ms >= lease_ms, "and a poll that waited long is not cut short"
