"""What a start does when its id is known already, as users write it. The meaning is that of `core.id_policies`."""

from __future__ import annotations

from enum import StrEnum


class WorkflowIDReusePolicy(StrEnum):
    """Whether a start may use the id of a workflow, standalone activity or task that has ended."""

    ALLOW_DUPLICATE = "allow_duplicate"
    """It may: the id names the new run from then on. So if nothing is said."""
    ALLOW_DUPLICATE_FAILED_ONLY = "allow_duplicate_failed_only"
    """Only if the last run failed, timed out, was cancelled or was terminated."""
    REJECT_DUPLICATE = "reject_duplicate"
    """Not while the last run is kept: until retention deletes it, the start is refused."""


class WorkflowIDConflictPolicy(StrEnum):
    """What a start does when the id is in use by an open run."""

    FAIL = "fail"
    """`WorkflowAlreadyStartedError`. So if nothing is said."""
    USE_EXISTING = "use_existing"
    """The handle is of the open run; nothing is started."""
    TERMINATE_EXISTING = "terminate_existing"
    """The open run is terminated and a new one started, both or neither."""

    @classmethod
    def _missing_(cls, value: object) -> WorkflowIDConflictPolicy | None:
        """The contract spells it with a dash."""
        return cls.USE_EXISTING if value == "use-existing" else None
