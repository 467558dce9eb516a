"""Schedules as requests of our clients have them, translated to Temporal's.

`apply` changes a schedule of Temporal's API by the fields of a request, for a new schedule and for an update alike.
What an update does not name stays as it is, also what only Temporal has: retry policies, headers and workflow ids of
schedules that other programs made. A field that Temporal has nothing for is refused by name.

Ranges are written out (an end, a step of at least 1), as the cluster returns them: so an update can compare what the
cluster holds with what it sent.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any, Final

from temporalio.api.common.v1 import WorkflowType
from temporalio.api.enums.v1 import ScheduleOverlapPolicy, TaskQueueKind
from temporalio.api.schedule.v1 import IntervalSpec, Range, Schedule, StructuredCalendarSpec
from temporalio.api.schedule.v1 import ScheduleSpec as ProtoSpec
from temporalio.api.taskqueue.v1 import TaskQueue
from temporalio.api.workflow.v1 import NewWorkflowExecutionInfo

from penstock.engines.temporal import options as translated
from penstock.engines.temporal.gateway import requests
from penstock.engines.temporal.gateway.context import GatewayRequest, Json
from penstock.engines.temporal.payloads import plain_arguments
from penstock.engines.temporal.refusals import not_here
from penstock.sdk.clients.schedules.spec import ScheduleCalendarSpec, ScheduleRange, ScheduleSpec

OVERLAP: Final = {
    name.removeprefix("SCHEDULE_OVERLAP_POLICY_").lower(): number
    for name, number in ScheduleOverlapPolicy.items()
    if number
}
CALENDAR_FIELDS: Final = ("second", "minute", "hour", "day_of_month", "month", "year", "day_of_week")
_FIELDS: Final = frozenset(
    {
        *("schedule_id", "spec", "action", "paused", "note", "max_runs", "if_version"),
        *("overlap_policy", "jitter_seconds", "catchup_window_seconds", "pause_on_failure"),
    }
)
_ACTION_FIELDS: Final = frozenset(
    {
        *("workflow_type", "task_queue", "input", "execution_timeout_seconds", "run_timeout_seconds"),
        *("memo", "search_attributes", "priority", "deliver_cancel"),
    }
)


async def apply(schedule: Schedule, request: GatewayRequest, taken: int = 0) -> None:
    """Change a schedule by the fields of a request.

    Args:
        schedule: what is changed.
        request: create or update; fields that are absent or None change nothing.
        taken: starts so far, which `max_runs` includes.
    """
    request.accept("a schedule", _FIELDS)
    body = {name: value for name, value in request.body.items() if value is not None}
    if "spec" in body:
        jitter = schedule.spec.jitter
        schedule.spec.CopyFrom(_spec(ScheduleSpec.read(body["spec"])))
        schedule.spec.jitter.CopyFrom(jitter)
    if "jitter_seconds" in body:
        schedule.spec.jitter.FromTimedelta(timedelta(seconds=body["jitter_seconds"]))
    if "action" in body:
        await _apply_action(schedule.action.start_workflow, body["action"])
    policies, state = schedule.policies, schedule.state
    if "overlap_policy" in body:
        policies.overlap_policy = OVERLAP[body["overlap_policy"]]
    if "catchup_window_seconds" in body:
        policies.catchup_window.FromTimedelta(timedelta(seconds=body["catchup_window_seconds"]))
    if "pause_on_failure" in body:
        policies.pause_on_failure = body["pause_on_failure"]
    if "note" in body:
        state.notes = body["note"]
    if "paused" in body:
        state.paused = body["paused"]
    if "max_runs" in body:
        state.limited_actions, state.remaining_actions = True, max(0, body["max_runs"] - taken)


async def _apply_action(action: NewWorkflowExecutionInfo, body: Mapping[str, Any]) -> None:
    """Change what the fires start."""
    if "activity_type" in body:
        raise not_here("a schedule of activities", "schedule a workflow that runs it")
    for name in sorted(body.keys() - _ACTION_FIELDS):
        if body[name] is not None:
            raise not_here(f"{name} of a schedule")
    given: dict[Any, Any] = await _translated(body)
    for name, value in given.items():
        action.ClearField(name)
        if value is not None:
            getattr(action, name).CopyFrom(value)


async def _translated(body: Mapping[str, Any]) -> Json:
    """Return the given fields of an action, by their names in Temporal's API; None unsets a field."""
    found: Json = requests.durations(
        body, workflow_execution_timeout="execution_timeout", workflow_run_timeout="run_timeout"
    )
    if "workflow_type" in body:
        found["workflow_type"] = WorkflowType(name=body["workflow_type"])
    if "task_queue" in body:
        found["task_queue"] = TaskQueue(name=body["task_queue"], kind=TaskQueueKind.TASK_QUEUE_KIND_NORMAL)
    if "input" in body:
        found["input"] = await requests.payloads(plain_arguments(body["input"]))
    if "memo" in body:
        found["memo"] = await requests.memo(body["memo"] or None)
    if "search_attributes" in body:
        attributes = translated.search_attributes(body["search_attributes"])
        found["search_attributes"] = requests.search_attributes(attributes)
    if "priority" in body:
        found["priority"] = requests.priority(dict(body))
    return found


def _spec(spec: ScheduleSpec) -> ProtoSpec:
    if spec.gap is not None or spec.repeat is not None:
        raise not_here("gap and repeat of a schedule", "Temporal has its own rule for clock changes")
    found = ProtoSpec(
        structured_calendar=[_calendar(each) for each in spec.calendars],
        exclude_structured_calendar=[_calendar(each) for each in spec.skip],
        interval=[
            IntervalSpec(
                interval=requests.duration(each.every), phase=requests.duration(each.offset or timedelta())
            )
            for each in spec.intervals
        ],
        cron_string=spec.cron_expressions,
        timezone_name=spec.time_zone_name or "",
    )
    if spec.start_at is not None:
        found.start_time.FromDatetime(spec.start_at)
    if spec.end_at is not None:
        found.end_time.FromDatetime(spec.end_at)
    return found


def _calendar(calendar: ScheduleCalendarSpec) -> StructuredCalendarSpec:
    ranges: dict[str, Any] = {
        name: [_range(each) for each in getattr(calendar, name)] for name in CALENDAR_FIELDS
    }
    return StructuredCalendarSpec(**ranges, comment=calendar.comment or "")


def _range(given: ScheduleRange) -> Range:
    return Range(start=given.start, end=max(given.start, given.end), step=max(given.step, 1))
