"""Whether a workflow id may be used for a new run, decided from the newest run that has it.

A workflow id has at most one open run (`one-open-run`). A start under an id that is known already meets one of two
cases, each with a policy of its own:

- The newest run is *closed*: the `IdReusePolicy` decides. `allow_duplicate` starts a new run, `reject_duplicate`
  refuses, and `allow_duplicate_failed_only` starts one unless the newest run completed.
- The newest run is *open*: the `IdConflictPolicy` decides. `fail` refuses, `use_existing` returns the open run, and
  `terminate_existing` terminates it and starts a new run in the same transaction.

Both names and their meaning are Temporal's. The contract's `duplicate_policy` has no word for reuse: a start that sends
neither of these fields behaves as `reject_duplicate` (`CONTRACT`).

These functions map values to a `StartDecision`; `engine.runs.workflow_ids` holds the locks.
"""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct

from penstock.core.model import Run, RunStatus


class IdReusePolicy(StrEnum):
    """Whether a start may use the id of a workflow whose newest run is closed."""

    ALLOW_DUPLICATE = "allow_duplicate"
    ALLOW_DUPLICATE_FAILED_ONLY = "allow_duplicate_failed_only"
    """Only if that run failed, timed out, was cancelled or was terminated."""
    REJECT_DUPLICATE = "reject_duplicate"


class IdConflictPolicy(StrEnum):
    """What a start does when the newest run of its id is open."""

    FAIL = "fail"
    USE_EXISTING = "use_existing"
    TERMINATE_EXISTING = "terminate_existing"


class StartDecision(StrEnum):
    """What a start does under a workflow id that exists."""

    START = "start"
    USE_EXISTING = "use_existing"
    TERMINATE_AND_START = "terminate_and_start"
    REFUSE = "refuse"


class IdPolicy(Struct, frozen=True):
    """Both policies of one start."""

    reuse: IdReusePolicy = IdReusePolicy.ALLOW_DUPLICATE
    conflict: IdConflictPolicy = IdConflictPolicy.FAIL


CONTRACT = IdPolicy(IdReusePolicy.REJECT_DUPLICATE, IdConflictPolicy.FAIL)
"""The policy of a start without `id_reuse_policy` and `id_conflict_policy`."""

_OPEN = {
    IdConflictPolicy.FAIL: StartDecision.REFUSE,
    IdConflictPolicy.USE_EXISTING: StartDecision.USE_EXISTING,
    IdConflictPolicy.TERMINATE_EXISTING: StartDecision.TERMINATE_AND_START,
}


def decide_start(newest: Run, policy: IdPolicy) -> StartDecision:
    """Decide for the newest run of an id. At most one run of the id is open afterwards: `one-open-run`."""
    if newest.is_open:
        return _OPEN[policy.conflict]
    return StartDecision.START if may_reuse(newest.status, policy.reuse) else StartDecision.REFUSE


def may_reuse(closed_as: RunStatus, reuse: IdReusePolicy) -> bool:
    """Whether the id of a run that closed with this status is free for another one."""
    if reuse is IdReusePolicy.ALLOW_DUPLICATE_FAILED_ONLY:
        return closed_as is not RunStatus.COMPLETED
    return reuse is IdReusePolicy.ALLOW_DUPLICATE
