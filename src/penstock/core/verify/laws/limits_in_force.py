"""Limits in force: a grant in the journal carries the limits that were acknowledged to operators."""

from __future__ import annotations

from penstock.core.verify.findings import Findings, Law, LawViolation
from penstock.core.verify.journal import LeaseGranted, LeaseStarted, ScopeLimits
from penstock.core.verify.observations import LimitValue
from penstock.core.verify.observed_leases import ObservedLease, ObservedLeases

NUMBERS = ("max_active_leases", "max_dispatches_per_minute", "max_cost_per_minute")


class LimitsInForceLaw:
    """Checks "limit-in-force" for each grant that was requested after a change was acknowledged.

    Checks "closed" for the lease itself, independently of the journal.
    """

    def __init__(self, book: Findings, seen: ObservedLeases) -> None:
        self._book = book
        self._seen = seen
        self._changes = seen.changes

    def granted(self, line: LeaseGranted) -> None:
        lease = self._seen.leases.get(line.lease_id)
        if lease is None or not self._changes.scopes:
            return
        if line.phase == "running":
            self._are_carried(line, line.scopes, lease, lease.asked_at, lease.known_at)

    def started(self, line: LeaseStarted) -> None:
        lease = self._seen.leases.get(line.lease_id)
        if lease is None or not self._changes.scopes:
            return
        asked = [each for each in lease.reports if each.op == "started"]
        known = [each.t_ok for each in asked if each.verdict == "accepted" and each.t_ok is not None]
        if known:
            self._are_carried(line, line.scopes, lease, min(each.t_inv for each in asked), min(known))

    def _are_carried(
        self,
        line: LeaseGranted | LeaseStarted,
        scopes: tuple[ScopeLimits, ...],
        lease: ObservedLease,
        since: float,
        until: float,
    ) -> None:
        told = {limits.scope: limits for limits in scopes}
        for scope in sorted(self._changes.scopes & {*told, *lease.scopes}):
            for limit in NUMBERS:
                possible = self._changes.possible(scope, limit, since, until)
                self._is_carried(line, scope, limit, possible, told.get(scope))

    def _is_carried(
        self,
        line: LeaseGranted | LeaseStarted,
        scope: str,
        limit: str,
        possible: frozenset[LimitValue] | None,
        told: ScopeLimits | None,
    ) -> None:
        if possible is None or None in possible:  # unsetting a limit leaves it to the configuration
            return
        self._book.checked[Law.LIMIT_IN_FORCE] += 1
        carried = None if told is None else getattr(told, limit)
        if carried in possible:
            return
        said = f"{limit} was acknowledged as {_words(possible)}, the grant was decided with {_word(carried)}"
        if told is None:
            said = f"{limit} was acknowledged as {_words(possible)}, the grant was not counted there"
        self._book.find(LawViolation(Law.LIMIT_IN_FORCE, said, line.at_ms, line.seq, scope))

    def look_at_leases(self) -> None:
        """Check that no scope of an observed lease was closed during its whole poll."""
        for lease in self._seen.leases.values() if self._changes.scopes else ():
            for scope in sorted(self._changes.scopes.intersection(lease.scopes)):
                self._was_open(lease, scope)

    def _was_open(self, lease: ObservedLease, scope: str) -> None:
        """Limits apply to a prefetched lease at its start; a pause applies to its grant."""
        numbers = NUMBERS[:2] if lease.lease.phase == "running" else ()
        for limit, closed in (("paused", True), *((number, 0) for number in numbers)):
            possible = self._changes.possible(scope, limit, lease.asked_at, lease.known_at)
            if possible is None:
                continue
            self._book.checked[Law.CLOSED] += 1
            if possible == {closed}:
                what = "paused" if limit == "paused" else f"closed by {limit} = 0"
                said = f"{lease.worker_id} got task {lease.lease.task_id} out of a scope that was {what}"
                self._book.find(LawViolation(Law.CLOSED, said, lease.known_at, None, scope, 1, 0))


def _words(values: frozenset[LimitValue]) -> str:
    return " or ".join(sorted(map(_word, values)))


def _word(value: LimitValue) -> str:
    return "no limit" if value is None else str(value)
