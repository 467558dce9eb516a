"""What becomes of an activity whose worker died under it."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.model import Activity, ActivityStatus, RetrySchedule
from penstock.core.scheduling.retries import NoRetry, RetryAt, after_failure
from penstock.core.scheduling.worker_deaths import (
    ON_LOST_LEASE,
    WORKER_CRASHED,
    OnLostLease,
    Quarantine,
    Redeliver,
    after_lost_lease,
    has_restart_grace,
    on_lost_lease,
    quarantine,
)
from tests.core.scheduling.queue_model import QUEUE
from tests.support.builders import NOW_MS, a_task, an_activity

NO_POLICY = RetrySchedule()
ONCE_MORE = RetrySchedule(2, True, (3,))
FOR_EVER = RetrySchedule(2_147_483_647, True, (0,))


def died(
    retry: RetrySchedule, on_lost: OnLostLease | None = None, deaths: int = 0, attempt: int = 1
) -> Activity:
    """Before this death is counted."""
    return an_activity(
        status=ActivityStatus.RUNNING,
        attempt=attempt,
        started_at_ms=NOW_MS,
        retry=retry,
        extra="{}" if on_lost is None else json.dumps({ON_LOST_LEASE: on_lost}),
        worker_deaths=deaths,
    )


policies = st.builds(
    RetrySchedule,
    max_attempts=st.integers(1, 9),
    given=st.just(True),
    backoff_s=st.lists(st.integers(0, 9), max_size=3).map(tuple),
    non_retryable_error_types=st.sampled_from([(), (WORKER_CRASHED,), ("Other",)]),
)
lost = st.sampled_from([None, *OnLostLease])
activities = st.builds(
    died,
    retry=st.one_of(st.just(NO_POLICY), policies),
    on_lost=lost,
    deaths=st.integers(0, 9),
    attempt=st.integers(1, 9),
)


@pytest.mark.parametrize(
    ("activity", "verdict"),
    [
        (died(NO_POLICY), Redeliver()),
        (died(NO_POLICY, OnLostLease.REDELIVER), Redeliver()),
        (died(NO_POLICY, OnLostLease.FAIL), NoRetry()),
        (died(ONCE_MORE, OnLostLease.FAIL), RetryAt(NOW_MS + 3_000, 3_000)),
        (died(ONCE_MORE), RetryAt(NOW_MS + 3_000, 3_000)),
        (died(ONCE_MORE, OnLostLease.FAIL, attempt=2, deaths=1), NoRetry()),
        (died(RetrySchedule(9, True, (), (WORKER_CRASHED,)), OnLostLease.FAIL), NoRetry()),
        (died(RetrySchedule(9, True, (), (WORKER_CRASHED,))), NoRetry()),
        (died(FOR_EVER, OnLostLease.FAIL, deaths=2), Quarantine(3)),
        (died(FOR_EVER, deaths=2), Quarantine(3)),
        (died(NO_POLICY, deaths=2), Quarantine(3)),
        (died(NO_POLICY, deaths=1), Redeliver()),
    ],
)
def test_a_lost_lease_is_redelivered_failed_by_policy_or_the_last(
    activity: Activity, verdict: object
) -> None:
    assert after_lost_lease(activity, NOW_MS, 3) == verdict


@given(activities, st.integers(0, 9))
def test_an_activity_is_quarantined_with_the_death_that_is_enough_and_never_before(
    activity: Activity, most: int
) -> None:
    verdict = after_lost_lease(activity, NOW_MS, most)
    enough = most > 0 and activity.worker_deaths + 1 >= most
    assert isinstance(verdict, Quarantine) == enough
    assert verdict == Quarantine(activity.worker_deaths + 1) or not enough


@given(activities)
def test_without_quarantine_the_policy_alone_decides(activity: Activity) -> None:
    verdict = after_lost_lease(activity, NOW_MS, 0)
    by_policy = after_failure(activity, (WORKER_CRASHED,), False, NOW_MS)
    redelivers = on_lost_lease(activity) is OnLostLease.REDELIVER and not activity.retry.given
    assert verdict == (Redeliver() if redelivers else by_policy)


@given(st.integers(0, 9), st.integers(0, 9))
def test_what_is_quarantined_stays_so_with_every_further_death(deaths: int, most: int) -> None:
    if quarantine(deaths, most) is not None:
        assert quarantine(deaths + 1, most) is not None


def test_the_word_of_another_program_is_taken_as_the_usual() -> None:
    odd = an_activity(extra=json.dumps({ON_LOST_LEASE: "sing"}))
    assert on_lost_lease(odd) is OnLostLease.REDELIVER
    assert on_lost_lease(an_activity(extra='{"note":"on_lost_lease"}')) is OnLostLease.REDELIVER


@pytest.mark.parametrize(("deaths", "told"), [(1, "1 worker died"), (3, "3 workers died")])
def test_a_quarantine_says_how_many_died_how_the_last_did_and_what_to_do(deaths: int, told: str) -> None:
    message = Quarantine(deaths).failure_message("Exit code 1.")
    assert told in message
    assert "Exit code 1." in message
    assert "start it again" in message


@pytest.mark.parametrize(
    ("on_lost", "leased_ms", "claimed", "uptime_ms", "first"),
    [
        (OnLostLease.FAIL, -60_000, 0, 2_000, True),
        (OnLostLease.FAIL, -2_000, 0, 2_000, True),
        (OnLostLease.FAIL, -1_999, 0, 2_000, False),
        (OnLostLease.FAIL, -60_000, 0, None, False),
        (OnLostLease.FAIL, -60_000, 5_000, 2_000, False),
        (OnLostLease.REDELIVER, -60_000, 0, 2_000, False),
        (None, -60_000, 0, 2_000, False),
    ],
)
def test_a_worker_is_heard_first_where_death_is_final_and_no_server_may_have_been_there(
    on_lost: OnLostLease | None, leased_ms: int, claimed: int, uptime_ms: int | None, first: bool
) -> None:
    task = a_task(QUEUE, leased_at_ms=NOW_MS + leased_ms, claimed=claimed)
    assert has_restart_grace(died(NO_POLICY, on_lost), task, NOW_MS, uptime_ms) is first
