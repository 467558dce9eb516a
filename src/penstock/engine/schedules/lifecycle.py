"""Creating, reading, changing, pausing, resuming and deleting schedules: a transaction each, with its event."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from penstock.core import json_text
from penstock.core.attribution import caused_by
from penstock.core.schedules.due import after_moment, resumed_cursor, with_due
from penstock.core.schedules.record import (
    SCHEDULED_BY_ID,
    SCHEDULED_START_TIME,
    FireRecord,
    FireState,
    ScheduleEvent,
    ScheduleEventType,
    SchedulePolicies,
    ScheduleProgress,
    ScheduleRecord,
    ScheduleStatus,
)
from penstock.core.schedules.spec import moments
from penstock.core.timestamps import iso
from penstock.engine.context import EngineContext
from penstock.engine.runs.history_writer import DUE_TOPIC
from penstock.engine.schedules import zones
from penstock.engine.schedules.actions import decode
from penstock.engine.schedules.locked_schedule import LockedSchedule
from penstock.engine.schedules.zones import timing_of
from penstock.engine.visibility.search_attributes import check_values
from penstock.errors import Conflict, NotFound, Reason, ValidationFailed
from penstock.ports.store import Tx

T = TypeVar("T")
UPDATES_MAX: Final = 20
"""Updates that a version conflict looks at."""
SET_BY_FIRES: Final = frozenset({SCHEDULED_BY_ID, SCHEDULED_START_TIME})
RECENT: Final = 10
"""Fires and coming moments that a description shows."""


class NewSchedule(Struct, frozen=True, kw_only=True):
    """A schedule to be created; the specification and the action are checked already."""

    namespace: str
    schedule_id: str | None
    spec: str
    action: str
    action_type: str
    policies: SchedulePolicies
    memo: str
    search_attributes: str
    note: str | None
    paused: bool


class ScheduleView(Struct, frozen=True):
    """A schedule with its latest and its waiting fires, and its next moments."""

    record: ScheduleRecord
    recent: Sequence[FireRecord]
    buffered: Sequence[FireRecord]
    next_at_ms: Sequence[int]
    now_ms: int


async def create(ctx: EngineContext, new: NewSchedule) -> ScheduleRecord:
    """Create a schedule; its first fire is the first moment after now."""
    key = ctx.entropy.new_id()
    schedule_id = new.schedule_id or f"schedule-{key}"

    async def operation(tx: Tx) -> ScheduleRecord:
        record = ScheduleRecord(
            schedule_key=key,
            namespace=new.namespace,
            schedule_id=schedule_id,
            action_type=new.action_type,
            status=ScheduleStatus.PAUSED if new.paused else ScheduleStatus.ACTIVE,
            note=new.note,
            spec=new.spec,
            action=new.action,
            policies=new.policies,
            progress=ScheduleProgress(
                remaining=new.policies.max_runs,
                paused_at_ms=tx.now_ms if new.paused else None,
                last_sequence=1,
            ),
            memo=new.memo,
            search_attributes=new.search_attributes,
            cursor_at_ms=tx.now_ms,
            nominal_at_ms=None,
            due_at_ms=None,
            zone_version=zones.NOT_NEEDED,
            created_at_ms=tx.now_ms,
            updated_at_ms=tx.now_ms,
        )
        await _check_attributes(tx, record)
        timing = timing_of(record)
        await zones.check_version(tx, timing.spec)
        version = zones.version_for(timing.spec)
        record = after_moment(record, timing.spec, timing.zone, tx.now_ms, version)
        record = with_due(record, timing.spec, timing.zone, tx.now_ms)
        if record.nominal_at_ms is None:
            raise _never_fires()
        if not await tx.schedules.create(record):
            raise _exists(schedule_id)
        tx.schedules.append_event(
            ScheduleEvent(
                schedule_key=key,
                sequence=1,
                type=ScheduleEventType.CREATED,
                payload=json_text.written(caused_by(ctx.caller)),
                at_ms=tx.now_ms,
            )
        )
        tx.wake(DUE_TOPIC)
        return record

    return await ctx.store.transact(operation, key=_key(new.namespace, schedule_id))


async def describe(ctx: EngineContext, namespace: str, schedule_id: str) -> ScheduleView:
    async def operation(tx: Tx) -> ScheduleView:
        record = await tx.schedules.by_id(namespace, schedule_id)
        if record is None:
            raise not_found(schedule_id)
        recent = await tx.schedules.latest_fires(record.schedule_key, RECENT)
        buffered = await tx.schedules.fires(record.schedule_key, FireState.BUFFERED, RECENT)
        return ScheduleView(record, recent, buffered, next_moments(record), tx.now_ms)

    return await ctx.store.read(operation)


def next_moments(record: ScheduleRecord) -> Sequence[int]:
    """The next nominal moments of an active schedule; only the first if this server's zone data are older."""
    if not record.is_active or record.nominal_at_ms is None:
        return ()
    if zones.is_newer(record):
        return (record.nominal_at_ms,)
    timing = timing_of(record)
    coming = moments(timing.spec, timing.zone, record.cursor_at_ms)
    return [at_ms for at_ms, _ in zip(coming, range(RECENT), strict=False)]


async def history(
    ctx: EngineContext, namespace: str, schedule_id: str, after: int, limit: int
) -> Sequence[ScheduleEvent]:
    """Events of the schedule that was created last with an id, deleted or not."""

    async def operation(tx: Tx) -> Sequence[ScheduleEvent]:
        record = await tx.schedules.newest_of_id(namespace, schedule_id)
        if record is None:
            raise not_found(schedule_id)
        return await tx.schedules.events(record.schedule_key, after, limit)

    return await ctx.store.read(operation)


async def update(
    ctx: EngineContext,
    namespace: str,
    schedule_id: str,
    change: Callable[[ScheduleRecord], ScheduleRecord],
    if_version: int | None = None,
) -> ScheduleRecord:
    """Change a schedule. After a change of its specification it fires at moments from now on only.

    `change` must be a function of the record alone: it may be called again. With `if_version`, raises `Conflict` if the
    schedule was updated since it had that version, with what the updates changed.
    """

    async def act(tx: Tx, schedule: LockedSchedule) -> ScheduleRecord:
        before = schedule.record
        if if_version is not None and if_version != before.version:
            raise await _version_conflict(tx, before, if_version)
        changed = change(before)
        if (changed.search_attributes, changed.action) != (before.search_attributes, before.action):
            await _check_attributes(tx, changed)
        progress = changed.progress
        if changed.policies.max_runs != before.policies.max_runs:
            most = changed.policies.max_runs
            progress = replace(progress, remaining=None if most is None else max(0, most - progress.fires))
        schedule.record = replace(
            changed, progress=progress, updated_at_ms=tx.now_ms, version=before.version + 1
        )
        if changed.spec != before.spec:
            timing_of(before)  # the moments of a newer server are not replaced by older ones
            await zones.check_version(tx, zones.spec_of(schedule.record))
            schedule.change(zone_version=zones.NOT_NEEDED)
            schedule.move_cursor(tx.now_ms)
            if schedule.record.nominal_at_ms is None:
                raise _never_fires()
        if schedule.record.progress.remaining == 0:
            await schedule.drop_buffered()
        facts = {"changed": _changed(before, changed), "version": schedule.record.version}
        schedule.append(ScheduleEventType.UPDATED, facts)
        schedule.save()
        return schedule.record

    return await on_schedule(ctx, namespace, schedule_id, act)


async def pause(ctx: EngineContext, namespace: str, schedule_id: str, note: str | None) -> ScheduleRecord:
    """Pause a schedule. If it is paused, only a new note is recorded."""

    async def act(tx: Tx, schedule: LockedSchedule) -> ScheduleRecord:
        is_active = schedule.record.is_active
        if is_active or note not in (None, schedule.record.note):
            schedule.change(status=ScheduleStatus.PAUSED, note=note, updated_at_ms=tx.now_ms)
            if is_active:
                schedule.advance(paused_at_ms=tx.now_ms)
            schedule.append(ScheduleEventType.PAUSED, _noted(note))
            schedule.save()
        return schedule.record

    return await on_schedule(ctx, namespace, schedule_id, act)


async def resume(ctx: EngineContext, namespace: str, schedule_id: str, note: str | None) -> ScheduleRecord:
    """Resume a paused schedule: what it missed is not caught up. If it is active, only a new note is recorded."""

    async def act(tx: Tx, schedule: LockedSchedule) -> ScheduleRecord:
        is_paused = not schedule.record.is_active
        if is_paused or note not in (None, schedule.record.note):
            schedule.change(status=ScheduleStatus.ACTIVE, note=note, updated_at_ms=tx.now_ms)
            if is_paused:
                schedule.advance(paused_at_ms=None)
                timing = timing_of(schedule.record)
                schedule.move_cursor(resumed_cursor(schedule.record, timing.spec, timing.zone, tx.now_ms))
            schedule.append(ScheduleEventType.RESUMED, _noted(note))
            schedule.save()
        return schedule.record

    return await on_schedule(ctx, namespace, schedule_id, act)


async def delete(ctx: EngineContext, namespace: str, schedule_id: str) -> ScheduleRecord:
    """Delete a schedule and its buffered fires. Runs that it started go on; its history stays."""

    async def act(tx: Tx, schedule: LockedSchedule) -> ScheduleRecord:
        await schedule.drop_buffered()
        schedule.change(status=ScheduleStatus.DELETED, updated_at_ms=tx.now_ms)
        schedule.append(ScheduleEventType.DELETED, {"reason": "deleted"})
        schedule.save()
        return schedule.record

    return await on_schedule(ctx, namespace, schedule_id, act)


async def on_schedule(
    ctx: EngineContext,
    namespace: str,
    schedule_id: str,
    act: Callable[[Tx, LockedSchedule], Awaitable[T]],
) -> T:
    """Run an operation on a schedule under its lock; raises `NotFound` if there is none with this id."""

    async def operation(tx: Tx) -> T:
        found = await tx.schedules.by_id(namespace, schedule_id)
        record = None if found is None else await tx.schedules.lock(found.schedule_key)
        if record is None or record.status is ScheduleStatus.DELETED:
            raise not_found(schedule_id)
        return await act(tx, LockedSchedule(ctx, tx, record))

    return await ctx.store.transact(operation, key=_key(namespace, schedule_id))


async def _check_attributes(tx: Tx, record: ScheduleRecord) -> None:
    """Refuse search attributes with which no fire could start, and those that each fire sets itself."""
    by_field = {
        "search_attributes": record.search_attributes,
        "action.search_attributes": decode(record.action).start.search_attributes,
    }
    for field, text in by_field.items():
        values = json_text.read(text)
        if taken := SET_BY_FIRES & values.keys():
            raise ValidationFailed({f"{field}.{name}": ["is set by each fire"] for name in sorted(taken)})
        await check_values(tx, record.namespace, values, field)


async def _version_conflict(tx: Tx, record: ScheduleRecord, if_version: int) -> Conflict:
    """Say what moved since a version."""
    updates = [
        (each, json_text.read(each.payload))
        for each in await tx.schedules.latest_updates(record.schedule_key, UPDATES_MAX)
    ]
    since = [(each, facts) for each, facts in reversed(updates) if facts.get("version", 0) > if_version]
    moved = sorted({name for _, facts in since for name in facts["changed"]})
    changed = f"Since then {', '.join(moved)} changed. " if moved else ""
    return Conflict(
        Reason.SCHEDULE_VERSION_CONFLICT,
        f"The schedule {record.schedule_id!r} is at version {record.version}, not {if_version}. {changed}"
        "Read it again, then repeat the change.",
        schedule_id=record.schedule_id,
        current_version=record.version,
        changed=moved,
        updates=[
            {"version": facts["version"], "changed": facts["changed"], "recorded_at": iso(each.at_ms)}
            for each, facts in since
        ],
    )


def not_found(schedule_id: str) -> NotFound:
    return NotFound(
        Reason.SCHEDULE_NOT_FOUND,
        f"There is no schedule {schedule_id!r} in this namespace.",
        schedule_id=schedule_id,
    )


def _never_fires() -> ValidationFailed:
    return ValidationFailed({"spec": ["has no moment from now on, so it would never fire"]})


def _exists(schedule_id: str) -> Conflict:
    return Conflict(
        Reason.SCHEDULE_ALREADY_EXISTS,
        f"There is a schedule {schedule_id!r} already. Choose another id, update it, or delete it first.",
        schedule_id=schedule_id,
    )


def _key(namespace: str, schedule_id: str) -> str:
    return f"schedule:{namespace}:{schedule_id}"


def _noted(note: str | None) -> Mapping[str, Any]:
    return {} if note is None else {"note": note}


_SHOWN_CHANGES = ("spec", "action", "policies", "note", "memo", "search_attributes")


def _changed(before: ScheduleRecord, after: ScheduleRecord) -> Sequence[str]:
    return [name for name in _SHOWN_CHANGES if getattr(before, name) != getattr(after, name)]
