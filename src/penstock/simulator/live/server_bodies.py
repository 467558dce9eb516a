"""What the API of a server shows of queues and workers, and the limits in it as tables of a model."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from msgspec import Struct

from penstock.core.model import TaskKind
from penstock.simulator.measures import QueueName
from penstock.simulator.model_file import ChangeModel, Time
from penstock.simulator.traces.recorded_limits import RecordedLimits, target_of
from penstock.wire.limits.limit_paths import LimitTarget

_OF_SCOPES = (
    "max_active_leases",
    "max_dispatches_per_minute",
    "max_cost_per_minute",
    "dispatch_window",
    "paused",
)


class QueueBodies(Struct, frozen=True):
    """What the API shows of one queue."""

    name: str
    description: Mapping[str, Any]
    config: Mapping[str, Mapping[str, Any]]
    """By kind of tasks, as the following ones."""
    limits: Mapping[str, Mapping[str, Any]]
    series: Mapping[str, Mapping[str, Any]]


class ServerBodies(Struct, frozen=True):
    """What the API shows of the queues in question, and of all workers."""

    now_ms: int
    queues: Sequence[QueueBodies]
    workers: Sequence[Mapping[str, Any]]


def limit_tables(bodies: ServerBodies, names: Collection[QueueName]) -> dict[str, Any]:
    """The tables of limits of a model. Limits of workflow tasks are changes at its beginning, cool-downs are pauses.

    Args:
        bodies: what the API shows.
        names: the queues of the model.
    """
    own: dict[str, dict[str, Any]] = {}
    scopes: dict[str, Mapping[str, Any]] = {}
    changes: list[ChangeModel] = []
    for queue, kind in _present(bodies, names):
        settings = _of_queue(queue, kind)
        if kind is TaskKind.ACTIVITY:
            own[queue.name] = settings
        elif settings:
            changes.append(
                ChangeModel(at=0, queues={queue.name: {**settings, "task_queue_type": kind.value}})
            )
        scopes.update({each["scope"]: each for each in queue.limits[kind.value].get("scopes", ())})
    for name, shown in scopes.items():
        changes += _of_scope(name, shown, bodies.now_ms)
    return {"queues": own, "changes": changes}


def _present(bodies: ServerBodies, names: Collection[QueueName]) -> Iterator[tuple[QueueBodies, TaskKind]]:
    for queue in bodies.queues:
        for kind in TaskKind:
            if (queue.name, kind) in names:
                yield queue, kind


def _of_queue(queue: QueueBodies, kind: TaskKind) -> dict[str, Any]:
    settings: dict[str, Any] = {}
    config = queue.config[kind.value]
    for each in RecordedLimits(0).settings("", {(queue.name, kind.value): config}):
        settings |= {name: value for name, value in each.settings.items() if name != "task_queue_type"}
    for name, limit in queue.limits[kind.value].get("limits", {}).items():
        if _is_set(limit["value"]) and (name, limit["value"]) != ("dispatch_window", "minute"):
            settings[name] = limit["value"]
    return settings


def _of_scope(name: str, shown: Mapping[str, Any], now_ms: int) -> Iterator[ChangeModel]:
    found = target_of(name)
    if found is None:
        return
    target, named = found
    settings = {each: shown[each] for each in _OF_SCOPES if _is_set(shown.get(each))}
    if settings and settings != {"dispatch_window": "minute"}:
        yield _change_of(0, target, {**settings, **named})
    cooling = shown.get("cooling") or {}
    if cooling.get("is_closed") and not settings.get("paused"):
        ends = f"{max(1, instant(cooling['until']) - now_ms)}ms"
        yield _change_of(0, target, {"paused": True, **named})
        yield _change_of(ends, target, {"paused": False, **named})


def _is_set(value: object) -> bool:
    """Whether a setting limits anything; 0 does."""
    return value is not None and value is not False


def _change_of(at: Time, target: LimitTarget, settings: dict[str, Any]) -> ChangeModel:
    match target.scope:
        case "group":
            return ChangeModel(at=at, groups={target.name: settings})
        case "namespace":
            return ChangeModel(at=at, namespace=settings)
        case _:
            return ChangeModel(at=at, cluster=settings)


def instant(text: str) -> int:
    """A time of the API in milliseconds since 1970."""
    return round(datetime.fromisoformat(text).timestamp() * 1000)
