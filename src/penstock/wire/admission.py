"""Admission as an operator reads it: worker slots, server caps, and which of them binds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from penstock.core.model import Queue, QueueStats, TaskKind, Worker
from penstock.core.scheduling.dispatch import Hold, budget
from penstock.wire.rendering import active_workers


def admission(
    stats: Mapping[TaskKind, QueueStats],
    queues: Mapping[TaskKind, Queue],
    workers: list[Worker],
    now_ms: int,
    stale_after_ms: int,
) -> dict[str, Any]:
    """The admission of both task kinds. Of server caps there is the one on running tasks of a queue."""
    active = active_workers(workers, now_ms, stale_after_ms)
    slots = {
        TaskKind.WORKFLOW: sum(w.workflow_slots for w in active),
        TaskKind.ACTIVITY: sum(w.activity_slots for w in active),
    }
    return {
        f"{kind.value}_tasks": _section(
            kind,
            stats.get(kind, QueueStats()),
            active,
            slots[kind],
            _cap(queues.get(kind), stats.get(kind, QueueStats()), now_ms),
        )
        for kind in (TaskKind.WORKFLOW, TaskKind.ACTIVITY)
    }


@dataclass(frozen=True, slots=True)
class _Cap:
    """What the queue as a whole may do."""

    running_limit: int | None = None
    is_full: bool = False


def _cap(queue: Queue | None, stats: QueueStats, now_ms: int) -> _Cap:
    if queue is None:
        return _Cap()
    is_full = isinstance(budget(queue, stats.leased, now_ms), Hold)
    return _Cap(queue.rules.running_limit, is_full)


def query_section(pending: int, most: int) -> dict[str, Any]:
    """How many queries wait, and how many may."""
    return {
        "status": "full" if pending >= most else "accepting",
        "max_pending_per_queue": most,
        "approximate_pending_count": pending,
        "remaining_pending_capacity": max(0, most - pending),
        "lock_required": True,
        "lock_supported": True,
        "budget_source": "server.query_tasks.max_pending_per_queue",
    }


def _section(
    kind: TaskKind, stats: QueueStats, active: list[Worker], slots: int, cap: _Cap
) -> dict[str, Any]:
    limit = cap.running_limit
    return {
        "status": _status(stats, active, slots, cap),
        "active_worker_count": len(active),
        "configured_slot_count": slots,
        "leased_count": stats.leased,
        "ready_count": stats.ready,
        "available_slot_count": max(0, slots - stats.leased),
        "server_max_active_leases_per_queue": limit,
        "server_active_lease_count": stats.leased,
        "server_remaining_active_lease_capacity": None if limit is None else max(0, limit - stats.leased),
        "server_max_active_leases_per_namespace": None,
        "server_namespace_active_lease_count": stats.leased,
        "server_remaining_namespace_active_lease_capacity": None,
        "server_max_dispatches_per_minute": None,
        "server_dispatch_count_this_minute": stats.dispatched_last_minute,
        "server_remaining_dispatch_capacity": None,
        "server_max_dispatches_per_minute_per_namespace": None,
        "server_namespace_dispatch_count_this_minute": stats.dispatched_last_minute,
        "server_remaining_namespace_dispatch_capacity": None,
        "server_dispatch_budget_group": None,
        "server_max_dispatches_per_minute_per_budget_group": None,
        "server_budget_group_dispatch_count_this_minute": 0,
        "server_remaining_budget_group_dispatch_capacity": None,
        "server_lock_required": False,
        "server_lock_supported": True,
        "budget_source": f"worker_registration.max_concurrent_{kind.value}_tasks",
        "server_budget_source": "task_queue.config.max_running"
        if limit is not None
        else f"server.admission.{kind.value}_tasks.max_active_leases_per_queue",
    }


def _status(stats: QueueStats, active: list[Worker], slots: int, cap: _Cap) -> str:
    if not active:
        return "no_active_workers"
    if not slots:
        return "no_slots"
    if cap.is_full:
        return "throttled"
    return "saturated" if stats.leased >= slots else "accepting"
