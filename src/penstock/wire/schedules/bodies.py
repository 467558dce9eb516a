"""Schedules as clients see them: in the flat shape that SDKs read, and in the nested one of the command line."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from penstock.core.attribution import PRINCIPAL
from penstock.core.schedules.record import (
    FireRecord,
    FireState,
    ScheduleEvent,
    ScheduleRecord,
    ScheduleStatus,
)
from penstock.core.timestamps import iso, iso_or_none

Body = dict[str, Any]


def schedule(record: ScheduleRecord, action: Mapping[str, Any], next_at_ms: int | None) -> Body:
    """The fields that lists and descriptions share."""
    policies, progress = record.policies, record.progress
    paused = record.status is ScheduleStatus.PAUSED
    last_fire, next_fire = iso_or_none(progress.last_fire_at_ms), iso_or_none(next_at_ms)
    return {
        "schedule_id": record.schedule_id,
        "namespace": record.namespace,
        "workflow_type": record.action_type,
        "status": record.status.value,
        "paused": paused,
        "note": record.note,
        "spec": json.loads(record.spec),
        "action": dict(action),
        "overlap_policy": policies.overlap.value,
        "jitter_seconds": policies.jitter_s,
        "max_runs": policies.max_runs,
        "remaining_actions": progress.remaining,
        "catchup_window_seconds": policies.catchup_window_s,
        "pause_on_failure": policies.pause_on_failure,
        "start_by_seconds": policies.start_by_s,
        "memo": json.loads(record.memo),
        "search_attributes": json.loads(record.search_attributes),
        "fires_count": progress.fires,
        "failures_count": progress.failures,
        "next_fire": next_fire,
        "next_fire_at": next_fire,
        "last_fire": last_fire,
        "last_fired_at": last_fire,
        "paused_at": iso_or_none(progress.paused_at_ms),
        "latest_workflow_instance_id": progress.latest_workflow_id,
        "latest_workflow_run_id": progress.latest_run_id,
        "created_at": iso(record.created_at_ms),
        "updated_at": iso(record.updated_at_ms),
        "version": record.version,
        "state": {"status": record.status.value, "paused": paused, "note": record.note},
        "info": {
            "next_fire": next_fire,
            "last_fire": last_fire,
            "fires_count": progress.fires,
            "failures_count": progress.failures,
            "failed_at": iso_or_none(progress.failed_at_ms),
            "running_count": progress.open_runs,
            "buffered_count": progress.buffered,
            "skipped_trigger_count": progress.skipped,
            "skipped_overlap_count": progress.skipped_overlap,
            "missed_catchup_window_count": progress.missed,
            "last_skip_reason": progress.last_skip_reason,
            "last_skipped_at": iso_or_none(progress.last_skipped_at_ms),
            "zone_data_version": record.zone_version or None,
        },
    }


def details(
    recent: Sequence[FireRecord],
    buffered: Sequence[FireRecord],
    next_at_ms: Sequence[int],
    words: Sequence[str],
) -> Body:
    """What a description adds to `info`."""
    return {
        "recent_actions": [fire(each) for each in recent],
        "buffered_actions": [fire(each) for each in buffered],
        "next_action_times": [iso(each) for each in next_at_ms],
        "in_words": list(words),
    }


def fire(each: FireRecord) -> Body:
    return {
        "fire_time": iso(each.nominal_at_ms),
        "trigger": each.kind.value,
        "outcome": each.state.value,
        "workflow_id": each.workflow_id,
        "run_id": each.run_id,
        "reason": each.reason,
        "recorded_at": iso(each.at_ms),
    }


def triggered(schedule_id: str, each: FireRecord, buffer_depth: int) -> Body:
    """The outcome of a trigger."""
    match each.state:
        case FireState.BUFFERED:
            return {"schedule_id": schedule_id, "outcome": "buffered", "buffer_depth": buffer_depth}
        case FireState.SKIPPED:
            outcome = "buffer_full" if each.reason == "buffer_full" else "skipped"
            return {"schedule_id": schedule_id, "outcome": outcome, "reason": each.reason}
        case _:
            ids = {"workflow_id": each.workflow_id, "run_id": each.run_id}
            return {"schedule_id": schedule_id, "outcome": "triggered"} | ids


def backfilled(at_ms: int, each: FireRecord | Exception) -> Body:
    """The outcome of one fire of a backfill."""
    if isinstance(each, Exception):
        return {
            "fire_time": iso(at_ms),
            "outcome": "failed",
            "reason": getattr(each, "reason", "server_error"),
        }
    started = each.state in (FireState.STARTED, FireState.CLOSED)
    found: Body = {"fire_time": iso(at_ms), "outcome": "started" if started else each.state.value}
    if each.workflow_id is not None:
        found["workflow_id"] = each.workflow_id
    if each.state is FireState.SKIPPED:
        found["reason"] = each.reason
    return found


def event(each: ScheduleEvent) -> Body:
    """An event. Its principal is in the payload, too, where clients of the contract look for it."""
    payload = json.loads(each.payload)
    return {
        "id": f"{each.schedule_key}-{each.sequence}",
        "sequence": each.sequence,
        "event_type": each.type.value,
        "payload": payload,
        "principal": payload.get(PRINCIPAL),
        "workflow_instance_id": each.workflow_id,
        "workflow_run_id": each.run_id,
        "recorded_at": iso(each.at_ms),
    }
