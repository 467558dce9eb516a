"""Rate limits of a queue reported by its workers, and their precedence to the operator's and the system's.

A worker reports a rate for the whole queue, not for itself. The latest report counts; a worker without one changes
nothing; and a report expires when it is not renewed.
"""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct

REPORT_TTL_DEFAULT_MS = 300_000
"""How long a report is valid without renewal."""
CONFLICT_WITHIN_MS = 60_000
"""Different reports of live workers within this time are a conflict."""
CONFLICT_SHOWN_MS = 300_000
_RENEWALS = 20
"""A renewal is stored only after this fraction of the validity has passed, to save writes."""


class RateSource(StrEnum):
    """Where the rate of a queue comes from."""

    OPERATOR = "operator"
    WORKER = "worker"
    SYSTEM = "system"
    NONE = "none"


class RateConflict(Struct, frozen=True):
    """Live workers report different rates for one queue, so that its rate alternates."""

    worker_id: str
    micro: int
    """The earlier worker and its rate."""
    by: str
    by_micro: int
    """The later worker and its rate."""
    since_ms: int
    at_ms: int
    """When it was last detected."""


class RateReport(Struct, frozen=True):
    """A worker's report: activities per million seconds, and the length of the burst."""

    micro: int
    worker_id: str
    burst_ms: int | None = None
    """None: not reported."""


class WorkerRate(Struct, frozen=True):
    """The rate that a worker reported last."""

    micro: int
    worker_id: str
    at_ms: int
    until_ms: int | None = None
    """When it expires; None: it predates expiry, and is valid until the next report."""
    burst_ms: int | None = None
    conflict: RateConflict | None = None

    def holds_at(self, now_ms: int) -> bool:
        return self.until_ms is None or now_ms < self.until_ms

    def conflict_at(self, now_ms: int) -> RateConflict | None:
        """The conflict, while it is recent."""
        seen = self.conflict
        return None if seen is None or now_ms - seen.at_ms > CONFLICT_SHOWN_MS else seen


class RateUpdate(Struct, frozen=True):
    """What to store after a report, and what to announce."""

    rate: WorkerRate
    is_change: bool
    """Whether the rate changes, not only its expiry."""
    began: RateConflict | None = None
    """A new conflict."""


def is_renewed(known: WorkerRate | None, report: RateReport, now_ms: int, holds_ms: int) -> bool:
    """Whether a report can be ignored: the same rate is in force, and for long enough."""
    if known is None or known.until_ms is None or not _is_same(known, report):
        return False
    return now_ms + holds_ms <= known.until_ms <= now_ms + 2 * holds_ms


def is_rival(known: WorkerRate | None, report: RateReport, now_ms: int) -> bool:
    """Whether another worker recently reported a different rate: a conflict, if that worker is alive."""
    return (
        known is not None
        and known.worker_id != report.worker_id
        and known.micro != report.micro
        and known.holds_at(now_ms)
        and now_ms - known.at_ms <= CONFLICT_WITHIN_MS
    )


def apply_report(
    known: WorkerRate | None, report: RateReport, now_ms: int, holds_ms: int, *, rival_lives: bool = False
) -> RateUpdate:
    """Apply a report: the latest one counts. `rival_lives`: the rival worker, if there is one, is alive.

    The rate is valid a little longer than `holds_ms`, so that not every renewal is stored. A continuing conflict is one
    conflict; a new one begins after the workers agreed for a while.
    """
    conflict = None if known is None else known.conflict_at(now_ms)
    began = None
    if rival_lives and known is not None and is_rival(known, report, now_ms):
        goes_on = conflict is not None and now_ms - conflict.at_ms <= CONFLICT_WITHIN_MS
        since_ms = conflict.since_ms if conflict is not None and goes_on else now_ms
        conflict = RateConflict(
            known.worker_id, known.micro, report.worker_id, report.micro, since_ms, now_ms
        )
        began = None if goes_on else conflict
    until_ms = now_ms + holds_ms + max(1, holds_ms // _RENEWALS)
    is_change = known is None or not known.holds_at(now_ms) or not _is_same(known, report)
    rate = WorkerRate(report.micro, report.worker_id, now_ms, until_ms, report.burst_ms, conflict)
    return RateUpdate(rate, is_change, began)


def _is_same(known: WorkerRate, report: RateReport) -> bool:
    return (known.micro, known.burst_ms) == (report.micro, report.burst_ms)


def effective_rate(
    system: int | None, operator: int | None, worker: int | None
) -> tuple[int | None, RateSource]:
    """The rate in force and its source: the operator's, else the workers', bounded by the system's."""
    asked, source = worker, RateSource.NONE if worker is None else RateSource.WORKER
    if operator is not None:
        asked, source = operator, RateSource.OPERATOR
    if system is not None and (asked is None or system < asked):
        return system, RateSource.SYSTEM
    return asked, source
