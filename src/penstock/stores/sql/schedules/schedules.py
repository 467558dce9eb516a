"""Schedules, fires and their events in SQL."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec.structs import astuple

from penstock.core import json_text
from penstock.core.external_payloads import LAST_USE_MARGIN_MS
from penstock.core.schedules.record import (
    FireKey,
    FireKind,
    FireRecord,
    FireState,
    ScheduleEvent,
    ScheduleEventType,
    ScheduleRecord,
    ScheduleStatus,
    decode_policies,
    decode_progress,
)
from penstock.ports.tables.schedules import ScheduleFilter
from penstock.ports.tables.visibility import PageStart
from penstock.stores.sql.operations.external_payloads import record_uses
from penstock.stores.sql.session import Repository, Row

_FIRST_PAGE = (2**62, "")


class SqlSchedules(Repository):
    async def create(self, record: ScheduleRecord) -> bool:
        self._hold_payloads(record)
        return bool(await self._session.fetch("create_schedule", *_values(record)))

    async def lock(self, schedule_key: str) -> ScheduleRecord | None:
        rows = await self._session.fetch("lock_schedule", schedule_key)
        return _record(rows[0]) if rows else None

    async def by_id(self, namespace: str, schedule_id: str) -> ScheduleRecord | None:
        rows = await self._session.fetch("schedule_by_id", namespace, schedule_id)
        return _record(rows[0]) if rows else None

    async def newest_of_id(self, namespace: str, schedule_id: str) -> ScheduleRecord | None:
        rows = await self._session.fetch("newest_schedule_of_id", namespace, schedule_id)
        return _record(rows[0]) if rows else None

    async def page(
        self, narrow: ScheduleFilter, before: PageStart | None, limit: int
    ) -> Sequence[ScheduleRecord]:
        place = (before.started_at_ms, before.run_id) if before else _FIRST_PAGE
        rows = await self._session.fetch(
            "page_schedules", narrow.namespace, narrow.status, narrow.action_type, *place, limit
        )
        return [_record(row) for row in rows]

    async def due(self, now_ms: int, zone_version: str, limit: int) -> Sequence[str]:
        return [row[1] for row in await self._session.fetch("due_schedules", now_ms, zone_version, limit)]

    async def newer_zone_data(self, zone_version: str) -> str | None:
        rows = await self._session.fetch("newer_zone_data", zone_version)
        return str(rows[0][1]) if rows else None

    async def of_older_zone_data(self, zone_version: str, limit: int) -> Sequence[str]:
        rows = await self._session.fetch("schedules_of_older_zone_data", zone_version, limit)
        return [row[1] for row in rows]

    async def count_due(self, namespace: str, first_ms: int, last_ms: int) -> int:
        [row] = await self._session.fetch("count_due_between", namespace, first_ms, last_ms)
        return int(row[1])

    def save(self, record: ScheduleRecord) -> None:
        self._hold_payloads(record)
        self._session.record("save_schedule", *_values(record))

    async def fire(self, key: FireKey) -> FireRecord | None:
        rows = await self._session.fetch("get_fire", *astuple(key))
        return _fire(rows[0]) if rows else None

    async def fires(self, schedule_key: str, state: FireState, limit: int) -> Sequence[FireRecord]:
        name = "started_fires" if state is FireState.STARTED else "buffered_fires"
        return [_fire(row) for row in await self._session.fetch(name, schedule_key, limit)]

    async def count_backfilled(self, schedule_key: str, first_ms: int, last_ms: int) -> int:
        [row] = await self._session.fetch("count_backfilled", schedule_key, first_ms, last_ms)
        return int(row[1])

    async def latest_fires(self, schedule_key: str, limit: int) -> Sequence[FireRecord]:
        return [_fire(row) for row in await self._session.fetch("latest_fires", schedule_key, limit)]

    def insert_fire(self, fire: FireRecord) -> None:
        self._session.record("insert_fire", *astuple(fire))

    def save_fire(self, fire: FireRecord) -> None:
        self._session.record("save_fire", *astuple(fire))

    async def events(self, schedule_key: str, after: int, limit: int) -> Sequence[ScheduleEvent]:
        rows = await self._session.fetch("schedule_events_page", schedule_key, after, limit)
        return [_event(row) for row in rows]

    async def latest_updates(self, schedule_key: str, limit: int) -> Sequence[ScheduleEvent]:
        rows = await self._session.fetch("latest_schedule_updates", schedule_key, limit)
        return [_event(row) for row in rows]

    def append_event(self, event: ScheduleEvent) -> None:
        self._session.record("append_schedule_event", *astuple(event))

    async def any_before(self, at_ms: int) -> bool:
        found = await self._session.fetch("any_fire_before", at_ms)
        return bool(found or await self._session.fetch("any_schedule_event_before", at_ms))

    def forget(self, before_ms: int) -> None:
        self._session.record("forget_fires", before_ms)
        self._session.record("forget_schedule_events", before_ms)

    def _hold_payloads(self, record: ScheduleRecord) -> None:
        """Record that the input of what it starts is needed; once it is deleted, that it is not."""
        owner = f"schedule:{record.schedule_key}"
        if record.status is ScheduleStatus.DELETED:
            self._session.record("check_released_payloads", owner, self._session.now_ms + LAST_USE_MARGIN_MS)
            self._session.record("forget_payload_uses", owner)
        else:
            record_uses(self._session, owner, record.action)


_COLUMNS = ScheduleRecord.__struct_fields__
_FIRE_COLUMNS = FireRecord.__struct_fields__
_EVENT_COLUMNS = ScheduleEvent.__struct_fields__


def _values(record: ScheduleRecord) -> list[Any]:
    found = dict(zip(_COLUMNS, astuple(record), strict=True))
    found["policies"] = json_text.written(record.policies)
    found["progress"] = json_text.written(record.progress)
    return list(found.values())


def _record(row: Row) -> ScheduleRecord:
    found: dict[str, Any] = dict(zip(_COLUMNS, row[1:], strict=True))
    found["status"] = ScheduleStatus(found["status"])
    found["policies"] = decode_policies(found["policies"])
    found["progress"] = decode_progress(found["progress"])
    return ScheduleRecord(**found)


def _fire(row: Row) -> FireRecord:
    found: dict[str, Any] = dict(zip(_FIRE_COLUMNS, row[1:], strict=True))
    return FireRecord(**found | {"kind": FireKind(found["kind"]), "state": FireState(found["state"])})


def _event(row: Row) -> ScheduleEvent:
    found: dict[str, Any] = dict(zip(_EVENT_COLUMNS, row[1:], strict=True))
    return ScheduleEvent(**found | {"type": ScheduleEventType(found["type"])})
