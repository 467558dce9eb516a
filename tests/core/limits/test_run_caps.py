"""Laws of caps on runs, for any caps, runs and order of events: the pure rules, driven without a store."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from penstock.core.limits import run_caps
from penstock.core.limits.policies import LimitSetting, Policy, SettingValue
from penstock.core.limits.run_caps import (
    Admit,
    Candidate,
    Refuse,
    RunCap,
    RunScope,
    RunScopeKind,
    ScopeLoad,
    Surplus,
    Wait,
    cap_in_force,
    decide,
    scope_of,
    take_turn,
)

SCOPES = ("runs:ns", "runs:ns/key/a", "runs:ns/key/b", "runs:ns/type/t")
caps = st.fixed_dictionaries({name: st.integers(0, 3) for name in SCOPES})
run_scopes = st.sets(st.sampled_from(SCOPES), min_size=1).map(lambda names: tuple(sorted(names)))


@dataclass
class Gate:
    """Runs under caps: those that are open, and those that wait, in the order of their arrival."""

    most: Mapping[str, int]
    open: dict[str, tuple[str, ...]] = field(default_factory=dict)
    waiting: dict[str, tuple[str, tuple[str, ...]]] = field(default_factory=dict)
    """By run, the scope in whose line it stands and all its scopes."""

    def load(self, scope: str) -> int:
        return sum(scope in scopes for scopes in self.open.values())

    def line(self, at: str) -> list[Candidate]:
        return [
            Candidate(run_id, tuple(RunCap(name, self.most[name]) for name in scopes))
            for run_id, (where, scopes) in self.waiting.items()
            if where == at
        ]

    def start(self, run_id: str, scopes: tuple[str, ...]) -> None:
        loads = [
            ScopeLoad(RunCap(name, self.most[name]), self.load(name), bool(self.line(name)))
            for name in scopes
        ]
        match decide(loads):
            case Admit():
                self.open[run_id] = scopes
            case Wait(at):
                self.waiting[run_id] = (at.name, scopes)
            case Refuse():
                raise AssertionError("no cap refuses")

    def turns(self) -> None:
        """Take turns until none changes anything, as the sweeper does."""
        while any(self.turn(at) for at in SCOPES):
            pass

    def turn(self, at: str) -> bool:
        found = take_turn(at, self.line(at), {name: self.load(name) for name in SCOPES})
        for run_id in found.admitted:
            self.open[run_id] = self.waiting.pop(run_id)[1]
        for run_id, where in found.moved.items():
            self.waiting[run_id] = (where, self.waiting[run_id][1])
        assert found.open == {name: self.load(name) for name in SCOPES}
        return bool(found.admitted or found.moved)


@given(
    most=caps,
    starts=st.lists(run_scopes, max_size=12),
    events=st.lists(st.one_of(st.integers(0, 20), st.none()), max_size=30),
)
def test_no_cap_is_exceeded_and_no_place_stays_free_while_somebody_waits_for_it(
    most: Mapping[str, int], starts: Sequence[tuple[str, ...]], events: Sequence[int | None]
) -> None:
    """Holds `run-cap-never-exceeded` and `no-idle-place` after every event."""
    gate, coming = Gate(most), list(enumerate(starts))
    for event in events:
        if event is None or not gate.open:
            if coming:
                number, scopes = coming.pop(0)
                gate.start(f"r{number}", scopes)
        else:
            del gate.open[sorted(gate.open)[event % len(gate.open)]]
            gate.turns()
        assert all(gate.load(name) <= most[name] for name in SCOPES)
        for run_id, (at, scopes) in gate.waiting.items():
            full = [name for name in scopes if gate.load(name) >= most[name]]
            behind = any(other != run_id and where in scopes for other, (where, _) in gate.waiting.items())
            assert full or behind, f"{run_id} waits at {at} for nothing"


@given(most=st.integers(1, 3), level=st.integers(2, 9))
def test_runs_of_the_same_scopes_start_in_the_order_of_their_arrival(most: int, level: int) -> None:
    gate = Gate(dict.fromkeys(SCOPES, most))
    scopes = SCOPES[:2]
    for number in range(most + level):
        gate.start(f"r{number:02}", scopes)
    started = list(gate.open)
    while gate.waiting:
        del gate.open[next(iter(gate.open))]
        gate.turns()
        started += [each for each in gate.open if each not in started]
    assert started == sorted(started)


def test_a_scope_that_refuses_does_so_before_another_cancels_anything() -> None:
    full = [
        ScopeLoad(RunCap("a", 1, Surplus.CANCEL_RUNNING), 1),
        ScopeLoad(RunCap("b", 1, Surplus.REFUSE), 1),
    ]
    assert decide(full) == Refuse(full[1])
    assert decide([full[0]]) == Wait(full[0].cap, cancels=(full[0].cap,))
    closed = ScopeLoad(RunCap("a", 0, Surplus.CANCEL_RUNNING), 3)
    assert decide([closed]) == Wait(closed.cap), "no run is cancelled where that makes no room"


def test_a_key_has_its_own_cap_or_that_of_each_key() -> None:
    def policy(most: int, ends_at_ms: int | None = None) -> Policy:
        return Policy(1, {LimitSetting.OPEN_RUNS: SettingValue(most, "ann", 0, None, ends_at_ms)})

    key, each = RunScope("ns", RunScopeKind.KEY, "a/b"), RunScope("ns", RunScopeKind.EACH_KEY)
    policies = {key.name: policy(3, ends_at_ms=100), each.name: policy(1)}
    assert cap_in_force(key, policies, 99) == RunCap(key.name, 3)
    assert cap_in_force(key, policies, 100) == RunCap(key.name, 1), "its own has expired"
    assert cap_in_force(key, {}, 0) is None


def test_scopes_are_found_again_by_their_names() -> None:
    scopes = [
        *run_caps.scopes_of("ns", "a/b", "q:1", "k/key/x"),
        RunScope("ns", RunScopeKind.EACH_KEY),
    ]
    assert [scope_of(each.name) for each in scopes] == scopes
    assert len({each.name for each in scopes}) == len(scopes)
