"""What clients alone can prove: leases that were certainly live together, and dispatches certainly in one minute.

A lease is certainly live from the response that contained it until its holder reports, or until it may have expired.
If it was ended otherwise, it was certainly live until the last response that confirmed it. So no violation is a false
alarm, though some may go undetected.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from math import inf
from typing import TypeVar

from penstock.core.verify.findings import Findings, Law, LawViolation, LeaseEvidence, shown_leases
from penstock.core.verify.journal import REPORTED, LeaseId
from penstock.core.verify.laws.rates import MINUTE_MS
from penstock.core.verify.observations import LimitValue, Reported
from penstock.core.verify.observed_leases import ObservedLease, ObservedLeases

T = TypeVar("T")
ENDING = ("complete", "fail", "hand_back")
EARLY_ENDS = ("cancelled", "lost", "handed_back", "undelivered", "timed_out", "returned")
"""Ends that the holder may not know about."""


@dataclass(frozen=True, slots=True)
class CertainSpan:
    """The time in which a lease was certainly live."""

    begins: float
    ends: float
    seen: ObservedLease

    @property
    def holder(self) -> LeaseEvidence:
        lease = self.seen.lease
        return LeaseEvidence(lease.task_id, lease.lease, self.seen.worker_id, self.begins)


Interval = tuple[float, float]


def certain_span(
    seen: ObservedLease, how: str | None, clock_steps: Sequence[Interval] = ()
) -> CertainSpan | None:
    """When a lease was certainly live; `how` is its end in the journal, if known.

    Nothing is certain after the server's clock was set: the lease may have expired.
    """
    begins = _counts_from(seen)
    ends = min([_expires_at(seen), *(each.t_inv for each in seen.reports if each.op in ENDING)])
    if _ended_unseen(seen, how):
        ends = min(ends, max((each.t_inv for each in _accepted(seen)), default=-inf))
    ends = min([ends, *(since for since, until in clock_steps if until > seen.asked_at)])
    return CertainSpan(begins, ends, seen) if ends > begins else None


def _counts_from(seen: ObservedLease) -> float:
    if seen.lease.phase == "running":
        return seen.known_at
    starts = (each.t_ok for each in _accepted(seen) if each.op == "started")
    return min((t_ok for t_ok in starts if t_ok is not None), default=inf)


def _expires_at(seen: ObservedLease) -> float:
    """The earliest time at which it may have expired."""
    told = [each for each in _accepted(seen) if each.expires_in_ms is not None]
    renewed = (each.t_inv + (each.expires_in_ms or 0) for each in told)
    return max([seen.asked_at + (seen.lease.expires_in_ms or 0), *renewed])


def _accepted(seen: ObservedLease) -> list[Reported]:
    return [each for each in seen.reports if each.verdict == "accepted"]


def _ended_unseen(seen: ObservedLease, how: str | None) -> bool:
    if how in EARLY_ENDS or any(each.verdict == "refused" for each in seen.reports):
        return True
    return how in REPORTED and not any(each.op in ENDING for each in seen.reports)


class ClientEvidenceLaw:
    """Checks "client-cap", "client-rate" and "one-lease" by observations alone."""

    def __init__(self, book: Findings, seen: ObservedLeases) -> None:
        self._book = book
        self._seen = seen
        self._changes = seen.changes

    def look(self, ends: Mapping[LeaseId, str], clock_steps: Sequence[Interval]) -> None:
        spans = [
            span
            for lease_id, lease in self._seen.leases.items()
            if (span := certain_span(lease, ends.get(lease_id), clock_steps)) is not None
        ]
        spans.sort(key=lambda span: span.begins)
        self._one_lease(spans)
        for scope, within in self._by_scope(spans, lambda span: span.seen).items():
            self._cap(scope, within)
        running = (lease for lease in self._seen.leases.values() if lease.lease.phase == "running")
        leases = sorted(running, key=lambda lease: lease.known_at)
        for scope, got in self._by_scope(leases, lambda lease: lease).items():
            self._rate(scope, got, clock_steps)

    def _by_scope(self, all_: Iterable[T], lease_of: Callable[[T], ObservedLease]) -> dict[str, list[T]]:
        """Grouped by the scopes whose limits are known, in order."""
        found: dict[str, list[T]] = {scope: [] for scope in sorted(self._changes.scopes)}
        for each in all_:
            for scope in self._changes.scopes.intersection(lease_of(each).scopes):
                found[scope].append(each)
        return found

    def _one_lease(self, spans: list[CertainSpan]) -> None:
        last: dict[str, CertainSpan] = {}
        for span in spans:
            task_id = span.seen.lease.task_id
            before = last.get(task_id)
            if before is not None:
                self._book.checked[Law.ONE_LEASE] += 1
                if span.begins < before.ends:
                    said = f"{span.seen.worker_id} got task {task_id} while {before.seen.worker_id} had it"
                    holders = (before.holder, span.holder)
                    self._book.find(LawViolation(Law.ONE_LEASE, said, span.begins, holders=holders))
            if before is None or span.ends > before.ends:
                last[task_id] = span

    def _cap(self, scope: str, spans: list[CertainSpan]) -> None:
        live: list[tuple[float, int, CertainSpan]] = []
        for number, span in enumerate(spans):
            while live and live[0][0] <= span.begins:
                heappop(live)
            heappush(live, (span.ends, number, span))
            allowed = self._allowed(scope, span.seen)
            if allowed == 0 or allowed == inf:
                continue
            self._book.checked[Law.CLIENT_CAP] += 1
            if len(live) > allowed:
                self._judge_cap(scope, span, [each for _, _, each in sorted(live)])

    def _judge_cap(self, scope: str, span: CertainSpan, live: list[CertainSpan]) -> None:
        """One of the leases was granted last, under a cap that may have been in force then; find one that fits."""
        latest = max(each.seen.asked_at for each in live)
        cap = max(self._allowed(scope, each.seen) for each in live if each.seen.known_at >= latest)
        if len(live) > cap:
            said = f"clients held {len(live)} leases where {int(cap)} may live"
            holders = shown_leases(each.holder for each in live)
            self._book.find(
                LawViolation(Law.CLIENT_CAP, said, span.begins, None, scope, len(live), int(cap), holders)
            )

    def _allowed(self, scope: str, seen: ObservedLease) -> float:
        until = seen.known_at
        for report in seen.reports:
            if report.op == "started" and report.t_ok is not None:
                until = max(until, report.t_ok)
        return self._changes.most(scope, "max_active_leases", seen.asked_at, until)

    def _rate(self, scope: str, leases: list[ObservedLease], clock_steps: Sequence[Interval]) -> None:
        within: list[tuple[float, int, ObservedLease]] = []
        for number, lease in enumerate(leases):
            begins = lease.known_at - MINUTE_MS
            heappush(within, (lease.asked_at, number, lease))
            while within and within[0][0] <= begins:
                heappop(within)
            rate = self._rate_of(scope, lease)
            if rate == 0 or rate == inf or _moved_within(clock_steps, begins, lease.known_at):
                continue
            self._book.checked[Law.CLIENT_RATE] += 1
            if len(within) > rate:
                self._judge_rate(scope, lease, [each for _, _, each in sorted(within)])

    def _judge_rate(self, scope: str, lease: ObservedLease, within: list[ObservedLease]) -> None:
        rate = max(self._rate_of(scope, each) for each in within)
        if len(within) > rate:
            said = f"clients got {len(within)} tasks in sixty seconds, in which {int(rate)} may go"
            holders = shown_leases(
                LeaseEvidence(each.lease.task_id, each.lease.lease, each.worker_id, each.known_at)
                for each in within
            )
            self._book.find(
                LawViolation(
                    Law.CLIENT_RATE, said, lease.known_at, None, scope, len(within), int(rate), holders
                )
            )

    def _rate_of(self, scope: str, lease: ObservedLease) -> float:
        """The most dispatches in sixty seconds: calendar minutes allow twice the limit around their turn."""
        since, until = lease.asked_at, lease.known_at
        rate = self._changes.most(scope, "max_dispatches_per_minute", since, until)
        sliding = self._changes.possible(scope, "window", since, until) == frozenset[LimitValue]({"sliding"})
        return rate if sliding else 2 * rate


def _moved_within(clock_steps: Sequence[Interval], begins: float, ends: float) -> bool:
    return any(since <= ends and until >= begins for since, until in clock_steps)
