"""Decision points: the events at which a run decided, so that another run may decide anew."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Final

from penstock.core.model import RecordedEvent, RunId

NAMED_MAX: Final = 6
Copies = tuple[tuple[int, RunId], ...]
"""The parts of a history that other runs recorded, in order: the last event of each part, and the run."""


def decision_points(history: Sequence[RecordedEvent]) -> list[int]:
    """The first event of each completed workflow task that recorded anything.

    The code had seen every event before it, and decided what follows from it. A task names itself in its events, so a
    point is where an event names another task than the event before it.

    Args:
        history: events from the first one on.
    """
    return [
        event.sequence
        for before, event in pairwise(history)
        if event.task_id is not None and event.task_id != before.task_id
    ]


def nearest(points: Sequence[int], event: int) -> list[int]:
    """The decision points closest to an event, in order: what to name where it is none."""
    return sorted(sorted(points, key=lambda point: abs(point - event))[:NAMED_MAX])


def copied(copies: Copies, source: RunId, through: int) -> Copies:
    """Who recorded the events of a copy that ends with the event `through` of a run, itself perhaps a copy."""
    kept = tuple(each for each in copies if each[0] < through)
    return (*kept, (through, recorded_by(copies, source, through)))


def recorded_by(copies: Copies, run_id: RunId, event: int) -> RunId:
    """The run that recorded an event of a history."""
    return next((owner for last, owner in copies if event <= last), run_id)
