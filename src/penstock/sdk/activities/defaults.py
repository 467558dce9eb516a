"""What `@activity.defn` says of how an activity is dispatched, where neither a file nor a call says otherwise."""

from __future__ import annotations

from dataclasses import dataclass, fields
from datetime import timedelta

from penstock.sdk.retry import RetryPolicy


@dataclass(frozen=True, slots=True, kw_only=True)
class ActivityDefaults:
    """The options of the decorator; None: it says nothing of that."""

    start_to_close_timeout: timedelta | None = None
    schedule_to_close_timeout: timedelta | None = None
    schedule_to_start_timeout: timedelta | None = None
    heartbeat_timeout: timedelta | None = None
    retry_policy: RetryPolicy | None = None

    def check(self, what: str) -> None:
        """Refuse what no call could use."""
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
