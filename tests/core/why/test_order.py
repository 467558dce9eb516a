"""The order of waiting tasks is the order in which the lanes would be served."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from penstock.core.scheduling.fairness import Lane
from penstock.core.why.order import dispatch_order
from penstock.core.why.position import turn

lanes = st.lists(
    st.tuples(st.integers(0, 10**9), st.integers(1, 50), st.integers(0, 8)), min_size=1, max_size=6
).map(
    lambda found: [
        Lane(0, f"key-{number}", tag, weight * 1000, weight * 1000, count)
        for number, (tag, weight, count) in enumerate(found)
    ]
)


@dataclass
class Served:
    lane: Lane
    taken: int = 0


def _one_by_one(lanes: list[Lane], virtual: int) -> list[tuple[str, int]]:
    """What a dispatcher does that looks at all lanes before each dispatch."""
    waiting, order = [Served(lane) for lane in lanes if lane.count], []
    while waiting:
        best = min(
            waiting, key=lambda each: (each.lane.rank, turn(each.lane, each.taken, virtual), each.lane.key)
        )
        order.append((best.lane.key, best.taken))
        best.taken += 1
        if best.taken == best.lane.count:
            waiting.remove(best)
    return order


@given(lanes=lanes, virtual=st.integers(0, 10**9), most=st.integers(0, 60))
def test_the_next_places_are_those_of_a_dispatcher_that_looks_at_every_lane(
    lanes: list[Lane], virtual: int, most: int
) -> None:
    assert dispatch_order(lanes, virtual, most) == _one_by_one(lanes, virtual)[:most]


def test_a_key_of_twice_the_weight_goes_twice_as_often() -> None:
    heavy = Lane(0, "heavy", 0, 2000, 2000, 20)
    light = Lane(0, "light", 0, 1000, 1000, 20)
    first = [key for key, _ in dispatch_order([heavy, light], 0, 15)]
    assert (first.count("heavy"), first.count("light")) == (10, 5)
