"""Change sets as the server describes them."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal

from penstock.sdk.clients.descriptions import Json, moment

ChangeSetStatus = Literal["proposed", "scheduled", "applied", "expired", "withdrawn", "refused"]
LimitValue = float | int | str | bool | None
"""A value of a limit; None: unset."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeSetItem:
    """One setting of a change set."""

    path: str
    """What it is, such as `queue:invoices.max_active_leases`."""
    before: LimitValue
    """What its author saw."""
    after: LimitValue
    now: LimitValue = None
    """What it has now; in lists None."""
    changed_by: str | None = None
    """Of a setting in the way: who changed it."""

    @classmethod
    def read(cls, body: Json) -> ChangeSetItem:
        """Read a setting of a response."""
        return cls(
            path=body["path"],
            before=body["before"],
            after=body["after"],
            now=body.get("now"),
            changed_by=body.get("by"),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeSetApproval:
    """Somebody's approval of a plan."""

    by: str
    at: datetime
    expires_at: datetime
    state: Literal["counts", "expired", "outdated"]
    """`outdated`: what it approved, or a setting beside it, has changed since."""
    changed_since: tuple[str, ...]
    """The scopes that have changed."""

    @classmethod
    def read(cls, body: Json) -> ChangeSetApproval:
        """Read an approval of a response."""
        return cls(
            by=body["by"],
            at=datetime.fromisoformat(body["at"]),
            expires_at=datetime.fromisoformat(body["expires_at"]),
            state=body["state"],
            changed_since=tuple(body["changed_since"]),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokenGlass:
    """An apply by an admin who did not wait for approvals."""

    by: str
    at: datetime
    reason: str
    missing_approvals: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeSetDescription:
    """A change set."""

    id: str
    status: ChangeSetStatus
    reason: str
    author: str
    created_at: datetime
    items: tuple[ChangeSetItem, ...]
    moved: tuple[ChangeSetItem, ...] = ()
    """The settings that no longer have the expected value: they are in the way. Not in lists."""
    plan: str | None = None
    """The hash of what an apply would do now; None in lists, and once it is applied or has ended."""
    approvals_wanted: int = 0
    approvals_missing: int = 0
    approvals: tuple[ChangeSetApproval, ...] = ()
    """Those given before it is applied; not in lists."""
    approved_by: tuple[str, ...] = ()
    """Whose approvals it has; of an applied one, those that counted."""
    apply_at: datetime | None = None
    """When the server applies it."""
    applied_at: datetime | None = None
    applied_by: str | None = None
    expires_at: datetime | None = None
    ended_at: datetime | None = None
    refused_because: str | None = None
    undoes: str | None = None
    """The change set that this one rolls back."""
    broken_glass: BrokenGlass | None = None
    raw: Json = field(default_factory=dict, repr=False)
    """The response."""

    @classmethod
    def read(cls, body: Json) -> ChangeSetDescription:
        """Read a change set of a response."""
        approvals: Json = body.get("approvals") or {}
        return cls(
            id=body["change_set_id"],
            status=body["state"],
            reason=body["change_reason"],
            author=body["author"],
            created_at=datetime.fromisoformat(body["created_at"]),
            items=tuple(ChangeSetItem.read(each) for each in body["items"]),
            moved=tuple(ChangeSetItem.read(each) for each in body.get("moved", ())),
            plan=body.get("plan"),
            approvals_wanted=approvals.get("wanted", 0),
            approvals_missing=approvals.get("missing", 0),
            approvals=tuple(ChangeSetApproval.read(each) for each in approvals.get("given", ())),
            approved_by=tuple(body["approved_by"]),
            apply_at=moment(body["apply_at"]),
            applied_at=moment(body["applied_at"]),
            applied_by=body["applied_by"],
            expires_at=moment(body["expires_at"]),
            ended_at=moment(body["ended_at"]),
            refused_because=body["refused_because"],
            undoes=body["undoes"],
            broken_glass=_broken(body["break_glass"]),
            raw=body,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeSetCheck:
    """Something to know before a change set is applied."""

    check: str
    """What was found, such as `closes` or `holders_above_cap`."""
    message: str
    stops: bool
    """Whether an apply would be refused for it."""
    path: str | None
    """The setting that it concerns; None: the whole change set."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeSetPlan:
    """What an apply would do now."""

    change_set: ChangeSetDescription
    hash: str | None
    """Names this plan, for `approve` and `apply`; None: the change set cannot be applied any more."""
    summary: tuple[str, ...]
    """One sentence for each setting."""
    checks: tuple[ChangeSetCheck, ...]
    may_be_applied: bool

    @classmethod
    def read(cls, body: Json) -> ChangeSetPlan:
        """Read a plan of a response."""
        return cls(
            change_set=ChangeSetDescription.read(body),
            hash=body["plan"],
            summary=tuple(body["summary"]),
            checks=tuple(_check(each) for each in body["checks"]),
            may_be_applied=body["may_be_applied"],
        )


def _check(body: Json) -> ChangeSetCheck:
    return ChangeSetCheck(
        check=body["check"], message=body["message"], stops=body["stops"], path=body["path"]
    )


def _broken(body: dict[str, Any] | None) -> BrokenGlass | None:
    if body is None:
        return None
    return BrokenGlass(
        by=body["by"],
        at=datetime.fromisoformat(body["at"]),
        reason=body["reason"],
        missing_approvals=body["missing_approvals"],
    )
