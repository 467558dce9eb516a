"""Failures of workflows and activities."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from datetime import timedelta
from enum import StrEnum
from math import isfinite
from typing import Any, Final

from penstock.sdk.converters import ConversionError

RETRY_AFTER_MAX: Final = timedelta(days=1)


class SdkError(Exception):
    """Base class of all errors of the SDK."""


class RetryState(StrEnum):
    """Why there was no further retry."""

    NON_RETRYABLE_FAILURE = "non_retryable_failure"
    MAXIMUM_ATTEMPTS_REACHED = "maximum_attempts_reached"
    RETRY_POLICY_NOT_SET = "retry_policy_not_set"
    TIMEOUT = "timeout"
    CANCEL_REQUESTED = "cancel_requested"


class FailureError(SdkError):
    """An error that is passed between workflows, activities and clients. `cause` is the error that caused it."""

    def __init__(self, message: str = "", *, stack_trace: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.stack_trace = stack_trace
        """Where it was raised, as text, if that was in another process."""
        self.failure: Mapping[str, Any] = {}
        """The encoded failure, if the error was received from the server."""

    @property
    def cause(self) -> BaseException | None:
        return self.__cause__

    def __str__(self) -> str:
        return self.message


class ApplicationErrorCategory(StrEnum):
    """How serious an application error is for those who operate a worker."""

    UNSPECIFIED = "unspecified"
    BENIGN = "benign"
    """Expected: the worker logs it in one line at level DEBUG, without a traceback."""


class ApplicationError(FailureError):
    """A failure raised deliberately by workflow or activity code.

    Any other exception of an activity is received as an `ApplicationError` whose `type` is the name of its class.

    Args:
        message: what went wrong.
        details: values that are sent with the error.
        type: name of the kind of error, for retry policies and callers.
        non_retryable: whether the retry policy must not retry.
        next_retry_delay: delay before the next attempt, in place of that of the retry policy. Servers that do not
            support it use the retry policy.
        category: whether the error is expected, and logged as such.
    """

    def __init__(
        self,
        message: str = "",
        *details: Any,
        type: str | None = None,  # noqa: A002
        non_retryable: bool = False,
        next_retry_delay: timedelta | None = None,
        category: ApplicationErrorCategory = ApplicationErrorCategory.UNSPECIFIED,
    ) -> None:
        super().__init__(message)
        self.type = type
        self.category = ApplicationErrorCategory(category)
        self.non_retryable = non_retryable
        self.next_retry_delay = next_retry_delay
        self.origin: str | None = None
        """The qualified class that was raised, where known."""
        self._details: tuple[Any, ...] | ConversionError = details

    @property
    def details(self) -> tuple[Any, ...]:
        """Values sent with the error. Raises `ConversionError` if they cannot be decoded here."""
        if isinstance(self._details, ConversionError):
            raise self._details
        return self._details

    def __str__(self) -> str:
        return f"{self.type}: {self.message}" if self.type else self.message


class CancelledError(FailureError):
    """An activity, child workflow or workflow was cancelled."""

    def __init__(self, message: str = "Cancelled", *details: Any) -> None:
        super().__init__(message)
        self.details = details


class TerminatedError(FailureError):
    """A workflow was terminated."""

    def __init__(self, message: str = "Terminated", *details: Any) -> None:
        super().__init__(message)
        self.details = details


class TimeoutType(StrEnum):
    """Which timeout of an activity expired."""

    START_TO_CLOSE = "start_to_close"
    SCHEDULE_TO_START = "schedule_to_start"
    SCHEDULE_TO_CLOSE = "schedule_to_close"
    HEARTBEAT = "heartbeat"


class TimeoutError(FailureError):  # noqa: A001
    """A timeout expired. `kind` says which: `start_to_close`, `heartbeat`, `run_timeout` and others."""

    def __init__(self, message: str = "Timed out", kind: str | None = None) -> None:
        super().__init__(message)
        self.kind = kind

    @property
    def type(self) -> TimeoutType | None:
        """The timeout of an activity that expired; None for one of a workflow."""
        return TimeoutType(self.kind) if self.kind in list(TimeoutType) else None


class _RemoteError(FailureError):
    """The failure of something that was called. Its cause says what happened there."""

    def __str__(self) -> str:
        reason = "" if self.cause is None else str(self.cause) or type(self.cause).__name__
        return self.message if not reason or reason in self.message else f"{self.message}: {reason}"


class ActivityError(_RemoteError):
    """An activity called by a workflow failed, timed out or was cancelled; `cause` says which."""

    def __init__(
        self,
        message: str = "Activity failed",
        *,
        activity_type: str | None = None,
        activity_id: str | None = None,
        attempt: int | None = None,
        retry_state: RetryState | None = None,
    ) -> None:
        super().__init__(message)
        self.activity_type = activity_type
        self.activity_id = activity_id
        self.attempt = attempt
        self.retry_state = retry_state


class ChildWorkflowError(_RemoteError):
    """A child workflow failed, timed out, was cancelled or terminated; `cause` says which."""

    def __init__(
        self,
        message: str = "Child workflow failed",
        *,
        workflow_type: str | None = None,
        workflow_id: str | None = None,
        run_id: str | None = None,
        retry_state: RetryState | None = None,
    ) -> None:
        super().__init__(message)
        self.workflow_type = workflow_type
        self.workflow_id = workflow_id
        self.run_id = run_id
        self.retry_state = retry_state


class ActivityThrottled(FailureError):
    """A downstream service refused the activity: no attempt is charged, and its budget group cools down.

    Args:
        retry_after: how long to wait, if the downstream service said so.
        message: what was refused.
    """

    def __init__(self, retry_after: timedelta | float | None = None, message: str | None = None) -> None:
        self.retry_after = _as_timedelta(retry_after)
        pause = "" if self.retry_after is None else f"; it asks for {self.retry_after.total_seconds():g} s"
        super().__init__(f"Throttled upstream{pause}" if message is None else message)
        self.args = (retry_after, message)


def _as_timedelta(retry_after: timedelta | float | None) -> timedelta | None:
    if retry_after is None:
        return None
    if not isinstance(retry_after, timedelta):
        if isinstance(retry_after, bool) or not isinstance(retry_after, int | float):
            raise TypeError(f"retry_after must be a timedelta or seconds, not {type(retry_after).__name__}")
        if not isfinite(retry_after) or abs(retry_after) > RETRY_AFTER_MAX.total_seconds():
            raise ValueError(f"retry_after must be from 0 s to one day, not {retry_after} s")
        retry_after = timedelta(seconds=retry_after)
    if not timedelta(0) <= retry_after <= RETRY_AFTER_MAX:
        raise ValueError(f"retry_after must be from 0 s to one day, not {retry_after}")
    return retry_after


# Errors that a client raises for a workflow or activity whose result it awaits


class WorkflowFailureError(SdkError):
    """The workflow whose result was requested did not complete; `cause` says why."""

    def __init__(
        self, cause: BaseException | None = None, *, workflow_id: str | None = None, run_id: str | None = None
    ) -> None:
        super().__init__(cause)
        self.__cause__ = cause
        self.workflow_id = workflow_id
        self.run_id = run_id

    @property
    def cause(self) -> BaseException | None:
        return self.__cause__

    def __str__(self) -> str:
        return _ended("Workflow", self.workflow_id, self.cause)


class WorkflowContinuedAsNewError(SdkError):
    """The run whose result was requested continued as a new run."""

    def __init__(self, new_run_id: str | None = None) -> None:
        super().__init__(new_run_id)
        self.new_run_id = new_run_id

    @property
    def new_execution_run_id(self) -> str | None:
        """`new_run_id`, by its name in code for Temporal."""
        return self.new_run_id

    def __str__(self) -> str:
        return f"The workflow continued as a new run, {self.new_run_id}"


class ActivityFailureError(SdkError):
    """The standalone activity whose result was requested did not complete; `cause` says why."""

    def __init__(self, cause: BaseException | None = None, *, activity_id: str | None = None) -> None:
        super().__init__(cause)
        self.__cause__ = cause
        self.activity_id = activity_id

    @property
    def cause(self) -> BaseException | None:
        return self.__cause__

    def __str__(self) -> str:
        return _ended("Activity", self.activity_id, self.cause)


def _ended(noun: str, name: str | None, cause: BaseException | None) -> str:
    who = noun if name is None else f'{noun} "{name}"'
    how = {CancelledError: "was cancelled", TerminatedError: "was terminated", TimeoutError: "timed out"}
    verb = next((verb for kind, verb in how.items() if isinstance(cause, kind)), "failed")
    return f"{who} {verb}" if cause is None or not str(cause) else f"{who} {verb}: {cause}"


def is_cancelled_exception(error: BaseException) -> bool:
    """Whether an error is a cancellation: asyncio's, ours, or that of an activity or child workflow.

    Args:
        error: any exception.
    """
    if isinstance(error, ActivityError | ChildWorkflowError):
        return isinstance(error.cause, CancelledError)
    return isinstance(error, asyncio.CancelledError | CancelledError)
