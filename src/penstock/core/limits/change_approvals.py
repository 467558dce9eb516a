"""Approvals of changes of limits: how many a change needs, which of those given count, and what needs none.

A namespace may want one or two approvals for changes of its limits, and the cluster for limits that all namespaces
share: the setting `change_approvals`. It is a limit like others, with a version and a log.

**An approval names a plan**: the items of a change set, how long they stay, and the versions of the scopes that they
change. It counts only while the plan is still that one: after an edit, or after anybody changed another setting of the
same queue, the approver has not seen what would be in force. It counts for `APPROVAL_LASTS_MS`, and never for the
author.

**A policy that could be evaded would be none.** So while approvals are wanted, limits are changed by change sets only,
and lowering the number of approvals is itself such a change. Three things stay free, because they are needed at once
or make nothing less strict: pausing, resuming, and wanting more approvals. In an emergency an admin breaks the glass,
which is recorded; nothing else applies a change set that lacks approvals.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from penstock.core.limits.admission import (
    Admission,
    cluster_scope,
    namespace_of,
    namespace_scope,
    queue_of_scope,
)
from penstock.core.limits.change_sets import Approval, ChangeSet
from penstock.core.limits.policies import LimitSetting, PolicyChange

APPROVAL_LASTS_MS = 7 * 24 * 3_600_000


class ApprovalState(StrEnum):
    """Whether an approval counts, and why not."""

    COUNTS = "counts"
    EXPIRED = "expired"
    OUTDATED = "outdated"
    """Somebody changed what it approved, or other settings of the same queue or scope."""


class ApprovalVerdict(Struct, frozen=True):
    """An approval, and whether it counts now."""

    approval: Approval
    state: ApprovalState
    moved: tuple[str, ...] = ()
    """The scopes that changed since."""

    @property
    def expires_at_ms(self) -> int:
        return self.approval.at_ms + APPROVAL_LASTS_MS


def is_everywhere(scope: str) -> bool:
    """Whether a scope limits the queues of all namespaces."""
    return queue_of_scope(scope) is None and namespace_of(scope) is None


def governing_scope(scope: str) -> str:
    """The scope whose setting says how many approvals a change of this scope needs."""
    queue = queue_of_scope(scope)
    namespace = queue[0] if queue is not None else namespace_of(scope)
    return cluster_scope() if namespace is None else namespace_scope(namespace)


def approvals_wanted(scopes: Iterable[str], limits: Admission, now_ms: int) -> int:
    """How many approvals a change of these scopes needs: the most that any of them does."""
    rows = [limits.row(name) for name in sorted({governing_scope(scope) for scope in scopes})]
    found = [
        row.policy.at(now_ms).number(LimitSetting.CHANGE_APPROVALS) or 0 for row in rows if row is not None
    ]
    return max(found, default=0)


def needs_approval(changes: Iterable[PolicyChange]) -> bool:
    """Whether a direct change is one that approvals are for: all but pausing, resuming and wanting more approvals."""
    return any(not _is_free(each) for each in changes)


def plan_hash(change_set: ChangeSet, versions: Mapping[str, int]) -> str:
    """Names what an apply would do: the items, how long they stay, and the state that they are applied to."""
    plan = (change_set.namespace, change_set.items, change_set.lasts_ms, sorted(versions.items()))
    return hashlib.sha256(msgspec.json.encode(plan)).hexdigest()[:16]


def approved(change_set: ChangeSet, by: str, versions: Mapping[str, int], now_ms: int) -> ChangeSet:
    """The change set with somebody's approval, which replaces an earlier one of theirs."""
    given = Approval(by, now_ms, plan_hash(change_set, versions), versions)
    return replace(change_set, approvals=(*unapproved(change_set, by).approvals, given))


def unapproved(change_set: ChangeSet, by: str) -> ChangeSet:
    """The change set without somebody's approval."""
    return replace(change_set, approvals=tuple(each for each in change_set.approvals if each.by != by))


def verdicts(change_set: ChangeSet, versions: Mapping[str, int], now_ms: int) -> Sequence[ApprovalVerdict]:
    """Each approval, with whether it counts for an apply now."""
    plan = plan_hash(change_set, versions)
    return [_verdict(each, plan, versions, now_ms) for each in change_set.approvals]


def counting(change_set: ChangeSet, versions: Mapping[str, int], now_ms: int) -> tuple[Approval, ...]:
    """The approvals that count for an apply now."""
    return tuple(
        each.approval
        for each in verdicts(change_set, versions, now_ms)
        if each.state is ApprovalState.COUNTS and each.approval.by != change_set.author
    )


def lacking(change_set: ChangeSet, wanted: int, versions: Mapping[str, int], now_ms: int) -> int:
    """How many approvals are missing for an apply now."""
    return max(0, wanted - len(counting(change_set, versions, now_ms)))


def _verdict(given: Approval, plan: str, versions: Mapping[str, int], now_ms: int) -> ApprovalVerdict:
    if given.plan != plan:
        moved = sorted(scope for scope, version in versions.items() if given.versions.get(scope) != version)
        return ApprovalVerdict(given, ApprovalState.OUTDATED, tuple(moved))
    if now_ms >= given.at_ms + APPROVAL_LASTS_MS:
        return ApprovalVerdict(given, ApprovalState.EXPIRED)
    return ApprovalVerdict(given, ApprovalState.COUNTS)


def _is_free(change: PolicyChange) -> bool:
    if change.setting == LimitSetting.CHANGE_APPROVALS:
        return int(change.after or 0) >= int(change.before or 0)
    return change.setting == LimitSetting.PAUSED
