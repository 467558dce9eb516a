"""Observed leases, each with the poll that got it and the reports on it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from math import inf

from penstock.core.verify.journal import LeaseId
from penstock.core.verify.limit_changes import LimitChanges
from penstock.core.verify.observations import (
    LimitsSet,
    Observation,
    ObservedFinal,
    Polled,
    PolledLease,
    Quiescent,
    Reported,
    StartSent,
)
from penstock.core.verify.scopes import own_scopes


@dataclass(slots=True)
class ObservedLease:
    """A lease that a client certainly got, with its reports."""

    lease: PolledLease
    worker_id: str | None
    asked_at: float
    """It was granted after this."""
    known_at: float
    """It was granted before this."""
    reports: list[Reported] = field(default_factory=list)

    @property
    def scopes(self) -> tuple[str, ...]:
        lease = self.lease
        return (*own_scopes(lease.namespace, lease.task_queue, lease.kind), *lease.scopes)


class ObservedLeases:
    """All observations of the clients, by lease."""

    def __init__(self, sightings: Iterable[Observation]) -> None:
        self.lines = 0
        self.leases: dict[LeaseId, ObservedLease] = {}
        self.starts: list[StartSent] = []
        self.finals: list[ObservedFinal] = []
        self.is_quiescent = False
        self.reports: dict[LeaseId, list[Reported]] = {}
        self._polls: list[Polled] = []
        self._limits: list[LimitsSet] = []
        for sighting in sightings:
            self.lines += 1
            self._take(sighting)
        self._tell_leases()
        self.changes = LimitChanges(self._limits)

    @cached_property
    def lines_heard_out(self) -> frozenset[tuple[str | None, str, str, str]]:
        """Worker, namespace, queue and kind whose every poll is recorded with its response.

        A worker with a recorded lease of a queue is assumed to have recorded all its polls of that queue.
        """
        unanswered = {poll.worker_id for poll in self._polls if poll.t_ok is None}
        return frozenset(
            (poll.worker_id, lease.namespace, lease.task_queue, lease.kind)
            for poll in self._polls
            if poll.worker_id is not None and poll.worker_id not in unanswered
            for lease in poll.leases
        )

    def _take(self, sighting: Observation) -> None:
        match sighting:
            case Polled():
                self._polls.append(sighting)
            case Reported():
                self.reports.setdefault(sighting.lease_id, []).append(sighting)
            case StartSent():
                self.starts.append(sighting)
            case LimitsSet():
                self._limits.append(sighting)
            case ObservedFinal():
                self.finals.append(sighting)
            case Quiescent():
                self.is_quiescent = True

    def _tell_leases(self) -> None:
        first_asked: dict[tuple[str | None, str], float] = {}
        for poll in self._polls:
            if poll.poll_request_id is not None:
                name = poll.worker_id, poll.poll_request_id
                first_asked[name] = min(poll.t_inv, first_asked.get(name, inf))
        for poll in self._polls:
            asked_at = first_asked.get((poll.worker_id, poll.poll_request_id or ""), poll.t_inv)
            for lease in poll.leases if poll.t_ok is not None else ():
                self._tell(lease, poll, asked_at)

    def _tell(self, lease: PolledLease, poll: Polled, asked_at: float) -> None:
        assert poll.t_ok is not None
        known = self.leases.get(lease.lease_id)
        if known is None:
            reports = self.reports.get(lease.lease_id, [])
            self.leases[lease.lease_id] = ObservedLease(lease, poll.worker_id, asked_at, poll.t_ok, reports)
            return
        known.asked_at = min(known.asked_at, asked_at)
        known.known_at = min(known.known_at, poll.t_ok)
