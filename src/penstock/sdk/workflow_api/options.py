"""Validation and encoding of options shared by activities, children and continue-as-new."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

import msgspec

from penstock.schema.nearest import nearest
from penstock.sdk.replay.commands import StepFuture


def check_options(function: str, options: Mapping[str, Any], known: Any) -> None:
    """Refuse a misspelt option, as Python refuses a misspelt argument."""
    for name in options:
        if name not in known.__annotations__:
            near = nearest(name, known.__annotations__)
            hint = f". Did you mean {near[0]!r}?" if near else ""
            raise TypeError(f"{function}() got an unexpected keyword argument {name!r}{hint}")


def one_of(name: str, given: Any, known: Sequence[str]) -> Any:
    if given not in known:
        raise ValueError(f"{name} must be one of {', '.join(known)}, not {given!r}")
    return given


def delay_ms(given: Any) -> int:
    if not isinstance(given, timedelta) or given < timedelta(0):
        raise ValueError(f"start_delay must be a timedelta that is not negative, not {given!r}")
    return -(-given // timedelta(milliseconds=1))


def whole_seconds(**given: timedelta | None) -> dict[str, int]:
    return {name: _ceil(name, value) for name, value in given.items() if value is not None}


def _ceil(name: str, value: timedelta) -> int:
    if value <= timedelta(0):
        raise ValueError(f"{name.removesuffix('_seconds')} must be positive, not {value}")
    return -(-value // timedelta(seconds=1))


def memo_and_attributes(
    memo: Mapping[str, Any] | None, search_attributes: Mapping[str, Any] | None
) -> dict[str, dict[str, Any]]:
    """Return memo and search attributes of a run to start. The server stores both as plain JSON."""
    fields: dict[str, dict[str, Any]] = {}
    if memo is not None:
        fields["memo"] = msgspec.to_builtins(dict(memo), str_keys=True)
    if search_attributes is not None:
        fields["search_attributes"] = {
            name: attribute_value(value) for name, value in search_attributes.items()
        }
    return fields


def attribute_value(value: Any) -> Any:
    return value.isoformat() if isinstance(value, datetime) else value


def abandon(future: StepFuture[Any]) -> bool:
    future.command.given_up = True
    return True
