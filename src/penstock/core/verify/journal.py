"""Lines of a server's journal, in order."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

LeaseId = tuple[str, str]
"""Task and lease token; the token of a workflow task is its attempt."""

QueuePlace = tuple[str, str, str]
"""Namespace, queue and kind of task."""

Phase = Literal["running", "claimed"]
How = Literal[
    "completed",
    "failed",
    "expired",
    "cancelled",
    "handed_back",
    "undelivered",
    "lost",
    "throttled",
    "timed_out",
    "returned",
]
UNDELIVERED = "undelivered"
UNCHARGED = ("handed_back", UNDELIVERED, "throttled", "returned")
"""Ends after which the task may be granted again with the same attempt. `returned`: requeued for any reason."""

REPORTED = ("completed", "failed", "throttled")
"""Ends reported by the holder."""


@dataclass(frozen=True, slots=True)
class ScopeLimits:
    """A scope in which a grant was counted, with the limits in force for that decision. None: no limit."""

    scope: str
    max_active_leases: int | None = None
    max_dispatches_per_minute: int | None = None
    max_cost_per_minute: int | None = None
    window: Literal["minute", "sliding"] = "minute"
    cost: int = 0
    """The cost reserved in the scope."""
    version: int | None = None


@dataclass(frozen=True, slots=True)
class LeaseGranted:
    """A lease was granted. A prefetched (claimed) lease counts towards no limit until it is started."""

    seq: int
    at_ms: int
    namespace: str
    task_queue: str
    kind: str
    task_id: str
    lease: str
    attempt: int
    scopes: tuple[ScopeLimits, ...] = ()
    worker_id: str | None = None
    key: str | None = None
    level: int | None = None
    expires_at_ms: int | None = None
    phase: Phase = "running"
    weight: int | None = None
    """The weight of its key's lane in thousandths, where keys share the queue by dispatches and none is limited."""
    aging: tuple[int, int] | None = None
    """The queue's aging: milliseconds until a task is old, and every how many dispatches an old one has its turn."""
    poll_open_ms: int | None = None
    """How long its poll had been open, where nothing limits the queue and nothing was seen in the way."""

    @property
    def lease_id(self) -> LeaseId:
        return self.task_id, self.lease


@dataclass(frozen=True, slots=True)
class LeaseStarted:
    """A prefetched lease was started: from here on it counts."""

    seq: int
    at_ms: int
    task_id: str
    lease: str
    scopes: tuple[ScopeLimits, ...] = ()
    expires_at_ms: int | None = None

    @property
    def lease_id(self) -> LeaseId:
        return self.task_id, self.lease


@dataclass(frozen=True, slots=True)
class LeaseRenewed:
    """A lease was extended."""

    seq: int
    at_ms: int
    task_id: str
    lease: str
    expires_at_ms: int

    @property
    def lease_id(self) -> LeaseId:
        return self.task_id, self.lease


@dataclass(frozen=True, slots=True)
class LeaseEnded:
    """A lease has ended. `cost` settles the reserved cost.

    `refunded`: it was never delivered, and no longer counts in any window.
    """

    seq: int
    at_ms: int
    task_id: str
    lease: str
    how: How
    cost: int | None = None
    refunded: bool = False

    @property
    def lease_id(self) -> LeaseId:
        return self.task_id, self.lease


@dataclass(frozen=True, slots=True)
class RunScopeLimit:
    """A scope in which a run holds a place, with the cap that was in force."""

    scope: str
    max_open_runs: int


@dataclass(frozen=True, slots=True)
class RunAdmitted:
    """A run, known by the first of its chain, holds a place in each scope. `adopted`: it was open before the cap."""

    seq: int
    at_ms: int
    run_id: str
    scopes: tuple[RunScopeLimit, ...] = ()
    adopted: bool = False


@dataclass(frozen=True, slots=True)
class RunClosed:
    """The last run of a chain has closed."""

    seq: int
    at_ms: int
    run_id: str


@dataclass(frozen=True, slots=True)
class TaskReady:
    """A task waits from now on."""

    seq: int
    at_ms: int
    namespace: str
    task_queue: str
    kind: str
    type: str
    task_id: str
    key: str = ""
    level: int = 5
    attempt: int = 1
    run_id: str | None = None
    weight: int | None = None
    """The weight that it carries, in thousandths; None: it did not just arrive."""
    cost: int = 0
    build: str | None = None
    due_at_ms: int | None = None
    """When its delay was over; None: it was not delayed."""
    after: str | None = None
    """The task whose end made it ready; None: something else did."""

    @property
    def place(self) -> QueuePlace:
        return self.namespace, self.task_queue, self.kind


@dataclass(frozen=True, slots=True)
class TaskGone:
    """A task that waited, or was delayed, was cancelled or expired, or is held by a pause."""

    seq: int
    at_ms: int
    task_id: str
    how: str = "cancelled"


@dataclass(frozen=True, slots=True)
class WorkerChanged:
    """A worker came, changed or went."""

    seq: int
    at_ms: int
    namespace: str
    worker_id: str
    state: Literal["registered", "draining", "silent", "left"]
    task_queue: str
    activity_slots: int = 0
    workflow_slots: int = 0
    activity_types: tuple[str, ...] = ()
    """None named: it takes all."""
    workflow_types: tuple[str, ...] = ()
    build: str | None = None


@dataclass(frozen=True, slots=True)
class SettingChanged:
    """One setting of a scope, or of a fairness key of a queue. None: unset."""

    setting: str
    before: str | None = None
    after: str | None = None
    key: str | None = None


@dataclass(frozen=True, slots=True)
class SettingsChanged:
    """Settings of a scope were changed together."""

    seq: int
    at_ms: int
    scope: str
    version: int = 0
    changes: tuple[SettingChanged, ...] = ()


LeaseLine = LeaseGranted | LeaseStarted | LeaseRenewed | LeaseEnded
LoadLine = TaskReady | TaskGone | WorkerChanged | SettingsChanged
JournalLine = LeaseLine | LoadLine | RunAdmitted | RunClosed
