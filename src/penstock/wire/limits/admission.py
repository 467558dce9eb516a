"""Admission of a queue: worker slots, server limits, and the status that follows from them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct

from penstock.core.limits.admission import LimitField, default_source
from penstock.core.model import Queue, QueueStats, Task, TaskKind, WorkerRecord
from penstock.core.scheduling.gates import Gate, GateKind
from penstock.core.timestamps import iso, iso_or_none
from penstock.core.why.values import ConstraintKind
from penstock.core.why.workers import UNSERVED, RouteWait
from penstock.wire.responses import active_workers


class QueueAdmissionState(Struct, frozen=True):
    """The state of a queue's tasks of one kind, from which its admission is rendered."""

    queue: Queue
    stats: QueueStats
    gates: Sequence[Gate]
    namespace_leases: int
    namespace_dispatches: int
    """Active leases of the whole namespace, limited or not."""
    holders: Mapping[str, Sequence[Task]]
    waits: Sequence[RouteWait] = ()
    """Types and builds whose ready tasks no worker can take now."""


def admission(
    lines: Mapping[TaskKind, QueueAdmissionState],
    workers: list[WorkerRecord],
    now_ms: int,
    stale_after_ms: int,
    *,
    lock_supported: bool,
) -> dict[str, Any]:
    """The admission of both task kinds."""
    active = active_workers(workers, now_ms, stale_after_ms)
    slots = {
        TaskKind.WORKFLOW: sum(w.workflow_slots for w in active),
        TaskKind.ACTIVITY: sum(w.activity_slots for w in active),
    }
    return {
        f"{kind.value}_tasks": _section(lines[kind], active, slots[kind], now_ms, lock_supported)
        for kind in (TaskKind.WORKFLOW, TaskKind.ACTIVITY)
    }


def query_section(pending: int, most: int, *, lock_supported: bool) -> dict[str, Any]:
    """Pending queries, their limit, and whether the lock to enqueue one is available."""
    room = "full" if pending >= most else "accepting"
    return {
        "status": room if lock_supported else "unavailable",
        "max_pending_per_queue": most,
        "approximate_pending_count": pending,
        "remaining_pending_capacity": max(0, most - pending),
        "lock_required": True,
        "lock_supported": lock_supported,
        "budget_source": "server.query_tasks.max_pending_per_queue",
    }


def _section(
    line: QueueAdmissionState, active: list[WorkerRecord], slots: int, now_ms: int, lock_supported: bool
) -> dict[str, Any]:
    stats, kind, limits = line.stats, line.queue.kind.value, line.queue.limits
    leases, dispatches = GateKind.LEASES, GateKind.DISPATCHES
    required = line.queue.is_limited
    return {
        "status": _status(line, active, slots, required and not lock_supported),
        "active_worker_count": len(active),
        "configured_slot_count": slots,
        "leased_count": stats.leased,
        "ready_count": stats.ready,
        "available_slot_count": max(0, slots - stats.running),
        "unserved_ready_count": sum(each.ready for each in line.waits if each.is_unserved),
        "unserved": unserved(line.waits),
        **_cap(
            _tightest(line.gates, leases, "queue:"),
            "active_leases_per_queue",
            "active_lease_count",
            "active_lease_capacity",
            stats.running + stats.expired,
        ),
        **_cap(
            _tightest(line.gates, leases, "namespace:"),
            "active_leases_per_namespace",
            "namespace_active_lease_count",
            "namespace_active_lease_capacity",
            line.namespace_leases,
        ),
        **_cap(
            _tightest(line.gates, dispatches, "queue:"),
            "dispatches_per_minute",
            "dispatch_count_this_minute",
            "dispatch_capacity",
            stats.dispatched_last_minute,
        ),
        **_cap(
            _tightest(line.gates, dispatches, "namespace:"),
            "dispatches_per_minute_per_namespace",
            "namespace_dispatch_count_this_minute",
            "namespace_dispatch_capacity",
            line.namespace_dispatches,
        ),
        "server_dispatch_budget_group": limits.group,
        **_cap(
            _tightest(line.gates, dispatches, "group:"),
            "dispatches_per_minute_per_budget_group",
            "budget_group_dispatch_count_this_minute",
            "budget_group_dispatch_capacity",
            0,
        ),
        "server_lock_required": required,
        "server_lock_supported": lock_supported,
        "budget_source": f"worker_registration.max_concurrent_{kind}_tasks",
        "server_budget_source": _sources(line.queue),
        "caps": [_gate_body(gate, line, now_ms) for gate in line.gates],
        **({"claimed_count": stats.claimed} if line.queue.kind is TaskKind.ACTIVITY else {}),
    }


def _cap(gate: Gate | None, limit: str, count: str, remaining: str, otherwise: int) -> dict[str, Any]:
    """A limit with what is used and what remains; `otherwise` is the count if there is no limit."""
    return {
        f"server_max_{limit}": None if gate is None else gate.most,
        f"server_{count}": otherwise if gate is None else gate.used,
        f"server_remaining_{remaining}": None if gate is None else gate.left,
    }


def _tightest(gates: Sequence[Gate], kind: GateKind, scopes: str) -> Gate | None:
    found = [gate for gate in gates if gate.kind is kind and gate.scope.startswith(scopes)]
    return min(found, key=lambda gate: gate.left, default=None)


def _status(line: QueueAdmissionState, active: list[WorkerRecord], slots: int, unavailable: bool) -> str:
    if unavailable:
        return "unavailable"
    if any(gate.is_closed for gate in line.gates):
        return "throttled"
    if not active:
        return "no_active_workers"
    if not slots:
        return "no_slots"
    return _route_status(line) or ("saturated" if line.stats.running >= slots else "accepting")


def _route_status(line: QueueAdmissionState) -> str | None:
    """The status by what ready tasks need: slots that none of them can use do not count."""
    kinds = {each.constraint.kind for each in line.waits}
    if kinds & UNSERVED - {ConstraintKind.NO_SLOTS}:
        return "no_worker_for_type"
    if ConstraintKind.NO_SLOTS in kinds:
        return "no_slots"
    return "saturated" if kinds else None


def unserved(waits: Sequence[RouteWait]) -> list[dict[str, Any]]:
    """Ready tasks that no worker can take, by type and build, with the constraint that `why` reports."""
    return [
        {
            "type": each.task.type,
            "build_id": each.task.compatibility,
            "reason": each.constraint.kind.value,
            "message": each.constraint.message,
            "ready_count": each.ready,
            "task_id": each.task.task_id,
        }
        for each in waits
        if each.is_unserved
    ]


def _sources(queue: Queue) -> str:
    """The distinct sources of the limits; without limits, the setting that would set the first."""
    limits = queue.limits
    namespaces = [each for each in limits.scopes if each.name.startswith("namespace:")]
    groups = [each for each in limits.scopes if each.group is not None]
    sources = [
        None if limits.leases is None else limits.leases_source,
        *(each.leases_source for each in namespaces),
        limits.dispatches_source,
        *(each.dispatches_source for each in [*namespaces, *groups]),
    ]
    return ";".join(dict.fromkeys(filter(None, sources))) or default_source(
        LimitField.QUEUE_LEASES, queue.kind.value
    )


def _gate_body(gate: Gate, line: QueueAdmissionState, now_ms: int) -> dict[str, Any]:
    """Any limit with its scope and holders, including those that have no field of their own."""
    return {
        "scope": gate.scope,
        "limit": gate.kind.value,
        "max": gate.most,
        "used": gate.used,
        "remaining": gate.left,
        "opens_at": iso_or_none(gate.opens_at_ms),
        "holders": [holder(task, now_ms) for task in line.holders.get(gate.scope, ())]
        if gate.kind is GateKind.LEASES
        else [],
    }


def holder(task: Task, now_ms: int) -> dict[str, Any]:
    """The holder of a lease, its age and its expiry."""
    return {
        "task_id": task.task_id,
        "task_queue": task.task_queue,
        "lease_owner": task.lease_owner,
        "age_seconds": max(0, now_ms - (task.leased_at_ms or now_ms)) / 1000,
        "expires_at": iso(task.lease_expires_at_ms or now_ms),
    }
