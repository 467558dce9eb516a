"""`Retry-After` of a full query queue."""

from __future__ import annotations

import pytest

from penstock.engine.runtime.query_pace import REMEMBERED_MAX, QueryPace

MINUTE_MS = 60_000


class ManualClock:
    """A clock that is advanced by hand."""

    def __init__(self) -> None:
        self.seconds = 1_000.0

    def __call__(self) -> float:
        return self.seconds


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def pace(clock: ManualClock) -> QueryPace:
    return QueryPace(clock)


def retry_after_s(pace: QueryPace, default_ms: int = 7_000, longest_ms: int = 10 * MINUTE_MS) -> int:
    return pace.retry_after_s("default", "q", default_ms=default_ms, longest_ms=longest_ms)


def answer_every(seconds: float, count: int, pace: QueryPace, clock: ManualClock) -> None:
    for _ in range(count):
        pace.answered("default", "q")
        clock.seconds += seconds


def test_where_nothing_is_known_the_lease_counts(pace: QueryPace):
    assert retry_after_s(pace, default_ms=7_000) == 7
    assert retry_after_s(pace, default_ms=1) == 1
    assert retry_after_s(pace, default_ms=10 * MINUTE_MS) == 60


@pytest.mark.parametrize(("every_s", "expected"), [(0.001, 1), (0.5, 1), (1.5, 2), (5, 5), (19.5, 20)])
def test_the_recent_pace_predicts_when_a_slot_is_free(
    pace: QueryPace, clock: ManualClock, every_s: float, expected: int
):
    answer_every(every_s, 3, pace, clock)
    assert retry_after_s(pace) == expected


def test_a_queue_whose_workers_fell_silent_is_slower_every_second(pace: QueryPace, clock: ManualClock):
    answer_every(0.1, 2, pace, clock)
    assert retry_after_s(pace) == 1
    clock.seconds += 30
    assert retry_after_s(pace) == 16
    clock.seconds += 60
    assert retry_after_s(pace, default_ms=7_000) == 7, "it is too long ago to tell anything"


def test_no_caller_is_sent_away_for_longer_than_pending_callers_will_wait(
    pace: QueryPace, clock: ManualClock
):
    answer_every(20, 2, pace, clock)
    assert retry_after_s(pace, longest_ms=4_000) == 4
    assert retry_after_s(pace, longest_ms=1) == 1


def test_queues_have_a_pace_each(pace: QueryPace, clock: ManualClock):
    answer_every(2, 3, pace, clock)
    assert pace.retry_after_s("default", "other", default_ms=7_000, longest_ms=MINUTE_MS) == 7
    assert pace.retry_after_s("elsewhere", "q", default_ms=7_000, longest_ms=MINUTE_MS) == 7


def test_of_many_queues_those_answered_last_are_remembered(pace: QueryPace):
    pace.answered("default", "q")
    for number in range(REMEMBERED_MAX):
        pace.answered("default", f"q{number}")
    assert retry_after_s(pace, default_ms=7_000) == 7
    assert pace.retry_after_s("default", "q0", default_ms=7_000, longest_ms=MINUTE_MS) == 1
