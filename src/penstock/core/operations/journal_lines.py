"""Lines of the journal: what arrived, was granted and ended, who worked, and which limits were in force.

`core/verify` checks them, and `simulator/trace.py` replays them. The lines of the load (`ready`, `gone`, `worker`,
`settings`) say what the lines of leases cannot: what waited, and who could have taken it. All are written in the
transaction that makes them true. A reader that knows only leases can skip the others.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from penstock.core.limits.admission import queue_scope
from penstock.core.limits.policies import DispatchOrder, PolicyChange
from penstock.core.limits.run_caps import RunCap
from penstock.core.model import Queue, Task, TaskId, TaskState, WorkerRecord
from penstock.core.scheduling.fairness import Lane
from penstock.core.scheduling.gates import ScopeState

Line = Mapping[str, Any]

_SAID = {"waiting_for_history": "completed"}
_ENDS = {TaskState.CANCELLED: "cancelled", TaskState.READY: "returned", TaskState.DELAYED: "returned"}


def ready(
    task: Task, now_ms: int, *, weight_milli: int | None, after: TaskId | None, due_at_ms: int | None = None
) -> Line:
    """A task waits for a worker from now on; fields that say nothing are left out.

    Args:
        task: the task; its next attempt is what waits.
        now_ms: the time of the transaction.
        weight_milli: the fairness weight that it carries, if it has just arrived.
        after: the task whose end made it ready, itself for a retry; None: something else did, such as a client.
        due_at_ms: when its delay was over; None: it was not delayed.
    """
    line = {
        "at_ms": now_ms,
        "event": "ready",
        "namespace": task.namespace,
        "task_queue": task.task_queue,
        "kind": task.kind.value,
        "type": task.type,
        "task_id": task.task_id,
        "run_id": task.run_id,
        "key": task.key,
        "level": task.level,
        "attempt": task.attempt + 1,
    }
    if weight_milli is not None:
        line["weight"] = weight_milli
    if task.cost:
        line["cost"] = task.cost
    if task.compatibility is not None:
        line["build"] = task.compatibility
    if due_at_ms is not None:
        line["due_at_ms"] = due_at_ms
    if after is not None:
        line["after"] = after
    return line


def gone(task: Task, now_ms: int) -> Line:
    """A task that waited, or was delayed, will not be granted; or a pause holds it (`delayed`) until it is ready."""
    return {"at_ms": now_ms, "event": "gone", "task_id": task.task_id, "how": task.state.value}


def worker(record: WorkerRecord, state: str, now_ms: int) -> Line:
    """A worker is `registered` (or changed), `draining`, `silent` or has `left`; with what it can run."""
    line = {
        "at_ms": now_ms,
        "event": "worker",
        "namespace": record.namespace,
        "worker_id": record.worker_id,
        "state": state,
        "task_queue": record.task_queue,
        "activity_slots": record.activity_slots,
        "workflow_slots": record.workflow_slots,
        "activity_types": record.activity_types,
        "workflow_types": record.workflow_types,
    }
    return line if record.build_id is None else {**line, "build": record.build_id}


def settings(scope: str, changes: Sequence[PolicyChange], now_ms: int) -> Line:
    """Settings of a scope were changed, in one transaction: each with its value before and afterwards."""
    told = [
        {
            "setting": each.setting,
            **({} if each.key is None else {"key": each.key}),
            "before": each.before,
            "after": each.after,
        }
        for each in changes
    ]
    version = changes[0].version if changes else 0
    return {"at_ms": now_ms, "event": "settings", "scope": scope, "version": version, "changes": told}


class GrantJournal:
    """Writes the grants of one claim; what they have in common is computed once."""

    def __init__(
        self, queue: Queue, scopes: Sequence[ScopeState], lanes: Iterable[Lane], now_ms: int
    ) -> None:
        """Prepare the lines.

        Args:
            queue: the queue of the claim, with its rules.
            scopes: the scopes that count its leases.
            lanes: the lanes that gave the tasks, if lanes share the queue.
            now_ms: the time of the transaction.
        """
        rules = queue.rules
        self._now_ms = now_ms
        self._limits = _limits(queue, scopes)
        self._has_costs = any(each.get("cost") is not None for each in self._limits)
        is_shared = (
            rules.order is DispatchOrder.FAIR and not rules.shares_by_running and not rules.limits_keys
        )
        self._weights = {lane.lane_key: lane.weight_milli for lane in lanes} if is_shared else {}
        self._aging = None if rules.limits_keys else rules.aging
        self._is_open = not queue.may_hold_back

    def line(self, task: Task, poll_open_ms: int | None = None) -> Line:
        """A granted lease, with how long the task had been ready, every scope that counts it and the limits in force.

        Each scope, the queue among them, has the version of its settings that the grant was made under.

        What the order of dispatch is judged by is left out where a rule of single keys may have interfered.

        Args:
            task: the task with its lease.
            poll_open_ms: how long the poll that got it had been open; None: not known.
        """
        line: dict[str, Any] = {
            "at_ms": self._now_ms,
            "event": "granted",
            "task_id": task.task_id,
            "lease": task.lease_token,
            "namespace": task.namespace,
            "task_queue": task.task_queue,
            "kind": task.kind,
            "attempt": task.attempt,
            "worker_id": task.lease_owner,
            "key": task.key,
            "level": task.level,
            "expires_at_ms": task.lease_expires_at_ms,
            "phase": "claimed" if task.claimed else "running",
            "waited_ms": self._now_ms - max(task.available_at_ms, task.enqueued_at_ms),
            "scopes": _costing(self._limits, task.cost) if self._has_costs else self._limits,
        }
        weight = self._weights.get((task.level, task.key))
        if weight is not None:
            line["weight"] = weight
        if self._aging is not None:
            line["aging"] = (self._aging.wait_ms, self._aging.every)
        if poll_open_ms is not None and self._is_open and not task.held_by:
            line["poll_open_ms"] = poll_open_ms
        return line


def started(queue: Queue, task: Task, scopes: Sequence[ScopeState], now_ms: int) -> Line:
    """A prefetched task was started under its permit."""
    line = _of(task, "started", task.lease_token, now_ms)
    limits = _costing(_limits(queue, scopes), task.cost)
    return {**line, "expires_at_ms": task.lease_expires_at_ms, "scopes": limits}


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


def run_admitted(chain: str, caps: Sequence[RunCap], now_ms: int, *, adopted: bool = False) -> Line:
    """A run holds a place in each of its scopes from now on. `adopted`: it was open before the cap was set."""
    return {
        "at_ms": now_ms,
        "event": "run_admitted",
        "run_id": chain,
        "adopted": adopted,
        "scopes": [{"scope": cap.name, "max_open_runs": cap.most} for cap in caps],
    }


def run_closed(chain: str, now_ms: int) -> Line:
    """The last run of a chain has closed and holds no place any more."""
    return {"at_ms": now_ms, "event": "run_closed", "run_id": chain}


def _of(task: Task, event: str, lease: str | None, now_ms: int) -> dict[str, Any]:
    return {"at_ms": now_ms, "event": event, "task_id": task.task_id, "lease": lease}


def _costing(limits: Sequence[Line], cost: int) -> list[Line]:
    """The limits, with what a task costs where costs are limited."""
    return [each if each.get("cost") is None else {**each, "cost": cost} for each in limits]


def _limits(queue: Queue, scopes: Sequence[ScopeState]) -> list[Line]:
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
                **_budget(rules.cost),
            }
            for rules in queue.limits.scopes
            if rules.name in counted
        ),
    ]


def _budget(most: int | None) -> Line:
    """A budget of costs, with a place for the cost of a task."""
    return {} if most is None else {"max_cost_per_minute": most, "cost": 0}
