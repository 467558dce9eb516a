"""Contract metadata in responses: the capabilities of the worker plane, the `control_plane` envelope of the other."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from penstock.wire.workflows.commands import SUPPORTED

Body = dict[str, Any]

SERVER_CAPABILITIES: Final[Body] = {
    "poll_status": True,
    "query_tasks": True,
    "update_validation_tasks": True,
    "synchronous_update_validation": {
        "supported": True,
        "acceptance_boundary": "validator_approved",
        "worker_capability": "update_validation_tasks",
        "workflow_contract_field": "update_validators",
        "task_poll": {
            "strategy": "multiplexed",
            "endpoint": "/worker/workflow-tasks/poll",
            "request_field": "task_kinds",
            "response_discriminator": "task.task_kind",
            "task_kinds": ["workflow", "update_validation"],
        },
    },
    "long_poll_timeout": 60,
    "history_page_size_default": 500,
    "history_page_size_max": 1000,
    "workflow_task_poll_request_idempotency": True,
    "activity_task_poll_request_idempotency": True,
    "activity_retry_policy": True,
    "activity_timeouts": True,
    "non_retryable_failures": True,
    "child_workflow_retry_policy": True,
    "child_workflow_timeouts": True,
    "parent_close_policy": True,
    "workflow_memo_updates": {"supported": True},
    "response_compression": ["gzip", "deflate"],
    "runtime_external_payload_transport": True,
    "supported_workflow_task_commands": list(SUPPORTED),
    "cooperative_cancellation": True,
    "concurrent_steps": True,
    "task_batches": {"poll": "max_tasks", "reports": "/worker/{kind}-tasks/batch", "hand_back": True},
}

_PROJECTED: Final = [
    "run_id",
    "workflow_type",
    "namespace",
    "business_key",
    "status",
    "status_bucket",
    "is_terminal",
    "task_queue",
    "run_number",
    "run_count",
    "workflow_count",
    "is_current_run",
    "compatibility",
    "started_at",
    "closed_at",
    "last_progress_at",
    "wait_kind",
    "wait_reason",
    "next_page_token",
    "command_id",
    "command_status",
    "command_source",
    "target_scope",
    "outcome",
    "reason",
    "rejection_reason",
    "validation_errors",
    "result",
    "result_envelope",
    "update_id",
    "update_status",
    "wait_for",
    "wait_timed_out",
    "wait_timeout_seconds",
    "blocked_reason",
    "message",
    "diagnostic_status",
]

CONTROL_OPERATIONS: Final[dict[str, Body]] = {
    "list": {"required_fields": [], "success_fields": []},
    "start": {"required_fields": [], "success_fields": ["workflow_id", "outcome"]},
    "describe": {"required_fields": ["workflow_id"], "success_fields": []},
    "list_runs": {"required_fields": ["workflow_id"], "success_fields": []},
    "describe_run": {"required_fields": ["workflow_id"], "success_fields": ["run_id"]},
    "debug_workflow": {"required_fields": ["workflow_id"], "success_fields": ["run_id", "diagnostic_status"]},
    "history": {"required_fields": ["workflow_id", "run_id"], "success_fields": ["next_page_token"]},
    "result": {"required_fields": ["workflow_id"], "success_fields": ["run_id", "status"]},
    "signal": {
        "required_fields": ["workflow_id", "operation_name", "operation_name_field"],
        "success_fields": ["outcome"],
    },
    "query": {
        "required_fields": ["workflow_id", "operation_name", "operation_name_field"],
        "success_fields": ["result"],
    },
    "update": {
        "required_fields": ["workflow_id", "operation_name", "operation_name_field"],
        "success_fields": ["outcome", "update_id"],
    },
    "cancel": {"required_fields": ["workflow_id"], "success_fields": ["outcome"]},
    "terminate": {"required_fields": ["workflow_id"], "success_fields": ["outcome"]},
    "repair": {"required_fields": ["workflow_id"], "success_fields": ["outcome"]},
    "redrive": {"required_fields": ["workflow_id"], "success_fields": ["run_id", "outcome"]},
    "archive": {"required_fields": ["workflow_id"], "success_fields": ["outcome"]},
}
CONTRACT: Final[Body] = {
    "schema": "durable-workflow.v2.control-plane-response.contract",
    "version": 1,
    "legacy_field_policy": "reject_non_canonical",
    "legacy_fields": {
        "query": "query_name",
        "signal": "signal_name",
        "update": "update_name",
        "wait_policy": "wait_for",
    },
}
_NAME_FIELDS: Final = {"query": "query_name", "signal": "signal_name", "update": "update_name"}


def control_body(operation: str, body: Body, path: Mapping[str, str]) -> Body:
    """Add the `control_plane` envelope that command line clients check."""
    facts: Body = {
        "schema": "durable-workflow.v2.control-plane-response",
        "version": 1,
        "operation": operation,
        "workflow_id": body.get("workflow_id", path.get("workflow_id")),
        "contract": CONTRACT | CONTROL_OPERATIONS[operation],
    }
    field = _NAME_FIELDS.get(operation)
    if field is not None:
        facts |= {"operation_name": path.get("name"), "operation_name_field": field}
    facts |= {name: body[name] for name in _PROJECTED if name in body}
    return body | {"control_plane": facts}
