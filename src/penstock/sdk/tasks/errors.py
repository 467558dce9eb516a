"""How a task that was waited for has ended without a result."""

from __future__ import annotations

from penstock.sdk.failures import ActivityError, ActivityFailureError, CancelledError
from penstock.sdk.failures import TimeoutError as ClockRanOut


class TaskError(ActivityFailureError):
    """The task whose result was asked for has none; `cause` says why."""

    ended = "failed"

    @property
    def task_id(self) -> str | None:
        return self.activity_id

    def __str__(self) -> str:
        who = "Task" if self.task_id is None else f'Task "{self.task_id}"'
        told = "" if self.cause is None else str(self.cause)
        return f"{who} {self.ended}: {told}" if told else f"{who} {self.ended}"


class TaskFailed(TaskError):
    """It raised, as often as it was tried; `cause` is what it raised last."""


class TaskTimedOut(TaskError):
    """It was begun, and did not end in time."""

    ended = "timed out"


class TaskExpired(TaskError):
    """It was not begun while it was good, and is not begun any more."""

    ended = "has expired"


class TaskCancelled(TaskError):
    """Somebody cancelled it."""

    ended = "was cancelled"


def task_error(error: ActivityFailureError) -> TaskError:
    """What the end of a standalone activity means for the task that it is."""
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
