"""What single limits may be: a whole number where 0 closes, the name of a budget group, a window."""

from __future__ import annotations

import re

from penstock.core.limits.admission import GROUP_NAME_MAX, LEASES_MAX, LimitField
from penstock.core.limits.windows import PER_MINUTE_MAX, Window
from penstock.settings.diagnostics import shown
from penstock.settings.types.invalid_value import InvalidValue

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff\ud800-\udfff]")

_MOST = {
    LimitField.QUEUE_LEASES: LEASES_MAX,
    LimitField.NAMESPACE_LEASES: LEASES_MAX,
    LimitField.QUEUE_DISPATCHES: PER_MINUTE_MAX,
    LimitField.NAMESPACE_DISPATCHES: PER_MINUTE_MAX,
    LimitField.GROUP_DISPATCHES: PER_MINUTE_MAX,
}


def line_value(what: LimitField, value: object) -> int | str:
    """The value of a queue limit, or `InvalidValue`."""
    return group_name(value) if what is LimitField.GROUP else whole(value, _MOST[what])


def whole(value: object, most: int) -> int:
    """A non-negative whole number; 0 closes. Text, fractions, booleans and negative numbers are invalid."""
    if type(value) is not int or not 0 <= value <= most:
        raise InvalidValue(f"must be a whole number from 0 to {most}, not {shown(value)}")
    return value


def group_name(value: object) -> str:
    """The name of a budget group, without the separators of scope names."""
    if (
        not isinstance(value, str)
        or not 0 < len(value) <= GROUP_NAME_MAX
        or value != value.strip()
        or any(mark in value for mark in "/:")
        or has_control(value)
    ):
        raise InvalidValue(
            f"must be the name of a budget group: 1 to {GROUP_NAME_MAX} visible characters, no slash, no colon,"
            f" not {shown(value)}"
        )
    return value


def window(value: object) -> Window:
    try:
        return Window(value)  # type: ignore[arg-type]
    except ValueError:
        raise InvalidValue(f"must be {' or '.join(Window)}, not {shown(value)}") from None


def has_control(text: str) -> bool:
    """Whether the text has control characters or unassigned code points."""
    return _CONTROL.search(text) is not None
