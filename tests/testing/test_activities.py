"""Activities with time skipping: running ones hold the clock, those that sleep on it do not."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

from penstock import Worker, activity
from penstock.sdk.failures import WorkflowFailureError
from penstock.testing import WorkflowEnvironment, mocked
from tests.testing.flows import (
    DAY,
    MINUTE,
    QUEUE,
    LookUp,
    Payment,
    Sleeper,
    Unwatched,
    Watched,
    a_worker,
    charge,
    look_up,
    work,
)

HOUR = timedelta(hours=1)


async def test_the_pauses_between_retries_are_skipped(env: WorkflowEnvironment) -> None:
    began = env.now()
    tries: list[timedelta] = []

    def declined(order: str, cents: int) -> str:
        tries.append(env.now() - began)
        if len(tries) < 4:
            raise RuntimeError("declined")
        return "paid at last"

    async with a_worker(env, mocked(charge, side_effect=declined)):
        assert await env.client.execute_workflow(Payment.run, "o", id="p", task_queue=QUEUE) == "paid at last"
    assert tries == [0 * HOUR, 1 * HOUR, 3 * HOUR, 7 * HOUR]


async def test_retries_that_are_used_up_fail_the_workflow(env: WorkflowEnvironment) -> None:
    declined = mocked(charge, side_effect=RuntimeError("declined"))
    async with a_worker(env, declined):
        with pytest.raises(WorkflowFailureError):
            await env.client.execute_workflow(Payment.run, "o", id="p", task_queue=QUEUE)
    assert declined.calls == [("o", 5)] * 4


async def test_an_activity_that_runs_holds_the_clock(env: WorkflowEnvironment) -> None:
    began = env.now()
    runs, may_end = asyncio.Event(), asyncio.Event()

    async def slow() -> str:
        runs.set()
        await may_end.wait()
        return f"{env.now() - began}"

    async with a_worker(env, mocked(work, side_effect=slow)):
        sleeper = asyncio.ensure_future(env.client.execute_workflow(Sleeper.run, 1, id="s", task_queue=QUEUE))
        held = asyncio.ensure_future(env.client.execute_workflow(Unwatched.run, id="u", task_queue=QUEUE))
        await runs.wait()
        for _ in range(500):
            await asyncio.sleep(0)
        assert env.now() == began
        assert not sleeper.done()
        may_end.set()
        assert await held == "0:00:00"
        assert await sleeper == began + DAY


async def test_an_activity_in_a_thread_holds_the_clock(env: WorkflowEnvironment) -> None:
    began = env.now()
    async with a_worker(env, look_up):
        slept, found = await asyncio.gather(
            env.client.execute_workflow(Sleeper.run, 1, id="s", task_queue=QUEUE),
            env.client.execute_workflow(LookUp.run, "four", id="l", task_queue=QUEUE),
        )
    assert (slept, found) == (began + DAY, 4)


async def test_an_activity_that_sleeps_by_the_clock_takes_its_time(env: WorkflowEnvironment) -> None:
    began = env.now()

    async def slow() -> str:
        await env.sleep(3 * DAY)
        return "slow"

    async with a_worker(env, mocked(work, side_effect=slow)):
        assert await env.client.execute_workflow(Unwatched.run, id="u", task_queue=QUEUE) == "slow"
    assert env.now() == began + 3 * DAY


async def test_activities_that_sleep_by_the_clock_take_turns_where_there_is_room_for_one(
    env: WorkflowEnvironment,
) -> None:
    began = env.now()

    async def slow() -> str:
        await env.sleep(DAY)
        return "slow"

    worker = Worker(
        env.client,
        task_queue=QUEUE,
        workflows=[Unwatched],
        activities=[mocked(work, side_effect=slow)],
        max_concurrent_activity_tasks=1,
    )
    async with worker:
        await asyncio.gather(
            *(env.client.execute_workflow(Unwatched.run, id=f"u-{n}", task_queue=QUEUE) for n in range(3))
        )
    assert env.now() == began + 3 * DAY


async def test_an_activity_that_does_not_heartbeat_is_tried_again(env: WorkflowEnvironment) -> None:
    began = env.now()
    tries: list[tuple[int, timedelta]] = []

    async def silent() -> str:
        tries.append((activity.info().attempt, env.now() - began))
        if len(tries) == 1:
            await env.sleep(HOUR)
        return "heard"

    async with a_worker(env, mocked(work, side_effect=silent)):
        assert await env.client.execute_workflow(Watched.run, id="w", task_queue=QUEUE) == "heard"
    assert tries == [(1, timedelta(0)), (2, timedelta(seconds=31))]


async def test_heartbeats_keep_an_activity_for_an_hour(env: WorkflowEnvironment) -> None:
    began = env.now()

    async def steady() -> str:
        for number in range(240):
            activity.heartbeat(number)
            await env.sleep(timedelta(seconds=15))
        return "an hour"

    steady_work = mocked(work, side_effect=steady)
    async with a_worker(env, steady_work):
        assert await env.client.execute_workflow(Watched.run, id="w", task_queue=QUEUE) == "an hour"
    assert env.now() == began + HOUR
    assert len(steady_work.calls) == 1


async def test_what_was_told_last_is_known_to_the_next_attempt(env: WorkflowEnvironment) -> None:
    async def silent_at_last() -> str:
        if activity.info().attempt == 1:
            activity.heartbeat("page 7")
            await env.sleep(HOUR)
        return f"{activity.info().heartbeat_details[0]}"

    async with a_worker(env, mocked(work, side_effect=silent_at_last)):
        assert await env.client.execute_workflow(Watched.run, id="w", task_queue=QUEUE) == "page 7"


async def test_an_activity_that_takes_too_long_is_ended_at_its_time(env: WorkflowEnvironment) -> None:
    began = env.now()

    async def endless(order: str, cents: int) -> str:
        await env.sleep(DAY)
        return "never"

    tried = mocked(charge, side_effect=endless)
    async with a_worker(env, tried):
        with pytest.raises(WorkflowFailureError):
            await env.client.execute_workflow(Payment.run, "o", id="p", task_queue=QUEUE)
    assert len(tried.calls) == 4
    assert env.now() == began + 4 * MINUTE + 7 * HOUR


async def test_an_activity_that_nobody_takes_is_waited_for_until_its_time_is_over(
    env: WorkflowEnvironment,
) -> None:
    began = env.now()
    handle = await env.client.start_activity(
        charge, args=["o", 5], id="c", task_queue="nobodys", schedule_to_close_timeout=DAY
    )
    with pytest.raises(Exception, match="c"):
        await handle.result()
    assert env.now() == began + DAY


async def test_a_limit_on_starts_per_minute_is_waited_for() -> None:
    async with await WorkflowEnvironment.start_time_skipping(
        start_time=datetime(2030, 1, 1, tzinfo=UTC),
        settings={"DW_ACTIVITY_TASK_MAX_DISPATCHES_PER_MINUTE": "2"},
    ) as limited:
        began = limited.now()
        paid = mocked(charge, returns="paid")
        async with a_worker(limited, paid):
            await asyncio.gather(
                *(
                    limited.client.execute_workflow(Payment.run, f"o-{n}", id=f"p-{n}", task_queue=QUEUE)
                    for n in range(5)
                )
            )
        assert len(paid.calls) == 5
        assert limited.now() == began + 2 * MINUTE
