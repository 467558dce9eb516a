"""Schedules, their fires and their events."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from msgspec import Struct

from penstock.core.schedules.record import FireKey, FireRecord, FireState, ScheduleEvent, ScheduleRecord
from penstock.ports.tables.visibility import PageStart


class ScheduleFilter(Struct, frozen=True):
    """A filter for lists of schedules; fields that are None match everything."""

    namespace: str
    status: str | None = None
    action_type: str | None = None


class Schedules(Protocol):
    async def create(self, record: ScheduleRecord) -> bool:
        """Insert a schedule; False if its id belongs to another one that is not deleted."""
        ...

    async def lock(self, schedule_key: str) -> ScheduleRecord | None: ...
    async def by_id(self, namespace: str, schedule_id: str) -> ScheduleRecord | None:
        """The schedule with an id, unless it is deleted."""
        ...

    async def newest_of_id(self, namespace: str, schedule_id: str) -> ScheduleRecord | None:
        """The schedule that was created last with an id, deleted or not."""
        ...

    async def page(
        self, narrow: ScheduleFilter, before: PageStart | None, limit: int
    ) -> Sequence[ScheduleRecord]:
        """Schedules that are not deleted, the newest first."""
        ...

    async def due(self, now_ms: int, zone_version: str, limit: int) -> Sequence[str]:
        """Keys of schedules that have something to do, without those computed from newer zone data."""
        ...

    async def newer_zone_data(self, zone_version: str) -> str | None:
        """The newest zone data from which an active schedule was computed, if they are newer than this version."""
        ...

    async def of_older_zone_data(self, zone_version: str, limit: int) -> Sequence[str]:
        """Keys of active schedules that were computed from older zone data."""
        ...

    async def count_due(self, namespace: str, first_ms: int, last_ms: int) -> int:
        """How many schedules of a namespace are due in a period."""
        ...

    def save(self, record: ScheduleRecord) -> None: ...

    async def fire(self, key: FireKey) -> FireRecord | None: ...
    async def fires(self, schedule_key: str, state: FireState, limit: int) -> Sequence[FireRecord]:
        """Buffered or started fires in the order of their moments."""
        ...

    async def count_backfilled(self, schedule_key: str, first_ms: int, last_ms: int) -> int:
        """How many moments of a period were backfilled, without those that were skipped."""
        ...

    async def latest_fires(self, schedule_key: str, limit: int) -> Sequence[FireRecord]: ...
    def insert_fire(self, fire: FireRecord) -> None: ...
    def save_fire(self, fire: FireRecord) -> None: ...

    async def events(self, schedule_key: str, after: int, limit: int) -> Sequence[ScheduleEvent]: ...
    async def latest_updates(self, schedule_key: str, limit: int) -> Sequence[ScheduleEvent]:
        """The latest events of updates, newest first."""
        ...

    def append_event(self, event: ScheduleEvent) -> None: ...

    async def any_before(self, at_ms: int) -> bool:
        """Whether there are events, or fires that are over, from before a time."""
        ...

    def forget(self, before_ms: int) -> None:
        """Delete events, and fires that are over, from before a time."""
        ...
