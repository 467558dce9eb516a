"""The dispatch order by its definitions: slow, and plain enough to be believed.

Nothing is kept but what happened: the tasks that wait, the tasks that run, and every dispatch with its moment.
Every question is answered by looking at all of them. Only tags are kept, since they are defined step by step.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from math import ceil, floor

from penstock.core.limits.policies import LimitSetting
from penstock.core.scheduling.fairness import LaneKey

GOLDEN = 0x9E3779B97F4A7C15
NS_PER_MS = 1_000_000
SKEW_NS = 250 * 10**6


def stride(weight_milli: int) -> int:
    """2^36 divided by the weight, to the nearest integer."""
    return floor(Fraction(2**36, weight_milli) + Fraction(1, 2))


@dataclass(frozen=True)
class Task:
    seq: int
    level: int
    key: str
    at_ms: int

    @property
    def lane_key(self) -> LaneKey:
        return self.level, self.key


@dataclass(frozen=True)
class Limit:
    """So many in a million seconds; a rest earns as much as fits into the burst."""

    micro: int
    burst_ms: int

    @property
    def interval_ns(self) -> int:
        return ceil(Fraction(10**9 * 10**6, self.micro))

    @property
    def burst(self) -> int:
        return max(1, ceil(Fraction(self.micro, 10**6) * Fraction(self.burst_ms, 1000)))

    @property
    def debt_most_ns(self) -> int:
        return max(self.burst * self.interval_ns, self.burst_ms * NS_PER_MS + self.interval_ns)


@dataclass
class Bucket:
    """Every dispatch under a limit."""

    went: list[tuple[int, Limit]] = field(default_factory=list)
    """When, and what the limit was."""
    cuts: list[tuple[int, int, int]] = field(default_factory=list)
    """After how many dispatches, when, and to how much a debt was cut because the limit had become larger."""

    def may_go(self, limit: Limit, now_ms: int) -> bool:
        if limit.micro == 0:
            return False
        if {limit} == {limit, *(each for _, each in self.went)} and not self.cuts:
            return self._fits_every_window(limit, now_ms)
        owed_ns = self._paid_until_ns() - now_ms * NS_PER_MS
        return owed_ns + limit.interval_ns <= limit.burst * limit.interval_ns

    def _fits_every_window(self, limit: Limit, now_ms: int) -> bool:
        """In the time since any earlier dispatch, with this one, no more than burst + rate * time."""
        return all(
            len(self.went) - index + 1 <= limit.burst + (now_ms - since_ms) * NS_PER_MS // limit.interval_ns
            for index, (since_ms, _) in enumerate(self.went)
        )

    def _paid_until_ns(self) -> int:
        """Replayed from the beginning: each dispatch pays for one interval of the limit of its time."""
        until = 0
        for index in range(len(self.went) + 1):
            for after, at_ms, most_ns in self.cuts:
                if after == index:
                    until = min(until, at_ms * NS_PER_MS + most_ns)
            if index < len(self.went):
                at_ms, limit = self.went[index]
                until = max(until, at_ms * NS_PER_MS) + limit.interval_ns
        return until

    def look(self, limit: Limit, now_ms: int) -> None:
        """A debt that this limit cannot have made, however clocks differ, is cut to the largest that it can."""
        if limit.micro and self._paid_until_ns() > now_ms * NS_PER_MS + limit.debt_most_ns + SKEW_NS:
            self.cuts.append((len(self.went), now_ms, limit.debt_most_ns))


@dataclass
class KeyRules:
    weight_milli: int | None = None
    rate_micro: int | None = None
    lease_cap: int | None = None
    paused: int = 0


class Reference:
    def __init__(self, settings: Mapping[LimitSetting, int | str]) -> None:
        self.settings: dict[LimitSetting, int | str] = dict(settings)
        self.key_rules: dict[str, KeyRules] = {}
        self.paused = False
        self.now_ms = 0
        self.ready: list[Task] = []
        self.running: list[Task] = []
        self.queue_bucket = Bucket()
        self.buckets: dict[str, Bucket] = {}
        self.tags: dict[LaneKey, int] = {}
        self.tag_weights: dict[LaneKey, int] = {}
        self.wanted: dict[LaneKey, int] = {}
        self.busy_since: dict[LaneKey, int] = {}
        """The virtual time at which each lane became busy."""
        self.to_place: set[LaneKey] = set()
        self.virtual: dict[int, int] = {}
        self.placed: dict[int, int] = {}
        self.turn = 0
        self._seq = 0

    # ── What others do ──────────────────────────────────────────────────────────────────────────────────

    def enqueue(self, key: str, count: int, *, weight: int, level: int) -> None:
        lane_key = (level, key)
        was_idle = lane_key not in self._busy()
        if was_idle:
            self.busy_since[lane_key] = self.virtual.get(level, 0)
        self.wanted[lane_key] = weight
        if was_idle or self._weight(lane_key) != self.tag_weights.get(lane_key):
            self.to_place.add(lane_key)
        for _ in range(count):
            self._seq += 1
            self.ready.append(Task(self._seq, level, key, self.now_ms))

    def advance(self, ms: int) -> None:
        self.now_ms += ms

    def pause(self, paused: bool = True) -> None:
        self.paused = paused

    def change(self, values: Mapping[LimitSetting, int | str | None]) -> None:
        for setting_name, value in values.items():
            self.settings.pop(setting_name, None)
            if value is not None:
                self.settings[setting_name] = value

    def change_key(self, key: str, **values: int | None) -> None:
        before = self.key_rules.get(key, KeyRules())
        after = KeyRules(**(vars(before) | values))
        self.key_rules[key] = after
        if before.weight_milli != after.weight_milli:
            self.to_place |= {lane_key for lane_key in self._busy() if lane_key[1] == key}

    def complete(self, seq: int) -> None:
        self.running = [task for task in self.running if task.seq != seq]

    def leased(self) -> list[int]:
        return [task.seq for task in self.running]

    # ── A claim ─────────────────────────────────────────────────────────────────────────────────────────

    def claim(self, room: int) -> list[Task]:
        if not self._queue_may_go():
            return []
        if self._is_fair():
            self._place()
        for _, key in self._busy():
            limit = self._key_limit(key)
            if limit is not None:
                self.buckets.setdefault(key, Bucket()).look(limit, self.now_ms)
        taken: list[Task] = []
        while len(taken) < room and (task := self._next()) is not None:
            taken.append(task)
        return taken

    def _next(self) -> Task | None:
        may_go = {lane_key for lane_key in self._busy() if self._key_may_go(lane_key[1])}
        if not may_go or not self._queue_may_go():
            return None
        level = self._level(may_go)
        here = [lane_key for lane_key in may_go if lane_key[0] == level]
        if self._is_fair():
            here = [min(here, key=lambda lane_key: (self._rank(lane_key), self.tags[lane_key], lane_key[1]))]
            self._bill(here[0])
        task = min((task for task in self.ready if task.lane_key in here), key=lambda task: task.seq)
        self._hand_out(task)
        return task

    def _level(self, may_go: set[LaneKey]) -> int:
        """The lowest; or, when it is their turn, the level whose oldest task has waited longest, and too long."""
        lowest = min(level for level, _ in may_go)
        wait_ms, every = self._number(LimitSetting.AGING_WAIT), self._number(LimitSetting.AGING_EVERY)
        if wait_ms is None or every is None:
            return lowest
        oldest = {
            level: min(task.at_ms for task in self.ready if task.level == level)
            for level, _ in may_go
            if level > lowest
        }
        starving = [level for level, at_ms in oldest.items() if self.now_ms - at_ms >= wait_ms]
        self.turn = self.turn + 1 if starving else 0
        if self.turn < every:
            return lowest
        self.turn = 0
        return min(starving, key=lambda level: (oldest[level], level))

    def _place(self) -> None:
        """Who comes anew is spread over one stride from then; who has a wait left keeps it, scaled to the weight."""
        busy = self._busy()
        for lane_key in sorted(self.to_place & busy):
            level, weight = lane_key[0], self._weight(lane_key)
            virtual, tag = self.virtual.get(level, 0), self.tags.get(lane_key, 0)
            if tag > virtual:
                tag = virtual + (tag - virtual) * stride(weight) // stride(self.tag_weights[lane_key])
            else:
                number = self.placed.get(level, 0)
                self.placed[level] = number + 1
                phase = Fraction(number * GOLDEN % 2**64, 2**64)
                tag = max(tag, self.busy_since[lane_key] + floor(phase * stride(weight)))
            self.tags[lane_key], self.tag_weights[lane_key] = tag, weight
        self.to_place -= busy

    def _bill(self, lane_key: LaneKey) -> None:
        level = lane_key[0]
        start = max(self.tags[lane_key], self.virtual.get(level, 0))
        if start > self.virtual.get(level, 0):
            self.virtual[level], self.placed[level] = start, 0
        self.tags[lane_key] = start + stride(self.tag_weights[lane_key])

    def _hand_out(self, task: Task) -> None:
        queue_limit, key_limit = self._queue_limit(), self._key_limit(task.key)
        if queue_limit is not None:
            self.queue_bucket.went.append((self.now_ms, queue_limit))
        if key_limit is not None:
            self.buckets[task.key].went.append((self.now_ms, key_limit))
        self.ready.remove(task)
        self.running.append(task)

    # ── Definitions ─────────────────────────────────────────────────────────────────────────────────────

    def _number(self, setting_name: LimitSetting) -> int | None:
        value = self.settings.get(setting_name)
        return value if isinstance(value, int) else None

    def _is_fair(self) -> bool:
        return self.settings.get(LimitSetting.FAIRNESS) != "off"

    def _busy(self) -> set[LaneKey]:
        return {task.lane_key for task in self.ready}

    def _weight(self, lane_key: LaneKey) -> int:
        override = self.key_rules.get(lane_key[1], KeyRules()).weight_milli
        return self.wanted[lane_key] if override is None else override

    def _rank(self, lane_key: LaneKey) -> int:
        if self.settings.get(LimitSetting.COUNTS) != "running":
            return 0
        return (2 * self._running_of(lane_key[1]) + 1) * stride(self.tag_weights[lane_key])

    def _running_of(self, key: str) -> int:
        return sum(task.key == key for task in self.running)

    def _queue_limit(self) -> Limit | None:
        micro, burst_ms = self._number(LimitSetting.QUEUE_RATE), self._number(LimitSetting.QUEUE_BURST)
        return None if micro is None else Limit(micro, 1000 if burst_ms is None else burst_ms)

    def _key_limit(self, key: str) -> Limit | None:
        burst_ms = self._number(LimitSetting.KEY_BURST)
        own = self.key_rules.get(key, KeyRules()).rate_micro
        default = self._number(LimitSetting.KEY_RATE)
        if own is None and default:
            weight = self._weight(min(lane_key for lane_key in self._busy() if lane_key[1] == key))
            own = max(1, floor(default * Fraction(weight, 1000)))
        micro = default if own is None else own
        return None if micro is None else Limit(micro, 1000 if burst_ms is None else burst_ms)

    def _queue_may_go(self) -> bool:
        limit, lease_cap = self._queue_limit(), self._number(LimitSetting.LEASE_CAP)
        if limit is not None:
            self.queue_bucket.look(limit, self.now_ms)
        if self.paused or (lease_cap is not None and len(self.running) >= lease_cap):
            return False
        return limit is None or self.queue_bucket.may_go(limit, self.now_ms)

    def _key_may_go(self, key: str) -> bool:
        rules, limit = self.key_rules.get(key, KeyRules()), self._key_limit(key)
        lease_cap = rules.lease_cap
        if lease_cap is None:
            lease_cap = self._number(LimitSetting.KEY_LEASE_CAP)
        if rules.paused or (lease_cap is not None and self._running_of(key) >= lease_cap):
            return False
        return limit is None or self.buckets.setdefault(key, Bucket()).may_go(limit, self.now_ms)
