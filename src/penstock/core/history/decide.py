"""State and commands to events: what one completed workflow task makes of its run."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, assert_never

from penstock.core.history import groups
from penstock.core.history.commands import (
    Command,
    CompleteWorkflow,
    FailWorkflow,
    ScheduleActivity,
    StartTimer,
)
from penstock.core.history.events import CODEC, EventType
from penstock.core.model import (
    Activity,
    ActivityId,
    ActivityTimeouts,
    Event,
    RetryPolicy,
    Run,
    RunStatus,
    Standing,
    Timer,
    TimerId,
    task_id,
)
from penstock.core.scheduling.retries import waiting_deadline_at_ms
from penstock.core.timers import iso
from penstock.errors import Conflict, InvalidInput, Reason


@dataclass(frozen=True, slots=True)
class Bounds:
    """How much one run may have open, and how long its history may grow."""

    open_activities_max: int
    open_timers_max: int
    events_max: int


@dataclass(frozen=True, slots=True)
class Advance:
    """What a workflow task brought about: the run as it is now, and what is new around it."""

    run: Run
    events: tuple[Event, ...] = ()
    activities: tuple[Activity, ...] = ()
    standings: tuple[Standing, ...] = ()
    """Where each activity stands in its queue, in the same order."""
    timers: tuple[Timer, ...] = ()


def advance(run: Run, commands: Sequence[Command], bounds: Bounds, now_ms: int) -> Advance:
    """Apply commands in order. Steps are numbered densely from 1, apart from event sequences.

    Raises `structural_limit_exceeded` before anything is decided when the run would hold too much.
    """
    fresh = [command for command in commands if not _opened_before(run, command)]
    _check_bounds(run, fresh, bounds)
    step = Advance(replace(run, task_failures=0, task_error=None))
    for command in fresh:
        _check_place(step.run, command)
        step = _apply(step, command, now_ms)
    if step.run.is_open:
        step = replace(step, run=replace(step.run, status=RunStatus.WAITING))
    return step


def _opened_before(run: Run, command: Command) -> bool:
    """Whether a group's member was sent again by a worker that looked before its group was complete."""
    step = _step_in_group(command)
    return step is not None and step <= run.last_step


def _check_place(run: Run, command: Command) -> None:
    step = _step_in_group(command)
    if step is not None and step != run.last_step + 1:
        raise Conflict(
            Reason.INVALID_COMMANDS,
            f"A member of a parallel group is numbered {step} where the run's next step is {run.last_step + 1}.",
            expected_sequence=run.last_step + 1,
        )


def _step_in_group(command: Command) -> int | None:
    return groups.step_of(command.extra) if isinstance(command, ScheduleActivity | StartTimer) else None


def _apply(before: Advance, command: Command, now_ms: int) -> Advance:
    match command:
        case ScheduleActivity():
            run = replace(
                before.run,
                last_step=before.run.last_step + 1,
                last_task=before.run.last_task + 1,
                open_activities=before.run.open_activities + 1,
            )
            activity = schedule(run, command, now_ms)
            event = Event(
                EventType.ACTIVITY_SCHEDULED, activity_payload(activity) | {"task_queue": activity.task_queue}
            )
            return replace(
                before,
                run=run,
                events=(*before.events, event),
                activities=(*before.activities, activity),
                standings=(*before.standings, command.wish.over(run.standing)),
            )
        case StartTimer():
            run = replace(
                before.run, last_step=before.run.last_step + 1, open_timers=before.run.open_timers + 1
            )
            timer = Timer(
                timer_id=TimerId(f"{run.run_id}-t{run.last_step}"),
                run_id=run.run_id,
                step=run.last_step,
                delay_s=command.delay_s,
                fire_at_ms=now_ms + command.delay_s * 1000,
                extra=json.dumps(command.extra),
            )
            event = Event(EventType.TIMER_SCHEDULED, timer_payload(timer))
            return replace(before, run=run, events=(*before.events, event), timers=(*before.timers, timer))
        case CompleteWorkflow():
            event = Event(EventType.WORKFLOW_COMPLETED, {"output": command.result, "payload_codec": CODEC})
            run = closed(before.run, RunStatus.COMPLETED, "completed", now_ms)
            return replace(before, run=replace(run, output=command.result), events=(*before.events, event))
        case FailWorkflow():
            payload = {"message": command.message, "failure_category": "application"} | dict(command.extra)
            run = closed(before.run, RunStatus.FAILED, "failed", now_ms)
            event = Event(EventType.WORKFLOW_FAILED, payload)
            return replace(before, run=run, events=(*before.events, event))
        case _:
            assert_never(command)


def schedule(run: Run, command: ScheduleActivity, now_ms: int) -> Activity:
    """An activity at the run's newest step, with the run's newest task number."""
    activity = Activity(
        activity_id=ActivityId(f"{run.run_id}-a{run.last_step}"),
        run_id=run.run_id,
        task_id=task_id(run.run_id, run.last_task),
        step=run.last_step,
        activity_type=command.activity_type,
        task_queue=command.task_queue or run.task_queue,
        arguments=command.arguments,
        retry=command.retry,
        timeouts=command.timeouts,
        extra=json.dumps(command.extra),
        scheduled_at_ms=now_ms,
    )
    return replace(activity, deadline_at_ms=waiting_deadline_at_ms(activity, now_ms))


def closed(run: Run, status: RunStatus, reason: str, now_ms: int) -> Run:
    return replace(run, status=status, closed_reason=reason, closed_at_ms=now_ms, deadline_at_ms=None)


def activity_payload(activity: Activity) -> dict[str, Any]:
    """What every event of an activity's step says."""
    return {
        "activity_execution_id": activity.activity_id,
        "activity_type": activity.activity_type,
        "sequence": activity.step,
        "activity": {
            "id": activity.activity_id,
            "type": activity.activity_type,
            "attempt_count": activity.attempt,
            "retry_policy": retry_snapshot(activity.retry, activity.timeouts),
        },
    } | _extra(activity.extra)


def timer_payload(timer: Timer) -> dict[str, Any]:
    return {
        "timer_id": timer.timer_id,
        "sequence": timer.step,
        "delay_seconds": timer.delay_s,
        "fire_at": iso(timer.fire_at_ms),
    } | _extra(timer.extra)


def retry_snapshot(retry: RetryPolicy, timeouts: ActivityTimeouts) -> dict[str, Any]:
    """The policy as it is delivered with a task."""
    return {
        "snapshot_version": 1,
        "max_attempts": retry.max_attempts,
        "backoff_seconds": list(retry.backoff_s),
        "non_retryable_error_types": list(retry.non_retryable_error_types),
        "start_to_close_timeout": _seconds(timeouts.start_to_close_ms),
        "schedule_to_start_timeout": _seconds(timeouts.schedule_to_start_ms),
        "schedule_to_close_timeout": _seconds(timeouts.schedule_to_close_ms),
        "heartbeat_timeout": _seconds(timeouts.heartbeat_ms),
    }


def _seconds(value_ms: int | None) -> int | None:
    return None if value_ms is None else value_ms // 1000


def _extra(text: str) -> dict[str, Any]:
    return dict(json.loads(text)) if text != "{}" else {}


def _check_bounds(run: Run, commands: Sequence[Command], bounds: Bounds) -> None:
    """A run that has grown to its limit may do nothing more, except end."""
    activities = run.open_activities + sum(isinstance(each, ScheduleActivity) for each in commands)
    timers = run.open_timers + sum(isinstance(each, StartTimer) for each in commands)
    ends = any(isinstance(each, CompleteWorkflow | FailWorkflow) for each in commands)
    events = 0 if ends else run.last_sequence + len(commands)
    for kind, value, most in (
        ("pending_activity_count", activities, bounds.open_activities_max),
        ("pending_timer_count", timers, bounds.open_timers_max),
        ("history_event_count", events, bounds.events_max),
    ):
        if value > most:
            raise InvalidInput(
                Reason.STRUCTURAL_LIMIT_EXCEEDED,
                f"The run would hold {value} where at most {most} are allowed ({kind}). "
                "Do the work in smaller portions.",
                limit_kind=kind,
                current_value=value,
                configured_limit=most,
                outcome="rejected",
            )
