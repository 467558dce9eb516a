"""Timers that wait, fire or are cancelled."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from penstock.core.model import RunId, Timer, TimerState
from penstock.ports.store import Store, Tx
from tests.stores.store_operations import look, record
from tests.support.builders import NOW_MS, a_timer


async def insert(store: Store, *timers: Timer) -> None:
    def write(tx: Tx) -> None:
        for timer in timers:
            tx.timers.insert(timer)

    await record(store, write)


async def test_a_timer_is_found_as_it_was_set(store: Store):
    timer = a_timer(extra='{"kind":"await"}')
    await insert(store, timer)
    assert await look(store, lambda tx: tx.timers.get(timer.timer_id)) == timer
    assert await look(store, lambda tx: tx.timers.get("nobody")) is None


async def test_due_timers_come_in_the_order_in_which_they_fire(store: Store):
    offsets = {"late": -1, "now": 0, "later": -5, "soon": 1}
    await insert(store, *(a_timer(name, fire_at_ms=NOW_MS + by) for name, by in offsets.items()))
    assert await look(store, lambda tx: tx.timers.due(NOW_MS, 10)) == ["later", "late", "now"]
    assert await look(store, lambda tx: tx.timers.due(NOW_MS, 1)) == ["later"]


@pytest.mark.parametrize("state", [TimerState.FIRED, TimerState.CANCELLED])
async def test_a_timer_that_ended_is_neither_open_nor_due(store: Store, state: TimerState):
    timer, other = a_timer("t1", fire_at_ms=NOW_MS), a_timer("t2", step=2, fire_at_ms=NOW_MS + 7)
    await insert(store, timer, other)
    await record(store, lambda tx: tx.timers.save(replace(timer, state=state)))
    assert await look(store, lambda tx: tx.timers.due(NOW_MS, 10)) == []
    assert await look(store, lambda tx: tx.timers.open_of(RunId("r1"))) == [other]
    assert await look(store, lambda tx: tx.timers.next_due_at_ms()) == NOW_MS + 7
    assert await look(store, lambda tx: tx.timers.get("t1")) == replace(timer, state=state)


async def test_without_an_open_timer_nothing_is_due(store: Store):
    assert await look(store, lambda tx: tx.timers.next_due_at_ms()) is None


async def test_the_open_timers_of_a_run_come_in_the_order_of_their_steps(store: Store):
    steps = {"t-a": 3, "t-b": 1, "t-c": 2}
    timers = {name: a_timer(name, step=step) for name, step in steps.items()}
    await insert(store, *timers.values(), a_timer("t-d", run_id="r2"))
    found = await look(store, lambda tx: tx.timers.open_of(RunId("r1")))
    assert [timer.timer_id for timer in found] == ["t-b", "t-c", "t-a"]
