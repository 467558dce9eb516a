"""What this server has deleted and archived since it started, and what it could not."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Upkeep:
    runs_pruned: int = 0
    runs_archived: int = 0
    archive_failures: int = 0
    trouble: str | None = None
    """Why the archive could not be written last time; None when it could."""

    def archived(self) -> None:
        self.runs_archived += 1
        self.trouble = None

    def record_archive_failure(self, why: str) -> None:
        self.archive_failures += 1
        self.trouble = why
