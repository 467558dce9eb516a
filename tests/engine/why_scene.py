"""What tests about waits are made of: limits, asking why, and doing what the answer says."""

from __future__ import annotations

from collections.abc import Sequence
from typing import assert_never

from msgspec.structs import replace

from penstock.core.explaining.values import Act, Constraint, Explanation, Kind, Remedy
from penstock.core.model import Blob, Standing, Task, TaskState, Wish
from penstock.core.policies import Knob
from penstock.core.scheduling.leases import Report
from penstock.engine import (
    activity_reports,
    admission,
    closing,
    cohorts,
    explaining,
    permits,
    policies,
    repairing,
    signals,
    workers,
)
from penstock.engine.addressing import Address
from penstock.engine.admission import ScopeAsk
from penstock.engine.closing import End
from penstock.engine.policies import UNSET, Ask, KeyAsk, PolicyAsk
from penstock.engine.signals import Signal
from penstock.engine.sweepers.expired_leases import expired_leases
from penstock.engine.sweepers.waiting_letters import waiting_letters
from tests.engine.scene import ACTIVITY, DONE, NOTHING, Scene, charge

_KNOBS = {
    Kind.LEASES: Knob.RUNNING,
    Kind.DISPATCHES: Knob.DISPATCHES,
    Kind.COST: Knob.COST,
    Kind.RATE: Knob.QUEUE_RATE,
}
WORKFLOW_ID = "order-1"
"""The run that these scenes are about."""


async def why(scene: Scene, activity_id: str = "charge-1") -> Explanation:
    return (await explaining.activity(scene.house, "default", activity_id)).explanation


async def binding(scene: Scene, activity_id: str = "charge-1") -> Constraint:
    found = (await why(scene, activity_id)).binding
    assert found is not None, "nothing binds"
    return found


def kinds(explanation: Explanation) -> list[Kind]:
    first = [] if explanation.binding is None else [explanation.binding]
    return [each.kind for each in (*first, *explanation.next)]


async def limit(scene: Scene, **values: int | str) -> None:
    """Set limits of the line."""
    settings = {Knob[name.upper()]: Ask(value) for name, value in values.items()}
    await policies.configure(scene.house, "default", "orders", ACTIVITY, PolicyAsk(settings), "ops")


async def limit_scope(scene: Scene, name: str, ends_at_ms: int | None = None, **values: int | str) -> None:
    settings = {Knob[knob.upper()]: Ask(value) for knob, value in values.items()}
    await admission.configure(scene.house, name, ScopeAsk(settings, ends_at_ms=ends_at_ms), "ops")


async def limit_key(scene: Scene, key: str, ask: KeyAsk) -> None:
    await policies.configure(scene.house, "default", "orders", ACTIVITY, PolicyAsk(keys={key: ask}), "ops")


async def enqueue(scene: Scene, name: str, key: str = "", level: int = 3, cost: int = 0) -> None:
    """A standalone activity of its own."""
    command = replace(charge(), wish=Wish(cost=cost))
    await scene.start_activity(name, command, standing=Standing(level=level, key=key))


async def follow(scene: Scene, constraint: Constraint, remedy: Remedy) -> None:
    """Do what would free a task."""
    scope = remedy.scope or ""
    match remedy.act:
        case Act.WAIT:
            await _wait(scene, constraint, remedy)
        case Act.RESUME | Act.UNSET:
            await _resume(scene, scope, Knob.PAUSED if remedy.act is Act.RESUME else Knob.RETRY_RATE)
        case Act.RAISE:
            assert remedy.to is not None
            await _raise(scene, constraint, scope, remedy.to)
        case Act.END_LEASES:
            await _end_leases(scene, scope, remedy.count or 1, remedy.worker)
        case Act.REGISTER:
            await scene.register(
                f"more-{len(scene.tables.workers)}",
                activity_types=(remedy.task_type,),
                build_id=remedy.build_id,
            )
        case Act.RESUME_BUILD:
            await cohorts.resume(scene.house, "default", "orders", remedy.build_id or None)
        case Act.POLL:
            await _come_back(scene)
        case Act.TAKE_TURN | Act.REPORT | Act.SIGNAL | Act.END_STEPS | Act.END_RUN | Act.REPAIR:
            await _of_run(scene, constraint, remedy)
        case Act.RESTORE | Act.FIX | Act.MEND | Act.RAISE_SETTING:
            assert remedy.is_manual
            raise AssertionError(f"no program does {remedy}")
        case _:
            assert_never(remedy.act)


async def _of_run(scene: Scene, constraint: Constraint, remedy: Remedy) -> None:
    """Do what workers, or callers of a workflow, can do."""
    match remedy.act:
        case Act.TAKE_TURN:
            for _ in range(remedy.count or 0):
                await end(scene, (await scene.take(ACTIVITY)).task)
        case Act.SIGNAL:
            await signals.send(scene.house, Signal(Address("default", WORKFLOW_ID), "go", NOTHING))
        case Act.END_RUN:
            await closing.end_run(scene.house, "default", WORKFLOW_ID, End.TERMINATE, None)
        case Act.REPAIR:
            await repairing.repair(scene.house, Address("default", WORKFLOW_ID))
        case Act.END_STEPS:
            for _ in range(remedy.count or 0):
                await scene.finish(await scene.take(ACTIVITY))
        case _:
            await _report(scene, constraint, remedy.count or 1)


async def _report(scene: Scene, constraint: Constraint, count: int) -> None:
    """Have workers report what the constraint waits for."""
    match constraint.kind:
        case Kind.PREFETCHED:
            [task] = [each for each in leased(scene) if each.claimed]
            assert task.lease_owner is not None
            assert task.lease_token is not None
            report = Report(task.lease_owner, task.lease_token, "digest")
            await permits.start(scene.house, "default", task.task_id, report)
        case Kind.CHILD:
            for _ in range(count):
                await scene.decide(DONE)
            while await waiting_letters(scene.house).sweep():
                pass
        case Kind.ACTIVITY:
            for _ in range(count):
                await scene.finish(await scene.take(ACTIVITY))
        case _:
            for each in leased(scene)[:count]:
                await end(scene, each)


async def _wait(scene: Scene, constraint: Constraint, remedy: Remedy) -> None:
    assert remedy.at_ms is not None
    await scene.later(max(0, remedy.at_ms - scene.clock.now_ms()))
    if constraint.kind in (Kind.PREFETCHED, Kind.LEASED):
        await expired_leases(scene.house).sweep()


async def _resume(scene: Scene, scope: str, knob: Knob) -> None:
    if scope.startswith("key:"):
        await limit_key(scene, scope.rpartition("/")[2], KeyAsk(paused=False))
    elif scope.startswith("queue:"):
        asked = PolicyAsk({knob: Ask(UNSET)})
        await policies.configure(scene.house, "default", "orders", ACTIVITY, asked, "ops")
        await scene.later(0)
    else:
        await admission.configure(scene.house, scope, ScopeAsk({Knob.PAUSED: Ask(UNSET)}), "ops")


async def _raise(scene: Scene, constraint: Constraint, scope: str, to: int) -> None:
    if scope.startswith("key:"):
        key = scope.rpartition("/")[2]
        running = constraint.kind is Kind.KEY_RUNNING
        await limit_key(scene, key, KeyAsk(running_limit=to) if running else KeyAsk(rate_micro=to))
        return
    settings = {_KNOBS[constraint.kind]: Ask(to)}
    if scope.startswith("queue:"):
        await policies.configure(scene.house, "default", "orders", ACTIVITY, PolicyAsk(settings), "ops")
    else:
        await admission.configure(scene.house, scope, ScopeAsk(settings), "ops")


async def _end_leases(scene: Scene, scope: str, count: int, worker: str | None) -> None:
    """End so many of the leases that a scope counts; in these scenes only one line has any."""
    key = scope.rpartition("/")[2] if scope.startswith("key:") else None
    held = [each for each in leased(scene) if key in (None, each.key) and worker in (None, each.lease_owner)]
    for each in held[:count]:
        await end(scene, each)


def leased(scene: Scene) -> Sequence[Task]:
    return [each for each in scene.tables.tasks.values() if each.state is TaskState.LEASED]


async def end(scene: Scene, task: Task) -> None:
    """Let a lease end: by its report, or, when that would come too late, by being taken back."""
    if (task.lease_expires_at_ms or 0) <= scene.clock.now_ms():
        await expired_leases(scene.house).sweep()
        return
    assert task.lease_owner is not None
    assert task.lease_token is not None
    report = Report(task.lease_owner, task.lease_token, "digest")
    await activity_reports.complete(scene.house, "default", task.task_id, report, Blob("Ag=="))


async def _come_back(scene: Scene) -> None:
    for _, worker_id in list(scene.tables.workers):
        await workers.heartbeat(scene.house, "default", worker_id, None, None, None)
