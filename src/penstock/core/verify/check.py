"""Checks a journal and the observations of clients against all laws."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from penstock.core.verify.findings import OF_LOAD, Findings, Law
from penstock.core.verify.journal import (
    JournalLine,
    LeaseEnded,
    LeaseGranted,
    LeaseRenewed,
    LeaseStarted,
    LoadLine,
    RunAdmitted,
    RunClosed,
    SettingsChanged,
    TaskGone,
    TaskReady,
    WorkerChanged,
)
from penstock.core.verify.journal_clock import DEFAULT_CLOCK_OPTIONS, ClockOptions, JournalClock
from penstock.core.verify.laws.agreement import AgreementLaw
from penstock.core.verify.laws.arrival_order import ArrivalOrderLaw
from penstock.core.verify.laws.bounded_waits import BoundedWaitingLaw
from penstock.core.verify.laws.caps import CapLaw
from penstock.core.verify.laws.client_evidence import ClientEvidenceLaw
from penstock.core.verify.laws.conservation import ConservationLaw
from penstock.core.verify.laws.costs import CostLaw
from penstock.core.verify.laws.delivery import DeliveryLaw
from penstock.core.verify.laws.limits_in_force import LimitsInForceLaw
from penstock.core.verify.laws.lost_work import LostWorkLaw
from penstock.core.verify.laws.namespaces import NamespaceLaw
from penstock.core.verify.laws.outcomes import OutcomeLaw
from penstock.core.verify.laws.rates import RateLaw
from penstock.core.verify.laws.run_caps import RunCapLaw
from penstock.core.verify.laws.shares import SharesLaw
from penstock.core.verify.live_leases import LiveLease, LiveLeases
from penstock.core.verify.observations import Observation
from penstock.core.verify.observed_leases import ObservedLeases
from penstock.core.verify.waiting_tasks import WaitingTasks


@dataclass(frozen=True, slots=True)
class EvidenceSummary:
    """The amount of evidence checked."""

    journal_lines: int
    first_seq: int | None
    last_seq: int | None
    granted: int
    started: int
    renewed: int
    ended: int
    arrived: int
    """Tasks that became ready, retries included; 0 in the journal of an older version."""
    live_at_end: int
    scopes: int
    client_lines: int
    client_leases: int

    @property
    def not_judged(self) -> tuple[Law, ...]:
        """The laws that need arrivals, if the journal has none."""
        return () if self.arrived or not self.granted else tuple(sorted(OF_LOAD))


def check(
    journal: Iterable[JournalLine],
    sightings: Iterable[Observation] = (),
    reading: ClockOptions = DEFAULT_CLOCK_OPTIONS,
) -> tuple[Findings, EvidenceSummary]:
    """Check every law. The journal is streamed: read once, and not kept in memory."""
    checking = Checker(ObservedLeases(sightings), reading)
    for line in journal:
        checking.take(line)
    return checking.finish()


class Checker:
    """A check in progress."""

    def __init__(self, seen: ObservedLeases, reading: ClockOptions) -> None:
        self._book = book = Findings()
        self._seen = seen
        self._clock = JournalClock(book, reading)
        self._leases = LiveLeases()
        self._caps = CapLaw(book, self._leases)
        self._rates = RateLaw(book, self._clock)
        self._costs = CostLaw(book, self._clock)
        self._delivered = DeliveryLaw(book, seen)
        self._namespaces = NamespaceLaw(book)
        self._outcomes = OutcomeLaw(book, self._clock)
        self._in_force = LimitsInForceLaw(book, seen)
        self._agreement = AgreementLaw(book, seen, self._clock, reading)
        self._order = ArrivalOrderLaw(book, seen)
        self._certain = ClientEvidenceLaw(book, seen)
        self._lost = LostWorkLaw(book, seen, self._leases)
        self._run_caps = RunCapLaw(book)
        self._waiting = WaitingTasks()
        self._shares = SharesLaw(book, self._waiting)
        self._conservation = ConservationLaw(book, self._waiting)
        self._bounded = BoundedWaitingLaw(book, self._waiting)
        self._counts: Counter[type[JournalLine]] = Counter()

    def take(self, line: JournalLine) -> None:
        era = self._clock.era
        self._clock.read(line)
        self._counts[type(line)] += 1
        if era != self._clock.era:
            self._restart_load(line.at_ms)
        match line:
            case LeaseGranted():
                self._granted(line)
            case LeaseStarted():
                self._started(line)
            case LeaseRenewed():
                self._outcomes.renewed(line, self._leases.live.get(line.lease_id))
                self._leases.renew(line)
            case LeaseEnded():
                self._ended(line)
            case RunAdmitted():
                self._run_caps.admitted(line)
            case RunClosed():
                self._run_caps.closed(line)
            case _:
                self._load_changed(line)

    def _load_changed(self, line: LoadLine) -> None:
        match line:
            case TaskReady():
                self._waiting.ready(line)
            case TaskGone():
                self._waiting.gone(line)
            case WorkerChanged():
                self._waiting.worker(line)
            case SettingsChanged():
                self._restart_load(line.at_ms)

    def _started(self, line: LeaseStarted) -> None:
        self._outcomes.started(line, self._leases.live.get(line.lease_id))
        self._in_force.started(line)
        live = self._leases.start(line)
        if live is not None:
            self._taken(line, live)

    def _ended(self, line: LeaseEnded) -> None:
        ended = self._leases.end(line)
        self._outcomes.ended(line, ended)
        self._shares.ended(line, ended)
        self._delivered.ended(line, ended)
        self._rates.ended(line)
        self._costs.ended(line)
        self._agreement.ended(line)

    def _granted(self, line: LeaseGranted) -> None:
        before = self._leases.of_task.get(line.task_id)
        self._outcomes.granted(line, before)
        live = self._leases.grant(line)
        if live.is_running:
            self._taken(line, live)
        self._in_force.granted(line)
        self._agreement.granted(line)
        self._order.granted(line)
        task = self._waiting.grant(line)
        self._conservation.granted(line, task)
        self._shares.granted(line)
        self._bounded.granted(line)

    def _restart_load(self, now_ms: int) -> None:
        """Settings have changed, or the clock was set: what waited is judged from now on."""
        self._shares.restart()
        self._conservation.restart(now_ms)
        self._bounded.restart()

    def _taken(self, line: LeaseGranted | LeaseStarted, live: LiveLease) -> None:
        """A lease begins to count: limits apply to this."""
        self._caps.taken(line, live)
        self._rates.taken(line, live)
        self._costs.taken(line, live)
        self._namespaces.taken(line, live)

    def finish(self) -> tuple[Findings, EvidenceSummary]:
        self._agreement.finish()
        self._in_force.look_at_leases()
        self._certain.look(self._agreement.ends, self._agreement.clock_steps)
        self._order.finish()
        self._lost.finish()
        return self._book, self._evidence()

    def _evidence(self) -> EvidenceSummary:
        return EvidenceSummary(
            journal_lines=self._counts.total(),
            first_seq=self._clock.first_seq,
            last_seq=self._clock.last_seq,
            granted=self._counts[LeaseGranted],
            started=self._counts[LeaseStarted],
            renewed=self._counts[LeaseRenewed],
            ended=self._counts[LeaseEnded],
            arrived=self._counts[TaskReady],
            live_at_end=len(self._leases.live),
            scopes=len(self._leases.scopes),
            client_lines=self._seen.lines,
            client_leases=len(self._seen.leases),
        )
