"""Results of a check: the number of facts checked by each law, and its violations."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum

FINDINGS_KEPT_MAX = 100
"""Most violations of one law that are kept in full; all are counted."""

HOLDERS_KEPT_MAX = 50


class Law(StrEnum):
    """The laws. The names are API."""

    CAP = "cap"
    RATE = "rate"
    COST = "cost"
    DELIVERED = "delivered"
    CLOSED = "closed"
    CLIENT_CAP = "client-cap"
    CLIENT_RATE = "client-rate"
    LIMIT_IN_FORCE = "limit-in-force"
    ONE_LEASE = "one-lease"
    ATTEMPTS_RISE = "attempts-rise"
    ENDS_ONCE = "ends-once"
    LATE_ANSWER = "late-answer"
    ONE_OUTCOME = "one-outcome"
    ACKNOWLEDGED = "acknowledged"
    CALL_ORDER = "call-order"
    NAMESPACE = "namespace"
    SEQUENCE = "sequence"
    FIFO = "fifo"
    LOST = "lost"
    RUN_CAP = "run-cap"
    FAIR_SHARES = "fair-shares"
    WORK_CONSERVING = "work-conserving"
    BOUNDED_WAITING = "bounded-waiting"


OF_LOAD = frozenset({Law.FAIR_SHARES, Law.WORK_CONSERVING, Law.BOUNDED_WAITING})
"""Laws that need the arrivals of tasks in the journal, which older versions did not write."""

PROMISES = {
    Law.CAP: "at every grant, no scope holds more running leases than its cap",
    Law.RATE: "no window holds more dispatches of a scope than its rate",
    Law.COST: "no window holds more cost of a scope than its budget",
    Law.DELIVERED: "every dispatch that was counted reached its worker, or was refunded",
    Law.CLOSED: "a scope with a limit of zero, or paused, gives nothing",
    Law.CLIENT_CAP: "clients never certainly hold more leases of a scope than its cap",
    Law.CLIENT_RATE: "clients never certainly got more in a minute than a rate allows",
    Law.LIMIT_IN_FORCE: "a grant carries the limit that was acknowledged before it was asked for",
    Law.ONE_LEASE: "a task has one live lease at a time",
    Law.ATTEMPTS_RISE: "each new grant of a task has a higher attempt",
    Law.ENDS_ONCE: "a lease that was granted ends once, and nothing happens to it afterwards",
    Law.LATE_ANSWER: "nothing is accepted from a lease that has expired",
    Law.ONE_OUTCOME: "a task is completed once, and not granted again",
    Law.ACKNOWLEDGED: "every acknowledged response matches the journal",
    Law.CALL_ORDER: "what was answered before something else was sent comes before it in the journal",
    Law.NAMESPACE: "nothing belongs to two namespaces",
    Law.SEQUENCE: "the journal's numbers rise, and where they are dense there is no gap",
    Law.FIFO: "of one queue, level and key, who was acknowledged first is granted first",
    Law.LOST: "what was acknowledged is still there, and does not wait for nothing",
    Law.RUN_CAP: "at every start, no scope has more open runs than its cap on runs",
    Law.FAIR_SHARES: "of two keys that wait, each gets its share of the dispatches, give or take one",
    Law.WORK_CONSERVING: "no task waits while a worker asks for it and nothing is in the way",
    Law.BOUNDED_WAITING: "with aging, every n-th dispatch goes to a level that starves",
}


@dataclass(frozen=True, slots=True)
class LeaseEvidence:
    """A lease that counted at the time of a violation."""

    task_id: str
    lease: str
    worker_id: str | None
    since_ms: float


@dataclass(frozen=True, slots=True)
class LawViolation:
    """A violation of a law."""

    law: Law
    said: str
    at_ms: float | None = None
    """By the journal's clock if there is a `seq`, else by the clients'."""
    seq: int | None = None
    scope: str | None = None
    count: int | None = None
    cap: int | None = None
    holders: tuple[LeaseEvidence, ...] = ()


@dataclass(frozen=True, slots=True)
class CheckNotice:
    """A remarkable fact that violates no law."""

    about: str
    said: str
    seq: int | None = None


@dataclass(slots=True)
class Findings:
    """Collects what the laws checked and found."""

    checked: Counter[Law] = field(default_factory=Counter)
    found: Counter[Law] = field(default_factory=Counter)
    findings: list[LawViolation] = field(default_factory=list)
    notices: list[CheckNotice] = field(default_factory=list)
    noticed: Counter[str] = field(default_factory=Counter)

    def find(self, finding: LawViolation) -> None:
        self.found[finding.law] += 1
        if self.found[finding.law] <= FINDINGS_KEPT_MAX:
            self.findings.append(finding)

    def notice(self, notice: CheckNotice) -> None:
        self.noticed[notice.about] += 1
        if self.noticed[notice.about] <= FINDINGS_KEPT_MAX:
            self.notices.append(notice)


def shown_leases(holders: Iterable[LeaseEvidence]) -> tuple[LeaseEvidence, ...]:
    """The first leases, up to the number that a violation lists."""
    return tuple(holder for holder, _ in zip(holders, range(HOLDERS_KEPT_MAX), strict=False))
