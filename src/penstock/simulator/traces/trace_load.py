"""A recorded load, of which replications can be run, and what its replay says about itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec import Struct

from penstock.simulator.changes import Change, KeyLoadChange
from penstock.simulator.traces.replay import Replay, replay_of
from penstock.simulator.traces.trace_file import Trace
from penstock.simulator.traces.workload_changes import changed_workload
from penstock.simulator.workload import Workload


class TraceLoad(Struct, frozen=True):
    """The load of a trace, with changes."""

    trace: Trace
    replay: Replay
    changes: tuple[Change, ...] = ()

    @staticmethod
    def of(trace: Trace, tasks_max: int) -> TraceLoad:
        """The load as it was recorded. Raises `InvalidInput` if it has no tasks, or more than `tasks_max`."""
        return TraceLoad(trace, replay_of(trace, tasks_max))

    @property
    def is_random(self) -> bool:
        """Only a part of a task has to be drawn."""
        return any(isinstance(each, KeyLoadChange) and each.factor % 1 for each in self.changes)

    @property
    def time_factor(self) -> float:
        return 1.0

    @property
    def facts(self) -> Any:
        return [self.trace.digest, list(map(str, self.changes))]

    def with_changes(self, changes: Sequence[Change]) -> TraceLoad:
        changed_workload(self.replay.workload, changes, 0)
        return TraceLoad(self.trace, self.replay, (*self.changes, *changes))

    def workload(self, seed: int, tasks_max: int) -> Workload:
        return changed_workload(self.replay.workload, self.changes, seed)

    @property
    def warnings(self) -> tuple[str, ...]:
        """What the reader of a result must know of the trace."""
        missing = tuple(f"The trace lacks {each}." for each in self.trace.tail.missing)
        return missing + self.replay.notes
