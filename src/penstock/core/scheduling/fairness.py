"""The order of keys inside a priority level: integer virtual time.

Keys are ordered, not tasks. Each (queue, level, key) has one tag; the smallest tag goes next and pays one
stride, which is small for a heavy key and large for a light one. All numbers are integers, so that Python,
SQLite and PostgreSQL agree to the last digit.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass, replace

SCALE = 1 << 36
WEIGHT_MIN_MILLI = 1
WEIGHT_MAX_MILLI = 1_000_000
_GOLDEN = 0x9E3779B97F4A7C15
_MASK = (1 << 64) - 1


def stride(weight_milli: int) -> int:
    """What one dispatch costs a key of this weight, in virtual time."""
    return (SCALE + weight_milli // 2) // weight_milli


@dataclass(frozen=True, slots=True)
class Clockwork:
    """A level's virtual time, and how many keys were placed since it last moved."""

    level: int
    virtual: int = 0
    placed: int = 0


@dataclass(frozen=True, slots=True)
class Lane:
    """One key of one level with its waiting tasks, as the claim sees it."""

    level: int
    key: str
    tag: int
    weight_milli: int
    """The weight that `tag` was computed with."""
    wanted_milli: int
    """The weight in force now; differs from `weight_milli` until the lane is placed again."""
    count: int
    place: int = 0
    """1: became busy or changed weight since the last claim, so its tag must be computed."""
    fits: int = 1
    """0: holds no task that the asker can run, so it is stepped over."""


def place(lanes: Sequence[Lane], clock: Clockwork) -> tuple[list[Lane], Clockwork]:
    """Give each newly busy or re-weighted lane its tag.

    Idle time earns nothing and no debt is forgiven. Newcomers of one instant are spread over their first
    stride by the golden ratio; the first of them goes next, so a lone newcomer never waits for a backlog.
    A lane whose weight changed while it has a wait left keeps its place, scaled: were it spread anew each
    time, a weight that flutters would push it back for ever.
    """
    placed: list[Lane] = []
    for lane in sorted(lanes, key=lambda each: each.key):
        if lane.wanted_milli != lane.weight_milli and lane.tag > clock.virtual:
            tag = _reweighted(lane, clock.virtual)
        else:
            offset = ((clock.placed * _GOLDEN & _MASK) * stride(lane.wanted_milli)) >> 64
            tag = max(lane.tag, clock.virtual + offset)
            clock = replace(clock, placed=clock.placed + 1)
        placed.append(replace(lane, tag=tag, weight_milli=lane.wanted_milli, place=0))
    return placed, clock


def _reweighted(lane: Lane, virtual: int) -> int:
    """Scale the wait that is left; service already given is not billed again."""
    return virtual + (lane.tag - virtual) * stride(lane.wanted_milli) // stride(lane.weight_milli)


@dataclass(frozen=True, slots=True)
class Plan:
    """The next dispatches in order, and the state that follows from them."""

    order: tuple[tuple[int, str], ...]
    lanes: tuple[Lane, ...]
    clocks: tuple[Clockwork, ...]

    def counts(self) -> dict[tuple[int, str], int]:
        """How many tasks each (level, key) gives, in order of first service."""
        taken: dict[tuple[int, str], int] = {}
        for slot in self.order:
            taken[slot] = taken.get(slot, 0) + 1
        return taken


def plan(lanes: Sequence[Lane], clocks: Sequence[Clockwork], room: int) -> Plan:
    """Choose up to `room` dispatches: lower levels first, inside a level the least tag, ties by key.

    Invariant `fair-share`: a lane's dispatches carry tags at least one stride apart and virtual time never
    falls back, so for any two busy lanes i and j of a level |Si/wi - Sj/wj| <= 1/wi + 1/wj in any interval.
    Only the `room` least lanes can be touched, and a plan for n equals n plans for one.
    """
    by_level = {clock.level: clock for clock in clocks}
    heap = [(lane.level, lane.tag, lane.key, index) for index, lane in enumerate(lanes) if lane.count > 0]
    heapq.heapify(heap)
    current = list(lanes)
    touched: dict[int, None] = {}
    order: list[tuple[int, str]] = []
    while heap and len(order) < room:
        level, tag, key, index = heapq.heappop(heap)
        clock = by_level.get(level, Clockwork(level))
        start = max(tag, clock.virtual)
        if start > clock.virtual:
            clock = Clockwork(level, start, 0)
        by_level[level] = clock
        lane = current[index]
        lane = replace(lane, tag=start + stride(lane.weight_milli), count=lane.count - 1)
        current[index] = lane
        touched[index] = None
        order.append((level, key))
        if lane.count > 0:
            heapq.heappush(heap, (level, lane.tag, key, index))
    moved = {level for level, _ in order}
    return Plan(
        order=tuple(order),
        lanes=tuple(current[index] for index in touched),
        clocks=tuple(by_level[level] for level in sorted(moved)),
    )
