"""Requests that change the options of an open activity."""

from __future__ import annotations

from msgspec.structs import replace

from penstock.core.model import Activity
from penstock.errors import ValidationFailed
from penstock.wire.fields import Milliseconds, Name, Text1000
from penstock.wire.requests import RequestModel, RetryPolicy
from penstock.wire.workflows.commands import activity_timeouts, retry_policy

_OPTIONS = (
    "task_queue",
    "retry_policy",
    "start_to_close_timeout_ms",
    "schedule_to_start_timeout_ms",
    "schedule_to_close_timeout_ms",
    "heartbeat_timeout_ms",
)


class UpdateActivity(RequestModel):
    """New options of an open activity; what is left out stays."""

    task_queue: Name | None = None
    retry_policy: RetryPolicy | None = None
    """Replaces the whole policy."""
    start_to_close_timeout_ms: Milliseconds | None = None
    schedule_to_start_timeout_ms: Milliseconds | None = None
    schedule_to_close_timeout_ms: Milliseconds | None = None
    heartbeat_timeout_ms: Milliseconds | None = None
    reason: Text1000 | None = None


def with_options(activity: Activity, request: UpdateActivity) -> Activity:
    """The activity with the options of a request. Raises `ValidationFailed` if the timeouts do not fit together."""
    limits = activity.timeouts
    timeouts = activity_timeouts(
        request.start_to_close_timeout_ms or limits.start_to_close_ms,
        request.schedule_to_start_timeout_ms or limits.schedule_to_start_ms,
        request.schedule_to_close_timeout_ms or limits.schedule_to_close_ms,
        request.heartbeat_timeout_ms or limits.heartbeat_ms,
    )
    return replace(
        activity,
        task_queue=request.task_queue or activity.task_queue,
        retry=activity.retry if request.retry_policy is None else retry_policy(request.retry_policy),
        timeouts=timeouts,
    )


def check_any_option(request: UpdateActivity) -> None:
    """Raise `ValidationFailed` for a request that changes nothing."""
    if all(getattr(request, name) is None for name in _OPTIONS):
        raise ValidationFailed({"task_queue": [f"is missing; change at least one of {', '.join(_OPTIONS)}"]})
