"""Observations of clients: their calls, with the times of request and response on one clock.

A call without a response may or may not have taken effect, so it proves nothing.
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
    """A lease in the response of a poll."""

    task_id: str
    lease: str
    namespace: str
    task_queue: str
    kind: str
    attempt: int | None = None
    expires_in_ms: float | None = None
    phase: Phase = "running"
    scopes: tuple[str, ...] = ()
    """Known scopes besides its queue, namespace and cluster: budget groups."""

    @property
    def lease_id(self) -> LeaseId:
        return self.task_id, self.lease


@dataclass(frozen=True, slots=True)
class Polled:
    """A worker polled."""

    t_inv: float
    t_ok: float | None = None
    worker_id: str | None = None
    leases: tuple[PolledLease, ...] = ()
    poll_request_id: str | None = None
    """Equal in polls that were repeated after a lost response."""


@dataclass(frozen=True, slots=True)
class Reported:
    """A worker reported on a lease."""

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
    """A workflow or activity was started. Its queue and priority are needed only to check the order."""

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
    """An operator changed limits of a scope; only those listed changed."""

    t_inv: float
    scope: str
    limits: Mapping[str, LimitValue]
    t_ok: float | None = None
    verdict: CallVerdict = "unknown"
    expires_in_ms: float | None = None


@dataclass(frozen=True, slots=True)
class ObservedFinal:
    """The final state of a task or workflow."""

    state: str
    task_id: str | None = None
    workflow_id: str | None = None
    namespace: str = "default"
    task_queue: str | None = None
    kind: str = "activity"


@dataclass(frozen=True, slots=True)
class Quiescent:
    """All faults were over, and workers polled every queue for longer than any window, until nothing moved."""


Observation = Polled | Reported | StartSent | LimitsSet | ObservedFinal | Quiescent
