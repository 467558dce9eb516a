"""Operations of the public contract (control plane v2, worker protocol 1.x).

Third-party clients use these routes, and the contract promises that unknown fields are ignored. They are accepted here
and listed in `warnings`. All other operations are Penstock's own and reject unknown fields, so that a new operation is
strict unless it is listed.

The worker batches are Penstock's own, but their items are reports of the contract. A rejected report fails its task,
so unknown fields in items only cause warnings as well.
"""

from __future__ import annotations

from typing import Final

CONTRACT_OPERATIONS: Final = frozenset(
    {
        # discovery
        "health",
        "ready",
        "cluster_info",
        # namespaces
        "list_namespaces",
        "create_namespace",
        "describe_namespace",
        "update_namespace",
        "set_namespace_external_storage",
        "test_storage",
        "upload_external_payload",
        "fetch_external_payload",
        "delete_namespace",
        # workflows
        "start_workflow",
        "list_workflows",
        "describe_workflow",
        "list_runs",
        "describe_run",
        "read_history",
        "export_history",
        "export_run_history",
        "debug_workflow",
        "debug_run",
        "signal_workflow",
        "signal_run",
        "query_workflow",
        "query_run",
        "update_workflow",
        "update_run",
        "cancel_workflow",
        "cancel_run",
        "request_cancellation",
        "request_run_cancellation",
        "terminate_workflow",
        "terminate_run",
        "repair_workflow",
        "repair_run",
        "redrive_run",
        "archive_workflow",
        "archive_run",
        # streams
        "send_message",
        "list_streams",
        "describe_stream",
        "read_stream",
        "append_to_stream",
        "close_stream",
        # standalone activities
        "start_activity",
        "list_activities",
        "describe_activity",
        # task queues and workers
        "list_task_queues",
        "describe_task_queue",
        "list_build_ids",
        "drain_build_id",
        "resume_build_id",
        "promote_build_id",
        "list_workers",
        "describe_worker",
        "remove_worker",
        # schedules
        "list_schedules",
        "create_schedule",
        "describe_schedule",
        "update_schedule",
        "delete_schedule",
        "pause_schedule",
        "resume_schedule",
        "trigger_schedule",
        "backfill_schedule",
        "read_schedule_history",
        # bridge adapters
        "receive_bridge_event",
        # search attributes
        "list_search_attributes",
        "register_search_attribute",
        "unregister_search_attribute",
        # system
        "read_system_metrics",
        "read_operator_metrics",
        "read_system_health",
        "read_operator_dashboard",
        "read_repair_candidates",
        "repair_pass",
        "read_activity_timeouts",
        "activity_timeouts_pass",
        "read_retention",
        "retention_pass",
        # worker plane
        "register_worker",
        "heartbeat_worker",
        "deregister_worker",
        "poll_workflow_tasks",
        "complete_workflow_task",
        "fail_workflow_task",
        "heartbeat_workflow_task",
        "deliver_cancellation",
        "read_workflow_task_history",
        "report_workflow_tasks",
        "poll_activity_tasks",
        "complete_activity_task",
        "fail_activity_task",
        "heartbeat_activity_task",
        "read_activity_task_status",
        "report_activity_tasks",
        "poll_query_tasks",
        "complete_query_task",
        "fail_query_task",
        "poll_update_validation_tasks",
        "approve_update",
        "reject_update",
    }
)
