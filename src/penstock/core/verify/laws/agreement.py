"""Agreement: the journal and the clients report the same facts in the same order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import inf

from penstock.core.verify.findings import CheckNotice, Findings, Law, LawViolation
from penstock.core.verify.journal import REPORTED, JournalLine, LeaseEnded, LeaseGranted, LeaseId
from penstock.core.verify.journal_clock import ClockOptions, JournalClock
from penstock.core.verify.observations import Reported
from penstock.core.verify.observed_leases import ObservedLease, ObservedLeases

JOURNAL_OUTCOMES = {"complete": ("completed", "throttled"), "fail": ("failed", "throttled", "returned")}
"""The journal's possible outcomes of a lease after an accepted report."""


@dataclass(slots=True)
class Offset:
    """The offset of the journal's clock to the clients', bounded by calls."""

    least: float = -inf
    most: float = inf
    last_at: float = -inf
    steps: list[tuple[float, float]] = field(default_factory=list)
    """Intervals of client time in which the journal's clock was set."""

    def narrow(self, at_ms: int, asked_at: float, known_at: float, slack_ms: float) -> float | None:
        """Narrow the bounds by one event; returns by how much the clock was set, if it was."""
        least, most = at_ms - known_at, at_ms - asked_at
        moved = None
        if least > self.most + slack_ms:
            moved = least - self.most
        elif most < self.least - slack_ms:
            moved = most - self.least
        if moved is not None:
            self.steps.append((min(self.last_at, asked_at), known_at))
            self.least, self.most = least, most
        self.least, self.most = max(self.least, least), min(self.most, most)
        self.last_at = max(self.last_at, asked_at)
        return moved


class AgreementLaw:
    """Checks "acknowledged", "call-order", "one-outcome" and "namespace"."""

    def __init__(
        self, book: Findings, seen: ObservedLeases, clock: JournalClock, reading: ClockOptions
    ) -> None:
        self._book = book
        self._seen = seen
        self._clock = clock
        self._clock_step_ms = reading.clock_step_ms
        self._offset = Offset()
        self._granted: set[LeaseId] = set()
        self.ends: dict[LeaseId, str] = {}
        """The journal's ends of leases that clients know."""
        self._latest_sent = -inf
        self._latest_what = ""

    @property
    def clock_steps(self) -> Sequence[tuple[float, float]]:
        return self._offset.steps

    def granted(self, line: LeaseGranted) -> None:
        seen = self._seen.leases.get(line.lease_id)
        if seen is None:
            return
        self._granted.add(line.lease_id)
        self._is_same(line, seen)
        self._in_order(line, seen.asked_at, seen.known_at, f"the grant of task {line.task_id}")
        moved = self._offset.narrow(line.at_ms, seen.asked_at, seen.known_at, self._clock_step_ms)
        if moved is not None:
            message = f"the journal's clock moved by about {moved:.0f} ms against the clients'"
            self._book.notice(CheckNotice("clock-moved", message, line.seq))

    def ended(self, line: LeaseEnded) -> None:
        reports = self._seen.reports.get(line.lease_id)
        if line.lease_id in self._seen.leases or reports:
            self.ends.setdefault(line.lease_id, line.how)
        if line.how not in REPORTED or not reports:
            return
        self._check_reports(line, [each for each in reports if each.op in JOURNAL_OUTCOMES])

    def _check_reports(self, line: LeaseEnded, reports: Sequence[Reported]) -> None:
        """Check the end of a lease against the reports that may have caused it."""
        if reports and all(each.verdict == "refused" for each in reports):
            message = f"task {line.task_id} is {line.how} by a lease whose every report was refused"
            self._find(Law.ACKNOWLEDGED, line, message)
        accepted = [each.t_ok for each in reports if each.verdict == "accepted" and each.t_ok is not None]
        if accepted:
            asked_at = min(each.t_inv for each in reports)
            self._in_order(line, asked_at, min(accepted), f"the end of task {line.task_id}")

    def finish(self) -> None:
        """Check what needs the whole journal: facts that are missing from it."""
        self._one_outcome()
        if self._clock.begins_late:
            return
        for lease_id, lease in self._seen.leases.items():
            self._book.checked[Law.ACKNOWLEDGED] += 1
            if lease_id not in self._granted:
                message = (
                    f"{lease.worker_id} got task {lease_id[0]}, and the journal never granted that lease"
                )
                self._book.find(LawViolation(Law.ACKNOWLEDGED, message, lease.known_at))
        for reports in self._seen.reports.values():
            for report in reports:
                if report.op in JOURNAL_OUTCOMES and report.verdict == "accepted":
                    self._check_acknowledged(report)

    def _check_acknowledged(self, report: Reported) -> None:
        self._book.checked[Law.ACKNOWLEDGED] += 1
        how = self.ends.get(report.lease_id)
        if how not in JOURNAL_OUTCOMES[report.op]:
            contradiction = "does not know of it" if how is None else f"calls it {how}"
            message = (
                f"the {report.op} of task {report.task_id} was accepted, and the journal {contradiction}"
            )
            self._book.find(LawViolation(Law.ACKNOWLEDGED, message, report.t_ok))

    def _one_outcome(self) -> None:
        completed: dict[str, str] = {}
        for (task_id, lease), reports in self._seen.reports.items():
            if any(each.op == "complete" and each.verdict == "accepted" for each in reports):
                self._book.checked[Law.ONE_OUTCOME] += 1
                if completed.setdefault(task_id, lease) != lease:
                    message = f"two leases of task {task_id} both got an accepted outcome"
                    self._book.find(LawViolation(Law.ONE_OUTCOME, message, reports[-1].t_ok))

    def _is_same(self, line: LeaseGranted, seen: ObservedLease) -> None:
        lease = seen.lease
        self._book.checked[Law.NAMESPACE] += 1
        there = line.namespace, line.task_queue, line.kind
        if there != (lease.namespace, lease.task_queue, lease.kind):
            here = f"{lease.namespace}/{lease.task_queue}/{lease.kind}"
            message = f"task {line.task_id} went to a poll of {here}, the journal says {'/'.join(there)}"
            self._find(Law.NAMESPACE, line, message)
        if lease.attempt is not None and lease.attempt != line.attempt:
            message = (
                f"task {line.task_id}: attempt {lease.attempt} to the worker, {line.attempt} in the journal"
            )
            self._find(Law.ACKNOWLEDGED, line, message)
        if seen.worker_id is not None and line.worker_id is not None and seen.worker_id != line.worker_id:
            message = f"{seen.worker_id} got task {line.task_id}, the journal says {line.worker_id}"
            self._find(Law.ACKNOWLEDGED, line, message)

    def _in_order(self, line: JournalLine, asked_at: float, known_at: float, what: str) -> None:
        self._book.checked[Law.CALL_ORDER] += 1
        if known_at < self._latest_sent:
            message = f"{what} was answered before {self._latest_what} was asked for, and comes after it"
            self._find(Law.CALL_ORDER, line, message)
        if asked_at > self._latest_sent:
            self._latest_sent, self._latest_what = asked_at, what

    def _find(self, law: Law, line: JournalLine, message: str) -> None:
        self._book.find(LawViolation(law, message, line.at_ms, line.seq))
