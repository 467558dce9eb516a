"""Admission against its definitions: lines that share scopes give exactly what counting from scratch allows.

The reference keeps nothing but what happened: every dispatch with its moment and its cost, and every lease that
has not ended. Every question is answered by counting all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from penstock.core.limits.admission import QueueLimits, ScopeRules, queue_scope
from penstock.core.limits.windows import NOTHING, Counts, Window
from penstock.core.model import Queue, QueueId, TaskKind
from penstock.core.scheduling.dispatch import Hold, QueueSnapshot, affordable, decide, settle, window_debt
from penstock.core.scheduling.fairness import Lane
from penstock.core.scheduling.gates import ScopeState, cooled, corrected, due
from tests.core.scheduling.queue_model import LEVEL
from tests.support.effort import times

START_MS = 1_790_000_000_000
MINUTE_MS, SECOND_MS = 60_000, 1_000
SLOT = (LEVEL, "a")
ACTIVITY, WORKFLOW = TaskKind.ACTIVITY, TaskKind.WORKFLOW


@dataclass(frozen=True)
class Line:
    namespace: str
    name: str
    kind: TaskKind
    group: str

    @property
    def own(self) -> str:
        return queue_scope(self.namespace, self.name, self.kind)

    @property
    def shared(self) -> tuple[str, ...]:
        """Every scope that it is in, in the order of their names."""
        return (
            "cluster",
            f"group:*/{self.group}",
            f"group:{self.namespace}/{self.group}/{self.kind}",
            f"namespace:{self.namespace}",
            f"namespace:{self.namespace}/{self.kind}",
        )

    @property
    def scopes(self) -> tuple[str, ...]:
        return (self.own, *self.shared)


LINES = (
    Line("prod", "payments", ACTIVITY, "openai"),
    Line("prod", "chat", ACTIVITY, "openai"),
    Line("prod", "chat", WORKFLOW, "openai"),
    Line("prod", "email", ACTIVITY, "sendgrid"),
    Line("staging", "chat", ACTIVITY, "openai"),
)

SHARED = tuple(sorted({name for line in LINES for name in line.shared}))
NAMES = (*SHARED, *(line.own for line in LINES))


@dataclass(frozen=True)
class Lease:
    line: Line
    at_ms: int
    cost: int


@dataclass
class World:
    """What both are told: the clock and the limits."""

    now_ms: int
    limits: dict[str, ScopeRules]


# ── By definition ───────────────────────────────────────────────────────────────────────────────────────


@dataclass
class Moment:
    """So much went at a moment: one dispatch, or what a task costs."""

    at_ms: int
    amount: int = 1
    lease: Lease | None = None


@dataclass
class Scope:
    """All that happened in one scope."""

    went: list[Moment] = field(default_factory=list)
    paid: list[Moment] = field(default_factory=list)
    closed_until_ms: int | None = None
    went_since: int = 0


class Reference:
    def __init__(self, world: World) -> None:
        self.world = world
        self.scopes = {name: Scope() for name in NAMES}
        self.leases: list[Lease] = []

    def claim(self, line: Line, room: int, costs: Sequence[int]) -> int:
        self._look(line)
        given_ = 0
        while given_ < room and all(self._is_open(name, costs[given_]) for name in line.scopes):
            self._give(line, costs[given_])
            given_ += 1
        return given_

    def _is_open(self, name: str, cost: int) -> bool:
        rules, scope = self.world.limits[name], self.scopes[name]
        leases = sum(name in lease.line.scopes for lease in self.leases)
        went, paid = self._within(rules.window, scope.went), self._within(rules.window, scope.paid)
        return (
            not rules.paused
            and self._is_cool(scope)
            and (rules.leases is None or leases < rules.leases)
            and (rules.dispatches is None or went < rules.dispatches)
            and (rules.cost is None or paid + max(1, min(cost, rules.cost)) <= rules.cost)
        )

    def _within(self, window: Window, moments: Sequence[Moment]) -> int:
        now_ms = self._now_ms(moments)
        return sum(each.amount for each in moments if _counts(window, each, now_ms))

    def _now_ms(self, moments: Sequence[Moment]) -> int:
        """A clock that is set back by less than a minute stands still instead, where something went."""
        now_ms = self.world.now_ms
        newest_ms = max((each.at_ms // SECOND_MS * SECOND_MS for each in moments if each.amount), default=0)
        return newest_ms if now_ms < newest_ms <= now_ms + MINUTE_MS else now_ms

    def _is_cool(self, scope: Scope) -> bool:
        """After a refusal: nothing, then 1, 3, 7 … in all by the end of each second, then as ever."""
        until_ms, now_ms = scope.closed_until_ms, self.world.now_ms
        if until_ms is None or now_ms >= until_ms + 10_000:
            return True
        seconds = 1 + (now_ms - until_ms) // SECOND_MS
        return now_ms >= until_ms and scope.went_since < sum(2**each for each in range(seconds))

    def _give(self, line: Line, cost: int) -> None:
        lease = Lease(line, self.world.now_ms, cost)
        self.leases.append(lease)
        for name in line.scopes:
            scope = self.scopes[name]
            scope.went.append(Moment(self._now_ms(scope.went)))
            if self.world.limits[name].cost is not None:
                scope.paid.append(Moment(self._now_ms(scope.paid), cost, lease))
            scope.went_since += 1

    def take_back(self, line: Line, count: int) -> None:
        """As if so many of the last had not been given."""
        for name in line.scopes if count else ():
            scope = self.scopes[name]
            del scope.went[-count:]
            if self.world.limits[name].cost is not None:
                del scope.paid[-count:]
            scope.went_since -= count
        del self.leases[len(self.leases) - count :]

    def _look(self, line: Line) -> None:
        """What is over for every window is forgotten; what stands in the far future went now."""
        for name in line.scopes:
            scope = self.scopes[name]
            for moments in (scope.went, scope.paid):
                now_ms = self._now_ms(moments)
                moments[:] = [each for each in moments if _counts(Window.SLIDING, each, now_ms)]
                for each in moments:
                    each.at_ms = min(each.at_ms, now_ms)
            if scope.closed_until_ms is not None and self.world.now_ms >= scope.closed_until_ms + 10_000:
                scope.closed_until_ms = None

    def end(self, index: int, actual: int | None) -> None:
        lease = self.leases.pop(index)
        for name in lease.line.shared if actual is not None else ():
            self._correct(name, lease, actual or 0)

    def _correct(self, name: str, lease: Lease, actual: int) -> None:
        if self.world.limits[name].cost is None:
            return
        scope, more = self.scopes[name], actual - lease.cost
        if more > 0:
            scope.paid.append(Moment(self.world.now_ms, more))
        for each in scope.paid:
            if each.lease is lease:
                each.amount = min(each.amount, actual)

    def close(self, name: str, retry_after_ms: int) -> None:
        scope = self.scopes[name]
        scope.closed_until_ms = max(scope.closed_until_ms or 0, self.world.now_ms + retry_after_ms)
        scope.went_since = 0


def _counts(window: Window, each: Moment, now_ms: int) -> bool:
    """In a calendar minute until its end; in a sliding window for a minute after the end of its second."""
    if window is Window.MINUTE:
        return each.at_ms // MINUTE_MS == now_ms // MINUTE_MS
    return now_ms < (each.at_ms // SECOND_MS + 1) * SECOND_MS + MINUTE_MS


# ── The core, as a store and the engine use it ──────────────────────────────────────────────────────────


class Core:
    def __init__(self, world: World) -> None:
        self.world = world
        self.states = {name: ScopeState(number, name) for number, name in enumerate(SHARED)}
        self.windows: dict[Line, Counts] = dict.fromkeys(LINES, NOTHING)
        self.leases: list[Lease] = []

    def claim(self, line: Line, room: int, costs: Sequence[int]) -> int:
        queue, now_ms = self._queue(line), self.world.now_ms
        scopes = {name: self.states[name] for name in line.shared}
        running = sum(lease.line == line for lease in self.leases)
        lanes = [Lane(*SLOT, 0, 1000, 1000, room)]
        snapshot = QueueSnapshot(queue, lanes, [], now_ms, running=running, scopes=scopes)
        decision = decide(snapshot, room)
        if isinstance(decision, Hold):
            self._fall_due(line, queue)
            return 0
        allowed = affordable(queue, scopes, costs[: len(decision.order)], now_ms)
        if isinstance(allowed, Hold):
            self._fall_due(line, queue)
            return 0
        settled = settle(snapshot, {SLOT: allowed}, sum(costs[:allowed]))
        self.windows[line] = settled.window
        self.states |= {state.name: state for state in settled.scopes}
        self.leases += [Lease(line, now_ms, cost) for cost in costs[:allowed]]
        return allowed

    def _queue(self, line: Line) -> Queue:
        own, shared = self.world.limits[line.own], [self.world.limits[name] for name in line.shared]
        limits = QueueLimits(own.leases, None, own.dispatches, None, own.window, line.group, tuple(shared))
        return Queue(
            QueueId(1),
            line.namespace,
            line.name,
            line.kind,
            paused=int(own.paused),
            window=self.windows[line],
            limits=limits,
        )

    def _fall_due(self, line: Line, queue: Queue) -> None:
        self.windows[line] = window_debt(queue, self.world.now_ms)
        for name in line.shared:
            self.states[name] = due(self.world.limits[name], self.states[name], self.world.now_ms)

    def end(self, index: int, actual: int | None) -> None:
        lease = self.leases.pop(index)
        for name in lease.line.shared:
            state = self.states[name]
            state = replace(state, ended=state.ended + 1)
            rules = self.world.limits[name]
            if actual is not None and rules.cost is not None:
                settlements = [(lease.at_ms, actual - lease.cost)]
                state = corrected(rules, state, settlements, self.world.now_ms)
            self.states[name] = state

    def close(self, name: str, retry_after_ms: int) -> None:
        state = self.states[name]
        until_ms = cooled(state.cool_until_ms, self.world.now_ms, retry_after_ms)
        self.states[name] = replace(state, cool_until_ms=until_ms, cool_given=0)


# ── Histories ───────────────────────────────────────────────────────────────────────────────────────────


class Both:
    """The core and the reference in one world."""

    def __init__(self, limits: dict[str, ScopeRules]) -> None:
        self.world = World(START_MS, dict(limits))
        self.core, self.reference = Core(self.world), Reference(self.world)

    def change(self, name: str, **values: Any) -> None:
        self.world.limits[name] = replace(self.world.limits[name], **values)

    def rate(self, name: str, most: int | None) -> None:
        self.change(name, dispatches=_rate(name, most))

    def end(self, which: int, actual: int | None) -> None:
        if self.core.leases:
            index = which % len(self.core.leases)
            self.core.end(index, actual)
            self.reference.end(index, actual)

    def check_leases(self) -> None:
        """What a scope counts by two numbers is what is leased in it, whoever leased it."""
        for name, state in self.core.states.items():
            assert state.running == sum(name in lease.line.scopes for lease in self.reference.leases)

    def close(self, name: str, retry_after_ms: int) -> None:
        self.core.close(name, retry_after_ms)
        self.reference.close(name, retry_after_ms)


Event = Callable[[Both], None]


@dataclass(frozen=True)
class Step:
    """Time goes on, something happens, and somebody asks."""

    ms: int
    event: Event
    line: Line
    costs: tuple[int, ...]


MANY = 1_000
numbers = st.sampled_from([None] * 12 + [0, 1, 2, 3, 4, 5, 6, 8, 10, 12, 15, 20])
prices = st.sampled_from([None] * 8 + [0, 3, 10, 15, 20, 25, 30, 40, 50, 60])
names, groups = st.sampled_from(NAMES), st.sampled_from([name for name in SHARED if name.startswith("group")])
nothing: st.SearchStrategy[Event] = st.just(lambda both: None)
ends = st.builds(lambda which: lambda both: both.end(which, None), st.integers(0, 99))
reports = st.builds(
    lambda which, actual: lambda both: both.end(which, actual), st.integers(0, 99), st.integers(0, 12)
)
leases = st.builds(lambda name, most: lambda both: both.change(name, leases=most), names, numbers)
rates = st.builds(lambda name, most: lambda both: both.rate(name, most), names, numbers)
pauses = st.builds(lambda name, paused: lambda both: both.change(name, paused=paused), names, st.booleans())
refusals = st.builds(
    lambda name, ms: lambda both: both.close(name, ms), groups, st.sampled_from([1, 500, 3_000, 70_000])
)
slides = st.builds(
    lambda name, window: lambda both: both.change(name, window=window), names, st.sampled_from(Window)
)
forwards = st.sampled_from(
    [0, 0, 0, 1, 300, 999, 1_000, 2_500, 10_000, 39_999, 40_000, 59_999, 60_000, 61_000]
)
shortly = st.sampled_from([0, 1, 300, 999, 1_000, 2_500])
to_and_fro = st.one_of(forwards, forwards, st.sampled_from([-1, -999, -5_000, -61_000, -(10**7)]))
none: st.SearchStrategy[int | None] = st.none()


def limited(
    leases: st.SearchStrategy[int | None] = none,
    dispatches: st.SearchStrategy[int | None] = none,
    cost: st.SearchStrategy[int | None] = none,
) -> st.SearchStrategy[dict[str, ScopeRules]]:
    """Limits for every scope."""

    def rules(name: str) -> st.SearchStrategy[ScopeRules]:
        is_own = name.startswith("queue:")
        return st.builds(
            ScopeRules,
            name=st.just(name),
            leases=leases,
            dispatches=dispatches.map(lambda most: _rate(name, most)),
            cost=none if is_own else cost,
            window=st.sampled_from(Window),
        )

    return st.fixed_dictionaries({name: rules(name) for name in NAMES})


def _rate(name: str, most: int | None) -> int | None:
    """A line of its own always has one, if a wide one: it does not count what goes while it has none."""
    return MANY if most is None and name.startswith("queue:") else most


def histories(
    times: st.SearchStrategy[int], *events: st.SearchStrategy[Event]
) -> st.SearchStrategy[list[Step]]:
    costs = st.lists(st.integers(0, 12), min_size=1, max_size=6).map(tuple)
    steps = st.builds(Step, times, st.one_of(*events), st.sampled_from(LINES), costs)
    return st.lists(steps, min_size=10, max_size=40)


def run(limits: dict[str, ScopeRules], history: list[Step], compare: Callable[[int, int], bool]) -> None:
    """Both are asked; when the core gave less, the reference takes back what it gave too much."""
    both = Both(limits)
    for step in history:
        both.world.now_ms += step.ms
        step.event(both)
        room = len(step.costs)
        allowed = both.reference.claim(step.line, room, step.costs)
        given_ = both.core.claim(step.line, room, step.costs)
        assert compare(given_, allowed)
        both.reference.take_back(step.line, allowed - given_)
        both.check_leases()


def exactly(given_: int, allowed: int) -> bool:
    """Never more, so that no limit is passed; never fewer, so that nothing waits for nothing."""
    return given_ == allowed


def at_most(given_: int, allowed: int) -> bool:
    return given_ <= allowed


@given(
    limits=limited(leases=numbers, dispatches=numbers, cost=prices),
    history=histories(forwards, nothing, ends, ends, reports, leases, rates, pauses, refusals),
)
@settings(max_examples=times(60))
def test_lines_that_share_scopes_give_exactly_what_counting_from_scratch_allows(
    limits: dict[str, ScopeRules], history: list[Step]
):
    run(limits, history, exactly)


@given(limits=limited(cost=prices), history=histories(shortly, nothing, reports, reports))
def test_budgets_of_cost_give_exactly_what_adding_up_from_scratch_allows(
    limits: dict[str, ScopeRules], history: list[Step]
):
    run(limits, history, exactly)


@given(limits=limited(), history=histories(shortly, nothing, nothing, nothing, refusals))
def test_groups_that_were_closed_open_exactly_as_counting_from_scratch_allows(
    limits: dict[str, ScopeRules], history: list[Step]
):
    run(limits, history, exactly)


@given(
    limits=limited(dispatches=numbers),
    history=histories(to_and_fro, nothing, nothing, rates, slides),
)
@settings(max_examples=times(60))
def test_whatever_the_clock_does_and_however_windows_change_no_more_goes_than_counting_allows(
    limits: dict[str, ScopeRules], history: list[Step]
):
    run(limits, history, at_most)


@given(
    limits=limited(leases=numbers, dispatches=numbers, cost=prices),
    history=histories(to_and_fro, nothing, ends, ends, leases, rates, pauses, refusals, slides),
)
@settings(max_examples=times(60))
def test_whatever_happens_no_more_goes_than_counting_allows(
    limits: dict[str, ScopeRules], history: list[Step]
):
    run(limits, history, at_most)
