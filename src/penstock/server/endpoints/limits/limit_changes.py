"""Parses changes of limits, with the checks that need more than one field."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import UNSET

from penstock.core.limits.policies import EXPIRING_SETTINGS, SCOPE_SETTINGS, LimitSetting
from penstock.core.operations.limits_view import QUEUE_LIMIT_SETTINGS
from penstock.engine.context import EngineContext
from penstock.engine.limits import limit_usage
from penstock.engine.limits.admission import ScopeUpdate
from penstock.engine.limits.policies import PolicyUpdate, SettingChange, Unset
from penstock.errors import ValidationFailed
from penstock.server.endpoints.limits.queue_setting_changes import stored_value
from penstock.wire.limits.limit_requests import (
    ChangeOwnLimits,
    ChangeQueueLimits,
    ChangeScopeLimits,
    Expiring,
    LimitChange,
)
from penstock.wire.limits.limits import LINE_NAMES, SCOPE_NAMES

_Values = Mapping[LimitSetting, int | str | Unset]


async def parse_queue_limits(ctx: EngineContext, request: ChangeQueueLimits) -> PolicyUpdate:
    names = _names(QUEUE_LIMIT_SETTINGS, LINE_NAMES)
    values = _values(request, names)
    ends_at_ms = await _checked_end(ctx, request, values, names)
    return PolicyUpdate(
        settings={
            setting: SettingChange(value, ends_at_ms=None if isinstance(value, Unset) else ends_at_ms)
            for setting, value in values.items()
        },
        reason=request.reason,
        if_version=request.if_version,
    )


async def parse_scope_limits(ctx: EngineContext, request: ChangeScopeLimits) -> ScopeUpdate:
    names = _names(_settings(request), SCOPE_NAMES)
    values = _values(request, names)
    if LimitSetting.CHANGE_APPROVALS in values and request.kind != "all":
        raise ValidationFailed({"change_approvals": ["is for both kinds of tasks together: leave kind out"]})
    return ScopeUpdate(
        settings={setting: SettingChange(value) for setting, value in values.items()},
        reason=request.reason,
        ends_at_ms=await _checked_end(ctx, request, values, names),
        if_version=request.if_version,
    )


async def parse_end(ctx: EngineContext, request: Expiring) -> int | None:
    """When the change expires, by the store's clock; None if it stays until the next change."""
    if request.expires_in_seconds is not None and request.ends_at is not None:
        raise ValidationFailed({"ends_at": ["cannot be combined with expires_in_seconds"]})
    if request.expires_in_seconds is not None:
        return await limit_usage.now_ms(ctx) + request.expires_in_seconds * 1_000
    if request.ends_at is None:
        return None
    at_ms = round(request.ends_at.timestamp() * 1_000)
    if at_ms <= await limit_usage.now_ms(ctx):
        raise ValidationFailed({"ends_at": ["is over already"]})
    return at_ms


def _settings(request: ChangeScopeLimits) -> tuple[LimitSetting, ...]:
    return (
        (*SCOPE_SETTINGS, LimitSetting.CHANGE_APPROVALS)
        if isinstance(request, ChangeOwnLimits)
        else SCOPE_SETTINGS
    )


def _names(
    settings: tuple[LimitSetting, ...], public_names: Mapping[LimitSetting, str]
) -> dict[LimitSetting, str]:
    return {setting: public_names.get(setting, setting.value) for setting in settings}


def _values(request: LimitChange, names: Mapping[LimitSetting, str]) -> _Values:
    """The settings that the request sets or unsets; those that it leaves out stay as they are."""
    requested = {setting: getattr(request, name) for setting, name in names.items()}
    return {
        setting: stored_value(setting, value) for setting, value in requested.items() if value is not UNSET
    }


async def _checked_end(
    ctx: EngineContext, request: LimitChange, values: _Values, names: Mapping[LimitSetting, str]
) -> int | None:
    """When the change expires. Only settings that nothing but the next grant depends on may expire."""
    at_ms = await parse_end(ctx, request)
    if at_ms is None:
        return None
    being_set = [setting for setting, value in values.items() if not isinstance(value, Unset)]
    if not being_set:
        field = "ends_at" if request.expires_in_seconds is None else "expires_in_seconds"
        raise ValidationFailed({field: [f"needs a setting that expires, one of: {_expiring(names)}"]})
    permanent = [names[setting] for setting in being_set if setting not in EXPIRING_SETTINGS]
    if permanent:
        problem = f"cannot expire; these can: {_expiring(names)}. Set it in a separate change"
        raise ValidationFailed({name: [problem] for name in permanent})
    return at_ms


def _expiring(names: Mapping[LimitSetting, str]) -> str:
    return ", ".join(name for setting, name in names.items() if setting in EXPIRING_SETTINGS)
