"""Counters of the runs this server has pruned and archived since it started."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Upkeep:
    """Retention counters, reported by the system endpoint."""

    runs_pruned: int = 0
    runs_archived: int = 0
    archive_failures: int = 0
    trouble: str | None = None
    """Why the last archive write failed; None if it succeeded."""

    def record_archived(self) -> None:
        self.runs_archived += 1
        self.trouble = None

    def record_archive_failure(self, why: str) -> None:
        self.archive_failures += 1
        self.trouble = why
