"""Attempts of activities on Temporal: where they failed, how they end with their worker, and what is refused."""

from __future__ import annotations

import asyncio
import threading
from datetime import timedelta
from typing import Any

import pytest

from penstock import Client, Penstock, RetryPolicy, Worker, activity, workflow
from penstock.failures import ActivityError, ActivityFailureError, ApplicationError, WorkflowFailureError
from penstock.sdk.worker.metrics import WorkerMetrics
from tests.support.patience import PATIENCE, PATIENCE_S
from tests.support.temporal import TemporalServer

ONCE = RetryPolicy(maximum_attempts=1)
ENDED: list[str] = []
BEGAN = asyncio.Event()
THREAD_BEGAN = threading.Event()


@activity.defn
async def fails_inside() -> None:
    def the_line_of_the_user() -> None:
        raise ValueError("inside")

    the_line_of_the_user()


@activity.defn
async def costly() -> None:
    activity.report_cost(3)


@activity.defn
async def until_shutdown() -> str:
    BEGAN.set()
    await activity.wait_for_worker_shutdown()
    ENDED.append("async")
    return "put away"


@activity.defn
def thread_until_shutdown() -> str:
    THREAD_BEGAN.set()
    activity.wait_for_worker_shutdown_sync(PATIENCE_S)
    ENDED.append("thread")
    return "put away"


@activity.defn
async def polls_for_cancellation() -> None:
    while not activity.is_cancelled():
        activity.heartbeat()
        await asyncio.sleep(0.02)


@activity.defn(auto_heartbeat=timedelta(milliseconds=50))
async def waits_for_cancellation() -> None:
    await asyncio.shield(activity.wait_for_cancelled())


@activity.defn(auto_heartbeat=timedelta(milliseconds=50))
def waits_in_a_thread() -> None:
    with activity.shield_thread_cancel_exception():
        activity.wait_for_cancelled_sync(PATIENCE_S)


@workflow.defn
class Cancels:
    @workflow.run
    async def run(self) -> list[str]:
        how = workflow.ActivityCancellationType.WAIT_CANCELLATION_COMPLETED
        found: list[str] = []
        for each in (polls_for_cancellation, waits_for_cancellation, waits_in_a_thread):
            handle = workflow.start_activity(each, heartbeat_timeout=PATIENCE, cancellation_type=how)
            await workflow.sleep(0.2)
            handle.cancel()
            try:
                await handle
            except ActivityError as error:
                found.append(str(error.retry_state))
        return found


@workflow.defn
class CallsIt:
    @workflow.run
    async def run(self) -> None:
        await workflow.execute_activity(fails_inside, retry_policy=ONCE)


async def stacks_of(client: Client, queue: str, *, report_tracebacks: bool) -> list[str]:
    """Run a workflow that fails by an activity, and return the recorded tracebacks, outermost first."""
    async with Worker(
        client,
        task_queue=queue,
        workflows=[CallsIt],
        activities=[fails_inside],
        report_tracebacks=report_tracebacks,
    ):
        handle = await client.start_workflow(CallsIt, task_queue=queue)
        with pytest.raises(WorkflowFailureError):
            await handle.result(timeout=PATIENCE_S)
    [closed] = [
        each for each in (await handle.fetch_history()).events if each["event_type"] == "WorkflowFailed"
    ]
    failure: Any = closed["payload"]["failure"]
    found = []
    while failure is not None:
        found.append(failure.get("stackTrace", ""))
        failure = failure.get("cause")
    return found


async def test_a_failure_shows_the_lines_of_the_user_and_not_those_of_the_engine(
    temporal_client: Client,
) -> None:
    of_workflow, of_activity = await stacks_of(temporal_client, "stacks", report_tracebacks=True)
    assert "workflow.execute_activity(fails_inside" in of_workflow
    assert "the_line_of_the_user()" in of_activity
    assert "penstock/engines" not in of_workflow + of_activity


async def test_tracebacks_stay_on_the_worker_if_it_says_so(temporal_client: Client) -> None:
    assert await stacks_of(temporal_client, "no-stacks", report_tracebacks=False) == ["", ""]


async def test_activities_see_their_cancellation(temporal_client: Client) -> None:
    async with Worker(
        temporal_client,
        task_queue="cancels",
        workflows=[Cancels],
        activities=[polls_for_cancellation, waits_for_cancellation, waits_in_a_thread],
        max_heartbeat_throttle_interval=timedelta(milliseconds=100),
    ):
        found = await temporal_client.execute_workflow(Cancels, task_queue="cancels")
    assert found == ["cancel_requested"] * 3


async def test_activities_see_the_shutdown_of_their_worker(temporal_client: Client) -> None:
    calls = [until_shutdown, thread_until_shutdown]
    worker = Worker(
        temporal_client,
        task_queue="leaving",
        activities=calls,
        graceful_shutdown_timeout=timedelta(seconds=PATIENCE_S),
    )
    async with worker:
        handles = [await temporal_client.start_activity(each, task_queue="leaving") for each in calls]
        async with asyncio.timeout(PATIENCE_S):
            await BEGAN.wait()
            await asyncio.to_thread(THREAD_BEGAN.wait, PATIENCE_S)
    assert sorted(ENDED) == ["async", "thread"]
    assert [await each.result(timeout=PATIENCE_S) for each in handles] == ["put away"] * 2


async def test_a_reported_cost_is_refused(temporal_client: Client) -> None:
    async with Worker(temporal_client, task_queue="costs", activities=[costly]):
        handle = await temporal_client.start_activity(costly, task_queue="costs", retry_policy=ONCE)
        with pytest.raises(ActivityFailureError) as failure:
            await handle.result(timeout=PATIENCE_S)
    assert isinstance(failure.value.cause, ApplicationError)
    assert failure.value.cause.type == "NotOnThisEngineError"


async def test_a_task_sent_again_with_its_key_is_the_same_task(temporal: TemporalServer) -> None:
    app = Penstock("keyed", temporal.url, queue="keyed")

    @app.task
    async def count() -> int:
        ENDED.append("counted")
        return ENDED.count("counted")

    once = count.with_options(idempotency_key="order-7")
    first, second = await once.send(), await once.send()
    client = await app.client()
    async with Worker(client, task_queue="keyed", activities=[count]):
        assert [await each.result(timeout=PATIENCE_S) for each in (first, second)] == [1, 1]
    await app.close()


async def test_metrics_of_a_worker_are_refused(temporal_client: Client) -> None:
    class Counts(WorkerMetrics):
        def count(self, name: str, by: int = 1, **labels: str) -> None: ...
        def timing(self, name: str, seconds: float, **labels: str) -> None: ...
        def level(self, name: str, value: float, **labels: str) -> None: ...

    worker = Worker(temporal_client, task_queue="q", activities=[costly], metrics=Counts())
    with pytest.raises(Exception, match="metrics of a worker is not available on Temporal"):
        await worker.run()
