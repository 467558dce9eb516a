"""The journal: handed out page by page where it is kept, and forgotten in time."""

from __future__ import annotations

from dataclasses import replace

import pytest

from penstock.engine import journal
from penstock.engine.sweepers.old_records import HOUR_MS, old_records
from penstock.errors import Conflict, Reason
from penstock.ports.store import Tx
from penstock.stores.memory import MemoryStore
from tests.engine.scene import Scene


def keeping(scene: Scene) -> Scene:
    """The same scene with a journal."""
    store = MemoryStore(scene.clock, scene.wakeups, journals=True)
    return replace(scene, house=replace(scene.house, store=store))


async def tell(scene: Scene, *events: str) -> None:
    async def operation(tx: Tx) -> None:
        for event in events:
            tx.journal.append({"event": event})

    await scene.house.store.transact(operation, key="journal")


async def test_a_server_that_keeps_none_says_so(scene: Scene):
    with pytest.raises(Conflict) as refusal:
        await journal.page(scene.house, 0, 10)
    assert refusal.value.reason is Reason.JOURNAL_OFF


async def test_a_page_begins_after_the_line_that_is_named(scene: Scene):
    scene = keeping(scene)
    await tell(scene, "a", "b", "c")
    [first, second] = await journal.page(scene.house, 0, 2)
    assert second[0] > first[0]
    [third] = await journal.page(scene.house, second[0], 2)
    assert third[1] == '{"event":"c"}'
    assert await journal.page(scene.house, third[0], 2) == []


async def test_lines_older_than_the_setting_says_are_forgotten(scene: Scene):
    scene = keeping(scene)
    await tell(scene, "old")
    scene.clock.advance(HOUR_MS)
    await tell(scene, "young")
    scene.clock.advance((scene.house.settings.journal_hours - 1) * HOUR_MS)
    assert await old_records(scene.house).sweep() == 0
    scene.clock.advance(1)
    assert await old_records(scene.house).sweep() == 1
    [(_, line)] = await journal.page(scene.house, 0, 10)
    assert line == '{"event":"young"}'
    assert await old_records(scene.house).sweep() == 0
