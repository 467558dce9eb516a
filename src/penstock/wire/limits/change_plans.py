"""The plan of a change set in words: what becomes of each setting, and what to know before it is applied."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from penstock.core.limits.admission import queue_of_scope
from penstock.core.limits.change_plans import ChangeCheck, CheckKind
from penstock.core.limits.change_sets import ChangeItem, ChangeSet, ItemTarget, Stored
from penstock.core.limits.policies import LimitSetting
from penstock.core.why.sentences import count_text, duration_text, key_text, scope_text
from penstock.wire.limits.change_sets import described
from penstock.wire.limits.queue_settings import public_value
from penstock.wire.responses import Body

_NAMES: Final = {
    LimitSetting.QUEUE_RATE: "dispatches a second",
    LimitSetting.QUEUE_BURST: "seconds of burst",
    LimitSetting.KEY_RATE: "dispatches a second of each key",
    LimitSetting.KEY_BURST: "seconds of burst of each key",
    LimitSetting.LEASE_CAP: "cap on leases",
    LimitSetting.KEY_LEASE_CAP: "cap on leases of each key",
    LimitSetting.DISPATCHES: "dispatches a minute",
    LimitSetting.WINDOW: "window of dispatches",
    LimitSetting.GROUP: "budget group",
    LimitSetting.COST: "cost a minute",
    LimitSetting.RETRY_RATE: "retries a second",
    LimitSetting.AGING_WAIT: "seconds until a task is aged",
    LimitSetting.AGING_EVERY: "turn of aged tasks",
    LimitSetting.FAIRNESS: "fairness",
    LimitSetting.COUNTS: "measure of fairness",
    LimitSetting.CHANGE_APPROVALS: "approvals of changes",
    "rps_limit": "dispatches a second",
    "fairness_weight_override": "weight",
}


def plan(change_set: ChangeSet, checks: Sequence[ChangeCheck]) -> Body:
    """The sentences of a plan."""
    lasts = change_set.lasts_ms
    ends = (
        []
        if lasts is None
        else [
            f"After {duration_text(lasts)} every setting that still has its value gets the one before back."
        ]
    )
    return {
        "summary": [sentence(each) for each in change_set.items] + ends,
        "checks": [_check(each) for each in checks],
        "may_be_applied": change_set.may_be_applied and not any(each.stops for each in checks),
    }


def sentence(item: ChangeItem) -> str:
    """What becomes of a setting."""
    whose, setting = owner(item.target), item.target.setting
    if setting == LimitSetting.PAUSED:
        return _capital(f"{whose} is {'paused' if item.after else 'resumed'}.")
    name = f"the {_NAMES.get(setting, setting)} of {whose}"
    before, after = _value(item, item.before), _value(item, item.after)
    if item.before is None:
        return _capital(f"{name} becomes {after}; it was unset.")
    if item.after is None:
        return _capital(f"{name} is unset; it was {before}.")
    if isinstance(item.before, int) and isinstance(item.after, int) and item.before != item.after:
        verb = "falls" if item.after < item.before else "rises"
        return _capital(f"{name} {verb} from {before} to {after}.")
    return _capital(f"{name} changes from {before} to {after}.")


def owner(target: ItemTarget) -> str:
    """Whose setting it is, in words."""
    queue = queue_of_scope(target.scope)
    kind = " (workflow tasks)" if queue is not None and queue[2] == "workflow" else ""
    scope = f"{scope_text(target.scope)}{kind}"
    return scope if target.key is None else f"{key_text(target.key)} in {scope}"


def _check(each: ChangeCheck) -> Body:
    return {
        "check": each.kind.value,
        "stops": each.stops,
        "path": None if each.item is None else described(each.item.target),
        "message": _message(each),
    }


def _message(each: ChangeCheck) -> str:
    item, use = each.item, each.use
    match each.kind:
        case CheckKind.APPROVALS:
            is_missing = "is" if each.count == 1 else "are"
            return f"{count_text(each.count, 'approval')} by others than its author {is_missing} missing."
        case CheckKind.ADMIN:
            return "It changes limits of all namespaces, so all that is done with it needs the admin role."
    assert item is not None, "the other checks concern an item"
    whose = owner(item.target)
    match each.kind:
        case CheckKind.STALE:
            return (
                f"{described(item.target)} is not {_value(item, item.before)} any more: an apply is refused."
            )
        case CheckKind.CLOSES:
            return f"It closes {whose}: nothing more starts there; what runs finishes."
        case CheckKind.UNLIMITED:
            return (
                f"{_capital(whose)} has no such limit of its own any more; only wider and declared ones hold."
            )
        case CheckKind.OVERFULL:
            over = (use.used or 0) - int(item.after or 0)
            held = f"{_capital(whose)} has {count_text(use.used or 0, 'lease')} now"
            return f"{held}: nothing more starts until {over + 1} of them end."
        case CheckKind.LESS_STRICT:
            return f"Fewer approvals are wanted for later changes of {whose}."
        case _:
            lower = (
                "the maximum for any queue" if use.ceiling_scope is None else scope_text(use.ceiling_scope)
            )
            most = _value(item, use.ceiling)
            return f"{_capital(lower)} allows {most}, so {whose} never reaches {_value(item, item.after)}."


def _value(item: ChangeItem, stored: Stored) -> str:
    value = public_value(item.target.setting, stored)
    if value is None:
        return "unset"
    return f"{value:,g}" if isinstance(value, int | float) else str(value)


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]
