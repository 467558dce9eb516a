"""The timeline of a run, on an engine with a manual clock."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import structs

from penstock.core.limits.policies import LimitSetting
from penstock.engine.activities.activity_reports import AttemptFailure
from penstock.engine.limits import policies
from penstock.engine.limits.policies import PolicyUpdate, SettingChange
from penstock.engine.runs.address import Address
from penstock.engine.runtime import timeline_cache
from penstock.engine.visibility import timelines
from penstock.engine.visibility.timelines import LaneSelection, RunTimeline
from penstock.errors import NotFound
from tests.engine.support.scene import ACTIVITY, DONE, WORKFLOW, Scene, charge, tries


async def timeline(scene: Scene, **selection: Any) -> RunTimeline:
    return await timelines.read(scene.ctx, Address("default", "order-1"), LaneSelection(**selection))


def parts(found: RunTimeline) -> dict[str, list[tuple[int, int, str]]]:
    start = found.times.started_at_ms
    return {
        lane.label: [
            (span.from_ms - start, span.to_ms - start, span.cause.value if span.cause else "running")
            for span in lane.spans
        ]
        for lane in found.lanes
    }


async def test_a_run_from_start_to_end(scene: Scene) -> None:
    await scene.start()
    scene.clock.advance(100)
    leased = await scene.take(WORKFLOW)
    scene.clock.advance(10)
    await scene.complete(leased, charge(tries(2, 1)))
    scene.clock.advance(200)
    held = await scene.take(ACTIVITY)
    scene.clock.advance(300)
    await scene.fail_activity(held, AttemptFailure("declined \x00"))
    await scene.advance(1_000)
    scene.clock.advance(50)
    held = await scene.take(ACTIVITY)
    scene.clock.advance(40)
    await scene.finish(held)
    scene.clock.advance(5)
    await scene.decide(DONE)
    scene.clock.advance(10_000)
    found = await timeline(scene)
    assert parts(found) == {
        "workflow tasks": [
            (0, 100, "unknown"),
            (100, 110, "running"),
            (1_700, 1_705, "unknown"),
            (1_705, 1_705, "running"),
        ],
        "Charge": [
            (110, 310, "unknown"),
            (310, 610, "running"),
            (610, 1_610, "backoff"),
            (1_610, 1_660, "unknown"),
            (1_660, 1_700, "running"),
        ],
    }
    spent = found.spent
    assert (spent.total_ms, spent.held_back_ms, spent.running_ms, spent.by_design_ms) == (
        1_705,
        355,
        350,
        1_000,
    )
    assert found.is_complete


async def test_what_a_run_waits_for_now_is_what_why_says(scene: Scene) -> None:
    await scene.start()
    await scene.decide(charge(), charge())
    cap = PolicyUpdate({LimitSetting.LEASE_CAP: SettingChange(1)})
    await policies.configure(scene.ctx, "default", "orders", ACTIVITY, cap, "ops")
    await scene.take(ACTIVITY)
    scene.clock.advance(500)
    first, second = [lane for lane in (await timeline(scene)).lanes if lane.label == "Charge"]
    assert first.spans[-1].cause is None
    assert [span.cause for span in second.spans] == ["cap"]


async def test_steps_of_one_type_are_shown_on_demand(scene: Scene) -> None:
    await scene.start()
    await scene.decide(charge(), charge(activity_type="Ship"), charge())
    found = await timeline(scene, label="Charge")
    assert [(lane.label, lane.step) for lane in found.lanes] == [("Charge", 1), ("Charge", 3)]
    found = await timeline(scene, label="Charge", after_step=1)
    assert [lane.step for lane in found.lanes] == [3]


async def test_a_long_run_that_grew_is_drawn_like_one_that_is_drawn_for_the_first_time(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a long run only the events are read that were not there when it was drawn before."""
    monkeypatch.setattr(timeline_cache, "LONG", 1)
    monkeypatch.setattr(timeline_cache, "EVENTS_A_MS", 10**9)
    monkeypatch.setattr(timelines, "EVENTS_AT_ONCE", 2)
    await scene.start()
    await scene.decide(charge(), charge(), charge())
    for _ in range(3):
        scene.clock.advance(100)
        await timeline(scene)
        await scene.finish(await scene.take(ACTIVITY))
    scene.clock.advance(100)
    grown = await timeline(scene)
    anew = structs.replace(scene.ctx, timelines=timeline_cache.TimelineCache())
    first = await timelines.read(anew, Address("default", "order-1"), LaneSelection())
    assert len([lane for lane in first.lanes if lane.outcome == "completed"]) == 3
    assert (grown.lanes, grown.spent) == (first.lanes, first.spent)


async def test_a_workflow_of_another_namespace_has_no_timeline(scene: Scene) -> None:
    await scene.start()
    with pytest.raises(NotFound):
        await timelines.read(scene.ctx, Address("elsewhere", "order-1"), LaneSelection())
