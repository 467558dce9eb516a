"""Random operations on runs under caps: places are what open runs hold, no cap is exceeded, and none is left over."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Mapping, Sequence

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import Struct

from penstock.core.history.commands import (
    Command,
    CompleteWorkflow,
    ContinueAsNew,
    FailWorkflow,
    StartChild,
)
from penstock.core.id_policies import IdConflictPolicy, IdReusePolicy
from penstock.core.limits import run_caps as caps
from penstock.core.limits.policies import LimitSetting, Policy
from penstock.core.limits.run_caps import RunScope, RunScopeKind, Surplus
from penstock.core.model import Run, RunHost, RunStatus, TaskState
from penstock.core.pauses import is_held, pause_of
from penstock.core.reset.decision_points import decision_points
from penstock.core.scheduling.gates import ScopeState
from penstock.engine.limits import run_caps
from penstock.engine.limits.admission import ScopeUpdate
from penstock.engine.limits.policies import UNSET, SettingChange
from penstock.engine.maintenance.run_cap_sweepers import waiting_runs
from penstock.engine.maintenance.sweepers.expired_runs import expired_runs
from penstock.engine.maintenance.sweepers.pending_outbox import pending_outbox
from penstock.engine.operations import run_deletion
from penstock.engine.runs.address import Address
from penstock.engine.workflows import run_close, run_pause
from penstock.engine.workflows.copies import redrive, rerun, reset
from penstock.engine.workflows.copies.reset import ForkTarget, Reapply, ResetRequest
from penstock.engine.workflows.copies.run_copies import SourceAddress
from penstock.engine.workflows.run_close import EndMode
from penstock.errors import PenstockError
from penstock.ports.store import Tx
from penstock.ports.tables.runs import RunFilter
from tests.engine.support.scene import ACTIVITY, DONE, NOTHING, WORKFLOW, Scene, a_scene, charge, tries

STEPS = 90
IDS = ("a", "b", "c", "d")
SCOPES = (
    RunScope("default"),
    RunScope("default", RunScopeKind.TYPE, "Order"),
    RunScope("default", RunScopeKind.TYPE, "Part"),
    RunScope("default", RunScopeKind.EACH_KEY),
    RunScope("default", RunScopeKind.KEY, "one"),
    RunScope("default", RunScopeKind.KEY, "two"),
)
CHILD = StartChild(
    "Part", None, NOTHING, workflow_id="part", retry=tries(2, 1), reuse=IdReusePolicy.ALLOW_DUPLICATE
)
DECISIONS: Sequence[Sequence[Command]] = (
    [],
    [charge(tries(3, 2))],
    [CHILD],
    [ContinueAsNew(NOTHING)],
    [DONE],
    [CompleteWorkflow(NOTHING)],
    [FailWorkflow("no stock")],
)


class Places(Struct, frozen=True):
    """What the store holds of places."""

    now_ms: int
    runs: Sequence[Run]
    states: Mapping[str, ScopeState]
    policies: Mapping[str, Policy]
    held: Mapping[str, Sequence[str]]
    line: Mapping[str, Sequence[str]]

    def cap(self, name: str) -> int | None:
        found = caps.cap_in_force(caps.scope_of(name), self.policies, self.now_ms)
        return None if found is None else found.most


async def places(scene: Scene) -> Places:
    async def operation(tx: Tx) -> Places:
        runs = await tx.runs.page(RunFilter("default", RunHost.WORKFLOW.value), None, 10_000)
        states = await tx.scopes.find([scope.name for scope in SCOPES])
        held = {each.name: await tx.run_places.holders(each.scope_id, 10_000) for each in states}
        line = {each.name: await tx.run_places.line(each.scope_id, 10_000) for each in states}
        return Places(
            tx.now_ms,
            runs,
            {each.name: each for each in states},
            {row.name: row.policy for row in await tx.run_places.rows_of("default")},
            {name: [place.run_id for place in found] for name, found in held.items()},
            {name: [place.run_id for place in found] for name, found in line.items()},
        )

    return await scene.read(operation)


def check_places(found: Places) -> None:
    """Counters, rows of places, and what runs say they hold, are the same."""
    opened = [run for run in found.runs if run.is_open]
    for name, state in found.states.items():
        holders = sorted(run.run_id for run in opened if state.scope_id in run.waits.places)
        assert sorted(found.held[name]) == holders
        assert state.running == len(holders)
    waiting = sorted(run.run_id for run in opened if run.waits.to_start)
    assert sorted(each for line in found.line.values() for each in line) == waiting
    for run in opened:
        scopes = caps.scopes_of("default", run.workflow_type, run.task_queue, run.lineage.concurrency_key)
        counted = [scope.name for scope in scopes if found.cap(scope.name) is not None]
        assert run.waits.to_start or all(run.run_id in found.held[name] for name in counted)


def check_tasks(scene: Scene, found: Places) -> None:
    """What waits to start has no ready task, and what is held has a pause."""
    for run in found.runs:
        for task in scene.live(run.run_id):
            assert not run.waits.to_start or task.state is TaskState.DELAYED
            assert task.state is TaskState.LEASED or is_held(task) == (pause_of(run, task) is not None)


def check_growth(before: Places, after: Places) -> None:
    """A scope that has more runs than before has no more than its cap."""
    for name, state in after.states.items():
        most = after.cap(name)
        if most is not None and name in before.states and state.running > before.states[name].running:
            assert state.running <= most


async def set_cap(scene: Scene, scope: RunScope, most: int | None, surplus: Surplus | None = None) -> None:
    change = {
        LimitSetting.OPEN_RUNS: SettingChange(UNSET if most is None else most),
        LimitSetting.SURPLUS: SettingChange(UNSET if surplus is None else surplus.value),
    }
    await run_caps.configure(scene.ctx, scope, ScopeUpdate(change), "ops")


class Program:
    """Operations with random arguments."""

    def __init__(self, scene: Scene, chance: random.Random) -> None:
        self._scene, self._chance = scene, chance

    async def start(self) -> None:
        pick = self._chance.choice
        await self._scene.start(
            pick(IDS),
            id_conflict_policy=pick([IdConflictPolicy.FAIL, IdConflictPolicy.TERMINATE_EXISTING]),
            id_reuse_policy=IdReusePolicy.ALLOW_DUPLICATE,
            concurrency_key=pick([None, "one", "two"]),
            run_timeout_s=pick([None, None, 5]),
            delivers_cancel=pick([False, True]),
        )

    async def decide(self) -> None:
        leased = await self._scene.claim(WORKFLOW)
        if leased is not None:
            await self._scene.complete(leased, *self._chance.choice(DECISIONS), concurrent=True)

    async def fail(self) -> None:
        leased = await self._scene.claim(ACTIVITY)
        if leased is not None:
            await self._scene.fail_activity(leased)

    async def end(self) -> None:
        mode = self._chance.choice([*EndMode])
        await run_close.end_run(self._scene.ctx, "default", self._chance.choice(IDS), mode, None)

    async def pause(self) -> None:
        act = self._chance.choice([run_pause.pause, run_pause.resume])
        await act(self._scene.ctx, Address("default", self._chance.choice(IDS)), None)

    async def copy(self) -> None:
        source = await self._source(lambda run: run.waits.to_start)
        points = [] if source is None else decision_points(await self._scene.events(source.run_id))
        if source is None or not points:
            return
        request = ResetRequest(self._chance.choice(points), self._chance.choice([*Reapply]))
        address = SourceAddress("default", source.workflow_id, source.run_id)
        if self._chance.random() < 0.6:
            await reset.reset(self._scene.ctx, address, request)
        else:
            await reset.fork(self._scene.ctx, address, request, ForkTarget())

    async def again(self) -> None:
        source = await self._source(lambda run: run.status is RunStatus.FAILED)
        if source is None:
            return
        if source.status is RunStatus.FAILED:
            await redrive.redrive_run(self._scene.ctx, "default", source.workflow_id, None, None)
        else:
            await rerun.rerun(self._scene.ctx, SourceAddress("default", source.workflow_id, source.run_id))

    async def delete(self) -> None:
        source = await self._source(lambda run: not run.is_open)
        if source is not None:
            await run_deletion.delete_run(self._scene.ctx, "default", source.workflow_id, source.run_id, None)

    async def turn(self) -> None:
        await waiting_runs(self._scene.ctx).sweep()
        found = await places(self._scene)
        for name, line in found.line.items():
            most = found.cap(name)
            assert not line or (most is not None and found.states[name].running >= most), "an idle place"

    async def time(self) -> None:
        await self._scene.advance(self._chance.choice([100, 2_000, 6_000]))
        await expired_runs(self._scene.ctx).sweep()
        await pending_outbox(self._scene.ctx).sweep()

    async def cap(self) -> None:
        most = self._chance.choice([None, 0, 1, 2, 3])
        surplus = None if most is None else self._chance.choice([*Surplus])
        await set_cap(self._scene, self._chance.choice(SCOPES), most, surplus)

    async def _source(self, suits: Callable[[Run], bool]) -> Run | None:
        """Any run, but mostly one of those that suit."""
        found = (await places(self._scene)).runs
        best = [run for run in found if suits(run)] if self._chance.random() < 0.7 else []
        return self._chance.choice(best or found) if found else None


@settings(max_examples=8, deadline=None)
@given(seed=st.integers(0, 2**32))
async def test_no_program_exceeds_a_cap_on_runs_or_leaves_a_place(seed: int):
    scene, chance = a_scene(), random.Random(seed)
    program = Program(scene, chance)
    often = [program.start, program.decide, program.turn]
    rare = [program.fail, program.end, program.pause, program.copy, program.again, program.delete]
    acts: list[Callable[[], Awaitable[None]]] = [*often, *often, *rare, program.time, program.cap]
    await set_cap(scene, SCOPES[0], 3)
    await set_cap(scene, SCOPES[1], 2, chance.choice([*Surplus]))
    before = await places(scene)
    for _ in range(STEPS):
        act = chance.choice(acts)
        try:
            await act()
        except PenstockError:
            pass  # what is refused changes nothing, as the checks show
        after = await places(scene)
        check_places(after)
        check_tasks(scene, after)
        if act != program.cap:
            check_growth(before, after)
        before = after
    for scope in SCOPES:
        await set_cap(scene, scope, None)
    await program.turn()
    for run in (await places(scene)).runs:
        if run.is_open:
            await run_close.end_run(
                scene.ctx, "default", run.workflow_id, EndMode.TERMINATE, None, run.run_id
            )
    left = await places(scene)
    check_places(left)
    assert not any(left.held.values())
