"""The outcome of an attempt: completed, failed, or dropped without a report."""

from __future__ import annotations

from types import TracebackType
from typing import Any, Final, Literal

from penstock.sdk.activities.definition import ActivityDefinition
from penstock.sdk.converters import (
    ConversionError,
    DataConverter,
    Envelope,
    ExternalPayloadError,
    UnreadablePayload,
)
from penstock.sdk.failures import ApplicationError, failure_of

Outcome = dict[str, Any]
"""`{"action": "complete", "result", "cost"?}`, `{"action": "fail", "failure", "cost"?}`, `{"action": "drop", …}`,
`{"action": "let_go"}`"""

_AROUND: Final = ("penstock.sdk.activities.", "concurrent.futures.", "asyncio.")

Dropped = Literal["lease_lost", "lease_ended", "worker_shutdown"]
LEASE_ENDED: Final = "lease_ended"
"""A task was dropped before its code started, because its lease had expired by the worker's clock."""
WORKER_SHUTDOWN: Final = "worker_shutdown"
WORKER_CRASHED: Final = "WORKER_CRASHED"
"""Failure type of a task whose process died. Retry policies may name it."""
NOT_BEGUN: Final = "not_begun"
"""Failure code for a process that died before it started the task: the task is not to blame."""


class CompletesAsync(BaseException):
    """Raised by `activity.raise_complete_async`: the function returns, and the activity is completed by others."""


class RemoteFailure(ApplicationError):
    """A failure from another process, ready to be reported."""

    def __init__(self, failure: dict[str, Any], *, cancelled: bool) -> None:
        super().__init__(str(failure["message"]), type=failure.get("type"))
        self.failure, self.cancelled = failure, cancelled


class ProcessDied(ApplicationError):
    """The process died before the function ended, or before it began."""

    def __init__(self, message: str, *, began: bool = True) -> None:
        super().__init__(message, type=WORKER_CRASHED)
        self.began = began


class ArgumentsMismatch(ApplicationError):
    """The function cannot be called with the arguments of the task."""


class UnencodableResult(ApplicationError):
    """The result of the function cannot be encoded."""


def completed(result: Envelope, cost: int | None) -> Outcome:
    return _with_cost({"action": "complete", "result": result}, cost)


def failed(failure: dict[str, Any], cost: int | None = None) -> Outcome:
    return _with_cost({"action": "fail", "failure": failure}, cost)


def let_go() -> Outcome:
    """The attempt goes on without its worker, until others complete it."""
    return {"action": "let_go"}


def dropped(reason: Dropped) -> Outcome:
    return {"action": "drop", "reason": reason}


def failure_body(error: BaseException, converter: DataConverter) -> dict[str, Any]:
    """Return a failure as the server accepts it."""
    if isinstance(error, RemoteFailure):
        return dict(error.failure)
    if isinstance(error, SystemExit):
        error = ApplicationError(f"The activity called sys.exit({error.code!r})", type="SystemExit")
    failure = failure_of(error.with_traceback(_user_frames(error.__traceback__)), converter)
    if isinstance(error, ProcessDied) and not error.began:
        failure |= {"code": NOT_BEGUN}
    if isinstance(error, ArgumentsMismatch):
        failure |= {"kind": "decode_failure"}
    if isinstance(error, UnencodableResult):
        failure |= {"kind": "malformed_output", "malformed_output": True}
    return failure


def _user_frames(whole: TracebackType | None) -> TracebackType | None:
    """Return a traceback without the frames of the SDK."""
    at = whole
    while at is not None and at.tb_frame.f_globals.get("__name__", "").startswith(_AROUND):
        at = at.tb_next
    return at or whole


def cancelled(error: BaseException, converter: DataConverter) -> dict[str, Any]:
    return failure_body(error, converter) | {"cancelled": True}


def timed_out(definition: ActivityDefinition, kind: str, seconds: float) -> dict[str, Any]:
    clock = f"{kind.replace('_', ' ')} timeout"
    return {
        "message": f"{capitalized(definition.label)} was stopped: it exceeded its {clock} of {seconds:g} s",
        "type": "TimeoutError",
        "kind": "timeout",
        "timeout_type": kind,
        "non_retryable": kind == "schedule_to_close",
    }


def decoded_call(
    definition: ActivityDefinition, payload: Any, converter: DataConverter
) -> tuple[list[Any], dict[str, Any]]:
    """Decode the arguments of a task into the parameter types of the function, and its headers.

    A dynamic activity has one argument: all of them as received.
    """
    try:
        if definition.dynamic:
            received, headers = converter.decode_raw_call(payload, what=definition.label)
            return [received], headers
        values, headers = converter.decode_call(payload, definition.arg_types, what=definition.label)
    except ExternalPayloadError as error:
        raise ArgumentsMismatch(str(error), type=error.reason, non_retryable=not error.retryable) from error
    except ConversionError as error:
        is_final = not isinstance(error, UnreadablePayload)  # a worker with another converter may read it
        raise ArgumentsMismatch(str(error), type=type(error).__name__, non_retryable=is_final) from error
    arity_error = definition.arity_error(len(values))
    if arity_error is not None:
        raise ArgumentsMismatch(capitalized(arity_error), type="TypeError", non_retryable=True)
    return values, headers


def encoded_result(definition: ActivityDefinition, value: Any, converter: DataConverter) -> Envelope:
    what = f"the result of {definition.label}"
    try:
        return converter.encode(value, what)
    except ConversionError as error:
        raise UnencodableResult(str(error), type=type(error).__name__, non_retryable=True) from error
    except Exception as error:
        raise UnencodableResult(
            f"{capitalized(what)} cannot be encoded: {error}", type="ConversionError", non_retryable=True
        ) from error


def capitalized(text: str) -> str:
    return text[:1].upper() + text[1:]


def _with_cost(outcome: Outcome, cost: int | None) -> Outcome:
    return outcome if cost is None else outcome | {"cost": cost}
