"""Fires of schedules: moments, overlap policies, misses, and what follows when runs close."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import pytest
from msgspec.structs import replace

from penstock.core.history.commands import ContinueAsNew
from penstock.core.model import Blob, Run, RunId, RunStatus, TaskPriority
from penstock.core.schedules.overlap import Overlap
from penstock.core.schedules.record import FireState, ScheduleStatus
from penstock.core.timestamps import iso
from penstock.engine.maintenance.sweepers.due_timers import due_schedules
from penstock.engine.schedules import actions, lifecycle, manual_fires
from penstock.engine.workflows import run_close
from penstock.engine.workflows.run_close import EndMode
from penstock.errors import ValidationFailed
from tests.engine.support.scene import DONE, WORKFLOW, Scene
from tests.engine.support.schedules import MINUTE_MS, ScheduleScene, an_action

HOUR_MS = 60 * MINUTE_MS


@pytest.fixture
def schedules(scene: Scene) -> ScheduleScene:
    return ScheduleScene(scene)


async def run_of_fire(schedules: ScheduleScene, index: int = -1) -> Run:
    fire = (await schedules.fires())[index]
    assert fire.run_id is not None
    return schedules.scene.run(RunId(fire.run_id))


async def time_out(schedules: ScheduleScene, run: Run) -> None:
    await run_close.expire_run(schedules.scene.ctx, run.run_id)
    await schedules.sweep()


async def test_a_schedule_starts_a_run_at_each_moment_and_no_earlier(schedules: ScheduleScene):
    created = await schedules.create(overlap=Overlap.ALLOW_ALL)
    assert created.nominal_at_ms is not None
    schedules.scene.clock.set(created.nominal_at_ms - 1)
    await schedules.sweep()
    assert await schedules.fires() == []
    await schedules.advance(1)
    await schedules.advance()
    first, second = await schedules.fires()
    assert first.nominal_at_ms == created.nominal_at_ms
    assert second.nominal_at_ms == created.nominal_at_ms + MINUTE_MS
    assert first.workflow_id == f"s-{iso(created.nominal_at_ms).replace('.000Z', 'Z')}"


async def test_a_run_has_its_moment_its_schedule_and_the_priority_of_the_action(schedules: ScheduleScene):
    action = an_action(priority=TaskPriority(1, "tenant", 2000), memo='{"a": 1}')
    await schedules.create(action=action)
    await schedules.advance()
    run = await run_of_fire(schedules)
    [fire] = await schedules.fires()
    assert json.loads(run.search_attributes) == {
        "ScheduledStartTime": iso(fire.nominal_at_ms),
        "ScheduledById": "s",
    }
    assert (run.level, run.key, run.weight_milli) == (1, "tenant", 2000)
    assert json.loads(run.memo) == {"a": 1}


async def test_a_late_server_catches_up_every_moment_in_order(schedules: ScheduleScene):
    await schedules.create(overlap=Overlap.ALLOW_ALL)
    await schedules.advance(30 * MINUTE_MS)
    fires = await schedules.fires()
    assert len(fires) == 30
    assert [b.nominal_at_ms - a.nominal_at_ms for a, b in pairwise(fires)] == [MINUTE_MS] * 29


async def test_what_lies_before_the_catch_up_window_is_counted_and_recorded(schedules: ScheduleScene):
    await schedules.create(overlap=Overlap.ALLOW_ALL, catchup_window_s=600)
    await schedules.advance(HOUR_MS)
    progress = (await schedules.record()).progress
    assert progress.fires + progress.missed == 60
    assert progress.fires in (10, 11)
    assert (progress.skipped, progress.last_skip_reason) == (progress.missed, "missed_catchup_window")
    [missed] = [json.loads(each.payload) for each in await schedules.events() if "Skipped" in each.type]
    assert missed["count"] == progress.missed


async def test_a_clock_that_steps_back_fires_no_moment_twice(schedules: ScheduleScene):
    await schedules.create(overlap=Overlap.ALLOW_ALL)
    await schedules.advance(5 * MINUTE_MS)
    await schedules.advance(-3 * MINUTE_MS)
    await schedules.advance(3 * MINUTE_MS)
    assert len(await schedules.fires()) == 5


@pytest.mark.parametrize(
    ("overlap", "states"),
    [
        (Overlap.SKIP, ["started", "overlap", "overlap"]),
        (Overlap.BUFFER_ONE, ["started", "buffered", "buffer_full"]),
        (Overlap.BUFFER_ALL, ["started", "buffered", "buffered"]),
        (Overlap.TERMINATE_OTHER, ["terminated", "terminated", "started"]),
        (Overlap.CANCEL_OTHER, ["cancelled", "cancelled", "started"]),
        (Overlap.ALLOW_ALL, ["started", "started", "started"]),
    ],
)
async def test_an_open_run_decides_what_a_fire_does(
    schedules: ScheduleScene, overlap: Overlap, states: list[str]
):
    await schedules.create(overlap=overlap)
    for _ in range(3):
        await schedules.advance()
    assert await schedules.states() == states


async def test_a_buffered_fire_starts_with_its_own_moment_when_the_run_before_closes(
    schedules: ScheduleScene, scene: Scene
):
    await schedules.create(overlap=Overlap.BUFFER_ALL)
    await schedules.advance(3 * MINUTE_MS)
    assert await schedules.states() == ["started", "buffered", "buffered"]
    await scene.decide(DONE)
    await schedules.sweep()
    assert await schedules.states() == ["completed", "started", "buffered"]
    run, fire = await run_of_fire(schedules, 1), (await schedules.fires())[1]
    assert json.loads(run.search_attributes)["ScheduledStartTime"] == iso(fire.nominal_at_ms)
    await scene.decide(DONE)
    await schedules.sweep()
    await scene.decide(DONE)
    await schedules.sweep()
    assert await schedules.states() == ["completed"] * 3
    assert (await schedules.record()).progress.open_runs == 0


async def test_a_run_that_continues_as_new_stays_open_for_its_schedule(
    schedules: ScheduleScene, scene: Scene
):
    await schedules.create()
    await schedules.advance()
    await scene.decide(ContinueAsNew(Blob("")))
    await schedules.advance()
    assert await schedules.states() == ["started", "overlap"]
    await scene.decide(DONE)
    await schedules.sweep()
    assert (await schedules.record()).progress.open_runs == 0


async def test_a_fire_that_cannot_start_in_time_is_dropped_with_the_reason(
    schedules: ScheduleScene, scene: Scene
):
    await schedules.create(overlap=Overlap.BUFFER_ONE, start_by_s=30)
    await schedules.advance(2 * MINUTE_MS)
    await schedules.advance(31_000)
    await scene.decide(DONE)
    await schedules.sweep()
    assert "start_by_passed" in await schedules.states()
    assert (await schedules.record()).progress.buffered == 0


async def test_a_failed_run_pauses_its_schedule_and_the_note_names_it(schedules: ScheduleScene):
    await schedules.create(pause_on_failure=True, action=an_action(run_timeout_s=1))
    await schedules.advance()
    run = await run_of_fire(schedules)
    await schedules.advance(2_000)
    await time_out(schedules, run)
    record = await schedules.record()
    assert (record.status, record.due_at_ms) == (ScheduleStatus.PAUSED, None)
    assert record.note is not None
    assert run.workflow_id in record.note
    assert record.progress.failures == 1
    assert (await schedules.event_types())[-1] == "SchedulePaused"


async def test_a_schedule_has_failed_until_a_run_of_it_completes(schedules: ScheduleScene, scene: Scene):
    await schedules.create(action=an_action(run_timeout_s=30))
    await schedules.advance()
    run = await run_of_fire(schedules)
    await schedules.advance(31_000)
    await time_out(schedules, run)
    assert (await schedules.record()).progress.failed_at_ms == scene.clock.now_ms()
    await schedules.advance()
    await scene.decide(DONE)
    await schedules.sweep()
    progress = (await schedules.record()).progress
    assert (progress.failures, progress.failed_at_ms) == (1, None)


async def test_a_cancelled_run_does_not_pause_its_schedule(schedules: ScheduleScene, scene: Scene):
    await schedules.create(pause_on_failure=True)
    await schedules.advance()
    run = await run_of_fire(schedules)
    await run_close.end_run(scene.ctx, "default", run.workflow_id, EndMode.CANCEL, None)
    await schedules.sweep()
    record = await schedules.record()
    assert (record.status, record.progress.failures) == (ScheduleStatus.ACTIVE, 0)


async def test_after_its_last_run_a_schedule_is_deleted_and_its_id_is_free(schedules: ScheduleScene):
    await schedules.create(overlap=Overlap.ALLOW_ALL, max_runs=2)
    await schedules.advance(5 * MINUTE_MS)
    record = await schedules.record()
    assert (record.status, record.progress.fires, record.progress.remaining) == (ScheduleStatus.DELETED, 2, 0)
    last = (await schedules.events())[-1]
    assert (last.type, json.loads(last.payload)) == ("ScheduleDeleted", {"reason": "max_runs_exhausted"})
    await schedules.create()
    assert (await schedules.record()).status is ScheduleStatus.ACTIVE


async def test_time_in_which_a_schedule_was_paused_is_not_caught_up(schedules: ScheduleScene, scene: Scene):
    await schedules.create(overlap=Overlap.ALLOW_ALL, paused=True)
    await schedules.advance(10 * MINUTE_MS)
    for _ in range(2):
        await lifecycle.resume(scene.ctx, "default", "s", "go")
    await schedules.sweep()
    assert await schedules.fires() == []
    await schedules.advance()
    assert len(await schedules.fires()) == 1
    for _ in range(2):
        await lifecycle.pause(scene.ctx, "default", "s", "wait")
    await schedules.advance(10 * MINUTE_MS)
    assert len(await schedules.fires()) == 1
    assert await schedules.event_types() == [
        "ScheduleCreated",
        "ScheduleResumed",
        "ScheduleTriggered",
        "SchedulePaused",
    ]


async def test_a_new_specification_does_not_fire_for_moments_that_have_passed(
    schedules: ScheduleScene, scene: Scene
):
    await schedules.create({"cron_expressions": ["0 0 1 1 *"]})
    await lifecycle.update(
        scene.ctx, "default", "s", lambda record: replace(record, spec='{"intervals":[{"every":"PT1H"}]}')
    )
    await schedules.sweep()
    assert await schedules.fires() == []
    record = await schedules.record()
    assert record.due_at_ms is not None
    assert record.due_at_ms > scene.clock.now_ms()
    assert record.version == 2


async def test_a_deleted_schedule_starts_nothing_more_and_keeps_its_history(
    schedules: ScheduleScene, scene: Scene
):
    await schedules.create(overlap=Overlap.BUFFER_ONE)
    await schedules.advance(2 * MINUTE_MS)
    await lifecycle.delete(scene.ctx, "default", "s")
    await scene.decide(DONE)
    await schedules.advance(5 * MINUTE_MS)
    assert await schedules.states() == ["completed", "schedule_deleted"]
    assert (await schedules.event_types())[-1] == "ScheduleDeleted"


async def test_an_id_that_a_caller_uses_is_recorded_as_a_refused_start(
    schedules: ScheduleScene, scene: Scene
):
    created = await schedules.create()
    assert created.nominal_at_ms is not None
    await scene.start(f"s-{iso(created.nominal_at_ms).replace('.000Z', 'Z')}")
    await schedules.advance()
    assert await schedules.states() == ["start_refused"]


class TestByHand:
    async def test_a_trigger_fires_now_and_twice_in_one_millisecond(
        self, schedules: ScheduleScene, scene: Scene
    ):
        await schedules.create(paused=True)
        fires = [await manual_fires.trigger(scene.ctx, "default", "s", Overlap.ALLOW_ALL) for _ in range(2)]
        assert [each.fire.state for each in fires] == [FireState.STARTED] * 2
        assert len({each.fire.workflow_id for each in fires}) == 2
        skipped = await manual_fires.trigger(scene.ctx, "default", "s", None)
        assert (skipped.fire.state, skipped.fire.reason) == (FireState.SKIPPED, "overlap")
        assert (await schedules.record()).progress.fires == 2

    async def test_a_backfill_includes_its_start_and_excludes_its_end(
        self, schedules: ScheduleScene, scene: Scene
    ):
        await schedules.create(paused=True)
        start = 1_700_000_040_000
        asked: Any = (scene.ctx, "default", "s", start, start + 3 * MINUTE_MS, Overlap.ALLOW_ALL)
        planned = await manual_fires.backfill(*asked, dry_run=True)
        assert list(planned.moments_ms) == [start, start + MINUTE_MS, start + 2 * MINUTE_MS]
        assert await schedules.fires() == []
        done = await manual_fires.backfill(*asked, dry_run=False)
        again = await manual_fires.backfill(*asked, dry_run=False)
        assert list(done.fires) == list(again.fires)
        assert (await schedules.record()).progress.fires == 3

    async def test_what_was_asked_for_while_a_schedule_is_paused_starts_one_after_the_other(
        self, schedules: ScheduleScene, scene: Scene
    ):
        """Buffered triggers and backfills waited until somebody resumed the schedule."""
        await schedules.create(overlap=Overlap.BUFFER_ALL)
        await schedules.advance(2 * MINUTE_MS)
        await lifecycle.pause(scene.ctx, "default", "s", None)
        start = 1_700_000_040_000
        await manual_fires.backfill(
            scene.ctx, "default", "s", start, start + 2 * MINUTE_MS, None, dry_run=False
        )
        assert await schedules.states() == ["buffered", "buffered", "started", "buffered"]
        for _ in range(3):
            await scene.decide(DONE)
            await schedules.sweep()
        assert await schedules.states() == ["completed", "completed", "completed", "buffered"]
        await lifecycle.resume(scene.ctx, "default", "s", None)
        await schedules.sweep()
        assert (await schedules.states())[-1] == "started"

    async def test_a_backfill_of_an_old_moment_is_not_too_late_to_start(
        self, schedules: ScheduleScene, scene: Scene
    ):
        await schedules.create(overlap=Overlap.BUFFER_ALL, start_by_s=30, paused=True)
        start = 1_700_000_040_000
        await manual_fires.backfill(
            scene.ctx, "default", "s", start, start + 2 * MINUTE_MS, None, dry_run=False
        )
        await scene.decide(DONE)
        await schedules.sweep()
        assert await schedules.states() == ["completed", "started"]

    async def test_the_last_run_that_a_schedule_may_start_drops_what_waits(
        self, schedules: ScheduleScene, scene: Scene
    ):
        await schedules.create(overlap=Overlap.BUFFER_ALL, max_runs=2)
        await schedules.advance(3 * MINUTE_MS)
        await scene.decide(DONE)
        await schedules.sweep()
        assert await schedules.states() == ["completed", "started", "schedule_deleted"]


async def delayed_by_jitter(schedules: ScheduleScene, **policies: Any) -> int:
    """The clock stands after a moment and before its fire; returns the moment."""
    created = await schedules.create({"intervals": [{"every": "PT1H"}]}, jitter_s=3_600, **policies)
    assert created.nominal_at_ms is not None
    assert created.due_at_ms is not None
    schedules.scene.clock.set((created.nominal_at_ms + created.due_at_ms) // 2)
    return created.nominal_at_ms


@pytest.mark.parametrize("change", ["pause and resume", "no jitter"])
async def test_a_fire_that_jitter_delays_is_not_lost_by_a_change_in_the_meantime(
    schedules: ScheduleScene, scene: Scene, change: str
):
    nominal_ms = await delayed_by_jitter(schedules)
    if change == "no jitter":
        await lifecycle.update(
            scene.ctx,
            "default",
            "s",
            lambda found: replace(found, policies=replace(found.policies, jitter_s=0)),
        )
    else:
        await lifecycle.pause(scene.ctx, "default", "s", None)
        await lifecycle.resume(scene.ctx, "default", "s", None)
    record = await schedules.record()
    assert record.nominal_at_ms == nominal_ms
    assert record.due_at_ms is not None
    scene.clock.set(max(scene.clock.now_ms(), record.due_at_ms))
    await schedules.sweep()
    [fire] = await schedules.fires()
    assert (fire.nominal_at_ms, fire.state) == (nominal_ms, FireState.STARTED)


async def test_jitter_alone_makes_no_fire_too_late(schedules: ScheduleScene, scene: Scene):
    await delayed_by_jitter(schedules, start_by_s=1)
    due_ms = (await schedules.record()).due_at_ms
    assert due_ms is not None
    scene.clock.set(due_ms)
    await schedules.sweep()
    assert await schedules.states() == ["started"]


async def test_another_note_for_a_paused_schedule_is_recorded(schedules: ScheduleScene, scene: Scene):
    await schedules.create(paused=True)
    for note in ("migration", "migration", None):
        assert (await lifecycle.pause(scene.ctx, "default", "s", note)).note == "migration"
    assert await schedules.event_types() == ["ScheduleCreated", "SchedulePaused"]


@pytest.mark.parametrize("name", ["Unheard", "ScheduledById"])
async def test_an_action_with_search_attributes_that_no_run_could_have_is_refused(
    schedules: ScheduleScene, scene: Scene, name: str
):
    """It was accepted, and every fire was skipped as start_refused."""
    action = an_action(search_attributes=json.dumps({name: "x"}))
    with pytest.raises(ValidationFailed) as refused:
        await schedules.create(action=action)
    assert list(refused.value.details["errors"]) == [f"action.search_attributes.{name}"]
    await schedules.create()
    with pytest.raises(ValidationFailed):
        await lifecycle.update(
            scene.ctx, "default", "s", lambda found: replace(found, action=actions.encode(action))
        )


async def test_jitter_delays_a_fire_and_not_its_moment(schedules: ScheduleScene, scene: Scene):
    created = await schedules.create({"intervals": [{"every": "PT1H"}]}, jitter_s=1800)
    assert created.nominal_at_ms is not None
    assert created.due_at_ms is not None
    assert 0 <= created.due_at_ms - created.nominal_at_ms < 1_800_000
    scene.clock.set(created.due_at_ms)
    await schedules.sweep()
    [fire] = await schedules.fires()
    assert fire.nominal_at_ms == created.nominal_at_ms


async def test_a_run_that_closed_a_moment_ago_is_no_overlap(schedules: ScheduleScene, scene: Scene):
    await schedules.create()
    await schedules.advance()
    leased = await scene.take(WORKFLOW)
    await scene.complete(leased, DONE)
    scene.clock.advance(MINUTE_MS)
    await due_schedules(scene.ctx).sweep()
    assert [fire.state for fire in await schedules.fires()] == [FireState.STARTED] * 2
    assert (await run_of_fire(schedules, 0)).status is RunStatus.COMPLETED
