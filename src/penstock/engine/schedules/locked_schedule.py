"""A schedule locked in a transaction: changes are collected, and saved once with the events that record them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from msgspec.structs import replace

from penstock.core import json_text
from penstock.core.attribution import caused_by
from penstock.core.schedules.due import after_moment, exhausted, recomputed, with_due, with_due_kept
from penstock.core.schedules.overlap import (
    BUFFER_MAX,
    OVERLAPPING,
    Buffer,
    Overlap,
    Skip,
    SkipReason,
    decide_fire,
)
from penstock.core.schedules.record import (
    FireKey,
    FireKind,
    FireRecord,
    FireState,
    ScheduleEvent,
    ScheduleEventType,
    ScheduleRecord,
    ScheduleStatus,
)
from penstock.core.timestamps import iso, iso_or_none
from penstock.engine.context import EngineContext
from penstock.engine.runs.history_writer import DUE_TOPIC
from penstock.engine.schedules import zones
from penstock.engine.schedules.actions import start_of_fire, workflow_id_of
from penstock.engine.schedules.zones import timing_of
from penstock.engine.workflows.run_close import EndMode, end_open
from penstock.errors import Conflict, InvalidInput
from penstock.ports.store import Tx

SOON_MS: Final = 2_000
"""A schedule that is due within this time is announced to the servers at once; others they find at their next look."""
OPEN_RUNS_MAX: Final = 1_000
"""Open runs of a schedule that one fire ends."""
CHECKED_RUNS_MAX: Final = 10
"""Up to so many open runs a fire looks at the runs themselves: one may have closed a moment ago."""
MAX_RUNS_EXHAUSTED: Final = "max_runs_exhausted"
_TRIES = 3


class LockedSchedule:
    """One schedule in one transaction. `save` ends it."""

    def __init__(self, ctx: EngineContext, tx: Tx, record: ScheduleRecord) -> None:
        self._ctx, self._tx = ctx, tx
        self.record = record

    def change(self, **fields: Any) -> None:
        self.record = replace(self.record, **fields)

    def advance(self, **counters: Any) -> None:
        self.record = replace(self.record, progress=replace(self.record.progress, **counters))

    def move_cursor(self, cursor_ms: int) -> None:
        """Deal with everything up to a moment: the next one follows from it."""
        timing = timing_of(self.record)
        version = zones.version_for(timing.spec)
        self.record = after_moment(self.record, timing.spec, timing.zone, cursor_ms, version)

    def apply_zone_data(self) -> None:
        """Compute the next moment from this server's zone data, if these are newer; an event records a change of it."""
        before = self.record
        if not zones.is_older(before):
            return
        timing = timing_of(before)
        self.record = recomputed(before, timing.spec, timing.zone, zones.VERSION)
        if self.record.nominal_at_ms != before.nominal_at_ms:
            self.append(
                ScheduleEventType.UPDATED,
                {
                    "changed": ["next_fire"],
                    "reason": "zone_data_changed",
                    "zone_data_version": zones.VERSION,
                    "previous_next_fire": iso_or_none(before.nominal_at_ms),
                    "next_fire": iso_or_none(self.record.nominal_at_ms),
                },
            )

    def append(
        self, kind: ScheduleEventType, payload: Mapping[str, Any], fire: FireRecord | None = None
    ) -> None:
        sequence = self.record.progress.last_sequence + 1
        self.advance(last_sequence=sequence)
        self._tx.schedules.append_event(
            ScheduleEvent(
                schedule_key=self.record.schedule_key,
                sequence=sequence,
                type=kind,
                payload=json_text.written({**payload, **caused_by(self._ctx.caller)}),
                workflow_id=None if fire is None else fire.workflow_id,
                run_id=None if fire is None else fire.run_id,
                at_ms=self._tx.now_ms,
            )
        )

    def save(self) -> None:
        record = exhausted(self.record)
        if record is not self.record:
            self.append(ScheduleEventType.DELETED, {"reason": MAX_RUNS_EXHAUSTED})
            record = replace(self.record, status=ScheduleStatus.DELETED)
        self.record = record = self._with_due(record)
        self._tx.schedules.save(record)
        if record.due_at_ms is not None and record.due_at_ms <= self._tx.now_ms + SOON_MS:
            self._tx.wake(DUE_TOPIC)

    def _with_due(self, record: ScheduleRecord) -> ScheduleRecord:
        """With newer zone data than this server has, the schedule keeps its next moment: a newer server computed it."""
        if zones.is_newer(record):
            return with_due_kept(record, self._tx.now_ms)
        timing = timing_of(record)
        return with_due(record, timing.spec, timing.zone, self._tx.now_ms)

    # ── Fires ───────────────────────────────────────────────────────────────────────────────────────────────

    async def fire(self, key: FireKey, overlap: Overlap, before: FireRecord | None = None) -> FireRecord:
        """Start the action, buffer it or skip it, by the overlap policy.

        `before` is the row of the same fire, if it has one already.
        """
        buffered = self.record.progress.buffered
        decision = decide_fire(overlap, open_runs=await self._open_runs(overlap), buffered=buffered)
        match decision:
            case Skip(reason=reason):
                return self.skip(key, reason, before)
            case Buffer(cancel=cancel):
                if cancel:
                    await self._end_open_runs(EndMode.CANCEL)
                return self._buffer(key, before)
            case _:
                if decision.terminate:
                    await self._end_open_runs(EndMode.TERMINATE)
                return await self.start(key, before)

    async def start(self, key: FireKey, before: FireRecord | None = None) -> FireRecord:
        """Start the action of a fire; a start that is refused is recorded as skipped."""
        start = start_of_fire(self._ctx, self.record, key)
        try:
            run = (await start.operation(self._tx)).run
        except (Conflict, InvalidInput) as error:
            return self.skip(key, SkipReason.START_REFUSED, before, detail=str(error))
        fire = self._write(
            FireRecord(
                schedule_key=key.schedule_key,
                nominal_at_ms=key.nominal_at_ms,
                kind=key.kind,
                state=FireState.STARTED,
                workflow_id=run.workflow_id,
                run_id=run.run_id,
                at_ms=self._tx.now_ms,
            ),
            before,
        )
        progress = self.record.progress
        self.advance(
            fires=progress.fires + 1,
            open_runs=progress.open_runs + 1,
            remaining=None if progress.remaining is None else max(0, progress.remaining - 1),
            last_fire_at_ms=max(progress.last_fire_at_ms or 0, key.nominal_at_ms),
            latest_workflow_id=run.workflow_id,
            latest_run_id=run.run_id,
        )
        self.append(ScheduleEventType.TRIGGERED, self._facts(key) | {"outcome": "started"}, fire)
        if self.record.progress.remaining == 0:
            await self.drop_buffered(started=key)
        return fire

    def skip(
        self, key: FireKey, reason: SkipReason, before: FireRecord | None = None, detail: str | None = None
    ) -> FireRecord:
        fire = self._write(
            FireRecord(
                schedule_key=key.schedule_key,
                nominal_at_ms=key.nominal_at_ms,
                kind=key.kind,
                state=FireState.SKIPPED,
                reason=reason.value,
                at_ms=self._tx.now_ms,
            ),
            before,
        )
        self.count_skipped(reason)
        facts = self._facts(key) | {"reason": reason.value}
        self.append(
            ScheduleEventType.TRIGGER_SKIPPED, facts if detail is None else facts | {"detail": detail}, fire
        )
        return fire

    def count_skipped(self, reason: SkipReason, times: int = 1) -> None:
        progress = self.record.progress
        self.advance(
            skipped=progress.skipped + times,
            skipped_overlap=progress.skipped_overlap + (times if reason in OVERLAPPING else 0),
            last_skip_reason=reason.value,
            last_skipped_at_ms=self._tx.now_ms,
        )

    def count_buffered(self, kind: FireKind, more: int) -> None:
        progress = self.record.progress
        by_hand = more if kind.is_by_hand else 0
        self.advance(
            buffered=max(0, progress.buffered + more),
            buffered_by_hand=max(0, progress.buffered_by_hand + by_hand),
        )

    async def drop_buffered(self, started: FireKey | None = None) -> None:
        """Skip all buffered fires of a schedule that is deleted, except one that this transaction has started."""
        if not self.record.progress.buffered:
            return
        reason = SkipReason.SCHEDULE_DELETED.value
        for fire in await self._tx.schedules.fires(self.record.schedule_key, FireState.BUFFERED, BUFFER_MAX):
            if fire.key != started:
                self._tx.schedules.save_fire(replace(fire, state=FireState.SKIPPED, reason=reason))
        self.advance(buffered=0, buffered_by_hand=0)

    def _buffer(self, key: FireKey, before: FireRecord | None) -> FireRecord:
        self.count_buffered(key.kind, 1)
        fire = FireRecord(
            schedule_key=key.schedule_key,
            nominal_at_ms=key.nominal_at_ms,
            kind=key.kind,
            state=FireState.BUFFERED,
            workflow_id=workflow_id_of(self.record, key),
            at_ms=self._tx.now_ms,
        )
        return self._write(fire, before)

    def _write(self, fire: FireRecord, before: FireRecord | None) -> FireRecord:
        if before is None:
            self._tx.schedules.insert_fire(fire)
        else:
            self._tx.schedules.save_fire(fire)
        return fire

    def _facts(self, key: FireKey) -> dict[str, Any]:
        return {"trigger": key.kind.value, "fire_time": iso(key.nominal_at_ms)}

    async def _open_runs(self, overlap: Overlap) -> int:
        """The open runs of the schedule, without those that closed and have not reported yet."""
        known = self.record.progress.open_runs
        if not 0 < known <= CHECKED_RUNS_MAX or overlap is Overlap.ALLOW_ALL:
            return known
        fires = await self._tx.schedules.fires(self.record.schedule_key, FireState.STARTED, CHECKED_RUNS_MAX)
        return sum([await self._is_open(fire) for fire in fires])

    async def _is_open(self, fire: FireRecord) -> bool:
        assert fire.workflow_id is not None
        found = await self._tx.runs.named(self.record.namespace, fire.workflow_id, None)
        run = None if found is None else found[1]
        return run is not None and run.is_open and run.lineage.fire == fire.key

    async def _end_open_runs(self, mode: EndMode) -> None:
        fires = await self._tx.schedules.fires(self.record.schedule_key, FireState.STARTED, OPEN_RUNS_MAX)
        for fire in fires:
            await self._end_run(fire, mode)

    async def _end_run(self, fire: FireRecord, mode: EndMode) -> None:
        """End the newest run of a fire's chain, which may continue as new in the meantime."""
        assert fire.workflow_id is not None
        for _ in range(_TRIES):
            instance = await self._tx.runs.instance(self.record.namespace, fire.workflow_id)
            run = None if instance is None else await self._tx.runs.lock(instance.run_id)
            if run is None or run.lineage.fire != fire.key:
                return
            if run.is_open:
                reason = f"the next run of schedule {self.record.schedule_id} begins"
                await end_open(self._ctx, self._tx, run, mode, reason)
                return
