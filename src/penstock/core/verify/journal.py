"""Lines of a server's journal, in order."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

LeaseId = tuple[str, str]
"""Task and lease token; the token of a workflow task is its attempt."""

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


JournalLine = LeaseGranted | LeaseStarted | LeaseRenewed | LeaseEnded
