"""Schedules of a Temporal cluster as our lists and descriptions have them.

What Temporal does not report is taken from where it is known, or is absent:

- Runs that failed are not counted by Temporal's schedules. Its search finds the runs of a schedule, so the count is of
  those that the retention of the namespace has kept.
- The version is the conflict token of the schedule, which grows with each change of it.
- Runs that may overlap are not watched by Temporal's schedules: their fires stay open for ever. So the runs themselves
  are asked.
- What caused a fire, and why one was skipped, is unknown; the program sees None.

Arguments and memos that cannot be decoded stay as the cluster has them: metadata and base64 data.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from google.protobuf.json_format import MessageToDict
from temporalio.api.common.v1 import Payload, WorkflowExecution
from temporalio.api.enums.v1 import WorkflowExecutionStatus as Status
from temporalio.api.schedule.v1 import (
    Range,
    ScheduleActionResult,
    ScheduleInfo,
    StructuredCalendarSpec,
)
from temporalio.api.schedule.v1 import ScheduleSpec as ProtoSpec
from temporalio.api.workflow.v1 import NewWorkflowExecutionInfo
from temporalio.api.workflowservice.v1 import (
    CountWorkflowExecutionsRequest,
    DescribeScheduleResponse,
    DescribeWorkflowExecutionRequest,
)
from temporalio.client import Client as TemporalClient
from temporalio.converter import decode_typed_search_attributes
from temporalio.service import RPCError, RPCStatusCode

from penstock.core.schedules.preview import in_words
from penstock.core.schedules.spec_text import InvalidSpec, read_spec
from penstock.core.timestamps import iso
from penstock.engines.temporal.gateway.context import Json
from penstock.engines.temporal.gateway.requests import shown_attributes
from penstock.engines.temporal.gateway.runs import STATUSES
from penstock.engines.temporal.gateway.schedule_specs import CALENDAR_FIELDS, OVERLAP
from penstock.engines.temporal.payloads import CONVERTER, envelope_of
from penstock.sdk.clients.schedules.spec import ScheduleCalendarSpec, ScheduleIntervalSpec, ScheduleRange

_STATUS_NAMES: Mapping[int, str] = {int(each): name for each, name in STATUSES.items()}
_OPEN = (Status.WORKFLOW_EXECUTION_STATUS_RUNNING, Status.WORKFLOW_EXECUTION_STATUS_CONTINUED_AS_NEW)
_OVERLAP_NAMES = {number: name for name, number in OVERLAP.items()}


def version_of(found: DescribeScheduleResponse) -> int:
    """Return a number that grows with each change of a schedule."""
    return int.from_bytes(found.conflict_token, "big")


async def schedule_body(client: TemporalClient, schedule_id: str, found: DescribeScheduleResponse) -> Json:
    """Return the body of a description.

    Args:
        client: asked for the number of runs that failed.
        schedule_id: the id of the schedule.
        found: what the cluster knows about it.
    """
    schedule, info = found.schedule, found.info
    action, policies, state = schedule.action.start_workflow, schedule.policies, schedule.state
    spec = _spec(schedule.spec)
    status = "paused" if state.paused else "active"
    created = iso(info.create_time.ToMilliseconds())
    following = [] if state.paused else [iso(each.ToMilliseconds()) for each in info.future_action_times]
    runs = await _runs_by_status(client, schedule_id, created)
    failures = runs.get("Failed", 0) + runs.get("TimedOut", 0)
    recent = [await _fire(client, info, each) for each in reversed(info.recent_actions)]
    running = max(len(info.running_workflows), runs.get("Running", 0))
    return {
        "schedule_id": schedule_id,
        "namespace": client.namespace,
        "workflow_type": action.workflow_type.name,
        "status": status,
        "paused": state.paused,
        "note": state.notes or None,
        "spec": spec,
        "action": await _action(action),
        "overlap_policy": _OVERLAP_NAMES.get(policies.overlap_policy, "skip"),
        "jitter_seconds": _seconds(schedule.spec.jitter),
        "max_runs": info.action_count + state.remaining_actions if state.limited_actions else None,
        "remaining_actions": state.remaining_actions if state.limited_actions else None,
        "catchup_window_seconds": _seconds(policies.catchup_window),
        "pause_on_failure": policies.pause_on_failure,
        "start_by_seconds": None,
        "memo": await _decoded(found.memo.fields),
        "search_attributes": shown_attributes(decode_typed_search_attributes(found.search_attributes)),
        "fires_count": info.action_count,
        "failures_count": failures,
        "next_fire": following[0] if following else None,
        "last_fire": recent[0]["recorded_at"] if recent else None,
        "created_at": created,
        "updated_at": iso(info.update_time.ToMilliseconds()) if info.HasField("update_time") else created,
        "version": version_of(found),
        "info": {
            "fires_count": info.action_count,
            "failures_count": failures,
            "running_count": running,
            "buffered_count": info.buffer_size,
            "skipped_trigger_count": info.overlap_skipped + info.missed_catchup_window + info.buffer_dropped,
            "skipped_overlap_count": info.overlap_skipped,
            "missed_catchup_window_count": info.missed_catchup_window,
            "recent_actions": recent,
            "next_action_times": following,
            "in_words": _words(spec),
        },
        "engine": "temporal",
    }


async def _fire(client: TemporalClient, info: ScheduleInfo, found: ScheduleActionResult) -> Json:
    run, status = found.start_workflow_result, found.start_workflow_status
    if status == Status.WORKFLOW_EXECUTION_STATUS_RUNNING and run not in info.running_workflows:
        status = await _status(client, run)
    is_open = status in _OPEN
    return {
        "fire_time": iso(found.schedule_time.ToMilliseconds()),
        "trigger": None,
        "outcome": "started" if is_open else "closed",
        "workflow_id": run.workflow_id,
        "run_id": run.run_id,
        "reason": None if is_open else _STATUS_NAMES.get(status),
        "recorded_at": iso(found.actual_time.ToMilliseconds()),
    }


async def _status(client: TemporalClient, run: WorkflowExecution) -> Status.ValueType:
    """Return the status of a run; unspecified if its retention is over."""
    try:
        found = await client.workflow_service.describe_workflow_execution(
            DescribeWorkflowExecutionRequest(namespace=client.namespace, execution=run), retry=True
        )
    except RPCError as error:
        if error.status is not RPCStatusCode.NOT_FOUND:
            raise
        return Status.WORKFLOW_EXECUTION_STATUS_UNSPECIFIED
    return found.workflow_execution_info.status


async def _runs_by_status(client: TemporalClient, schedule_id: str, since: str) -> Mapping[str, int]:
    """Return how many runs a schedule started that the cluster still has, by status."""
    if "\\" in schedule_id:
        return {}  # clusters do not find ids with a backslash, however it is escaped
    quoted = schedule_id.replace("'", "''")
    found = await client.workflow_service.count_workflow_executions(
        CountWorkflowExecutionsRequest(
            namespace=client.namespace,
            query=f"TemporalScheduledById = '{quoted}' AND StartTime >= '{since}' GROUP BY ExecutionStatus",
        ),
        retry=True,
    )
    return {json.loads(each.group_values[0].data): each.count for each in found.groups}


async def _action(action: NewWorkflowExecutionInfo) -> Json:
    """Return what the fires start."""
    priority = action.priority
    given = {
        "priority_key": priority.priority_key,
        "fairness_key": priority.fairness_key,
        "fairness_weight": priority.fairness_weight,
    }
    attributes = shown_attributes(decode_typed_search_attributes(action.search_attributes))
    found: Json = {
        "workflow_type": action.workflow_type.name,
        "task_queue": action.task_queue.name,
        "input": envelope_of([await _value(each) for each in action.input.payloads]),
        "execution_timeout_seconds": _seconds(action.workflow_execution_timeout),
        "run_timeout_seconds": _seconds(action.workflow_run_timeout),
        "memo": await _decoded(action.memo.fields),
        "search_attributes": attributes,
        "priority": {name: value for name, value in given.items() if value},
    }
    return {name: value for name, value in found.items() if value}


async def _decoded(fields: Mapping[str, Payload]) -> Json:
    return {name: await _value(each) for name, each in fields.items()}


async def _value(payload: Payload) -> Any:
    try:
        return (await CONVERTER.decode([payload]))[0]
    except Exception:  # another program's encoding; converters raise what they like
        return MessageToDict(payload)


def _spec(spec: ProtoSpec) -> Json:
    found: Json = {
        "calendars": [_calendar(each) for each in spec.structured_calendar],
        "intervals": [
            ScheduleIntervalSpec(
                timedelta(seconds=each.interval.seconds), timedelta(seconds=each.phase.seconds)
            ).on_the_wire()
            for each in spec.interval  # Temporal, too, fires at whole seconds
        ],
        "cron_expressions": list(spec.cron_string),
        "skip": [_calendar(each) for each in spec.exclude_structured_calendar],
        "start_at": iso(spec.start_time.ToMilliseconds()) if spec.HasField("start_time") else None,
        "end_at": iso(spec.end_time.ToMilliseconds()) if spec.HasField("end_time") else None,
        "timezone": spec.timezone_name,
    }
    return {name: value for name, value in found.items() if value}


def _calendar(calendar: StructuredCalendarSpec) -> Json:
    ranges: dict[str, Any] = {
        name: [_range(each) for each in getattr(calendar, name)]
        for name in CALENDAR_FIELDS
        if getattr(calendar, name)
    }
    return ScheduleCalendarSpec(**ranges, comment=calendar.comment or None).on_the_wire()


def _range(found: Range) -> ScheduleRange:
    if found.end <= found.start:
        return ScheduleRange(found.start)
    return ScheduleRange(found.start, found.end, found.step if found.step > 1 else 0)


def _words(spec: Mapping[str, Any]) -> list[str]:
    """Return the specification in sentences; none for one that our engine would refuse."""
    try:
        return list(in_words(read_spec(spec)))
    except InvalidSpec:
        return []


def _seconds(span: Any) -> float:
    """Return a duration, as an integer if it is whole seconds."""
    found: float = span.ToTimedelta().total_seconds()
    return int(found) if found.is_integer() else found
