"""Zone data of different versions: the newest one decides, and a server with older data leaves schedules alone."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, timedelta, timezone, tzinfo

import pytest
from msgspec.structs import replace

from penstock.core.schedules.explanation import ScheduleWait, explain_schedule
from penstock.core.schedules.overlap import Overlap
from penstock.core.schedules.record import FireState, ScheduleEventType
from penstock.engine.maintenance.sweepers.due_timers import outdated_schedules
from penstock.engine.schedules import lifecycle, manual_fires, zone_upgrades, zones
from penstock.errors import Reason, Unavailable
from tests.engine.support.scene import DONE, Scene
from tests.engine.support.schedules import MINUTE_MS, ScheduleScene

HOUR_MS = 60 * MINUTE_MS
DAILY = {"cron_expressions": ["0 12 * * *"], "timezone": "Europe/Berlin"}
MINUTELY = {"cron_expressions": ["* * * * *"], "timezone": "Europe/Berlin"}
Install = Callable[..., None]


@pytest.fixture
def schedules(scene: Scene) -> ScheduleScene:
    return ScheduleScene(scene)


@pytest.fixture
def install(monkeypatch: pytest.MonkeyPatch) -> Install:
    """Give the server zone data of a version, in which every zone has the same offset."""

    def given(version: str, offset_hours: int = 1) -> None:
        offset: tzinfo = timezone(timedelta(hours=offset_hours))
        monkeypatch.setattr(zones, "VERSION", version)
        monkeypatch.setattr(zones, "zone", lambda name: UTC if name == "UTC" else offset)

    return given


async def test_newer_zone_data_move_the_next_fire_and_an_event_says_so(
    schedules: ScheduleScene, install: Install
) -> None:
    install("2026a", 1)
    before = await schedules.create(DAILY)
    install("2026b", 2)
    assert await outdated_schedules(schedules.scene.ctx).sweep() == 1
    after = await schedules.record()
    assert (before.nominal_at_ms, after.zone_version) != (None, "2026a")
    assert after.nominal_at_ms is not None
    assert before.nominal_at_ms is not None
    assert (after.nominal_at_ms - before.nominal_at_ms) % (24 * HOUR_MS) == 23 * HOUR_MS
    assert after.due_at_ms == after.nominal_at_ms
    event = (await schedules.events())[-1]
    assert event.type is ScheduleEventType.UPDATED
    assert json.loads(event.payload)["reason"] == "zone_data_changed"
    assert await outdated_schedules(schedules.scene.ctx).sweep() == 0


async def test_newer_zone_data_that_change_nothing_leave_no_event(
    schedules: ScheduleScene, install: Install
) -> None:
    install("2026a")
    before = await schedules.create(DAILY)
    install("2026b")
    await outdated_schedules(schedules.scene.ctx).sweep()
    after = await schedules.record()
    assert after == replace(before, zone_version="2026b")
    assert await schedules.event_types() == ["ScheduleCreated"]


async def test_a_fire_uses_the_newest_zone_data_even_before_the_sweeper_has_come(
    schedules: ScheduleScene, install: Install
) -> None:
    install("2026a", 1)
    created = await schedules.create(DAILY)
    install("2026b", 0)  # noon comes an hour later
    assert created.nominal_at_ms is not None
    schedules.scene.clock.set(created.nominal_at_ms)
    await schedules.sweep()
    assert await schedules.fires() == []
    await schedules.advance(HOUR_MS)
    [fire] = await schedules.fires()
    assert fire.nominal_at_ms == created.nominal_at_ms + HOUR_MS


async def test_a_server_with_older_zone_data_neither_fires_nor_plans(
    schedules: ScheduleScene, install: Install
) -> None:
    install("2026b")
    created = await schedules.create(MINUTELY)
    install("2026a")
    await schedules.advance(3 * MINUTE_MS)
    assert await schedules.fires() == []
    assert (await schedules.record()).cursor_at_ms == created.cursor_at_ms
    ctx, now_ms = schedules.scene.ctx, schedules.scene.clock.now_ms()
    refused = [
        lifecycle.update(ctx, "default", "s", lambda each: replace(each, spec=json.dumps(DAILY))),
        manual_fires.backfill(ctx, "default", "s", now_ms - HOUR_MS, now_ms, None, dry_run=True),
    ]
    for each in refused:
        with pytest.raises(Unavailable) as caught:
            await each
        assert caught.value.reason is Reason.ZONE_DATA_OUTDATED
        assert caught.value.details["newest_zone_data_version"] == "2026b"
    why = explain_schedule(await schedules.record(), now_ms, zones.VERSION)
    assert why.wait is ScheduleWait.NEWER_ZONE_DATA
    assert "A server with newer data fires it." in why.sentences[0]
    assert await zone_upgrades.newest(ctx) == "2026b"
    install("2026b")
    await schedules.sweep()
    assert len(await schedules.fires()) == 3


async def test_a_server_with_older_zone_data_creates_no_schedule_in_a_time_zone(
    schedules: ScheduleScene, install: Install
) -> None:
    install("2026b")
    await schedules.create(DAILY)
    install("2026a")
    with pytest.raises(Unavailable) as caught:
        await schedules.create(DAILY)
    assert caught.value.reason is Reason.ZONE_DATA_OUTDATED


async def test_schedules_in_utc_fire_on_every_server(schedules: ScheduleScene, install: Install) -> None:
    install("2026b")
    await schedules.create({"cron_expressions": ["* * * * *"]}, overlap=Overlap.ALLOW_ALL)
    install("2026a")
    await schedules.advance(2 * MINUTE_MS)
    assert len(await schedules.fires()) == 2


async def test_an_older_server_pauses_triggers_and_closes_runs_of_a_newer_schedule(
    schedules: ScheduleScene, install: Install
) -> None:
    install("2026b")
    await schedules.create(MINUTELY, overlap=Overlap.BUFFER_ONE)
    await schedules.advance()
    await schedules.advance()
    install("2026a")
    ctx = schedules.scene.ctx
    fire = (await schedules.fires())[0]
    assert fire.run_id is not None
    await schedules.scene.decide(DONE)
    await schedules.sweep()
    assert (await schedules.fires())[0].state is FireState.CLOSED
    triggered = await manual_fires.trigger(ctx, "default", "s", Overlap.ALLOW_ALL)
    assert triggered.fire.state is FireState.STARTED
    assert (await lifecycle.pause(ctx, "default", "s", None)).due_at_ms is None
    with pytest.raises(Unavailable):
        await lifecycle.resume(ctx, "default", "s", None)
