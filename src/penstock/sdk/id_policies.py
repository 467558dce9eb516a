"""Policies for starts whose id is already known. `core.id_policies` defines their semantics."""

from __future__ import annotations

from enum import StrEnum


class WorkflowIDReusePolicy(StrEnum):
    """Whether a start may reuse the id of a workflow, standalone activity or task that has ended."""

    ALLOW_DUPLICATE = "allow_duplicate"
    """It may, and the id refers to the new run from then on. The default."""
    ALLOW_DUPLICATE_FAILED_ONLY = "allow_duplicate_failed_only"
    """Only if the last run failed, timed out, was cancelled or was terminated."""
    REJECT_DUPLICATE = "reject_duplicate"
    """Not while the last run is retained: until retention deletes it, the start is refused."""


class WorkflowIDConflictPolicy(StrEnum):
    """What a start does if the id belongs to an open run."""

    FAIL = "fail"
    """Raise `WorkflowAlreadyStartedError`. The default."""
    USE_EXISTING = "use_existing"
    """Return a handle of the open run and start nothing."""
    TERMINATE_EXISTING = "terminate_existing"
    """Terminate the open run and start a new one, atomically."""

    @classmethod
    def _missing_(cls, value: object) -> WorkflowIDConflictPolicy | None:
        """Accept the contract's spelling with a dash."""
        return cls.USE_EXISTING if value == "use-existing" else None
