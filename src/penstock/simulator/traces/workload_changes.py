"""What a rehearsal changes in a recorded workload. The changes are those of models; here they meet single tasks.

A key that sends twice as much sends every task twice: each with what its end causes, and with the same durations. Parts
of a task are drawn by hash, so that the same tasks go with the same seed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from msgspec.structs import replace

from penstock.core.model import TaskKind
from penstock.errors import InvalidInput, Reason
from penstock.simulator.changes import (
    Change,
    KeyLoadChange,
    RehearsedSetting,
    WorkersChange,
    WorkersDeath,
    check_known,
)
from penstock.simulator.model_file import milliseconds
from penstock.simulator.quantiles import uniform
from penstock.simulator.workload import SimulatedArrival, WorkerPool, Workload
from penstock.wire.limits.limit_paths import LimitSettings

_CAPS = frozenset({"max_active_leases", "max_active_leases_per_queue", "max_running"})
"""Names of the lease cap of a queue."""


def changed_workload(workload: Workload, changes: Iterable[Change], seed: int) -> Workload:
    """The workload with all changes. Raises `InvalidInput` for a queue or key that it does not have."""
    for change in changes:
        match change:
            case RehearsedSetting():
                workload = _with_setting(workload, change)
            case WorkersChange():
                workload = replace(workload, pools=tuple(_with_workers(workload, change)))
            case WorkersDeath():
                workload = replace(workload, pools=tuple(_with_death(workload, change)))
            case KeyLoadChange():
                workload = replace(workload, arrivals=_with_load(workload, change, seed))
    return workload


def _with_setting(workload: Workload, change: RehearsedSetting) -> Workload:
    """In force from the beginning; recorded changes of the same setting are dropped, not to undo it."""
    named: dict[str, Any] = {}
    if change.target.scope == "queue":
        kinds = {each.kind for each in workload.arrivals if each.queue == change.target.name}
        check_known(change.target.name, {each.queue for each in workload.arrivals}, "queue")
        named = {"task_queue_type": "activity" if TaskKind.ACTIVITY in kinds else "workflow"}
    value: Any = change.value
    for part in reversed(change.path[1:]):
        value = {part: value}
    kept = [_without(each, change, named) for each in workload.limits]
    first = LimitSettings(change.target, {change.path[0]: value} | named)
    return replace(workload, limits=(*(each for each in kept if each.settings), first))


def _without(limits: LimitSettings, change: RehearsedSetting, named: dict[str, Any]) -> LimitSettings:
    if limits.target != change.target or limits.settings.get("task_queue_type") != named.get(
        "task_queue_type"
    ):
        return limits
    settings: dict[str, Any] = {}
    for name, value in limits.settings.items():
        if len(change.path) == 1 and _is_same(name, change.path[0], change.target.scope):
            continue
        if name == change.path[0] and len(change.path) > 1 and isinstance(value, dict):
            value = {
                key: each for key, each in value.items() if key != change.path[1] or len(change.path) > 2
            }
        settings[name] = value
    return replace(limits, settings=settings)


def _is_same(one: str, other: str, scope: str) -> bool:
    return one == other or (scope == "queue" and {one, other} <= _CAPS)


def _with_workers(workload: Workload, change: WorkersChange) -> Iterator[WorkerPool]:
    """A factor keeps when workers came and went; a number is so many like most of them, all the time."""
    queues = {each.queue for each in workload.pools}
    if change.queue is not None:
        check_known(change.queue, queues, "queue with workers")
    elif change.count is not None and len(queues) != 1:
        message = f"{change}: there are workers of {len(queues)} queues; name one, or write a factor"
        raise InvalidInput(Reason.VALIDATION_FAILED, message)
    concerned = [each for each in workload.pools if change.queue in (None, each.queue)]
    yield from (each for each in workload.pools if each not in concerned)
    for kind in (TaskKind.ACTIVITY, TaskKind.WORKFLOW):
        for queue in sorted(queues):
            pools = [each for each in concerned if (each.queue, each.kind) == (queue, kind)]
            if pools and change.count is not None:
                alike = Counter((each.slots, each.types) for each in pools)
                ((slots, types), _) = max(alike.items(), key=lambda each: (each[1], each[0]))
                yield WorkerPool(queue, change.count, slots, types, kind)
            elif pools:
                yield from _scaled(pools, change.factor or 0.0)


def _scaled(pools: Sequence[WorkerPool], factor: float) -> Iterator[WorkerPool]:
    total = round(sum(each.count for each in pools) * factor)
    for number, pool in enumerate(pools):
        count = total // len(pools) + (number < total % len(pools))
        if count:
            yield replace(pool, count=count)


def _with_death(workload: Workload, change: WorkersDeath) -> Iterator[WorkerPool]:
    check_known(change.queue, {each.queue for each in workload.pools}, "queue with workers")
    at_ms = milliseconds(change.at)
    for pool in workload.pools:
        gone_ms = min(each for each in (pool.leaves_ms, pool.dies_ms, workload.until_ms) if each is not None)
        if pool.queue == change.queue and pool.joins_ms < at_ms < gone_ms:
            yield replace(pool, dies_ms=at_ms, leaves_ms=None)
        elif pool.queue != change.queue or pool.joins_ms < at_ms:
            yield pool


def _with_load(workload: Workload, change: KeyLoadChange, seed: int) -> list[SimulatedArrival]:
    """Each task of the key as often as it comes; a task that another one causes comes with each of its copies."""
    check_known(change.key, {each.key for each in workload.arrivals}, "fairness key")
    found: list[SimulatedArrival] = []
    copies: list[list[int]] = []
    multiplied: list[bool] = []
    for index, arrival in enumerate(workload.arrivals):
        of_cause: Sequence[int | None] = [None] if arrival.after is None else copies[arrival.after]
        is_multiplied = arrival.after is not None and multiplied[arrival.after]
        times = 1
        if arrival.key == change.key and not is_multiplied:
            times, is_multiplied = _times(change.factor, seed, index), True
        own: list[int] = []
        for cause in of_cause:
            for _ in range(times):
                own.append(len(found))
                found.append(replace(arrival, after=cause))
        copies.append(own)
        multiplied.append(is_multiplied)
    return found


def _times(factor: float, seed: int, index: int) -> int:
    whole = int(factor)
    return whole + (uniform(seed, index, "copies") < factor - whole)
