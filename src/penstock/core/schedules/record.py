"""A schedule as it is stored: what its owner set, how far it has come, its fires and its events.

Invariant `one-fire-per-moment`: a fire is a row named by its schedule, nominal moment and kind. The row, the run that
it starts, the event and the schedule's next moment are written in one transaction under the lock of the schedule, so a
crash or a second server can neither repeat nor lose a fire.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

import msgspec
from msgspec import Struct

from penstock.core.schedules.overlap import Overlap

CATCHUP_S_DEFAULT: Final = 3_600
CATCHUP_S_MIN, CATCHUP_S_MAX = 10, 31_536_000
BACKFILL_MAX: Final = 10_000
"""Fires of one backfill."""
SCHEDULE_ID_MAX: Final = 128
SCHEDULED_START_TIME: Final = "ScheduledStartTime"
"""Search attribute of a run: the nominal moment of its fire."""
SCHEDULED_BY_ID: Final = "ScheduledById"
"""Search attribute of a run: the id of its schedule."""


class ScheduleStatus(StrEnum):
    ACTIVE = "active"
    PAUSED = "paused"
    DELETED = "deleted"


class FireKind(StrEnum):
    """What caused a fire."""

    SCHEDULED = "scheduled"
    MANUAL = "manual"
    BACKFILL = "backfill"

    @property
    def is_by_hand(self) -> bool:
        """Whether a person asked for the fire, so that it starts while the schedule is paused, too."""
        return self is not FireKind.SCHEDULED


class FireState(StrEnum):
    BUFFERED = "buffered"
    """It waits until the schedule's open runs have closed."""
    STARTED = "started"
    """Its run is open."""
    SKIPPED = "skipped"
    CLOSED = "closed"


class ScheduleEventType(StrEnum):
    CREATED = "ScheduleCreated"
    UPDATED = "ScheduleUpdated"
    PAUSED = "SchedulePaused"
    RESUMED = "ScheduleResumed"
    TRIGGERED = "ScheduleTriggered"
    TRIGGER_SKIPPED = "ScheduleTriggerSkipped"
    DELETED = "ScheduleDeleted"


class FireKey(Struct, frozen=True):
    """Names a fire. A run that a schedule started carries it in its lineage."""

    schedule_key: str
    nominal_at_ms: int
    kind: FireKind


class SchedulePolicies(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How the schedule's fires are carried out."""

    overlap: Overlap = Overlap.SKIP
    catchup_window_s: int = CATCHUP_S_DEFAULT
    """A fire that is later than this is recorded as missed."""
    pause_on_failure: bool = False
    start_by_s: int | None = None
    """A fire that could not start so long after its nominal moment is dropped."""
    jitter_s: int = 0
    max_runs: int | None = None


class ScheduleProgress(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How far a schedule has come: counters, and what its latest fires did."""

    fires: int = 0
    failures: int = 0
    failed_at_ms: int | None = None
    """When a run of it failed last, if none has completed since."""
    skipped: int = 0
    """Fires that started nothing, missed ones included."""
    skipped_overlap: int = 0
    missed: int = 0
    open_runs: int = 0
    buffered: int = 0
    buffered_by_hand: int = 0
    """Those of `buffered` that a person asked for, which start while the schedule is paused, too."""
    remaining: int | None = None
    """Starts until `max_runs` is reached."""
    last_sequence: int = 0
    last_manual_at_ms: int = 0
    last_fire_at_ms: int | None = None
    """The latest nominal moment that started a run."""
    last_skip_reason: str | None = None
    last_skipped_at_ms: int | None = None
    paused_at_ms: int | None = None
    latest_workflow_id: str | None = None
    latest_run_id: str | None = None


class ScheduleRecord(Struct, frozen=True, kw_only=True):
    """One schedule. The id of a deleted one may be used again; `schedule_key` names it for ever."""

    schedule_key: str
    namespace: str
    schedule_id: str
    action_type: str
    """The type of the workflow or activity that it starts."""
    status: ScheduleStatus
    note: str | None
    spec: str
    """JSON text of the specification as its owner wrote it; `spec_text` reads it."""
    action: str
    """JSON text of what a fire starts; the engine reads it."""
    policies: SchedulePolicies
    progress: ScheduleProgress
    memo: str
    search_attributes: str
    cursor_at_ms: int
    """The moment up to which nominal moments are dealt with: the latest of them, or of a resume or a change."""
    nominal_at_ms: int | None
    """The next nominal moment; None if there is none."""
    due_at_ms: int | None
    """When there is something to do: the next fire with its jitter, or a buffered fire that may start."""
    zone_version: str
    """The version of the zone data from which the next moment was computed; empty in UTC, which needs none."""
    created_at_ms: int
    updated_at_ms: int
    version: int = 1

    @property
    def is_active(self) -> bool:
        return self.status is ScheduleStatus.ACTIVE


class FireRecord(Struct, frozen=True, kw_only=True):
    schedule_key: str
    nominal_at_ms: int
    kind: FireKind
    state: FireState
    workflow_id: str | None = None
    run_id: str | None = None
    reason: str | None = None
    """Why it was skipped, or how its run closed."""
    at_ms: int

    @property
    def key(self) -> FireKey:
        return FireKey(self.schedule_key, self.nominal_at_ms, self.kind)


class ScheduleEvent(Struct, frozen=True, kw_only=True):
    schedule_key: str
    sequence: int
    type: ScheduleEventType
    payload: str
    workflow_id: str | None = None
    run_id: str | None = None
    at_ms: int


decode_policies = msgspec.json.Decoder(SchedulePolicies).decode
decode_progress = msgspec.json.Decoder(ScheduleProgress).decode
