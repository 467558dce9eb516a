"""Parses changes of queue settings, with the checks that need more than one field."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from msgspec import UNSET, UnsetType

from penstock.core.limits.policies import KEYS_PER_CHANGE_MAX, PAUSED, QUEUE_SETTINGS, LimitSetting
from penstock.engine.limits.policies import UNSET as BACK_TO_DEFAULT
from penstock.engine.limits.policies import KeySettingsChange, PolicyUpdate, SettingChange, Unset
from penstock.errors import InvalidInput, Reason, ValidationFailed
from penstock.wire.fields import FAIRNESS_KEY_BYTES_MAX, RATE_MIN
from penstock.wire.numbers import to_micro, to_milli
from penstock.wire.requests import ConfigureKey, ConfigureQueue

_RATES = (LimitSetting.QUEUE_RATE, LimitSetting.KEY_RATE, LimitSetting.RETRY_RATE)
_TIMES = (LimitSetting.QUEUE_BURST, LimitSetting.KEY_BURST, LimitSetting.AGING_WAIT)
_REASONS = {
    LimitSetting.QUEUE_RATE: "queue_rps_limit_reason",
    LimitSetting.KEY_RATE: "fairness_key_rps_limit_reason",
}
"""Settings with a reason field of their own."""


def parse_queue_settings(request: ConfigureQueue) -> PolicyUpdate:
    keys, weights = request.keys or {}, request.set_fairness_weight_overrides or {}
    unset = dict.fromkeys(request.unset_fairness_weight_overrides or ())
    _check_keys([*weights, *unset, *keys])
    _check_rates(request)
    _check_overrides(weights.keys() & unset.keys())
    return PolicyUpdate(
        settings=_settings(request),
        keys={
            key: _key(keys.get(key), weights.get(key), unset=key in unset)
            for key in dict.fromkeys([*weights, *unset, *keys])
        },
        clear_weights=bool(request.clear_fairness_weight_overrides),
        forget_worker_rate=request.worker_rps_limit is not UNSET,
        reason=request.reason,
        if_version=request.if_version,
    )


def _check_keys(keys: Iterable[str]) -> None:
    """Keys are bounded in bytes, which is how they are stored."""
    distinct = dict.fromkeys(keys)
    if len(distinct) > KEYS_PER_CHANGE_MAX:
        raise ValidationFailed(
            {"keys": [f"are {len(distinct):,}; one change takes at most {KEYS_PER_CHANGE_MAX:,}"]}
        )
    long = [key for key in distinct if len(key.encode()) > FAIRNESS_KEY_BYTES_MAX]
    if long:
        raise ValidationFailed(
            {f"keys.{key}": [f"must be at most {FAIRNESS_KEY_BYTES_MAX} bytes"] for key in long[:10]}
        )


def _check_rates(request: ConfigureQueue) -> None:
    """0 closes the queue; a rate between 0 and the smallest representable one would round to that."""
    named: dict[str, Any] = {setting.value: getattr(request, setting.value) for setting in _RATES}
    named |= {f"keys.{key}.rps_limit": each.rps_limit for key, each in (request.keys or {}).items()}
    errors = {
        field: [f"must be 0, which closes, or at least {RATE_MIN:f}"]
        for field, rate in named.items()
        if isinstance(rate, float) and 0 < rate < RATE_MIN
    }
    if errors:
        raise ValidationFailed(errors)


def _check_overrides(both: set[str]) -> None:
    if both:
        key = min(both)
        errors = {f"unset_fairness_weight_overrides.{key}": ["is set by the same change"]}
        raise InvalidInput(
            Reason.OVERRIDE_CONFLICT,
            f"The weight of {key!r} cannot be set and unset by one change.",
            errors=errors,
            validation_errors=errors,
        )


def _settings(request: ConfigureQueue) -> dict[LimitSetting, SettingChange]:
    changes: dict[LimitSetting, SettingChange] = {}
    for setting in QUEUE_SETTINGS:
        value = getattr(request, setting.value)
        reason = getattr(request, _REASONS[setting]) if setting in _REASONS else None
        if value is not UNSET:
            changes[setting] = SettingChange(stored_value(setting, value), reason)
        elif reason is not None:
            changes[setting] = SettingChange(None, reason)
    return changes


def stored_value(setting: LimitSetting, value: Any) -> int | str | Unset:
    """A value of a request in the units in which it is stored; null, false and `default` unset the setting."""
    if value is None or value is False or value == "default":
        return BACK_TO_DEFAULT
    if setting is LimitSetting.PAUSED:
        return PAUSED
    if setting in _RATES:
        return to_micro(value)
    return to_milli(value) if setting in _TIMES else value


def _key(change: ConfigureKey | None, weight: float | None, *, unset: bool) -> KeySettingsChange:
    change = change or ConfigureKey()
    paused = change.paused
    return KeySettingsChange(
        weight_milli=BACK_TO_DEFAULT if unset else None if weight is None else to_milli(weight),
        rate_micro=_rate(change.rps_limit),
        lease_cap=_limit(change.max_running),
        paused=None if isinstance(paused, UnsetType) else bool(paused),
    )


def _rate(rate: float | str | UnsetType | None) -> int | Unset | None:
    if isinstance(rate, UnsetType):
        return None
    return to_micro(rate) if isinstance(rate, float) else BACK_TO_DEFAULT


def _limit(limit: int | str | UnsetType | None) -> int | Unset | None:
    if isinstance(limit, UnsetType):
        return None
    return limit if isinstance(limit, int) else BACK_TO_DEFAULT
