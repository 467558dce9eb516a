"""What the clients of a server observed, and its final state."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum


class Kind(StrEnum):
    WORKFLOW = "workflow"
    ACTIVITY = "activity"


class Verdict(StrEnum):
    """The final outcome of a report."""

    ACCEPTED = "accepted"
    REPEATED = "repeated"
    """Accepted as a repetition: an earlier send of the same bytes had arrived."""
    REFUSED = "refused"
    UNKNOWN = "unknown"


@dataclass
class Start:
    """A start, repeated with the same key until it is acknowledged."""

    kind: Kind
    id: str
    sends: int = 0
    run_ids: list[str] = field(default_factory=list)
    """The run in each acknowledgement."""

    @property
    def acknowledged(self) -> bool:
        return bool(self.run_ids)


@dataclass
class Lease:
    """A task as a worker received it. All times are by the clock of the one host."""

    kind: Kind
    task_id: str
    run_id: str
    attempt: int
    token: str
    worker: str
    seen_at_ms: int
    expires_at_ms: int
    reported_at_ms: int | None = None

    @property
    def certainly_until_ms(self) -> int:
        """The lease is certainly valid until its holder first sends its report, or until it expires."""
        if self.reported_at_ms is None:
            return self.expires_at_ms
        return min(self.expires_at_ms, self.reported_at_ms)


@dataclass
class Report:
    """The completion of a leased task, repeated unchanged until there is a response."""

    kind: Kind
    task_id: str
    run_id: str
    attempt: int
    token: str
    worker: str
    decides: bool = True
    """False for a workflow task that leaves no event."""
    sends: int = 0
    verdict: Verdict = Verdict.UNKNOWN
    reason: str | None = None

    @property
    def counted(self) -> bool:
        return self.verdict in (Verdict.ACCEPTED, Verdict.REPEATED)


@dataclass
class Record:
    """Everything that the clients observed."""

    starts: list[Start] = field(default_factory=list)
    leases: list[Lease] = field(default_factory=list)
    reports: list[Report] = field(default_factory=list)
    server_errors: list[str] = field(default_factory=list)
    """Responses that a server must never return."""

    @property
    def acknowledged(self) -> int:
        return sum(start.acknowledged for start in self.starts)

    @property
    def counted(self) -> int:
        return sum(report.counted for report in self.reports)


@dataclass(frozen=True)
class FoundEvent:
    sequence: int
    type: str
    step: int | None = None
    token: str | None = None
    """The activity attempt that caused the event."""
    task_id: str | None = None
    """The workflow task that caused the event."""


@dataclass(frozen=True)
class FoundRun:
    kind: Kind
    id: str
    run_id: str
    status: str
    events: tuple[FoundEvent, ...]


@dataclass
class Found:
    """The state of the server after everything has settled."""

    runs: list[FoundRun] = field(default_factory=list)
