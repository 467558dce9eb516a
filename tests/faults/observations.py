"""What the clients of a server observed, and its final state."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum


class Kind(StrEnum):
    WORKFLOW = "workflow"
    ACTIVITY = "activity"


class Verdict(StrEnum):
    """What a report was answered with in the end."""

    ACCEPTED = "accepted"
    REPEATED = "repeated"
    """Accepted, and the server says that it knew: an earlier send of the same bytes had arrived."""
    REFUSED = "refused"
    UNKNOWN = "unknown"


@dataclass
class Start:
    """One thing to be started; sent again with the same key until it is acknowledged."""

    kind: Kind
    id: str
    sends: int = 0
    run_ids: list[str] = field(default_factory=list)
    """The run named by each acknowledgement."""

    @property
    def acknowledged(self) -> bool:
        return bool(self.run_ids)


@dataclass
class Lease:
    """A task as a worker received it. Times are those of the one host on which all of this runs."""

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
        """The lease surely lives until its holder first sends its report, or else until it expires."""
        if self.reported_at_ms is None:
            return self.expires_at_ms
        return min(self.expires_at_ms, self.reported_at_ms)


@dataclass
class Report:
    """The completion of a leased task, sent again unchanged until it is answered."""

    kind: Kind
    task_id: str
    run_id: str
    attempt: int
    token: str
    worker: str
    decides: bool = True
    """False for a workflow task that is only acknowledged: it leaves no event."""
    sends: int = 0
    verdict: Verdict = Verdict.UNKNOWN
    reason: str | None = None

    @property
    def counted(self) -> bool:
        return self.verdict in (Verdict.ACCEPTED, Verdict.REPEATED)


@dataclass
class Record:
    """Everything that the callers saw."""

    starts: list[Start] = field(default_factory=list)
    leases: list[Lease] = field(default_factory=list)
    reports: list[Report] = field(default_factory=list)
    server_errors: list[str] = field(default_factory=list)
    """Answers that a server should never give, whatever happens to it."""

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
    """The activity attempt that the event says it came from."""
    task_id: str | None = None
    """The workflow task that the event says it came from."""


@dataclass(frozen=True)
class FoundRun:
    kind: Kind
    id: str
    run_id: str
    status: str
    events: tuple[FoundEvent, ...]


@dataclass
class Found:
    """What the server says at the end, when nothing is going on any more."""

    runs: list[FoundRun] = field(default_factory=list)
