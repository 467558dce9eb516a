"""Schedules on a Temporal cluster: made, described, listed, changed and backfilled as on our engine."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from temporalio import client as tc
from temporalio.common import RetryPolicy as TemporalRetryPolicy

from penstock import Client, Worker, workflow
from penstock.client import (
    Schedule,
    ScheduleActionStartWorkflow,
    ScheduleBackfill,
    ScheduleCalendarSpec,
    ScheduleDescription,
    ScheduleHandle,
    ScheduleIntervalSpec,
    ScheduleOverlapPolicy,
    SchedulePolicy,
    ScheduleRange,
    ScheduleSpec,
    ScheduleState,
    ScheduleUpdate,
    ScheduleUpdateInput,
)
from penstock.failures import (
    ApplicationError,
    NotOnThisEngineError,
    ScheduleAlreadyRunningError,
    ScheduleNotFoundError,
    ServerRefused,
)
from penstock.sdk.priority import Priority
from tests.support.patience import PATIENCE_S
from tests.support.temporal import TemporalServer

DAY = timedelta(days=1)
NEW_YEAR = datetime(2026, 1, 1, tzinfo=UTC)


@workflow.defn
class Hello:
    @workflow.run
    async def run(self, name: str) -> str:
        return f"hello {name}"


async def test_a_schedule_starts_workflows(temporal_client: Client) -> None:
    schedule = Schedule(
        action=ScheduleActionStartWorkflow(Hello, "ada", task_queue="scheduled"),
        spec=ScheduleSpec(
            intervals=[ScheduleIntervalSpec(every=timedelta(days=1))],
            calendars=[ScheduleCalendarSpec(hour=[ScheduleRange(3)])],
            time_zone_name="Europe/Berlin",
        ),
    )
    async with Worker(temporal_client, task_queue="scheduled", workflows=[Hello]):
        handle = await temporal_client.create_schedule("daily", schedule)
        with pytest.raises(ScheduleAlreadyRunningError):
            await temporal_client.create_schedule("daily", schedule)
        await handle.pause(note="wait")
        await handle.unpause()
        assert (await handle.trigger()).outcome == "triggered"
        async with asyncio.timeout(PATIENCE_S):
            while not (
                runs := [each async for each in temporal_client.list_workflows("WorkflowType = 'Hello'")]
            ):
                await asyncio.sleep(0.05)
        assert runs[0].id.startswith("daily-")
        assert await temporal_client.get_workflow_handle(runs[0].id).result(timeout=PATIENCE_S) == "hello ada"
        await handle.delete()
    with pytest.raises(ScheduleNotFoundError):
        await handle.pause()


@workflow.defn
class Fails:
    @workflow.run
    async def run(self) -> None:
        raise ApplicationError("no", non_retryable=True)


def daily(**changes: Any) -> Schedule:
    """A schedule that fires at midnight, with parts of its own."""
    action = ScheduleActionStartWorkflow(Hello, "ada", task_queue="unserved")
    return replace(Schedule(action, ScheduleSpec(intervals=[ScheduleIntervalSpec(DAY)])), **changes)


async def described_when(
    handle: ScheduleHandle, is_so: Callable[[ScheduleDescription], bool]
) -> ScheduleDescription:
    """The first description of which this holds."""
    async with asyncio.timeout(PATIENCE_S):
        while not is_so(found := await handle.describe()):
            await asyncio.sleep(0.05)
    return found


async def test_a_schedule_is_described_as_it_was_created(temporal_client: Client) -> None:
    schedule = Schedule(
        action=ScheduleActionStartWorkflow(
            "Report",
            args=["all", {"pages": 2}],
            task_queue="reports",
            execution_timeout=timedelta(hours=2),
            run_timeout=timedelta(hours=1),
            memo={"owner": "ada"},
            search_attributes={"Customer": "acme", "Amount": 3},
            priority=Priority(priority_key=2, fairness_key="acme", fairness_weight=1.5),
        ),
        spec=ScheduleSpec(
            calendars=[
                ScheduleCalendarSpec(
                    hour=[ScheduleRange(3)], minute=[ScheduleRange(0, 50, 10)], comment="at night"
                )
            ],
            intervals=[ScheduleIntervalSpec(timedelta(hours=6), timedelta(minutes=5))],
            skip=[ScheduleCalendarSpec(day_of_week=[ScheduleRange(0)], hour=[ScheduleRange(0, 23)])],
            start_at=NEW_YEAR,
            end_at=datetime(2100, 1, 1, tzinfo=UTC),
            jitter=timedelta(seconds=30),
            time_zone_name="Europe/Berlin",
        ),
        policy=SchedulePolicy(
            overlap=ScheduleOverlapPolicy.BUFFER_ALL,
            catchup_window=timedelta(minutes=20),
            pause_on_failure=True,
        ),
        state=ScheduleState(note="slow", limited_actions=True, remaining_actions=7),
    )
    handle = await temporal_client.create_schedule("as-created", schedule)
    found = await handle.describe()
    assert (found.id, found.namespace) == ("as-created", "default")
    assert found.schedule.spec == schedule.spec
    assert found.schedule.policy == schedule.policy
    assert found.schedule.state == schedule.state
    converter = temporal_client.data_converter
    assert found.schedule.action.on_the_wire(converter, None) == schedule.action.on_the_wire(converter, None)
    assert found.info.num_actions == found.info.num_actions_failed == found.info.num_actions_skipped == 0
    assert len(found.info.next_action_times) == 7  # one for each start that is left
    assert any("6 hours" in each for each in found.info.in_words)
    await handle.pause(note="wait")
    paused = await handle.describe()
    assert (paused.schedule.state.paused, paused.schedule.state.note) == (True, "wait")
    assert paused.info.next_action_times == []
    assert paused.version > found.version
    await handle.delete()
    with pytest.raises(ScheduleNotFoundError):
        await handle.describe()


async def test_cron_expressions_come_back_as_calendars(temporal_client: Client) -> None:
    spec = ScheduleSpec(cron_expressions=["30 2 * * MON"])
    handle = await temporal_client.create_schedule("cron", daily(spec=spec))
    found = (await handle.describe()).schedule.spec
    assert found.cron_expressions == []
    [calendar] = found.calendars
    assert (calendar.minute, calendar.hour, calendar.day_of_week) == (
        [ScheduleRange(30)],
        [ScheduleRange(2)],
        [ScheduleRange(1)],
    )
    await handle.delete()


@pytest.mark.parametrize("overlap", [ScheduleOverlapPolicy.SKIP, ScheduleOverlapPolicy.ALLOW_ALL])
async def test_fires_and_failures_are_counted(
    temporal_client: Client, overlap: ScheduleOverlapPolicy
) -> None:
    name = f"it's {overlap}"
    action = ScheduleActionStartWorkflow(Fails, task_queue="failing")
    handle = await temporal_client.create_schedule(
        name, daily(action=action, policy=SchedulePolicy(overlap=overlap)), trigger_immediately=True
    )
    found = await described_when(handle, lambda each: each.info.num_actions_running == 1)
    assert [each.outcome for each in found.info.recent_actions] == ["started"]
    async with Worker(temporal_client, task_queue="failing", workflows=[Fails]):
        await described_when(handle, lambda each: each.info.num_actions_failed == 1)
        found = await described_when(handle, lambda each: each.info.recent_actions[0].outcome == "closed")
    [fire] = found.info.recent_actions
    assert (found.info.num_actions, fire.reason, fire.trigger) == (1, "failed", None)
    assert fire.action is not None
    assert fire.action.workflow_id.startswith(f"{name}-")
    assert (found.info.running_actions, found.info.num_actions_running) == ([], 0)
    await handle.delete()


async def test_the_failed_runs_of_an_id_with_a_backslash_are_not_counted(temporal_client: Client) -> None:
    handle = await temporal_client.create_schedule("ends with \\", daily())
    assert (await handle.describe()).info.num_actions_failed == 0
    await handle.delete()


async def test_an_open_run_is_reported_and_fires_beside_it_are_skipped(temporal_client: Client) -> None:
    handle = await temporal_client.create_schedule("overlaps", daily(), trigger_immediately=True)
    found = await described_when(handle, lambda each: each.info.num_actions_running == 1)
    [run] = found.info.running_actions
    await handle.trigger()
    found = await described_when(handle, lambda each: each.info.num_actions_skipped_overlap == 1)
    assert (found.info.num_actions, found.info.num_actions_skipped) == (1, 1)
    await handle.delete()
    await temporal_client.get_workflow_handle(run.workflow_id).terminate()


async def test_an_update_changes_what_its_function_changed_and_nothing_else(temporal_client: Client) -> None:
    limited = ScheduleState(note="before", limited_actions=True, remaining_actions=3)
    handle = await temporal_client.create_schedule("changed", daily(state=limited))

    def change(given: ScheduleUpdateInput) -> ScheduleUpdate:
        schedule = given.description.schedule
        assert isinstance(schedule.action, ScheduleActionStartWorkflow)
        schedule.action.args = ["eve"]
        schedule.action.task_queue = "elsewhere"
        schedule.spec.intervals = [ScheduleIntervalSpec(timedelta(hours=1))]
        schedule.spec.jitter = timedelta(seconds=5)
        schedule.policy.overlap = ScheduleOverlapPolicy.ALLOW_ALL
        schedule.policy.pause_on_failure = True
        schedule.state.remaining_actions = 9
        schedule.state.paused = True
        return ScheduleUpdate(schedule)

    before = await handle.describe()
    await handle.update(change)
    found = await handle.describe()
    assert found.version > before.version
    action = found.schedule.action
    assert isinstance(action, ScheduleActionStartWorkflow)
    assert (action.workflow, action.args, action.task_queue) == ("Hello", ["eve"], "elsewhere")
    assert found.schedule.spec == ScheduleSpec(
        intervals=[ScheduleIntervalSpec(timedelta(hours=1))], jitter=timedelta(seconds=5)
    )
    policy = SchedulePolicy(overlap=ScheduleOverlapPolicy.ALLOW_ALL, pause_on_failure=True)
    assert found.schedule.policy == policy
    assert found.schedule.state == ScheduleState("before", True, True, 9)
    await handle.update(lambda _: None)
    assert (await handle.describe()).version == found.version
    await handle.delete()


async def test_an_update_can_give_cron_expressions(temporal_client: Client) -> None:
    handle = await temporal_client.create_schedule("to-cron", daily())

    async def change(given: ScheduleUpdateInput) -> ScheduleUpdate:
        spec = ScheduleSpec(cron_expressions=["0 4 * * *"], time_zone_name="Europe/Berlin")
        return ScheduleUpdate(replace(given.description.schedule, spec=spec))

    for _ in range(2):  # the second one changes nothing
        await handle.update(change)
    spec = (await handle.describe()).schedule.spec
    assert (spec.intervals, spec.time_zone_name) == ([], "Europe/Berlin")
    assert [each.hour for each in spec.calendars] == [[ScheduleRange(4)]]
    await handle.delete()


async def test_an_update_that_met_another_one_is_made_again(temporal_client: Client) -> None:
    handle = await temporal_client.create_schedule("contended", daily())
    calls: list[str | None] = []

    async def slower(given: ScheduleUpdateInput) -> ScheduleUpdate:
        calls.append(given.description.schedule.state.note)
        if len(calls) == 1:
            await handle.update(faster)
        given.description.schedule.policy.pause_on_failure = True
        return ScheduleUpdate(given.description.schedule)

    def faster(given: ScheduleUpdateInput) -> ScheduleUpdate:
        given.description.schedule.state.note = "faster"
        return ScheduleUpdate(given.description.schedule)

    await handle.update(slower)
    found = (await handle.describe()).schedule
    assert calls == [None, "faster"]
    assert (found.state.note, found.policy.pause_on_failure) == ("faster", True)
    await handle.delete()


async def test_of_many_updates_at_once_none_is_lost_in_silence(temporal_client: Client) -> None:
    handle = await temporal_client.create_schedule("crowded", daily())
    before = (await handle.describe()).version
    notes = [f"note {each}" for each in range(6)]
    bodies = [{"if_version": before, "note": each} for each in notes]
    sent = (
        temporal_client.transport.control("PUT", "schedules/crowded", each, idempotent=False)
        for each in bodies
    )
    outcomes = dict(zip(notes, await asyncio.gather(*sent, return_exceptions=True), strict=True))
    found = await handle.describe()
    refused = {name: each for name, each in outcomes.items() if isinstance(each, ServerRefused)}
    assert {each.reason for each in refused.values()} == {"schedule_version_conflict"}
    assert outcomes.keys() - refused.keys() == {found.schedule.state.note}
    assert found.version == before + 1
    await handle.delete()


async def test_what_only_temporal_has_survives_an_update(
    temporal: TemporalServer, temporal_client: Client
) -> None:
    other = await tc.Client.connect(temporal.target)
    theirs = await other.create_schedule(
        "theirs",
        tc.Schedule(
            action=tc.ScheduleActionStartWorkflow(
                "Theirs",
                {"page": 1},
                id="their-id",
                task_queue="theirs",
                retry_policy=TemporalRetryPolicy(maximum_attempts=3),
                static_summary="a summary",
            ),
            spec=tc.ScheduleSpec(intervals=[tc.ScheduleIntervalSpec(every=DAY)]),
        ),
        memo={"team": "a"},
    )
    handle = temporal_client.get_schedule_handle("theirs")
    found = await handle.describe()
    assert found.memo == {"team": "a"}
    assert (found.schedule.action.args, found.schedule.policy.catchup_window) == ([{"page": 1}], 365 * DAY)

    def change(given: ScheduleUpdateInput) -> ScheduleUpdate:
        given.description.schedule.state.note = "ours"
        return ScheduleUpdate(given.description.schedule)

    await handle.update(change)
    raw = (await theirs.describe()).raw_description.schedule
    action = raw.action.start_workflow
    assert (raw.state.notes, action.workflow_id, action.retry_policy.maximum_attempts) == (
        "ours",
        "their-id",
        3,
    )
    assert action.user_metadata.HasField("summary")
    await handle.delete()


async def test_schedules_are_listed_with_their_parts(temporal_client: Client) -> None:
    names = {f"listed-{each}" for each in range(3)}
    for name in sorted(names):
        paused = ScheduleState(paused=name == "listed-1")
        await temporal_client.create_schedule(name, daily(state=paused))
    action = ScheduleActionStartWorkflow("Another", task_queue="q")
    await temporal_client.create_schedule("listed-other", daily(action=action))

    async def listed(**narrow: Any) -> dict[str, ScheduleDescription]:
        found = [each async for each in temporal_client.list_schedules(**narrow)]
        return {each.id: each for each in found if each.id.startswith("listed-")}

    async def eventually(is_so: Callable[[], Awaitable[bool]]) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while not await is_so():
                await asyncio.sleep(0.05)

    async def all_are_there() -> bool:
        return (await listed(page_size=2)).keys() == names | {"listed-other"}

    async def the_query_finds_it() -> bool:
        return (await listed(query="TemporalSchedulePaused = true")).keys() == {"listed-1"}

    await eventually(all_are_there)
    await eventually(the_query_finds_it)
    found = await listed()
    assert found["listed-0"] == await temporal_client.get_schedule_handle("listed-0").describe()
    assert (await listed(status="paused")).keys() == {"listed-1"}
    assert (await listed(status="active", workflow_type="Hello")).keys() == {"listed-0", "listed-2"}
    assert len([each async for each in temporal_client.list_schedules(limit=1)]) == 1
    with pytest.raises(ServerRefused) as refusal:
        await listed(query="Failures > 0")
    assert refusal.value.reason == "validation_failed"
    for name in (*names, "listed-other"):
        await temporal_client.get_schedule_handle(name).delete()


async def test_a_backfill_fires_the_moments_of_a_period(temporal_client: Client) -> None:
    spec = ScheduleSpec(intervals=[ScheduleIntervalSpec(timedelta(hours=1))])
    paused = ScheduleState(paused=True)
    handle = await temporal_client.create_schedule("backfilled", daily(spec=spec, state=paused))
    end = NEW_YEAR + timedelta(hours=3)
    period = ScheduleBackfill(NEW_YEAR, end, ScheduleOverlapPolicy.ALLOW_ALL)
    expected = [NEW_YEAR + timedelta(hours=each) for each in range(3)]
    planned = await handle.backfill(period, dry_run=True)
    assert [each.scheduled_at for each in planned] == expected
    assert (await handle.describe()).info.num_actions == 0
    done = await handle.backfill(period)
    assert [(each.scheduled_at, each.outcome) for each in done] == [(each, "planned") for each in expected]
    found = await described_when(handle, lambda each: each.info.num_actions == 3)
    assert sorted(each.scheduled_at for each in found.info.recent_actions) == expected
    for fire in found.info.recent_actions:
        assert fire.action is not None
        await temporal_client.get_workflow_handle(fire.action.workflow_id).terminate()
    later = ScheduleBackfill(NEW_YEAR + timedelta(milliseconds=1), end + timedelta(milliseconds=1))
    moved = [each + timedelta(hours=1) for each in expected]
    assert [each.scheduled_at for each in await handle.backfill(later, dry_run=True)] == moved
    await handle.delete()


async def test_a_long_backfill_is_read_in_parts_and_bounded(temporal_client: Client) -> None:
    spec = ScheduleSpec(intervals=[ScheduleIntervalSpec(timedelta(hours=1))])
    handle = await temporal_client.create_schedule("long", daily(spec=spec))
    period = ScheduleBackfill(NEW_YEAR, NEW_YEAR + 50 * DAY)
    found = [each.scheduled_at for each in await handle.backfill(period, dry_run=True)]
    assert found == [NEW_YEAR + timedelta(hours=each) for each in range(1200)]
    for wrong, reason in (
        (ScheduleBackfill(NEW_YEAR, NEW_YEAR + 500 * DAY), "backfill_too_large"),
        (ScheduleBackfill(NEW_YEAR, NEW_YEAR), "invalid_time_range"),
    ):
        with pytest.raises(ServerRefused) as refusal:
            await handle.backfill(wrong)
        assert refusal.value.reason == reason
    assert (await handle.describe()).info.num_actions == 0
    await handle.delete()


async def test_fields_of_a_schedule_that_temporal_lacks_are_refused(temporal_client: Client) -> None:
    handle = await temporal_client.create_schedule("lacking", daily())

    def with_start_by(given: ScheduleUpdateInput) -> ScheduleUpdate:
        given.description.schedule.policy.start_by = DAY
        return ScheduleUpdate(given.description.schedule)

    def with_gap(given: ScheduleUpdateInput) -> ScheduleUpdate:
        given.description.schedule.spec.gap = "skip"
        return ScheduleUpdate(given.description.schedule)

    def with_memo(given: ScheduleUpdateInput) -> ScheduleUpdate:
        return ScheduleUpdate(given.description.schedule, memo={"team": "b"})

    def with_key(given: ScheduleUpdateInput) -> ScheduleUpdate:
        action = given.description.schedule.action
        assert isinstance(action, ScheduleActionStartWorkflow)
        action.business_key = "k"
        return ScheduleUpdate(given.description.schedule)

    for change, what in (
        (with_start_by, "start_by_seconds of a schedule"),
        (with_gap, "gap and repeat of a schedule"),
        (with_memo, "memo of a schedule"),
        (with_key, "business_key of a schedule"),
    ):
        with pytest.raises(NotOnThisEngineError, match=what):
            await handle.update(change)
    await handle.delete()


async def test_commands_list_describe_change_and_backfill(
    temporal: TemporalServer, temporal_client: Client
) -> None:
    handle = await temporal_client.create_schedule("by-command", daily())

    async def command(*words: str) -> Any:
        line = [sys.executable, "-m", "penstock", "schedule", *words, "--server", temporal.url, "--json"]
        done = await asyncio.to_thread(
            subprocess.run, line, capture_output=True, text=True, timeout=PATIENCE_S, check=False
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    assert (await command("describe", "by-command"))["workflow_type"] == "Hello"
    assert (await command("update", "by-command", "--note", "changed"))["outcome"] == "updated"
    assert (await handle.describe()).schedule.state.note == "changed"
    dry = ("--from", "2026-01-01T00:00:00Z", "--to", "2026-01-03T00:00:00Z", "--dry-run")
    assert (await command("backfill", "by-command", *dry))["fires_attempted"] == 2
    await handle.delete()
