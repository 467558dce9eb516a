"""Time skipping: when time passes, how far, and what becomes due."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

from penstock.sdk.failures import WorkflowFailureError
from penstock.testing import NothingWillHappenError, TooManySkipsError, WorkflowEnvironment, mocked
from tests.testing.flows import (
    DAY,
    QUEUE,
    Approval,
    Careful,
    Forever,
    LookUp,
    Monthly,
    Parent,
    Payment,
    Sleeper,
    TwoTimers,
    a_worker,
    look_up,
)

NEW_YEAR = datetime(2030, 1, 1, tzinfo=UTC)


async def test_thirty_days_pass_in_no_time(env: WorkflowEnvironment) -> None:
    began = env.now()
    async with a_worker(env):
        woke = await env.client.execute_workflow(Sleeper.run, 30, id="s", task_queue=QUEUE)
    assert woke == began + 30 * DAY
    assert env.now() == woke


async def test_the_clock_begins_where_the_test_says() -> None:
    async with await WorkflowEnvironment.start_time_skipping(start_time=NEW_YEAR) as env:
        assert env.now() == NEW_YEAR
        async with a_worker(env):
            woke = await env.client.execute_workflow(Sleeper.run, 1, id="s", task_queue=QUEUE)
        assert woke == NEW_YEAR + DAY


async def test_a_beginning_without_a_zone_is_refused() -> None:
    with pytest.raises(ValueError, match="needs a zone"):
        await WorkflowEnvironment.start_time_skipping(start_time=datetime(2030, 1, 1))  # noqa: DTZ001


async def test_two_timers_ring_in_the_order_of_their_moments(env: WorkflowEnvironment) -> None:
    async with a_worker(env):
        rung = await env.client.execute_workflow(TwoTimers.run, id="t", task_queue=QUEUE)
    assert rung == ["early", "late"]


async def test_workflows_that_wait_together_end_in_the_order_of_their_moments(
    env: WorkflowEnvironment,
) -> None:
    began = env.now()
    ended: list[int] = []

    async def one(days: int) -> datetime:
        woke = await env.client.execute_workflow(Sleeper.run, days, id=f"s-{days}", task_queue=QUEUE)
        ended.append(days)
        return woke

    async with a_worker(env):
        woke = await asyncio.gather(*(one(days) for days in (5, 1, 40, 3)))
    assert ended == [1, 3, 5, 40]
    assert woke == [began + days * DAY for days in (5, 1, 40, 3)]


async def test_time_stands_still_while_nobody_waits(env: WorkflowEnvironment) -> None:
    began = env.now()
    async with a_worker(env):
        handle = await env.client.start_workflow(Approval.run, id="a", task_queue=QUEUE)
        for _ in range(20):
            assert await handle.query(Approval.days) == 0
        await handle.describe()
    assert env.now() == began


async def test_a_result_that_is_there_moves_no_clock(env: WorkflowEnvironment) -> None:
    async with a_worker(env):
        await env.client.start_workflow(Sleeper.run, 400, id="later", task_queue=QUEUE)
        handle = await env.client.start_workflow(Sleeper.run, 1, id="sooner", task_queue=QUEUE)
        woke = await handle.result()
        assert await handle.result() == woke
    assert env.now() == woke


async def test_a_sleep_lets_exactly_its_time_pass(env: WorkflowEnvironment) -> None:
    began = env.now()
    await env.sleep(timedelta(days=3, milliseconds=7))
    assert env.now() == began + timedelta(days=3, milliseconds=7)
    await env.sleep(1.5)
    assert env.now() == began + timedelta(days=3, seconds=1.5, milliseconds=7)


async def test_time_does_not_go_back(env: WorkflowEnvironment) -> None:
    with pytest.raises(ValueError, match="does not go back"):
        await env.sleep(timedelta(seconds=-1))


async def test_what_becomes_due_in_a_sleep_has_happened_after_it(env: WorkflowEnvironment) -> None:
    async with a_worker(env):
        handle = await env.client.start_workflow(Approval.run, id="a", task_queue=QUEUE)
        await env.sleep(3 * DAY)
        assert await handle.query(Approval.days) == 3
        await env.sleep(DAY)
        assert await handle.query(Approval.days) == 4


async def test_a_signal_is_heard_at_its_moment(env: WorkflowEnvironment) -> None:
    began = env.now()
    async with a_worker(env):
        handle = await env.client.start_workflow(Approval.run, id="a", task_queue=QUEUE)
        await env.sleep(2.5 * DAY)
        await handle.signal(Approval.approve, "yes")
        assert await handle.result() == "yes"
        assert await handle.query(Approval.days) == 2
    assert env.now() == began + 2.5 * DAY


async def test_without_a_signal_the_workflow_gives_up_after_its_week(env: WorkflowEnvironment) -> None:
    began = env.now()
    async with a_worker(env):
        assert await env.client.execute_workflow(Approval.run, id="a", task_queue=QUEUE) == "given up"
    assert env.now() == began + 7 * DAY


async def test_whoever_waits_for_an_update_waits_for_time(env: WorkflowEnvironment) -> None:
    began = env.now()
    async with a_worker(env):
        handle = await env.client.start_workflow(Approval.run, id="a", task_queue=QUEUE)
        assert await handle.execute_update(Approval.think_it_over, 60) == 2
        assert env.now() == began + 2.5 * DAY
        update = await handle.start_update(Approval.think_it_over, 24)
        assert env.now() == began + 2.5 * DAY
        assert await update.result() == 3


async def test_whoever_follows_a_history_waits_for_time(env: WorkflowEnvironment) -> None:
    async with a_worker(env):
        handle = await env.client.start_workflow(Sleeper.run, 30, id="s", task_queue=QUEUE)
        told = [event["event_type"] async for event in handle.fetch_history_events(wait_new_event=True)]
    assert told[-1] == "WorkflowCompleted"


async def test_a_parent_hears_of_a_child_that_took_ten_days(env: WorkflowEnvironment) -> None:
    began = env.now()
    async with a_worker(env):
        assert await env.client.execute_workflow(Parent.run, id="p", task_queue=QUEUE) == began + 10 * DAY


async def test_a_cancelled_workflow_has_its_hour_to_clean_up(env: WorkflowEnvironment) -> None:
    began = env.now()
    async with a_worker(env):
        handle = await env.client.start_workflow(Careful.run, id="c", task_queue=QUEUE)
        await env.sleep(DAY)
        await handle.cancel()
        cleaned = (began + DAY + timedelta(hours=1)).isoformat()
        assert await handle.result() == f"cleaned up at {cleaned}"


async def test_a_monthly_loop_runs_for_ten_years(env: WorkflowEnvironment) -> None:
    began = env.now()
    async with a_worker(env):
        assert await env.client.execute_workflow(Monthly.run, 120, id="m", task_queue=QUEUE) == 1
    assert env.now() == began + 120 * 30 * DAY


async def test_a_run_timeout_is_met(env: WorkflowEnvironment) -> None:
    began = env.now()
    async with a_worker(env):
        handle = await env.client.start_workflow(
            Forever.run, id="f", task_queue=QUEUE, execution_timeout=timedelta(hours=6)
        )
        with pytest.raises(WorkflowFailureError) as failed:
            await handle.result()
    assert "timed out" in str(failed.value)
    assert env.now() == began + timedelta(hours=6)


async def test_where_skipping_is_disabled_only_sleeps_move_the_clock(env: WorkflowEnvironment) -> None:
    began = env.now()
    async with a_worker(env):
        handle = await env.client.start_workflow(Sleeper.run, 2, id="s", task_queue=QUEUE)
        with env.auto_time_skipping_disabled():
            waiting = asyncio.ensure_future(handle.result())
            await env.sleep(DAY)
            assert env.now() == began + DAY
            assert not waiting.done()
        assert await waiting == began + 2 * DAY


async def test_a_worker_is_still_there_after_years(env: WorkflowEnvironment) -> None:
    async with a_worker(env):
        handle = await env.client.start_workflow(Forever.run, id="f", task_queue=QUEUE)
        await env.sleep(3650 * DAY)
        await handle.signal(Forever.end)
        assert await handle.result() == "over"


# Waits in vain


async def test_a_wait_in_vain_is_told_what_the_workflow_waits_for(env: WorkflowEnvironment) -> None:
    async with a_worker(env):
        handle = await env.client.start_workflow(Forever.run, id="order-7", task_queue=QUEUE)
        with pytest.raises(NothingWillHappenError, match=r"'order-7'.* waits for a signal"):
            await handle.result()
        with pytest.raises(NothingWillHappenError):
            await handle.execute_update(Forever.wait)
        await handle.signal(Forever.end)
        assert await handle.result() == "over"


async def test_a_wait_without_a_worker_is_told_that_nobody_works(env: WorkflowEnvironment) -> None:
    handle = await env.client.start_workflow(Forever.run, id="f", task_queue="nobodys")
    with pytest.raises(NothingWillHappenError, match="nobodys"):
        await handle.result()


async def test_a_standalone_activity_without_a_worker_is_waited_for_in_vain(env: WorkflowEnvironment) -> None:
    handle = await env.client.start_activity("charge", id="c", task_queue="nobodys", result_type=str)
    with pytest.raises(NothingWillHappenError, match="activity 'c'"):
        await handle.result()


async def test_what_is_tried_for_ever_is_not_waited_for_for_ever() -> None:
    skipping = await WorkflowEnvironment.start_time_skipping(skips_max=50)
    async with skipping as env, a_worker(env, mocked(look_up, side_effect=RuntimeError("never"))):
        with pytest.raises(TooManySkipsError, match=r"skipped 50 times.*'l'.*maximum_attempts"):
            await env.client.execute_workflow(LookUp.run, "name", id="l", task_queue=QUEUE)
        await env.client.get_workflow_handle("l").terminate()
        assert await env.client.execute_workflow(Sleeper.run, 1, id="s", task_queue=QUEUE) == env.now()


async def test_somebody_who_acts_soon_is_waited_for() -> None:
    async with (
        await WorkflowEnvironment.start_time_skipping(patience=timedelta(seconds=30)) as env,
        a_worker(env),
    ):
        handle = await env.client.start_workflow(Forever.run, id="f", task_queue=QUEUE)
        waiting = asyncio.ensure_future(handle.result())
        await asyncio.to_thread(lambda: None)
        await handle.signal(Forever.end)
        assert await waiting == "over"


async def test_a_result_that_is_not_waited_for_any_longer_moves_no_clock(env: WorkflowEnvironment) -> None:
    began = env.now()
    handle = await env.client.start_workflow(
        Payment.run, "o", id="p", task_queue="nobodys", execution_timeout=DAY
    )
    with env.auto_time_skipping_disabled():
        waiting = asyncio.ensure_future(handle.result())
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.wait({waiting})
    await handle.describe()
    assert env.now() == began
