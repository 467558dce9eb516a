"""Errors in both directions.

Eight error classes have the same name here and there, and none is related to its namesake: an `except ActivityError`
of user code catches nothing of Temporal's. So errors are translated wherever they cross: what Temporal raises in
workflow code or to a client becomes ours with its chain of causes, and what user code raises becomes Temporal's before
Temporal sees it.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

import temporalio.exceptions as theirs
from temporalio.api.failure.v1 import Failure
from temporalio.converter import DefaultFailureConverter, PayloadConverter

from penstock.sdk import failures as ours
from penstock.sdk.errors.failure_codec import CHAIN_MAX, REMOTE, message_of, stack_of

_OWN_CANCELLATION: Final = "penstock.CancelledError"
_TYPES: Final = {"ExternalWorkflowExecutionNotFound": "WorkflowNotFound"}
"""Our types for errors that Temporal itself makes, by its types."""
_STACK: Final = "penstock_stack"
"""Attribute of a translated error: where user code raised it. Its own traceback is that of the translation."""
_TIMEOUTS: Final = {
    theirs.TimeoutType.START_TO_CLOSE: "start_to_close",
    theirs.TimeoutType.SCHEDULE_TO_START: "schedule_to_start",
    theirs.TimeoutType.SCHEDULE_TO_CLOSE: "schedule_to_close",
    theirs.TimeoutType.HEARTBEAT: "heartbeat",
}
_TIMEOUT_TYPES: Final = {name: each for each, name in _TIMEOUTS.items()}
_STATES: Final = {
    theirs.RetryState.NON_RETRYABLE_FAILURE: ours.RetryState.NON_RETRYABLE_FAILURE,
    theirs.RetryState.MAXIMUM_ATTEMPTS_REACHED: ours.RetryState.MAXIMUM_ATTEMPTS_REACHED,
    theirs.RetryState.RETRY_POLICY_NOT_SET: ours.RetryState.RETRY_POLICY_NOT_SET,
    theirs.RetryState.TIMEOUT: ours.RetryState.TIMEOUT,
    theirs.RetryState.CANCEL_REQUESTED: ours.RetryState.CANCEL_REQUESTED,
}
_STATES_BACK: Final = {state: each for each, state in _STATES.items()}


class PenstockFailures(DefaultFailureConverter):
    """Records where user code raised an error, as our engine does: without the frames of this package."""

    def to_failure(
        self, exception: BaseException, payload_converter: PayloadConverter, failure: Failure
    ) -> None:
        super().to_failure(exception, payload_converter, failure)
        stack = vars(exception).get(_STACK)
        if stack is not None:
            failure.stack_trace = stack


class FailuresWithoutTracebacks(DefaultFailureConverter):
    """Records no tracebacks."""

    def to_failure(
        self, exception: BaseException, payload_converter: PayloadConverter, failure: Failure
    ) -> None:
        super().to_failure(exception, payload_converter, failure)
        failure.stack_trace = ""


def from_temporal(error: BaseException, left: int = CHAIN_MAX) -> BaseException:
    """Return one of Temporal's errors as ours, with its causes; any other error unchanged."""
    if not isinstance(error, theirs.FailureError):
        return error
    found = _ours(error)
    stack = error.failure.stack_trace if error.failure is not None else ""
    if stack:
        found.stack_trace = stack
        found.add_note(f"{REMOTE}{stack.rstrip()}")
    if error.__cause__ is not None and left > 1:
        found.__cause__ = from_temporal(error.__cause__, left - 1)
    return found


def own_cancellation(error: ours.FailureError) -> theirs.FailureError:
    """Return the error of an activity that cancelled itself: Temporal accepts only cancellations it asked for."""
    return theirs.ApplicationError(message_of(error), type=_OWN_CANCELLATION, non_retryable=True)


def _ours(error: theirs.FailureError) -> ours.FailureError:
    match error:
        case theirs.ApplicationError(type=kind) if kind == _OWN_CANCELLATION:
            return ours.CancelledError(error.message)
        case theirs.ApplicationError():
            return ours.ApplicationError(
                error.message,
                *error.details,
                type=_TYPES.get(error.type or "", error.type) or None,
                non_retryable=error.non_retryable,
                next_retry_delay=error.next_retry_delay,
                category=ours.ApplicationErrorCategory[error.category.name],
            )
        case theirs.CancelledError():
            return ours.CancelledError(error.message or "Cancelled", *error.details)
        case theirs.TerminatedError():
            return ours.TerminatedError(error.message or "Terminated", *error.details)
        case theirs.TimeoutError():
            kind = None if error.type is None else _TIMEOUTS.get(error.type)
            return ours.TimeoutError(error.message or "Timed out", kind)
        case theirs.ActivityError():
            return _activity(error)
        case theirs.ChildWorkflowError():
            return _child(error)
        case theirs.WorkflowAlreadyStartedError():
            named = {"workflow_id": error.workflow_id, "workflow_type": error.workflow_type}
            return ours.WorkflowAlreadyStartedError(
                message=f"The workflow id {error.workflow_id!r} is in use",
                details=named | ({} if error.run_id is None else {"run_id": error.run_id}),
            )
        case _:
            return ours.ApplicationError(error.message, type=type(error).__name__)


def _activity(error: theirs.ActivityError) -> ours.ActivityError:
    return ours.ActivityError(
        f'Activity "{error.activity_type}" {_verb(error)}',
        activity_type=error.activity_type,
        activity_id=error.activity_id,
        retry_state=_state(error),
    )


def _child(error: theirs.ChildWorkflowError) -> ours.ChildWorkflowError:
    return ours.ChildWorkflowError(
        f'Child workflow "{error.workflow_type}" {_verb(error)}',
        workflow_type=error.workflow_type,
        workflow_id=error.workflow_id,
        run_id=error.run_id or None,
        retry_state=_state(error),
    )


def _state(error: theirs.ActivityError | theirs.ChildWorkflowError) -> ours.RetryState | None:
    if isinstance(error.__cause__, theirs.CancelledError):
        return ours.RetryState.CANCEL_REQUESTED
    return None if error.retry_state is None else _STATES.get(error.retry_state)


def _verb(error: theirs.FailureError) -> str:
    match error.__cause__:
        case theirs.TimeoutError():
            return "timed out"
        case theirs.CancelledError():
            return "was cancelled"
        case theirs.TerminatedError():
            return "was terminated"
        case _:
            return "failed"


def to_temporal(error: BaseException, left: int = CHAIN_MAX) -> theirs.FailureError:
    """Return an error of user code as Temporal's, with its causes. Raise it without `from`, which replaces them."""
    if isinstance(error, theirs.FailureError):
        return error
    found = _theirs(error)
    cause = _cause(error)
    found.__cause__ = to_temporal(cause, left - 1) if cause is not None and left > 1 else None
    vars(found)[_STACK] = stack_of(error) or ""
    return found.with_traceback(error.__traceback__)


def _cause(error: BaseException) -> BaseException | None:
    if error.__cause__ is not None:
        return error.__cause__
    if isinstance(error, BaseExceptionGroup):
        return error.exceptions[0]
    return None if error.__suppress_context__ else error.__context__


def _theirs(error: BaseException) -> theirs.FailureError:
    match error:
        case ours.ApplicationError():
            return theirs.ApplicationError(
                message_of(error),
                *_details(error),
                type=error.type or _own_name(error, ours.ApplicationError),
                non_retryable=bool(error.non_retryable),
                next_retry_delay=error.next_retry_delay,
                category=theirs.ApplicationErrorCategory[error.category.name],
            )
        case ours.ActivityThrottled():
            return theirs.ApplicationError(
                error.message, type="ActivityThrottled", next_retry_delay=error.retry_after
            )
        case ours.CancelledError():
            return theirs.CancelledError(error.message, *error.details)
        case asyncio.CancelledError():
            return theirs.CancelledError(str(error) or "Cancelled")
        case ours.TerminatedError():
            return theirs.TerminatedError(error.message, *error.details)
        case ours.TimeoutError():
            kind = _TIMEOUT_TYPES.get(error.kind or "")
            return theirs.TimeoutError(error.message, type=kind, last_heartbeat_details=[])
        case ours.ActivityError() | ours.ChildWorkflowError():
            return _remote(error)
        case _:
            return theirs.ApplicationError(message_of(error), type=type(error).__name__)


def _remote(error: ours.ActivityError | ours.ChildWorkflowError) -> theirs.FailureError:
    """Return the failure of something that was called."""
    state = None if error.retry_state is None else _STATES_BACK.get(error.retry_state)
    if isinstance(error, ours.ActivityError):
        return theirs.ActivityError(
            error.message,
            scheduled_event_id=0,
            started_event_id=0,
            identity="",
            activity_type=error.activity_type or "",
            activity_id=error.activity_id or "",
            retry_state=state,
        )
    return theirs.ChildWorkflowError(
        error.message,
        namespace="",
        workflow_id=error.workflow_id or "",
        run_id=error.run_id or "",
        workflow_type=error.workflow_type or "",
        initiated_event_id=0,
        started_event_id=0,
        retry_state=state,
    )


def _own_name(error: BaseException, base: type) -> str | None:
    """Return the name of a subclass: retry policies may list it."""
    return None if type(error) is base else type(error).__name__


def _details(error: ours.ApplicationError) -> tuple[Any, ...]:
    try:
        return error.details
    except ours.ConversionError:
        return ()
