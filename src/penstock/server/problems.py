"""One table from reason to HTTP status, and the bodies of refusals."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

from penstock.errors import PenstockError, Reason

STATUS: Final[Mapping[Reason, int]] = MappingProxyType(
    {
        Reason.PAYLOAD_TOO_LARGE: 413,
        Reason.UNSUPPORTED_MEDIA_TYPE: 415,
        Reason.UNSUPPORTED_CONTENT_ENCODING: 415,
        Reason.MALFORMED_JSON: 400,
        Reason.MALFORMED_REQUEST: 400,
        Reason.HEAD_TOO_LARGE: 431,
        Reason.REQUEST_TIMEOUT: 408,
        Reason.VALIDATION_FAILED: 422,
        Reason.NOT_FOUND: 404,
        Reason.METHOD_NOT_ALLOWED: 405,
        Reason.MISDIRECTED_HOST: 421,
        Reason.TOKEN_IN_URL: 400,
        Reason.UNAUTHORIZED: 401,
        Reason.SIGNATURE_INVALID: 401,
        Reason.SIGNATURE_STALE: 401,
        Reason.SIGNATURE_REPLAYED: 401,
        Reason.FORBIDDEN: 403,
        Reason.TOO_MANY_AUTH_FAILURES: 429,
        Reason.MISSING_CONTROL_PLANE_VERSION: 400,
        Reason.UNSUPPORTED_CONTROL_PLANE_VERSION: 400,
        Reason.MISSING_PROTOCOL_VERSION: 400,
        Reason.UNSUPPORTED_PROTOCOL_VERSION: 400,
        Reason.NAMESPACE_NOT_FOUND: 404,
        Reason.NAMESPACE_ALREADY_EXISTS: 409,
        Reason.NAMESPACE_NOT_EMPTY: 409,
        Reason.NAMESPACE_PROTECTED: 409,
        Reason.INSTANCE_NOT_FOUND: 404,
        Reason.RUN_NOT_FOUND: 404,
        Reason.INSTANCE_ALREADY_STARTED: 409,
        Reason.RUN_NOT_ACTIVE: 409,
        Reason.HISTORICAL_RUN_COMMAND_REJECTED: 409,
        Reason.ACTIVITY_NOT_FOUND: 404,
        Reason.INVALID_PAGE_TOKEN: 400,
        Reason.STRUCTURAL_LIMIT_EXCEEDED: 422,
        Reason.CONFIG_VERSION_CONFLICT: 409,
        Reason.TOO_MANY_FAIRNESS_KEYS: 409,
        Reason.RATE_LIMIT_NOT_FOR_WORKFLOW_TASKS: 422,
        Reason.OVERRIDE_CONFLICT: 422,
        Reason.WORKER_NOT_FOUND: 404,
        Reason.WORKER_NOT_REGISTERED: 412,
        Reason.WORKFLOW_DEFINITION_CHANGED: 409,
        Reason.TASK_QUEUE_MISMATCH: 409,
        Reason.BUILD_ID_MISMATCH: 409,
        Reason.WORKER_DRAINING: 409,
        Reason.LONG_POLL_CAPACITY_EXHAUSTED: 429,
        Reason.TASK_NOT_FOUND: 404,
        Reason.TASK_NOT_LEASED: 409,
        Reason.TASK_NOT_STARTED: 409,
        Reason.LEASE_EXPIRED: 409,
        Reason.LEASE_OWNER_MISMATCH: 409,
        Reason.WORKFLOW_TASK_ATTEMPT_MISMATCH: 409,
        Reason.COMPLETION_CONFLICT: 409,
        Reason.RUN_CLOSED: 409,
        Reason.RUN_ALREADY_CLOSED: 409,
        Reason.RUN_TIMED_OUT: 409,
        Reason.RUN_CANCELLED: 409,
        Reason.RUN_TERMINATED: 409,
        Reason.INVALID_COMMANDS: 409,
        Reason.ATTEMPT_NOT_FOUND: 404,
        Reason.TASK_MISMATCH: 409,
        Reason.STALE_ATTEMPT: 409,
        Reason.ACTIVITY_CANCELLED: 409,
        Reason.HISTORY_NOT_AVAILABLE: 404,
        Reason.REJECTED_UNKNOWN_QUERY: 404,
        Reason.QUERY_REJECTED: 409,
        Reason.QUERY_WORKER_UNAVAILABLE: 409,
        Reason.QUERY_WORKER_TIMEOUT: 504,
        Reason.QUERY_TASK_QUEUE_FULL: 429,
        Reason.QUERY_TASK_QUEUE_UNAVAILABLE: 503,
        Reason.QUERY_TASK_NOT_FOUND: 404,
        Reason.QUERY_TASK_NOT_LEASED: 409,
        Reason.QUERY_TASK_ATTEMPT_MISMATCH: 409,
        Reason.SERVER_ERROR: 500,
        Reason.SERVER_DRAINING: 503,
        Reason.STORE_UNAVAILABLE: 503,
        Reason.COORDINATION_UNAVAILABLE: 503,
        Reason.OUTCOME_UNKNOWN: 503,
        Reason.STORAGE_FULL: 507,
        Reason.JOURNAL_OFF: 409,
        Reason.CONFIGURATION_INVALID: 500,
        Reason.STORE_IN_USE: 500,
        Reason.SCHEMA_TOO_NEW: 500,
        Reason.SCHEMA_OUTDATED: 500,
        Reason.STORE_DAMAGED: 500,
    }
)


def status_of(error: PenstockError) -> int:
    return int(error.details.get("http_status", STATUS[error.reason]))


def body_of(error: PenstockError) -> dict[str, Any]:
    """What a refused caller reads: prose under both names that clients look for, the reason, and the details."""
    details = {name: value for name, value in error.details.items() if name != "http_status"}
    return {"message": error.message, "error": error.message, "reason": error.reason.value} | details
