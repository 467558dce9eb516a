"""What `penstock top` shows, read from the answers of the server: rows of queues, and one queue in detail.

A task queue is two rows, its workflow tasks and its activity tasks, because limits, slots and rates are apart for both.
A row in which nothing ever happened is left out: a queue of activities needs no line about workflow tasks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from penstock.cli.output.columns import lookup
from penstock.cli.output.times import parsed

Body = Mapping[str, Any]

KINDS = ("workflow", "activity")
_LIMIT_WORDS = {"active_leases": "leases", "dispatches_per_minute": "dispatches/min"}


@dataclass(frozen=True, slots=True)
class TopGate:
    """A limit of a queue: what it is, how much of it is used, and whether it holds tasks back now."""

    name: str
    used: int
    max: int
    binds: bool

    @property
    def is_full(self) -> bool:
        return self.used >= self.max


@dataclass(frozen=True, slots=True)
class QueueRow:
    """The tasks of one kind in one queue."""

    queue: str
    kind: str
    status: str
    waiting: int
    running: int
    slots: int
    workers: int
    added_per_second: float | None
    dispatched_per_second: float | None
    oldest_wait_seconds: float | None
    gates: Sequence[TopGate]
    unserved: Sequence[str]
    added_this_minute: int
    dispatched_this_minute: int

    @property
    def name(self) -> tuple[str, str]:
        """What tells it from other rows."""
        return self.queue, self.kind

    @property
    def binding(self) -> str:
        """What holds its waiting tasks back now; empty if nothing does."""
        if not self.waiting:
            return ""
        if self.unserved:
            return self.unserved[0]
        full = [f"{gate.used} of {gate.max} {gate.name}" for gate in self.gates if gate.binds]
        return full[0] if full else ""

    def as_json(self) -> dict[str, Any]:
        """The row for scripts."""
        return {
            "task_queue": self.queue,
            "kind": self.kind,
            "status": self.status,
            "waiting": self.waiting,
            "running": self.running,
            "slots": self.slots,
            "workers": self.workers,
            "added_per_second": self.added_per_second,
            "dispatched_per_second": self.dispatched_per_second,
            "oldest_wait_seconds": self.oldest_wait_seconds,
            "binds_now": self.binding or None,
            "gates": [{"limit": each.name, "used": each.used, "max": each.max} for each in self.gates],
        }


@dataclass(frozen=True, slots=True)
class KeyRow:
    """A fairness key of a queue that has tasks waiting."""

    key: str
    weight: float
    waiting: int
    running: int
    oldest_wait_seconds: float | None
    asked: float | None
    got: float | None
    state: str


@dataclass(frozen=True, slots=True)
class LeaseRow:
    """A task that a worker holds."""

    task: str
    worker: str
    age_seconds: float | None
    ends_in_seconds: float | None
    attempt: int | None


@dataclass(frozen=True, slots=True)
class WorkerRow:
    """A worker that polls a queue."""

    worker: str
    status: str
    build: str
    slots: int
    free: int | None


@dataclass(frozen=True, slots=True)
class QueueDetail:
    """The tasks of one kind in one queue, with what the list leaves out."""

    row: QueueRow
    keys: Sequence[KeyRow]
    leases: Sequence[LeaseRow]
    workers: Sequence[WorkerRow]

    def as_json(self) -> dict[str, Any]:
        """The queue for scripts."""
        keys = [
            {
                "fairness_key": each.key,
                "weight": each.weight,
                "waiting": each.waiting,
                "running": each.running,
                "share_asked": each.asked,
                "share_got": each.got,
            }
            for each in self.keys
        ]
        return self.row.as_json() | {"keys": keys}


def queue_rows(listed: Body) -> list[QueueRow]:
    """The rows of an answer of `GET /api/task-queues`."""
    found = [_row(queue, kind) for queue in listed.get("task_queues") or [] for kind in KINDS]
    return [row for row in found if row is not None]


def queue_details(described: Body, now: datetime) -> dict[str, QueueDetail]:
    """Both kinds of tasks of a queue, from an answer of `GET /api/task-queues/{queue}`."""
    found = {}
    for kind in KINDS:
        row = _row(described, kind, always=True)
        assert row is not None
        found[kind] = QueueDetail(
            row, _keys(described, kind), _leases(described, kind, now), _workers(described, kind)
        )
    return found


def _row(queue: Body, kind: str, *, always: bool = False) -> QueueRow | None:
    stats = queue.get("stats") or {}
    counts: Body = stats.get(f"{kind}_tasks") or {}
    admission: Body = lookup(queue, f"admission.{kind}_tasks") or {}
    added, dispatched = counts.get("added_last_minute") or 0, counts.get("dispatched_last_minute") or 0
    waiting, running = counts.get("ready_count") or 0, counts.get("leased_count") or 0
    slots = admission.get("configured_slot_count") or 0
    if not (always or added or dispatched or waiting or running or slots):
        return None
    return QueueRow(
        queue=str(queue.get("name")),
        kind=kind,
        status=str(admission.get("status") or "-"),
        waiting=waiting,
        running=running,
        slots=slots,
        workers=admission.get("active_worker_count") or 0,
        added_per_second=None,
        dispatched_per_second=None,
        oldest_wait_seconds=_oldest_wait(stats, counts, kind),
        gates=_gates(admission),
        unserved=[
            f"no worker: {each.get('ready_count')} of type {each.get('type')}"
            for each in admission.get("unserved") or []
        ],
        added_this_minute=added,
        dispatched_this_minute=dispatched,
    )


def _oldest_wait(stats: Body, counts: Body, kind: str) -> float | None:
    """Of one kind where the answer says so; of older servers the oldest task of the queue, if it is of this kind."""
    levels = [each.get("oldest_wait_seconds") or 0 for each in counts.get("backlog_by_priority") or []]
    if levels:
        return max(levels)
    if "oldest_wait_seconds" in counts:
        found: float | None = counts["oldest_wait_seconds"]
        return found
    oldest = stats.get("oldest_ready_task") or {}
    return oldest.get("age_seconds") if oldest.get("task_type") == kind else None


def _gates(admission: Body) -> list[TopGate]:
    gates = [
        TopGate(_gate_name(cap), cap["used"], cap["max"], cap.get("remaining") == 0)
        for cap in admission.get("caps") or []
        if isinstance(cap.get("max"), int) and isinstance(cap.get("used"), int)
    ]
    slots, leased = admission.get("configured_slot_count") or 0, admission.get("leased_count") or 0
    if slots:
        used = max(0, leased - (admission.get("claimed_count") or 0))
        gates.append(TopGate("slots of workers", used, slots, used >= slots))
    return gates


def _gate_name(cap: Body) -> str:
    """Such as `leases, queue`; the scope is written `queue:namespace/name/kind`."""
    limit = str(cap.get("limit"))
    scope = str(cap.get("scope") or "").partition(":")[0].replace("_", " ")
    return f"{_LIMIT_WORDS.get(limit, limit)}, {scope}" if scope else _LIMIT_WORDS.get(limit, limit)


def _keys(described: Body, kind: str) -> list[KeyRow]:
    return [
        KeyRow(
            key=str(each.get("fairness_key") or ""),
            weight=float(each.get("weight") or 0),
            waiting=each.get("backlog_count") or 0,
            running=each.get("running") or 0,
            oldest_wait_seconds=each.get("oldest_wait_seconds"),
            asked=each.get("share_asked"),
            got=each.get("share_got"),
            state=str(each.get("state") or ""),
        )
        for each in lookup(described, f"stats.{kind}_tasks.top_keys") or []
    ]


def _leases(described: Body, kind: str, now: datetime) -> list[LeaseRow]:
    return [
        LeaseRow(
            task=str(each.get("workflow_id") or each.get("task_id")),
            worker=str(each.get("lease_owner")),
            age_seconds=_since(each.get("leased_at"), now),
            ends_in_seconds=_negated(_since(each.get("lease_expires_at"), now)),
            attempt=each.get("attempt_number") or each.get("workflow_task_attempt"),
        )
        for each in described.get("current_leases") or []
        if each.get("task_type") == kind
    ]


def _workers(described: Body, kind: str) -> list[WorkerRow]:
    return [
        WorkerRow(
            worker=str(each.get("worker_id")),
            status="stale" if each.get("is_stale") else str(each.get("status")),
            build=str(each.get("build_id") or "(unversioned)"),
            slots=each.get(f"max_concurrent_{kind}_tasks") or 0,
            free=each.get(f"available_{kind}_slots"),
        )
        for each in described.get("pollers") or []
        if each.get(f"max_concurrent_{kind}_tasks")
    ]


def _since(stamp: object, now: datetime) -> float | None:
    instant = parsed(stamp)
    return None if instant is None else (now - instant).total_seconds()


def _negated(seconds: float | None) -> float | None:
    return None if seconds is None else -seconds
