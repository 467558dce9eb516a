"""Operations on schedules."""

from __future__ import annotations

from typing import Final

from penstock.core.permissions import RouteFamily as Family
from penstock.server.endpoints.schedules import schedule_fires, schedules
from penstock.server.operation import Operation
from penstock.wire.schedules import requests as wire

_SCHEDULES = "/api/schedules"
_SCHEDULE = _SCHEDULES + "/{schedule_id}"

SCHEDULE_OPERATIONS: Final = (
    Operation(
        "GET",
        _SCHEDULES,
        "list_schedules",
        "List schedules, newest first.",
        Family.WORK,
        schedules.list_all,
        query=wire.ListSchedules,
    ),
    Operation(
        "POST",
        _SCHEDULES,
        "create_schedule",
        "Create a schedule that starts a workflow or an activity at given times.",
        Family.WORK,
        schedules.create,
        wire.CreateSchedule,
        status=201,
        refusals=(409,),
    ),
    Operation(
        "POST",
        f"{_SCHEDULES}/batch-operations",
        "batch_schedules",
        "Pause or resume all schedules that a query finds, or only count them.",
        Family.WORK,
        schedules.change_all,
        wire.BatchSchedules,
    ),
    Operation(
        "POST",
        f"{_SCHEDULES}/preview",
        "preview_schedule",
        "Preview the next moments of a specification that is not saved, in words and with warnings.",
        Family.WORK,
        schedule_fires.preview,
        wire.PreviewSchedule,
    ),
    Operation(
        "GET",
        _SCHEDULE,
        "describe_schedule",
        "Describe a schedule: its specification, its counters, its latest and its next fires.",
        Family.WORK,
        schedules.describe,
        refusals=(404,),
    ),
    Operation(
        "GET",
        f"{_SCHEDULE}/why",
        "explain_schedule",
        "Explain what a schedule waits for, and why its fires started nothing.",
        Family.WORK,
        schedules.why,
        refusals=(404,),
    ),
    Operation(
        "PUT",
        _SCHEDULE,
        "update_schedule",
        "Change a schedule. It fires by a new specification from now on.",
        Family.WORK,
        schedules.update,
        wire.UpdateSchedule,
        refusals=(404, 409),
    ),
    Operation(
        "DELETE",
        _SCHEDULE,
        "delete_schedule",
        "Delete a schedule. Runs that it started go on.",
        Family.WORK,
        schedules.delete,
        refusals=(404,),
    ),
    Operation(
        "POST",
        f"{_SCHEDULE}/pause",
        "pause_schedule",
        "Pause a schedule.",
        Family.WORK,
        schedules.pause,
        wire.NoteSchedule,
        refusals=(404,),
    ),
    Operation(
        "POST",
        f"{_SCHEDULE}/resume",
        "resume_schedule",
        "Resume a paused schedule at its next moment.",
        Family.WORK,
        schedules.resume,
        wire.NoteSchedule,
        refusals=(404,),
    ),
    Operation(
        "POST",
        f"{_SCHEDULE}/trigger",
        "trigger_schedule",
        "Fire a schedule now.",
        Family.WORK,
        schedule_fires.trigger,
        wire.TriggerSchedule,
        refusals=(404,),
    ),
    Operation(
        "POST",
        f"{_SCHEDULE}/backfill",
        "backfill_schedule",
        "Fire a schedule for each of its moments in a period, or only list them.",
        Family.WORK,
        schedule_fires.backfill,
        wire.BackfillSchedule,
        refusals=(404,),
    ),
    Operation(
        "GET",
        f"{_SCHEDULE}/history",
        "read_schedule_history",
        "Read the events of a schedule, also of a deleted one.",
        Family.WORK,
        schedules.history,
        query=wire.ReadScheduleHistory,
        refusals=(404,),
    ),
)
