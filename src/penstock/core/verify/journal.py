"""What a server's journal says, line by line, in the order in which it happened."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

LeaseId = tuple[str, str]
"""Task and token: the token of a workflow task is only its attempt."""

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
"""Ends after which the task may be granted again under the same attempt. `returned`: it waits again, for any reason."""

REPORTED = ("completed", "failed", "throttled")
"""Ends that the holder asked for."""


@dataclass(frozen=True, slots=True)
class ScopeLimits:
    """A scope in which a grant was counted, with the limits in force for that decision. None: no limit."""

    scope: str
    max_active_leases: int | None = None
    max_dispatches_per_minute: int | None = None
    max_cost_per_minute: int | None = None
    window: Literal["minute", "sliding"] = "minute"
    cost: int = 0
    """What the task reserved of the scope's cost."""
    version: int | None = None


@dataclass(frozen=True, slots=True)
class LeaseGranted:
    """A worker got a task. A claimed lease, handed out ahead of time, counts towards no limit until it is started."""

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

    @property
    def lease_id(self) -> LeaseId:
        return self.task_id, self.lease


@dataclass(frozen=True, slots=True)
class LeaseStarted:
    """A claimed lease took its permit: from here it counts, and was given out as far as limits know."""

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
    """A lease lives longer."""

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
    """A lease is over and holds nothing any more. `cost` settles what it reserved.

    `refunded`: it counts in no window any more, because it was never delivered.
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


JournalLine = LeaseGranted | LeaseStarted | LeaseRenewed | LeaseEnded
