"""Activities of a real worker on a real server."""

from __future__ import annotations

import asyncio
import itertools
import os
import signal
import threading
import time
from concurrent.futures import ProcessPoolExecutor
from datetime import timedelta
from pathlib import Path

import pytest

from penstock.sdk import activity, workflow
from penstock.sdk.clients.operations.async_activity import AsyncActivityCancelledError
from penstock.sdk.failures import (
    ActivityFailureError,
    ApplicationError,
    CancelledError,
    ServerRefused,
    WorkflowFailureError,
)
from penstock.sdk.retry import RetryPolicy
from penstock.sdk.worker import Worker
from tests.sdk.activities import activities_in_processes as these

QUEUE = "q"
AT_ONCE = RetryPolicy(initial_interval=timedelta(0), maximum_attempts=3)
_ids = itertools.count(1)


def new_id() -> str:
    return f"a-{next(_ids)}"


async def test_the_next_attempt_finds_what_the_last_heartbeat_told(client):
    @activity.defn
    async def count() -> list[object]:
        found = list(activity.info().heartbeat_details)
        for number in range(10):
            activity.heartbeat({"done": number}, activity.info().attempt)
        if activity.info().attempt == 1:
            raise ApplicationError("once")
        return found

    async with Worker(client, task_queue=QUEUE, activities=[count]):
        found = await client.execute_activity(count, id=new_id(), task_queue=QUEUE, retry_policy=AT_ONCE)
    assert found == [{"done": 9}, 1]


async def test_the_idempotency_key_is_the_same_for_all_attempts(client):
    keys: list[str] = []

    @activity.defn
    def pay() -> None:
        keys.append(activity.info().idempotency_key)
        if activity.info().attempt < 3:
            raise ApplicationError("again")

    async with Worker(client, task_queue=QUEUE, activities=[pay]):
        for _ in range(2):
            await client.execute_activity(pay, id=new_id(), task_queue=QUEUE, retry_policy=AT_ONCE)
    assert len(keys) == 6
    assert len(set(keys[:3])) == len(set(keys[3:])) == 1
    assert keys[0] != keys[3]


@pytest.mark.parametrize("runs_in", ["loop", "thread"])
async def test_an_activity_that_is_cancelled_hears_it_with_its_next_heartbeat(client, runs_in):
    began, stopped = threading.Event(), threading.Event()

    @activity.defn(name="work", auto_heartbeat=timedelta(milliseconds=20))
    async def work() -> None:
        began.set()
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()

    @activity.defn(name="work", auto_heartbeat=timedelta(milliseconds=20))
    def work_in_thread() -> None:
        try:
            began.set()
            while True:
                time.sleep(0.001)
        except CancelledError:
            stopped.set()

    function = work if runs_in == "loop" else work_in_thread
    async with Worker(client, task_queue=QUEUE, activities=[function]):
        handle = await client.start_activity("work", id=new_id(), task_queue=QUEUE)
        await asyncio.to_thread(began.wait)
        await handle.cancel()
        await asyncio.to_thread(stopped.wait)
        with pytest.raises(ActivityFailureError) as ended:
            await handle.result()
    assert isinstance(ended.value.cause, CancelledError)


async def test_a_process_that_is_killed_costs_one_attempt(client, tmp_path: Path):
    async with Worker(client, task_queue=QUEUE, activities=[these.die_until]):
        pid = await client.execute_activity(
            these.die_until, str(tmp_path / "died"), id=new_id(), task_queue=QUEUE, retry_policy=AT_ONCE
        )
    assert (tmp_path / "died").exists()
    assert pid != os.getpid()


async def test_the_death_of_a_process_is_told_to_who_waits(client):
    async with Worker(client, task_queue=QUEUE, activities=[these.die]):
        once = RetryPolicy(maximum_attempts=1)
        with pytest.raises(ActivityFailureError) as ended:
            await client.execute_activity(these.die, "kill", id=new_id(), task_queue=QUEUE, retry_policy=once)
    cause = ended.value.cause
    assert isinstance(cause, ApplicationError)
    assert cause.type == "WORKER_CRASHED"
    assert signal.SIGKILL.name in cause.message


async def test_an_activity_that_its_worker_had_to_leave_is_run_by_another_and_no_attempt_is_charged(client):
    began = asyncio.Event()

    @activity.defn
    async def work() -> int:
        if not began.is_set():
            began.set()
            await asyncio.Event().wait()
        return activity.info().attempt

    async with Worker(client, task_queue=QUEUE, activities=[work]):
        handle = await client.start_activity(work, id=new_id(), task_queue=QUEUE)
        await began.wait()
    async with Worker(client, task_queue=QUEUE, activities=[work]):
        assert await handle.result() == 1


async def test_a_timeout_below_a_second_is_kept_by_the_worker(client):
    stopped = asyncio.Event()

    @activity.defn
    async def work() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()

    limit = timedelta(milliseconds=300)
    async with Worker(client, task_queue=QUEUE, activities=[work]):
        handle = await client.start_activity(
            work,
            id=new_id(),
            task_queue=QUEUE,
            start_to_close_timeout=limit,
            retry_policy=RetryPolicy(maximum_attempts=1),
        )
        await stopped.wait()
        with pytest.raises(ActivityFailureError):
            await handle.result()


async def test_activities_are_completed_and_failed_by_others_and_leave_their_slots(client):
    tokens: asyncio.Queue[str] = asyncio.Queue()
    loop = asyncio.get_running_loop()

    @activity.defn
    async def approve() -> str:
        if not activity.info().heartbeat_details:
            tokens.put_nowait(activity.info().task_token)
            activity.raise_complete_async()
        return str(activity.info().heartbeat_details[0])

    @activity.defn
    def approve_in_a_thread() -> str:
        loop.call_soon_threadsafe(tokens.put_nowait, activity.info().task_token)
        activity.raise_complete_async()

    started = {"task_queue": QUEUE, "retry_policy": AT_ONCE}
    async with Worker(
        client, task_queue=QUEUE, activities=[approve, approve_in_a_thread], max_concurrent_activities=1
    ):
        first = await client.start_activity(approve, id=new_id(), **started)
        by_token = client.get_async_activity_handle(task_token=await tokens.get())
        second = await client.start_activity(approve_in_a_thread, id=new_id(), **started)
        await tokens.get()
        by_id = client.get_async_activity_handle(activity_id=second.id)
        await by_token.heartbeat("half")
        await by_token.complete("yes")
        await by_id.complete("no")
        assert (await first.result(), await second.result()) == ("yes", "no")

        third = await client.start_activity(approve, id=new_id(), **started)
        failing = client.get_async_activity_handle(task_token=await tokens.get())
        await failing.fail(ApplicationError("not now"), last_heartbeat_details=["kept"])
        assert await third.result() == "kept"
        with pytest.raises(ServerRefused):
            await failing.complete("late")


@workflow.defn
class Approval:
    @workflow.run
    async def run(self) -> str:
        approved: str = await workflow.execute_activity(
            "approve",
            start_to_close_timeout=timedelta(minutes=5),
            cancellation_type=workflow.ActivityCancellationType.WAIT_CANCELLATION_COMPLETED,
            result_type=str,
        )
        return approved


async def test_an_activity_that_left_its_worker_is_told_to_stop_and_reports_it(client):
    tokens: asyncio.Queue[str] = asyncio.Queue()

    @activity.defn
    async def approve() -> str:
        tokens.put_nowait(activity.info().task_token)
        activity.raise_complete_async()

    async with Worker(client, task_queue=QUEUE, activities=[approve], workflows=[Approval]):
        handle = await client.start_workflow(Approval.run, id=new_id(), task_queue=QUEUE)
        waiting = client.get_async_activity_handle(task_token=await tokens.get())
        await handle.cancel()
        with pytest.raises(AsyncActivityCancelledError):
            while True:
                await waiting.heartbeat()
        await waiting.report_cancellation("as asked")
        with pytest.raises(WorkflowFailureError):
            await handle.result()
        types = [event["event_type"] for event in (await handle.fetch_history()).events]
        assert "ActivityCancelled" in types


@activity.defn
def process_id() -> int:
    return os.getpid()


async def test_a_pool_of_processes_runs_sync_activities_in_processes_and_async_ones_in_the_worker(client):
    @activity.defn
    async def own_process_id() -> int:
        return os.getpid()

    with ProcessPoolExecutor(1) as pool:
        async with Worker(
            client, task_queue=QUEUE, activities=[process_id, own_process_id], activity_executor=pool
        ):
            moved = await client.execute_activity(process_id, id=new_id(), task_queue=QUEUE)
            stayed = await client.execute_activity(own_process_id, id=new_id(), task_queue=QUEUE)
    assert stayed == os.getpid() != moved
