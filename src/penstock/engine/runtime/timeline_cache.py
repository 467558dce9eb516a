"""Timelines of long runs that this server has made, so that all who look at one share its cost.

To make the timeline of a run with 50,000 events takes most of a second, and a page of it asks once a second. So that of
a long run is kept: of a closed run as long as there is room, because its history never changes; of an open run for a
time that grows with its length, so that making it takes a few per cent of a core at most. The answer says as of when it
is. What is lost with the process is made again.
"""

from __future__ import annotations

from collections import OrderedDict
from threading import Lock
from typing import Final, Generic, TypeVar

from msgspec import Struct

T = TypeVar("T")
LONG: Final = 5_000
"""Events from which on a timeline is kept."""
EVENTS_KEPT_MAX: Final = 250_000
"""Events of all runs that are kept: some hundred megabytes at most."""
EVENTS_A_MS: Final = 1.25
"""A timeline of an open run is made again after as many milliseconds as it has events, divided by this."""


class _KeptTimeline(Struct, Generic[T], frozen=True):
    made_at_ms: int
    events: int
    closed_at_ms: int | None
    timeline: T


class TimelineCache(Generic[T]):
    """The timelines that were used last. Reads of SQLite run in threads, hence the lock."""

    def __init__(self) -> None:
        self._kept: OrderedDict[str, _KeptTimeline[T]] = OrderedDict()
        self._lock = Lock()

    def find(self, run_id: str, closed_at_ms: int | None, now_ms: int) -> T | None:
        """The timeline that was kept, unless the run has closed since, or it is open and it is time for a new one.

        Args:
            run_id: The run.
            closed_at_ms: When it closed; None while it is open.
            now_ms: The time of the snapshot.
        """
        with self._lock:
            found = self._kept.get(run_id)
            if found is None or found.closed_at_ms != closed_at_ms:
                return None
            age_ms = now_ms - found.made_at_ms
            if closed_at_ms is None and not 0 <= age_ms < found.events / EVENTS_A_MS:
                return None
            self._kept.move_to_end(run_id)
            return found.timeline

    def latest(self, run_id: str) -> T | None:
        """The timeline that was kept last, however old.

        Args:
            run_id: The run.
        """
        with self._lock:
            found = self._kept.get(run_id)
            return None if found is None else found.timeline

    def keep(self, run_id: str, events: int, closed_at_ms: int | None, now_ms: int, timeline: T) -> None:
        """Keep a timeline if the run is long; those that were not asked for the longest make room.

        Args:
            run_id: The run.
            events: How many events it has.
            closed_at_ms: When it closed; None while it is open.
            now_ms: The time of the snapshot that the timeline was made from.
            timeline: What is kept.
        """
        if events < LONG:
            return
        with self._lock:
            self._kept[run_id] = _KeptTimeline(now_ms, events, closed_at_ms, timeline)
            self._kept.move_to_end(run_id)
            while len(self._kept) > 1 and sum(each.events for each in self._kept.values()) > EVENTS_KEPT_MAX:
                self._kept.popitem(last=False)
