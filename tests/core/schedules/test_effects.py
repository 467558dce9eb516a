"""The effect of a backfill is what the overlap policy makes of its fires, one after the other."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.schedules.effects import BackfillPlan, QueueLoad, drain_s, in_sentences, plan_backfill
from penstock.core.schedules.overlap import BUFFER_MAX, Overlap

LOAD = QueueLoad(task_queue="q", waiting=10, dispatched=120.0)


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        (Overlap.SKIP, BackfillPlan(starts=1, skips=4)),
        (Overlap.BUFFER_ONE, BackfillPlan(starts=1, waits=1, skips=3)),
        (Overlap.BUFFER_ALL, BackfillPlan(starts=1, waits=4)),
        (Overlap.CANCEL_OTHER, BackfillPlan(starts=1, waits=1, skips=3, ends_runs=True)),
        (Overlap.TERMINATE_OTHER, BackfillPlan(starts=5, ends_runs=True)),
        (Overlap.ALLOW_ALL, BackfillPlan(starts=5)),
    ],
)
def test_each_policy_lets_other_fires_start(policy: Overlap, expected: BackfillPlan) -> None:
    assert plan_backfill(policy, 5, open_runs=0, buffered=0) == expected


def test_an_open_run_skips_them_all() -> None:
    assert plan_backfill(Overlap.SKIP, 3, open_runs=1, buffered=0) == BackfillPlan(skips=3)


def test_fires_that_were_made_before_and_those_beyond_max_runs_are_counted_apart() -> None:
    plan = plan_backfill(Overlap.ALLOW_ALL, 10, open_runs=0, buffered=0, remaining=3, repeated=2)
    assert plan == BackfillPlan(starts=3, repeated=2, beyond_max_runs=5)


@given(
    policy=st.sampled_from(Overlap),
    fires=st.integers(0, 2 * BUFFER_MAX),
    open_runs=st.integers(0, 3),
    buffered=st.integers(0, BUFFER_MAX),
    remaining=st.none() | st.integers(0, 50),
    repeated=st.integers(0, 20),
)
def test_every_fire_has_one_outcome_and_no_more_start_than_may(
    policy: Overlap, fires: int, open_runs: int, buffered: int, remaining: int | None, repeated: int
) -> None:
    repeated = min(repeated, fires)
    plan = plan_backfill(
        policy, fires, open_runs=open_runs, buffered=buffered, remaining=remaining, repeated=repeated
    )
    assert plan.starts + plan.waits + plan.skips + plan.repeated + plan.beyond_max_runs == fires
    assert buffered + plan.waits <= BUFFER_MAX
    assert remaining is None or plan.starts <= remaining
    assert min(plan.starts, plan.waits, plan.skips, plan.beyond_max_runs) >= 0


def test_the_queue_needs_its_limit_or_the_pace_of_the_last_minute() -> None:
    plan = BackfillPlan(starts=10)
    assert drain_s(plan, LOAD) == 10.0
    assert drain_s(plan, QueueLoad(task_queue="q", waiting=10, dispatched=120.0, rate_per_s=0.5)) == 40.0
    assert drain_s(plan, QueueLoad(task_queue="q", waiting=10, dispatched=0.0)) is None
    assert drain_s(plan, QueueLoad(task_queue="q", waiting=1, dispatched=9.0, paused=True)) is None


def test_the_sentences_say_why_a_backfill_starts_less_than_its_moments() -> None:
    plan = plan_backfill(Overlap.SKIP, 96, open_runs=0, buffered=0)
    first, second, third = in_sentences(plan, Overlap.SKIP, LOAD)
    assert first == "1 of 96 fires start a run at once."
    assert second.startswith("95 are skipped, because a run is open and the overlap policy is skip")
    assert third == "10 tasks wait in 'q'; at the pace of the last minute it needs 6 s for all of them."
