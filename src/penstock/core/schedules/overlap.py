"""What a fire does while runs that the schedule started are still open: the six overlap policies.

The decision looks at all open runs of the schedule, not only at the latest. A buffered fire keeps its nominal moment
and starts when the last open run has closed; buffers are bounded, so that a run that never ends costs a bounded number
of rows and the rest is recorded as skipped.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from msgspec import Struct

BUFFER_MAX: Final = 1_000


class Overlap(StrEnum):
    """What a fire does while an earlier run is open."""

    SKIP = "skip"
    BUFFER_ONE = "buffer_one"
    BUFFER_ALL = "buffer_all"
    CANCEL_OTHER = "cancel_other"
    TERMINATE_OTHER = "terminate_other"
    ALLOW_ALL = "allow_all"


class SkipReason(StrEnum):
    """Why a fire started nothing; recorded in the schedule's history."""

    OVERLAP = "overlap"
    BUFFER_FULL = "buffer_full"
    MISSED_CATCHUP_WINDOW = "missed_catchup_window"
    START_BY_PASSED = "start_by_passed"
    START_REFUSED = "start_refused"
    UNIQUE_KEY_HELD = "unique_key_held"
    """The start returned the run that holds its unique key."""
    SCHEDULE_DELETED = "schedule_deleted"


OVERLAPPING: Final = frozenset({SkipReason.OVERLAP, SkipReason.BUFFER_FULL})


class StartNow(Struct, frozen=True):
    """Start the action now; with `terminate`, after terminating the open runs."""

    terminate: bool = False


class Buffer(Struct, frozen=True):
    """Keep the fire until no run is open."""

    cancel: bool = False
    """Whether cancellation of the open runs is requested, to make room sooner."""


class Skip(Struct, frozen=True):
    """Record that nothing was started."""

    reason: SkipReason


FireDecision = StartNow | Buffer | Skip


def decide_fire(policy: Overlap, *, open_runs: int, buffered: int) -> FireDecision:
    """What a fire that is due does, given the open runs and the fires that wait already."""
    if policy is Overlap.ALLOW_ALL or not (open_runs or buffered):
        return StartNow()
    match policy:
        case Overlap.SKIP:
            return Skip(SkipReason.OVERLAP)
        case Overlap.TERMINATE_OTHER:
            return StartNow(terminate=True)
        case Overlap.BUFFER_ONE:
            return Buffer() if buffered < 1 else Skip(SkipReason.BUFFER_FULL)
        case Overlap.CANCEL_OTHER:
            return Buffer(cancel=True) if buffered < 1 else Skip(SkipReason.BUFFER_FULL)
        case _:
            return Buffer() if buffered < BUFFER_MAX else Skip(SkipReason.BUFFER_FULL)
