"""Task options: those of the decorator, and those of a single send."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from datetime import UTC, datetime, timedelta
from typing import Any, TypedDict, cast, get_args

from penstock.schema.nearest import nearest
from penstock.sdk.clients.interceptors import OnLostLease, UniqueConflictPolicy, UniqueUntil
from penstock.sdk.clients.starts import StandaloneActivityOptions, UniqueOptions
from penstock.sdk.id_policies import WorkflowIDConflictPolicy, WorkflowIDReusePolicy
from penstock.sdk.priority import Priority
from penstock.sdk.retry import FOR_EVER, RetryPolicy


class SendOptions(TypedDict, total=False):
    """Options of a send that override those of the decorator."""

    queue: str
    retry: RetryPolicy | int
    """A number is the retries after the first attempt."""
    timeout: timedelta
    """Timeout of one attempt."""
    heartbeat_timeout: timedelta
    priority: Priority | int
    good_until: timedelta | datetime
    """Latest start; a timedelta counts from when it may first start. After that it has expired."""
    on_lost_lease: OnLostLease
    """What happens if its worker dies: `fail` (as `WORKER_CRASHED`, subject to `retry`) or `redeliver`."""
    id: str
    id_reuse_policy: WorkflowIDReusePolicy
    """Whether the id of a task that has ended may be reused; it may by default."""
    id_conflict_policy: WorkflowIDConflictPolicy
    """What to do if the id belongs to a task that has not ended; `FAIL` by default."""
    idempotency_key: str
    """Sent again with the same key, it is the same task."""
    unique_key: str
    """At most one task of the function holds it; a send that finds it held returns a handle of that one."""
    unique_until: UniqueUntil
    """How long the task holds the key: until it is done (the default), or until a worker has started it."""
    unique_conflict_policy: UniqueConflictPolicy
    """If the key is held: use the task that holds it (the default), or raise `ServerRefused` (`unique_key_held`)."""
    debounce: timedelta
    """Begin when no other send of the key has come for so long. The arguments of the latest send count."""
    debounce_max: timedelta
    """Begin at the latest so long after the first send; ten times `debounce` by default."""


DECORATOR_OPTIONS = (
    "queue",
    "retry",
    "timeout",
    "heartbeat_timeout",
    "priority",
    "good_until",
    "on_lost_lease",
)
"""The options that `@app.task` takes, too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskOptions:
    """All options, validated. Errors name the option and the values that it accepts."""

    queue: str
    retry: RetryPolicy | None = None
    timeout: timedelta | None = None
    heartbeat_timeout: timedelta | None = None
    priority: Priority | None = None
    good_until: timedelta | datetime | None = None
    on_lost_lease: OnLostLease = "fail"
    id: str | None = None
    id_reuse_policy: WorkflowIDReusePolicy | None = None
    id_conflict_policy: WorkflowIDConflictPolicy | None = None
    idempotency_key: str | None = None
    unique_key: str | None = None
    unique_until: UniqueUntil | None = None
    unique_conflict_policy: UniqueConflictPolicy | None = None
    debounce: timedelta | None = None
    debounce_max: timedelta | None = None

    def replaced(self, given: Mapping[str, Any]) -> TaskOptions:
        """Return the options with the given ones replaced."""
        known = [each.name for each in fields(self)]
        for name in given:
            if name not in known:
                near = nearest(name, known)
                hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(known)}"
                raise TypeError(f"A task has no option {name!r}; {hint}")
        changes = {name: _read(name, value) for name, value in given.items() if value is not None}
        if {"id", "idempotency_key"} <= changes.keys():
            raise TypeError("A task is identified by its id or its idempotency_key: pass one of them")
        return replace(self, **changes)

    def start(self, task: str) -> StandaloneActivityOptions:
        """Return the options in terms of a standalone activity."""
        given: dict[str, Any] = {
            "task_queue": self.queue,
            "retry_policy": self.retry,
            "start_to_close_timeout": self.timeout,
            "heartbeat_timeout": self.heartbeat_timeout,
            "priority": self.priority,
            "good_until": self.good_until,
            "on_lost_lease": self.on_lost_lease,
            "id": self.id,
            "id_reuse_policy": self.id_reuse_policy,
            "id_conflict_policy": self.id_conflict_policy,
            **{each: getattr(self, each) for each in UniqueOptions.__annotations__},
        }
        if self.idempotency_key is not None:
            digest = hashlib.sha256(f"{task}\0{self.idempotency_key}".encode()).hexdigest()
            given |= {"id": f"task-{digest[:32]}", "request_id": f"task-{digest}"}
        return cast(
            StandaloneActivityOptions, {name: value for name, value in given.items() if value is not None}
        )


def queue_named(name: object) -> str:
    """Validate the name of a queue."""
    return _text("queue", name)


def delay_until(when: timedelta | datetime) -> timedelta:
    """Return the delay until a time; a time in the past is no delay."""
    if isinstance(when, datetime):
        return max(_aware("The moment of a schedule", when) - datetime.now(UTC), timedelta(0))
    if not isinstance(when, timedelta):
        raise TypeError(
            "A task is scheduled by a timedelta or a datetime, such as"
            f" .schedule(timedelta(minutes=5), …), not by {type(when).__name__}"
        )
    if when < timedelta(0):
        raise ValueError(f"A task cannot be scheduled {-when} ago")
    return when


def _read(name: str, value: Any) -> Any:
    match name:
        case "retry":
            return _retry(value)
        case "priority":
            return (
                Priority(priority_key=value) if isinstance(value, int) else _of("priority", value, Priority)
            )
        case "timeout" | "heartbeat_timeout" | "debounce" | "debounce_max":
            return _span(name, value)
        case "good_until":
            return _aware(name, value) if isinstance(value, datetime) else _span(name, value)
        case "on_lost_lease":
            return _one_of(name, value, get_args(OnLostLease))
        case "unique_until":
            return _one_of(name, value, get_args(UniqueUntil))
        case "unique_conflict_policy":
            return _one_of(name, value, get_args(UniqueConflictPolicy))
        case "id_reuse_policy":
            return WorkflowIDReusePolicy(value)
        case "id_conflict_policy":
            return WorkflowIDConflictPolicy(value)
        case _:
            return _text(name, value)


def _one_of(name: str, value: Any, choices: tuple[str, ...]) -> Any:
    if value not in choices:
        raise ValueError(f"{name} is {' or '.join(map(repr, sorted(choices)))}, not {value!r}")
    return value


def _retry(value: Any) -> RetryPolicy:
    if isinstance(value, bool) or not isinstance(value, int):
        return cast(RetryPolicy, _of("retry", value, RetryPolicy, " or the number of times to try again"))
    if not 0 <= value < FOR_EVER:
        raise ValueError(f"retry is 0 or more times, not {value}; RetryPolicy() retries without limit")
    return RetryPolicy(maximum_attempts=value + 1)


def _of(name: str, value: Any, kind: type, otherwise: str = "") -> Any:
    if not isinstance(value, kind):
        raise TypeError(f"{name} is a {kind.__name__}{otherwise}, not {type(value).__name__}")
    return value


def _span(name: str, value: Any) -> timedelta:
    if not isinstance(value, timedelta):
        more = " or a datetime" if name == "good_until" else ""
        raise TypeError(f"{name} is a timedelta{more}, not {type(value).__name__}")
    if value <= timedelta(0):
        raise ValueError(f"{name} must be longer than nothing")
    return value


def _aware(name: str, moment: datetime) -> datetime:
    if moment.tzinfo is None:
        raise ValueError(f"{name} has no time zone: write datetime(…, tzinfo=UTC), or use a timedelta")
    return moment


def _text(name: str, value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{name} is text, not {type(value).__name__}")
    if not value or len(value) > 255 or not value.isprintable():
        raise ValueError(f"{name} is 1 to 255 visible characters, not {value!r}")
    return value
