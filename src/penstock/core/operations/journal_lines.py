"""Lines of the journal: grants with the limits in force, and ends of leases. `core/verify` checks them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from penstock.core.limits.admission import queue_scope
from penstock.core.model import Queue, Task, TaskState
from penstock.core.scheduling.gates import ScopeState

Line = Mapping[str, Any]

_SAID = {"waiting_for_history": "completed"}
_ENDS = {TaskState.CANCELLED: "cancelled", TaskState.READY: "returned", TaskState.DELAYED: "returned"}


def granted(queue: Queue, task: Task, scopes: Sequence[ScopeState], now_ms: int) -> Line:
    """A granted lease, with every scope that counts it and the limits in force."""
    return {
        **_of(task, "granted", task.lease_token, now_ms),
        "namespace": task.namespace,
        "task_queue": task.task_queue,
        "kind": task.kind.value,
        "attempt": task.attempt,
        "worker_id": task.lease_owner,
        "key": task.key,
        "level": task.level,
        "expires_at_ms": task.lease_expires_at_ms,
        "phase": "claimed" if task.claimed else "running",
        "scopes": _limits(queue, task, scopes),
    }


def started(queue: Queue, task: Task, scopes: Sequence[ScopeState], now_ms: int) -> Line:
    """A prefetched task was started under its permit."""
    line = _of(task, "started", task.lease_token, now_ms)
    return {**line, "expires_at_ms": task.lease_expires_at_ms, "scopes": _limits(queue, task, scopes)}


def renewed(task: Task, now_ms: int) -> Line:
    line = _of(task, "renewed", task.lease_token, now_ms)
    return {**line, "expires_at_ms": task.lease_expires_at_ms}


def ended(task: Task, now_ms: int) -> Line:
    """A lease has ended; `task` is its state afterwards."""
    how = _SAID.get(task.ended_how or "", task.ended_how) or _ENDS.get(task.state) or "lost"
    line = {**_of(task, "ended", task.ended_lease, now_ms), "how": how}
    if task.ended_refunded:
        line["refunded"] = True
    return line if task.ended_cost is None else {**line, "cost": task.ended_cost}


def _of(task: Task, event: str, lease: str | None, now_ms: int) -> dict[str, Any]:
    return {"at_ms": now_ms, "event": event, "task_id": task.task_id, "lease": lease}


def _limits(queue: Queue, task: Task, scopes: Sequence[ScopeState]) -> list[Line]:
    """Each scope with the limits in force, the queue itself first."""
    counted = {state.name for state in scopes}
    return [
        {
            "scope": queue_scope(queue.namespace, queue.name, queue.kind),
            "max_active_leases": queue.rules.lease_cap,
            "max_dispatches_per_minute": queue.limits.dispatches,
            "window": queue.limits.window.value,
            "version": queue.policy.version,
        },
        *(
            {
                "scope": rules.name,
                "max_active_leases": rules.leases,
                "max_dispatches_per_minute": rules.dispatches,
                "window": rules.window.value,
                "version": rules.version,
                "max_cost_per_minute": rules.cost,
                "cost": task.cost if rules.cost is not None else 0,
            }
            for rules in queue.limits.scopes
            if rules.name in counted
        ),
    ]
