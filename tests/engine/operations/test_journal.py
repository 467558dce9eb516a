"""The lease journal: read page by page, and deleted after its retention."""

from __future__ import annotations

import dataclasses
import json

import pytest
from msgspec.structs import replace

from penstock.core.verify.check import check
from penstock.engine.activities import activity_control
from penstock.engine.maintenance.sweepers.old_records import HOUR_MS, old_records
from penstock.engine.operations import journal
from penstock.errors import Conflict, Reason
from penstock.ports.store import Tx
from penstock.wire.operations.journal import read_journal
from tests.engine.support import direct
from tests.engine.support.scene import ACTIVITY, Scene, of
from tests.support.ephemeral import ephemeral_store


def keeping(scene: Scene) -> Scene:
    """A scene with a journal."""
    store = ephemeral_store(scene.clock, scene.wakeups, journals=True)
    return dataclasses.replace(scene, ctx=replace(scene.ctx, store=store))


async def tell(scene: Scene, *events: str) -> None:
    async def operation(tx: Tx) -> None:
        for event in events:
            tx.journal.append({"event": event})

    await scene.ctx.store.transact(operation, key="journal")


async def test_a_server_without_a_journal_refuses(scene: Scene):
    with pytest.raises(Conflict) as refusal:
        await journal.page(scene.ctx, 0, 10)
    assert refusal.value.reason is Reason.JOURNAL_OFF


async def test_a_page_begins_after_the_given_entry(scene: Scene):
    scene = keeping(scene)
    await tell(scene, "a", "b", "c")
    [first, second] = await journal.page(scene.ctx, 0, 2)
    assert second[0] > first[0]
    [third] = await journal.page(scene.ctx, second[0], 2)
    assert third[1] == '{"event":"c"}'
    assert await journal.page(scene.ctx, third[0], 2) == []


async def test_entries_older_than_the_setting_are_deleted(scene: Scene):
    scene = keeping(scene)
    await tell(scene, "old")
    scene.clock.advance(HOUR_MS)
    await tell(scene, "young")
    scene.clock.advance((scene.ctx.settings.journal_hours - 1) * HOUR_MS)
    assert await old_records(scene.ctx).sweep() == 0
    scene.clock.advance(1)
    assert await old_records(scene.ctx).sweep() == 1
    [(_, line)] = await journal.page(scene.ctx, 0, 10)
    assert line == '{"event":"young"}'
    assert await old_records(scene.ctx).sweep() == 0


async def test_a_handed_back_task_is_recorded_as_an_end_without_charge(scene: Scene):
    scene = keeping(scene)
    await scene.start_activity()
    leased = await scene.take(ACTIVITY)
    await direct.hand_back_activity(scene.ctx, "default", leased.task.task_id, of(leased))
    again = await scene.take(ACTIVITY)
    reported = [json.loads(line) for _, line in await journal.page(scene.ctx, 0, 10)]
    told = [
        (line["event"], line.get("lease"), line.get("how"), line.get("attempt"))
        for line in reported
        if line["event"] != "worker"
    ]
    assert told == [
        ("ready", None, None, 1),
        ("granted", leased.task.lease_token, None, 1),
        ("ended", leased.task.lease_token, "handed_back", None),
        ("ready", None, None, 1),
        ("granted", again.task.lease_token, None, 1),
    ]


async def test_verify_does_not_take_a_paused_activity_for_a_forgotten_one(scene: Scene):
    scene = keeping(scene)
    await scene.start_activity("held")
    await activity_control.pause(scene.ctx, "default", "held", "card is checked")
    await scene.advance(60_000)
    await scene.start_activity("later")
    await scene.finish(await scene.take(ACTIVITY))
    await activity_control.resume(scene.ctx, "default", "held", None)
    await scene.finish(await scene.take(ACTIVITY))
    lines = [
        json.dumps(json.loads(line) | {"seq": seq}).encode()
        for seq, line in await journal.page(scene.ctx, 0, 100)
    ]
    told = [json.loads(line) for line in lines]
    assert [each["how"] for each in told if each["event"] == "gone"] == ["delayed"]
    assert len([each for each in told if each["event"] == "ready"]) == 3
    assert check(read_journal(lines, "the journal"))[0].findings == []
