"""Task lifecycles in the journal: one lease at a time, rising attempts, one end per lease, one outcome."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.core.verify.findings import Findings, Law, LawViolation
from penstock.core.verify.journal import (
    REPORTED,
    UNCHARGED,
    JournalLine,
    LeaseEnded,
    LeaseGranted,
    LeaseId,
    LeaseRenewed,
    LeaseStarted,
)
from penstock.core.verify.journal_clock import JournalClock
from penstock.core.verify.live_leases import LiveLease


@dataclass(slots=True)
class TaskLife:
    """The state of a task in the journal so far."""

    attempt: int
    lease: str
    how: str | None = None
    """How its last lease ended; None: it is live."""
    is_completed: bool = False
    is_charged: bool = True
    """Whether its last lease counts as an attempt; one that was prefetched and never started does not."""


class OutcomeLaw:
    """Checks "one-lease", "attempts-rise", "ends-once", "late-answer" and "one-outcome" for every line."""

    def __init__(self, book: Findings, clock: JournalClock) -> None:
        self._book = book
        self._clock = clock
        self._tasks: dict[str, TaskLife] = {}
        self._ended: set[LeaseId] = set()

    def granted(self, line: LeaseGranted, before: LiveLease | None) -> None:
        """`before`: the lease of the same task that was live when this one was granted."""
        self._book.checked[Law.ONE_LEASE] += 1
        if before is not None:
            grant = before.grant
            said = f"task {line.task_id} is leased to {line.worker_id} while {grant.worker_id} has it"
            self._find(Law.ONE_LEASE, line, f"{said} since number {grant.seq}")
        life = self._tasks.get(line.task_id)
        if life is None:
            self._tasks[line.task_id] = TaskLife(line.attempt, line.lease)
            return
        self._attempt_rises(line, life)
        self._book.checked[Law.ONE_OUTCOME] += 1
        if life.is_completed:
            self._find(Law.ONE_OUTCOME, line, f"task {line.task_id} was completed and is granted again")
        life.attempt, life.lease, life.how, life.is_charged = line.attempt, line.lease, None, True

    def started(self, line: LeaseStarted, live: LiveLease | None) -> None:
        self._lives(line, live)
        self._in_time(line, live)

    def renewed(self, line: LeaseRenewed, live: LiveLease | None) -> None:
        self._lives(line, live)
        self._in_time(line, live)

    def ended(self, line: LeaseEnded, live: LiveLease | None) -> None:
        self._lives(line, live)
        if line.how in REPORTED:
            self._in_time(line, live)
        self._ended.add(line.lease_id)
        life = self._tasks.get(line.task_id)
        if life is None:
            life = self._tasks[line.task_id] = TaskLife(0, line.lease)
        if life.lease == line.lease:
            life.how = line.how
            life.is_charged = line.how not in UNCHARGED and (live is None or live.is_running)
        if line.how == "completed":
            self._completed_once(line, life)

    def _attempt_rises(self, line: LeaseGranted, life: TaskLife) -> None:
        self._book.checked[Law.ATTEMPTS_RISE] += 1
        again = not life.is_charged and line.attempt == life.attempt and line.lease != life.lease
        if line.attempt <= life.attempt and not again:
            said = f"task {line.task_id}: attempt {line.attempt} follows attempt {life.attempt}"
            self._find(Law.ATTEMPTS_RISE, line, said)
        elif line.lease_id in self._ended:
            said = f"task {line.task_id} is granted under the token of an ended lease"
            self._find(Law.ATTEMPTS_RISE, line, said)

    def _lives(self, line: LeaseStarted | LeaseRenewed | LeaseEnded, live: LiveLease | None) -> None:
        self._book.checked[Law.ENDS_ONCE] += 1
        if live is not None:
            return
        what = type(line).__name__.lower()
        if line.lease_id in self._ended:
            self._find(Law.ENDS_ONCE, line, f"a lease of task {line.task_id} is {what} after it has ended")
        elif not self._clock.begins_late:
            self._find(Law.ENDS_ONCE, line, f"a lease of task {line.task_id} is {what} and was never granted")

    def _in_time(self, line: LeaseStarted | LeaseRenewed | LeaseEnded, live: LiveLease | None) -> None:
        if live is None or live.expires_at_ms is None:
            return
        self._book.checked[Law.LATE_ANSWER] += 1
        if line.at_ms >= live.expires_at_ms:
            late = line.at_ms - live.expires_at_ms
            what = line.how if isinstance(line, LeaseEnded) else type(line).__name__.lower()
            said = f"a lease of task {line.task_id} is {what} {late} ms after it has expired"
            self._find(Law.LATE_ANSWER, line, said)

    def _completed_once(self, line: LeaseEnded, life: TaskLife) -> None:
        self._book.checked[Law.ONE_OUTCOME] += 1
        if life.is_completed:
            self._find(Law.ONE_OUTCOME, line, f"task {line.task_id} is completed twice")
        life.is_completed = True

    def _find(self, law: Law, line: JournalLine, said: str) -> None:
        self._book.find(LawViolation(law, said, line.at_ms, line.seq))
