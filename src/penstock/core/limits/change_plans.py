"""What somebody should know before a change set is applied: checks of its items against what is in use now.

A check that *stops* says why an apply would be refused; one that *warns* says what the apply would do that its author
may not expect. They decide nothing: an apply decides by its own rules, in its own transaction.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum

from msgspec import Struct

from penstock.core.limits.change_approvals import is_everywhere
from penstock.core.limits.change_sets import ChangeItem, ItemTarget, MovedItem
from penstock.core.limits.policies import LimitSetting

CLOSING = frozenset(
    {
        LimitSetting.LEASE_CAP,
        LimitSetting.KEY_LEASE_CAP,
        LimitSetting.DISPATCHES,
        LimitSetting.COST,
        LimitSetting.QUEUE_RATE,
        LimitSetting.KEY_RATE,
        LimitSetting.RETRY_RATE,
        "rps_limit",
    }
)
"""Settings whose 0 lets nothing more start."""


class CheckKind(StrEnum):
    """What a check found."""

    STALE = "stale"
    APPROVALS = "approvals_missing"
    CLOSES = "closes"
    UNLIMITED = "removes_limit"
    OVERFULL = "holders_above_cap"
    CEILING = "above_ceiling"
    ADMIN = "needs_admin"
    LESS_STRICT = "lowers_approvals"


STOPS = frozenset({CheckKind.STALE, CheckKind.APPROVALS})


class TargetUse(Struct, frozen=True):
    """What is in use of a setting now, and what bounds it."""

    used: int | None = None
    """Leases that it counts; None: not counted."""
    ceiling: int | None = None
    """The lowest limit of the same kind that holds as well."""
    ceiling_scope: str | None = None
    """Whose that is; None: the configuration's, for any queue."""


class ChangeCheck(Struct, frozen=True):
    """One finding; `item` None: it concerns the change set."""

    kind: CheckKind
    item: ChangeItem | None = None
    use: TargetUse = TargetUse()
    count: int = 0
    """How many approvals are missing."""

    @property
    def stops(self) -> bool:
        return self.kind in STOPS


def checks(
    items: Sequence[ChangeItem],
    moved: Sequence[MovedItem],
    uses: Mapping[ItemTarget, TargetUse],
    lacking: int,
) -> Sequence[ChangeCheck]:
    """What to know before an apply, with what stops it first.

    Args:
        items: What the change set does.
        moved: The items that no longer have the expected value.
        uses: What is in use of their settings.
        lacking: How many approvals are missing.
    """
    found = [ChangeCheck(CheckKind.STALE, each.item) for each in moved]
    if lacking:
        found.append(ChangeCheck(CheckKind.APPROVALS, count=lacking))
    for item in items:
        found += _of_item(item, uses.get(item.target, TargetUse()))
    if any(is_everywhere(each.target.scope) for each in items):
        found.append(ChangeCheck(CheckKind.ADMIN))
    return found


def _of_item(item: ChangeItem, use: TargetUse) -> Iterator[ChangeCheck]:
    setting, before, after = item.target.setting, item.before, item.after
    if setting == LimitSetting.CHANGE_APPROVALS:
        if int(after or 0) < int(before or 0):
            yield ChangeCheck(CheckKind.LESS_STRICT, item)
        return
    if (setting == LimitSetting.PAUSED and after) or (setting in CLOSING and after == 0):
        yield ChangeCheck(CheckKind.CLOSES, item, use)
        return
    if setting not in CLOSING:
        return
    if after is None:
        yield ChangeCheck(CheckKind.UNLIMITED, item, use)
        return
    if use.used is not None and use.used > int(after):
        yield ChangeCheck(CheckKind.OVERFULL, item, use)
    if use.ceiling is not None and int(after) > use.ceiling:
        yield ChangeCheck(CheckKind.CEILING, item, use)
