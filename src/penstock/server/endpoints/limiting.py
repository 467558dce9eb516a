"""From a change of limits on the wire to the engine's, with the checks that need more than one field."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import UNSET

from penstock.core.limits import LINE_KNOBS
from penstock.core.policies import ENDING_KNOBS, PAUSED, SCOPE_KNOBS, Knob
from penstock.engine.admission import ScopeAsk
from penstock.engine.policies import UNSET as BACK_TO_DEFAULT
from penstock.engine.policies import Ask, PolicyAsk, Unset
from penstock.errors import ValidationFailed
from penstock.wire.limit_requests import ChangeLineLimits, ChangeScopeLimits, LimitChange, Passing
from penstock.wire.limits import LINE_NAMES, SCOPE_NAMES


def line_ask(request: ChangeLineLimits, now_ms: int) -> PolicyAsk:
    names = _names(LINE_KNOBS, LINE_NAMES)
    values = _values(request, names)
    ends_at_ms = _end(request, values, names, now_ms)
    return PolicyAsk(
        settings={
            knob: Ask(value, ends_at_ms=_unless_unset(value, ends_at_ms)) for knob, value in values.items()
        },
        reason=request.reason,
        if_version=request.if_version,
    )


def scope_ask(request: ChangeScopeLimits, now_ms: int) -> ScopeAsk:
    names = _names(SCOPE_KNOBS, SCOPE_NAMES)
    values = _values(request, names)
    return ScopeAsk(
        settings={knob: Ask(value) for knob, value in values.items()},
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


def _names(knobs: tuple[Knob, ...], names: Mapping[Knob, str]) -> dict[Knob, str]:
    return {knob: names.get(knob, knob.value) for knob in knobs}


def _values(request: LimitChange, names: Mapping[Knob, str]) -> dict[Knob, int | str | Unset]:
    asked = {knob: getattr(request, name) for knob, name in names.items()}
    return {knob: _kept(knob, value) for knob, value in asked.items() if value is not UNSET}


def _kept(knob: Knob, value: Any) -> int | str | Unset:
    if value is None or value is False or value == "default":
        return BACK_TO_DEFAULT
    kept: int | str = PAUSED if knob is Knob.PAUSED else value
    return kept


def _unless_unset(value: int | str | Unset, at_ms: int | None) -> int | None:
    return None if isinstance(value, Unset) else at_ms


def _end(
    request: LimitChange,
    values: Mapping[Knob, int | str | Unset],
    names: Mapping[Knob, str],
    now_ms: int,
) -> int | None:
    """When the change ends. Only what nothing but the next grant depends on may end by itself."""
    at_ms = ends_at_ms(request, now_ms)
    if at_ms is None:
        return None
    set_ones = [knob for knob, value in values.items() if not isinstance(value, Unset)]
    lasting = [names[knob] for knob in set_ones if knob not in ENDING_KNOBS]
    may_end = ", ".join(name for knob, name in names.items() if knob in ENDING_KNOBS)
    if lasting:
        problem = f"cannot end by itself; these can: {may_end}. Set it by a change of its own"
        raise ValidationFailed({name: [problem] for name in lasting})
    if not set_ones:
        field = "ends_at" if request.expires_in_seconds is None else "expires_in_seconds"
        raise ValidationFailed({field: [f"says when something ends, but nothing is set: {may_end}"]})
    return at_ms
