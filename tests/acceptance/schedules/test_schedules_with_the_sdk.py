"""The schedule calls of the unmodified public SDK against real servers."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from durable_workflow import Client
from durable_workflow.client import ScheduleAction, ScheduleSpec
from durable_workflow.errors import ScheduleAlreadyExists, ScheduleNotFound

from tests.acceptance.cluster import Cluster, until
from tests.acceptance.sdk import sdk_worker


@pytest.fixture
async def client(scene: Cluster) -> AsyncIterator[Client]:
    assert scene.namespace is not None
    async with sdk_worker.client_of(scene.first.url, scene.namespace) as made:
        yield made


async def test_every_schedule_call_of_the_sdk_works_unchanged(scene: Cluster, client: Client) -> None:
    (await scene.post("/api/search-attributes", {"name": "Team", "type": "keyword"})).expect(201)
    handle = await client.create_schedule(
        schedule_id="nightly",
        spec=ScheduleSpec(cron_expressions=["0 3 * * *"], timezone="Europe/Berlin"),
        action=ScheduleAction("report", task_queue="q", input=[1, "a"], run_timeout_seconds=60),
        overlap_policy="skip",
        jitter_seconds=0,
        max_runs=10,
        memo={"team": "x"},
        search_attributes={"Team": "x"},
        note="first",
    )
    assert handle.schedule_id == "nightly"
    with pytest.raises(ScheduleAlreadyExists):
        await client.create_schedule(
            schedule_id="nightly", spec=ScheduleSpec(cron_expressions=["@daily"]), action=ScheduleAction("r")
        )
    found = await handle.describe()
    assert (found.status, found.note, found.overlap_policy) == ("active", "first", "skip")
    assert (found.max_runs, found.remaining_actions, found.memo) == (10, 10, {"team": "x"})
    assert found.spec == {"cron_expressions": ["0 3 * * *"], "timezone": "Europe/Berlin"}
    assert found.action is not None
    assert found.action["workflow_type"] == "report"
    assert found.next_fire_at is not None

    await handle.pause(note="wait")
    assert (await client.describe_schedule("nightly")).status == "paused"
    listed = await client.list_schedules(status="paused", workflow_type="report", page_size=5)
    assert [each.schedule_id for each in listed.schedules] == ["nightly"]
    assert listed.next_page_token is None
    await handle.resume(note="go")
    await handle.update(spec=ScheduleSpec(intervals=[{"every": "PT12H"}]), note="second")
    assert (await handle.describe()).note == "second"

    fired = await handle.trigger()
    assert fired.outcome == "triggered"
    assert fired.workflow_id is not None
    described = await client.describe_workflow(fired.workflow_id)
    assert described.workflow_type == "report"
    again = await handle.trigger()
    assert (again.outcome, again.reason) == ("skipped", "overlap")
    window = {"start_time": "2026-01-01T00:00:00Z", "end_time": "2026-01-02T00:00:00Z"}
    filled = await handle.backfill(**window, overlap_policy="allow_all")
    assert (filled.outcome, filled.fires_attempted) == ("backfill_started", 2)
    assert filled.results is not None
    assert [each["outcome"] for each in filled.results] == ["started", "started"]

    await handle.delete()
    with pytest.raises(ScheduleNotFound):
        await handle.describe()
    page = await client.get_schedule_history("nightly", limit=2)
    assert page.has_more
    assert page.next_cursor == 2
    types = [event.event_type async for event in client.iter_schedule_history("nightly")]
    assert types == [
        "ScheduleCreated",
        "SchedulePaused",
        "ScheduleResumed",
        "ScheduleUpdated",
        "ScheduleTriggered",
        "ScheduleTriggerSkipped",
        "ScheduleTriggered",
        "ScheduleTriggered",
        "ScheduleDeleted",
    ]


async def test_a_schedule_fires_once_a_moment_on_any_number_of_servers(
    scene: Cluster, client: Client
) -> None:
    handle = await client.create_schedule(
        spec=ScheduleSpec(intervals=[{"every": "PT1S"}]),
        action=ScheduleAction("tick", task_queue="q"),
        overlap_policy="allow_all",
        max_runs=5,
    )

    async def is_over() -> bool:
        types = [event.event_type async for event in client.iter_schedule_history(handle.schedule_id)]
        return types[-1] == "ScheduleDeleted"

    await until(is_over)
    events = [event async for event in client.iter_schedule_history(handle.schedule_id)]
    fired = [event for event in events if event.event_type == "ScheduleTriggered"]
    moments = [(event.payload or {})["fire_time"] for event in fired]
    assert len(set(moments)) == len(moments) == 5
    runs = await scene.get("/api/workflows?workflow_type=tick&page_size=100")
    assert len(runs["workflows"]) == 5
