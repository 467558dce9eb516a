"""Counters of what this server has done in the background since it started."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Upkeep:
    """Counters of retention and of schedules, reported by the system endpoint and by metrics."""

    runs_pruned: int = 0
    runs_archived: int = 0
    archive_failures: int = 0
    fires_started: int = 0
    fires_not_started: int = 0
    """Of schedules: fires that were buffered or skipped, and batches of missed moments."""
    payloads_deleted: int = 0
    """Objects of external storage that nothing needed any more."""
    newer_zone_data: str | None = None
    """The newest zone data in use, if this server's are older."""
    trouble: str | None = None
    """Why the last archive write failed; None if it succeeded."""

    def record_archived(self) -> None:
        self.runs_archived += 1
        self.trouble = None

    def record_archive_failure(self, why: str) -> None:
        self.archive_failures += 1
        self.trouble = why
