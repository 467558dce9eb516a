"""Schedules fire on the virtual clock."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from penstock.client import (
    Schedule,
    ScheduleActionStartActivity,
    ScheduleActionStartWorkflow,
    ScheduleIntervalSpec,
    ScheduleOverlapPolicy,
    SchedulePolicy,
    ScheduleSpec,
)
from penstock.testing import WorkflowEnvironment, mocked
from penstock.worker import Worker
from tests.testing.flows import DAY, QUEUE, Sleeper, a_worker, look_up

SPRING = datetime(2026, 3, 28, 12, tzinfo=UTC)
"""The day before the clocks change in Berlin."""


async def test_a_schedule_fires_at_each_of_its_moments_while_a_test_sleeps() -> None:
    async with await WorkflowEnvironment.start_time_skipping(start_time=SPRING) as env:
        found = mocked(look_up, returns="found")
        spec = ScheduleSpec(cron_expressions=["30 2 * * *"], time_zone_name="Europe/Berlin")
        action = ScheduleActionStartActivity(look_up, "ada", task_queue=QUEUE)
        handle = await env.client.create_schedule("nightly", Schedule(action=action, spec=spec))
        async with Worker(env.client, task_queue=QUEUE, activities=[found]):
            await env.sleep(3 * DAY)
        assert len(found.calls) == 3
        fires = (await handle.describe()).info.recent_actions
    assert [each.scheduled_at for each in reversed(fires)] == [
        datetime(2026, 3, 29, 1, tzinfo=UTC),
        datetime(2026, 3, 30, 0, 30, tzinfo=UTC),
        datetime(2026, 3, 31, 0, 30, tzinfo=UTC),
    ]
    assert {each.started_at - each.scheduled_at for each in fires if each.started_at} == {timedelta(0)}


async def test_fires_wait_for_runs_that_take_their_time(env: WorkflowEnvironment) -> None:
    schedule = Schedule(
        action=ScheduleActionStartWorkflow(Sleeper.run, 3, task_queue=QUEUE),
        spec=ScheduleSpec(intervals=[ScheduleIntervalSpec(every=DAY)]),
        policy=SchedulePolicy(overlap=ScheduleOverlapPolicy.BUFFER_ONE),
    )
    async with a_worker(env):
        handle = await env.client.create_schedule("daily", schedule)
        await env.sleep(11 * DAY)
        info = (await handle.describe()).info
    assert (info.num_actions, info.num_actions_running, info.num_actions_buffered) == (4, 1, 1)
    assert info.num_actions_skipped_overlap > 0


async def test_time_goes_to_the_next_moment_for_a_result_too(env: WorkflowEnvironment) -> None:
    every_hour = ScheduleSpec(intervals=[ScheduleIntervalSpec(every=timedelta(hours=1))])
    action = ScheduleActionStartWorkflow(Sleeper.run, 100, task_queue=QUEUE)
    async with a_worker(env):
        handle = await env.client.create_schedule("hourly", Schedule(action=action, spec=every_hour))
        await env.client.execute_workflow(Sleeper.run, 1, id="s", task_queue=QUEUE)
        assert (await handle.describe()).info.num_actions_skipped_overlap == 23
