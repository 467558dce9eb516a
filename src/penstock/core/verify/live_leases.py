"""The live leases at each point of the journal, by scope."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from penstock.core.verify.findings import LeaseEvidence
from penstock.core.verify.journal import (
    LeaseEnded,
    LeaseGranted,
    LeaseId,
    LeaseRenewed,
    LeaseStarted,
    ScopeLimits,
)

NO_LEASES: Mapping[LeaseId, LiveLease] = {}


@dataclass(slots=True)
class LiveLease:
    """A lease that has not ended. An expired lease stays live until it is ended."""

    grant: LeaseGranted
    expires_at_ms: int | None
    is_running: bool = False
    """Whether it counts; a prefetched lease counts from its start."""
    counted: tuple[ScopeLimits, ...] = ()
    """The scopes that count it."""
    counted_at_ms: int = 0

    @property
    def holder(self) -> LeaseEvidence:
        return LeaseEvidence(self.grant.task_id, self.grant.lease, self.grant.worker_id, self.counted_at_ms)


class LiveLeases:
    """All live leases, and those that count in each scope."""

    def __init__(self) -> None:
        self.live: dict[LeaseId, LiveLease] = {}
        self.of_task: dict[str, LiveLease] = {}
        self.lines: dict[tuple[str, str, str], tuple[ScopeLimits, ...]] = {}
        """The scopes of each queue, from the last lease that counted."""
        self._holders: dict[str, dict[LeaseId, LiveLease]] = {}

    def holders(self, scope: str) -> Mapping[LeaseId, LiveLease]:
        return self._holders.get(scope, NO_LEASES)

    @property
    def scopes(self) -> frozenset[str]:
        """Every scope that ever counted a lease."""
        return frozenset(self._holders)

    def grant(self, line: LeaseGranted) -> LiveLease:
        self._drop(line.lease_id)
        live = LiveLease(line, line.expires_at_ms)
        self.live[line.lease_id] = self.of_task[line.task_id] = live
        if line.phase == "running":
            self._count(live, line.scopes, line.at_ms)
        return live

    def start(self, line: LeaseStarted) -> LiveLease | None:
        """The lease, if it begins to count now."""
        live = self.live.get(line.lease_id)
        if live is None or live.is_running:
            return None
        if line.expires_at_ms is not None:
            live.expires_at_ms = line.expires_at_ms
        self._count(live, line.scopes or live.grant.scopes, line.at_ms)
        return live

    def renew(self, line: LeaseRenewed) -> None:
        live = self.live.get(line.lease_id)
        if live is not None:
            live.expires_at_ms = line.expires_at_ms

    def end(self, line: LeaseEnded) -> LiveLease | None:
        return self._drop(line.lease_id)

    def _count(self, live: LiveLease, scopes: tuple[ScopeLimits, ...], at_ms: int) -> None:
        grant = live.grant
        live.is_running, live.counted, live.counted_at_ms = True, scopes, at_ms
        self.lines[grant.namespace, grant.task_queue, grant.kind] = scopes
        for limits in scopes:
            self._holders.setdefault(limits.scope, {})[grant.lease_id] = live

    def _drop(self, lease_id: LeaseId) -> LiveLease | None:
        live = self.live.pop(lease_id, None)
        if live is None:
            return None
        if self.of_task.get(live.grant.task_id) is live:
            del self.of_task[live.grant.task_id]
        for limits in live.counted:
            self._holders[limits.scope].pop(lease_id, None)
        return live
