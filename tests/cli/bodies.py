"""Answers as the contract describes them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from penstock.wire.payloads import encode


def ago(**span: float) -> str:
    """An instant in the past, as the server writes it; half a second more keeps the phrase steady."""
    return (datetime.now(UTC) - timedelta(**span) - timedelta(seconds=0.5)).isoformat()


def later(**span: float) -> str:
    """An instant in the future."""
    return (datetime.now(UTC) + timedelta(**span) + timedelta(seconds=30)).isoformat()


def workflow(**changes: Any) -> dict[str, Any]:
    return {
        "workflow_id": "order-1001",
        "run_id": "01RUN",
        "namespace": "orders-prod",
        "workflow_type": "orders.fulfillment",
        "business_key": None,
        "status": "running",
        "status_bucket": "running",
        "is_terminal": False,
        "closed_reason": None,
        "task_queue": "orders",
        "run_number": 1,
        "run_count": 1,
        "input": ["order-1001"],
        "input_envelope": encode(["order-1001"]).envelope(),
        "output": None,
        "output_envelope": None,
        "started_at": ago(minutes=3),
        "closed_at": None,
        "memo": {},
        "search_attributes": {"customer": "acme"},
        "wait_kind": "activity",
        "wait_reason": "Waiting for activity payments.capture",
    } | changes


def completed(result: object) -> dict[str, Any]:
    return workflow(
        status="completed",
        status_bucket="completed",
        is_terminal=True,
        closed_reason="completed",
        closed_at=ago(seconds=1),
        output_envelope=encode(result).envelope(),
    )


HISTORY = [
    {
        "sequence": 1,
        "event_type": "WorkflowStarted",
        "timestamp": "2026-04-22T10:00:00.000000Z",
        "payload": {"workflow_type": "orders.fulfillment", "arguments": encode(["order-1001"]).envelope()},
    },
    {
        "sequence": 2,
        "event_type": "ActivityScheduled",
        "timestamp": "2026-04-22T10:00:00.012000Z",
        "payload": {"sequence": 1, "activity_type": "payments.capture"},
    },
    {
        "sequence": 3,
        "event_type": "ActivityFailed",
        "timestamp": "2026-04-22T10:01:05.500000Z",
        "payload": {
            "sequence": 1,
            "activity_type": "payments.capture",
            "attempt_number": 3,
            "exception_type": "CardDeclined",
            "message": "card declined",
        },
    },
    {
        "sequence": 4,
        "event_type": "WorkflowFailed",
        "timestamp": "2026-04-22T12:03:00.000000Z",
        "payload": {"exception_class": "CardDeclined", "message": "card declined"},
    },
]

ADMISSION: dict[str, Any] = {
    "workflow_tasks": {
        "status": "throttled",
        "active_worker_count": 3,
        "configured_slot_count": 24,
        "leased_count": 8,
        "ready_count": 5,
        "available_slot_count": 16,
        "server_max_active_leases_per_queue": 8,
        "server_active_lease_count": 8,
        "server_remaining_active_lease_capacity": 0,
        "server_max_active_leases_per_namespace": 300,
        "server_namespace_active_lease_count": 149,
        "server_remaining_namespace_active_lease_capacity": 151,
        "server_max_dispatches_per_minute": 120,
        "server_dispatch_count_this_minute": 120,
        "server_remaining_dispatch_capacity": 0,
        "server_max_dispatches_per_minute_per_namespace": 6000,
        "server_namespace_dispatch_count_this_minute": 3520,
        "server_remaining_namespace_dispatch_capacity": 2480,
        "server_dispatch_budget_group": "downstream-openai",
        "server_max_dispatches_per_minute_per_budget_group": 600,
        "server_budget_group_dispatch_count_this_minute": 600,
        "server_remaining_budget_group_dispatch_capacity": 0,
        "server_lock_required": True,
        "server_lock_supported": True,
        "budget_source": "worker_registration.max_concurrent_workflow_tasks",
        "server_budget_source": "server.admission.queue_overrides",
    },
    "activity_tasks": {
        "status": "accepting",
        "configured_slot_count": 36,
        "server_max_active_leases_per_queue": 12,
        "server_remaining_active_lease_capacity": 4,
        "server_max_dispatches_per_minute": 240,
        "server_remaining_dispatch_capacity": 197,
    },
    "query_tasks": {
        "status": "accepting",
        "max_pending_per_queue": 1024,
        "approximate_pending_count": 7,
        "remaining_pending_capacity": 1017,
        "lock_supported": True,
        "budget_source": "server.query_tasks.max_pending_per_queue",
    },
}
"""The example of the seed page on admission, key by key."""


def task_queue(**changes: Any) -> dict[str, Any]:
    counts = {
        "ready_count": 5,
        "leased_count": 1,
        "expired_lease_count": 0,
        "added_last_minute": 9,
        "dispatched_last_minute": 4,
    }
    return {
        "name": "payments",
        "namespace": "production",
        "pollers": [
            {
                "worker_id": "payments-python-1",
                "runtime": "python",
                "build_id": "2026-04-22",
                "last_heartbeat_at": ago(seconds=12),
                "status": "active",
                "is_stale": False,
                "max_concurrent_workflow_tasks": 8,
                "max_concurrent_activity_tasks": 12,
                "available_workflow_slots": 3,
                "available_activity_slots": None,
            }
        ],
        "stats": {
            "approximate_backlog_count": 5,
            "approximate_backlog_age_seconds": 95,
            "oldest_ready_task": {
                "task_id": "t0",
                "task_type": "workflow",
                "workflow_id": "p-9",
                "age_seconds": 95,
            },
            "workflow_tasks": counts,
            "activity_tasks": counts | {"ready_count": 0},
            "pollers": {"active_count": 1, "stale_count": 0, "stale_after_seconds": 60},
            "tasks_added_last_minute": 18,
            "tasks_dispatched_last_minute": 8,
        },
        "current_leases": [
            {
                "task_id": "01TASK",
                "task_type": "workflow",
                "workflow_id": "p-1",
                "run_id": "r",
                "lease_owner": "payments-python-1",
                "lease_expires_at": later(minutes=2),
                "is_expired": False,
                "workflow_task_attempt": 2,
            }
        ],
        "repair": {},
        "admission": ADMISSION,
    } | changes


def shared() -> dict[str, Any]:
    """The counts of a queue that several keys share; its moments are those of this call."""
    return {
        "activity_tasks": {
            "ready_count": 120,
            "backlog_by_priority": [
                {
                    "priority": 5,
                    "priority_key": 3,
                    "backlog_count": 120,
                    "oldest_wait_seconds": 4.2,
                    "key_count": 7,
                }
            ],
            "top_keys": [
                {
                    "fairness_key": "tenant-big",
                    "priority": 5,
                    "priority_key": 3,
                    "backlog_count": 100,
                    "weight": 5.0,
                    "weight_source": "override",
                    "share_asked": 0.5,
                    "share_got": 0.48,
                    "dispatches_last_minute": 60,
                    "oldest_wait_seconds": 4.2,
                    "running": 3,
                    "state": "rate_limited",
                    "open_at": later(minutes=2),
                },
                {
                    "fairness_key": "",
                    "priority": 5,
                    "priority_key": 3,
                    "backlog_count": 20,
                    "weight": 1.0,
                    "weight_source": "default",
                    "share_asked": 0.1,
                    "share_got": None,
                    "dispatches_last_minute": 0,
                    "oldest_wait_seconds": 1.0,
                    "running": None,
                    "state": "ready",
                    "open_at": None,
                },
            ],
            "fairness": True,
            "rate": {"limit": 500.0, "source": "operator", "next_dispatch_at": None},
            "settings": {
                "queue_rps_limit": {
                    "value": 500.0,
                    "reason": "overall limit",
                    "updated_by": "operator",
                    "updated_at": ago(minutes=3),
                }
            },
        }
    }


"""Counts of a queue whose activity tasks are shared and limited."""


def queue_config(**changes: Any) -> dict[str, Any]:
    unset = (
        *("queue_rps_limit", "queue_rps_burst_seconds", "fairness_key_rps_limit_default"),
        *("fairness_key_rps_burst_seconds", "fairness", "fairness_counts", "max_running"),
        *("fairness_key_max_running_default", "aging_wait_seconds", "aging_every", "worker_rps_limit"),
    )
    return (
        {
            "task_queue": "payments",
            "task_queue_type": "activity",
            "namespace": "production",
            "version": 3,
        }
        | dict.fromkeys(unset)
        | {
            "effective": {
                "queue_rps_limit": None,
                "queue_rps_limit_source": "none",
                "fairness": True,
                "fairness_source": "namespace",
            },
            "keys": [],
            "key_count": 0,
        }
        | changes
    )


def made(value: object, reason: str | None = None) -> dict[str, Any]:
    """A setting as it is shown."""
    return {"value": value, "reason": reason, "updated_by": "operator", "updated_at": ago(minutes=3)}


WORKER: dict[str, Any] = {
    "worker_id": "payments-python-1",
    "namespace": "production",
    "task_queue": "payments",
    "runtime": "python",
    "sdk_version": "durable-workflow-python/2.9.0",
    "build_id": None,
    "supported_workflow_types": ["payments.PaymentWorkflow"],
    "supported_activity_types": [],
    "max_concurrent_workflow_tasks": 8,
    "max_concurrent_activity_tasks": 12,
    "status": "active",
    "last_heartbeat_at": "2026-04-22T10:00:00+00:00",
    "registered_at": "2026-04-22T09:00:00+00:00",
    "task_slots": {"workflow_available": 3, "activity_available": 12, "session_available": None},
    "process_metrics": {"process_id": 42, "host": "box"},
    "heartbeat_interval_seconds": 20,
}
