"""The state of a server as a model: what waits, what runs, what arrives, who works, and the limits in force."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import sqrt
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from penstock.core.model import TaskKind
from penstock.core.timestamps import MINUTE_MS
from penstock.errors import InvalidInput, Reason
from penstock.simulator.live.server_bodies import QueueBodies, ServerBodies, limit_tables
from penstock.simulator.measures import QueueName
from penstock.simulator.model_file import (
    ArrivalsModel,
    ModelFile,
    QuantilesModel,
    Time,
    WorkersModel,
    distribution,
)

WINDOW_MS = 600_000
"""How far back samples count."""
BURST_SHARE = 0.5
"""Without samples: a last minute with more arrivals than half of what waits is a burst."""
BURST_FACTOR = 5
BURST_STEPS_MAX = 6
BURST_STEPS_SHARE = 0.3
"""A few steps, each with a multiple of the arrivals of all others, are a burst, which is not expected again."""
OTHER_KEYS_MAX = 50
SPREAD = 2.0
"""Half the width of a 95 % interval, in standard deviations."""
RUNNING = "(running)"
"""The type of tasks that run already."""
RETRIES_WITHIN_S = 30
"""Tasks that wait for their retry come after this time, because only their number is known."""
_SOON = "1ms"


class Flow(Struct, frozen=True):
    """What arrives in a queue and how long it takes, as the last minutes show it."""

    name: QueueName
    waiting: int
    delayed: int
    running: int
    unserved: int
    """Waiting tasks that no worker takes."""
    per_minute: float
    mean_ms: float
    arrivals_within: float
    """Half the width of the 95 % interval of arrivals, as a share."""
    time_within: float
    burst: int = 0
    """Tasks that came in a burst, which is not expected again."""


class LiveModel(Struct, frozen=True):
    """A model of the state of a server, and what the reader of a forecast must know of it."""

    model: ModelFile
    flows: Sequence[Flow]
    now_ms: int
    notes: tuple[str, ...]


class Given(Struct, frozen=True):
    """What the caller knows better than the last minutes; None: as measured."""

    takes_ms: int | None = None
    per_minute: float | None = None


def live_model(bodies: ServerBodies, given: Given = Given()) -> LiveModel:  # noqa: B008 (frozen)
    """The model of a state.

    Raises:
        InvalidInput: how long the tasks of a queue take is not known.
    """
    parts = [
        (flow, queue)
        for queue in bodies.queues
        for kind in TaskKind
        if (flow := _flow(queue, kind, bodies.now_ms, given)) is not None
    ]
    streams = [stream for flow, queue in parts for stream in _streams(flow, queue)]
    flows = [flow for flow, _ in parts]
    model = ModelFile(
        arrivals=streams,
        workers=list(_workers(bodies.workers, {flow.name for flow in flows})),
        **limit_tables(bodies, [flow.name for flow in flows]),
    )
    return LiveModel(model, flows, bodies.now_ms, tuple(_notes(flows)))


# ── Flows ───────────────────────────────────────────────────────────────────────────────────────────────────────


def _flow(queue: QueueBodies, kind: TaskKind, now_ms: int, given: Given) -> Flow | None:
    stats = queue.description["stats"][f"{kind.value}_tasks"]
    running = stats["leased_count"] - stats.get("claimed_count", 0)
    if not (stats["ready_count"] or stats["delayed_count"] or running or stats["added_last_minute"]):
        return None
    seen = _seen(queue.series.get(kind.value, {}), stats, running, now_ms)
    takes_ms = seen.mean_ms if given.takes_ms is None else float(given.takes_ms)
    if takes_ms is None:
        message = (
            f"Nothing was dispatched in {queue.name} in the last minutes, so how long its tasks take is unknown: give "
            "--takes, such as --takes 2s."
        )
        raise InvalidInput(Reason.VALIDATION_FAILED, message)
    unserved = queue.description["admission"][f"{kind.value}_tasks"].get("unserved_ready_count", 0)
    return Flow(
        (queue.name, kind),
        stats["ready_count"],
        stats["delayed_count"],
        running,
        min(unserved, stats["ready_count"]),
        seen.per_minute if given.per_minute is None else given.per_minute,
        max(1.0, takes_ms),
        0.0 if given.per_minute is not None else _within(seen.arrived),
        0.0 if given.takes_ms is not None else _within(seen.dispatched),
        seen.burst if given.per_minute is None else 0,
    )


class _Seen(Struct, frozen=True):
    per_minute: float
    arrived: float
    dispatched: float
    mean_ms: float | None
    burst: int = 0


def _within(count: float) -> float:
    return min(0.5, SPREAD / sqrt(count)) if count else 0.0


def _seen(series: Mapping[str, Any], stats: Mapping[str, Any], running: int, now_ms: int) -> _Seen:
    """What the samples of the last minutes show; a server without any has the counts of the last minute."""
    step_ms = series.get("resolution_seconds", 10) * 1_000
    added, dispatched, runs = (
        {at_ms: value for at_ms, value in _points(series, name) if at_ms > now_ms - WINDOW_MS}
        for name in ("added_per_second", "dispatched_per_second", "running")
    )
    went = sum(dispatched.values()) * step_ms / 1_000
    if not went:
        came, went = float(stats["added_last_minute"]), float(stats["dispatched_last_minute"])
        is_burst = came > BURST_SHARE * (stats["ready_count"] + stats["delayed_count"]) and came > went
        mean_ms = max(running, 1) * MINUTE_MS / went if went else None
        return _Seen(0.0 if is_burst else came, came, went, mean_ms, round(came) if is_burst else 0)
    window_ms = max(step_ms, now_ms - min(added))
    counts = [value * step_ms / 1_000 for value in added.values()]
    burst = _burst(counts) if sum(counts) > went else []
    window_ms = max(step_ms, window_ms - len(burst) * step_ms)
    arrived = sum(counts) - sum(burst)
    mean_ms = sum(runs.values()) * step_ms / went
    return _Seen(arrived * MINUTE_MS / window_ms, arrived, went, mean_ms or None, round(sum(burst)))


def _burst(counts: Sequence[float]) -> list[float]:
    """The steps that stand out from all others, if they are few."""
    steps = [each for each in counts if each > max(counts) / BURST_FACTOR]
    rest = len(counts) - len(steps)
    return steps if rest and len(steps) <= min(BURST_STEPS_MAX, BURST_STEPS_SHARE * len(counts)) else []


def _points(series: Mapping[str, Any], name: str) -> Iterator[tuple[int, float]]:
    for line in series.get("metrics", {}).get(name, ()):
        yield from line["points"]


# ── Streams ─────────────────────────────────────────────────────────────────────────────────────────────────────


def _streams(flow: Flow, queue: QueueBodies) -> Iterator[ArrivalsModel]:
    """Backlogs by level and key; what runs; retries; and arrivals, by key as dispatches and backlog are."""
    name, kind = flow.name
    takes = _takes(flow.mean_ms)
    lanes = list(_lanes(queue.description["stats"][f"{kind.value}_tasks"]))
    # Tasks that no worker takes stay where they are, and are no part of what may drain.
    served = flow.waiting - flow.unserved
    for lane, count in _shared(served, [each.waiting for each in lanes], lanes):
        yield _stream(name, kind, lane, takes, count=count, starts=_SOON)
    parts = [each.dispatched + each.waiting for each in lanes]
    for lane, count in _shared(flow.running, parts, lanes):
        left = QuantilesModel(min="1ms", max=_ms(1.2 * flow.mean_ms))
        yield _stream(name, kind, _Lane(lane.key, 0, lane.weight, 0, 0), left, count=count, type=RUNNING)
    for lane, count in _shared(flow.delayed, parts, lanes):
        yield _stream(name, kind, lane, takes, count=count, starts=f"{RETRIES_WITHIN_S}s")
    total = sum(parts)
    for lane, part in zip(lanes, parts, strict=True):
        rate = flow.per_minute * (part / total if total else 1 / len(lanes))
        if rate > 0:
            yield _stream(name, kind, lane, takes, per_minute=rate, starts=_SOON)


class _Lane(Struct, frozen=True):
    key: str
    level: int
    weight: float
    waiting: int
    dispatched: float


def _lanes(stats: Mapping[str, Any]) -> Iterator[_Lane]:
    """The lanes that are shown one by one, and for the others of each level as many as there are, up to a bound."""
    shown = [
        _Lane(
            each["fairness_key"] or "",
            each["priority"],
            each["weight"],
            each["backlog_count"],
            each["dispatches_last_minute"],
        )
        for each in stats["top_keys"]
    ]
    yield from shown
    for level in stats["backlog_by_priority"]:
        of_level = [each for each in shown if each.level == level["priority"]]
        rest = level["backlog_count"] - sum(each.waiting for each in of_level)
        keys = min(OTHER_KEYS_MAX, level["key_count"] - len(of_level), rest)
        for number in range(keys):
            share = rest // keys + (number < rest % keys)
            yield _Lane(f"(other {number + 1})", level["priority"], 1.0, share, 0.0)
    if not shown and not stats["backlog_by_priority"]:
        yield _Lane("", 5, 1.0, 1, 0.0)


def _shared(total: int, parts: Sequence[float], lanes: Sequence[_Lane]) -> Iterator[tuple[_Lane, int]]:
    """A number of tasks over lanes in proportion, as whole numbers that add up."""
    whole = sum(parts)
    passed, given = 0.0, 0
    for part, lane in zip(parts, lanes, strict=True):
        passed += part / whole if whole else 1 / len(lanes)
        count = round(total * passed) - given
        given += count
        if count:
            yield lane, count


def _stream(queue: str, kind: TaskKind, lane: _Lane, takes: QuantilesModel, **arrival: Any) -> ArrivalsModel:
    return ArrivalsModel(
        queue=queue,
        kind=kind.value,
        key=lane.key,
        priority=lane.level,
        weight=min(1_000.0, max(0.001, lane.weight)),
        takes=takes,
        **arrival,
    )


def _takes(mean_ms: float) -> QuantilesModel:
    """Only the mean is known: every duration from a fifth of it to the double less that fifth is as likely."""
    return QuantilesModel(min=_ms(0.2 * mean_ms), max=_ms(1.8 * mean_ms))


def _ms(value: float) -> Time:
    return f"{max(1, round(value))}ms"


def longer(stream: ArrivalsModel, factor: float) -> ArrivalsModel:
    """The stream with tasks that take so many times as long."""
    found = distribution(stream.takes)
    return replace(
        stream, takes=QuantilesModel(min=_ms(found.values[0] * factor), max=_ms(found.values[-1] * factor))
    )


# ── Workers ──────────────────────────────────────────────────────────────────────────────────────────


def _workers(shown: Iterable[Mapping[str, Any]], queues: set[QueueName]) -> Iterator[WorkersModel]:
    """Active workers by queue, kind and slots. What types wait is not shown, so types do not count."""
    counts: Counter[tuple[str, TaskKind, int]] = Counter()
    for each in shown:
        for kind in TaskKind:
            slots = each.get(f"max_concurrent_{kind.value}_tasks") or 0
            if slots and each["status"] == "active" and (each["task_queue"], kind) in queues:
                counts[each["task_queue"], kind, slots] += 1
    for (queue, kind, slots), count in sorted(counts.items()):
        yield WorkersModel(queue=queue, kind=kind.value, slots=slots, count=count)


def _notes(flows: Iterable[Flow]) -> Iterator[str]:
    for flow in flows:
        if flow.burst:
            yield (
                f"{flow.burst:,} tasks came into {flow.name[0]} in a burst, which is not expected again; "
                "--arrivals says otherwise."
            )
        if flow.delayed:
            yield f"{flow.delayed:,} retries in {flow.name[0]} are taken to be due within a minute."
