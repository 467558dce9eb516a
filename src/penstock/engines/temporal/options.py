"""Options of calls, starts and policies as Temporal takes them. What it lacks is refused, never dropped."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final

from temporalio import common
from temporalio import workflow as tw

from penstock.engines.temporal.refusals import not_here
from penstock.sdk.dispatch_options import ResolvedOptions
from penstock.sdk.priority import Priority
from penstock.sdk.retry import RetryPolicy
from penstock.sdk.workflow_port.handles import (
    ActivityCancellationType,
    ChildWorkflowCancellationType,
    ParentClosePolicy,
)

UNLIMITED: Final = timedelta(days=3650)
"""Temporal refuses activities without a timeout; ten years are none."""
SHORTEST: Final = timedelta(milliseconds=1)
_CANCELLATION: Final = {
    ActivityCancellationType.TRY_CANCEL: tw.ActivityCancellationType.TRY_CANCEL,
    ActivityCancellationType.WAIT_CANCELLATION_COMPLETED: tw.ActivityCancellationType.WAIT_CANCELLATION_COMPLETED,
    ActivityCancellationType.ABANDON: tw.ActivityCancellationType.ABANDON,
}
_CHILD_CANCELLATION: Final = {
    ChildWorkflowCancellationType.TRY_CANCEL: tw.ChildWorkflowCancellationType.TRY_CANCEL,
    ChildWorkflowCancellationType.WAIT_CANCELLATION_COMPLETED: (
        tw.ChildWorkflowCancellationType.WAIT_CANCELLATION_COMPLETED
    ),
    ChildWorkflowCancellationType.WAIT_CANCELLATION_REQUESTED: (
        tw.ChildWorkflowCancellationType.WAIT_CANCELLATION_REQUESTED
    ),
    ChildWorkflowCancellationType.ABANDON: tw.ChildWorkflowCancellationType.ABANDON,
}
_CLOSE: Final = {
    ParentClosePolicy.TERMINATE: tw.ParentClosePolicy.TERMINATE,
    ParentClosePolicy.ABANDON: tw.ParentClosePolicy.ABANDON,
    ParentClosePolicy.REQUEST_CANCEL: tw.ParentClosePolicy.REQUEST_CANCEL,
}
_REUSE: Final = {
    "allow_duplicate": common.WorkflowIDReusePolicy.ALLOW_DUPLICATE,
    "allow_duplicate_failed_only": common.WorkflowIDReusePolicy.ALLOW_DUPLICATE_FAILED_ONLY,
    "reject_duplicate": common.WorkflowIDReusePolicy.REJECT_DUPLICATE,
}
ACTIVITY_LACKS: Final = ("cost_estimate", "good_until", "start_delay", "build_id")
"""Options of an activity call that Temporal has nothing for."""
CHILD_LACKS: Final = ("business_key", "build_id", "start_delay")


def retry_policy(policy: RetryPolicy) -> common.RetryPolicy:
    """Return a retry policy. An unlimited interval is ten years: temporalio takes None for 100 times the first."""
    longest = policy.maximum_interval
    return common.RetryPolicy(
        initial_interval=max(policy.initial_interval, SHORTEST),
        backoff_coefficient=float(policy.backoff_coefficient),
        maximum_interval=None if longest is None else max(min(longest, UNLIMITED), SHORTEST),
        maximum_attempts=policy.maximum_attempts,
        non_retryable_error_types=list(policy.non_retryable_error_types or ()),
    )


def priority(given: Priority | None) -> common.Priority:
    if given is None:
        return common.Priority.default
    if not isinstance(given, Priority):
        raise TypeError(f"priority takes a Priority, such as Priority(priority_key=1), not {given!r}")
    return common.Priority(
        priority_key=given.priority_key,
        fairness_key=given.fairness_key,
        fairness_weight=given.fairness_weight,
    )


def activity_kwargs(options: Mapping[str, Any], resolved: ResolvedOptions) -> dict[str, Any]:
    """Return the keyword arguments of temporalio's `start_activity`."""
    _refuse(options, ACTIVITY_LACKS, "an activity of a workflow")
    if options.get("on_lost_lease") == "redeliver":
        raise not_here("on_lost_lease='redeliver'", "an attempt whose worker died counts there")
    clocks = {name: _positive(name, value) for name, value in resolved.clocks.items() if value is not None}
    if not clocks.keys() & {"start_to_close_timeout", "schedule_to_close_timeout"}:
        clocks["schedule_to_close_timeout"] = UNLIMITED
    how = ActivityCancellationType(options.get("cancellation_type", ActivityCancellationType.TRY_CANCEL))
    return {
        **clocks,
        "task_queue": resolved.task_queue,
        "retry_policy": retry_policy(resolved.retry_policy or RetryPolicy()),
        "cancellation_type": _CANCELLATION[how],
        "summary": options.get("summary"),
        "priority": priority(options.get("priority")),
    }


def child_kwargs(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the keyword arguments of temporalio's `start_child_workflow`."""
    _refuse(options, CHILD_LACKS, "a child workflow")
    how = options.get("cancellation_type", ChildWorkflowCancellationType.TRY_CANCEL)
    policy = options.get("retry_policy")
    return {
        "task_queue": options.get("task_queue"),
        "cancellation_type": _CHILD_CANCELLATION[ChildWorkflowCancellationType(how)],
        "parent_close_policy": _CLOSE[
            ParentClosePolicy(options.get("parent_close_policy", ParentClosePolicy.TERMINATE))
        ],
        "execution_timeout": _positive("execution_timeout", options.get("execution_timeout")),
        "run_timeout": _positive("run_timeout", options.get("run_timeout")),
        "id_reuse_policy": _REUSE[str(options.get("id_reuse_policy", "allow_duplicate"))],
        "retry_policy": None if policy is None else retry_policy(policy),
        "memo": options.get("memo"),
        "search_attributes": search_attributes(options.get("search_attributes")),
        "priority": priority(options.get("priority")),
    }


def reuse_policy(name: str) -> common.WorkflowIDReusePolicy:
    return _REUSE[name]


def search_attributes(given: Mapping[str, Any] | None) -> common.TypedSearchAttributes | None:
    """Return search attributes. Their type follows from the value, and must be that of the server."""
    if not given:
        return None
    pairs = [
        common.SearchAttributePair(attribute_key(name, value), attribute_value(value))
        for name, value in given.items()
        if value is not None
    ]
    return common.TypedSearchAttributes(pairs)


def attribute_key(name: str, value: Any) -> Any:
    """Return the typed key for a value."""
    key = common.SearchAttributeKey
    match attribute_value(value):
        case bool():
            return key.for_bool(name)
        case int():
            return key.for_int(name)
        case float():
            return key.for_float(name)
        case datetime():
            return key.for_datetime(name)
        case list() | tuple():
            return key.for_keyword_list(name)
        case _:
            return key.for_keyword(name)


def attribute_value(value: Any) -> Any:
    """Return a value of a search attribute; ISO times are times, as on our server."""
    if isinstance(value, str) and len(value) > 18 and value[4:5] == "-" and "T" in value:
        try:
            found = datetime.fromisoformat(value)
        except ValueError:
            return value
        return found if found.tzinfo is not None else value
    return list(value) if isinstance(value, tuple) else value


def _refuse(options: Mapping[str, Any], names: Sequence[str], what: str) -> None:
    for name in names:
        if options.get(name) is not None:
            raise not_here(f"{name} of {what}")


def _positive(name: str, value: Any) -> timedelta | None:
    if value is None:
        return None
    if not isinstance(value, timedelta) or value <= timedelta(0):
        raise ValueError(f"{name} must be a positive timedelta, not {value!r}")
    return max(value, SHORTEST)
