"""Dispatch options from `@activity.defn`, used where neither the dispatch configuration nor the call sets them."""

from __future__ import annotations

from dataclasses import dataclass, fields
from datetime import timedelta

from penstock.sdk.retry import RetryPolicy


@dataclass(frozen=True, slots=True, kw_only=True)
class ActivityDefaults:
    """The options of the decorator; None is not set."""

    start_to_close_timeout: timedelta | None = None
    schedule_to_close_timeout: timedelta | None = None
    schedule_to_start_timeout: timedelta | None = None
    heartbeat_timeout: timedelta | None = None
    retry_policy: RetryPolicy | None = None

    def check(self, what: str) -> None:
        """Raise if an option has a value that no call could use."""
        for each in fields(self):
            value = getattr(self, each.name)
            if value is None:
                continue
            if each.name == "retry_policy":
                if not isinstance(value, RetryPolicy):
                    raise TypeError(f"{what}: retry_policy is a RetryPolicy, not {type(value).__name__}")
            elif not isinstance(value, timedelta):
                raise TypeError(f"{what}: {each.name} is a timedelta, not {type(value).__name__}")
            elif value <= timedelta(0):
                raise ValueError(f"{what}: {each.name} must be longer than nothing")


NONE = ActivityDefaults()
