"""Errors of tasks that ended without a result."""

from __future__ import annotations

from penstock.sdk.failures import ActivityError, ActivityFailureError, CancelledError
from penstock.sdk.failures import TimeoutError as ClockRanOut


class TaskError(ActivityFailureError):
    """The task whose result was requested has none; `cause` says why."""

    ended = "failed"

    @property
    def task_id(self) -> str | None:
        return self.activity_id

    def __str__(self) -> str:
        who = "Task" if self.task_id is None else f'Task "{self.task_id}"'
        reason = "" if self.cause is None else str(self.cause)
        return f"{who} {self.ended}: {reason}" if reason else f"{who} {self.ended}"


class TaskFailed(TaskError):
    """All attempts failed; `cause` is the last error."""


class TaskTimedOut(TaskError):
    """It was started and did not end in time."""

    ended = "timed out"


class TaskExpired(TaskError):
    """It was not started in time and will not be."""

    ended = "has expired"


class TaskCancelled(TaskError):
    """It was cancelled."""

    ended = "was cancelled"


def task_error(error: ActivityFailureError) -> TaskError:
    """Return the task error for the failure of the standalone activity behind it."""
    cause = error.cause
    if isinstance(cause, ActivityError) and cause.cause is not None:
        cause = cause.cause
    return _kind(cause)(cause, activity_id=error.activity_id)


def _kind(cause: BaseException | None) -> type[TaskError]:
    if isinstance(cause, CancelledError):
        return TaskCancelled
    if isinstance(cause, ClockRanOut):
        return TaskExpired if cause.kind == "schedule_to_start" else TaskTimedOut
    return TaskFailed
