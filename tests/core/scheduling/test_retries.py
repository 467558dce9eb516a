"""When something is tried again, and which clock has run out."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.limits.rates import NANO, NANO_PER_MS
from penstock.core.model import Activity, ActivityStatus, ActivityTimeouts, RetrySchedule
from penstock.core.scheduling.retries import (
    JITTER_MAX_NS,
    NoRetry,
    RetryAt,
    RetrySlot,
    after_failure,
    expired_clock,
    running_deadline_at_ms,
    timeout_types,
    waiting_deadline_at_ms,
    workflow_task_backoff_ms,
)
from tests.support.builders import NOW_MS, an_activity


def tried(attempt: int, policy: RetrySchedule, **limits: int) -> Activity:
    return an_activity(attempt=attempt, retry=policy, timeouts=ActivityTimeouts(**limits))


def running(now_ms: int = NOW_MS, *, heard_ms: int | None = None, **limits: int) -> Activity:
    return an_activity(
        status=ActivityStatus.RUNNING,
        attempt=1,
        started_at_ms=now_ms,
        heartbeat_at_ms=heard_ms,
        timeouts=ActivityTimeouts(**limits),
    )


@pytest.mark.parametrize(
    ("clock", "name"),
    [
        ("start_to_close", "TemporalTimeout:StartToClose"),
        ("schedule_to_start", "TemporalTimeout:ScheduleToStart"),
        ("schedule_to_close", "TemporalTimeout:ScheduleToClose"),
        ("heartbeat", "TemporalTimeout:Heartbeat"),
    ],
)
def test_a_clock_that_ran_out_has_a_name_for_policies(clock: str, name: str) -> None:
    policy = RetrySchedule(max_attempts=9, non_retryable_error_types=(name,))
    assert after_failure(tried(1, policy), timeout_types(clock), False, NOW_MS) == NoRetry()
    assert isinstance(after_failure(tried(1, policy), timeout_types("lease"), False, NOW_MS), RetryAt)


# ── After a failure ─────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(("attempt", "backoff_s"), [(1, 1), (2, 5), (3, 5), (9, 5)])
def test_the_last_back_off_of_the_list_repeats(attempt: int, backoff_s: int):
    verdict = after_failure(tried(attempt, RetrySchedule(10, True, (1, 5))), (), False, NOW_MS)
    assert verdict == RetryAt(NOW_MS + backoff_s * 1000, backoff_s * 1000)


def test_without_a_list_the_next_attempt_is_at_once():
    assert after_failure(tried(1, RetrySchedule(2, True)), (), False, NOW_MS) == RetryAt(NOW_MS, 0)


@given(attempt=st.integers(1, 20), most=st.integers(1, 20))
def test_attempts_are_never_more_than_the_policy_allows(attempt: int, most: int):
    verdict = after_failure(tried(attempt, RetrySchedule(most, True)), (), False, NOW_MS)
    assert isinstance(verdict, NoRetry) == (attempt >= most)


def test_without_a_policy_a_failure_is_final():
    assert after_failure(tried(1, RetrySchedule()), (), False, NOW_MS) == NoRetry()


def test_a_failure_that_says_so_is_not_tried_again():
    assert after_failure(tried(1, RetrySchedule(5, True)), ("Timeout",), True, NOW_MS) == NoRetry()


@pytest.mark.parametrize("told", [("CardDeclined",), ("Error", "CardDeclined")])
def test_an_error_that_the_policy_names_is_not_tried_again(told: tuple[str, ...]):
    policy = RetrySchedule(5, True, (), ("CardDeclined",))
    assert after_failure(tried(1, policy), told, False, NOW_MS) == NoRetry()
    assert isinstance(after_failure(tried(1, policy), ("Other",), False, NOW_MS), RetryAt)


@pytest.mark.parametrize(("limit_ms", "again"), [(10_000, False), (10_001, True)])
def test_no_attempt_is_planned_for_when_the_whole_activity_must_have_ended(limit_ms: int, again: bool):
    activity = tried(1, RetrySchedule(5, True, (10,)), schedule_to_close_ms=limit_ms)
    assert isinstance(after_failure(activity, (), False, NOW_MS), RetryAt) == again


# ── Failed workflow tasks ───────────────────────────────────────────────────────────────────────────────


def test_a_workflow_task_rests_twice_as_long_after_each_failure_up_to_a_minute():
    rests = [workflow_task_backoff_ms(failures) for failures in range(1, 10)]
    assert rests == [1_000, 2_000, 4_000, 8_000, 16_000, 32_000, 60_000, 60_000, 60_000]


@given(failures=st.integers(1, 10**9))
def test_however_often_it_failed_the_rest_is_a_minute_at_most(failures: int):
    assert 1_000 <= workflow_task_backoff_ms(failures) <= 60_000


# ── Deadlines ───────────────────────────────────────────────────────────────────────────────────────────


def test_a_waiting_activity_must_start_within_its_limit_counted_from_when_it_became_available():
    activity = tried(0, RetrySchedule(), schedule_to_start_ms=5_000, start_to_close_ms=1)
    assert waiting_deadline_at_ms(activity, NOW_MS + 700) == NOW_MS + 5_700


def test_a_waiting_activity_must_also_end_within_its_whole_limit():
    activity = tried(0, RetrySchedule(), schedule_to_start_ms=5_000, schedule_to_close_ms=4_000)
    assert waiting_deadline_at_ms(activity, NOW_MS + 700) == NOW_MS + 4_000


def test_an_activity_without_clocks_has_no_deadline():
    assert waiting_deadline_at_ms(tried(0, RetrySchedule()), NOW_MS) is None
    assert running_deadline_at_ms(running()) is None


@pytest.mark.parametrize(
    ("heard_after_ms", "deadline_after_ms"), [(None, 2_000), (1_500, 3_500), (9_500, 10_000)]
)
def test_a_running_activity_must_be_heard_or_have_ended(heard_after_ms: int | None, deadline_after_ms: int):
    heard_ms = None if heard_after_ms is None else NOW_MS + heard_after_ms
    activity = running(heard_ms=heard_ms, heartbeat_ms=2_000, start_to_close_ms=10_000)
    assert running_deadline_at_ms(activity) == NOW_MS + deadline_after_ms


def test_a_heartbeat_of_an_earlier_attempt_does_not_count_for_this_one():
    activity = running(NOW_MS + 9_000, heard_ms=NOW_MS + 1_000, heartbeat_ms=2_000)
    assert running_deadline_at_ms(activity) == NOW_MS + 11_000


# ── Which clock ─────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("clock", "limits"),
    [
        ("schedule_to_close", {"schedule_to_close_ms": 1_000}),
        ("heartbeat", {"heartbeat_ms": 1_000}),
        ("start_to_close", {"start_to_close_ms": 1_000}),
    ],
)
def test_each_clock_of_a_running_activity_runs_out_at_its_millisecond(clock: str, limits: dict[str, int]):
    activity = running(**limits)
    assert expired_clock(activity, NOW_MS, NOW_MS + 999) is None
    assert expired_clock(activity, NOW_MS, NOW_MS + 1_000) == clock


def test_the_clocks_are_asked_in_the_order_of_the_contract():
    limits = {"schedule_to_close_ms": 1_000, "heartbeat_ms": 1_000, "start_to_close_ms": 1_000}
    told = []
    while limits:
        found = expired_clock(running(**limits), NOW_MS, NOW_MS + 1_000)
        assert found is not None
        told.append(found)
        del limits[f"{found}_ms"]
    assert told == ["schedule_to_close", "heartbeat", "start_to_close"]


def test_the_start_clock_runs_only_while_nobody_has_started():
    limits = {"schedule_to_start_ms": 1_000}
    waiting = tried(0, RetrySchedule(), **limits)
    assert expired_clock(waiting, NOW_MS, NOW_MS + 999) is None
    assert expired_clock(waiting, NOW_MS, NOW_MS + 1_000) == "schedule_to_start"
    assert expired_clock(running(**limits), NOW_MS, NOW_MS + 1_000) is None


def test_the_start_clock_of_a_retry_counts_from_the_end_of_its_rest():
    waiting = tried(1, RetrySchedule(3, True), schedule_to_start_ms=1_000)
    assert expired_clock(waiting, NOW_MS + 30_000, NOW_MS + 30_999) is None
    assert expired_clock(waiting, NOW_MS + 30_000, NOW_MS + 31_000) == "schedule_to_start"


def test_the_whole_limit_comes_before_the_start_limit():
    waiting = tried(0, RetrySchedule(), schedule_to_start_ms=1_000, schedule_to_close_ms=1_000)
    assert expired_clock(waiting, NOW_MS, NOW_MS + 1_000) == "schedule_to_close"


def test_running_clocks_do_not_run_while_an_activity_waits():
    waiting = tried(0, RetrySchedule(), heartbeat_ms=1, start_to_close_ms=1)
    assert expired_clock(waiting, NOW_MS, NOW_MS + 10**9) is None


limits_drawn = st.fixed_dictionaries(
    {},
    optional={
        name: st.integers(1, 5_000)
        for name in ("schedule_to_start_ms", "start_to_close_ms", "schedule_to_close_ms", "heartbeat_ms")
    },
)


@given(limits=limits_drawn, since=st.integers(0, 6_000))
def test_a_clock_has_run_out_exactly_when_the_deadline_has_passed(limits: dict[str, int], since: int):
    """The sweeper finds by deadline and decides by clock: both must say the same."""
    at = NOW_MS + since
    for activity, deadline in (
        (waiting := tried(0, RetrySchedule(), **limits), waiting_deadline_at_ms(waiting, NOW_MS)),
        (active := running(**limits), running_deadline_at_ms(active)),
    ):
        assert (expired_clock(activity, NOW_MS, at) is not None) == (deadline is not None and deadline <= at)


@pytest.mark.fault("F74")
@given(
    start_ns=st.integers(0, 2**61),
    for_ns=st.integers(1, 10**12),
    task_id=st.text(max_size=20),
    attempt=st.integers(0, 1000),
)
def test_a_retry_goes_inside_its_own_place_and_soon(
    start_ns: int, for_ns: int, task_id: str, attempt: int
) -> None:
    moment_ms = RetrySlot(start_ns, for_ns).moment_ms(task_id, attempt)
    assert start_ns <= moment_ms * NANO_PER_MS < start_ns + min(for_ns, JITTER_MAX_NS) + NANO_PER_MS
    assert moment_ms == RetrySlot(start_ns, for_ns).moment_ms(task_id, attempt)


def test_the_retries_of_many_tasks_are_spread_over_their_places() -> None:
    place = RetrySlot(0, NANO)
    moments = {place.moment_ms(f"r{number}-2", 1) // 100 for number in range(200)}
    assert moments == set(range(10)) | (moments & {10})


# ── The law of reports ──────────────────────────────────────────────────────────────────────────────────

spans = st.none() | st.integers(1, 5_000)
moments = st.integers(0, 12_000)


@given(
    limits=st.tuples(spans, spans, spans, spans),
    waited_ms=st.integers(0, 3_000),
    heard_ms=st.none() | st.integers(0, 3_000),
    after_ms=moments,
)
def test_a_report_is_late_exactly_from_the_deadline_of_its_attempt_on(
    limits: tuple[int | None, int | None, int | None, int | None],
    waited_ms: int,
    heard_ms: int | None,
    after_ms: int,
) -> None:
    """What a report is judged by and what sweepers look for are one rule, in every state of an activity."""
    timeouts = ActivityTimeouts(
        schedule_to_start_ms=limits[0],
        start_to_close_ms=limits[1],
        schedule_to_close_ms=limits[2],
        heartbeat_ms=limits[3],
    )
    started = NOW_MS + waited_ms
    at_work = an_activity(
        status=ActivityStatus.RUNNING,
        attempt=1,
        started_at_ms=started,
        heartbeat_at_ms=None if heard_ms is None else started + heard_ms,
        timeouts=timeouts,
    )
    waiting = an_activity(timeouts=timeouts)
    now_ms = NOW_MS + after_ms
    for activity, deadline in (
        (at_work, running_deadline_at_ms(at_work)),
        (waiting, waiting_deadline_at_ms(waiting, NOW_MS)),
    ):
        late = expired_clock(activity, NOW_MS, now_ms)
        assert (late is not None) == (deadline is not None and deadline <= now_ms)


@given(limits=st.tuples(spans, spans, spans), after_ms=moments, more_ms=moments)
def test_what_is_late_stays_late(
    limits: tuple[int | None, int | None, int | None], after_ms: int, more_ms: int
) -> None:
    activity = running(
        **{
            name: limit
            for name, limit in zip(
                ("start_to_close_ms", "schedule_to_close_ms", "heartbeat_ms"), limits, strict=True
            )
            if limit is not None
        }
    )
    if expired_clock(activity, NOW_MS, NOW_MS + after_ms) is not None:
        assert expired_clock(activity, NOW_MS, NOW_MS + after_ms + more_ms) is not None
