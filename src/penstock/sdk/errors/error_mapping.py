"""Maps error responses of the server to exceptions."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

from penstock.errors import Reason
from penstock.sdk.converters import DEFAULT, DataConverter
from penstock.sdk.errors.failure_codec import error_from
from penstock.sdk.errors.server_errors import (
    ActivityNotFoundError,
    Busy,
    InvalidRequest,
    LeaseLost,
    NamespaceNotFoundError,
    PermissionDenied,
    QueryFailed,
    QueryRejected,
    RequestIdConflictError,
    ScheduleAlreadyRunningError,
    ScheduleNotFoundError,
    ServerRefused,
    ServerUnavailable,
    SignalRefused,
    Unauthorized,
    UpdateFailedError,
    UpdateRejectedError,
    WorkerNotRegistered,
    WorkflowAlreadyStartedError,
    WorkflowClosedError,
    WorkflowNotFoundError,
)

_REASONS: Final[Mapping[type[ServerRefused], tuple[Reason, ...]]] = {
    WorkflowAlreadyStartedError: (Reason.INSTANCE_ALREADY_STARTED,),
    WorkflowNotFoundError: (Reason.INSTANCE_NOT_FOUND, Reason.RUN_NOT_FOUND),
    WorkflowClosedError: (Reason.RUN_NOT_ACTIVE, Reason.HISTORICAL_RUN_COMMAND_REJECTED),
    ActivityNotFoundError: (Reason.ACTIVITY_NOT_FOUND,),
    ScheduleAlreadyRunningError: (Reason.SCHEDULE_ALREADY_EXISTS,),
    ScheduleNotFoundError: (Reason.SCHEDULE_NOT_FOUND,),
    NamespaceNotFoundError: (Reason.NAMESPACE_NOT_FOUND,),
    SignalRefused: (Reason.UNKNOWN_SIGNAL, Reason.INVALID_SIGNAL_ARGUMENTS),
    QueryRejected: (
        Reason.REJECTED_UNKNOWN_QUERY,
        Reason.INVALID_QUERY_ARGUMENTS,
        Reason.QUERY_REJECTED,
    ),
    QueryFailed: (
        Reason.QUERY_WORKFLOW_STATE_UNAVAILABLE,
        Reason.QUERY_WORKER_UNAVAILABLE,
        Reason.QUERY_WORKER_TIMEOUT,
        Reason.QUERY_TASK_QUEUE_FULL,
        Reason.QUERY_TASK_QUEUE_UNAVAILABLE,
    ),
    UpdateFailedError: (Reason.UPDATE_FAILED,),
    UpdateRejectedError: (
        Reason.UNKNOWN_UPDATE,
        Reason.INVALID_UPDATE_ARGUMENTS,
        Reason.UPDATE_VALIDATOR_REJECTED,
        Reason.UPDATE_VALIDATOR_WORKER_UNAVAILABLE,
        Reason.UPDATE_VALIDATOR_WORKER_INCOMPATIBLE,
        Reason.UPDATE_VALIDATION_CAPABILITY_UNSUPPORTED,
        Reason.UPDATE_VALIDATION_TASK_NOT_CLAIMED,
        Reason.UPDATE_VALIDATION_EXECUTION_TIMEOUT,
        Reason.UPDATE_VALIDATION_WORKER_FAILED,
    ),
    RequestIdConflictError: (Reason.REQUEST_ID_CONFLICT,),
    LeaseLost: (
        Reason.TASK_NOT_FOUND,
        Reason.TASK_NOT_LEASED,
        Reason.LEASE_EXPIRED,
        Reason.LEASE_OWNER_MISMATCH,
        Reason.WORKFLOW_TASK_ATTEMPT_MISMATCH,
        Reason.COMPLETION_CONFLICT,
        Reason.RUN_CLOSED,
        Reason.RUN_ALREADY_CLOSED,
        Reason.RUN_TIMED_OUT,
        Reason.RUN_CANCELLED,
        Reason.RUN_TERMINATED,
        Reason.ATTEMPT_NOT_FOUND,
        Reason.TASK_MISMATCH,
        Reason.STALE_ATTEMPT,
        Reason.ACTIVITY_CANCELLED,
        Reason.QUERY_TASK_NOT_FOUND,
        Reason.QUERY_TASK_NOT_LEASED,
        Reason.QUERY_TASK_ATTEMPT_MISMATCH,
        Reason.UPDATE_VALIDATION_TASK_NOT_FOUND,
        Reason.UPDATE_VALIDATION_TASK_NOT_LEASED,
        Reason.UPDATE_VALIDATION_LEASE_EXPIRED,
        Reason.STALE_UPDATE_VALIDATION_COMPLETION,
    ),
    WorkerNotRegistered: (Reason.WORKER_NOT_REGISTERED,),
    InvalidRequest: (
        Reason.PAYLOAD_TOO_LARGE,
        Reason.MALFORMED_JSON,
        Reason.MALFORMED_REQUEST,
        Reason.VALIDATION_FAILED,
        Reason.INVALID_PAGE_TOKEN,
        Reason.INVALID_QUERY,
        Reason.INVALID_TIME_RANGE,
        Reason.BACKFILL_TOO_LARGE,
        Reason.INVALID_COMMANDS,
        Reason.STRUCTURAL_LIMIT_EXCEEDED,
    ),
}
BY_REASON: Final = MappingProxyType(
    {str(reason): kind for kind, reasons in _REASONS.items() for reason in reasons}
)
_BY_STATUS: Final[Mapping[int, type[ServerRefused]]] = {
    401: Unauthorized,
    403: PermissionDenied,
    429: Busy,
    503: ServerUnavailable,
    507: ServerUnavailable,
}


def refusal(status: int, body: Any, converter: DataConverter = DEFAULT) -> ServerRefused:
    """Return the exception for a response with status 400 or higher, chosen by its reason, then by its status."""
    fields: Mapping[str, Any] = body if isinstance(body, Mapping) else {}
    reason = fields.get("reason")
    if not isinstance(reason, str) or not reason:
        reason = f"http_{status}"
    text = fields.get("message") or fields.get("error")
    message = text if isinstance(text, str) else f"The server answered with status {status}"
    details = {name: value for name, value in fields.items() if name not in ("message", "error", "reason")}
    kind = BY_REASON.get(reason) or _BY_STATUS.get(status, ServerRefused)
    error = kind(reason, f"{message}{_advice(reason, fields)}", status, details)
    if isinstance(error, UpdateFailedError | QueryRejected):
        _explain(error, fields, converter)
    return error


def _advice(reason: str, fields: Mapping[str, Any]) -> str:
    """Return which credentials to pass, where the server's message cannot say so."""
    if reason != Reason.UNAUTHORIZED or fields.get("authentication") != "signature":
        return ""
    profile = ', signature_profile="body"' if fields.get("signature_profile") == "body" else ""
    return (
        f' Give the client a key: Client.connect(signature_key="operator:…"{profile}), worker_signature_key=… for'
        " workers, or DW_OPERATOR_SIGNATURE_KEY and DW_WORKER_SIGNATURE_KEY in the environment."
    )


def _explain(error: ServerRefused, fields: Mapping[str, Any], converter: DataConverter) -> None:
    """Attach the cause that the workflow code reported."""
    failure = fields.get("failure")
    if isinstance(failure, Mapping) and failure:
        error.__cause__ = error_from(failure, converter)
    elif error.reason == Reason.UPDATE_VALIDATOR_REJECTED:
        error.__cause__ = error_from({"message": error.message}, converter)
