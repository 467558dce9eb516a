"""`ActivityEnvironment`: activities in users' tests."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest

from penstock.sdk import activity
from penstock.sdk.activities.environment import ActivityEnvironment
from penstock.sdk.failures import CancelledError


@activity.defn
async def count(to: int) -> int:
    for number in range(to):
        activity.heartbeat(number, activity.info().attempt)
    activity.report_cost(to)
    return to


@activity.defn
def count_in_thread(to: int) -> int:
    activity.heartbeat(to)
    return to


async def test_an_async_activity_is_awaited_and_its_heartbeats_are_heard():
    environment, heard = ActivityEnvironment(attempt=3), []
    environment.on_heartbeat = lambda *details: heard.append(details)
    assert await environment.run(count, 2) == 2
    assert heard == [(0, 3), (1, 3)]
    assert environment.cost == 2
    assert not activity.in_activity()


def test_a_plain_activity_is_called():
    environment, heard = ActivityEnvironment(), []
    environment.on_heartbeat = lambda *details: heard.append(details)
    assert environment.run(count_in_thread, 2) == 2
    assert heard == [(2,)]
    assert not activity.in_activity()


async def test_cancel_reaches_an_async_activity():
    environment, began = ActivityEnvironment(), asyncio.Event()

    @activity.defn
    async def work() -> str:
        began.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return f"cancelled: {activity.is_cancelled()}"
        return "not cancelled"

    running = asyncio.create_task(environment.run(work))
    await began.wait()
    environment.cancel()
    assert await running == "cancelled: True"


def test_cancel_reaches_an_activity_in_another_thread():
    environment, began = ActivityEnvironment(), threading.Event()

    @activity.defn
    def work() -> None:
        began.set()
        while True:
            time.sleep(0)

    def cancel() -> None:
        began.wait()
        environment.cancel()

    other = threading.Thread(target=cancel)
    other.start()
    with pytest.raises(CancelledError):
        environment.run(work)
    other.join()


async def test_a_shutdown_of_the_worker_is_told():
    environment = ActivityEnvironment()

    @activity.defn
    async def work() -> bool:
        await activity.wait_for_worker_shutdown()
        return activity.is_worker_shutdown()

    running = asyncio.create_task(environment.run(work))
    environment.worker_shutdown()
    assert await running is True


def test_an_object_that_can_be_called_is_run():
    class Caller:
        @activity.defn(name="call")
        def __call__(self, number: int) -> int:
            return number + activity.info().attempt

    assert ActivityEnvironment().run(Caller(), 1) == 2
