"""The journal's order and its clock: numbers that rise, and an instant for each line that never runs back.

A transaction reads the clock, then may wait for its turn, so a line can tell an instant slightly before that of
the line above it: it happened after it all the same. A longer step back is a clock that was set; it begins a new
era, whose windows have nothing to do with those before.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum, auto

from penstock.core.verify.findings import CheckNotice, Findings, Law, LawViolation
from penstock.core.verify.journal import JournalLine

CLOCK_STEP_MS = 1_000


class Gaps(StrEnum):
    """What a gap in the numbers means: PostgreSQL leaves one where a transaction was undone, SQLite never."""

    NOTED = auto()
    FOUND = auto()


@dataclass(frozen=True, slots=True)
class ClockOptions:
    """How a journal is to be read."""

    clock_step_ms: int = CLOCK_STEP_MS
    gaps: Gaps = Gaps.NOTED


DEFAULT_CLOCK_OPTIONS = ClockOptions()


class JournalClock:
    """Holds "sequence" against every line, and tells when it happened."""

    def __init__(self, book: Findings, reading: ClockOptions = DEFAULT_CLOCK_OPTIONS) -> None:
        self._book = book
        self._reading = reading
        self._seq: int | None = None
        self.first_seq: int | None = None
        self.first_at_ms: int | None = None
        self.era = 0
        self.now_ms = 0

    @property
    def last_seq(self) -> int | None:
        return self._seq

    @property
    def begins_late(self) -> bool:
        """The journal's first lines are not there, so what it does not tell may have been in them."""
        return self.first_seq is not None and self.first_seq > 1

    def read(self, line: JournalLine) -> None:
        if self._seq is None:
            self.first_seq, self.first_at_ms, self.now_ms = line.seq, line.at_ms, line.at_ms
        else:
            self._follows(line, self._seq)
        self._seq = line.seq
        self._move(line)

    def _follows(self, line: JournalLine, seq: int) -> None:
        self._book.checked[Law.SEQUENCE] += 1
        if line.seq == seq + 1:
            return
        said = f"after number {seq} comes {line.seq}"
        if line.seq <= seq or self._reading.gaps is Gaps.FOUND:
            self._book.find(LawViolation(Law.SEQUENCE, said, line.at_ms, line.seq))
        else:
            self._book.notice(CheckNotice("gap", said, line.seq))

    def _move(self, line: JournalLine) -> None:
        if line.at_ms < self.now_ms - self._reading.clock_step_ms:
            said = f"the clock was set back by {self.now_ms - line.at_ms} ms"
            self._book.notice(CheckNotice("clock-step", said, line.seq))
            self.era += 1
            self.now_ms = line.at_ms
        self.now_ms = max(self.now_ms, line.at_ms)
