"""A throttle divides a sweep into portions, and leaves most of the time to others while they work."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from penstock.engine.maintenance.throttle import (
    PAUSE_S_EACH,
    PAUSE_S_MAX,
    PORTION,
    PORTION_MAX,
    SHARE,
    Throttle,
    pause_s,
)
from penstock.ports.store import Tx
from tests.engine.support.scene import Scene


@given(busy_s=st.floats(0, 10), others=st.integers(1, 1000))
def test_a_sweep_takes_its_share_of_the_time_while_others_work(busy_s: float, others: int) -> None:
    pause = pause_s(busy_s, others)
    longest = min(PAUSE_S_MAX, others * PAUSE_S_EACH)
    assert pause <= longest
    if pause < longest:
        assert abs(busy_s - SHARE * (busy_s + pause)) < 1e-6


@given(busy_s=st.floats(0.05, 0.4))
def test_a_sweep_on_a_busy_machine_takes_no_more_than_its_share(busy_s: float) -> None:
    """A portion that takes a tenth of a second or more has a pause of a second or more."""
    assert busy_s <= SHARE * (busy_s + pause_s(busy_s, 50)) + 1e-6


def test_a_sweep_hardly_waits_for_housekeeping() -> None:
    assert pause_s(0.5, 1) <= PAUSE_S_EACH


@given(busy_s=st.floats(0, 10))
def test_a_sweep_takes_all_of_the_time_while_nobody_else_works(busy_s: float) -> None:
    assert pause_s(busy_s, 0) == 0.0


async def test_all_items_come_in_order_and_portions_grow_while_nobody_else_works(scene: Scene) -> None:
    items = list(range(3 * PORTION_MAX))
    portions = [each async for each in Throttle(scene.ctx.store, lambda: 0).portions(items)]
    assert [item for portion in portions for item in portion] == items
    sizes = [len(portion) for portion in portions]
    assert (sizes[:2], max(sizes)) == ([PORTION, 2 * PORTION], PORTION_MAX)


async def test_portions_stay_small_while_others_work(scene: Scene) -> None:
    sizes = []
    async for portion in Throttle(scene.ctx.store, lambda: 0).portions(list(range(5 * PORTION))):
        sizes.append(len(portion))
        await commit_nothing(scene)
    assert sizes == [PORTION] * 5


async def test_the_store_counts_what_it_commits(scene: Scene) -> None:
    before = scene.ctx.store.health().committed
    for _ in range(3):
        await commit_nothing(scene)
    assert scene.ctx.store.health().committed == before + 3


async def commit_nothing(scene: Scene) -> None:
    async def nothing(_tx: Tx) -> None:
        return None

    await scene.ctx.store.transact(nothing, key="k")
