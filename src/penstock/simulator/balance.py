"""Flow balance: does a load need more than its workers and limits can give? Answered without a simulation.

A queue keeps up only if, per minute, the tasks that arrive are no more than can be dispatched, and the slots that they
occupy on average (arrivals times mean duration: Little's law) are no more than there are, both of workers and under
each cap. Otherwise what waits grows for as long as tasks arrive, whatever the order of dispatch. The same figures say
which resource binds first, how fast a backlog can go at best, and what binds next when one of them is raised.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct

from penstock.core.model import TaskKind
from penstock.simulator.measures import QueueName
from penstock.simulator.model_file import ArrivalsModel, ModelFile, distribution, limits_of, pools_of
from penstock.simulator.workload import WorkerPool, Workload
from penstock.wire.limits.limit_paths import LimitSettings

MINUTE_MS = 60_000
_CAPS = ("max_active_leases", "max_active_leases_per_queue", "max_running")
_PARTS = {"activity_tasks": TaskKind.ACTIVITY, "workflow_tasks": TaskKind.WORKFLOW}


class Demand(Struct, frozen=True):
    """What the tasks of a queue need. Attempts count, because each needs a slot and a dispatch."""

    name: QueueName
    backlog: float
    """Attempts that wait from the beginning."""
    per_minute: float
    """Attempts that arrive on the way."""
    mean_ms: float
    """How long one takes."""
    mean_cost: float = 0.0


class Resource(Struct, frozen=True):
    """Something that tasks of some queues share, and how much of it there is."""

    subject: str
    what: str
    """Its unit, as the end of "there are 5 …"."""
    there: float
    units: Mapping[QueueName, float]
    """How much of it one attempt per minute needs, by queue."""
    setting: str
    """What raises it: `workers:QUEUE`, or a limit as in `--set`."""

    def needed(self, demands: Iterable[Demand]) -> float:
        """How much arriving tasks need all the time."""
        return sum(each.per_minute * self.units.get(each.name, 0.0) for each in demands)

    def most_per_minute(self, name: QueueName, demands: Iterable[Demand]) -> float:
        """The attempts of a queue that it allows in a minute beside what arrives in the others."""
        others = self.needed(each for each in demands if each.name != name)
        unit = self.units[name]
        return max(0.0, self.there - others) / unit if unit else float("inf")

    def __str__(self) -> str:
        return f"the {self.there:,.4g} {self.what} of {self.subject}"


class Overload(Struct, frozen=True):
    """A resource that is not enough."""

    queue: str
    what: str
    needed: float
    there: float

    def __str__(self) -> str:
        return (
            f"{self.queue} will not keep up: what arrives needs {self.needed:,.4g} {self.what}, and there are "
            f"{self.there:,.4g}."
        )


class FlowBalance(Struct, frozen=True):
    """What a load needs, and what there is of it."""

    demands: Sequence[Demand]
    resources: Sequence[Resource]

    @staticmethod
    def of_model(model: ModelFile) -> FlowBalance:
        """Of the streams and backlogs of a model."""
        limits = [each for each in limits_of(model) if each.at_ms <= 0]
        return _balance(_of_streams(model.arrivals), pools_of(model), limits)

    @staticmethod
    def of_workload(workload: Workload) -> FlowBalance:
        """Of single arrivals: those of its first instant are a backlog, the others arrive at their mean rate."""
        limits = [each for each in workload.limits if each.at_ms <= 0]
        return _balance(_of_arrivals(workload), workload.pools, limits)

    def overloads(self) -> Iterator[Overload]:
        """Resources that arrivals exceed for as long as they last."""
        for each in self.resources:
            needed = each.needed(self.demands)
            if needed > each.there:
                yield Overload(each.subject, each.what, needed, each.there)

    def binding(self, name: QueueName) -> Sequence[tuple[Resource, float]]:
        """The resources of a queue with the attempts per minute that each allows, the tightest first.

        A queue that needs nothing is bound by nothing.
        """
        found = [
            (each, each.most_per_minute(name, self.demands)) for each in self.resources if name in each.units
        ]
        nothing = Resource(name[0], "slots of workers", 0.0, {name: 0.0}, f"workers:{name[0]}")
        return sorted(found, key=lambda each: each[1]) or [(nothing, float("inf"))]

    def demand(self, name: QueueName) -> Demand:
        return next((each for each in self.demands if each.name == name), Demand(name, 0.0, 0.0, 0.0))


def overloads(model: ModelFile) -> Iterator[Overload]:
    """Resources of a model that its streams exceed for as long as they last."""
    return FlowBalance.of_model(model).overloads()


# ── Demands ─────────────────────────────────────────────────────────────────────────────────────────────────────


def _of_streams(streams: Iterable[ArrivalsModel]) -> Iterator[Demand]:
    for stream in streams:
        attempts = sum(stream.fails**attempt for attempt in range(stream.attempts))
        name = (stream.queue, TaskKind(stream.kind))
        mean_ms = distribution(stream.takes).mean
        backlog, per_minute = (stream.count or 0) * attempts, (stream.per_minute or 0.0) * attempts
        yield Demand(name, backlog, per_minute, mean_ms, stream.cost)


def _of_arrivals(workload: Workload) -> Iterator[Demand]:
    minutes = workload.duration_ms / MINUTE_MS
    for each in workload.arrivals:
        attempts = len(each.attempts)
        mean_ms = sum(attempt.duration_ms for attempt in each.attempts) / attempts
        name, is_backlog = (each.queue, each.kind), each.at_ms <= 0 and each.after is None
        yield Demand(
            name, attempts * is_backlog, 0.0 if is_backlog else attempts / minutes, mean_ms, each.cost
        )


def _merged(demands: Iterable[Demand]) -> Iterator[Demand]:
    """One demand for each queue; means are those of all its attempts."""
    found: defaultdict[QueueName, list[float]] = defaultdict(lambda: [0.0] * 6)
    for each in demands:
        sums = found[each.name]
        flows = each.per_minute or each.backlog
        for place, amount in enumerate(
            (each.backlog, each.per_minute, flows, flows * each.mean_ms, flows * each.mean_cost)
        ):
            sums[place] += amount
    for name, (backlog, per_minute, flows, time, cost, _) in found.items():
        if flows:
            yield Demand(name, backlog, per_minute, time / flows, cost / flows)


# ── Resources ───────────────────────────────────────────────────────────────────────────────────────────────────


def _balance(
    demands: Iterable[Demand], pools: Iterable[WorkerPool], limits: Sequence[LimitSettings]
) -> FlowBalance:
    found = sorted(_merged(demands), key=lambda each: (each.name[0], each.name[1].value))
    by_name = {each.name: each for each in found}
    slots: defaultdict[QueueName, int] = defaultdict(int)
    for pool in pools:
        slots[pool.queue, pool.kind] += pool.count * pool.slots if pool.joins_ms <= 0 else 0
    resources = [_workers(each, slots[each.name]) for each in found]
    settings = _settings(limits)
    groups: defaultdict[str, list[Demand]] = defaultdict(list)
    for (scope, name, kind), values in settings.items():
        if scope == "queue" and kind is not None and (name, kind) in by_name:
            of = by_name[name, kind]
            resources += _limits(f"queue:{name}", name, values, [of])
            if values.get("dispatch_budget_group"):
                groups[values["dispatch_budget_group"]].append(of)
    for (scope, name, kind), values in settings.items():
        if scope == "queue":
            continue
        shared = groups[name] if scope == "group" else found
        shared = [each for each in shared if kind is None or each.name[1] is kind]
        path = f"group:{name}" if scope == "group" else scope
        subject = f"the group {name}" if scope == "group" else f"the {scope}"
        resources += _limits(path, subject, values, shared)
    return FlowBalance(found, resources)


def _settings(limits: Iterable[LimitSettings]) -> dict[tuple[str, str, TaskKind | None], dict[str, Any]]:
    found: dict[tuple[str, str, TaskKind | None], dict[str, Any]] = {}
    for each in limits:
        kind = _PARTS.get(str(each.settings.get("kind")))
        if each.target.scope == "queue":
            kind = TaskKind(each.settings.get("task_queue_type", "activity"))
        found.setdefault((each.target.scope, each.target.name, kind), {}).update(each.settings)
    return found


def _workers(demand: Demand, slots: int) -> Resource:
    queue = demand.name[0]
    return Resource(queue, "slots of workers", slots, _occupied([demand]), f"workers:{queue}")


def _occupied(demands: Iterable[Demand]) -> dict[QueueName, float]:
    """The slots that one attempt per minute occupies."""
    return {each.name: each.mean_ms / MINUTE_MS for each in demands}


def _limits(
    path: str, subject: str, values: Mapping[str, Any], demands: Sequence[Demand]
) -> Iterator[Resource]:
    each_one = {each.name: 1.0 for each in demands}
    if values.get("paused") is True:
        yield Resource(subject, "dispatches while it is paused", 0, each_one, f"{path}.paused")
    for name in _CAPS:
        cap = _number(values.get(name))
        if cap is not None:
            yield Resource(subject, f"places under {name}", cap, _occupied(demands), f"{path}.{name}")
    most = _number(values.get("max_dispatches_per_minute"))
    if most is not None:
        yield Resource(subject, "dispatches per minute", most, each_one, f"{path}.max_dispatches_per_minute")
    rate = _number(values.get("queue_rps_limit"))
    if rate is not None:
        per_second = dict.fromkeys(each_one, 1 / 60)
        yield Resource(subject, "dispatches per second", rate, per_second, f"{path}.queue_rps_limit")
    budget = _number(values.get("max_cost_per_minute"))
    if budget is not None:
        costs = {each.name: each.mean_cost for each in demands}
        yield Resource(subject, "cost per minute", budget, costs, f"{path}.max_cost_per_minute")


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None
