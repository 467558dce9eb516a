"""Validation of options shared by activities, children and continue-as-new."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from penstock.schema.nearest import nearest
from penstock.sdk.call_targets import checked_name

SUMMARY_MAX = 400
_NAME_OPTIONS = ("task_queue", "build_id", "business_key")
"""Options that are names. An invalid one raises an error that the code can catch; the server would fail the task."""


def check_options(function: str, options: Mapping[str, Any], known: Any) -> None:
    """Refuse a misspelt option, as Python refuses a misspelt argument, and names and summaries that are invalid."""
    for name in options:
        if name not in known.__annotations__:
            near = nearest(name, known.__annotations__)
            hint = f". Did you mean {near[0]!r}?" if near else ""
            raise TypeError(f"{function}() got an unexpected keyword argument {name!r}{hint}")
    for name in _NAME_OPTIONS:
        if options.get(name) is not None:
            checked_name(name, options[name])
    checked_summary(options.get("summary"))


def checked_summary(text: str | None) -> str | None:
    """Return a summary; raise `ValueError` if the server would refuse it."""
    if text is not None and (len(text) > SUMMARY_MAX or "\0" in text):
        raise ValueError(f"summary must be at most {SUMMARY_MAX} characters, without NUL")
    return text


def attribute_value(value: Any) -> Any:
    return value.isoformat() if isinstance(value, datetime) else value
