"""Every error a caller can catch, each with its stable `reason`.

Reasons are API: they are added freely and never renamed. An error knows nothing of HTTP; the table from
reason to status lives in `server/problems.py`, and a test keeps it complete.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any, Self


class Reason(StrEnum):
    """Why a request was refused. Automation branches on these words, never on prose."""

    # The request itself
    PAYLOAD_TOO_LARGE = "payload_too_large"
    UNSUPPORTED_MEDIA_TYPE = "unsupported_media_type"
    UNSUPPORTED_CONTENT_ENCODING = "unsupported_content_encoding"
    MALFORMED_JSON = "malformed_json"
    MALFORMED_REQUEST = "malformed_request"
    HEAD_TOO_LARGE = "head_too_large"
    REQUEST_TIMEOUT = "request_timeout"
    VALIDATION_FAILED = "validation_failed"
    NOT_FOUND = "not_found"
    METHOD_NOT_ALLOWED = "method_not_allowed"
    MISDIRECTED_HOST = "misdirected_host"
    TOKEN_IN_URL = "token_in_url"

    # Who asks
    UNAUTHORIZED = "unauthorized"
    SIGNATURE_INVALID = "signature_invalid"
    SIGNATURE_STALE = "signature_stale"
    SIGNATURE_REPLAYED = "signature_replayed"
    FORBIDDEN = "forbidden"
    TOO_MANY_AUTH_FAILURES = "too_many_auth_failures"

    # Which protocol
    MISSING_CONTROL_PLANE_VERSION = "missing_control_plane_version"
    UNSUPPORTED_CONTROL_PLANE_VERSION = "unsupported_control_plane_version"
    MISSING_PROTOCOL_VERSION = "missing_protocol_version"
    UNSUPPORTED_PROTOCOL_VERSION = "unsupported_protocol_version"

    # Namespaces
    NAMESPACE_NOT_FOUND = "namespace_not_found"
    NAMESPACE_ALREADY_EXISTS = "namespace_already_exists"
    NAMESPACE_NOT_EMPTY = "namespace_not_empty"
    NAMESPACE_PROTECTED = "namespace_protected"

    # Workflows, runs and standalone activities
    INSTANCE_NOT_FOUND = "instance_not_found"
    RUN_NOT_FOUND = "run_not_found"
    INSTANCE_ALREADY_STARTED = "instance_already_started"
    RUN_NOT_ACTIVE = "run_not_active"
    RUN_IS_ENDING = "run_is_ending"
    RUN_NOT_CLOSED = "run_not_closed"
    HISTORICAL_RUN_COMMAND_REJECTED = "historical_run_command_rejected"
    RUN_NOT_REDRIVABLE = "run_not_redrivable"
    ANOTHER_RUN_OPEN = "another_run_open"
    RUN_IN_USE = "run_in_use"
    NOT_A_DECISION_POINT = "not_a_decision_point"
    RUN_NOT_COPYABLE = "run_not_copyable"
    ACTIVITY_NOT_ACTIVE = "activity_not_active"
    ACTIVITY_RUNNING = "activity_running"
    ACTIVITY_NOT_FOUND = "activity_not_found"
    INVALID_PAGE_TOKEN = "invalid_page_token"
    INVALID_QUERY = "invalid_query"
    STRUCTURAL_LIMIT_EXCEEDED = "structural_limit_exceeded"

    # Schedules
    SCHEDULE_NOT_FOUND = "schedule_not_found"
    SCHEDULE_ALREADY_EXISTS = "schedule_already_exists"
    SCHEDULE_VERSION_CONFLICT = "schedule_version_conflict"
    ZONE_DATA_OUTDATED = "zone_data_outdated"
    INVALID_TIME_RANGE = "invalid_time_range"
    BACKFILL_TOO_LARGE = "backfill_too_large"
    INVALID_AFTER_SEQUENCE = "invalid_after_sequence"
    MEMO_TOO_LARGE = "memo_too_large"

    # Talking to a run
    UNKNOWN_SIGNAL = "unknown_signal"
    INVALID_SIGNAL_ARGUMENTS = "invalid_signal_arguments"
    UPDATE_NOT_FOUND = "update_not_found"
    INVALID_QUERY_ARGUMENTS = "invalid_query_arguments"
    UNKNOWN_UPDATE = "unknown_update"
    INVALID_UPDATE_ARGUMENTS = "invalid_update_arguments"
    UPDATE_FAILED = "update_failed"
    REQUEST_ID_CONFLICT = "request_id_conflict"
    COOPERATIVE_CANCELLATION_NOT_SUPPORTED = "cooperative_cancellation_not_supported"

    # Bridge adapters and webhooks
    UNKNOWN_TARGET = "unknown_target"
    AUTH_FAILED = "auth_failed"
    SIGNATURE_MISSING = "signature_missing"
    MALFORMED_PAYLOAD = "malformed_payload"
    MAPPING_VALUE_MISSING = "mapping_value_missing"
    DUPLICATE_START = "duplicate_start"
    UNSUPPORTED_ROUTING = "unsupported_routing"
    UNSUPPORTED_ACTION = "unsupported_action"
    ADAPTER_UNAVAILABLE = "adapter_unavailable"

    # Streams
    WORKFLOW_STREAM_NOT_FOUND = "workflow_stream_not_found"
    WORKFLOW_STREAM_CLOSED = "workflow_stream_closed"
    WORKFLOW_STREAM_FULL = "workflow_stream_full"

    # Validation of updates
    UPDATE_VALIDATOR_REJECTED = "update_validator_rejected"
    UPDATE_VALIDATOR_WORKER_UNAVAILABLE = "update_validator_worker_unavailable"
    UPDATE_VALIDATOR_WORKER_INCOMPATIBLE = "update_validator_worker_incompatible"
    UPDATE_VALIDATION_CAPABILITY_UNSUPPORTED = "update_validation_capability_unsupported"
    UPDATE_VALIDATION_TASK_NOT_CLAIMED = "update_validation_task_not_claimed"
    UPDATE_VALIDATION_EXECUTION_TIMEOUT = "update_validation_execution_timeout"
    UPDATE_VALIDATION_WORKER_FAILED = "update_validation_worker_failed"
    UPDATE_VALIDATION_TASK_NOT_FOUND = "update_validation_task_not_found"
    UPDATE_VALIDATION_TASK_NOT_LEASED = "update_validation_task_not_leased"
    UPDATE_VALIDATION_LEASE_EXPIRED = "update_validation_lease_expired"
    STALE_UPDATE_VALIDATION_COMPLETION = "stale_update_validation_completion"

    # External payloads
    EXTERNAL_STORAGE_NOT_CONFIGURED = "external_storage_not_configured"
    EXTERNAL_STORAGE_DISABLED = "external_storage_disabled"
    STORAGE_DRIVER_UNAVAILABLE = "storage_driver_unavailable"
    EXTERNAL_PAYLOAD_NOT_FOUND = "external_payload_not_found"
    EXTERNAL_PAYLOAD_EXPIRED = "external_payload_expired"
    EXTERNAL_PAYLOAD_UNAVAILABLE = "external_payload_unavailable"
    EXTERNAL_PAYLOAD_OVERSIZED = "external_payload_oversized"
    EXTERNAL_PAYLOAD_UNSUPPORTED = "external_payload_unsupported"
    EXTERNAL_PAYLOAD_INTEGRITY_MISMATCH = "external_payload_integrity_mismatch"

    # Search attributes
    NAME_RESERVED = "name_reserved"
    ATTRIBUTE_ALREADY_EXISTS = "attribute_already_exists"
    SYSTEM_ATTRIBUTE = "system_attribute"
    ATTRIBUTE_NOT_FOUND = "attribute_not_found"
    SEARCH_ATTRIBUTE_LIMIT_REACHED = "search_attribute_limit_reached"

    # Caps on runs
    RUN_CAP_REACHED = "run_cap_reached"
    RUN_CAP_CONTRADICTION = "run_cap_contradiction"

    # Unique keys
    UNIQUE_KEY_HELD = "unique_key_held"

    # Settings of task queues
    CONFIG_VERSION_CONFLICT = "config_version_conflict"
    CHANGE_SET_NOT_FOUND = "change_set_not_found"
    CHANGE_SET_STALE = "change_set_stale"
    CHANGE_SET_STATE_CONFLICT = "change_set_state_conflict"
    CHANGE_NEEDS_APPROVAL = "change_needs_approval"
    CHANGE_PLAN_MOVED = "change_plan_moved"
    OWN_CHANGE_SET = "own_change_set"
    SIMULATION_NOT_FOUND = "simulation_not_found"
    TOO_MANY_SIMULATIONS = "too_many_simulations"
    TOO_MANY_FAIRNESS_KEYS = "too_many_fairness_keys"
    RATE_LIMIT_NOT_FOR_WORKFLOW_TASKS = "rate_limit_not_for_workflow_tasks"
    OVERRIDE_CONFLICT = "override_conflict"

    # Workers and polls
    WORKER_NOT_FOUND = "worker_not_found"
    WORKER_NOT_REGISTERED = "worker_not_registered"
    WORKFLOW_DEFINITION_CHANGED = "workflow_definition_changed"
    TASK_QUEUE_MISMATCH = "task_queue_mismatch"
    BUILD_ID_MISMATCH = "build_id_mismatch"
    WORKER_DRAINING = "worker_draining"
    LONG_POLL_CAPACITY_EXHAUSTED = "long_poll_capacity_exhausted"

    # Leases
    TASK_NOT_FOUND = "task_not_found"
    TASK_NOT_LEASED = "task_not_leased"
    TASK_NOT_STARTED = "task_not_started"
    LEASE_EXPIRED = "lease_expired"
    LEASE_OWNER_MISMATCH = "lease_owner_mismatch"
    WORKFLOW_TASK_ATTEMPT_MISMATCH = "workflow_task_attempt_mismatch"
    COMPLETION_CONFLICT = "completion_conflict"
    RUN_CLOSED = "run_closed"
    RUN_ALREADY_CLOSED = "run_already_closed"
    RUN_TIMED_OUT = "run_timed_out"
    RUN_CANCELLED = "run_cancelled"
    RUN_TERMINATED = "run_terminated"
    INVALID_COMMANDS = "invalid_commands"
    CANCELLATION_NOT_REQUESTED = "cancellation_not_requested"
    CANCELLATION_CALL_MISMATCH = "cancellation_call_mismatch"
    CANCELLATION_CALL_RESOLVED = "cancellation_call_resolved"
    ATTEMPT_NOT_FOUND = "attempt_not_found"
    TASK_MISMATCH = "task_mismatch"
    STALE_ATTEMPT = "stale_attempt"
    ACTIVITY_CANCELLED = "activity_cancelled"
    HISTORY_NOT_AVAILABLE = "history_not_available"

    # Queries
    REJECTED_UNKNOWN_QUERY = "rejected_unknown_query"
    QUERY_REJECTED = "query_rejected"
    QUERY_WORKFLOW_STATE_UNAVAILABLE = "query_workflow_state_unavailable"
    QUERY_WORKER_UNAVAILABLE = "query_worker_unavailable"
    QUERY_WORKER_TIMEOUT = "query_worker_timeout"
    QUERY_TASK_QUEUE_FULL = "query_task_queue_full"
    QUERY_TASK_QUEUE_UNAVAILABLE = "query_task_queue_unavailable"
    QUERY_TASK_NOT_FOUND = "query_task_not_found"
    QUERY_TASK_NOT_LEASED = "query_task_not_leased"
    QUERY_TASK_ATTEMPT_MISMATCH = "query_task_attempt_mismatch"

    # The server's own state
    SERVER_ERROR = "server_error"
    SERVER_DRAINING = "server_draining"
    STORE_UNAVAILABLE = "store_unavailable"
    COORDINATION_UNAVAILABLE = "coordination_unavailable"
    OUTCOME_UNKNOWN = "outcome_unknown"
    STORAGE_FULL = "storage_full"
    ARCHIVE_UNAVAILABLE = "archive_unavailable"
    JOURNAL_OFF = "journal_off"

    # Start-up (the command line shows these; they never cross HTTP)
    CONFIGURATION_INVALID = "configuration_invalid"
    PORT_IN_USE = "port_in_use"
    STORE_IN_USE = "store_in_use"
    SCHEMA_TOO_NEW = "schema_too_new"
    SCHEMA_OUTDATED = "schema_outdated"
    STORE_DAMAGED = "store_damaged"


class PenstockError(Exception):
    """Base of all: `reason` for programs, `message` for people, `details` for both."""

    def __init__(self, reason: Reason, message: str, **details: Any) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message
        self.details: Mapping[str, Any] = details

    def __str__(self) -> str:
        return f"{self.message} [{self.reason}]"

    def with_details(self, **more: Any) -> Self:
        """A copy with details about one caller's request.

        One error may be raised to several callers; details of one request must not reach the others.
        """
        copy = self.__class__.__new__(self.__class__)
        Exception.__init__(copy, self.message)
        copy.reason, copy.message = self.reason, self.message
        copy.details = {**more, **self.details}
        return copy


class InvalidInput(PenstockError):
    """The request cannot be understood or breaks a bound. Nothing was written; correct it and send again."""


class ValidationFailed(InvalidInput):
    """One or more fields are missing, malformed, too large or out of bounds; `errors` names each of them."""

    def __init__(self, errors: Mapping[str, list[str]], message: str | None = None) -> None:
        first = next(iter(errors.items()), ("request", ["is not valid"]))
        text = message or f"The request is not valid: {first[0]}: {first[1][0]}"
        super().__init__(Reason.VALIDATION_FAILED, text, errors=dict(errors), validation_errors=dict(errors))


class Unauthenticated(PenstockError):
    """The credential is missing or unknown. The message reveals nothing about what exists."""


class Forbidden(PenstockError):
    """The credential's role does not allow this operation."""


class NotFound(PenstockError):
    """The thing named does not exist in this namespace."""


class Conflict(PenstockError):
    """The request is well formed but the present state forbids it. Nothing was written."""


class LeaseLost(Conflict):
    """The caller's lease ended, so its report changed nothing.

    The task is, or will be, someone else's. Drop the result; do not retry.
    """


class Exhausted(PenstockError):
    """A bounded queue or a rate limit is exhausted. Wait as long as the details say, then retry."""


class Unavailable(PenstockError):
    """The server cannot serve this now. `outcome` in the details says whether anything may have happened."""


class ConfigurationError(PenstockError):
    """The configuration is invalid; the message names the setting and a valid value."""

    def __init__(self, message: str, **details: Any) -> None:
        super().__init__(Reason.CONFIGURATION_INVALID, message, **details)


class MultipleValidationErrors(ConfigurationError):
    """A configuration has several problems; `errors` lists them."""

    def __init__(self, what: str, errors: Sequence[ConfigurationError]) -> None:
        self.what, self.errors = what, list(errors)
        listed = "".join(f"\n  - {each.message}" for each in self.errors)
        super().__init__(f"{len(self.errors)} problems in {what}:{listed}")


class StoreRefused(PenstockError):
    """The database cannot be used as it is: in use, too new, too old or damaged. The message says what to do."""
