"""Settings of a queue's tasks of one kind as operators read them: in public units, with author, time and reason."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Final

from penstock.core.limits.policies import (
    QUEUE_SETTINGS,
    DispatchOrder,
    KeySettings,
    LimitSetting,
    Policy,
    PolicyChange,
    SettingValue,
)
from penstock.core.model import Queue
from penstock.core.timestamps import iso, iso_or_none
from penstock.wire.limits.queue_rates import conveyed
from penstock.wire.numbers import MICRO, MILLI
from penstock.wire.responses import Body

Shown = float | int | str | bool | None


def _rate(stored: int | str) -> float:
    return int(stored) / MICRO


def _milli(stored: int | str) -> float:
    return int(stored) / MILLI


def _same(stored: int | str) -> int | str:
    return stored


_UNITS: Final[Mapping[str, Callable[[int | str], Shown]]] = MappingProxyType(
    {
        LimitSetting.QUEUE_RATE: _rate,
        LimitSetting.QUEUE_BURST: _milli,
        LimitSetting.KEY_RATE: _rate,
        LimitSetting.KEY_BURST: _milli,
        LimitSetting.FAIRNESS: _same,
        LimitSetting.COUNTS: _same,
        LimitSetting.LEASE_CAP: int,
        LimitSetting.KEY_LEASE_CAP: int,
        LimitSetting.AGING_WAIT: _milli,
        LimitSetting.AGING_EVERY: int,
        LimitSetting.DISPATCHES: int,
        LimitSetting.WINDOW: _same,
        LimitSetting.GROUP: _same,
        LimitSetting.PAUSED: bool,
        LimitSetting.COST: int,
        LimitSetting.RETRY_RATE: _rate,
        LimitSetting.OPEN_RUNS: int,
        LimitSetting.SURPLUS: _same,
        LimitSetting.CHANGE_APPROVALS: int,
        "worker_rps_limit": _rate,
        "rps_limit": _rate,
        "fairness_weight_override": _milli,
    }
)
"""Converts stored values to public ones."""


def config(queue: Queue, keys: Sequence[KeySettings], key_count: int) -> Body:
    """All settings of a queue, and their effective values."""
    policy = queue.policy.at(queue.at_ms)
    body: Body = {
        "task_queue": queue.name,
        "task_queue_type": queue.kind.value,
        "namespace": queue.namespace,
        "version": policy.version,
    }
    body |= {
        setting_name.value: setting(setting_name, policy.settings.get(setting_name))
        for setting_name in QUEUE_SETTINGS
    }
    return body | {
        "effective": effective(queue),
        "worker_rps_limit": conveyed(queue.reported_rate),
        "keys": [_key(each) for each in keys],
        "key_count": key_count,
    }


def effective(queue: Queue) -> Body:
    rate, own = queue.rules.queue_rate, queue.policy.word(LimitSetting.FAIRNESS)
    return {
        "queue_rps_limit": None if rate is None else _rate(rate.micro),
        "queue_rps_limit_source": queue.rules.queue_rate_source.value,
        "fairness": is_fair(queue),
        "fairness_source": "namespace" if own is None else "queue",
    }


def is_fair(queue: Queue) -> bool:
    return queue.rules.order is DispatchOrder.FAIR


def in_force(policy: Policy) -> Body:
    """The settings that were set explicitly."""
    return {
        setting_name.value: setting(setting_name, policy.settings[setting_name])
        for setting_name in QUEUE_SETTINGS
        if setting_name in policy.settings
    }


def setting(setting_name: LimitSetting, made: SettingValue | None) -> Body | None:
    if made is None:
        return None
    return {
        "value": _UNITS[setting_name](made.value),
        "reason": made.reason,
        "updated_by": made.author,
        "updated_at": iso(made.at_ms),
        "ends_at": iso_or_none(made.ends_at_ms),
    }


def public_value(setting_name: str, stored: int | str | None) -> Shown:
    """A stored value of a setting of a queue, scope or key in public units; an unset pause is false."""
    return _logged(setting_name, None if stored is None else str(stored))


def _key(each: KeySettings) -> Body:
    return {
        "fairness_key": each.key,
        "weight_override": None if each.weight_milli is None else _milli(each.weight_milli),
        "rps_limit": None if each.rate_micro is None else _rate(each.rate_micro),
        "max_running": each.lease_cap,
        "paused": bool(each.paused),
        "reason": each.reason,
        "updated_by": each.author,
        "updated_at": iso_or_none(each.at_ms),
    }


def change(each: PolicyChange) -> Body:
    """An entry of the change log."""
    return {
        "version": each.version,
        "at": iso(each.at_ms),
        "by": each.author,
        "reason": each.reason,
        "setting": each.setting,
        "fairness_key": each.key,
        "before": _logged(each.setting, each.before),
        "after": _logged(each.setting, each.after),
    }


def _logged(name: str, stored: str | None) -> Shown:
    if stored is None:
        return False if name == "paused" else None
    return _UNITS[name](stored)
