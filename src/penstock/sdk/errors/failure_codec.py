"""Encodes errors as JSON for reports and histories, and decodes them.

An encoded failure is bounded: in the number of causes, in characters of text, and in bytes of details.
"""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import Callable, Iterator, Mapping
from datetime import timedelta
from itertools import pairwise
from typing import Any, Final, TypeVar

from penstock.sdk.converters import ConversionError, DataConverter
from penstock.sdk.errors.failure_types import (
    ActivityError,
    ActivityThrottled,
    ApplicationError,
    ApplicationErrorCategory,
    CancelledError,
    ChildWorkflowError,
    FailureError,
    RetryState,
    TerminatedError,
    TimeoutError,  # noqa: A004
)
from penstock.sdk.errors.server_errors import WorkflowAlreadyStartedError
from penstock.sdk.errors.tracebacks import bounded, frames_text

CHAIN_MAX: Final = 10
MESSAGE_CHARS_MAX: Final = 10_000
NAME_CHARS_MAX: Final = 255
ENCODED_FAILURE: Final = "Encoded failure"
"""The message of a failure whose text is in a payload."""
_HIDDEN: Final = ("message", "stack_trace")
DETAILS_BYTES_MAX: Final = 262_144
"""Maximum bytes of details, of an error and all its causes together."""
REMOTE: Final = "Raised in a worker (most recent call last):\n"
"""First line of the note that shows where a decoded error was raised. Python prints notes with tracebacks."""
_ANOTHER = "WorkflowAlreadyStarted"


# Encoding


def failure_of(error: BaseException, converter: DataConverter) -> dict[str, Any]:
    """Encode an error with its causes, for the report of a failed activity and the `exception` of a failed workflow."""
    bodies: list[dict[str, Any]] = []
    details_left = DETAILS_BYTES_MAX
    convert = converter.failure_converter
    for each in _chain(error, convert.to_failure):
        body = _body(each)
        if convert.encode_common_attributes:
            body = _with_hidden_text(body, converter)
        details_left -= _add_details(body, each, converter, details_left)
        bodies.append(body)
    for body, cause in pairwise(bodies):
        body["cause"] = cause
    return bodies[0]


def failure_fields(error: BaseException, converter: DataConverter) -> dict[str, Any]:
    """Return the fields of the commands `fail_workflow` and `fail_update`."""
    body = failure_of(error, converter)
    return {
        "message": body["message"],
        "exception_type": body["type"],
        "exception_class": body["class"],
        "exception": body,
        "non_retryable": body["non_retryable"],
    }


def _chain(
    error: BaseException, convert: Callable[[BaseException], BaseException]
) -> Iterator[BaseException]:
    """Yield an error and its causes as they are sent, nearest first."""
    seen: set[int] = set()
    at: BaseException | None = error
    while at is not None and id(at) not in seen and len(seen) < CHAIN_MAX:
        seen.add(id(at))
        sent = convert(at)
        yield sent
        at = _cause(at) if sent is at or sent.__cause__ is None else sent.__cause__


def _with_hidden_text(body: dict[str, Any], converter: DataConverter) -> dict[str, Any]:
    """Return a failure whose message and stack trace are in a payload."""
    hidden = {name: body[name] for name in _HIDDEN if name in body}
    shown = {name: value for name, value in body.items() if name not in _HIDDEN}
    return shown | {
        "message": ENCODED_FAILURE,
        "encoded_attributes": converter.encode(hidden, "message and stack trace of a failure"),
    }


def _with_shown_text(body: Mapping[str, Any], converter: DataConverter) -> Mapping[str, Any]:
    """Return a failure with the message and stack trace that its sender put into a payload, if they can be read."""
    envelope = body.get("encoded_attributes")
    if envelope is None:
        return body
    try:
        shown = converter.decode(envelope, dict[str, str])
    except ConversionError:
        return body
    return {**body, **{name: shown[name] for name in _HIDDEN if name in shown}}


def _cause(error: BaseException) -> BaseException | None:
    if error.__cause__ is not None:
        return error.__cause__
    if isinstance(error, BaseExceptionGroup):
        return error.exceptions[0]
    return None if error.__suppress_context__ else error.__context__


def _body(error: BaseException) -> dict[str, Any]:
    kind = type(error)
    body: dict[str, Any] = {
        "message": _head(message_of(error), MESSAGE_CHARS_MAX),
        "type": _head(kind.__name__, NAME_CHARS_MAX),
        "class": _head(f"{kind.__module__}.{kind.__qualname__}", NAME_CHARS_MAX),
        "non_retryable": False,
    }
    stack = stack_of(error)
    if stack:
        body["stack_trace"] = stack
    if isinstance(error, FailureError):
        body |= _own_fields(error)
    elif isinstance(error, asyncio.CancelledError):
        body |= {"kind": "cancelled", "cancelled": True}
    return body


def _own_fields(error: FailureError) -> dict[str, Any]:
    """Return the fields that an SDK error has beyond its message."""
    match error:
        case ApplicationError():
            return _application(error)
        case ActivityThrottled():
            return _throttled(error)
        case ActivityError():
            names = ("activity_type", "activity_id", "attempt", "retry_state")
            return {"kind": "activity"} | _attributes(error, names)
        case ChildWorkflowError():
            names = ("workflow_type", "workflow_id", "run_id", "retry_state")
            return {"kind": "child_workflow"} | _attributes(error, names)
        case TimeoutError():
            timeout = {} if error.kind is None else {"timeout_type": _head(error.kind, NAME_CHARS_MAX)}
            return {"kind": "timeout"} | timeout
        case CancelledError():
            return {"kind": "cancelled", "cancelled": True}
        case TerminatedError():
            return {"kind": "terminated"}
        case WorkflowAlreadyStartedError():
            return {"kind": "already_started"} | _attributes(
                error, ("workflow_id", "workflow_type", "run_id")
            )
        case _:
            return {}


def _throttled(error: ActivityThrottled) -> dict[str, Any]:
    retry = {} if error.retry_after is None else {"retry_after_seconds": error.retry_after.total_seconds()}
    return {"kind": "throttled", "throttled": True} | retry


def _application(error: ApplicationError) -> dict[str, Any]:
    body: dict[str, Any] = {"kind": "application", "non_retryable": bool(error.non_retryable)}
    name = error.type or type(error).__name__
    body["type"] = _head(name, NAME_CHARS_MAX)
    if error.type:
        body["class"] = _head(error.origin or error.type, NAME_CHARS_MAX)
    if error.category is ApplicationErrorCategory.BENIGN:
        body["category"] = error.category.value
    if error.next_retry_delay is not None:
        body["next_retry_delay_seconds"] = error.next_retry_delay.total_seconds()
    return body


def _attributes(error: FailureError, names: tuple[str, ...]) -> dict[str, Any]:
    values = {name: getattr(error, name) for name in names}
    return {name: str(value) if isinstance(value, str) else value for name, value in values.items() if value}


def _add_details(body: dict[str, Any], error: BaseException, converter: DataConverter, left: int) -> int:
    """Add the details of an error, or the reason why they are omitted. Returns the bytes used."""
    try:
        given = getattr(error, "details", ()) if isinstance(error, FailureError) else ()
        if not isinstance(given, tuple) or not given:
            return 0
        envelope = converter.encode(list(given), f"details of {body['type']}")
    except ConversionError as refusal:
        body["details_left_out"] = _head(str(refusal), 1_000)
        return 0
    size = len(envelope["blob"])
    if size > left:
        body["details_left_out"] = (
            f"They take {size:,} bytes, and all details of a failure may take {left:,} here"
        )
        return 0
    body["details"] = envelope
    return size


def message_of(error: BaseException) -> str:
    """Return the message of an error as it is recorded: with its notes, and with the members of a group."""
    try:
        message = str(error) if not isinstance(error, ApplicationError) else error.message
    except Exception as broken:
        message = f"(its message cannot be built: {type(broken).__name__})"
    if isinstance(error, BaseExceptionGroup):
        message += ": " + "; ".join(_named(each) for each in error.exceptions[:CHAIN_MAX])
    notes = [note for note in getattr(error, "__notes__", ()) if _belongs_to_message(note)]
    return "\n".join([message or type(error).__name__, *notes])


def _belongs_to_message(note: object) -> bool:
    """Whether a note belongs to the message. A remote traceback does not; it is sent separately."""
    return isinstance(note, str) and not note.startswith(REMOTE)


def _named(error: BaseException) -> str:
    """Return a member of a group in one line, without the module of its class."""
    line = traceback.format_exception_only(error)[-1].strip()
    return line.removeprefix(f"{type(error).__module__}.")


def stack_of(error: BaseException) -> str | None:
    """Return the frames in which the error was raised, including those of another process."""
    stack = error.stack_trace if isinstance(error, FailureError) else None
    if stack is None:
        stack = frames_text(error)
    return None if stack is None else bounded(_clean(stack))


def _head(text: str, limit: int) -> str:
    text = _clean(text)
    return text if len(text) <= limit else f"{text[: limit - 1]}…"


def _clean(text: str) -> str:
    """Remove characters that not every store and JSON parser accepts."""
    return text.replace("\x00", "\\x00").encode("utf-8", "backslashreplace").decode("utf-8")


# Decoding


def error_from(
    payload: Mapping[str, Any], converter: DataConverter, *, event_type: str | None = None
) -> FailureError:
    """Return the error that an event describes, with its causes.

    Without `event_type` it is chosen by the payload's fields.
    """
    ending = _ending(payload, event_type)
    if _text(payload, "child_workflow_type") is not None:
        return _child(payload, ending, converter)
    if _text(payload, "activity_type") is not None and _text(payload, "kind") is None:
        return _activity(payload, ending, converter)
    return _ended(payload, ending, converter)


def _ending(payload: Mapping[str, Any], event_type: str | None) -> str:
    """Return how something ended: failed, timed_out, cancelled or terminated."""
    name = event_type or ""
    closed, category = payload.get("closed_reason"), payload.get("failure_category")
    if _text(payload, "timeout_kind") is not None or name.endswith("TimedOut") or category == "timeout":
        return "timed_out"
    for word in ("cancelled", "terminated"):
        if name.endswith(word.capitalize()) or (not name and word in (closed, category)):
            return word
    return "failed"


def _ended(payload: Mapping[str, Any], ending: str, converter: DataConverter) -> FailureError:
    """Return the error itself, without the activity or child workflow that it happened to."""
    match ending:
        case "timed_out":
            message = _text(payload, "message", "reason", "closed_reason")
            kind = _text(payload, "timeout_kind", "timeout_type")
            error: FailureError = TimeoutError(message or "Timed out", kind)
        case "cancelled":
            error = CancelledError(_text(payload, "reason", "message", "closed_reason") or "Cancelled")
        case "terminated":
            error = TerminatedError(_text(payload, "reason", "message", "closed_reason") or "Terminated")
        case _:
            return _restored(_exception_of(payload), converter, CHAIN_MAX)
    error.failure = payload
    return error


def _exception_of(payload: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return an exception in neutral form, from its object and the fields beside it."""
    inner = payload.get("exception")
    exception: dict[str, Any] = dict(inner) if isinstance(inner, Mapping) else {}
    if not isinstance(inner, Mapping) and ("type" in payload or "kind" in payload):
        exception = dict(payload)
    beside = {
        "message": payload.get("message") or payload.get("failure_message"),
        "type": payload.get("exception_type"),
        "class": payload.get("exception_class"),
        "non_retryable": payload.get("non_retryable"),
    }
    return {name: value for name, value in beside.items() if value is not None} | {
        name: value for name, value in exception.items() if value is not None
    }


def _activity(payload: Mapping[str, Any], ending: str, converter: DataConverter) -> ActivityError:
    cause = converter.failure_converter.from_failure(_ended(payload, ending, converter))
    name = _text(payload, "activity_type")
    error = ActivityError(
        f'Activity "{name}" {_VERBS[ending]}',
        activity_type=name,
        activity_id=_text(payload, "activity_execution_id"),
        attempt=_attempt(payload),
        retry_state=_retry_state(payload, ending),
    )
    return _with_cause(error, cause, payload)


def _child(payload: Mapping[str, Any], ending: str, converter: DataConverter) -> FailureError:
    name, workflow_id = _text(payload, "child_workflow_type"), _text(payload, "child_workflow_instance_id")
    if payload.get("exception_type") == _ANOTHER and ending == "failed":
        named = {"workflow_id": workflow_id, "workflow_type": name}
        message = _text(payload, "message") or "The workflow id is in use"
        return WorkflowAlreadyStartedError(message=message, details=named)
    error = ChildWorkflowError(
        f'Child workflow "{name}" {_VERBS[ending]}',
        workflow_type=name,
        workflow_id=workflow_id,
        run_id=_text(payload, "child_closing_run_id") or _text(payload, "child_workflow_run_id"),
        retry_state=_retry_state(payload, ending),
    )
    cause = converter.failure_converter.from_failure(_ended(payload, ending, converter))
    return _with_cause(error, cause, payload)


_VERBS: Final = {
    "failed": "failed",
    "timed_out": "timed out",
    "cancelled": "was cancelled",
    "terminated": "was terminated",
}


def _attempt(payload: Mapping[str, Any]) -> int | None:
    number = payload.get("attempt_number")
    if not isinstance(number, int) and isinstance(activity := payload.get("activity"), Mapping):
        number = activity.get("attempt_count")
    return number if isinstance(number, int) else None


def _retry_state(payload: Mapping[str, Any], ending: str) -> RetryState | None:
    """Return why there was no further retry, as far as the event says."""
    if ending in ("cancelled", "terminated"):
        return RetryState.CANCEL_REQUESTED if ending == "cancelled" else None
    if payload.get("non_retryable") is True:
        return RetryState.NON_RETRYABLE_FAILURE
    if payload.get("timeout_kind") in ("schedule_to_close", "schedule_to_start"):
        return RetryState.TIMEOUT
    max_attempts, attempt = _max_attempts(payload), _attempt(payload)
    if max_attempts is None or attempt is None or attempt < max_attempts:
        return None
    return RetryState.MAXIMUM_ATTEMPTS_REACHED


def _max_attempts(payload: Mapping[str, Any]) -> int | None:
    activity = payload.get("activity")
    policy = activity.get("retry_policy") if isinstance(activity, Mapping) else None
    number = policy.get("max_attempts") if isinstance(policy, Mapping) else None
    return number if isinstance(number, int) else None


def _restored(body: Mapping[str, Any], converter: DataConverter, left: int) -> FailureError:
    error = _bare(body, converter)
    cause = _cause_of(body)
    if cause is not None and left > 1:
        error.__cause__ = converter.failure_converter.from_failure(_restored(cause, converter, left - 1))
    if body.get("kind") is None and _text(body, "activity_type") is not None:
        return _with_cause(_bare_activity(body), error, body)
    return error


def _cause_of(body: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return the cause, including that of a saga with a failed compensation as another SDK reports it."""
    if isinstance(cause := body.get("cause"), Mapping):
        return cause
    compensation, initiating = body.get("compensation_failure"), body.get("initiating_failure")
    if isinstance(compensation, Mapping):
        return {**compensation, "kind": "application", "cause": initiating}
    return None


def _bare(body: Mapping[str, Any], converter: DataConverter) -> FailureError:
    """Return an error without its causes."""
    body = _with_shown_text(body, converter)
    error = _of_kind(body, converter)
    error.failure = body
    error.stack_trace = _text(body, "stack_trace")
    if error.stack_trace is not None:
        error.add_note(f"{REMOTE}{error.stack_trace.rstrip()}")
    return error


def _of_kind(body: Mapping[str, Any], converter: DataConverter) -> FailureError:
    message = _text(body, "message")
    kind = _text(body, "kind")
    if body.get("cancelled") is True:
        kind = "cancelled"
    if kind in ("cancelled", "cancellation"):
        return CancelledError(message or "Cancelled", *_readable_details(body, converter))
    match kind:
        case "activity":
            return _bare_activity(body)
        case "child_workflow":
            return _bare_child(body)
        case "timeout":
            return TimeoutError(message or "Timed out", _text(body, "timeout_type"))
        case "terminated":
            return TerminatedError(message or "Terminated", *_readable_details(body, converter))
        case "throttled":
            return _bare_throttled(body, message)
        case "already_started":
            return _bare_already_started(body, message)
        case _:
            return _bare_application(body, converter)


def _bare_already_started(body: Mapping[str, Any], message: str | None) -> WorkflowAlreadyStartedError:
    named = {name: body.get(name) for name in ("workflow_id", "workflow_type", "run_id")}
    return WorkflowAlreadyStartedError(message=message or "The workflow id is in use", details=named)


_CATEGORIES: Final[Mapping[Any, ApplicationErrorCategory]] = {
    each.value: each for each in ApplicationErrorCategory
}


def _bare_application(body: Mapping[str, Any], converter: DataConverter) -> ApplicationError:
    name = _text(body, "type")
    error = ApplicationError(
        _text(body, "message") or name or "It failed without a message",
        type=None if name == ApplicationError.__name__ else name,
        non_retryable=body.get("non_retryable") is True,
        next_retry_delay=_pause(body.get("next_retry_delay_seconds")),
        category=_CATEGORIES.get(body.get("category"), ApplicationErrorCategory.UNSPECIFIED),
    )
    error.origin = _text(body, "class")
    try:
        error._details = _details(body, converter)
    except ConversionError as refusal:
        error._details = refusal
    return error


def _bare_activity(body: Mapping[str, Any]) -> ActivityError:
    name, attempt = _text(body, "activity_type"), body.get("attempt")
    message = _text(body, "message") if body.get("kind") else None
    return ActivityError(
        message or f'Activity "{name}" failed',
        activity_type=name,
        activity_id=_text(body, "activity_id"),
        attempt=attempt if isinstance(attempt, int) else None,
        retry_state=_known_state(body),
    )


def _bare_child(body: Mapping[str, Any]) -> ChildWorkflowError:
    return ChildWorkflowError(
        _text(body, "message") or "Child workflow failed",
        workflow_type=_text(body, "workflow_type"),
        workflow_id=_text(body, "workflow_id"),
        run_id=_text(body, "run_id"),
        retry_state=_known_state(body),
    )


def _bare_throttled(body: Mapping[str, Any], message: str | None) -> ActivityThrottled:
    try:
        return ActivityThrottled(body.get("retry_after_seconds"), message)
    except (TypeError, ValueError):
        return ActivityThrottled(None, message)


def _known_state(body: Mapping[str, Any]) -> RetryState | None:
    state = _text(body, "retry_state")
    return RetryState(state) if state in set(RetryState) else None


def _pause(seconds: object) -> timedelta | None:
    try:
        return timedelta(seconds=seconds) if isinstance(seconds, int | float) else None
    except (OverflowError, ValueError):
        return None


def _details(body: Mapping[str, Any], converter: DataConverter) -> tuple[Any, ...]:
    """Decode details: from an envelope, a bare blob, or plain JSON."""
    sent = body.get("details")
    if sent is None:
        return ()
    in_envelope = isinstance(sent, Mapping) and "codec" in sent
    in_blob = isinstance(sent, str) and body.get("details_payload_codec") is not None
    if in_envelope or in_blob:
        sent = converter.decode(sent, what=f"details of {_text(body, 'type') or 'a failure'}")
    return tuple(sent) if isinstance(sent, list) else (sent,)


def _readable_details(body: Mapping[str, Any], converter: DataConverter) -> tuple[Any, ...]:
    try:
        return _details(body, converter)
    except ConversionError:
        return ()


def _text(body: Mapping[str, Any], *names: str) -> str | None:
    """Return the first of these fields that is a non-empty string."""
    values = (body.get(name) for name in names)
    return next((value for value in values if isinstance(value, str) and value), None)


_Error = TypeVar("_Error", bound=FailureError)


def _with_cause(error: _Error, cause: BaseException | None, body: Mapping[str, Any]) -> _Error:
    error.__cause__ = cause
    error.failure = body
    return error
