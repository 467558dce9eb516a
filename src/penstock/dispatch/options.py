"""Dispatch options of one activity call: the effective values and their provenance."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from penstock.dispatch.retry import RetryPolicy
from penstock.schema.kinds import DURATION_MAX, UNLIMITED, Unlimited

NO_LONGEST_PAUSE = DURATION_MAX
"""An unlimited `maximum_interval`; a retry policy without one defaults to 100 times the initial interval."""
RETRY_SCALARS = ("initial_interval", "backoff_coefficient", "maximum_interval", "maximum_attempts")
TIMEOUTS = (
    "start_to_close_timeout",
    "schedule_to_close_timeout",
    "schedule_to_start_timeout",
    "heartbeat_timeout",
)


@dataclass(frozen=True, slots=True)
class RetryPolicyConfigOverlay:
    """The retry options of one layer; unset ones are inherited from lower layers."""

    initial_interval: timedelta | None = None
    backoff_coefficient: float | None = None
    maximum_interval: timedelta | Unlimited | None = None
    maximum_attempts: int | Unlimited | None = None
    non_retryable_error_types_extra: tuple[str, ...] = ()
    """Added to those of the layers below: a layer can add error types and remove none."""


RetryOverlay = RetryPolicyConfigOverlay
"""The earlier name of `RetryPolicyConfigOverlay`."""


@dataclass(frozen=True, slots=True)
class Layer:
    """Options given in code, at the definition of an activity or at a call; `task_queue` only at a call."""

    start_to_close_timeout: timedelta | None = None
    schedule_to_close_timeout: timedelta | None = None
    schedule_to_start_timeout: timedelta | None = None
    heartbeat_timeout: timedelta | None = None
    task_queue: str | None = None
    retry: RetryPolicyConfigOverlay | None = None


@dataclass(frozen=True, slots=True)
class DispatchOptions:
    """The resolved options of one activity call. Two are equal if their values are, wherever these come from."""

    task_queue: str | None
    """None: the activity rides the task queue of the workflow that schedules it."""
    start_to_close_timeout: timedelta
    retry_policy: RetryPolicy
    schedule_to_close_timeout: timedelta | None = None
    schedule_to_start_timeout: timedelta | None = None
    heartbeat_timeout: timedelta | None = None
    provenance: Mapping[str, str] = field(default_factory=dict, compare=False)
    """The layer of each value, by name; those of the retry policy as `retry.maximum_attempts`."""
    routing_key: str | None = field(default=None, compare=False, repr=False)
    was_traced: bool = field(default=False, compare=False, repr=False)

    def to_execute_kwargs(self) -> dict[str, Any]:
        """Keyword arguments for `workflow.execute_activity(…)`, without unset values.

        The retry policy, which is always present, carries the resolution to the call.
        """
        kwargs: dict[str, Any] = {
            "start_to_close_timeout": self.start_to_close_timeout,
            "retry_policy": self.retry_policy.marked(Resolution(self, self.was_traced)),
        }
        for name in ("task_queue", *TIMEOUTS[1:]):
            if (value := getattr(self, name)) is not None:
                kwargs[name] = value
        return kwargs

    def shown_values(self) -> dict[str, str]:
        """Every value as people read it, in the order of the trace."""
        policy = self.retry_policy
        values: dict[str, object | None] = {"task_queue": self.task_queue or "None"}
        values |= {name: getattr(self, name) for name in TIMEOUTS}
        values["retry.initial_interval"] = policy.initial_interval
        values["retry.backoff_coefficient"] = policy.backoff_coefficient
        values["retry.maximum_interval"] = shown_interval(policy)
        values["retry.maximum_attempts"] = policy.maximum_attempts or UNLIMITED
        values["retry.non_retryable"] = shown_names(policy.non_retryable_error_types or ())
        return {name: str(value) for name, value in values.items() if value is not None}


@dataclass(slots=True, eq=False)
class Resolution:
    """The resolution that the arguments of a call were made by."""

    options: DispatchOptions
    _is_told: bool

    def take_trace(self) -> bool:
        """Whether the call was traced already: a resolution is traced once."""
        is_told, self._is_told = self._is_told, False
        return is_told


def resolution_of(policy: RetryPolicy | None) -> Resolution | None:
    """The resolution that a policy carries, if it was made by one."""
    found = getattr(policy, "resolution", None)
    return found if isinstance(found, Resolution) else None


def shown_interval(policy: RetryPolicy) -> str:
    longest = policy.maximum_interval
    return UNLIMITED if longest is None or longest >= NO_LONGEST_PAUSE else str(longest)


def shown_names(names: Any) -> str:
    """The names sorted, without blanks: `['A','B']`."""
    return f"[{','.join(repr(name) for name in sorted(names))}]"
