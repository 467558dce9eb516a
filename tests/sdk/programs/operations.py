"""Programs about operating runs: schedules, lists, batches, versions, resets, and testing."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from penstock import (
    Client,
    Replayer,
    Schedule,
    ScheduleActionStartWorkflow,
    ScheduleIntervalSpec,
    ScheduleOverlapPolicy,
    SchedulePolicy,
    ScheduleSpec,
    ScheduleState,
    SyncClient,
    WorkflowIDConflictPolicy,
    activity,
    workflow,
)
from penstock.client import ScheduleUpdate, ScheduleUpdateInput, WorkflowExecutionStatus
from penstock.failures import CancelledError, WorkflowFailureError
from penstock.testing import ActivityEnvironment, WorkflowEnvironment
from penstock.worker import Worker
from tests.sdk.programs.program import LONG, Home, program
from tests.sdk.server_fixtures import OPERATOR


@activity.defn
async def report(day: str) -> str:
    return f"report of {day}"


@workflow.defn
class Reporting:
    @workflow.run
    async def run(self, day: str) -> str:
        return await workflow.execute_activity(report, day, start_to_close_timeout=LONG)


async def until_fired(client: Client, schedule_id: str, count: int) -> str:
    handle = client.get_schedule_handle(schedule_id)
    while True:
        info = (await handle.describe()).info
        actions = [each.action for each in info.recent_actions if each.action is not None]
        if info.num_actions >= count and len(actions) >= count:
            return actions[0].workflow_id  # the newest
        await asyncio.sleep(0.05)


@program(workflows=[Reporting], activities=[report])
async def a_schedule_from_creation_to_deletion(home: Home) -> None:
    client = home.client
    handle = await client.create_schedule(
        home.name,
        Schedule(
            action=ScheduleActionStartWorkflow(Reporting.run, "Monday", task_queue=home.queue),
            spec=ScheduleSpec(intervals=[ScheduleIntervalSpec(every=timedelta(days=10))]),
            policy=SchedulePolicy(overlap=ScheduleOverlapPolicy.ALLOW_ALL),
            state=ScheduleState(note="made by a program", paused=True),
        ),
    )
    try:
        assert (await handle.describe()).schedule.state.paused
        await handle.unpause(note="go")
        await handle.trigger()
        started = await until_fired(client, home.name, 1)
        assert await client.get_workflow_handle(started, result_type=str).result() == "report of Monday"

        def for_tuesday(input: ScheduleUpdateInput) -> ScheduleUpdate:  # noqa: A002
            schedule = input.description.schedule
            assert isinstance(schedule.action, ScheduleActionStartWorkflow)
            schedule.action.args = ["Tuesday"]
            return ScheduleUpdate(schedule=schedule)

        await handle.update(for_tuesday)
        await handle.trigger()
        started = await until_fired(client, home.name, 2)
        assert await client.get_workflow_handle(started, result_type=str).result() == "report of Tuesday"
        assert home.name in [each.id async for each in client.list_schedules()]
    finally:
        await handle.delete()


@program(workflows=[Reporting])
async def cron_expressions(home: Home) -> None:
    spec = ScheduleSpec(cron_expressions=["0 12 * * MON"], time_zone_name="Europe/Vienna")
    action = ScheduleActionStartWorkflow(Reporting.run, "noon", task_queue=home.queue)
    handle = await home.client.create_schedule(home.name, Schedule(action=action, spec=spec))
    try:
        times = (await handle.describe()).info.next_action_times
        assert [each.weekday() for each in times[:2]] == [0, 0]
    finally:
        await handle.delete()


@workflow.defn
class Idle:
    @workflow.run
    async def run(self) -> None:
        await asyncio.Event().wait()


@program(workflows=[Idle])
async def lists_and_batches(home: Home) -> None:
    for number in range(3):
        await home.client.start_workflow(Idle.run, **home.how(f"-{number}"))
    query = f"WorkflowType = 'Idle' AND ExecutionStatus = 'Running' AND WorkflowId STARTS_WITH '{home.name}'"
    assert (await home.client.count_workflows(query)).count == 3
    found = [each.id async for each in home.client.list_workflows(query, page_size=2)]
    assert sorted(found) == [f"{home.name}-{number}" for number in range(3)]
    await home.client.cancel_workflows(query, reason="all of them")
    for each in found:
        handle = home.client.get_workflow_handle(each)
        with pytest.raises(WorkflowFailureError) as failed:
            await handle.result()
        assert isinstance(failed.value.cause, CancelledError)
        assert (await handle.describe()).status is WorkflowExecutionStatus.CANCELLED


@workflow.defn(name="Release")
class ReleaseBefore:
    @workflow.run
    async def run(self) -> str:
        await workflow.execute_activity(report, "before", start_to_close_timeout=LONG)
        return "before"


@workflow.defn(name="Release")
class ReleaseAfter:
    @workflow.run
    async def run(self) -> str:
        if workflow.patched("another report"):
            await workflow.execute_activity(report, "after", start_to_close_timeout=LONG)
            return "after"
        await workflow.execute_activity(report, "before", start_to_close_timeout=LONG)
        return "before"


@workflow.defn(name="Release")
class ReleaseBroken:
    @workflow.run
    async def run(self) -> str:
        await workflow.sleep(1)
        return "broken"


@program()
async def versions_are_replayed_before_a_release(home: Home) -> None:
    queue = f"{home.queue}-releases"
    for version, found in ((ReleaseBefore, "before"), (ReleaseAfter, "after")):
        async with Worker(home.client, task_queue=queue, workflows=[version], activities=[report]):
            handle = await home.client.start_workflow(
                version.run, id=f"{home.name}-{found}", task_queue=queue
            )
            assert await handle.result() == found
        history = await handle.fetch_history()
        assert Replayer(workflows=[ReleaseAfter]).replay(history).fits
        assert not Replayer(workflows=[ReleaseBroken]).replay(history).fits


@program()
async def builds_of_a_worker(home: Home) -> None:
    queue = f"{home.queue}-builds"
    async with (
        Worker(home.client, task_queue=queue, workflows=[ReleaseBefore], activities=[report], build_id="1"),
        Worker(home.client, task_queue=queue, workflows=[ReleaseAfter], activities=[report], build_id="2"),
    ):
        for build, found in (("1", "before"), ("2", "after")):
            handle = await home.client.start_workflow(
                "Release", id=f"{home.name}-{build}", task_queue=queue, build_id=build, result_type=str
            )
            assert await handle.result() == found
            assert (await handle.describe()).build_id == build


@program(workflows=[Reporting], activities=[report])
async def a_client_without_asyncio(home: Home) -> None:
    def use() -> str:
        with SyncClient.connect(
            home.scene.first.url, namespace=home.scene.namespace, token=OPERATOR
        ) as client:
            found: str = client.execute_workflow(Reporting.run, "Friday", **home.how())
            return found

    assert await asyncio.to_thread(use) == "report of Friday"


@program(workflows=[Idle])
async def what_a_start_does_with_an_id_in_use(home: Home) -> None:
    client, how = home.client, home.how()
    first = await client.start_workflow(Idle.run, **how)
    same = await client.start_workflow(
        Idle.run, id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING, **how
    )
    assert (same.is_new, same.result_run_id) == (False, first.result_run_id)
    other = await client.start_workflow(
        Idle.run, id_conflict_policy=WorkflowIDConflictPolicy.TERMINATE_EXISTING, **how
    )
    assert other.result_run_id != first.result_run_id
    chain = client.get_workflow_handle(home.name, first_execution_run_id=first.result_run_id)
    with pytest.raises(WorkflowFailureError, match="terminated"):
        await chain.result()
    await other.terminate()


@workflow.defn
class Yearly:
    @workflow.run
    async def run(self) -> str:
        await workflow.sleep(timedelta(days=365))
        return await workflow.execute_activity(report, "the year", start_to_close_timeout=LONG)


@program()
async def a_test_that_skips_a_year(home: Home) -> None:
    async with (
        await WorkflowEnvironment.start_time_skipping() as environment,
        Worker(environment.client, task_queue="q", workflows=[Yearly], activities=[report]),
    ):
        before = environment.now()
        found = await environment.client.execute_workflow(Yearly.run, id="year", task_queue="q")
        assert environment.now() - before >= timedelta(days=365)
    assert found == "report of the year"


@program()
async def an_activity_in_its_test_environment(home: Home) -> None:
    environment = ActivityEnvironment(activity_type="report", attempt=2)
    seen: list[object] = []
    environment.on_heartbeat = lambda *details: seen.extend(details)
    environment.client = home.client

    async def beats() -> str:
        activity.heartbeat(activity.info().attempt)
        try:
            await activity.wait_for_cancelled()
        except asyncio.CancelledError:
            pass
        details = activity.cancellation_details()
        assert details is not None
        assert activity.client() is home.client
        return f"requested: {details.cancel_requested}"

    running = asyncio.ensure_future(environment.run(beats))
    while not seen:
        await asyncio.sleep(0)
    environment.cancel()
    assert (await running, seen) == ("requested: True", [2])
