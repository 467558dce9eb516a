"""Invariants that hold after every step of random callers, workers and clocks."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Coroutine
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, multiple, rule

from penstock.core.history.commands import Command, FailWorkflow, StartTimer
from penstock.core.history.events import CLOSING
from penstock.core.model import (
    ActivityStatus,
    RecordedEvent,
    Run,
    RunHost,
    RunId,
    TaskKind,
    TaskPriority,
    TaskState,
    TimerState,
)
from penstock.core.scheduling.polls import Leased
from penstock.engine.activities.activity_reports import AttemptFailure
from penstock.engine.maintenance.sweepers.expired_leases import expired_leases
from penstock.engine.maintenance.sweepers.overdue_activities import overdue_activities
from penstock.engine.maintenance.sweepers.overdue_runs import overdue_runs
from penstock.engine.matching.undelivered import hand_back
from penstock.engine.workers import worker_registry
from penstock.engine.workflows import run_close
from penstock.engine.workflows.run_close import EndMode
from penstock.engine.workflows.workflow_reports import WAITING_FOR_HISTORY
from penstock.errors import PenstockError
from tests.engine.support import direct
from tests.engine.support.scene import ACTIVITY, DONE, WORKFLOW, Scene, a_scene, charge, of, tries
from tests.support.effort import times
from tests.support.ephemeral import RecycledStore

SCHEDULED = {"ActivityScheduled", "TimerScheduled"}
STEP_ENDS = {
    "ActivityCompleted",
    "ActivityFailed",
    "ActivityTimedOut",
    "ActivityCancelled",
    "TimerFired",
    "TimerCancelled",
}
WORKERS = st.sampled_from(["w1", "w2"])
POLICIES = st.sampled_from([None, tries(1), tries(2), tries(3, 1, 4)])
LIMITS = st.dictionaries(
    st.sampled_from(["schedule_to_start_ms", "start_to_close_ms", "schedule_to_close_ms", "heartbeat_ms"]),
    st.sampled_from([500, 5_000, 90_000]),
    max_size=1,
)
STEPS = st.lists(
    st.one_of(
        st.builds(lambda policy, limits: charge(policy, **limits), POLICIES, LIMITS),
        st.builds(StartTimer, st.sampled_from([0, 1, 30])),
    ),
    min_size=1,
    max_size=4,
)

ENDS = st.sampled_from([None] * 10 + [DONE, FailWorkflow("no stock")])


class Laws(RuleBasedStateMachine):
    """Drives one engine; refusals are expected, violated invariants are not."""

    leases: Bundle[Leased] = Bundle("leases")

    def __init__(self) -> None:
        super().__init__()
        self._loop = asyncio.new_event_loop()
        self.scene = self._loop.run_until_complete(self._enter())
        self.acknowledged: dict[str, RunId] = {}
        self.seen: dict[RunId, list[RecordedEvent]] = {}
        self.past: list[Leased] = []
        """Leases that were reported."""
        for worker_id in ("w1", "w2"):
            self.do(self.scene.register(worker_id))

    async def _enter(self) -> Scene:
        return a_scene(worker_stale_after_seconds="3600")

    def teardown(self) -> None:
        RecycledStore.recycle()
        self._loop.close()

    def do(self, work: Coroutine[Any, Any, Any]) -> Any:
        """Run an operation; a refusal counts as an answer."""
        try:
            return self._loop.run_until_complete(work)
        except PenstockError as refusal:
            return refusal

    # ── Callers ─────────────────────────────────────────────────────────────────────────────────────────

    @rule(number=st.integers(0, 1), key=st.sampled_from(["", "a", "b"]), level=st.sampled_from([1, 3]))
    def start(self, number: int, key: str, level: int) -> None:
        name = f"order-{number}"
        self._started(self.do(self.scene.start(name, priority=TaskPriority(level, key))))

    @rule(number=st.integers(0, 1), timeout_s=st.sampled_from([1, 60]))
    def start_with_a_timeout(self, number: int, timeout_s: int) -> None:
        self._started(self.do(self.scene.start(f"brief-{number}", run_timeout_s=timeout_s)))

    @rule(number=st.integers(0, 1), policy=POLICIES, limits=LIMITS)
    def start_an_activity(self, number: int, policy: Any, limits: dict[str, Any]) -> None:
        command = charge(policy, **limits)
        self._started(self.do(self.scene.start_activity(f"charge-{number}", command)))

    def _started(self, answer: object) -> None:
        if isinstance(answer, Run):
            self.acknowledged[answer.workflow_id] = answer.run_id

    @rule(number=st.integers(0, 1), end=st.sampled_from(EndMode))
    def end(self, number: int, end: EndMode) -> None:
        self.do(run_close.end_run(self.scene.ctx, "default", f"order-{number}", end, None))

    @rule(target=leases, number=st.integers(0, 2), policy=POLICIES, worker_id=WORKERS)
    def a_busy_run(self, number: int, policy: Any, worker_id: str) -> Any:
        """A run whose workflow task is leased while its activities run, so that new events are buffered."""
        answer = self.do(self.scene.start(f"busy-{number}", priority=TaskPriority(0, f"busy-{number}")))
        self._started(answer)
        first = self.do(self.scene.claim(WORKFLOW, worker_id))
        if isinstance(first, Leased):
            self._succeed(first, [charge(policy), charge(), charge(policy), StartTimer(1)], None)
        running = [self.do(self.scene.claim(ACTIVITY, worker_id)) for _ in range(3)]
        if isinstance(running[0], Leased):
            self._succeed(running[0], [], None)
        held = [*running[1:], self.do(self.scene.claim(WORKFLOW, worker_id))]
        return multiple(*(lease for lease in held if isinstance(lease, Leased)))

    # ── Workers ─────────────────────────────────────────────────────────────────────────────────────────

    @rule(
        target=leases,
        kind=st.sampled_from([WORKFLOW, ACTIVITY]),
        worker_id=WORKERS,
        request=st.sampled_from([None, "p1", "p2"]),
    )
    def claim(self, kind: TaskKind, worker_id: str, request: str | None) -> Any:
        leased = self.do(self.scene.claim(kind, worker_id, poll_request_id=request))
        return leased if isinstance(leased, Leased) else multiple()

    @rule(leased=consumes(leases), steps=STEPS, end=ENDS, again=st.booleans())
    def report_success(self, leased: Leased, steps: list[Command], end: Command | None, again: bool) -> None:
        self._succeed(leased, steps, end)
        self._over(leased)
        if again:
            self._succeed(leased, steps, end)

    @rule(
        kind=st.sampled_from([WORKFLOW, ACTIVITY]),
        worker_id=WORKERS,
        steps=STEPS,
        end=ENDS,
        tasks=st.integers(1, 3),
    )
    def work(
        self, kind: TaskKind, worker_id: str, steps: list[Command], end: Command | None, tasks: int
    ) -> None:
        for _ in range(tasks):
            leased = self.do(self.scene.claim(kind, worker_id))
            if isinstance(leased, Leased):
                self._succeed(leased, steps, end)

    def _over(self, leased: Leased) -> None:
        if self.scene.task(leased.task.task_id).lease_token != leased.task.lease_token:
            self.past.append(leased)

    def _succeed(self, leased: Leased, steps: list[Command], end: Command | None) -> None:
        if leased.task.kind is ACTIVITY:
            self.do(self.scene.finish(leased))
        else:
            self.do(self.scene.complete(leased, *steps, *([end] if end is not None else [])))

    @rule(place=st.integers(0, 100), digest=st.sampled_from(["digest", "other"]), succeed=st.booleans())
    def report_late(self, place: int, digest: str, succeed: bool) -> None:
        """A report on a lease that has ended, the same or another."""
        if not self.past:
            return
        leased = self.past[place % len(self.past)]
        report = of(leased, digest)
        before = self.scene.run(leased.run.run_id), self.scene.task(leased.task.task_id)
        if leased.task.kind is ACTIVITY:
            self.do(
                self.scene.finish(leased, report=report)
                if succeed
                else self.scene.fail_activity(leased, report=report)
            )
        else:
            self.do(
                self.scene.complete(leased, DONE, report=report)
                if succeed
                else self.scene.fail(leased, report=report)
            )
        after = self.scene.run(leased.run.run_id), self.scene.task(leased.task.task_id)
        assert after == before, "late-answers-change-nothing"

    @rule(
        leased=consumes(leases),
        kind=st.sampled_from([None, "Boom", WAITING_FOR_HISTORY]),
        final=st.booleans(),
    )
    def report_failure(self, leased: Leased, kind: str | None, final: bool) -> None:
        if leased.task.kind is ACTIVITY:
            self.do(self.scene.fail_activity(leased, AttemptFailure("boom", kind, non_retryable=final)))
        else:
            self.do(self.scene.fail(leased, "boom", kind))
        self._over(leased)

    @rule(leased=leases)
    def beat(self, leased: Leased) -> None:
        before = self.scene.task(leased.task.task_id)
        self.do(
            self.scene.heartbeat(leased)
            if leased.task.kind is ACTIVITY
            else self.scene.heartbeat_workflow_task(leased)
        )
        after = self.scene.task(leased.task.task_id)
        lapsed = (before.lease_expires_at_ms or 0) <= self.scene.clock.now_ms()
        assert after == before or not lapsed, "a lapsed lease is never brought back"

    @rule(leased=consumes(leases))
    def hang_up(self, leased: Leased) -> None:
        self.do(hand_back(self.scene.ctx, leased))

    @rule(leased=consumes(leases), again=st.booleans())
    def give_back(self, leased: Leased, again: bool) -> None:
        hand_back_task = (
            direct.hand_back_activity if leased.task.kind is ACTIVITY else direct.hand_back_workflow_task
        )
        for _ in range(1 + again):
            self.do(hand_back_task(self.scene.ctx, "default", leased.task.task_id, of(leased, "given back")))
        self._over(leased)

    @rule(worker_id=WORKERS)
    def leave_and_return(self, worker_id: str) -> None:
        self.do(worker_registry.deregister(self.scene.ctx, "default", worker_id))
        self.do(self.scene.register(worker_id))

    # ── Time ────────────────────────────────────────────────────────────────────────────────────────────

    @rule(by_ms=st.sampled_from([1, 500, 1_000, 60_000, 300_000]))
    def time_passes(self, by_ms: int) -> None:
        self.scene.clock.advance(by_ms)

    @rule(by_ms=st.sampled_from([0, 1_000, 60_000]))
    def rests_end_and_timers_fire(self, by_ms: int) -> None:
        self.do(self.scene.advance(by_ms))

    @rule()
    def leases_expire(self) -> None:
        self.do(expired_leases(self.scene.ctx).sweep())

    @rule()
    def activities_time_out(self) -> None:
        self.do(overdue_activities(self.scene.ctx).sweep())

    @rule()
    def runs_time_out(self) -> None:
        self.do(overdue_runs(self.scene.ctx).sweep())

    # ── Laws ────────────────────────────────────────────────────────────────────────────────────────────

    def history(self, run_id: RunId) -> list[RecordedEvent]:
        return list(self.scene.tables.read(lambda tx: tx.histories.page(run_id, 0, 10_000)))

    @invariant()
    def no_acknowledged_run_is_lost(self) -> None:
        for name, run_id in self.acknowledged.items():
            run = self.scene.run(run_id)
            assert run.workflow_id == name
            assert self.scene.tables.instances["default", name].run_id == run_id
        assert len(self.scene.tables.runs) == len(self.acknowledged)

    @invariant()
    def histories_only_grow_and_have_no_gap(self) -> None:
        per_run = Counter(run_id for run_id, _ in self.scene.tables.events)
        for run_id, run in self.scene.tables.runs.items():
            events = self.history(run_id)
            assert per_run[run_id] == len(events) == run.last_sequence
            assert events[: len(self.seen.get(run_id, []))] == self.seen.get(run_id, [])
            self.seen[run_id] = events

    @invariant()
    def a_run_is_closed_by_exactly_one_event_and_it_is_the_last(self) -> None:
        for run_id, run in self.scene.tables.runs.items():
            types = [event.type for event in self.history(run_id)]
            endings = [kind for kind in types if kind in CLOSING]
            assert len(endings) == (0 if run.is_open else 1)
            assert run.is_open or types[-1] in CLOSING

    @invariant()
    def a_step_is_scheduled_once_and_ends_at_most_once_and_steps_are_dense(self) -> None:
        for run_id, run in self.scene.tables.runs.items():
            reported = [
                (event.type, json.loads(event.payload).get("sequence")) for event in self.history(run_id)
            ]
            waiting = self.scene.tables.buffered_events.get(run_id, [])
            ended = Counter(step for kind, step in reported if kind in STEP_ENDS)
            ended.update(event.payload["sequence"] for event in waiting if event.type in STEP_ENDS)
            steps = [step for kind, step in reported if kind in SCHEDULED]
            assert steps == list(range(1, run.last_step + 1))
            assert set(ended.values()) <= {1}
            assert set(ended) <= set(steps)
            if run.is_open:
                assert len(steps) - len(ended) == run.open_activities + run.open_timers

    @invariant()
    def what_a_run_counts_as_open_is_what_is_open(self) -> None:
        tables = self.scene.tables
        activities = Counter(each.run_id for each in tables.activities.values() if each.status.is_open)
        timers = Counter(each.run_id for each in tables.timers.values() if each.state is TimerState.OPEN)
        buffered = tables.buffered_events
        for run_id, run in tables.runs.items():
            assert run.open_activities == activities[run_id]
            assert run.open_timers == timers[run_id]
            assert run.buffered == len(buffered.get(run_id, []))

    @invariant()
    def lanes_count_the_tasks_that_are_ready(self) -> None:
        tables = self.scene.tables
        ready = Counter(
            (task.queue_id, task.level, task.key)
            for task in tables.tasks.values()
            if task.state is TaskState.READY
        )
        assert {lane_id: lane.count for lane_id, lane in tables.lanes.items() if lane.count} == ready

    @invariant()
    def a_run_has_at_most_one_live_workflow_task_and_a_closed_one_has_nothing_live(self) -> None:
        for run_id, run in self.scene.tables.runs.items():
            live = self.scene.live(run_id)
            assert len([task for task in live if task.kind is WORKFLOW]) <= 1
            if not run.is_open:
                assert live == []
                assert (run.open_activities, run.open_timers, run.buffered) == (0, 0, 0)

    @invariant()
    def an_open_activity_has_a_live_task_in_the_same_attempt(self) -> None:
        for activity in self.scene.tables.activities.values():
            task = self.scene.task(activity.task_id)
            assert activity.status.is_open == task.is_live
            if activity.status.is_open:
                assert activity.attempt == task.attempt
                late = activity.status is ActivityStatus.PENDING and task.state is TaskState.LEASED
                if late:  # granted after its schedule-to-start timeout: it does not begin, and times out
                    assert (activity.deadline_at_ms or 0) <= (task.leased_at_ms or 0)
                else:
                    assert (activity.status is ActivityStatus.RUNNING) == (task.state is TaskState.LEASED)

    @invariant()
    def events_wait_only_while_a_workflow_task_is_leased(self) -> None:
        for run_id, run in self.scene.tables.runs.items():
            deciding = [task for task in self.scene.live(run_id) if task.kind is WORKFLOW]
            leased = any(task.state is TaskState.LEASED for task in deciding)
            assert run.buffered == 0 or leased

    @invariant()
    def an_open_standalone_activity_has_exactly_one_live_task(self) -> None:
        for run_id, run in self.scene.tables.runs.items():
            if run.is_open and run.host is RunHost.ACTIVITY:
                assert len(self.scene.live(run_id)) == 1


Laws.TestCase.settings = settings(
    max_examples=times(30),
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
TestLaws = Laws.TestCase
