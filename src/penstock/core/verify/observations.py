"""What clients saw: their own calls, with when each was sent and answered on one clock of theirs.

A call without an answer may have had its effect or not, so it is held against nobody.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from penstock.core.verify.journal import LeaseId, Phase

CallVerdict = Literal["accepted", "refused", "unknown"]
LimitValue = int | bool | str | None


@dataclass(frozen=True, slots=True)
class PolledLease:
    """A lease as the answer of a poll told it."""

    task_id: str
    lease: str
    namespace: str
    task_queue: str
    kind: str
    attempt: int | None = None
    expires_in_ms: float | None = None
    phase: Phase = "running"
    scopes: tuple[str, ...] = ()
    """Scopes it is known to be in besides those of its queue, namespace and cluster: budget groups."""

    @property
    def lease_id(self) -> LeaseId:
        return self.task_id, self.lease


@dataclass(frozen=True, slots=True)
class Polled:
    """A worker asked for tasks."""

    t_inv: float
    t_ok: float | None = None
    worker_id: str | None = None
    leases: tuple[PolledLease, ...] = ()
    poll_request_id: str | None = None
    """The same in a poll that was repeated because its answer was lost."""


@dataclass(frozen=True, slots=True)
class Reported:
    """A worker said something of a lease."""

    op: Literal["complete", "fail", "heartbeat", "started", "hand_back"]
    t_inv: float
    task_id: str
    lease: str
    t_ok: float | None = None
    verdict: CallVerdict = "unknown"
    expires_in_ms: float | None = None

    @property
    def lease_id(self) -> LeaseId:
        return self.task_id, self.lease


@dataclass(frozen=True, slots=True)
class StartSent:
    """Somebody started a workflow or an activity. Where it stands is needed only to check its order."""

    t_inv: float
    t_ok: float | None = None
    verdict: CallVerdict = "unknown"
    task_id: str | None = None
    workflow_id: str | None = None
    namespace: str = "default"
    task_queue: str | None = None
    kind: str = "activity"
    type: str | None = None
    key: str | None = None
    level: int | None = None


@dataclass(frozen=True, slots=True)
class LimitsSet:
    """An operator changed limits of a scope; only those named changed."""

    t_inv: float
    scope: str
    limits: Mapping[str, LimitValue]
    t_ok: float | None = None
    verdict: CallVerdict = "unknown"
    expires_in_ms: float | None = None


@dataclass(frozen=True, slots=True)
class ObservedFinal:
    """How somebody found a task or workflow at the very end."""

    state: str
    task_id: str | None = None
    workflow_id: str | None = None
    namespace: str = "default"
    task_queue: str | None = None
    kind: str = "activity"


@dataclass(frozen=True, slots=True)
class Quiescent:
    """All faults were healed and workers polled every queue for longer than any window, until nothing moved."""


Observation = Polled | Reported | StartSent | LimitsSet | ObservedFinal | Quiescent
