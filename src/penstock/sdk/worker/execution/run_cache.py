"""Cache of workflow runs between their tasks, so that a task only needs to carry new events."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Generic, TypeVar

RunT = TypeVar("RunT")


class RunCache(Generic[RunT]):
    """LRU cache of runs. `take` removes a run, so that one task at a time uses it; `put` returns it."""

    def __init__(self, runs_max: int, on_evict: Callable[[RunT], None]) -> None:
        self._runs_max, self._on_evict = runs_max, on_evict
        self._runs: OrderedDict[str, RunT] = OrderedDict()

    def __len__(self) -> int:
        return len(self._runs)

    @property
    def is_enabled(self) -> bool:
        """Whether the cache has any capacity."""
        return self._runs_max > 0

    def take(self, run_id: str) -> RunT | None:
        return self._runs.pop(run_id, None)

    def peek(self, run_id: str) -> RunT | None:
        """Return the run for reading, without removing it. None while a task uses it."""
        return self._runs.get(run_id)

    def put(self, run_id: str, run: RunT) -> None:
        """Return a run to the cache and evict the least recently used one if the cache is full."""
        self.drop(run_id)
        self._runs[run_id] = run
        while len(self._runs) > self._runs_max:
            self._on_evict(self._runs.popitem(last=False)[1])

    def drop(self, run_id: str) -> None:
        run = self._runs.pop(run_id, None)
        if run is not None:
            self._on_evict(run)

    def clear(self) -> None:
        while self._runs:
            self._on_evict(self._runs.popitem()[1])
