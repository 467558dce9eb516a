"""Random workflow programs under random events: the invariants of runs hold, and everything terminates.

Programs are drawn as data; a model worker replays histories to decide what comes next. Callers, clocks, sweepers,
worker deaths and server restarts are interleaved at random. At the end all remaining work is done, and nothing may be
pending.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import tempfile
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, initialize, invariant, multiple, rule
from msgspec.structs import replace

from penstock.core.model import (
    ActivityTimeouts,
    Blob,
    ClosePolicy,
    RecordedEvent,
    Run,
    RunId,
    TaskKind,
    TaskState,
)
from penstock.core.reset.decision_points import decision_points
from penstock.core.reset.prefix_state import state_at
from penstock.core.scheduling.polls import Granted, Leased, Refused
from penstock.core.waits import NEW_RUN
from penstock.engine.activities.activity_reports import AttemptFailure
from penstock.engine.context import EngineContext
from penstock.engine.maintenance.sweepers.due_tasks import due_tasks
from penstock.engine.maintenance.sweepers.due_timers import due_timers
from penstock.engine.maintenance.sweepers.expired_leases import expired_leases
from penstock.engine.maintenance.sweepers.overdue_activities import overdue_activities
from penstock.engine.maintenance.sweepers.overdue_runs import overdue_runs
from penstock.engine.maintenance.sweepers.pending_outbox import pending_outbox
from penstock.engine.matching.undelivered import hand_back
from penstock.engine.messaging import signals, updates
from penstock.engine.messaging.signals import Signal
from penstock.engine.messaging.updates import UpdateSubmission
from penstock.engine.runs.address import Address
from penstock.engine.workers import worker_registry
from penstock.engine.workflows import run_close, run_pause, starts
from penstock.engine.workflows.copies import reset as resets
from penstock.engine.workflows.copies.reset import ForkTarget, Reapply, ResetRequest
from penstock.engine.workflows.copies.run_copies import SourceAddress, start_fields_of
from penstock.engine.workflows.run_close import EndMode as Ending
from penstock.engine.workflows.workflow_reports import WAITING_FOR_HISTORY
from penstock.errors import PenstockError, Reason
from penstock.ports.store import Store
from penstock.settings import load
from penstock.stores.sqlite.ephemeral import EphemeralStore
from penstock.wakeups.local import LocalWakeups
from tests.engine.support import run_invariants
from tests.engine.support.programs import (
    REFUSED,
    Act,
    Again,
    End,
    Group,
    Inline,
    Kid,
    Program,
    Select,
    Sleep,
    Wait,
    next_commands,
)
from tests.engine.support.run_invariants import RunSnapshot, StoreSnapshot
from tests.engine.support.scene import ACTIVITY, WORKFLOW, Scene, a_poll, a_start, of, tries
from tests.support.builders import NOW_MS
from tests.support.checked_store import CheckedStore
from tests.support.clock import ManualClock
from tests.support.effort import times
from tests.support.entropy import CountingEntropy

pytestmark = [pytest.mark.filterwarnings("ignore:Generating overly large repr"), pytest.mark.timeout(400)]

# ── Programs ────────────────────────────────────────────────────────────────────────────────────────────

policies = st.sampled_from([tries(1), tries(2), tries(3, 1, 4)])
maybe_soon = st.sampled_from([None] * 10 + [2, 30])
acts = st.builds(
    Act,
    policies,
    st.sampled_from(
        [
            ActivityTimeouts(),
            ActivityTimeouts(),
            ActivityTimeouts(schedule_to_start_ms=5_000),
            ActivityTimeouts(start_to_close_ms=500),
            ActivityTimeouts(heartbeat_ms=500),
            ActivityTimeouts(schedule_to_close_ms=90_000),
        ]
    ),
)
sleeps = st.builds(Sleep, st.sampled_from([0, 1, 30]))
conditions = st.builds(Wait, st.integers(0, 3), st.sampled_from([None, 0, 1, 30]))
inlines = st.builds(
    Inline,
    st.sampled_from(
        ["effect", "marker", "attributes", "memo", "completed", "failed", "timed_out", "cancelled"]
    ),
)


def kids(programs: st.SearchStrategy[Program]) -> st.SearchStrategy[Kid]:
    named = st.sampled_from([None, None, None, "kid-0", "order-0"])
    return st.builds(Kid, programs, st.sampled_from(ClosePolicy), policies, maybe_soon, maybe_soon, named)


def groups_of(leaves: st.SearchStrategy[Any]) -> st.SearchStrategy[Group]:
    inner = st.builds(Group, st.lists(leaves, min_size=1, max_size=2).map(tuple))
    return st.builds(Group, st.lists(leaves | inner, min_size=1, max_size=3).map(tuple))


def selections_of(leaves: st.SearchStrategy[Any]) -> st.SearchStrategy[Select]:
    selected = st.builds(Wait, st.just(1), st.sampled_from([0, 1, 30]))
    members = st.lists(leaves | selected | groups_of(leaves), min_size=1, max_size=3).map(tuple)
    return st.builds(Select, members, st.sampled_from(["leave", "cancel", "await"]), st.integers(-1, 1))


def programs_over(inner: st.SearchStrategy[Program]) -> st.SearchStrategy[Program]:
    """Programs whose children and successors are given."""
    leaves = st.one_of(acts, sleeps, kids(inner))
    nodes = st.one_of(leaves, conditions, conditions, inlines, groups_of(leaves), selections_of(leaves))
    ends = st.one_of(
        st.just(End()),
        st.builds(End, st.sampled_from(["complete", "fail", "never"])),
        st.builds(Again, inner),
    )
    return st.builds(Program, st.lists(nodes, min_size=1, max_size=6).map(tuple), ends)


least = st.builds(
    Program,
    st.lists(st.one_of(acts, sleeps, conditions, inlines), max_size=2).map(tuple),
    st.builds(End, st.sampled_from(["complete", "complete", "fail", "never"])),
)
deeper = st.deferred(lambda: programs_over(least))
programs = st.deferred(lambda: programs_over(least | deeper))

# ── The machine ─────────────────────────────────────────────────────────────────────────────────────────

WORKERS = st.sampled_from(["w1", "w2"])
PLACES = st.integers(0, 1_000)
REQUESTS = st.sampled_from([None, None, "a", "b"])
SWEEPERS = (
    due_tasks,
    due_timers,
    expired_leases,
    overdue_activities,
    overdue_runs,
    pending_outbox,
)
FORKED_MAX = 12
"""Runs beyond which none is forked."""
ROUNDS_MAX = 400
"""A program that needs more rounds than this does not terminate."""
CIRCLES = {Reason.INVALID_COMMANDS, Reason.STRUCTURAL_LIMIT_EXCEEDED}


def check_prefix_state(leased: Leased) -> None:
    """The state that follows from the history at a decision is that of the run's row."""
    run, first = leased.run, start_fields_of(leased.events[0])
    if run.buffered:  # its row counts what the history will have only behind this task
        return
    fresh = replace(
        run,
        waits=NEW_RUN,
        last_step=0,
        unseen_signals=0,
        memo=first.memo,
        search_attributes=first.search_attributes,
    )
    found = state_at(fresh, leased.events)
    if found.problem is None:
        assert _comparable(found.run) == _comparable(run)


def _comparable(run: Run) -> object:
    """What a history says of its run: without what the first workflow task of a copy sets anew."""
    waits = replace(
        run.waits,
        signals_deferred=False,
        selected=False,
        delivers_cancel=False,
        unhandled_signals=0,
        cached=None,
        paused=None,
    )
    counts = run.last_step, run.last_sequence, run.open_activities, run.open_timers, run.open_updates
    return waits, counts, json.loads(run.memo), json.loads(run.search_attributes)


class RandomPrograms(RuleBasedStateMachine):
    """Drives one engine; refusals are expected, violated invariants are not."""

    leases: Bundle[Leased] = Bundle("leases")

    def __init__(self) -> None:
        super().__init__()
        self._loop = asyncio.new_event_loop()
        self._draining = asyncio.Event()
        self._clock, self._wakeups = ManualClock(NOW_MS), LocalWakeups()
        self._entropy = CountingEntropy()
        self._settings = load({"DW_AUTH_DRIVER": "none", "DW_WORKER_STALE_AFTER_SECONDS": "3600"})
        self.scene = self._loop.run_until_complete(self._enter())
        self.names: list[str] = []
        self.seen: dict[RunId, list[RecordedEvent]] = {}
        self.past: list[Leased] = []
        """Leases that were reported."""
        for worker_id in ("w1", "w2"):
            self.do(self.scene.register(worker_id))

    async def open_store(self) -> Store:
        return EphemeralStore.create(self._clock, self._wakeups)

    async def _enter(self) -> Scene:
        ctx = EngineContext(await self.open_store(), self._wakeups, self._entropy, self._settings)
        return Scene(ctx, self._clock, self._wakeups)

    @property
    def ctx(self) -> EngineContext:
        return self.scene.ctx

    def do(self, work: Coroutine[Any, Any, Any]) -> Any:
        """Run an operation; a refusal counts as an answer."""
        try:
            return self._loop.run_until_complete(work)
        except PenstockError as refusal:
            if refusal.reason in CIRCLES:
                raise
            return refusal

    def look(self) -> StoreSnapshot:
        return self._loop.run_until_complete(run_invariants.load(self.ctx.store))

    def teardown(self) -> None:
        try:
            self.come_to_an_end()
        finally:
            self._loop.run_until_complete(self.ctx.store.close())
            self._loop.close()

    # ── Callers ─────────────────────────────────────────────────────────────────────────────────────────

    @initialize(drawn=st.lists(programs, min_size=2, max_size=2))
    def some_are_started(self, drawn: list[Program]) -> None:
        for number, program in enumerate(drawn):
            self.start(number, program, None, None)

    @rule(number=st.integers(0, 3), program=programs, run_s=maybe_soon, execution_s=maybe_soon)
    def start(self, number: int, program: Program, run_s: int | None, execution_s: int | None) -> None:
        name = f"order-{number}"
        wanted = {"run_timeout_s": run_s, "execution_timeout_s": execution_s}
        if isinstance(self.do(self.scene.start(name, workflow_type=program.name, **wanted)), Run):
            self.names.append(name)

    @rule(number=st.integers(0, 3), program=programs, request_id=REQUESTS)
    def signal_with_start(self, number: int, program: Program, request_id: str | None) -> None:
        name = f"order-{number}"
        request = a_start(name, workflow_type=program.name)
        signal = Signal(Address("default", name), "go", Blob(""), request_id)
        if not isinstance(self.do(starts.signal_with_start(self.ctx, request, signal)), PenstockError):
            self.names.append(name)

    def _somebody(self, place: int) -> Address | None:
        return Address("default", self.names[place % len(self.names)]) if self.names else None

    @rule(place=PLACES, request_id=REQUESTS)
    def signal(self, place: int, request_id: str | None) -> None:
        address = self._somebody(place)
        if address is not None:
            self.do(signals.send(self.ctx, Signal(address, "go", Blob(""), request_id)))

    @rule(place=PLACES, name=st.sampled_from(["add", "add", REFUSED]), request_id=REQUESTS)
    def update(self, place: int, name: str, request_id: str | None) -> None:
        address = self._somebody(place)
        if address is not None:
            self.do(
                updates.accept(
                    self.ctx, UpdateSubmission(address, name, Blob(""), request_id), self._draining
                )
            )

    @rule(place=PLACES, end=st.sampled_from(Ending), sure=st.integers(0, 2))
    def end(self, place: int, end: Ending, sure: int) -> None:
        address = self._somebody(place)
        if address is not None and sure == 0:
            self.do(run_close.end_run(self.ctx, "default", address.workflow_id, end, None))

    @rule(place=PLACES, point=PLACES, reapply=st.sampled_from(Reapply), forked=st.booleans())
    def go_back(self, place: int, point: int, reapply: Reapply, forked: bool) -> None:
        """Reset or fork a run, open or closed, at one of its decision points."""
        sights = self.look().sights
        chosen = sights[place % len(sights)]
        points = decision_points(chosen.events) or [2]
        request = ResetRequest(points[point % len(points)], reapply)
        source = SourceAddress("default", chosen.run.workflow_id, chosen.run.run_id)
        if not forked:
            self.do(resets.reset(self.ctx, source, request))
        elif len(sights) < FORKED_MAX:
            self.do(resets.fork(self.ctx, source, request, ForkTarget()))

    @rule(place=PLACES, paused=st.booleans())
    def pause_or_resume(self, place: int, paused: bool) -> None:
        address = self._somebody(place)
        if address is not None:
            self.do((run_pause.pause if paused else run_pause.resume)(self.ctx, address, None))

    # ── Workers ─────────────────────────────────────────────────────────────────────────────────────────

    def claim(self, kind: TaskKind, worker_id: str) -> Leased | None:
        [verdict] = self.do(self.scene.ask(a_poll(kind, worker_id)))
        assert not isinstance(verdict, Refused)
        return verdict.leased[0] if isinstance(verdict, Granted) else None

    def succeed(self, leased: Leased) -> Any:
        """Handle the task as its program prescribes."""
        if leased.task.kind is ACTIVITY:
            return self.do(self.scene.finish(leased))
        check_prefix_state(leased)
        commands = next_commands(leased.events, leased.task.update_id)
        if not commands:
            return self.do(self.scene.fail(leased, "nothing new", WAITING_FOR_HISTORY))
        return self.do(self.scene.complete(leased, *commands))

    @rule(target=leases, kind=st.sampled_from([WORKFLOW, ACTIVITY]), worker_id=WORKERS)
    def take(self, kind: TaskKind, worker_id: str) -> Any:
        leased = self.claim(kind, worker_id)
        return multiple() if leased is None else leased

    @rule(leased=consumes(leases), again=st.booleans())
    def report_success(self, leased: Leased, again: bool) -> None:
        first = self.succeed(leased)
        self.past.append(leased)
        if again and not isinstance(first, PenstockError):
            second = self.succeed(leased)
            assert second.repeated
            assert second.outcome == first.outcome, "a task has one outcome"

    @rule(kind=st.sampled_from([WORKFLOW, WORKFLOW, ACTIVITY]), worker_id=WORKERS, tasks=st.integers(1, 9))
    def work(self, kind: TaskKind, worker_id: str, tasks: int) -> None:
        for _ in range(tasks):
            leased = self.claim(kind, worker_id)
            if leased is None:
                break
            self.succeed(leased)
            self.past.append(leased)

    @rule(place=PLACES, worker_id=WORKERS, by_ms=st.sampled_from([0, 1_000, 30_000]), signalled=st.booleans())
    def something_happens_while_a_worker_decides(
        self, place: int, worker_id: str, by_ms: int, signalled: bool
    ) -> None:
        """Events meanwhile are buffered until the worker has decided."""
        deciding = [leased for _ in range(4) if (leased := self.claim(WORKFLOW, worker_id)) is not None]
        self._clock.advance(by_ms)
        for sweeper in (due_tasks, due_timers, pending_outbox):
            self.do(sweeper(self.ctx).sweep())
        if signalled:
            self.signal(place, None)
            self.update(place + 1, "add", None)
        for _ in range(3):
            running = self.claim(ACTIVITY, worker_id)
            if running is not None:
                self.succeed(running)
        for leased in deciding:
            self.succeed(leased)
            self.past.append(leased)

    @rule(
        leased=consumes(leases),
        kind=st.sampled_from([None, "Boom", "NonDeterministicReplayError"]),
        final=st.booleans(),
    )
    def report_failure(self, leased: Leased, kind: str | None, final: bool) -> None:
        if leased.task.kind is ACTIVITY:
            self.do(self.scene.fail_activity(leased, AttemptFailure("boom", kind, non_retryable=final)))
        else:
            self.do(self.scene.fail(leased, "boom", kind))
        self.past.append(leased)

    @rule(place=PLACES, digest=st.sampled_from(["digest", "other"]), succeed=st.booleans())
    def report_late(self, place: int, digest: str, succeed: bool) -> None:
        """A report on a lease that has ended, the same or another."""
        if not self.past:
            return
        leased = self.past[place % len(self.past)]
        before = self._sight(leased.run.run_id)
        if any(task.lease_token == leased.task.lease_token for task in before.live):
            return
        report = of(leased, digest)
        if leased.task.kind is ACTIVITY:
            late = self.scene.finish if succeed else self.scene.fail_activity
            self.do(late(leased, report=report))
        elif succeed:
            self.do(self.scene.complete(leased, *next_commands(leased.events), report=report))
        else:
            self.do(self.scene.fail(leased, report=report))
        assert self._sight(leased.run.run_id) == before, "late-answers-change-nothing"

    def _sight(self, run_id: RunId) -> RunSnapshot:
        return next(snapshot for snapshot in self.look().sights if snapshot.run.run_id == run_id)

    @rule(leased=leases)
    def beat(self, leased: Leased) -> None:
        self.do(
            self.scene.heartbeat(leased)
            if leased.task.kind is ACTIVITY
            else self.scene.heartbeat_workflow_task(leased)
        )

    @rule(leased=consumes(leases))
    def hang_up(self, leased: Leased) -> None:
        self.do(hand_back(self.ctx, leased))

    @rule(worker_id=WORKERS)
    def leave_and_return(self, worker_id: str) -> None:
        self.do(worker_registry.deregister(self.ctx, "default", worker_id))
        self.do(self.scene.register(worker_id))

    # ── Time ────────────────────────────────────────────────────────────────────────────────────────────

    @rule(by_ms=st.sampled_from([1, 500, 1_000, 30_000, 60_000, 300_000]))
    def time_passes(self, by_ms: int) -> None:
        self._clock.advance(by_ms)

    @rule(sweeper=st.sampled_from(SWEEPERS), by_ms=st.sampled_from([0, 0, 1_000]))
    def sweep(self, sweeper: Any, by_ms: int) -> None:
        self._clock.advance(by_ms)
        self.do(sweeper(self.ctx).sweep())

    @rule()
    def two_servers_relay_outbox(self) -> None:
        self.do(self._deliver_twice())

    async def _deliver_twice(self) -> None:
        await asyncio.gather(*(pending_outbox(self.ctx).sweep() for _ in range(2)))

    # ── Laws ────────────────────────────────────────────────────────────────────────────────────────────

    @invariant()
    def the_laws_of_runs_hold(self) -> None:
        state = self.look()
        run_invariants.check(state)
        for snapshot in state.sights:
            before = self.seen.get(snapshot.run.run_id, [])
            assert list(snapshot.events[: len(before)]) == before, "a history only grows"
            self.seen[snapshot.run.run_id] = list(snapshot.events)
        self.names = list(dict.fromkeys([*self.names, *(each.run.workflow_id for each in state.sights)]))

    # ── The end ─────────────────────────────────────────────────────────────────────────────────────────

    def come_to_an_end(self) -> None:
        """Run everything to quiescence; runs still open wait for a message, and are then ended."""
        for name in self.names:
            self.do(run_pause.resume(self.ctx, Address("default", name), None))
        for _ in range(ROUNDS_MAX):
            self._finish_what_can_be_done()
            state = self.look()
            run_invariants.check(state)
            waiting = [snapshot.run for snapshot in state.open]
            if not waiting:
                break
            for snapshot in state.open:
                self._waits_for_something(snapshot)
            for run in waiting:
                self.do(signals.send(self.ctx, Signal(Address("default", run.workflow_id), "go", Blob(""))))
        assert not self.look().open, "everything comes to an end"
        for snapshot in self.look().sights:
            assert all(update.outcome is not None for update in snapshot.updates)

    def _finish_what_can_be_done(self) -> None:
        for _ in range(ROUNDS_MAX):
            self._sweep_and_work()
            state = self.look()
            if not state.outbox and not any(snapshot.live or snapshot.timers for snapshot in state.open):
                return
            self._clock.advance(61_000)
        raise AssertionError("something is pending for ever")

    def _sweep_and_work(self) -> None:
        for sweeper in SWEEPERS:
            self.do(sweeper(self.ctx).sweep())
        for kind in (ACTIVITY, WORKFLOW):
            while (leased := self.claim(kind, "w1")) is not None:
                answer = self.succeed(leased)
                refused = isinstance(answer, PenstockError) and not self._is_turned_back(leased)
                assert not refused or not self._is_ours(leased), answer

    def _is_turned_back(self, leased: Leased) -> bool:
        """Whether the completion was rejected because of an unhandled signal."""
        deciding = self._sight(leased.run.run_id).deciding
        return deciding is not None and deciding.state is TaskState.READY

    def _is_ours(self, leased: Leased) -> bool:
        """Whether the run of a task continues as new."""
        now_ms = self._clock.now_ms()
        run = self._sight(leased.run.run_id).run
        return run.is_open and (run.deadline_at_ms is None or run.deadline_at_ms > now_ms)

    def _waits_for_something(self, snapshot: RunSnapshot) -> None:
        run = snapshot.run
        assert (run.open_activities, run.open_timers, run.open_updates, run.owed) == (0, 0, 0, 0)
        assert run.open_children or run.waits.condition is not None, "a run that waits for nothing"


RandomPrograms.TestCase.settings = settings(
    max_examples=times(25),
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large],
)
TestRandomPrograms = RandomPrograms.TestCase


class RandomProgramsInAFile(RandomPrograms):
    """The random programs on SQLite, with server restarts."""

    def __init__(self) -> None:
        self._directory = Path(tempfile.mkdtemp())
        super().__init__()

    async def open_store(self) -> Store:
        return await CheckedStore.open(
            self._directory / "penstock.db", self._clock, self._wakeups, synchronous="off"
        )

    def teardown(self) -> None:
        try:
            super().teardown()
        finally:
            shutil.rmtree(self._directory)

    @rule()
    def the_server_starts_again(self) -> None:
        self.do(self.ctx.store.close())
        self.scene = self.do(self._enter())


RandomProgramsInAFile.TestCase.settings = settings(RandomPrograms.TestCase.settings, max_examples=times(4))
TestRandomProgramsInAFile = RandomProgramsInAFile.TestCase
