"""A queue in memory: what a store and the engine do around the core, with dicts for tables.

Lanes, clocks and keys are handed in, decided on, and kept as `settle` says; marks are set as a store sets them.
"""

from __future__ import annotations

import dataclasses
import heapq
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from msgspec.structs import replace

from penstock.core.limits.policies import (
    DispatchOrder,
    KeySettings,
    KeyState,
    LimitSetting,
    Rules,
    SettingValue,
    changed,
)
from penstock.core.limits.rates import MICRO, NANO_PER_MS
from penstock.core.model import Queue, QueueId, TaskKind
from penstock.core.scheduling.dispatch import (
    BlockedLanes,
    Hold,
    QueueSnapshot,
    Settled,
    allowance,
    decide,
    settle,
)
from penstock.core.scheduling.fairness import Arrival, Lane, LaneKey, LaneState, Starving, VirtualClock, rank

LEVEL = 3
LANES_BEYOND_ROOM = 64
LOOKS_MOST = 1000
QUEUE = Queue(QueueId(1), "default", "orders", TaskKind.ACTIVITY)
Fits = Callable[[LaneKey], bool]
Gives = Callable[[LaneKey, int], int]


def per_second(count: float) -> int:
    """A rate as settings hold it."""
    return round(count * MICRO)


@dataclass(frozen=True, slots=True)
class Dispatch:
    """One task that was handed out."""

    at_ms: int
    level: int
    key: str
    seq: int
    counted: bool

    @property
    def lane_key(self) -> LaneKey:
        return self.level, self.key


@dataclass(slots=True)
class Batch:
    """Tasks of one lane that came together."""

    seq: int
    count: int
    at_ms: int


class QueueModel:
    def __init__(
        self, settings: Mapping[LimitSetting, int | str] | None = None, *, virtual: int = 0, now_ms: int = 0
    ) -> None:
        self.queue = QUEUE
        self.now_ms = now_ms
        self.lanes: dict[LaneKey, Lane] = {}
        self.clocks: dict[int, VirtualClock] = {LEVEL: VirtualClock(LEVEL, virtual)} if virtual else {}
        self.keys_rows: dict[str, KeyState] = {}
        self.key_settings: dict[str, KeySettings] = {}
        self.batches: dict[LaneKey, deque[Batch]] = {}
        self.dispatched: list[Dispatch] = []
        self.leases: dict[int, Dispatch] = {}
        self.bills: list[tuple[LaneKey, int]] = []
        """Each dispatch with the tag that its lane carries afterwards."""
        self.hold: Hold | None = None
        """What the last claim says to polls that got nothing."""
        self._seq = 0
        self.change(settings or {})

    # ── What others do ──────────────────────────────────────────────────────────────────────────────────

    def enqueue(self, key: str, count: int = 1, *, weight: int | None = None, level: int = LEVEL) -> None:
        """`weight` in thousandths; None keeps the lane's."""
        lane = self.lanes.get((level, key))
        if lane is None:
            lane = Lane(level, key, 0, weight or 1000, weight or 1000, 0, state=LaneState.NEW)
        joined = replace(lane, count=lane.count + count, wanted_milli=weight or lane.wanted_milli)
        if lane.count == 0:
            joined = replace(joined, base=self.virtual(level))
        if lane.count == 0 or joined.effective_milli != lane.weight_milli:
            joined = replace(joined, state=LaneState.NEW)
        self.lanes[level, key] = joined
        if count:
            self.batches.setdefault((level, key), deque()).append(Batch(self._seq + 1, count, self.now_ms))
            self._seq += count

    def reweight(self, key: str, weight: int, *, level: int = LEVEL) -> None:
        """As if the latest task had carried this weight."""
        self.enqueue(key, 0, weight=weight, level=level)

    def advance(self, ms: int) -> None:
        self.now_ms += ms

    def pause(self, paused: bool = True) -> None:
        self.queue = replace(self.queue, paused=int(paused))

    def change(self, values: Mapping[LimitSetting, int | str | None]) -> None:
        """Change settings of the line; None unsets."""
        settings = {
            setting_name: None if value is None else SettingValue(value, "ops", self.now_ms)
            for setting_name, value in values.items()
        }
        if settings:
            self._put_in_force(replace(self.queue, policy=changed(self.queue.policy, settings, ())))

    def change_key(self, key: str, **values: Any) -> None:
        """Change fields of one key's settings; None unsets."""
        before = self.key_settings.get(key, KeySettings(key))
        after = replace(before, **values)
        if after == before:
            return
        self.key_settings[key] = after
        self._put_in_force(replace(self.queue, policy=changed(self.queue.policy, {}, [(before, after)])))
        row = self.keys_rows.get(key, KeyState(key))
        self.keys_rows[key] = replace(
            row,
            weight_milli=after.weight_milli,
            rate_micro=after.rate_micro,
            lease_cap=after.lease_cap,
            paused=after.paused,
        )
        lane_state = LaneState.DIRTY if before.weight_milli == after.weight_milli else LaneState.NEW
        self._mark(lane_state, lambda lane: lane.key == key and lane.state != LaneState.NEW)

    def complete(self, seq: int) -> None:
        """A task is done: its lease ends."""
        ended = self.leases.pop(seq)
        if ended.counted:
            row = self.keys_rows[ended.key]
            self.keys_rows[ended.key] = replace(row, running=row.running - 1)
            self._mark(
                LaneState.DIRTY,
                lambda lane: (
                    lane.key == ended.key
                    and (lane.state == LaneState.BLOCKED or (lane.state == LaneState.READY and lane.rank > 0))
                ),
            )

    def forget_idle(self) -> None:
        """Drop every lane and every key whose row tells nothing any more."""
        for lane_key, lane in list(self.lanes.items()):
            if lane.count == 0 and lane.tag <= self.virtual(lane.level):
                del self.lanes[lane_key]
        for key, row in list(self.keys_rows.items()):
            settings = self.key_settings.get(key, KeySettings(key))
            if settings.is_empty and not row.running and row.paid_until_ns <= self.now_ms * NANO_PER_MS:
                del self.keys_rows[key]

    def _put_in_force(self, after: Queue) -> None:
        """Bring what depends on the rules in line with the new ones."""
        old, new = self.queue.rules, after.rules
        self.queue = after
        if new.counts_leases_by_key and not old.counts_leases_by_key:
            self._count_leases()
        if new.shares_by_running != old.shares_by_running:
            for lane_key, lane in self.lanes.items():
                running = self.keys_rows[lane.key].running if lane.key in self.keys_rows else 0
                ranked = rank(running, lane.weight_milli) if new.shares_by_running else 0
                self.lanes[lane_key] = replace(lane, rank=ranked)
        if old.limits_keys:
            self._mark(LaneState.DIRTY, lambda lane: lane.state >= LaneState.THROTTLED)

    def _count_leases(self) -> None:
        self.leases = {seq: dataclasses.replace(lease, counted=True) for seq, lease in self.leases.items()}
        running = Counter(lease.key for lease in self.leases.values())
        for key in {*self.keys_rows, *running}:
            self.keys_rows[key] = replace(self.keys_rows.get(key, KeyState(key)), running=running[key])

    def _mark(self, lane_state: LaneState, which: Callable[[Lane], bool]) -> None:
        for lane_key, lane in self.lanes.items():
            if lane.count and which(lane):
                self.lanes[lane_key] = replace(lane, state=lane_state)

    # ── What a claim sees ───────────────────────────────────────────────────────────────────────────────

    def snapshot(self, room: int, fits: Fits = lambda _: True) -> QueueSnapshot:
        """What the engine reads: no more than the rules ask for."""
        rules, starving = self.queue.rules, self.starving()
        arrivals: tuple[Arrival, ...] = ()
        most = room + LANES_BEYOND_ROOM if rules.limits_keys else room
        if rules.order is DispatchOrder.ARRIVAL:
            arrivals, lanes = self._in_order(most, fits, starving)
        else:
            lanes = self._in_fairness(most, fits, starving)
        return QueueSnapshot(
            queue=self.queue,
            lanes=lanes,
            clocks=list(self.clocks.values()) if rules.order is DispatchOrder.FAIR else (),
            now_ms=self.now_ms,
            keys={lane.key: self.keys_rows[lane.key] for lane in lanes if lane.key in self.keys_rows},
            running=len(self.leases) if rules.lease_cap is not None else 0,
            starving=starving,
            arrivals=arrivals,
            blocked=self._blocked({lane.lane_key for lane in lanes}) if rules.limits_keys else BlockedLanes(),
        )

    def starving(self) -> list[Starving]:
        aging = self.queue.rules.aging
        if aging is None:
            return []
        old: dict[int, list[Batch]] = {}
        for (level, _), batches in self.batches.items():
            old.setdefault(level, []).extend(
                each for each in batches if each.at_ms <= self.now_ms - aging.wait_ms
            )
        return [
            Starving(level, min(each.at_ms for each in batches), sum(each.count for each in batches))
            for level, batches in sorted(old.items())
            if batches
        ]

    def _in_fairness(self, most: int, fits: Fits, starving: Iterable[Starving]) -> list[Lane]:
        busy = [lane for lane in self.lanes.values() if lane.count]
        marked = [
            lane for lane in busy if lane.state in (LaneState.NEW, LaneState.DIRTY) or self._is_due(lane)
        ]
        ready = [lane for lane in busy if lane.state == LaneState.READY and fits(lane.lane_key)]
        seen = [replace(lane, fits=int(fits(lane.lane_key))) for lane in marked] + _least(ready, most)
        for each in starving:
            seen += _least([lane for lane in ready if lane.level == each.level], most)
        return list({lane.lane_key: lane for lane in seen}.values())

    def _in_order(
        self, most: int, fits: Fits, starving: Iterable[Starving]
    ) -> tuple[tuple[Arrival, ...], list[Lane]]:
        open_ = [
            lane_key
            for lane_key, lane in self.lanes.items()
            if lane.count and fits(lane_key) and (lane.state < LaneState.THROTTLED or self._is_due(lane))
        ]
        arrivals = self._first(open_, most)
        for each in starving:
            arrivals += self._first([lane_key for lane_key in open_ if lane_key[0] == each.level], most)
        slots = dict.fromkeys((each.level, each.key) for each in arrivals)
        return tuple({each.seq: each for each in arrivals}.values()), [
            self.lanes[lane_key] for lane_key in slots
        ]

    def _first(self, slots: Iterable[LaneKey], most: int) -> list[Arrival]:
        arrivals = (
            Arrival(level, batch.seq + number, key)
            for level, key in slots
            for batch in self.batches[level, key]
            for number in range(min(batch.count, most))
        )
        return heapq.nsmallest(most, arrivals, key=lambda each: (each.level, each.seq))

    def _blocked(self, seen: set[LaneKey]) -> BlockedLanes:
        unseen = [lane for lane_key, lane in self.lanes.items() if lane.count and lane_key not in seen]
        opens = [
            lane.open_at_ms
            for lane in unseen
            if lane.state == LaneState.THROTTLED and lane.open_at_ms is not None
        ]
        return BlockedLanes(min(opens, default=None), any(lane.state == LaneState.BLOCKED for lane in unseen))

    def _is_due(self, lane: Lane) -> bool:
        return (
            lane.state == LaneState.THROTTLED
            and lane.open_at_ms is not None
            and lane.open_at_ms <= self.now_ms
        )

    # ── A claim ─────────────────────────────────────────────────────────────────────────────────────────

    def claim(self, room: int, *, fits: Fits = lambda _: True, gives: Gives | None = None) -> list[LaneKey]:
        """Dispatch up to `room` tasks; `gives` says how many of the planned ones a lane really has.

        As the engine does, it looks again while lanes were put aside and there is room: the next look sees further.
        """
        served: list[LaneKey] = []
        for _ in range(LOOKS_MOST):
            order, put_aside = self._look(room - len(served), fits, gives)
            served += order
            if not put_aside or gives is not None or len(served) >= room:
                return served
        raise AssertionError("what is put aside is not seen again, so some look is the last")

    def _look(self, room: int, fits: Fits, gives: Gives | None) -> tuple[tuple[LaneKey, ...], int]:
        allowed = allowance(self.queue, len(self.leases), self.now_ms)
        if isinstance(allowed, Hold):
            self.hold = allowed
            self._record_queue(settle(QueueSnapshot(self.queue, (), (), self.now_ms), {}))
            return (), 0
        room = room if allowed is None else min(room, allowed)
        snapshot = self.snapshot(room, fits)
        decision = decide(snapshot, room)
        planned = {} if isinstance(decision, Hold) else decision.counts()
        taken = {
            lane_key: count if gives is None else gives(lane_key, count)
            for lane_key, count in planned.items()
        }
        taken = {lane_key: count for lane_key, count in taken.items() if count}
        settled = settle(snapshot, taken)
        self.hold = decision if isinstance(decision, Hold) else decision.hold
        self._record_queue(settled)
        self._record_keys(settled, self.queue.rules)
        for lane_key in settled.order:
            self._lease(lane_key)
        return settled.order, self._record_lanes(settled, taken)

    def _record_queue(self, settled: Settled) -> None:
        self.queue = replace(self.queue, paid_until_ns=settled.paid_until_ns, aging_turn=settled.aging_turn)

    def _record_keys(self, settled: Settled, rules: Rules) -> None:
        for key in {*settled.paid, *(settled.spent if rules.counts_leases_by_key else ())}:
            row = self.keys_rows.get(key, KeyState(key))
            leased = settled.spent.get(key, 0) if rules.counts_leases_by_key else 0
            self.keys_rows[key] = replace(
                row,
                paid_until_ns=settled.paid.get(key, row.paid_until_ns),
                running=row.running + leased,
            )

    def _record_lanes(self, settled: Settled, taken: Mapping[LaneKey, int]) -> int:
        """Returns how many lanes were placed or put aside without giving a task."""
        for lane in settled.lanes:
            assert lane.count == self.lanes[lane.lane_key].count - taken.get(lane.lane_key, 0)
            lane_state = LaneState.NEW if lane.effective_milli != lane.weight_milli else lane.state
            self.lanes[lane.lane_key] = replace(lane, state=lane_state, fits=1, held_at=None)
        for level, key in taken if self.queue.rules.shares_by_running else ():
            self._rerank_others(level, key)
        self.clocks |= {clock.level: clock for clock in settled.clocks}
        self.bills += [(lane_key, self.lanes[lane_key].tag) for lane_key in settled.order]
        return sum(not taken.get(lane.lane_key) for lane in settled.lanes)

    def _rerank_others(self, level: int, key: str) -> None:
        self._mark(
            LaneState.DIRTY,
            lambda lane: lane.key == key and lane.level != level and lane.state == LaneState.READY,
        )

    def _lease(self, lane_key: LaneKey) -> None:
        batches = self.batches[lane_key]
        head = batches[0]
        lease = Dispatch(self.now_ms, *lane_key, head.seq, self.queue.rules.counts_leases_by_key)
        head.seq, head.count = head.seq + 1, head.count - 1
        if not head.count:
            batches.popleft()
        self.dispatched.append(lease)
        self.leases[lease.seq] = lease

    # ── What a test asks ────────────────────────────────────────────────────────────────────────────────

    def keys(self, room: int, batch: int | None = None) -> list[str]:
        """The keys of the next `room` dispatches, claimed in batches."""
        served: list[str] = []
        while len(served) < room:
            slots = self.claim(min(batch or room, room - len(served)))
            if not slots:
                break
            served += [key for _, key in slots]
        return served

    def served(self, room: int, batch: int | None = None) -> Counter[str]:
        return Counter(self.keys(room, batch))

    def virtual(self, level: int = LEVEL) -> int:
        return self.clocks[level].virtual if level in self.clocks else 0

    def waiting(self) -> int:
        return sum(lane.count for lane in self.lanes.values())

    def leased(self) -> list[int]:
        return list(self.leases)

    def running(self) -> Counter[str]:
        return Counter(lease.key for lease in self.leases.values())


def _least(lanes: Iterable[Lane], most: int) -> list[Lane]:
    return heapq.nsmallest(most, lanes, key=lambda lane: (lane.level, lane.rank, lane.tag, lane.key))
