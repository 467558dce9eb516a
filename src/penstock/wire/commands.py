"""The commands of a completed workflow task, from JSON to the core's values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any, TypeVar

import msgspec
from msgspec import Meta

from penstock.core.history.commands import (
    Command,
    CompleteWorkflow,
    FailWorkflow,
    ScheduleActivity,
    StartTimer,
)
from penstock.core.model import ActivityTimeouts, Blob, Wish
from penstock.core.model import RetryPolicy as CoreRetryPolicy
from penstock.errors import ValidationFailed
from penstock.wire import payloads
from penstock.wire.fields import FAIRNESS_KEY_BYTES_MAX, Cost, Delay, Message, Name, Seconds
from penstock.wire.numbers import thousandths
from penstock.wire.parsing import parse
from penstock.wire.requests import Anything, NestedPriority, Request, RetryPolicy, WithStanding

T = TypeVar("T")
SUPPORTED = ("schedule_activity", "start_timer", "complete_workflow", "fail_workflow")
_REPEATED = (
    "parallel_group_id",
    "parallel_group_kind",
    "parallel_group_base_sequence",
    "parallel_group_size",
    "parallel_group_index",
    "parallel_group_path",
    "cancellation_policy",
)
"""What an event must repeat of the command that caused it."""


class _ScheduleActivity(WithStanding, kw_only=True):
    activity_type: Name
    queue: Name | None = None
    arguments: Anything = None
    retry_policy: RetryPolicy | None = None
    start_to_close_timeout: Seconds | None = None
    schedule_to_start_timeout: Seconds | None = None
    schedule_to_close_timeout: Seconds | None = None
    heartbeat_timeout: Seconds | None = None
    cost_estimate: Cost | None = None


class _StartTimer(Request):
    delay_seconds: Delay


class _GroupEntry(Request):
    parallel_group_id: Name
    parallel_group_base_sequence: Annotated[int, Meta(ge=1, le=1_000_000)]
    parallel_group_size: Annotated[int, Meta(ge=1, le=1000)]
    parallel_group_index: Annotated[int, Meta(ge=0, le=999)]


class _GroupPath(Request):
    path: Annotated[list[_GroupEntry], Meta(min_length=1, max_length=20)] = msgspec.field(
        name="parallel_group_path"
    )


class _CompleteWorkflow(Request):
    result: Anything = None


class _FailWorkflow(Request):
    message: Message
    exception_type: Annotated[str, Meta(max_length=1000)] | None = None
    exception_class: Annotated[str, Meta(max_length=1000)] | None = None
    exception: dict[str, Any] | None = None
    non_retryable: bool | None = None
    failed_step_sequence: Annotated[int, Meta(ge=0, le=2**53 - 1)] | None = None
    failed_activity_execution_id: Name | None = None


def parse_commands(bodies: Sequence[Mapping[str, Any]]) -> list[Command]:
    """All commands or a refusal that names the wrong ones: `commands.0.delay_seconds`."""
    commands: list[Command] = []
    errors: dict[str, list[str]] = {}
    for index, body in enumerate(bodies):
        try:
            commands.append(_command(dict(body)))
        except ValidationFailed as refusal:
            for field, problems in refusal.details["errors"].items():
                errors[f"commands.{index}.{field}"] = problems
            continue
        if isinstance(commands[-1], CompleteWorkflow | FailWorkflow) and index < len(bodies) - 1:
            errors[f"commands.{index}.type"] = ["ends the run, so it must be the last command"]
    if errors:
        raise ValidationFailed(errors)
    return commands


def _command(body: dict[str, Any]) -> Command:
    kind = body.get("type")
    match kind:
        case "schedule_activity":
            return _schedule(parse(body, _ScheduleActivity), body)
        case "start_timer":
            return StartTimer(parse(body, _StartTimer).delay_seconds, _extra(body))
        case "complete_workflow":
            result = parse(body, _CompleteWorkflow).result
            return CompleteWorkflow(Blob(payloads.parse_value(result, "result").blob))
        case "fail_workflow":
            return _fail(parse(body, _FailWorkflow))
        case _:
            known = ", ".join(SUPPORTED)
            raise ValidationFailed({"type": [f"must be one of {known}; got {str(kind)[:60]!r}"]})


def _schedule(request: _ScheduleActivity, body: dict[str, Any]) -> ScheduleActivity:
    timeouts = activity_timeouts(
        request.start_to_close_timeout,
        request.schedule_to_start_timeout,
        request.schedule_to_close_timeout,
        request.heartbeat_timeout,
    )
    return ScheduleActivity(
        activity_type=request.activity_type,
        task_queue=request.queue,
        arguments=Blob(payloads.parse(request.arguments, "arguments").blob),
        retry=retry_policy(request.retry_policy),
        timeouts=timeouts,
        extra=_extra(body),
        wish=replace(wish(request), cost=request.cost_estimate),
    )


def wish(said: WithStanding) -> Wish:
    """Standing on the wire. A key is counted in bytes, because that is what is kept."""
    nested = said.priority if isinstance(said.priority, NestedPriority) else NestedPriority()
    flat = None if isinstance(said.priority, NestedPriority) else said.priority
    level = _agreed("priority_key", flat, said.priority_key, nested.priority_key)
    key = _agreed("fairness_key", said.fairness_key, nested.fairness_key)
    weight = _agreed("fairness_weight", said.fairness_weight, nested.fairness_weight)
    if key is not None and len(key.encode()) > FAIRNESS_KEY_BYTES_MAX:
        raise ValidationFailed({"fairness_key": [f"must be at most {FAIRNESS_KEY_BYTES_MAX} bytes"]})
    return Wish(level, key, None if weight is None else thousandths(weight))


def _agreed(field: str, *values: T | None) -> T | None:
    """What was said, once or more often."""
    said = [value for value in values if value is not None]
    if any(value != said[0] for value in said):
        raise ValidationFailed({field: ["is said twice, and not the same"]})
    return said[0] if said else None


def activity_timeouts(
    start_to_close: int | None,
    schedule_to_start: int | None,
    schedule_to_close: int | None,
    heartbeat: int | None,
) -> ActivityTimeouts:
    """The four clocks, in seconds on the wire; an inner clock may not outlast the one around it."""
    for name, inner, outer_name, outer in (
        ("heartbeat_timeout", heartbeat, "start_to_close_timeout", start_to_close),
        ("start_to_close_timeout", start_to_close, "schedule_to_close_timeout", schedule_to_close),
        ("schedule_to_start_timeout", schedule_to_start, "schedule_to_close_timeout", schedule_to_close),
    ):
        if inner is not None and outer is not None and inner > outer:
            raise ValidationFailed({name: [f"must not exceed {outer_name} ({outer})"]})
    return ActivityTimeouts(
        schedule_to_start_ms=_ms(schedule_to_start),
        start_to_close_ms=_ms(start_to_close),
        schedule_to_close_ms=_ms(schedule_to_close),
        heartbeat_ms=_ms(heartbeat),
    )


def retry_policy(request: RetryPolicy | None) -> CoreRetryPolicy:
    if request is None:
        return CoreRetryPolicy()
    return CoreRetryPolicy(
        max_attempts=request.max_attempts or 1,
        given=True,
        backoff_s=tuple(request.backoff_seconds or ()),
        non_retryable_error_types=tuple(request.non_retryable_error_types or ()),
    )


def _fail(request: _FailWorkflow) -> FailWorkflow:
    told = {
        "exception_type": request.exception_type,
        "exception_class": request.exception_class or request.exception_type,
        "exception": request.exception,
        "non_retryable": request.non_retryable,
        "failed_step_sequence": request.failed_step_sequence,
        "failed_activity_execution_id": request.failed_activity_execution_id,
    }
    return FailWorkflow(request.message, {name: value for name, value in told.items() if value is not None})


def _extra(body: Mapping[str, Any]) -> dict[str, Any]:
    extra = {name: body[name] for name in _REPEATED if body.get(name) is not None}
    if "parallel_group_path" in extra:
        for entry in parse(extra, _GroupPath).path:
            if entry.parallel_group_index >= entry.parallel_group_size:
                raise ValidationFailed({"parallel_group_path": ["has an index outside its group"]})
    return extra


def _ms(seconds: int | None) -> int | None:
    return None if seconds is None else seconds * 1000
