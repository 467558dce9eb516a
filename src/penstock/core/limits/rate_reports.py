"""How fast a queue may go by its workers' word, and who is heard: the operator, the workers, the system.

A worker speaks of the whole queue, not of itself. Whoever spoke last is heard; one that says nothing changes
nothing; and what was said lapses when nobody has said it for a while.
"""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct

REPORT_TTL_DEFAULT_MS = 300_000
"""How long a word holds after it was last said."""
CONFLICT_WITHIN_MS = 60_000
"""Different words of live workers within this time are a conflict."""
CONFLICT_SHOWN_MS = 300_000
_RENEWALS = 20
"""A word that is repeated is written down again when so small a part of its time has passed, not each time."""


class RateSource(StrEnum):
    """Who says how fast a whole line may go."""

    OPERATOR = "operator"
    WORKER = "worker"
    SYSTEM = "system"
    NONE = "none"


class RateConflict(Struct, frozen=True):
    """Live workers want different rates of one queue, so that it follows now the one, now the other."""

    worker_id: str
    micro: int
    """Who was heard before, and what it wants."""
    by: str
    by_micro: int
    """Who spoke against it."""
    since_ms: int
    at_ms: int
    """When it was seen last."""


class RateReport(Struct, frozen=True):
    """What a worker conveys: so many activities per million seconds, saved up for so long at most."""

    micro: int
    worker_id: str
    burst_ms: int | None = None
    """None: no opinion."""


class WorkerRate(Struct, frozen=True):
    """The limit that a worker conveyed last."""

    micro: int
    worker_id: str
    at_ms: int
    until_ms: int | None = None
    """When it lapses; None: it was written down before words lapsed, and holds until one is heard again."""
    burst_ms: int | None = None
    conflict: RateConflict | None = None

    def holds_at(self, now_ms: int) -> bool:
        return self.until_ms is None or now_ms < self.until_ms

    def conflict_at(self, now_ms: int) -> RateConflict | None:
        """The conflict, while it is worth a look."""
        seen = self.conflict
        return None if seen is None or now_ms - seen.at_ms > CONFLICT_SHOWN_MS else seen


class RateUpdate(Struct, frozen=True):
    """What is to be written down, and what is to be told."""

    rate: WorkerRate
    is_change: bool
    """Whether the queue goes by another rate from now on, not by the same for longer."""
    began: RateConflict | None = None
    """A conflict that was not there before."""


def is_renewed(known: WorkerRate | None, word: RateReport, now_ms: int, holds_ms: int) -> bool:
    """Whether a word brings nothing: it is in force, and for long enough."""
    if known is None or known.until_ms is None or not _says_the_same(known, word):
        return False
    return now_ms + holds_ms <= known.until_ms <= now_ms + 2 * holds_ms


def is_rival(known: WorkerRate | None, word: RateReport, now_ms: int) -> bool:
    """Whether another worker just wanted something else: a conflict, if that worker is alive."""
    return (
        known is not None
        and known.worker_id != word.worker_id
        and known.micro != word.micro
        and known.holds_at(now_ms)
        and now_ms - known.at_ms <= CONFLICT_WITHIN_MS
    )


def apply_report(
    known: WorkerRate | None, word: RateReport, now_ms: int, holds_ms: int, *, rival_lives: bool = False
) -> RateUpdate:
    """Who speaks last is heard. `rival_lives`: the worker that was heard before is there, if it is a rival.

    It holds a little longer than `holds_ms` after it was said, so that whoever repeats it need not write each time.
    A conflict that goes on is one conflict: it begins anew when the workers were of one mind for a while.
    """
    conflict = None if known is None else known.conflict_at(now_ms)
    began = None
    if rival_lives and known is not None and is_rival(known, word, now_ms):
        goes_on = conflict is not None and now_ms - conflict.at_ms <= CONFLICT_WITHIN_MS
        since_ms = conflict.since_ms if conflict is not None and goes_on else now_ms
        conflict = RateConflict(known.worker_id, known.micro, word.worker_id, word.micro, since_ms, now_ms)
        began = None if goes_on else conflict
    until_ms = now_ms + holds_ms + max(1, holds_ms // _RENEWALS)
    is_change = known is None or not known.holds_at(now_ms) or not _says_the_same(known, word)
    rate = WorkerRate(word.micro, word.worker_id, now_ms, until_ms, word.burst_ms, conflict)
    return RateUpdate(rate, is_change, began)


def _says_the_same(known: WorkerRate, word: RateReport) -> bool:
    return (known.micro, known.burst_ms) == (word.micro, word.burst_ms)


def effective_rate(
    system: int | None, operator: int | None, worker: int | None
) -> tuple[int | None, RateSource]:
    """The rate that holds, and whose it is: the operator's beats the workers', and none is above the system's."""
    asked, source = worker, RateSource.NONE if worker is None else RateSource.WORKER
    if operator is not None:
        asked, source = operator, RateSource.OPERATOR
    if system is not None and (asked is None or system < asked):
        return system, RateSource.SYSTEM
    return asked, source
