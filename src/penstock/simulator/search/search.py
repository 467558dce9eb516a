"""The smallest change that meets a target, by galloping search and bisection over simulations.

What flow balance rules out is answered at once (`feasibility`). Every knob that may be turned (a cap, a budget, a
rate, a weight, a number of workers) is taken to help monotonically: more of it never makes the target worse. A knob
alone is doubled until the target is met, then bisected down to the least value that still meets it (galloping
search). If none alone is enough, the knob whose doubling helps most is doubled, or all of them, until the target is
met or nothing helps; then each is bisected down as far as possible.

All trials use one seed, so they differ by the knobs alone; the caller confirms the answer with other seeds. Values are
whole numbers.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from msgspec import Struct

from penstock.simulator.changes import COUNT_MAX, Change
from penstock.simulator.comparison import SimulationResult, wait_text
from penstock.simulator.load_source import LoadSource
from penstock.simulator.measures import Measures
from penstock.simulator.search.feasibility import impossible
from penstock.simulator.search.knobs import Knob
from penstock.simulator.search.targets import SearchTarget
from penstock.simulator.workload import Workload

TRIALS_MAX = 60
FACTOR_MAX = 1024
HELPS_LEAST = 0.02
"""A doubling that improves the figure by less than this share does not help."""

RunTrial = Callable[[Workload, str], Awaitable[Measures]]


class Answer(Struct, frozen=True):
    """What was found. Without changes and with `is_met`, nothing needs to change."""

    is_met: bool
    sentence: str
    before_ms: float
    after_ms: float
    changes: tuple[Change, ...]
    trials: int


class Search:
    """Looks for the smallest change; every trial is one run of the simulator."""

    def __init__(
        self,
        load: LoadSource,
        target: SearchTarget,
        knobs: Sequence[Knob],
        run: RunTrial,
        *,
        seed: int,
        tasks_max: int,
    ) -> None:
        """Prepare the search.

        Args:
            load: the load as it is.
            target: what is to be met.
            knobs: what may change, the preferred one first.
            run: runs one workload.
            seed: of all trials.
            tasks_max: larger workloads are refused.
        """
        first = load.workload(seed, tasks_max)
        self.target, self.name = target.at_start(first.start_ms), target.name_in(first)
        self._load, self._knobs, self._run = load, tuple(knobs), run
        self._seed, self._tasks_max = seed, tasks_max
        self._known: dict[tuple[int, ...], float] = {}

    @property
    def trials(self) -> int:
        return len(self._known)

    async def find(self) -> Answer:
        """Search until the smallest change is known, none is enough, or `TRIALS_MAX` trials were run."""
        start = [knob.before for knob in self._knobs]
        why = self._impossible(start)
        if why is not None:
            text = f"{self.target.text} cannot be met by changing {self._names}: {why}."
            return Answer(False, text, float("inf"), float("inf"), (), 0)
        before = await self._figure(start)
        if before <= self.target.most_ms:
            return self._answer(start, before, before)
        met = await self._alone(start) or await self._together(start, before)
        if met is None:
            best = min(self._known.values())
            return Answer(False, self._not_met(best), before, best, (), self.trials)
        return self._answer(met, before, await self._figure(met))

    def _impossible(self, start: list[int]) -> str | None:
        far_up = [min(COUNT_MAX, value * FACTOR_MAX) for value in start]
        load = self._load.with_changes(self._changes(far_up))
        return impossible(
            self.target, load.workload(self._seed, self._tasks_max), self.name, load.time_factor
        )

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
            if before <= self.target.most_ms:
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
        return await self._figure(values) <= self.target.most_ms

    async def _helps(self, less: Sequence[int], more: Sequence[int]) -> bool:
        before, after = await self._figure(less), await self._figure(more)
        return after < before * (1 - HELPS_LEAST) or before == float("inf") != after

    async def _figure(self, values: Sequence[int]) -> float:
        known = self._known.get(tuple(values))
        if known is None and self.trials >= TRIALS_MAX:
            return float("inf")
        if known is None:
            changes = self._changes(values)
            load = self._load.with_changes(changes) if changes else self._load
            measures = await self._run(load.workload(self._seed, self._tasks_max), f"trial {self.trials + 1}")
            found = self.target.figure(measures, self.name) * load.time_factor
            known = self._known[tuple(values)] = found
        return known

    def _changes(self, values: Sequence[int]) -> tuple[Change, ...]:
        pairs = zip(self._knobs, values, strict=True)
        return tuple(knob.at(value) for knob, value in pairs if value != knob.before)

    def _answer(self, values: Sequence[int], before: float, after: float) -> Answer:
        changes = self._changes(values)
        if not changes:
            text = f"Nothing needs to change: {self.target.text} is met with {wait_text(after)}."
        else:
            needed = " and ".join(
                f"{knob.name} from {knob.before} to {value}"
                for knob, value in zip(self._knobs, values, strict=True)
                if value != knob.before
            )
            text = f"Change {needed}: {_was(before)}{wait_text(after)} meets {self.target.text}."
        return Answer(True, text, before, after, changes, self.trials)

    @property
    def _names(self) -> str:
        return ", ".join(knob.name for knob in self._knobs)

    def _not_met(self, best: float) -> str:
        got = "tasks never get their turn" if best == float("inf") else f"the best is {wait_text(best)}"
        return f"{self.target.text} cannot be met by changing {self._names}: {got}."


class FoundChange(Struct, frozen=True):
    """An answer with its consequences, as it is shown."""

    sentence: str
    is_met: bool
    changes: tuple[str, ...]
    trials: int
    result: SimulationResult | None = None
    """With and without the change; None: nothing changes, or times were shrunk."""


def _was(before: float) -> str:
    return "" if before == float("inf") else f"instead of {wait_text(before)}, "


def _with(values: Sequence[int], index: int, value: int) -> list[int]:
    return [*values[:index], value, *values[index + 1 :]]
