"""Schedules by the SDK, against a real server."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from penstock import activity, workflow
from penstock.client import (
    Client,
    Schedule,
    ScheduleActionStartActivity,
    ScheduleActionStartWorkflow,
    ScheduleBackfill,
    ScheduleCalendarSpec,
    ScheduleIntervalSpec,
    ScheduleOverlapPolicy,
    SchedulePolicy,
    ScheduleRange,
    ScheduleSpec,
    ScheduleState,
    ScheduleUpdate,
    ScheduleUpdateInput,
    SyncClient,
)
from penstock.failures import InvalidRequest, ScheduleAlreadyRunningError, ScheduleNotFoundError
from penstock.sdk.priority import Priority
from penstock.sdk.retry import RetryPolicy
from penstock.worker import Worker
from tests.acceptance.cluster import Cluster
from tests.sdk.server_fixtures import OPERATOR, WORKER
from tests.support.patience import PATIENCE_S

NIGHTLY = ScheduleSpec(cron_expressions=["30 2 * * *"], time_zone_name="Europe/Berlin")
SINCE, UNTIL = datetime(2026, 3, 2, tzinfo=UTC), datetime(2026, 3, 5, tzinfo=UTC)


@workflow.defn
class Report:
    @workflow.run
    async def run(self, day: str) -> str:
        return day


@activity.defn
def clean_up(folder: str) -> str:
    return folder


def reports(**fields: Any) -> Schedule:
    action = ScheduleActionStartWorkflow(Report.run, "today", task_queue="q")
    given: dict[str, Any] = {"action": action, "spec": NIGHTLY} | fields
    return Schedule(**given)


async def collected(items: AsyncIterator[Any]) -> list[Any]:
    return [each async for each in items]


async def test_a_description_has_everything_that_was_set(client: Client) -> None:
    spec = ScheduleSpec(
        calendars=[
            ScheduleCalendarSpec(
                hour=[ScheduleRange(8, 18, 2)],
                minute=[ScheduleRange(15)],
                day_of_week=[ScheduleRange(1, 5)],
                comment="office hours",
            )
        ],
        intervals=[ScheduleIntervalSpec(every=timedelta(hours=36), offset=timedelta(minutes=5))],
        cron_expressions=["@daily"],
        skip=[ScheduleCalendarSpec(month=[ScheduleRange(12)], day_of_month=[ScheduleRange(24, 26)])],
        start_at=datetime(2026, 1, 1, tzinfo=UTC),
        end_at=datetime(2046, 1, 1, tzinfo=UTC),
        jitter=timedelta(minutes=2),
        time_zone_name="Europe/Berlin",
        gap="skip",
        repeat="both",
    )
    schedule = Schedule(
        action=ScheduleActionStartWorkflow(
            Report.run,
            "today",
            task_queue="q",
            run_timeout=timedelta(hours=1),
            memo={"owner": "finance"},
            priority=Priority(priority_key=2, fairness_key="acme"),
        ),
        spec=spec,
        policy=SchedulePolicy(
            overlap=ScheduleOverlapPolicy.BUFFER_ONE,
            catchup_window=timedelta(days=2),
            pause_on_failure=True,
            start_by=timedelta(minutes=10),
        ),
        state=ScheduleState(note="by finance", paused=True, limited_actions=True, remaining_actions=3),
    )
    handle = await client.create_schedule("report", schedule, memo={"team": "a"})
    found = await handle.describe()
    assert (found.id, found.schedule, found.memo) == ("report", schedule, {"team": "a"})
    assert (found.info.num_actions, found.info.next_action_times) == (0, [])
    assert found.info.in_words


async def test_a_schedule_starts_its_workflow_at_its_moments(client: Client) -> None:
    every_second = ScheduleSpec(intervals=[ScheduleIntervalSpec(every=timedelta(seconds=1))])
    schedule = reports(spec=every_second, state=ScheduleState(limited_actions=True, remaining_actions=1))
    async with Worker(client, task_queue="q", workflows=[Report]):
        handle = await client.create_schedule("often", schedule)
        assert handle.warnings == ()
        events: list[Any] = []
        while "ScheduleDeleted" not in {each["event_type"] for each in events}:
            events = await collected(handle.fetch_history_events())
        started = next(each for each in events if each["event_type"] == "ScheduleTriggered")
        run = client.get_workflow_handle_for(Report.run, started["workflow_instance_id"])
        assert await run.result(timeout=PATIENCE_S) == "today"
    assert run.id.startswith("often-")
    with pytest.raises(ScheduleNotFoundError):  # the one start that it had was its last
        await handle.describe()


async def test_the_warnings_of_the_server_are_with_the_handle(client: Client) -> None:
    handle = await client.create_schedule("report", reports())
    assert [each.reason for each in handle.warnings] == ["no_worker"]


async def test_a_trigger_returns_what_it_started(client: Client) -> None:
    handle = await client.create_schedule("report", reports(), trigger_immediately=True)
    skipped = await handle.trigger()
    assert (skipped.outcome, skipped.action) == ("skipped", None)
    started = await handle.trigger(overlap=ScheduleOverlapPolicy.ALLOW_ALL)
    assert started.outcome == "triggered"
    assert started.action is not None
    assert (await client.get_workflow_handle(started.action.workflow_id).describe()).id.startswith("report-")
    info = (await handle.describe()).info
    assert (info.num_actions, info.num_actions_skipped_overlap, len(info.running_actions)) == (2, 1, 2)


async def test_a_backfill_fires_the_moments_of_its_periods(client: Client) -> None:
    handle = await client.create_schedule("report", reports())
    period = ScheduleBackfill(SINCE, UNTIL, overlap=ScheduleOverlapPolicy.ALLOW_ALL)
    planned = await handle.backfill(period, dry_run=True)
    assert [each.scheduled_at for each in planned] == [
        datetime(2026, 3, day, 1, 30, tzinfo=UTC) for day in (2, 3, 4)
    ]
    assert {each.outcome for each in planned} == {"planned"}
    assert (await handle.describe()).info.num_actions == 0
    done = await handle.backfill(period)
    assert {each.outcome for each in done} == {"started"}
    assert (await handle.describe()).info.num_actions == 3


async def test_an_update_changes_what_its_function_changed(client: Client) -> None:
    handle = await client.create_schedule("report", reports(state=ScheduleState(note="old")))

    def changed(update: ScheduleUpdateInput) -> ScheduleUpdate:
        schedule = update.description.schedule
        schedule.action.args = ["tomorrow"]
        schedule.spec.cron_expressions = ["0 4 * * *"]
        schedule.policy.overlap = ScheduleOverlapPolicy.ALLOW_ALL
        schedule.state.note = None
        schedule.state.paused = True
        return ScheduleUpdate(schedule, memo={"changed": True})

    await handle.update(changed)
    found = await handle.describe()
    assert found.schedule.action.args == ["tomorrow"]
    assert found.schedule.spec.cron_expressions == ["0 4 * * *"]
    assert found.schedule.policy.overlap is ScheduleOverlapPolicy.ALLOW_ALL
    assert (found.schedule.state.paused, found.memo) == (True, {"changed": True})
    assert not found.schedule.state.note


async def test_an_update_that_meets_another_one_is_made_again_from_the_new_description(
    client: Client,
) -> None:
    handle = await client.create_schedule("report", reports())
    seen: list[int] = []

    async def renamed(update: ScheduleUpdateInput) -> ScheduleUpdate:
        seen.append(update.description.version)
        if len(seen) == 1:  # somebody else is faster
            await handle.update(sooner)
        update.description.schedule.state.note = "mine"
        return ScheduleUpdate(update.description.schedule)

    def sooner(update: ScheduleUpdateInput) -> ScheduleUpdate:
        update.description.schedule.spec.cron_expressions = ["0 1 * * *"]
        return ScheduleUpdate(update.description.schedule)

    await handle.update(renamed)
    found = await handle.describe()
    assert seen == [1, 2]
    assert found.schedule.spec.cron_expressions == ["0 1 * * *"]
    assert (found.schedule.state.note, found.version) == ("mine", 3)


async def test_many_schedules_are_found_paused_and_resumed_by_a_query(client: Client) -> None:
    for name in ("a", "b", "c"):
        await client.create_schedule(
            name, reports(state=ScheduleState(note="night" if name < "c" else "day"))
        )
    query = "Note = 'night'"
    assert [each.id async for each in client.list_schedules(query=query)] == ["b", "a"]
    planned = await client.pause_schedules(query, dry_run=True)
    assert (planned.matched, planned.acted) == (2, 0)
    assert (await client.pause_schedules(query, note="night")).acted == 2
    assert [each.id async for each in client.list_schedules(status="paused")] == ["b", "a"]
    assert (await client.resume_schedules("Status = 'paused'")).acted == 2


async def test_an_update_may_be_async_and_may_change_nothing(client: Client) -> None:
    handle = await client.create_schedule("report", reports())

    async def nothing(_update: ScheduleUpdateInput) -> None:
        return None

    await handle.update(nothing)
    await handle.update(lambda update: ScheduleUpdate(update.description.schedule))
    assert (await handle.describe()).raw["version"] == 1


async def test_an_update_of_a_limit_counts_what_was_started(client: Client) -> None:
    limited = ScheduleState(limited_actions=True, remaining_actions=2)
    handle = await client.create_schedule("report", reports(state=limited), trigger_immediately=True)
    assert (await handle.describe()).schedule.state.remaining_actions == 1

    def more(update: ScheduleUpdateInput) -> ScheduleUpdate:
        update.description.schedule.state.remaining_actions = 5
        return ScheduleUpdate(update.description.schedule)

    await handle.update(more)
    assert (await handle.describe()).schedule.state.remaining_actions == 5


async def test_what_an_update_cannot_unset_is_refused_by_name(client: Client) -> None:
    limited = ScheduleState(limited_actions=True, remaining_actions=2)
    handle = await client.create_schedule("report", reports(state=limited))

    def unlimited(update: ScheduleUpdateInput) -> ScheduleUpdate:
        update.description.schedule.state.limited_actions = False
        return ScheduleUpdate(update.description.schedule)

    with pytest.raises(ValueError, match="max_runs cannot be unset"):
        await handle.update(unlimited)


async def test_a_schedule_is_paused_resumed_listed_and_deleted(client: Client) -> None:
    handle = await client.create_schedule("report", reports())
    other = await client.create_schedule("other", reports())
    await handle.pause(note="until monday")
    assert (await handle.describe()).schedule.state == ScheduleState("until monday", paused=True)
    assert [each.id for each in await collected(client.list_schedules(status="paused"))] == ["report"]
    await handle.unpause(note="go on")
    assert (await handle.describe()).schedule.state == ScheduleState("go on")
    await other.delete()
    listed = await collected(client.list_schedules(page_size=1))
    assert [(each.id, len(each.info.next_action_times)) for each in listed] == [("report", 1)]
    with pytest.raises(ScheduleNotFoundError):
        await other.describe()
    deleted = await collected(other.fetch_history_events(after_sequence=1))
    assert [each["event_type"] for each in deleted] == ["ScheduleDeleted"]


async def test_an_activity_is_scheduled_with_its_options(client: Client) -> None:
    action = ScheduleActionStartActivity(
        clean_up,
        "/tmp",
        task_queue="q",
        start_to_close_timeout=timedelta(seconds=30),
        retry_policy=RetryPolicy(maximum_attempts=3),
    )
    handle = await client.create_schedule("cleaning", Schedule(action=action, spec=NIGHTLY))
    async with Worker(client, task_queue="q", activities=[clean_up]):
        started = (await handle.trigger()).action
        assert started is not None
        run = client.get_activity_handle(started.workflow_id, result_type=str)
        assert await run.result(timeout=PATIENCE_S) == "/tmp"

    def elsewhere(update: ScheduleUpdateInput) -> ScheduleUpdate:
        update.description.schedule.action.args = ["/var/tmp"]
        return ScheduleUpdate(update.description.schedule)

    await handle.update(elsewhere)
    found = await handle.describe()
    assert found.schedule.action.args == ["/var/tmp"]
    assert found.raw["action"]["retry_policy"]["max_attempts"] == 3


async def test_a_preview_names_moments_words_and_warnings(client: Client) -> None:
    found = await client.preview_schedule(NIGHTLY, count=2, after=datetime(2026, 10, 24, 12, tzinfo=UTC))
    assert found.next_action_times == [
        datetime(2026, 10, 25, 0, 30, tzinfo=UTC),
        datetime(2026, 10, 26, 1, 30, tzinfo=UTC),
    ]
    assert found.in_words
    assert "repeated_time" in {each.reason for each in found.warnings}


async def test_a_schedule_may_be_called_like_a_route(client: Client) -> None:
    handle = await client.create_schedule("preview", reports())
    assert (await handle.describe()).id == "preview"
    await handle.delete()


async def test_refusals_have_their_own_errors(client: Client) -> None:
    await client.create_schedule("report", reports())
    with pytest.raises(ScheduleAlreadyRunningError):
        await client.create_schedule("report", reports())
    with pytest.raises(InvalidRequest) as refused:
        await client.create_schedule("other", reports(spec=ScheduleSpec(cron_expressions=["61 * * * *"])))
    assert "spec.cron_expressions.0" in refused.value.details["errors"]
    handle = client.get_schedule_handle("report")
    with pytest.raises(InvalidRequest, match="invalid_time_range"):
        await handle.backfill(ScheduleBackfill(UNTIL, SINCE))
    with pytest.raises(ValueError, match="at least one period"):
        await handle.backfill()


def test_what_cannot_be_sent_is_refused_before() -> None:
    with pytest.raises(TypeError, match="takes no id"):
        ScheduleActionStartWorkflow("report", task_queue="q", id="mine")  # type: ignore[call-overload]
    with pytest.raises(TypeError, match="did you mean 'task_queue'"):
        ScheduleActionStartWorkflow("report", taskqueue="q")  # type: ignore[call-overload]
    with pytest.raises(TypeError, match="needs task_queue"):
        ScheduleActionStartWorkflow("report")  # type: ignore[call-overload]
    with pytest.raises(ValueError, match="start_at has no time zone"):
        ScheduleSpec(start_at=datetime(2026, 1, 1)).on_the_wire()  # noqa: DTZ001
    with pytest.raises(ValueError, match="every must be whole seconds"):
        ScheduleIntervalSpec(every=timedelta(milliseconds=1500)).on_the_wire()
    with pytest.raises(TypeError, match="cron_expressions is a list"):
        ScheduleSpec(cron_expressions="0 * * * *").on_the_wire()


@pytest.mark.parametrize("text", ["PT30M", "P1W", "P2W1D", "P1DT2H3M4S", "PT36H"])
def test_durations_are_read_as_the_server_writes_them(text: str) -> None:
    expected = {
        "PT30M": timedelta(minutes=30),
        "P1W": timedelta(weeks=1),
        "P2W1D": timedelta(weeks=2, days=1),
        "P1DT2H3M4S": timedelta(days=1, hours=2, minutes=3, seconds=4),
        "PT36H": timedelta(hours=36),
    }
    read = ScheduleIntervalSpec.read({"every": text})
    assert read == ScheduleIntervalSpec(expected[text])
    assert ScheduleIntervalSpec.read(read.on_the_wire()) == read


def test_code_without_asyncio_has_the_same_calls(scene: Cluster) -> None:
    with SyncClient.connect(
        scene.first.url, namespace=scene.namespace, control_token=OPERATOR, worker_token=WORKER
    ) as client:
        handle = client.create_schedule("report", reports())
        assert (handle.id, len(handle.warnings)) == ("report", 1)
        handle.pause()
        handle.unpause()
        assert handle.trigger().outcome == "triggered"
        assert client.get_schedule_handle("report").describe().info.num_actions == 1
        assert [each.id for each in client.list_schedules()] == ["report"]
        assert len(client.preview_schedule(NIGHTLY, count=3).next_action_times) == 3
        assert len(handle.backfill(ScheduleBackfill(SINCE, UNTIL), dry_run=True)) == 3
        assert [each["sequence"] for each in handle.fetch_history_events()] == [1, 2, 3, 4]
        handle.delete()
