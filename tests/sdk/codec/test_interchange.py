"""Two SDKs on one server: each calls activities of the other, and values arrive unchanged."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Generator
from datetime import timedelta
from typing import Any

import durable_workflow
from durable_workflow import activity as their_activity
from durable_workflow import workflow as their_workflow
from durable_workflow.errors import ActivityFailed

from penstock import Client, RetryPolicy, Worker, activity, workflow
from penstock.sdk.failures import ActivityError, ApplicationError
from tests.acceptance.cluster import Cluster
from tests.acceptance.sdk import sdk_worker
from tests.sdk.server_fixtures import connected, new_namespace
from tests.support.patience import PATIENCE_S

OURS, THEIRS = "ours", "theirs"
VALUES: list[Any] = [None, True, 7, -2.5, "Grüße", [1, [2, {"deep": []}]], {"a": {"b": None}}]


@activity.defn(name="ours_echo")
async def ours_echo(value: Any) -> Any:
    return {"ours": value}


@activity.defn(name="ours_add")
def ours_add(left: int, right: int) -> int:
    return left + right


@activity.defn(name="ours_fails")
async def ours_fails() -> None:
    raise ApplicationError("ours is broken", type="OursBroke", non_retryable=True)


@their_activity.defn(name="theirs_echo")
async def theirs_echo(value: Any) -> Any:
    return {"theirs": value}


@their_activity.defn(name="theirs_fails")
async def theirs_fails() -> None:
    raise durable_workflow.NonRetryableError("theirs is broken")


@workflow.defn
class OursCallsTheirs:
    @workflow.run
    async def run(self, values: list[Any]) -> list[Any]:
        told = await asyncio.gather(
            *(workflow.execute_activity("theirs_echo", value, task_queue=THEIRS) for value in values)
        )
        try:
            await workflow.execute_activity(
                "theirs_fails",
                task_queue=THEIRS,
                retry_policy=RetryPolicy(maximum_attempts=2, initial_interval=timedelta(milliseconds=10)),
            )
        except ActivityError as error:
            return [*told, str(error.cause)]
        return []


@their_workflow.defn(name="theirs_calls_ours")
class TheirsCallsOurs:
    def run(self, ctx: Any, values: list[Any]) -> Generator[Any, Any, Any]:
        told = yield [ctx.schedule_activity("ours_echo", [value], queue=OURS) for value in values]
        total = yield ctx.schedule_activity("ours_add", [20, 22], queue=OURS)
        try:
            yield ctx.schedule_activity("ours_fails", [], queue=OURS)
        except ActivityFailed as error:
            return [*told, total, str(error)]
        return []


@contextlib.asynccontextmanager
async def their_worker(client: durable_workflow.Client) -> AsyncIterator[None]:
    worker = durable_workflow.Worker(
        client,
        task_queue=THEIRS,
        workflows=[TheirsCallsOurs],
        activities=[theirs_echo, theirs_fails],
        poll_timeout=1.0,
        shutdown_timeout=5.0,
    )
    running = asyncio.create_task(worker.run())
    try:
        yield
    finally:
        await worker.stop()
        await running


async def test_workflows_of_each_sdk_call_activities_of_the_other(cluster: Cluster) -> None:
    place = await new_namespace(cluster)
    assert place.namespace is not None
    async with (
        await connected(place) as ours,
        sdk_worker.client_of(place.first.url, place.namespace) as theirs,
        Worker(
            ours,
            task_queue=OURS,
            workflows=[OursCallsTheirs],
            activities=[ours_echo, ours_add, ours_fails],
        ),
        their_worker(theirs),
    ):
        told, answered = await asyncio.gather(_ours(ours), _theirs(theirs))
    assert told[:-1] == [{"theirs": value} for value in VALUES]
    assert "theirs is broken" in told[-1]
    assert answered[:-2] == [{"ours": value} for value in VALUES]
    assert answered[-2] == 42
    assert "ours is broken" in answered[-1]


async def _ours(client: Client) -> list[Any]:
    result: list[Any] = await client.execute_workflow(
        OursCallsTheirs.run, VALUES, id="ours-calls-theirs", task_queue=OURS
    )
    return result


async def _theirs(client: durable_workflow.Client) -> list[Any]:
    handle = await client.start_workflow(
        workflow_type="theirs_calls_ours",
        task_queue=THEIRS,
        workflow_id="theirs-calls-ours",
        input=[VALUES],
    )
    result: list[Any] = await handle.result(timeout=PATIENCE_S)
    return result
