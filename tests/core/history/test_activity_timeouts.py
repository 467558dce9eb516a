"""The clocks of an activity are cut to those around them, and to the budget of its run."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.history.activity_timeouts import effective_timeouts, timeout_fields
from penstock.core.model import ActivityTimeouts

spans = st.none() | st.integers(1, 1000)


def clocks(
    *,
    attempt: int | None = None,
    whole: int | None = None,
    wait: int | None = None,
    silence: int | None = None,
) -> ActivityTimeouts:
    return ActivityTimeouts(
        start_to_close_ms=attempt, schedule_to_close_ms=whole, schedule_to_start_ms=wait, heartbeat_ms=silence
    )


@pytest.mark.parametrize(
    ("asked", "budget", "effective"),
    [
        (clocks(attempt=9), None, clocks(attempt=9)),
        (clocks(attempt=9, whole=5), None, clocks(attempt=5, whole=5)),
        (clocks(wait=9, whole=5), None, clocks(wait=5, whole=5)),
        (clocks(attempt=3, silence=9), None, clocks(attempt=3, silence=3)),
        (clocks(attempt=9), 4, clocks(attempt=4, whole=4)),
        (
            clocks(attempt=9, whole=9, wait=9, silence=9),
            4,
            clocks(attempt=4, whole=4, wait=4, silence=4),
        ),
        (clocks(), 4, clocks(whole=4)),
        (clocks(silence=9), 4, clocks(whole=4, silence=4)),
        (clocks(attempt=2, whole=3), 4, clocks(attempt=2, whole=3)),
    ],
)
def test_a_clock_ends_with_the_one_around_it(
    asked: ActivityTimeouts, budget: int | None, effective: ActivityTimeouts
) -> None:
    assert effective_timeouts(asked, budget) == effective


@given(attempt=spans, whole=spans, wait=spans, silence=spans, budget=spans)
def test_no_clock_that_is_in_force_outlasts_the_ones_around_it(
    attempt: int | None, whole: int | None, wait: int | None, silence: int | None, budget: int | None
) -> None:
    asked = clocks(attempt=attempt, whole=whole, wait=wait, silence=silence)
    found = effective_timeouts(asked, budget)
    around = [each for each in (found.schedule_to_close_ms, budget) if each is not None]
    inner = [found.start_to_close_ms, found.schedule_to_start_ms, found.heartbeat_ms]
    assert all(each <= least for each in inner if each is not None for least in around)
    if found.heartbeat_ms is not None and found.start_to_close_ms is not None:
        assert found.heartbeat_ms <= found.start_to_close_ms
    assert effective_timeouts(found, budget) == found


def test_what_was_asked_for_is_told_only_where_it_was_cut() -> None:
    asked = clocks(attempt=9, whole=5, silence=1)
    assert timeout_fields(asked, effective_timeouts(asked, None)) == {
        "asked_timeouts": {"start_to_close_timeout_ms": 9}
    }
    assert timeout_fields(clocks(), effective_timeouts(clocks(), 7)) == {}
