"""Steps of tests about waits: setting limits, asking why, and applying remedies."""

from __future__ import annotations

from collections.abc import Sequence
from typing import assert_never

from msgspec.structs import replace

from penstock.core.limits.policies import LimitSetting
from penstock.core.limits.run_caps import RunScope, RunScopeKind
from penstock.core.model import Blob, PriorityOverride, Task, TaskPriority, TaskState
from penstock.core.scheduling.leases import Report
from penstock.core.why.values import Constraint, ConstraintKind, Remedy, RemedyKind, WaitExplanation
from penstock.engine.activities import activity_control
from penstock.engine.limits import admission, policies, run_caps
from penstock.engine.limits.admission import ScopeUpdate
from penstock.engine.limits.policies import UNSET, KeySettingsChange, PolicyUpdate, SettingChange
from penstock.engine.maintenance.run_cap_sweepers import waiting_runs
from penstock.engine.maintenance.sweepers.expired_leases import expired_leases
from penstock.engine.maintenance.sweepers.pending_outbox import pending_outbox
from penstock.engine.matching import permits
from penstock.engine.messaging import signals
from penstock.engine.messaging.signals import Signal
from penstock.engine.runs.address import Address
from penstock.engine.visibility import explanations
from penstock.engine.workers import cohorts, worker_registry
from penstock.engine.workflows import run_close, run_pause, run_repair
from penstock.engine.workflows.run_close import EndMode
from tests.engine.support import direct
from tests.engine.support.scene import ACTIVITY, DONE, NOTHING, Scene, charge

_KNOBS = {
    ConstraintKind.LEASES: LimitSetting.LEASE_CAP,
    ConstraintKind.DISPATCHES: LimitSetting.DISPATCHES,
    ConstraintKind.COST: LimitSetting.COST,
    ConstraintKind.RATE: LimitSetting.QUEUE_RATE,
}
WORKFLOW_ID = "order-1"
"""The workflow id of these tests."""


async def why(scene: Scene, activity_id: str = "charge-1") -> WaitExplanation:
    return (await explanations.activity(scene.ctx, "default", activity_id)).explanation


async def binding(scene: Scene, activity_id: str = "charge-1") -> Constraint:
    found = (await why(scene, activity_id)).binding
    assert found is not None, "nothing binds"
    return found


def kinds(explanation: WaitExplanation) -> list[ConstraintKind]:
    first = [] if explanation.binding is None else [explanation.binding]
    return [each.kind for each in (*first, *explanation.next)]


async def limit(scene: Scene, **values: int | str) -> None:
    """Set limits of the queue."""
    settings = {LimitSetting[name.upper()]: SettingChange(value) for name, value in values.items()}
    await policies.configure(scene.ctx, "default", "orders", ACTIVITY, PolicyUpdate(settings), "ops")


async def limit_scope(scene: Scene, name: str, ends_at_ms: int | None = None, **values: int | str) -> None:
    settings = {
        LimitSetting[setting_name.upper()]: SettingChange(value) for setting_name, value in values.items()
    }
    await admission.configure(scene.ctx, name, ScopeUpdate(settings, ends_at_ms=ends_at_ms), "ops")


async def cap_runs(scene: Scene, most: int) -> None:
    update = ScopeUpdate({LimitSetting.OPEN_RUNS: SettingChange(most)})
    await run_caps.configure(scene.ctx, RunScope("default", RunScopeKind.TYPE, "Order"), update, "ops")


async def limit_key(scene: Scene, key: str, ask: KeySettingsChange) -> None:
    await policies.configure(scene.ctx, "default", "orders", ACTIVITY, PolicyUpdate(keys={key: ask}), "ops")


async def enqueue(scene: Scene, name: str, key: str = "", level: int = 3, cost: int = 0) -> None:
    """A standalone activity of its own."""
    command = replace(charge(), priority=PriorityOverride(cost=cost))
    await scene.start_activity(name, command, priority=TaskPriority(level=level, key=key))


async def follow(scene: Scene, constraint: Constraint, remedy: Remedy) -> None:
    """Apply a remedy."""
    scope = remedy.scope or ""
    match remedy.act:
        case RemedyKind.WAIT:
            await _wait(scene, constraint, remedy)
        case RemedyKind.RESUME | RemedyKind.UNSET:
            await _resume(
                scene,
                scope,
                LimitSetting.PAUSED if remedy.act is RemedyKind.RESUME else LimitSetting.RETRY_RATE,
            )
        case RemedyKind.RAISE:
            assert remedy.to is not None
            await _raise(scene, constraint, scope, remedy.to)
        case RemedyKind.END_LEASES:
            await _end_leases(scene, scope, remedy.count or 1, remedy.worker)
        case RemedyKind.REGISTER:
            await scene.register(
                f"more-{len(scene.tables.workers)}",
                activity_types=(remedy.task_type,),
                build_id=remedy.build_id,
            )
        case RemedyKind.RESUME_BUILD:
            await cohorts.resume(scene.ctx, "default", "orders", remedy.build_id or None)
        case RemedyKind.POLL:
            await _come_back(scene)
        case (
            RemedyKind.TAKE_TURN
            | RemedyKind.REPORT
            | RemedyKind.SIGNAL
            | RemedyKind.END_STEPS
            | RemedyKind.END_RUN
            | RemedyKind.REPAIR
            | RemedyKind.CLOSE_RUNS
            | RemedyKind.RAISE_RUN_CAP
            | RemedyKind.RESUME_RUN
            | RemedyKind.RESUME_ACTIVITY
        ):
            await _of_run(scene, constraint, remedy)
        case RemedyKind.RESTORE | RemedyKind.FIX | RemedyKind.MEND | RemedyKind.RAISE_SETTING:
            assert remedy.is_manual
            raise AssertionError(f"no program does {remedy}")
        case _:
            assert_never(remedy.act)


async def _of_run(scene: Scene, constraint: Constraint, remedy: Remedy) -> None:
    """Apply a remedy that workers or callers can apply."""
    match remedy.act:
        case RemedyKind.TAKE_TURN:
            for _ in range(remedy.count or 0):
                await end(scene, (await scene.take(ACTIVITY)).task)
        case RemedyKind.SIGNAL:
            await signals.send(scene.ctx, Signal(Address("default", WORKFLOW_ID), "go", NOTHING))
        case RemedyKind.END_RUN:
            await run_close.end_run(scene.ctx, "default", WORKFLOW_ID, EndMode.TERMINATE, None)
        case RemedyKind.REPAIR:
            await run_repair.repair(scene.ctx, Address("default", WORKFLOW_ID))
        case RemedyKind.CLOSE_RUNS | RemedyKind.RAISE_RUN_CAP:
            await _make_room(scene, constraint, remedy)
        case RemedyKind.RESUME_RUN | RemedyKind.RESUME_ACTIVITY:
            await _resume_paused(scene, remedy)
        case RemedyKind.END_STEPS:
            for _ in range(remedy.count or 0):
                await scene.finish(await scene.take(ACTIVITY))
        case _:
            await _report(scene, constraint, remedy.count or 1)


async def _resume_paused(scene: Scene, remedy: Remedy) -> None:
    if remedy.act is RemedyKind.RESUME_RUN:
        await run_pause.resume(scene.ctx, Address("default", WORKFLOW_ID), None)
    else:
        await activity_control.resume(scene.ctx, "default", "probe", None)


async def _make_room(scene: Scene, constraint: Constraint, remedy: Remedy) -> None:
    """Let a run that waits to start have its place."""
    if remedy.act is RemedyKind.RAISE_RUN_CAP:
        assert remedy.to is not None
        await cap_runs(scene, remedy.to)
    else:
        for each in constraint.holders[: remedy.count]:
            assert each.workflow_id is not None
            await run_close.end_run(scene.ctx, "default", each.workflow_id, EndMode.TERMINATE, None)
    await waiting_runs(scene.ctx).sweep()


async def _report(scene: Scene, constraint: Constraint, count: int) -> None:
    """Have workers report what the constraint waits for."""
    match constraint.kind:
        case ConstraintKind.PREFETCHED:
            [task] = [each for each in leased(scene) if each.claimed]
            assert task.lease_owner is not None
            assert task.lease_token is not None
            report = Report(task.lease_owner, task.lease_token, "digest")
            await permits.start(scene.ctx, "default", task.task_id, report)
        case ConstraintKind.CHILD:
            for _ in range(count):
                await scene.decide(DONE)
            while await pending_outbox(scene.ctx).sweep():
                pass
        case ConstraintKind.ACTIVITY:
            for _ in range(count):
                await scene.finish(await scene.take(ACTIVITY))
        case _:
            for each in leased(scene)[:count]:
                await end(scene, each)


async def _wait(scene: Scene, constraint: Constraint, remedy: Remedy) -> None:
    assert remedy.at_ms is not None
    await scene.advance(max(0, remedy.at_ms - scene.clock.now_ms()))
    if constraint.kind in (ConstraintKind.PREFETCHED, ConstraintKind.LEASED):
        await expired_leases(scene.ctx).sweep()


async def _resume(scene: Scene, scope: str, setting_name: LimitSetting) -> None:
    if scope.startswith("key:"):
        await limit_key(scene, scope.rpartition("/")[2], KeySettingsChange(paused=False))
    elif scope.startswith("queue:"):
        asked = PolicyUpdate({setting_name: SettingChange(UNSET)})
        await policies.configure(scene.ctx, "default", "orders", ACTIVITY, asked, "ops")
        await scene.advance(0)
    else:
        await admission.configure(
            scene.ctx, scope, ScopeUpdate({LimitSetting.PAUSED: SettingChange(UNSET)}), "ops"
        )


async def _raise(scene: Scene, constraint: Constraint, scope: str, to: int) -> None:
    if scope.startswith("key:"):
        key = scope.rpartition("/")[2]
        running = constraint.kind is ConstraintKind.KEY_RUNNING
        await limit_key(
            scene, key, KeySettingsChange(lease_cap=to) if running else KeySettingsChange(rate_micro=to)
        )
        return
    settings = {_KNOBS[constraint.kind]: SettingChange(to)}
    if scope.startswith("queue:"):
        await policies.configure(scene.ctx, "default", "orders", ACTIVITY, PolicyUpdate(settings), "ops")
    else:
        await admission.configure(scene.ctx, scope, ScopeUpdate(settings), "ops")


async def _end_leases(scene: Scene, scope: str, count: int, worker: str | None) -> None:
    """End a number of the leases that a scope counts; only one queue has any here."""
    key = scope.rpartition("/")[2] if scope.startswith("key:") else None
    held = [each for each in leased(scene) if key in (None, each.key) and worker in (None, each.lease_owner)]
    for each in held[:count]:
        await end(scene, each)


def leased(scene: Scene) -> Sequence[Task]:
    return [each for each in scene.tables.tasks.values() if each.state is TaskState.LEASED]


async def end(scene: Scene, task: Task) -> None:
    """End a lease: by a report, or by reclaiming it if that would be late."""
    if (task.lease_expires_at_ms or 0) <= scene.clock.now_ms():
        await expired_leases(scene.ctx).sweep()
        return
    assert task.lease_owner is not None
    assert task.lease_token is not None
    report = Report(task.lease_owner, task.lease_token, "digest")
    await direct.complete_activity(scene.ctx, "default", task.task_id, report, Blob("Ag=="))


async def _come_back(scene: Scene) -> None:
    for _, worker_id in list(scene.tables.workers):
        await worker_registry.heartbeat(scene.ctx, "default", worker_id, None, None, None)
