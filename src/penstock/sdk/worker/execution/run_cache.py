"""Runs that are kept between their workflow tasks, so that each task brings only what is new."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Generic, TypeVar

RunT = TypeVar("RunT")


class RunCache(Generic[RunT]):
    """The runs used last, up to a number. A run that is taken belongs to the taker until it is put back."""

    def __init__(self, runs_max: int, let_go: Callable[[RunT], None]) -> None:
        self._runs_max, self._let_go = runs_max, let_go
        self._runs: OrderedDict[str, RunT] = OrderedDict()

    def __len__(self) -> int:
        return len(self._runs)

    @property
    def keeps(self) -> bool:
        """Whether anything is kept at all."""
        return self._runs_max > 0

    def take(self, run_id: str) -> RunT | None:
        return self._runs.pop(run_id, None)

    def seen(self, run_id: str) -> RunT | None:
        """The run as it stands, for looking only; None while somebody has taken it."""
        return self._runs.get(run_id)

    def put(self, run_id: str, run: RunT) -> None:
        """Keep a run; the one that was not used for longest may have to go."""
        self.drop(run_id)
        self._runs[run_id] = run
        while len(self._runs) > self._runs_max:
            self._let_go(self._runs.popitem(last=False)[1])

    def drop(self, run_id: str) -> None:
        run = self._runs.pop(run_id, None)
        if run is not None:
            self._let_go(run)

    def clear(self) -> None:
        while self._runs:
            self._let_go(self._runs.popitem()[1])
