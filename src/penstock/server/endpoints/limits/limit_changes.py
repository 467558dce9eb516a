"""From a change of limits on the wire to the engine's, with the checks that need more than one field."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import UNSET

from penstock.core.limits.policies import EXPIRING_SETTINGS, PAUSED, SCOPE_SETTINGS, LimitSetting
from penstock.core.operations.limits_view import QUEUE_LIMIT_SETTINGS
from penstock.engine.limits.admission import ScopeUpdate
from penstock.engine.limits.policies import UNSET as BACK_TO_DEFAULT
from penstock.engine.limits.policies import PolicyUpdate, SettingChange, Unset
from penstock.errors import ValidationFailed
from penstock.wire.limits.limit_requests import ChangeQueueLimits, ChangeScopeLimits, LimitChange, Passing
from penstock.wire.limits.limits import LINE_NAMES, SCOPE_NAMES


def parse_queue_limits(request: ChangeQueueLimits, now_ms: int) -> PolicyUpdate:
    names = _names(QUEUE_LIMIT_SETTINGS, LINE_NAMES)
    values = _values(request, names)
    ends_at_ms = _end(request, values, names, now_ms)
    return PolicyUpdate(
        settings={
            setting_name: SettingChange(value, ends_at_ms=_unless_unset(value, ends_at_ms))
            for setting_name, value in values.items()
        },
        reason=request.reason,
        if_version=request.if_version,
    )


def parse_scope_limits(request: ChangeScopeLimits, now_ms: int) -> ScopeUpdate:
    names = _names(SCOPE_SETTINGS, SCOPE_NAMES)
    values = _values(request, names)
    return ScopeUpdate(
        settings={setting_name: SettingChange(value) for setting_name, value in values.items()},
        reason=request.reason,
        ends_at_ms=_end(request, values, names, now_ms),
        if_version=request.if_version,
    )


def ends_at_ms(request: Passing, now_ms: int) -> int | None:
    """When what is asked for ends by itself; None: when somebody ends it."""
    if request.expires_in_seconds is not None and request.ends_at is not None:
        raise ValidationFailed({"ends_at": ["stands beside expires_in_seconds; one of them is enough"]})
    if request.expires_in_seconds is not None:
        return now_ms + request.expires_in_seconds * 1_000
    if request.ends_at is None:
        return None
    at_ms = round(request.ends_at.timestamp() * 1_000)
    if at_ms <= now_ms:
        raise ValidationFailed({"ends_at": ["is over already"]})
    return at_ms


def _names(
    setting_names: tuple[LimitSetting, ...], names: Mapping[LimitSetting, str]
) -> dict[LimitSetting, str]:
    return {setting_name: names.get(setting_name, setting_name.value) for setting_name in setting_names}


def _values(request: LimitChange, names: Mapping[LimitSetting, str]) -> dict[LimitSetting, int | str | Unset]:
    asked = {setting_name: getattr(request, name) for setting_name, name in names.items()}
    return {
        setting_name: _stored_value(setting_name, value)
        for setting_name, value in asked.items()
        if value is not UNSET
    }


def _stored_value(setting_name: LimitSetting, value: Any) -> int | str | Unset:
    if value is None or value is False or value == "default":
        return BACK_TO_DEFAULT
    kept: int | str = PAUSED if setting_name is LimitSetting.PAUSED else value
    return kept


def _unless_unset(value: int | str | Unset, at_ms: int | None) -> int | None:
    return None if isinstance(value, Unset) else at_ms


def _end(
    request: LimitChange,
    values: Mapping[LimitSetting, int | str | Unset],
    names: Mapping[LimitSetting, str],
    now_ms: int,
) -> int | None:
    """When the change ends. Only what nothing but the next grant depends on may end by itself."""
    at_ms = ends_at_ms(request, now_ms)
    if at_ms is None:
        return None
    set_ones = [setting_name for setting_name, value in values.items() if not isinstance(value, Unset)]
    lasting = [names[setting_name] for setting_name in set_ones if setting_name not in EXPIRING_SETTINGS]
    may_end = ", ".join(name for setting_name, name in names.items() if setting_name in EXPIRING_SETTINGS)
    if lasting:
        problem = f"cannot end by itself; these can: {may_end}. Set it by a change of its own"
        raise ValidationFailed({name: [problem] for name in lasting})
    if not set_ones:
        field = "ends_at" if request.expires_in_seconds is None else "expires_in_seconds"
        raise ValidationFailed({field: [f"says when something ends, but nothing is set: {may_end}"]})
    return at_ms
