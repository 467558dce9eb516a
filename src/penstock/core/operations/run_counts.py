"""Counts for operators: the runs of a namespace, and the deleted rows of a purged run."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from penstock.core.model import RunStatus


class OpenRuns(Struct, frozen=True):
    """The open runs of a namespace, up to the number examined."""

    by_status: Mapping[RunStatus, int]
    events: int = 0
    events_most: int = 0
    """Of one run."""
    blocked: int = 0
    failing: int = 0

    @property
    def count(self) -> int:
        return sum(self.by_status.values())


class ClosedRuns(Struct, frozen=True):
    """The latest closed runs of a namespace, up to the number examined."""

    by_status: Mapping[RunStatus, int]
    archived: int = 0

    @property
    def count(self) -> int:
        return sum(self.by_status.values())


class FailingType(Struct, frozen=True):
    """Open runs of one workflow type with failing workflow tasks."""

    workflow_type: str
    failures_most: int
    runs: int


class PurgedRows(Struct, frozen=True):
    """The number of deleted rows of a purged run."""

    events: int = 0
    tasks: int = 0
    activities: int = 0
    timers: int = 0
    others: int = 0
    full: bool = False
    """Whether there may be more."""

    def __add__(self, later: PurgedRows) -> PurgedRows:
        return PurgedRows(
            self.events + later.events,
            self.tasks + later.tasks,
            self.activities + later.activities,
            self.timers + later.timers,
            self.others + later.others,
            later.full,
        )
