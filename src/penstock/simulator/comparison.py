"""Replications of a workload with and without a change, and what they say.

Every replication runs both workloads with one seed, so both meet the same tasks. What is reported of a figure is its
median over the replications, with the least and the greatest as its range. Replications are added until the 95 %
interval of the mean of every queue's p95 wait is within `HALF_WIDTH_MAX` of it, or there are as many as allowed.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from statistics import mean, median, stdev
from typing import Any

import msgspec
from msgspec import Struct

from penstock.core.model import TaskKind
from penstock.simulator.changes import Change
from penstock.simulator.load_source import LoadSource
from penstock.simulator.measures import Measures, QueueMeasures, QueueName, quantile
from penstock.simulator.workload import Workload

HALF_WIDTH_MAX = 0.05
REPLICATIONS_LEAST = 3
KEYS_REPORTED_MAX = 50
BACKLOG_LEAST = 20
"""With fewer tasks waiting at most, there is no backlog to speak of."""
_Z95 = 1.96
NOTICEABLE = 0.05
"""A figure that changes by less than this share, in the median, is called the same."""

RunWorkload = Callable[[Workload, str], Awaitable[Measures]]


class Figure(Struct, frozen=True):
    """A figure in all replications: its median and range."""

    median: float
    least: float
    greatest: float

    @staticmethod
    def of(values: Sequence[float]) -> Figure:
        return Figure(median(values), min(values), max(values))


class WaitFigures(Struct, frozen=True):
    """Quantiles of the waits of some tasks, in milliseconds."""

    p50: Figure
    p90: Figure
    p95: Figure
    p99: Figure


class KeyFigures(Struct, frozen=True):
    """The tasks of a fairness key."""

    dispatched: Figure
    waits: WaitFigures
    left_waiting: Figure


class QueueFigures(Struct, frozen=True):
    """The tasks of a queue."""

    queue: str
    kind: str
    arrived: Figure
    dispatched: Figure
    failed_attempts: Figure
    left_waiting: Figure
    peak_waiting: Figure
    waits: WaitFigures
    use_of_slots: Figure
    """Share of the time of all slots in which they ran tasks."""
    cleared_at_ms: Figure | None
    """When nothing waited for the first time after most tasks did; None: not in every replication."""
    waiting_by_cause_s: Mapping[str, Figure]
    """Seconds of waiting of all tasks, by cause."""
    keys: Mapping[str, KeyFigures]


class KeyCalibration(Struct, frozen=True):
    """The p95 wait of a fairness key, recorded and replayed, in milliseconds."""

    key: str
    recorded_p95_ms: int
    replayed_p95_ms: int
    is_met: bool


class QueueCalibration(Struct, frozen=True):
    """The grants of a queue in the window, recorded and replayed."""

    queue: str
    kind: str
    recorded_grants: int
    replayed_grants: int
    is_met: bool
    keys: Sequence[KeyCalibration]


class Calibration(Struct, frozen=True):
    """How well the replay of the unchanged window meets what was recorded."""

    is_met: bool
    doubt: str
    """Why the result is not to be trusted; empty if it is."""
    open_share: float
    """The share of arrivals at recorded moments; the others come after the ends that caused them."""
    queues: Sequence[QueueCalibration]


class SimulationResult(Struct, frozen=True):
    """What a simulation found; the same input gives the same result, bit for bit."""

    summary: str
    input_hash: str
    """Of everything that the result depends on: model, changes, seed, replications, product version."""
    seed: int
    replications: int
    changes: tuple[str, ...]
    warnings: tuple[str, ...]
    base: Sequence[QueueFigures]
    changed: Sequence[QueueFigures]
    """As `base`, with the changes; empty without any."""
    calibration: Calibration | None = None
    """Of a recorded load."""


class SimulationComparison:
    """Runs replications one after the other; `result` may be asked for after each."""

    def __init__(self, load: LoadSource, changes: Sequence[Change], *, seed: int, tasks_max: int) -> None:
        """Prepare the runs.

        Args:
            load: the workload as it is.
            changes: what is changed in it; none: only the workload as it is.
            seed: the first seed; replications count up from it.
            tasks_max: larger workloads are refused.
        """
        self._loads: list[LoadSource] = [load, load.with_changes(changes)] if changes else [load]
        self._changes, self._seed, self._tasks_max = tuple(changes), seed, tasks_max
        self.runs: list[list[Measures]] = [[] for _ in self._loads]

    async def replicate(self, run: RunWorkload, most: int) -> None:
        """Add replications until the figures are known well enough; one is enough of what is not random."""
        if not any(load.is_random for load in self._loads):
            most = 1
        while len(self.runs[0]) < most and not self._is_settled(min(most, REPLICATIONS_LEAST)):
            seed = self._seed + len(self.runs[0])
            for load, runs in zip(self._loads, self.runs, strict=True):
                label = f"replication {len(runs) + 1}" + (", changed" if load is not self._loads[0] else "")
                runs.append(await run(load.workload(seed, self._tasks_max), label))

    def _is_settled(self, least: int) -> bool:
        count = len(self.runs[0])
        if count < least:
            return False
        if count == 1:
            return True
        for runs in self.runs:
            for name in runs[0].queues:
                waits = [quantile(each.queues[name].waits(), 0.95) for each in runs]
                centre = mean(waits)
                if centre and _Z95 * stdev(waits) / count**0.5 > HALF_WIDTH_MAX * centre:
                    return False
        return True

    def result(
        self, version: str, warnings: Sequence[str] = (), calibration: Calibration | None = None
    ) -> SimulationResult:
        """Everything that was found.

        Args:
            version: of the product, which is part of the hash.
            warnings: what is known of the workload without a run.
            calibration: how well the replay of a recorded load meets what was recorded.
        """
        base = _figures(self.runs[0])
        altered = _figures(self.runs[1]) if self._changes else []
        doubt = "" if calibration is None or calibration.is_met else f"{calibration.doubt} "
        return SimulationResult(
            summary=doubt + summary(base, altered),
            input_hash=self._hash(version),
            seed=self._seed,
            replications=len(self.runs[0]),
            changes=tuple(map(str, self._changes)),
            warnings=tuple(warnings),
            base=base,
            changed=altered,
            calibration=calibration,
        )

    def _hash(self, version: str) -> str:
        facts: Any = [version, [load.facts for load in self._loads], self._seed, len(self.runs[0])]
        return hashlib.sha256(msgspec.json.encode(facts, order="deterministic")).hexdigest()


def _figures(runs: Sequence[Measures]) -> list[QueueFigures]:
    names = sorted({name for run in runs for name in run.queues}, key=lambda each: (each[0], each[1].value))
    return [_of_queue(name, [run.queue(name) for run in runs]) for name in names]


def _of_queue(name: QueueName, queues: Sequence[QueueMeasures]) -> QueueFigures:
    def over(figure: Callable[[QueueMeasures], float]) -> Figure:
        return Figure.of([figure(each) for each in queues])

    causes = sorted({cause for each in queues for cause in each.waiting_by_cause})
    cleared = [each.cleared_at_ms for each in queues]
    return QueueFigures(
        queue=name[0],
        kind=name[1].value,
        arrived=over(lambda each: sum(key.arrived for key in each.keys.values())),
        dispatched=over(lambda each: sum(key.dispatched for key in each.keys.values())),
        failed_attempts=over(lambda each: sum(key.failed_attempts for key in each.keys.values())),
        left_waiting=over(lambda each: each.waiting),
        peak_waiting=over(lambda each: each.peak_waiting),
        waits=_waits([each.waits() for each in queues]),
        use_of_slots=over(lambda each: each.running_ms / each.slots_ms if each.slots_ms else 0.0),
        cleared_at_ms=None if None in cleared else Figure.of([each or 0 for each in cleared]),
        waiting_by_cause_s={
            cause.value: over(lambda each, cause=cause: each.waiting_by_cause[cause] / 1000)  # type: ignore[misc]
            for cause in causes
        },
        keys={key: _of_key([each.key(key) for each in queues]) for key in _busiest(queues)},
    )


def _busiest(queues: Sequence[QueueMeasures]) -> list[str]:
    """The keys with the most tasks, by name."""
    counts: Counter[str] = Counter()
    for queue in queues:
        for name, key in queue.keys.items():
            counts[name] += key.arrived
    return sorted(
        name for name, _ in sorted(counts.items(), key=lambda each: (-each[1], each[0]))[:KEYS_REPORTED_MAX]
    )


def _of_key(keys: Sequence[Any]) -> KeyFigures:
    return KeyFigures(
        Figure.of([each.dispatched for each in keys]),
        _waits([sorted(each.waits) for each in keys]),
        Figure.of([each.waiting for each in keys]),
    )


def _waits(waits: Sequence[Sequence[int]]) -> WaitFigures:
    p50, p90, p95, p99 = (
        Figure.of([quantile(each, share) for each in waits]) for share in (0.5, 0.9, 0.95, 0.99)
    )
    return WaitFigures(p50, p90, p95, p99)


# ── In words ────────────────────────────────────────────────────────────────────────────────────────────────────


def summary(base: Sequence[QueueFigures], altered: Sequence[QueueFigures]) -> str:
    """One sentence to begin with: what happens, or what the change does to whom."""
    if not altered:
        return " ".join(_state(each) for each in base) or "No task arrives."
    before = {(each.queue, each.kind): each for each in base}
    parts = [
        _effect(before[each.queue, each.kind], each) for each in altered if (each.queue, each.kind) in before
    ]
    return " ".join(parts) or "No task arrives."


def _state(figures: QueueFigures) -> str:
    text = f"In {_name(figures)} 95 % of the tasks wait at most {_amount(figures.waits.p95)}"
    cause = main_cause(figures)
    text += f", mostly for: {cause}." if cause and figures.waits.p95.median else "."
    return f"{text} {_end(figures)}".rstrip()


def _effect(before: QueueFigures, after: QueueFigures) -> str:
    text = f"In {_name(after)} the p95 wait {_move(before.waits.p95, after.waits.p95)}"
    changes = [
        f"{key or 'tasks without a key'} {_move(before.keys[key].waits.p95, figures.waits.p95)}"
        for key, figures in after.keys.items()
        if key in before.keys and _is_noticeable(before.keys[key].waits.p95, figures.waits.p95)
    ]
    if len(after.keys) > 1 and changes:
        more = f", and {len(changes) - 3} more keys change" if len(changes) > 3 else ""
        text += f" ({'; '.join(changes[:3])}{more})"
    cause = main_cause(after)
    text += f". What is left waits mostly for: {cause}." if cause and after.waits.p95.median else "."
    return f"{text} {_end(after)}".rstrip()


def _end(figures: QueueFigures) -> str:
    if figures.left_waiting.greatest:
        return f"{figures.left_waiting.median:,.0f} tasks never get their turn."
    if figures.cleared_at_ms is None or figures.peak_waiting.median < BACKLOG_LEAST:
        return ""
    return f"The backlog of {figures.peak_waiting.median:,.0f} tasks is gone after {_amount(figures.cleared_at_ms)}."


def main_cause(figures: QueueFigures) -> str | None:
    """What most of the waiting time was spent on; None if nothing waited."""
    by_cause = {cause: figure.median for cause, figure in figures.waiting_by_cause_s.items() if figure.median}
    return max(by_cause, key=lambda cause: by_cause[cause]) if by_cause else None


def _move(before: Figure, after: Figure) -> str:
    if not _is_noticeable(before, after):
        return f"stays at {_amount(after)}"
    verb = "falls" if after.median < before.median else "rises"
    return f"{verb} from {wait_text(before.median)} to {_amount(after)}"


def _is_noticeable(before: Figure, after: Figure) -> bool:
    return abs(after.median - before.median) > NOTICEABLE * max(before.median, after.median)


def _amount(figure: Figure) -> str:
    """The median, with the range where replications differ."""
    least, greatest = wait_text(figure.least), wait_text(figure.greatest)
    text = wait_text(figure.median)
    return text if least == greatest else f"{text} ({least} to {greatest})"


def wait_text(ms: float) -> str:
    """A wait with two units at most: 40 ms, 2.5 s, 4 min 10 s, 3 h 5 min."""
    if ms < 1_000:
        return f"{round(ms)} ms"
    if ms < 60_000:
        return f"{ms / 1000:.3g} s"
    minutes, seconds = divmod(round(ms / 1000), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes} min" if minutes else f"{hours} h"
    return f"{minutes} min {seconds} s" if seconds else f"{minutes} min"


def _name(figures: QueueFigures) -> str:
    return figures.queue if figures.kind == TaskKind.ACTIVITY.value else f"{figures.queue} (workflow tasks)"
