"""A workload as a TOML file: streams of tasks, workers, limits, and changes of limits on the way.

Durations are written as everywhere in configuration files (`"90s"`, `"1h30m"`, a number of seconds). How long tasks
take is one duration, or a table of quantiles: `{ p50 = "2s", p90 = "5s", p99 = "20s" }`. Between two quantiles every
value is as likely; below the least one they begin at half of it, unless `min` is given, and they end at the greatest.

Limits are written in the words of the HTTP API, so that what is rehearsed can be applied as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from math import log
from pathlib import Path
from typing import Annotated, Any

from msgspec import Meta, field
from msgspec.structs import replace

from penstock.core.model import TaskKind
from penstock.core.priority_levels import LEVEL_DEFAULT, level_of
from penstock.errors import InvalidInput, Reason, ValidationFailed
from penstock.schema.durations import parse_duration
from penstock.schema.problems import InvalidValue
from penstock.schema.toml_file import read_toml_file
from penstock.simulator.quantiles import Quantiles, uniform
from penstock.simulator.workload import (
    AttemptOutcome,
    SimulatedArrival,
    WorkerPool,
    Workload,
)
from penstock.wire.fields import (
    Cost,
    FairnessKey,
    FairnessWeight,
    Name,
    PriorityKey,
    Slots,
    TaskSlots,
)
from penstock.wire.limits.limit_paths import LimitSettings, LimitTarget, check_setting
from penstock.wire.request_parser import parse_strict
from penstock.wire.requests import QueueKind, RequestModel

FILE_BYTES_MAX = 4_000_000
ATTEMPTS_MAX = 20
LEASE_DEFAULT = "60s"
DRAIN_FACTOR = 10
"""A run ends at the latest after so many times the duration of the arrivals."""
DRAIN_LEAST_MS = 24 * 3_600_000
TASK_MS_MAX = 24 * 3_600_000
START_DEFAULT = datetime(2026, 1, 5, 9, 0, tzinfo=UTC)
"""Budgets count calendar minutes, so a run begins at an instant; the same one each time unless the file names it."""
Time = str | int | float
Share = Annotated[float, Meta(ge=0, le=1)]
Level = Annotated[int, Meta(ge=0, le=9)]


class QuantilesModel(RequestModel):
    """How long tasks take, by quantiles; at least one."""

    min: Time | None = None
    p10: Time | None = None
    p25: Time | None = None
    p50: Time | None = None
    p75: Time | None = None
    p90: Time | None = None
    p95: Time | None = None
    p99: Time | None = None
    max: Time | None = None


class ArrivalsModel(RequestModel, kw_only=True):
    """A stream of tasks that are alike."""

    queue: Name
    type: Name = "task"
    key: FairnessKey = ""
    kind: QueueKind = "activity"
    per_minute: Annotated[float, Meta(gt=0, le=10_000_000)] | None = None
    """Tasks per minute, at random moments (a Poisson process) unless `evenly`."""
    count: Annotated[int, Meta(ge=1, le=10_000_000)] | None = None
    """So many tasks at once, at `starts`: a backlog."""
    evenly: bool = False
    starts: Time = 0
    ends: Time | None = None
    """The end of the stream; that of all arrivals if left out."""
    takes: Time | QuantilesModel = 1
    fails: Share = 0.0
    """The share of attempts that fail."""
    attempts: Annotated[int, Meta(ge=1, le=ATTEMPTS_MAX)] = 1
    """How often a task is tried; the last attempt never fails here."""
    backoff: Time = 1
    priority: Level | None = None
    priority_key: PriorityKey | None = None
    weight: FairnessWeight = 1.0
    cost: Cost = 0


class WorkersModel(RequestModel, kw_only=True):
    """Workers that are alike."""

    queue: Name
    count: TaskSlots = 1
    slots: Slots = 100
    kind: QueueKind = "activity"
    types: list[Name] = field(default_factory=list)
    joins: Time = 0
    leaves: Time | None = None
    """When they stop taking tasks; they finish what they have."""
    dies: Time | None = None
    """When they are killed: their tasks run again once their leases are over."""


class ChangeModel(RequestModel, kw_only=True):
    """A change of limits on the way."""

    at: Time
    queues: dict[Name, dict[str, Any]] = field(default_factory=dict)
    groups: dict[Name, dict[str, Any]] = field(default_factory=dict)
    namespace: dict[str, Any] = field(default_factory=dict)
    cluster: dict[str, Any] = field(default_factory=dict)


class ModelFile(RequestModel, kw_only=True):
    """The whole file."""

    duration: Time = "1h"
    """How long tasks arrive. The run goes on until no task waits, within bounds."""
    start: datetime | None = None
    lease: Time = LEASE_DEFAULT
    """The lease of the tasks of a worker that dies."""
    arrivals: Annotated[list[ArrivalsModel], Meta(min_length=1, max_length=10_000)]
    workers: Annotated[list[WorkersModel], Meta(max_length=1_000)] = field(default_factory=list)
    queues: dict[Name, dict[str, Any]] = field(default_factory=dict)
    groups: dict[Name, dict[str, Any]] = field(default_factory=dict)
    namespace: dict[str, Any] = field(default_factory=dict)
    cluster: dict[str, Any] = field(default_factory=dict)
    changes: Annotated[list[ChangeModel], Meta(max_length=1_000)] = field(default_factory=list)


def read_model(path: Path) -> ModelFile:
    """Read and check a model.

    Raises:
        InvalidInput: it cannot be read, or a value breaks its rule; the message names file and field.
    """
    try:
        document = read_toml_file(path, FILE_BYTES_MAX).document
    except InvalidValue as problem:
        raise _invalid(f"{path} {problem.message}") from None
    return model_of(document, str(path))


def model_of(document: dict[str, Any], name: str) -> ModelFile:
    """A model from its tables.

    Args:
        document: the tables.
        name: what the message of a refusal calls it.
    """
    try:
        model = parse_strict(document, ModelFile)
        _check(model)
    except ValidationFailed as refused:
        lines = (f"{field}: {text}" for field, texts in refused.details["errors"].items() for text in texts)
        raise _invalid(f"{name} is not a model. " + "; ".join(lines)) from None
    return model


def generate(model: ModelFile, seed: int, tasks_max: int) -> Workload:
    """The workload of one replication. Streams of one model with the same seed have the same tasks.

    Args:
        model: a checked model.
        seed: what the tasks are drawn with.
        tasks_max: more tasks are refused.
    """
    duration_ms = milliseconds(model.duration)
    arrivals: list[tuple[int, int, int, SimulatedArrival]] = []
    for number, stream in enumerate(model.arrivals):
        arrival = _arrival_maker(stream, seed, number)
        for count, at_ms in enumerate(_moments(stream, seed, number, duration_ms)):
            arrivals.append((at_ms, number, count, arrival(count, at_ms)))
            if len(arrivals) > tasks_max:
                raise _invalid(
                    f"The workload has more than {tasks_max:,} tasks. Shorten it, or allow more with --tasks-max."
                )
    arrivals.sort(key=lambda each: each[:3])
    start = model.start or START_DEFAULT
    last_ms = max((each[0] for each in arrivals), default=0)
    return Workload(
        [each[3] for each in arrivals],
        pools_of(model),
        tuple(limits_of(model)),
        round(start.timestamp() * 1000),
        max(duration_ms, 1),
        max(duration_ms, last_ms) * DRAIN_FACTOR + DRAIN_LEAST_MS,
        lease_ms=milliseconds(model.lease),
    )


def pools_of(model: ModelFile) -> tuple[WorkerPool, ...]:
    """The workers of the file."""
    return tuple(_pool(each) for each in model.workers)


def limits_of(model: ModelFile) -> Iterator[LimitSettings]:
    """All limits of the file, with the time from which they apply."""
    yield from _limits(model, 0)
    for change in model.changes:
        yield from _limits(change, milliseconds(change.at))


def milliseconds(value: Time) -> int:
    """A duration in milliseconds. Raises `InvalidInput` for text that is none."""
    try:
        passed = parse_duration(value)
    except ValueError as error:
        raise _invalid(str(error)) from None
    if passed.total_seconds() < 0:
        raise _invalid(f"{value!r} is negative; durations are not")
    return round(passed.total_seconds() * 1000)


def distribution(takes: Time | QuantilesModel) -> Quantiles:
    """How long tasks of a stream take, in milliseconds."""
    if not isinstance(takes, QuantilesModel):
        return Quantiles.constant(milliseconds(takes))
    given = {name: getattr(takes, name) for name in QuantilesModel.__struct_fields__}
    points = [(_SHARES[name], milliseconds(value)) for name, value in given.items() if value is not None]
    if not points:
        raise _invalid("a table of quantiles needs at least one, such as p50")
    if points[0][0] > 0:
        points.insert(0, (0.0, points[0][1] // 2))
    if points[-1][0] < 1:
        points.append((1.0, points[-1][1]))
    values = tuple(float(value) for _, value in points)
    if list(values) != sorted(values):
        raise _invalid("the quantiles fall; each must be at least the one before it")
    return Quantiles(tuple(share for share, _ in points), values)


_SHARES: Mapping[str, float] = {
    "min": 0.0, "p10": 0.1, "p25": 0.25, "p50": 0.5, "p75": 0.75, "p90": 0.9, "p95": 0.95, "p99": 0.99, "max": 1.0,
}  # fmt: skip


def _check(model: ModelFile) -> None:
    """Check what types alone do not: raises `InvalidInput` with the path of the value."""
    with_path: list[tuple[str, Callable[[], object]]] = [
        ("duration", lambda: milliseconds(model.duration)),
        ("lease", lambda: milliseconds(model.lease)),
    ]
    for number, stream in enumerate(model.arrivals):
        with_path.append((f"arrivals.{number}", lambda stream=stream: _check_stream(stream)))  # type: ignore[misc]
    for number, pool in enumerate(model.workers):
        with_path.append((f"workers.{number}", lambda pool=pool: _pool(pool)))  # type: ignore[misc]
    errors: dict[str, list[str]] = {}
    for path, check in with_path:
        _collect(errors, path, check)
    if not errors:
        _collect(errors, "limits", lambda: _check_limits(model))
    if errors:
        raise ValidationFailed(errors)


def _collect(errors: dict[str, list[str]], path: str, check: Callable[[], object]) -> None:
    try:
        check()
    except InvalidInput as error:
        errors[path] = [error.message]


def _check_limits(model: ModelFile) -> None:
    for limits in limits_of(model):
        for name in limits.settings:
            check_setting(limits.target, name)


def _check_stream(stream: ArrivalsModel) -> None:
    if (stream.per_minute is None) == (stream.count is None):
        raise _invalid("needs either per_minute (a stream) or count (a backlog)")
    if stream.priority is not None and stream.priority_key is not None:
        raise _invalid("has both priority and priority_key, which are one scale: give one of them")
    if stream.kind == "workflow" and (stream.fails or stream.cost):
        raise _invalid("tasks of workflows neither fail nor cost anything here; leave out fails and cost")
    if stream.ends is not None and milliseconds(stream.ends) <= milliseconds(stream.starts):
        raise _invalid("ends before it starts")
    milliseconds(stream.backoff)
    if distribution(stream.takes).values[-1] > TASK_MS_MAX:
        raise _invalid("has tasks that take longer than a day, the longest lease")


def _arrival_maker(stream: ArrivalsModel, seed: int, number: int) -> Callable[[int, int], SimulatedArrival]:
    takes = distribution(stream.takes)
    level = stream.priority if stream.priority is not None else LEVEL_DEFAULT
    template = SimulatedArrival(
        0,
        stream.queue,
        stream.type,
        (),
        TaskKind(stream.kind),
        stream.key,
        level if stream.priority_key is None else level_of(stream.priority_key),
        round(stream.weight * 1000),
        stream.cost,
        (milliseconds(stream.backoff),),
    )

    def attempts(count: int) -> Iterator[AttemptOutcome]:
        for attempt in range(1, stream.attempts + 1):
            duration = takes.at(uniform(seed, number, count, attempt, "duration"))
            may_fail = stream.fails and attempt < stream.attempts
            fails = bool(may_fail) and uniform(seed, number, count, attempt, "outcome") < stream.fails
            yield AttemptOutcome(round(duration), fails)
            if not fails:
                return

    return lambda count, at_ms: replace(template, at_ms=at_ms, attempts=tuple(attempts(count)))


def _moments(stream: ArrivalsModel, seed: int, number: int, duration_ms: int) -> Iterator[int]:
    at_ms = float(milliseconds(stream.starts))
    if stream.count is not None:
        yield from (round(at_ms) for _ in range(stream.count))
        return
    if not stream.per_minute:
        return
    end_ms = min(duration_ms, milliseconds(stream.ends) if stream.ends is not None else duration_ms)
    mean_ms, count = 60_000 / stream.per_minute, 0
    while True:
        share = 1.0 if stream.evenly else -log(1.0 - uniform(seed, number, count, "gap"))
        at_ms += mean_ms * share
        if at_ms >= end_ms:
            return
        yield int(at_ms)
        count += 1


def _pool(workers: WorkersModel) -> WorkerPool:
    if workers.leaves is not None and workers.dies is not None:
        raise _invalid("has both leaves and dies: give one of them")
    return WorkerPool(
        workers.queue,
        workers.count,
        workers.slots,
        tuple(sorted(set(workers.types))),
        TaskKind(workers.kind),
        milliseconds(workers.joins),
        None if workers.leaves is None else milliseconds(workers.leaves),
        None if workers.dies is None else milliseconds(workers.dies),
    )


def _limits(source: ModelFile | ChangeModel, at_ms: int) -> Iterator[LimitSettings]:
    for name, settings in source.queues.items():
        yield LimitSettings(LimitTarget("queue", name), settings, at_ms)
    for name, settings in source.groups.items():
        yield LimitSettings(LimitTarget("group", name), settings, at_ms)
    for scope, settings in (("namespace", source.namespace), ("cluster", source.cluster)):
        if settings:
            yield LimitSettings(LimitTarget(scope), settings, at_ms)


def _invalid(message: str) -> InvalidInput:
    return InvalidInput(Reason.VALIDATION_FAILED, message)
