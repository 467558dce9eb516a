"""What becomes of a backlog if the last minute goes on."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.series.drain_forecast import DrainState, drain_forecast

counts = st.integers(0, 100_000)


@pytest.mark.parametrize(
    ("waiting", "added", "dispatched", "state"),
    [
        (0, 5, 5, DrainState.EMPTY),
        (10, 0, 0, DrainState.STALLED),
        (10, 60, 60, DrainState.STEADY),
        (10, 120, 60, DrainState.GROWS),
        (10, 7, 0, DrainState.GROWS),
        (10, 0, 60, DrainState.CLEARS),
    ],
)
def test_the_states_of_a_backlog(waiting: int, added: int, dispatched: int, state: DrainState) -> None:
    assert drain_forecast(waiting, added, dispatched).state is state


def test_the_times_follow_from_the_paces() -> None:
    assert drain_forecast(30, 0, 60).clear_in_s == 30
    assert drain_forecast(30, 120, 60).grows_per_s == 1


@given(waiting=counts, added=counts, dispatched=counts)
def test_a_forecast_has_the_number_of_its_state_and_no_other(
    waiting: int, added: int, dispatched: int
) -> None:
    found = drain_forecast(waiting, added, dispatched)
    assert (found.clear_in_s is not None) == (found.state is DrainState.CLEARS)
    assert (found.grows_per_s is not None) == (found.state is DrainState.GROWS)
    assert found.clear_in_s is None or found.clear_in_s > 0
    assert found.grows_per_s is None or found.grows_per_s > 0
