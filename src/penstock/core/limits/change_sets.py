"""Change sets: several settings of limits that are proposed, reviewed, applied, expired and undone as one.

**States.** A change set is *proposed*, perhaps *scheduled* for an instant, then *applied*; an applied one may *expire*.
It ends as *withdrawn* if its author gave it up, and as *refused* if its instant came and it was stale.

**Optimistic concurrency by value.** Each item records the value that its author saw (`before`) and the one to set
(`after`). It is applied only while every item still has its `before`: so nobody's later change is overwritten, and
unrelated changes of the same queue do not matter. The refusal names each item that moved, to what, by whom and when.

**Expiry and rollback undo by the same rule, the other way round.** An item goes back to `before` only while it still
has its `after`; others belong to somebody else by then, and are reported instead of overwritten. A rollback is a new
change set with the items reversed, with the same rules. Once it is applied, what it rolled back does not expire any
more: nothing of it is in force. A rollback of the rollback puts it in force again, with its expiry.

**A value that would have expired by itself still does so when it is given back**: an item keeps that time.

**Approvals** name the plan that they saw, see `change_approvals`. An edit replaces the items and drops all approvals.

Values are stored ones: rates in millionths per second, times in milliseconds, weights in thousandths; None: unset.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum

import msgspec
from msgspec import Struct, field
from msgspec.structs import replace

from penstock.core.limits.policies import KeySettings, LimitSetting, Policy

ITEMS_MAX = 500
"""Items of one change set: they are applied in one transaction, under the locks of all their queues."""

Stored = int | str | None


class ChangeSetState(StrEnum):
    """Where a change set stands."""

    PROPOSED = "proposed"
    SCHEDULED = "scheduled"
    APPLIED = "applied"
    EXPIRED = "expired"
    WITHDRAWN = "withdrawn"
    REFUSED = "refused"


class KeySetting(StrEnum):
    """A setting of one fairness key, by its name in the change log."""

    WEIGHT = "fairness_weight_override"
    RATE = "rps_limit"
    LEASE_CAP = "max_running"
    PAUSED = "paused"


class ItemTarget(Struct, frozen=True):
    """The setting that an item changes."""

    scope: str
    """A queue (`queue_scope`), or the name of a scope with limits."""
    setting: str
    """A `LimitSetting`, or with a key a `KeySetting`."""
    key: str | None = None

    @property
    def place(self) -> tuple[str, str, str]:
        """Where an item stands in its change set: by queue or scope, with settings of keys by key."""
        return self.scope, self.key or "", self.setting


class ChangeItem(Struct, frozen=True):
    """One setting, before and after."""

    target: ItemTarget
    before: Stored
    after: Stored
    before_ends_at_ms: int | None = None
    """When the value before expires by itself; None: never."""
    after_ends_at_ms: int | None = None
    """When the value to set expires by itself; None: never."""


class CurrentValue(Struct, frozen=True):
    """What a setting has now, and who set it."""

    value: Stored = None
    author: str | None = None
    at_ms: int | None = None
    ends_at_ms: int | None = None
    """When it expires by itself; None: never."""


class MovedItem(Struct, frozen=True):
    """An item whose setting no longer has the expected value."""

    item: ChangeItem
    now: CurrentValue


class Approval(Struct, frozen=True):
    """Somebody's consent to a plan."""

    by: str
    at_ms: int
    plan: str
    """The hash of the plan that was approved."""
    versions: Mapping[str, int]
    """The versions of the scopes that it changes, as they were then."""


class BreakGlass(Struct, frozen=True):
    """An apply by an admin that did not wait for approvals."""

    by: str
    at_ms: int
    reason: str
    lacked: int
    """How many approvals were missing."""


class ChangeSet(Struct, frozen=True):
    """A change set as stored."""

    change_set_id: str
    namespace: str
    state: ChangeSetState
    reason: str
    author: str
    created_at_ms: int
    items: tuple[ChangeItem, ...]
    due_at_ms: int | None = None
    """When the server acts: it applies a scheduled one, and ends one that is applied for a time."""
    lasts_ms: int | None = None
    """How long it stays in force once applied; None: until somebody changes it."""
    applied_at_ms: int | None = None
    applied_by: str | None = None
    ended_at_ms: int | None = None
    """When it expired, was withdrawn or was refused."""
    ended_by: str | None = None
    moved: tuple[MovedItem, ...] = ()
    """What the expiry did not take back, or why a scheduled one was refused."""
    undoes: str | None = None
    """The change set that this one rolls back."""
    approvals: tuple[Approval, ...] = ()
    scheduled_by: str | None = None
    """Who had the server apply it at a time."""
    lacked: int = 0
    """How many approvals a scheduled one lacked when it was refused."""
    break_glass: BreakGlass | None = None
    versions: Mapping[str, int] = field(default_factory=dict)
    """The version of each scope that the apply made, by which grants cite it."""
    edited_at_ms: int | None = None
    """When its author replaced what it did before; None: never."""

    @property
    def may_be_applied(self) -> bool:
        return self.state in (ChangeSetState.PROPOSED, ChangeSetState.SCHEDULED)


Current = Mapping[ItemTarget, CurrentValue]


def setting_of(policy: Policy, setting: LimitSetting) -> CurrentValue:
    """The value of a queue's or a scope's setting."""
    found = policy.settings.get(setting)
    if found is None:
        return CurrentValue()
    return CurrentValue(found.value, found.author, found.at_ms, found.ends_at_ms)


def setting_of_key(settings: KeySettings | None, setting: KeySetting) -> CurrentValue:
    """The value of a key's setting; the author is that of the key's last change."""
    if settings is None:
        return CurrentValue()
    values: dict[KeySetting, Stored] = {
        KeySetting.WEIGHT: settings.weight_milli,
        KeySetting.RATE: settings.rate_micro,
        KeySetting.LEASE_CAP: settings.lease_cap,
        KeySetting.PAUSED: settings.paused or None,
    }
    return CurrentValue(values[setting], settings.author, settings.at_ms)


def draft(asked: Mapping[ItemTarget, Stored], current: Current) -> tuple[ChangeItem, ...]:
    """The items of a new change set: what is asked, without settings that have that value already, for good."""
    items = [
        ChangeItem(target, current[target].value, after, current[target].ends_at_ms)
        for target, after in asked.items()
    ]
    differing = [each for each in items if each.before != each.after or each.before_ends_at_ms is not None]
    return tuple(sorted(differing, key=lambda each: each.target.place))


def moved(items: Sequence[ChangeItem], current: Current) -> tuple[MovedItem, ...]:
    """The items that no longer have the value that their author saw."""
    return _differing(items, current, lambda item: item.before)


def taken_over(items: Sequence[ChangeItem], current: Current) -> tuple[MovedItem, ...]:
    """The items that no longer have the value that the change set gave them."""
    return _differing(items, current, lambda item: item.after)


def inverse(items: Sequence[ChangeItem]) -> tuple[ChangeItem, ...]:
    """The items that undo these."""
    return tuple(
        ChangeItem(each.target, each.after, each.before, each.after_ends_at_ms, each.before_ends_at_ms)
        for each in items
    )


def as_found(items: Sequence[ChangeItem], current: Current, now_ms: int) -> tuple[ChangeItem, ...]:
    """The items as they are applied at a time: a value that has expired by then is not set any more."""
    return tuple(
        replace(
            each,
            after=None if _is_over(each.after_ends_at_ms, now_ms) else each.after,
            before_ends_at_ms=current[each.target].ends_at_ms,
        )
        for each in items
    )


def left_alone(change_set: ChangeSet, current: Current) -> tuple[MovedItem, ...]:
    """The items that an expiry does not take back: those taken over, and what a setting of those cannot do without."""
    lost = taken_over(change_set.items, current)
    taken = {each.item for each in lost}
    back = {each.target: each.before for each in change_set.items if each not in taken}
    needed = [
        MovedItem(each, current[each.target])
        for each in change_set.items
        if each not in taken and is_half_of_aging(each.target, back, current)
    ]
    return (*lost, *needed)


def undoing(change_set: ChangeSet, current: Current) -> tuple[ChangeItem, ...]:
    """What an expiry sets: the inverse of the items that are not left alone."""
    left = {each.item for each in left_alone(change_set, current)}
    return inverse([each for each in change_set.items if each not in left])


def is_half_of_aging(target: ItemTarget, asked: Mapping[ItemTarget, Stored], current: Current) -> bool:
    """Whether a setting of a queue's aging would be set without the other one, or unset without it."""
    other = _OTHER_HALF.get(target.setting)
    if other is None:
        return False
    partner = ItemTarget(target.scope, other)
    if partner not in asked and partner not in current:
        return False  # both stay set: a change set that sets or unsets one has the other too
    value = asked[partner] if partner in asked else current[partner].value
    return (asked[target] is None) != (value is None)


def expiring(change_set: ChangeSet, *, in_force: bool) -> ChangeSet:
    """An applied change set with its expiry while it is in force, or without while it is rolled back."""
    if change_set.state is not ChangeSetState.APPLIED or change_set.lasts_ms is None:
        return change_set
    assert change_set.applied_at_ms is not None
    due_at_ms = change_set.applied_at_ms + change_set.lasts_ms
    return replace(change_set, due_at_ms=due_at_ms if in_force else None)


def applied(change_set: ChangeSet, items: tuple[ChangeItem, ...], by: str, now_ms: int) -> ChangeSet:
    """The change set after it was applied, with these items."""
    ends_at_ms = None if change_set.lasts_ms is None else now_ms + change_set.lasts_ms
    return replace(
        change_set,
        state=ChangeSetState.APPLIED,
        items=items,
        applied_at_ms=now_ms,
        applied_by=by,
        due_at_ms=ends_at_ms,
        moved=(),
    )


def scheduled(change_set: ChangeSet, at_ms: int, by: str) -> ChangeSet:
    """The change set, to be applied by the server at a time."""
    return replace(change_set, state=ChangeSetState.SCHEDULED, due_at_ms=at_ms, scheduled_by=by)


def ended(
    change_set: ChangeSet,
    state: ChangeSetState,
    by: str | None,
    now_ms: int,
    left: tuple[MovedItem, ...] = (),
    lacked: int = 0,
) -> ChangeSet:
    """The change set after its end.

    Args:
        change_set: What ends.
        state: `EXPIRED`, `WITHDRAWN` or `REFUSED`.
        by: Who ended it; None: the server, at the appointed time.
        now_ms: When.
        left: The items that were in the way.
        lacked: How many approvals were missing.
    """
    return replace(
        change_set,
        state=state,
        due_at_ms=None,
        ended_at_ms=now_ms,
        ended_by=by,
        moved=left,
        lacked=lacked,
    )


def encoded(change_set: ChangeSet) -> str:
    """The stored text."""
    return msgspec.json.encode(change_set).decode()


def decoded(text: str) -> ChangeSet:
    """A change set from its stored text."""
    return _DECODER.decode(text)


_DECODER = msgspec.json.Decoder(ChangeSet)
_OTHER_HALF: Mapping[str, str] = {
    LimitSetting.AGING_WAIT: LimitSetting.AGING_EVERY,
    LimitSetting.AGING_EVERY: LimitSetting.AGING_WAIT,
}


def _is_over(ends_at_ms: int | None, now_ms: int) -> bool:
    return ends_at_ms is not None and ends_at_ms <= now_ms


def _differing(
    items: Sequence[ChangeItem], current: Current, expected: Callable[[ChangeItem], Stored]
) -> tuple[MovedItem, ...]:
    return tuple(
        MovedItem(item, current[item.target])
        for item in items
        if current[item.target].value != expected(item)
    )
