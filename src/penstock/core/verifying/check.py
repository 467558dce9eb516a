"""All laws as one question: what was seen and what was written down, in; what was checked and found, out."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from penstock.core.verifying.agreement import Agreement
from penstock.core.verifying.caps import Caps
from penstock.core.verifying.certain import Certainties
from penstock.core.verifying.clock import READING, JournalClock, Reading
from penstock.core.verifying.costs import Costs
from penstock.core.verifying.delivered import Delivered
from penstock.core.verifying.fifo import ArrivalOrder
from penstock.core.verifying.findings import Book
from penstock.core.verifying.in_force import LimitsInForce
from penstock.core.verifying.journal import Ended, Granted, Line, Renewed, Started
from penstock.core.verifying.leases import Leases, Live
from penstock.core.verifying.lost import Lost
from penstock.core.verifying.namespaces import Namespaces
from penstock.core.verifying.outcomes import Outcomes
from penstock.core.verifying.rates import Rates
from penstock.core.verifying.seen import Seen
from penstock.core.verifying.sightings import Sighting


@dataclass(frozen=True, slots=True)
class Evidence:
    """How much was looked at."""

    journal_lines: int
    first_seq: int | None
    last_seq: int | None
    granted: int
    started: int
    renewed: int
    ended: int
    live_at_end: int
    scopes: int
    client_lines: int
    client_leases: int


def check(
    journal: Iterable[Line], sightings: Iterable[Sighting] = (), reading: Reading = READING
) -> tuple[Book, Evidence]:
    """Hold every law against a journal and what clients saw. The journal is read once and not kept."""
    checking = Checking(Seen(sightings), reading)
    for line in journal:
        checking.take(line)
    return checking.finish()


class Checking:
    """A check under way."""

    def __init__(self, seen: Seen, reading: Reading) -> None:
        self._book = book = Book()
        self._seen = seen
        self._clock = JournalClock(book, reading)
        self._leases = Leases()
        self._caps = Caps(book, self._leases)
        self._rates = Rates(book, self._clock)
        self._costs = Costs(book, self._clock)
        self._delivered = Delivered(book, seen)
        self._namespaces = Namespaces(book)
        self._outcomes = Outcomes(book, self._clock)
        self._in_force = LimitsInForce(book, seen)
        self._agreement = Agreement(book, seen, self._clock, reading)
        self._order = ArrivalOrder(book, seen)
        self._certain = Certainties(book, seen)
        self._lost = Lost(book, seen, self._leases)
        self._counts = dict.fromkeys((Granted, Started, Renewed, Ended), 0)

    def take(self, line: Line) -> None:
        self._clock.read(line)
        self._counts[type(line)] += 1
        match line:
            case Granted():
                self._granted(line)
            case Started():
                self._outcomes.started(line, self._leases.live.get(line.lease_id))
                self._in_force.started(line)
                live = self._leases.start(line)
                if live is not None:
                    self._taken(line, live)
            case Renewed():
                self._outcomes.renewed(line, self._leases.live.get(line.lease_id))
                self._leases.renew(line)
            case Ended():
                ended = self._leases.end(line)
                self._outcomes.ended(line, ended)
                self._delivered.ended(line, ended)
                self._rates.ended(line)
                self._costs.ended(line)
                self._agreement.ended(line)

    def _granted(self, line: Granted) -> None:
        before = self._leases.of_task.get(line.task_id)
        self._outcomes.granted(line, before)
        live = self._leases.grant(line)
        if live.is_running:
            self._taken(line, live)
        self._in_force.granted(line)
        self._agreement.granted(line)
        self._order.granted(line)

    def _taken(self, line: Granted | Started, live: Live) -> None:
        """A lease takes its place: limits are about this."""
        self._caps.taken(line, live)
        self._rates.taken(line, live)
        self._costs.taken(line, live)
        self._namespaces.taken(line, live)

    def finish(self) -> tuple[Book, Evidence]:
        self._agreement.finish()
        self._in_force.look_at_leases()
        self._certain.look(self._agreement.ends, self._agreement.clock_steps)
        self._order.finish()
        self._lost.finish()
        return self._book, self._evidence()

    def _evidence(self) -> Evidence:
        return Evidence(
            journal_lines=sum(self._counts.values()),
            first_seq=self._clock.first_seq,
            last_seq=self._clock.last_seq,
            granted=self._counts[Granted],
            started=self._counts[Started],
            renewed=self._counts[Renewed],
            ended=self._counts[Ended],
            live_at_end=len(self._leases.live),
            scopes=len(self._leases.scopes),
            client_lines=self._seen.lines,
            client_leases=len(self._seen.leases),
        )
