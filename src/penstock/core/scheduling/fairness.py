"""Weighted fairness between the keys of a priority level: stride scheduling with a virtual clock.

Theory of operation
-------------------
Keys are ordered, not tasks. Each (queue, level, key) with waiting tasks is a *lane* with one *tag*. The lane with the
smallest tag is served next and its tag advances by one *stride*, which is inversely proportional to its weight
(stride scheduling: Waldspurger and Weihl, 1995). Inside a lane tasks go first in, first out.

A level also has a *virtual clock*: the start tag of its latest dispatch, as in start-time fair queueing (Goyal, Vin and
Cheng, 1996). It only serves lanes that become busy. They are tagged no earlier than the clock, so idle time earns no
credit; and a tag that is still ahead of the clock is kept, so going idle forgives no debt.

Invariant `fair-share`: for any two busy lanes i and j of a level, in any interval, |Si/wi - Sj/wj| <= 1/wi + 1/wj,
where S counts dispatches and w is the weight.

Details that matter:

- Tags and strides are integers. Python, SQLite and PostgreSQL must compute the same order to the last digit, and a plan
  for n dispatches must equal n plans for one.
- Lanes that become busy together are spread over their first stride by multiples of the golden ratio (Fibonacci
  hashing), so that a thousand new keys of one weight do not form a convoy. The first is tagged with the clock itself: a
  single new key never waits behind a backlog.
- A weight takes effect at dispatch: the remaining wait of the lane is rescaled. A lane whose weight changes all the
  time keeps its position.
- Where shares are measured in running tasks instead of dispatches, a *rank* precedes the tag: (2 * running + 1) *
  stride, which is Webster's method of apportionment. Virtual time cannot express it, because the number of running
  tasks also falls.
- Levels are strict priorities, except that every n-th dispatch goes to a starving level (`Starving`): aging as a turn,
  whose cost and longest wait follow by arithmetic.
- Enqueueing never locks the queue: it raises the lane's count and marks the lane NEW; the next claim assigns its tag.

Rejected: tags per task, assigned at enqueue (the backlog keeps the weights of that moment, and a change would rewrite
it); deficit round robin (a lane's burst grows with its quantum, and the order depends on a cursor); lottery scheduling
(shares hold only on average).
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from enum import IntEnum

from msgspec import Struct, field
from msgspec.structs import replace

SCALE = 1 << 36
WEIGHT_MIN_MILLI = 1
_GOLDEN = 0x9E3779B97F4A7C15
_MASK = (1 << 64) - 1

ALL_LEVELS = (0, 9)
TAGGED_AT_ONCE_MAX = 256
"""Most lanes of one state that one claim tags."""
REBASED_ABOVE = 1 << 61
"""Above this a level's clock and tags are rebased to zero, so that they stay within 64 bits."""
LaneKey = tuple[int, str]
"""A lane's level and fairness key."""


def stride(weight_milli: int) -> int:
    """How far one dispatch advances the tag of a lane of this weight."""
    return (SCALE + weight_milli // 2) // weight_milli


class LaneState(IntEnum):
    """Whether a claim may serve a busy lane. A hint about where to look: limits themselves are judged in the claim."""

    READY = 0
    NEW = 1
    """Became busy or changed weight since the last claim: its tag must be computed."""
    DIRTY = 2
    """A limit of its key changed since the last claim: the tag is valid, the limits must be evaluated again."""
    THROTTLED = 3
    """Its key's rate is exhausted until `open_at_ms`."""
    BLOCKED = 4
    """Its key is paused, closed, or at its lease cap; a change makes it DIRTY."""


class VirtualClock(Struct, frozen=True):
    """A level's virtual time, and the number of lanes tagged since it last advanced."""

    level: int
    virtual: int = 0
    placed: int = 0


class Lane(Struct, frozen=True):
    """One fairness key of one level with its waiting tasks, as a claim sees it."""

    level: int
    key: str
    tag: int
    weight_milli: int
    """The weight that `tag` was computed with."""
    wanted_milli: int
    """The weight that the latest task carries."""
    count: int
    state: int = LaneState.READY
    override_milli: int | None = None
    """The weight that an operator set for the key; it takes precedence over the weights of tasks."""
    rank: int = 0
    """Precedes the tag where shares are measured in running tasks; else 0."""
    open_at_ms: int | None = None
    """Of a throttled lane: when its key's rate allows the next dispatch."""
    base: int | None = None
    """The level's virtual time when the lane became busy, if it was known then; None: now."""
    fits: int = 1
    """0: has no task for the polling workers, and is skipped."""
    held_at: int | None = None
    """Of a blocked lane: the lease cap that blocks it, if one does."""

    @property
    def lane_key(self) -> LaneKey:
        return self.level, self.key

    @property
    def effective_milli(self) -> int:
        """The weight in force; differs from `weight_milli` until the lane is tagged again."""
        return self.wanted_milli if self.override_milli is None else self.override_milli


def assign_tags(
    lanes: Sequence[Lane], clocks: Sequence[VirtualClock]
) -> tuple[list[Lane], list[VirtualClock]]:
    """Tag each lane, all of which became busy or changed their weight; returns them and the clocks of all levels.

    New lanes are spread over their first stride by the golden ratio. The stride counts from when the lane became busy:
    if more lanes came at once than one claim tags, those tagged later get their first turn before those tagged earlier
    get their second. A lane whose tag is ahead of the clock keeps its remaining wait, rescaled to its weight; spreading
    it again would push back a lane whose weight keeps changing.
    """
    by_level = {clock.level: clock for clock in clocks}
    tagged: list[Lane] = []
    for lane in sorted(lanes, key=lambda each: (each.level, each.key)):
        clock = by_level.get(lane.level) or VirtualClock(lane.level)
        weight_milli, virtual = lane.effective_milli, clock.virtual
        if lane.tag > virtual:
            tag = virtual + (lane.tag - virtual) * stride(weight_milli) // stride(lane.weight_milli)
        else:
            offset = ((clock.placed * _GOLDEN & _MASK) * stride(weight_milli)) >> 64
            base = virtual if lane.base is None else min(lane.base, virtual)
            tag = max(lane.tag, base + offset)
            clock = replace(clock, placed=clock.placed + 1)
        by_level[lane.level] = clock
        tagged.append(replace(lane, tag=tag, weight_milli=weight_milli, state=LaneState.READY))
    return tagged, [by_level[level] for level in sorted(by_level)]


def refund_tag(lane: Lane, paid: int) -> Lane:
    """The lane after a dispatch that it was billed for was not delivered.

    Refunds at most one stride of its present weight, because the remaining wait is rescaled when the weight changes. A
    tag that falls behind the virtual clock earns no credit: a dispatch starts at the clock or later.
    """
    return replace(lane, tag=lane.tag - min(paid, stride(lane.weight_milli)))


class Starving(Struct, frozen=True):
    """A level with tasks that have waited longer than the aging limit."""

    level: int
    oldest_ms: int
    count: int


class PlanBounds(Struct, frozen=True):
    """Limits of a plan besides the fair order."""

    left: Mapping[str, int] = field(default_factory=dict)
    """How many more dispatches each key may get; keys that are missing are not limited."""
    running: Mapping[str, int] | None = None
    """Running tasks by key, where shares are measured in them."""
    starving: Sequence[Starving] = ()
    aging_every: int = 0
    """Every how many dispatches a starving level has its turn; 0: never."""
    aging_turn: int = 0
    """Dispatches since a starving level last had its turn."""


UNBOUNDED = PlanBounds()


class LanePlan(Struct, frozen=True):
    """The next dispatches in order, and the state that follows from them."""

    order: tuple[LaneKey, ...]
    lanes: tuple[Lane, ...]
    """The lanes that were billed."""
    clocks: tuple[VirtualClock, ...]
    aging_turn: int = 0


def plan(
    lanes: Sequence[Lane], clocks: Sequence[VirtualClock], room: int, bounds: PlanBounds = UNBOUNDED
) -> LanePlan:
    """Choose up to `room` dispatches: lower levels first, inside a level the smallest tag, ties by key.

    Keeps `fair-share`: a lane's dispatches have tags at least one stride apart, and the clock never goes back. Only the
    `room` first lanes of a level can be served, and a plan for n equals n plans for one.
    """
    planner = _Planner(lanes, clocks, bounds)
    order: list[LaneKey] = []
    while len(order) < room and (heap := planner.next_heap()):
        order.append(planner.dispatch_first(heap))
    return LanePlan(
        order=tuple(order),
        lanes=tuple(
            [replace(lanes[at], tag=tag, count=count) for at, (tag, count) in planner.billed.items()]
        ),
        clocks=tuple([planner.clocks[level] for level in sorted({level for level, _ in order})]),
        aging_turn=planner.aging_turn,
    )


_Entry = tuple[int, int, str, int, int]
"""Rank, tag and key of a lane, by which lanes are ordered; then its index, and its remaining tasks."""


class _Planner:
    """The busy lanes of each level as a heap, and what is left of all limits while the plan grows."""

    def __init__(self, lanes: Sequence[Lane], clocks: Sequence[VirtualClock], bounds: PlanBounds) -> None:
        self.clocks = {clock.level: clock for clock in clocks}
        self.billed: dict[int, tuple[int, int]] = {}
        """The tag and the remaining tasks of each lane that was served, by its index."""
        self.aging_turn = bounds.aging_turn
        self._lanes = lanes
        self._left = dict(bounds.left)
        self._running = None if bounds.running is None else dict(bounds.running)
        self._every = bounds.aging_every
        self._starving = {each.level: each for each in bounds.starving}
        self._heaps: dict[int, list[_Entry]] = {}
        for index, lane in enumerate(lanes):
            if lane.count > 0:
                self._heaps.setdefault(lane.level, []).append(self._entry(index, lane.tag, lane.count))
        for heap in self._heaps.values():
            heapq.heapify(heap)
        self._levels = sorted(self._heaps)

    def _entry(self, index: int, tag: int, count: int) -> _Entry:
        lane, running = self._lanes[index], self._running
        ranked = 0 if running is None else rank(running.get(lane.key, 0), lane.weight_milli)
        return ranked, tag, lane.key, index, count

    def next_heap(self) -> list[_Entry] | None:
        """The lanes of the level that is served next, the first of them on top; None if no lane may be served."""
        while self._levels and not self._may_go(self._levels[0]):
            self._levels.pop(0)
        if not self._levels:
            return None
        level = self._aged_level(self._levels[0]) if self._every else self._levels[0]
        return self._heaps[level]

    def _may_go(self, level: int) -> bool:
        """Bring the next lane of a level to the top of its heap, dropping lanes whose key has reached its limit."""
        heap = self._heaps.get(level)
        while heap:
            _, tag, key, index, count = heap[0]
            if self._left.get(key, 1) <= 0:
                heapq.heappop(heap)
                continue
            # A dispatch changes the rank of all lanes of its key, also where they are not on top.
            if self._running is None or (current := self._entry(index, tag, count)) == heap[0]:
                return True
            heapq.heapreplace(heap, current)
        return False

    def _aged_level(self, lowest: int) -> int:
        """The lowest level; or, every n-th time, the starving level behind it that has waited longest."""
        behind = [
            each for each in self._starving.values() if each.level > lowest and self._may_go(each.level)
        ]
        level = lowest
        if behind and self.aging_turn + 1 >= self._every:
            level = min(behind, key=lambda each: (each.oldest_ms, each.level)).level
        self.aging_turn = self.aging_turn + 1 if behind and level == lowest else 0
        starving = self._starving.pop(level, None)
        if starving is not None and starving.count > 1:
            self._starving[level] = replace(starving, count=starving.count - 1)
        return level

    def dispatch_first(self, heap: list[_Entry]) -> LaneKey:
        """Bill the lane on top for one dispatch."""
        _, tag, key, index, count = heap[0]
        lane = self._lanes[index]
        clock = self.clocks.get(lane.level) or VirtualClock(lane.level)
        if tag > clock.virtual:
            clock = VirtualClock(lane.level, tag)
        self.clocks[lane.level] = clock
        tag, count = clock.virtual + stride(lane.weight_milli), count - 1
        self.billed[index] = tag, count
        if key in self._left:
            self._left[key] -= 1
        if self._running is not None:
            self._running[key] = self._running.get(key, 0) + 1
        if count > 0:
            heapq.heapreplace(heap, self._entry(index, tag, count))
        else:
            heapq.heappop(heap)
        return lane.level, key


class Arrival(Struct, frozen=True):
    """A ready task in order of arrival."""

    level: int
    seq: int
    key: str


def plan_arrivals(arrivals: Sequence[Arrival], room: int, bounds: PlanBounds = UNBOUNDED) -> LanePlan:
    """Like `plan`, without shares: lower levels first, inside a level in order of arrival."""
    weight_milli = 1_000
    each_alone = [Lane(each.level, each.key, each.seq, weight_milli, weight_milli, 1) for each in arrivals]
    planned = plan(each_alone, (), room, replace(bounds, running=None))
    return LanePlan(planned.order, (), (), planned.aging_turn)


def rank(running: int, weight_milli: int) -> int:
    """The rank of a key by its running tasks (Webster's method): the smallest is served next."""
    return (2 * running + 1) * stride(weight_milli)
