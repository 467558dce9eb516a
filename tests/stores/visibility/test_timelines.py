"""The timeline of a long history, on every store."""

from __future__ import annotations

import json

import pytest
from msgspec.structs import replace

from penstock.core.model import RecordedEvent, RunId
from penstock.engine.context import EngineContext
from penstock.engine.operations import namespaces
from penstock.engine.runs.address import Address
from penstock.engine.visibility import timelines
from penstock.engine.visibility.timelines import LaneSelection
from penstock.engine.workflows import starts
from penstock.ports.store import Store, Tx
from penstock.settings import load
from penstock.wakeups.local import LocalWakeups
from penstock.wire.visibility import timelines as wire
from tests.engine.support.scene import a_start
from tests.support.entropy import CountingEntropy

EVENTS = 50_000
CHUNK = 10_000
TYPES = 7


@pytest.fixture
async def ctx(store: Store, wakeups: LocalWakeups) -> EngineContext:
    found = EngineContext(store, wakeups, CountingEntropy(), load({}))
    await namespaces.ensure(found, "default")
    return found


async def grow(ctx: EngineContext, run_id: RunId, first: int, last: int) -> None:
    """Append events of activities, each of which takes one millisecond."""

    async def operation(tx: Tx) -> None:
        run = await tx.runs.lock(run_id)
        assert run is not None
        tx.histories.append([_event(run_id, number, run.started_at_ms) for number in range(first, last + 1)])
        tx.runs.save(replace(run, last_sequence=last))

    await ctx.store.transact(operation, key=run_id)


def _event(run_id: RunId, number: int, start_ms: int) -> RecordedEvent:
    step, ends = divmod(number, 2)
    payload = {
        "sequence": step,
        "activity_type": f"compose-{step % TYPES}",
        "activity_execution_id": f"{run_id}-a{step}",
        "attempt_number": 1,
        "message": "\x00 \\u0000",
        "result": "x" * 100,
    }
    kind = "ActivityCompleted" if ends else "ActivityScheduled"
    return RecordedEvent(run_id, number, kind, json.dumps(payload), start_ms + number, None)


async def test_a_history_of_fifty_thousand_events_is_a_small_timeline(ctx: EngineContext) -> None:
    run = (await starts.start_workflow(ctx, a_start("order-1"))).run
    for first in range(2, EVENTS, CHUNK):
        await grow(ctx, run.run_id, first, first + CHUNK - 1)
    found = await timelines.read(ctx, Address("default", "order-1"), LaneSelection())
    assert found.is_complete
    assert found.lane_count >= EVENTS // 2
    assert sum(lane.folded for lane in found.lanes) == EVENTS // 2
    assert sum(len(lane.spans) + len(lane.ticks) for lane in found.lanes) <= 2_000
    body = [wire.lane(lane, run.started_at_ms) for lane in found.lanes]
    assert len(json.dumps(body)) <= 200_000
    assert f"× {found.lanes[-1].folded:,}, p50 1 ms" in body[-1]["label"]


async def test_only_the_fields_that_a_timeline_shows_are_read(ctx: EngineContext) -> None:
    run = (await starts.start_workflow(ctx, a_start("order-1"))).run
    await grow(ctx, run.run_id, 2, 3)
    events = await ctx.store.read(lambda tx: tx.histories.timeline(run.run_id, 1, 10))
    assert [(each.sequence, each.step, each.activity_type, each.attempt) for each in events] == [
        (2, 1, "compose-1", 1),
        (3, 1, "compose-1", 1),
    ]
