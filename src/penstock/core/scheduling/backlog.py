"""The backlog of a queue by level and fairness key, with requested and actual shares."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from msgspec import Struct

from penstock.core.model import QueueStats
from penstock.core.scheduling.fairness import Lane
from penstock.core.scheduling.gates import Gate
from penstock.core.timestamps import MINUTE_MS


class LevelBacklog(Struct, frozen=True):
    """Totals over the busy lanes of one level."""

    level: int
    count: int
    keys: int
    weight_milli: int
    """The sum of the weights in force."""
    dispatched: int
    """In this calendar minute."""
    dispatched_before: int
    """In the calendar minute before."""
    oldest_ms: int | None = None
    """When its oldest task was enqueued."""


class LaneBacklog(Struct, frozen=True):
    """One busy lane."""

    lane: Lane
    dispatched: int
    dispatched_before: int
    oldest_ms: int | None = None


class KeyPlace(Struct, frozen=True):
    """A place in the list of a queue's keys: the largest backlog first, then by level and key."""

    count: int
    level: int
    key: str


class KeyFilter(Struct, frozen=True):
    """Which keys of a queue are listed."""

    search: str = ""
    """Those that contain this text."""
    key: str = ""
    """Only this one, if it is given."""


ALL_KEYS: Final = KeyFilter()
BEFORE_ALL_KEYS: Final = KeyPlace(2**62, -1, "")


class Backlog(Struct, frozen=True):
    levels: tuple[LevelBacklog, ...] = ()
    lanes: tuple[LaneBacklog, ...] = ()
    """The lanes with the most tasks."""


def last_minute(part: LevelBacklog | LaneBacklog, now_ms: int) -> float:
    """Dispatches in the last sixty seconds: this calendar minute, and a proportional part of the one before."""
    return part.dispatched + part.dispatched_before * (1 - now_ms % MINUTE_MS / MINUTE_MS)


def share_asked(lane: Lane, level: LevelBacklog) -> float:
    return lane.effective_milli / level.weight_milli


def share_got(part: LaneBacklog, level: LevelBacklog, now_ms: int) -> float | None:
    """The lane's share of its level's dispatches in the last minute; None if there were none."""
    total = last_minute(level, now_ms)
    return last_minute(part, now_ms) / total if total else None


def dispatchable(stats: QueueStats, gates: Sequence[Gate]) -> int:
    """The ready tasks that no limit of the queue or its scopes holds back; limits of keys do not count."""
    return 0 if any(gate.is_closed for gate in gates) else stats.ready


def oldest_wait_ms(stats: QueueStats, now_ms: int) -> int:
    """How long the oldest ready task has waited; 0 without one."""
    return 0 if stats.oldest is None else max(0, now_ms - stats.oldest.enqueued_at_ms)
