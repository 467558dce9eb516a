"""A smaller load that takes proportionally less time: how a backlog of 100,000 is simulated in a second.

Fluid scaling: shrink the backlog and the time by one factor (`time`), and keep rates, caps and durations. While the
backlog is long against the slots, waiting times are those of the large system divided by the factor. Thinning: divide
slots, caps, rates and arrivals by a second factor (`size`), and keep the time. While no cap becomes small, the smaller
system behaves like a part of the large one. Budgets of a calendar minute keep their rate; the first minute is coarser.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import ceil
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from penstock.simulator.live.live_model import RUNNING
from penstock.simulator.model_file import ArrivalsModel, ChangeModel, ModelFile, WorkersModel, milliseconds

TASKS_PER_RUN = 400
ROUNDS_LEAST = 8
"""So many times a slot is used at least, where the backlog allows."""
CAP_LEAST = 8
"""No cap is divided to less."""
CAPS = frozenset(
    {
        "max_active_leases",
        "max_active_leases_per_queue",
        "max_running",
        "fairness_key_max_running_default",
    }
)
RATES = frozenset(
    {
        "max_dispatches_per_minute",
        "max_cost_per_minute",
        "queue_rps_limit",
        "fairness_key_rps_limit_default",
        "retry_rps_limit",
        "rps_limit",
    }
)


class FluidScale(Struct, frozen=True):
    """By how much a load is shrunk."""

    time: float = 1.0
    size: int = 1

    @property
    def is_exact(self) -> bool:
        return self.time == 1.0 and self.size == 1


def scale_for(models: Sequence[ModelFile], horizon_ms: float) -> FluidScale:
    """The least shrinking with which a run of each model has about `TASKS_PER_RUN` tasks; one scale for all.

    Args:
        models: the load as it is, and with changes.
        horizon_ms: how long it is simulated, in its own time.
    """
    tasks = max(_tasks(each, horizon_ms) for each in models)
    if tasks <= TASKS_PER_RUN:
        return FluidScale()
    slots = min(max(1, sum(pool.count * pool.slots for pool in each.workers)) for each in models)
    caps = [cap for each in models for cap in _caps(each)]
    waiting = max(1, min(_backlog(each) for each in models))
    time = max(1.0, min(tasks / TASKS_PER_RUN, waiting / (ROUNDS_LEAST * min([slots, *caps]))))
    size = max(1, ceil(tasks / time / TASKS_PER_RUN))
    size = min([size, slots // CAP_LEAST, *(cap // CAP_LEAST for cap in caps)])
    return FluidScale(max(time, tasks / max(1, size) / TASKS_PER_RUN), max(1, size))


def _backlog(model: ModelFile) -> int:
    return sum(each.count or 0 for each in model.arrivals if each.type != RUNNING)


def _tasks(model: ModelFile, horizon_ms: float) -> float:
    return sum((each.count or 0) + (each.per_minute or 0.0) * horizon_ms / 60_000 for each in model.arrivals)


def _caps(model: ModelFile) -> Iterator[int]:
    tables = [*model.queues.values(), *model.groups.values(), model.namespace, model.cluster]
    for change in model.changes:
        tables += [*change.queues.values(), *change.groups.values(), change.namespace, change.cluster]
    for settings in tables:
        for values in (settings, *settings.get("keys", {}).values()):
            for name in CAPS & values.keys():
                if isinstance(values[name], int) and values[name]:
                    yield values[name]


def shrunk(model: ModelFile, scale: FluidScale, horizon_ms: float) -> ModelFile:
    """The model, smaller and faster, with arrivals until the horizon."""
    return replace(
        model,
        duration=_ms(horizon_ms / scale.time),
        arrivals=list(_fewer(model.arrivals, scale)),
        workers=[_smaller(each, scale.size) for each in model.workers],
        queues={name: _divided(each, scale.size) for name, each in model.queues.items()},
        groups={name: _divided(each, scale.size) for name, each in model.groups.items()},
        namespace=_divided(model.namespace, scale.size),
        cluster=_divided(model.cluster, scale.size),
        changes=[_earlier(each, scale) for each in model.changes],
    )


def _fewer(streams: Iterable[ArrivalsModel], scale: FluidScale) -> Iterator[ArrivalsModel]:
    """Counts are rounded so that their sum is right; what runs already is not shortened in time."""
    passed: dict[tuple[str, str, bool], float] = {}
    for stream in streams:
        starts = _ms(max(1.0, milliseconds(stream.starts) / scale.time)) if stream.starts else stream.starts
        if stream.count is None:
            assert stream.per_minute is not None, "a stream has a rate or a count"
            yield replace(stream, starts=starts, per_minute=stream.per_minute / scale.size)
            continue
        runs = stream.type == RUNNING
        name = stream.queue, stream.kind, runs
        before = passed.get(name, 0.0)
        passed[name] = before + stream.count / scale.size / (1 if runs else scale.time)
        count = round(passed[name]) - round(before)
        if count:
            yield replace(stream, starts=starts, count=count)


def _smaller(pool: WorkersModel, size: int) -> WorkersModel:
    total = pool.count * pool.slots
    if size == 1 or not total:
        return pool
    left = max(1, round(total / size))
    count = ceil(left / pool.slots)
    return replace(pool, count=count, slots=max(1, round(left / count)))


def _divided(settings: Mapping[str, Any], size: int) -> dict[str, Any]:
    if size == 1:
        return dict(settings)
    found: dict[str, Any] = {}
    for name, value in settings.items():
        if name == "keys":
            value = {key: _divided(each, size) for key, each in value.items()}
        elif name in CAPS and isinstance(value, int) and value:
            value = max(1, round(value / size))
        elif name in RATES and isinstance(value, int | float) and value:
            value = max(1, round(value / size)) if name.endswith("_per_minute") else value / size
        found[name] = value
    return found


def _earlier(change: ChangeModel, scale: FluidScale) -> ChangeModel:
    return replace(
        change,
        at=_ms(milliseconds(change.at) / scale.time) if change.at else change.at,
        queues={name: _divided(each, scale.size) for name, each in change.queues.items()},
        groups={name: _divided(each, scale.size) for name, each in change.groups.items()},
        namespace=_divided(change.namespace, scale.size),
        cluster=_divided(change.cluster, scale.size),
    )


def _ms(value: float) -> str:
    return f"{max(1, round(value))}ms"
