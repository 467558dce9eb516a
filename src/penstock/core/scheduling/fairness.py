"""The order of keys inside a priority level: integer virtual time.

Keys are ordered, not tasks. Each (queue, level, key) has one tag; the smallest tag goes next and pays one
stride, which is small for a heavy key and large for a light one. All numbers are integers, so that Python,
SQLite and PostgreSQL agree to the last digit.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from enum import IntEnum

from msgspec import Struct, field
from msgspec.structs import replace

SCALE = 1 << 36
WEIGHT_MIN_MILLI = 1
WEIGHT_MAX_MILLI = 1_000_000
_GOLDEN = 0x9E3779B97F4A7C15
_MASK = (1 << 64) - 1

ALL_LEVELS = (0, 9)
TAGGED_AT_ONCE_MAX = 256
"""Most lanes of a kind that one claim places."""
REBASED_ABOVE = 1 << 61
"""Beyond this virtual time starts again at nothing."""
LaneKey = tuple[int, str]
"""A lane by its level and key."""


def stride(weight_milli: int) -> int:
    """What one dispatch costs a key of this weight, in virtual time."""
    return (SCALE + weight_milli // 2) // weight_milli


class LaneState(IntEnum):
    """Where a busy lane stands."""

    READY = 0
    NEW = 1
    """Became busy or changed weight since the last claim: its tag must be computed."""
    DIRTY = 2
    """What it may do has changed since the last claim: its tag stands, the rest is looked at again."""
    THROTTLED = 3
    """Out of tokens until a moment."""
    BLOCKED = 4
    """Its key is paused, closed, or runs as much as it may."""


class VirtualClock(Struct, frozen=True):
    """A level's virtual time, and how many keys were placed since it last moved."""

    level: int
    virtual: int = 0
    placed: int = 0


class Lane(Struct, frozen=True):
    """One key of one level with its waiting tasks, as the claim sees it."""

    level: int
    key: str
    tag: int
    weight_milli: int
    """The weight that `tag` was computed with."""
    wanted_milli: int
    """The weight that the latest task carried."""
    count: int
    state: int = LaneState.READY
    override_milli: int | None = None
    """The weight that the operator set for the key; it beats what tasks carry."""
    rank: int = 0
    """Goes before the tag where shares are measured in what runs; else 0 for all."""
    open_at_ms: int | None = None
    """When a waiting lane may go on."""
    base: int | None = None
    """The level's virtual time when the lane became busy, as far as was known then; None: now."""
    fits: int = 1
    """0: holds no task that the asker can run, so it is stepped over."""
    held_at: int | None = None
    """The running limit that holds it, if that is what does."""

    @property
    def lane_key(self) -> LaneKey:
        return self.level, self.key

    @property
    def effective_milli(self) -> int:
        """The weight in force now; differs from `weight_milli` until the lane is placed again."""
        return self.wanted_milli if self.override_milli is None else self.override_milli


def assign_tags(lanes: Sequence[Lane], clock: VirtualClock) -> tuple[list[Lane], VirtualClock]:
    """Give each newly busy or re-weighted lane its tag.

    Idle time earns nothing and no debt is forgiven. Newcomers of one instant are spread over their first
    stride by the golden ratio; the first of them goes next, so a lone newcomer never waits for a backlog.
    The stride counts from when the lane became busy: when more came at once than one claim places, those
    placed later have their first turn before those placed earlier have their second.
    A lane that has a wait left keeps its place, scaled where its weight changed: were it spread anew each
    time, a weight that flutters would push it back for ever.
    """
    placed: list[Lane] = []
    for lane in sorted(lanes, key=lambda each: each.key):
        weight_milli = lane.effective_milli
        if lane.tag > clock.virtual:
            tag = _reweighted(lane, clock.virtual)
        else:
            offset = ((clock.placed * _GOLDEN & _MASK) * stride(weight_milli)) >> 64
            base = clock.virtual if lane.base is None else min(lane.base, clock.virtual)
            tag = max(lane.tag, base + offset)
            clock = replace(clock, placed=clock.placed + 1)
        placed.append(replace(lane, tag=tag, weight_milli=weight_milli, state=LaneState.READY))
    return placed, clock


def _reweighted(lane: Lane, virtual: int) -> int:
    """Scale the wait that is left; service already given is not billed again."""
    return virtual + (lane.tag - virtual) * stride(lane.effective_milli) // stride(lane.weight_milli)


def refund_tag(lane: Lane, paid: int) -> Lane:
    """The lane after a dispatch that it paid for was not delivered.

    No more than a stride of its weight now: the wait that is left is scaled when a weight changes. A tag that lies
    behind virtual time afterwards saves up nothing, for a dispatch starts at virtual time or later.
    """
    return replace(lane, tag=lane.tag - min(paid, stride(lane.weight_milli)))


class Starving(Struct, frozen=True):
    """A level with tasks that have waited too long: since when the oldest, and how many there are."""

    level: int
    oldest_ms: int
    count: int


class PlanBounds(Struct, frozen=True):
    """What the plan must keep to beside the order."""

    left: Mapping[str, int] = field(default_factory=dict)
    """How many more each key may be given now; a key that is not named, any number."""
    running: Mapping[str, int] | None = None
    """What each key runs, where shares are measured in that."""
    starving: Sequence[Starving] = ()
    aging_every: int = 0
    aging_turn: int = 0
    """Dispatches since a starving level had its turn."""


UNBOUNDED = PlanBounds()


class LanePlan(Struct, frozen=True):
    """The next dispatches in order, and the state that follows from them."""

    order: tuple[LaneKey, ...]
    lanes: tuple[Lane, ...]
    """Those that were billed."""
    clocks: tuple[VirtualClock, ...]
    aging_turn: int = 0

    def counts(self) -> dict[LaneKey, int]:
        return count_by_lane(self.order)


def count_by_lane(order: Sequence[LaneKey]) -> dict[LaneKey, int]:
    """How many tasks each lane gives, in order of first service."""
    taken: dict[LaneKey, int] = {}
    for lane_key in order:
        taken[lane_key] = taken.get(lane_key, 0) + 1
    return taken


def plan(
    lanes: Sequence[Lane], clocks: Sequence[VirtualClock], room: int, bounds: PlanBounds = UNBOUNDED
) -> LanePlan:
    """Choose up to `room` dispatches: lower levels first, inside a level the least tag, ties by key.

    Invariant `fair-share`: a lane's dispatches carry tags at least one stride apart and virtual time never
    falls back, so for any two busy lanes i and j of a level |Si/wi - Sj/wj| <= 1/wi + 1/wj in any interval.
    Only the `room` least lanes of a level can be touched, and a plan for n equals n plans for one.
    """
    planner = _Planner(lanes, clocks, bounds)
    order: list[LaneKey] = []
    while len(order) < room and (lane_key := planner.next()) is not None:
        order.append(lane_key)
    return planner.outcome(tuple(order))


_Entry = tuple[int, int, str, int]
"""Rank, tag, key and the lane's place in the list."""


class _Planner:
    """One heap of lanes for each level, and what has been spent so far.

    What billing changes of lanes and clocks is kept in numbers beside them, for it changes with every dispatch.
    """

    def __init__(self, lanes: Sequence[Lane], clocks: Sequence[VirtualClock], bounds: PlanBounds) -> None:
        self._lanes = lanes
        self._clocks = {clock.level: clock for clock in clocks}
        self._virtual = {clock.level: clock.virtual for clock in clocks}
        self._tags = [lane.tag for lane in lanes]
        self._counts = [lane.count for lane in lanes]
        self._left = dict(bounds.left)
        self._running = None if bounds.running is None else dict(bounds.running)
        self._every = bounds.aging_every
        self._turn = bounds.aging_turn
        self._starving = {each.level: each for each in bounds.starving}
        self._touched: dict[int, None] = {}
        self._heaps: dict[int, list[_Entry]] = {}
        for index, lane in enumerate(lanes):
            if lane.count > 0:
                self._heaps.setdefault(lane.level, []).append(self._entry(index))
        for heap in self._heaps.values():
            heapq.heapify(heap)
        self._levels = sorted(self._heaps)

    def next(self) -> LaneKey | None:
        """Bill the lane that goes next; None when no lane may go."""
        while self._levels and not self._may_go(self._levels[0]):
            self._levels.pop(0)
        if not self._levels:
            return None
        return self._bill(self._heaps[self._level_of_next()])

    def _level_of_next(self) -> int:
        """The lowest level; or, each n-th time, the starving one below it that has waited longest."""
        natural = self._levels[0]
        if not self._every:
            return natural
        below = [
            each for each in self._starving.values() if each.level > natural and self._may_go(each.level)
        ]
        level = natural
        if below and self._turn + 1 >= self._every:
            level = min(below, key=lambda each: (each.oldest_ms, each.level)).level
        self._turn = self._turn + 1 if below and level == natural else 0
        self._feed(level)
        return level

    def _feed(self, level: int) -> None:
        """One task less has waited too long, if any of this level has."""
        starving = self._starving.pop(level, None)
        if starving is not None and starving.count > 1:
            self._starving[level] = replace(starving, count=starving.count - 1)

    def _may_go(self, level: int) -> bool:
        """Bring the lane that goes next to the top of its heap; lanes whose key may not go are dropped."""
        heap = self._heaps.get(level)
        while heap:
            entry = heap[0]
            if self._left.get(entry[2], 1) <= 0:
                heapq.heappop(heap)
                continue
            if self._running is None:
                return True
            current = self._entry(entry[3])
            if current == entry:
                return True
            heapq.heapreplace(heap, current)
        return False

    def _entry(self, index: int) -> _Entry:
        lane = self._lanes[index]
        return self._rank(lane), self._tags[index], lane.key, index

    def _rank(self, lane: Lane) -> int:
        return 0 if self._running is None else rank(self._running.get(lane.key, 0), lane.weight_milli)

    def _bill(self, heap: list[_Entry]) -> LaneKey:
        """Have the lane at the top pay for one dispatch."""
        index = heap[0][3]
        lane = self._lanes[index]
        level, key = lane.level, lane.key
        start = self._virtual[level] = max(self._tags[index], self._virtual.get(level, 0))
        self._tags[index] = start + stride(lane.weight_milli)
        self._counts[index] -= 1
        self._touched[index] = None
        if key in self._left:
            self._left[key] -= 1
        if self._running is not None:
            self._running[key] = self._running.get(key, 0) + 1
        if self._counts[index] > 0:
            heapq.heapreplace(heap, self._entry(index))
        else:
            heapq.heappop(heap)
        return level, key

    def outcome(self, order: tuple[LaneKey, ...]) -> LanePlan:
        moved = sorted({level for level, _ in order})
        return LanePlan(
            order=order,
            lanes=tuple(self._billed(index) for index in self._touched),
            clocks=tuple(self._clock(level) for level in moved),
            aging_turn=self._turn,
        )

    def _billed(self, index: int) -> Lane:
        return replace(self._lanes[index], tag=self._tags[index], count=self._counts[index])

    def _clock(self, level: int) -> VirtualClock:
        """The clock of a level; one that moved counts anew whom it has placed since."""
        clock = self._clocks.get(level) or VirtualClock(level)
        virtual = self._virtual[level]
        return clock if virtual == clock.virtual else VirtualClock(level, virtual, 0)


class Arrival(Struct, frozen=True):
    """A task in the order in which tasks came."""

    level: int
    seq: int
    key: str


def plan_arrivals(arrivals: Sequence[Arrival], room: int, bounds: PlanBounds = UNBOUNDED) -> LanePlan:
    """As `plan`, where keys have no shares: lower levels first, inside a level who came first."""
    weight_milli = 1_000
    each_alone = [Lane(each.level, each.key, each.seq, weight_milli, weight_milli, 1) for each in arrivals]
    planned = plan(each_alone, (), room, replace(bounds, running=None))
    return LanePlan(planned.order, (), (), planned.aging_turn)


def rank(running: int, weight_milli: int) -> int:
    """Where a key stands by what it runs: the next seat goes to the least, as Webster divides seats."""
    return (2 * running + 1) * stride(weight_milli)
