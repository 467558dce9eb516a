"""The journal's order and clock: rising sequence numbers, and a time for each line that never goes back.

A transaction reads the clock and may then wait for a lock, so a line can have a slightly earlier time than the line
before it, although it happened later. A larger step back is a clock that was set; it begins a new era, whose windows
are independent of those before.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum, auto

from penstock.core.verify.findings import CheckNotice, Findings, Law, LawViolation
from penstock.core.verify.journal import JournalLine

CLOCK_STEP_MS = 1_000


class Gaps(StrEnum):
    """How gaps in the numbers are treated: PostgreSQL leaves one after a rollback, SQLite never."""

    NOTED = auto()
    FOUND = auto()


@dataclass(frozen=True, slots=True)
class ClockOptions:
    """Options for reading a journal."""

    clock_step_ms: int = CLOCK_STEP_MS
    gaps: Gaps = Gaps.NOTED


DEFAULT_CLOCK_OPTIONS = ClockOptions()


class JournalClock:
    """Checks "sequence" for every line, and provides its time."""

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
        """Whether the first lines of the journal are missing, so that absent facts may have been in them."""
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
