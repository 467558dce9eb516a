"""The smallest change that meets a target: `penstock simulate find`.

Every knob that may be turned (a cap, a budget, a rate, a weight, a number of workers) is taken to help monotonically:
more of it never makes the target worse. A knob alone is doubled until the target is met, then bisected down to the
least value that still meets it (galloping search). If none alone is enough, the knob whose doubling helps most is
doubled, or all of them, until the target is met or nothing helps; then each is bisected down as far as possible.

All trials use one seed, so they differ by the knobs alone; the answer is then confirmed with other seeds. Values are
whole numbers.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from msgspec import Struct

from penstock.errors import InvalidInput, Reason
from penstock.simulator.changes import Change, RehearsedSetting, WorkersChange, changed, parse_setting
from penstock.simulator.comparison import wait_text
from penstock.simulator.measures import Measures, quantile
from penstock.simulator.model_file import ModelFile, generate, milliseconds
from penstock.simulator.workload import Workload
from penstock.wire.limits.limit_paths import WEIGHTS

TRIALS_MAX = 60
FACTOR_MAX = 1024
HELPS_LEAST = 0.02
"""A doubling that improves the figure by less than this share does not help."""
_WAIT = re.compile(
    r"(p50|p90|p95|p99) wait(?: of (?:key )?(?P<key>.+?))? in (?P<queue>.+?) *<= *(?P<most>.+)"
)
_BACKLOG = re.compile(r"backlog of (?P<queue>.+?) gone (?:within|in) (?P<most>.+)")
_QUANTILES = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99}

RunTrial = Callable[[Workload, str], Awaitable[Measures]]


class SearchTarget(Struct, frozen=True):
    """A figure of a queue, and the most that it may be, in milliseconds."""

    text: str
    queue: str
    most_ms: int
    quantile: float | None = None
    """Of waits; None: the time at which the backlog is gone."""
    key: str | None = None

    def figure(self, measures: Measures) -> float:
        """The figure in one run; infinite if tasks never get their turn."""
        for (name, _), queue in measures.queues.items():
            if name != self.queue:
                continue
            if self.quantile is None:
                return float("inf") if queue.cleared_at_ms is None else queue.cleared_at_ms
            if self.key is None:
                left, waits = queue.waiting, queue.waits()
            else:
                of_key = queue.key(self.key)
                left, waits = of_key.waiting, sorted(of_key.waits)
            return float("inf") if left else quantile(waits, self.quantile)
        return 0.0


class Knob(Struct, frozen=True):
    """Something that may be changed, and its value in the model."""

    name: str
    before: int
    setting: RehearsedSetting | None = None
    """The limit or weight, with any value; None: the workers of a queue."""
    queue: str | None = None

    def at(self, value: int) -> Change:
        if self.setting is None:
            return WorkersChange(self.queue, value, None)
        return RehearsedSetting(self.setting.target, self.setting.path, value)


class Answer(Struct, frozen=True):
    """What was found. Without changes and with `is_met`, nothing needs to change."""

    is_met: bool
    sentence: str
    before_ms: float
    after_ms: float
    changes: tuple[Change, ...]
    trials: int


def parse_target(text: str) -> SearchTarget:
    """Read a target. Raises `InvalidInput` with both forms."""
    wait = _WAIT.fullmatch(text.strip())
    if wait:
        most_ms = milliseconds(wait["most"])
        return SearchTarget(text, wait["queue"], most_ms, _QUANTILES[wait[1]], wait["key"])
    backlog = _BACKLOG.fullmatch(text.strip())
    if backlog:
        return SearchTarget(text, backlog["queue"], milliseconds(backlog["most"]))
    raise _invalid(
        f"{text!r} is no target; write 'p95 wait of tenant-a in invoices <= 30s', 'p95 wait in invoices <= 30s' or "
        "'backlog of invoices gone within 2h'"
    )


def parse_knob(model: ModelFile, text: str) -> Knob:
    """Read what may change: `workers`, `workers:QUEUE`, or a limit or weight that the model sets."""
    if text == "workers" or text.startswith("workers:"):
        queue = text.partition(":")[2] or None
        pools = [each for each in model.workers if queue in (None, each.queue)]
        if len(pools) != 1:
            raise _invalid(
                f"{text!r}: there are {len(pools)} pools of workers; write workers:QUEUE for one of them"
            )
        return Knob(text, max(1, pools[0].count), None, pools[0].queue)
    setting = parse_setting(f"{text}=1")
    before = _value(model, setting)
    if before is None and setting.path[0] == WEIGHTS:
        before = 1
    if isinstance(before, bool) or not isinstance(before, int | float):
        raise _invalid(f"{text} has no number in the model, so it limits nothing that could be raised")
    return Knob(text, max(1, round(before)), setting)


def _value(model: ModelFile, change: RehearsedSetting) -> Any:
    target = change.target
    settings: Any = {
        "queue": lambda: model.queues.get(target.name, {}),
        "group": lambda: model.groups.get(target.name, {}),
        "namespace": lambda: model.namespace,
        "cluster": lambda: model.cluster,
    }[target.scope]()
    for part in change.path:
        settings = settings.get(part) if isinstance(settings, dict) else None
    return settings


class Search:
    """Looks for the smallest change; every trial is one run of the simulator."""

    def __init__(
        self,
        model: ModelFile,
        target: SearchTarget,
        knobs: Sequence[Knob],
        run: RunTrial,
        *,
        seed: int,
        tasks_max: int,
    ) -> None:
        """Prepare the search.

        Args:
            model: the workload as it is.
            target: what is to be met.
            knobs: what may change, the preferred one first.
            run: runs one workload.
            seed: of all trials.
            tasks_max: larger workloads are refused.
        """
        if not any(each.queue == target.queue for each in model.arrivals):
            raise _invalid(f"The model has no tasks for the queue {target.queue!r}.")
        self._model, self._target, self._knobs, self._run = model, target, tuple(knobs), run
        self._seed, self._tasks_max = seed, tasks_max
        self._known: dict[tuple[int, ...], float] = {}

    @property
    def trials(self) -> int:
        return len(self._known)

    async def find(self) -> Answer:
        """Search until the smallest change is known, none is enough, or `TRIALS_MAX` trials were run."""
        start = [knob.before for knob in self._knobs]
        before = await self._figure(start)
        if before <= self._target.most_ms:
            return self._answer(start, before, before)
        met = await self._alone(start) or await self._together(start, before)
        if met is None:
            best = min(self._known.values())
            return Answer(False, self._not_met(best), before, best, (), self.trials)
        return self._answer(met, before, await self._figure(met))

    async def _alone(self, start: list[int]) -> list[int] | None:
        for index in range(len(start)):
            low, high = start[index], start[index] * 2
            while high <= start[index] * FACTOR_MAX and self.trials < TRIALS_MAX:
                if await self._is_met(_with(start, index, high)):
                    return await self._lowered(_with(start, index, high), index, low)
                if not await self._helps(_with(start, index, low), _with(start, index, high)):
                    break
                low, high = high, high * 2
        return None

    async def _together(self, start: list[int], before: float) -> list[int] | None:
        values = list(start)
        while self.trials < TRIALS_MAX:
            tries = [_with(values, index, values[index] * 2) for index in range(len(values))]
            tries.append([value * 2 for value in values])  # of two that bind equally, neither helps alone
            figures = [await self._figure(each) for each in tries]
            best = min(range(len(tries)), key=lambda index: figures[index])
            if figures[best] > before * (1 - HELPS_LEAST):
                return None
            values, before = tries[best], figures[best]
            if before <= self._target.most_ms:
                for index in range(len(values)):
                    values = await self._lowered(values, index, start[index] - 1)
                return values
            if any(value > first * FACTOR_MAX for value, first in zip(values, start, strict=True)):
                return None
        return None

    async def _lowered(self, values: list[int], index: int, low: int) -> list[int]:
        """The least value of one knob above `low` with which the target is still met."""
        high = values[index]
        while high - low > 1 and self.trials < TRIALS_MAX:
            middle = (low + high) // 2
            if await self._is_met(_with(values, index, middle)):
                high = middle
            else:
                low = middle
        return _with(values, index, high)

    async def _is_met(self, values: Sequence[int]) -> bool:
        return await self._figure(values) <= self._target.most_ms

    async def _helps(self, less: Sequence[int], more: Sequence[int]) -> bool:
        before, after = await self._figure(less), await self._figure(more)
        return after < before * (1 - HELPS_LEAST) or before == float("inf") != after

    async def _figure(self, values: Sequence[int]) -> float:
        known = self._known.get(tuple(values))
        if known is None:
            workload = generate(changed(self._model, self._changes(values)), self._seed, self._tasks_max)
            measures = await self._run(workload, f"trial {self.trials + 1}")
            known = self._known[tuple(values)] = self._target.figure(measures)
        return known

    def _changes(self, values: Sequence[int]) -> tuple[Change, ...]:
        pairs = zip(self._knobs, values, strict=True)
        return tuple(knob.at(value) for knob, value in pairs if value != knob.before)

    def _answer(self, values: Sequence[int], before: float, after: float) -> Answer:
        changes = self._changes(values)
        if not changes:
            text = f"Nothing needs to change: {self._target.text} is met with {wait_text(after)}."
        else:
            needed = " and ".join(
                f"{knob.name} from {knob.before} to {value}"
                for knob, value in zip(self._knobs, values, strict=True)
                if value != knob.before
            )
            text = f"Change {needed}: {_was(before)}{wait_text(after)} meets {self._target.text}."
        return Answer(True, text, before, after, changes, self.trials)

    def _not_met(self, best: float) -> str:
        names = ", ".join(knob.name for knob in self._knobs)
        got = "tasks never get their turn" if best == float("inf") else f"the best is {wait_text(best)}"
        return f"{self._target.text} cannot be met by changing {names}: {got}."


def _was(before: float) -> str:
    return "" if before == float("inf") else f"instead of {wait_text(before)}, "


def _with(values: Sequence[int], index: int, value: int) -> list[int]:
    return [*values[:index], value, *values[index + 1 :]]


def _invalid(message: str) -> InvalidInput:
    return InvalidInput(Reason.VALIDATION_FAILED, message)
