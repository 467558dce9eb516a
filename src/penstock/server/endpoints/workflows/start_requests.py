"""Parses start requests, with the checks that need more than one field."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

import msgspec

from penstock.core.history.commands import ScheduleActivity
from penstock.core.id_policies import IdConflictPolicy, IdReusePolicy
from penstock.core.model import Blob, PriorityOverride, TaskPriority
from penstock.core.scheduling.worker_deaths import ON_LOST_LEASE
from penstock.core.starts.unique_starts import (
    LONGEST_DELAYS,
    Debounce,
    UniqueConflictPolicy,
    UniqueStart,
    UniqueUntil,
)
from penstock.engine.workflows.starts import STANDALONE_TYPE, DuplicatePolicy, Start
from penstock.errors import ValidationFailed
from penstock.settings import LimitPolicy
from penstock.wire import payloads
from penstock.wire.requests import StartActivity, StartWorkflow
from penstock.wire.workflows.commands import (
    activity_timeouts,
    instant_of,
    layered_timeouts,
    ms_of,
    priority_override,
    retry_policy,
    run_timeout_errors,
)

DEFAULT_QUEUE = "default"
UNSUPPORTED_START_FIELDS = (
    "workflow_execution_timeout",
    "workflow_run_timeout",
    "workflow_task_timeout",
    "retry_policy",
    "idempotency_key",
    "request_id",
)
_DEFAULT_PRIORITY = TaskPriority()
_ATTRIBUTE_NAME = re.compile(r"\A[A-Za-z][A-Za-z0-9_]*\Z")


def parse_workflow_start(
    request: StartWorkflow, document: Mapping[str, Any], namespace: str, key: str | None, limits: LimitPolicy
) -> Start:
    errors = {
        name: ["is not supported on start"]
        for name in UNSUPPORTED_START_FIELDS
        if document.get(name) is not None
    }
    errors |= _memo_errors(request.memo, limits)
    errors |= attribute_errors(request.search_attributes, limits)
    errors |= run_timeout_errors(request)
    if errors:
        raise ValidationFailed(errors)
    delay_ms = ms_of(request.start_delay_seconds, request.start_delay_ms) or 0
    unique = _unique(request, delay_ms)
    return Start(
        namespace=namespace,
        workflow_type=request.workflow_type,
        task_queue=request.task_queue or DEFAULT_QUEUE,
        input=Blob(payloads.parse(request.input, "input").blob),
        workflow_id=request.workflow_id,
        business_key=request.business_key,
        memo=json.dumps(request.memo or {}),
        search_attributes=json.dumps(request.search_attributes or {}),
        **_id_policies(request),
        execution_timeout_s=request.execution_timeout_seconds,
        run_timeout_s=request.run_timeout_seconds,
        priority=priority(request),
        build_id=request.build_id or request.compatibility,
        start_key=key,
        delay_ms=_first_delay_ms(unique, delay_ms),
        delivers_cancel=bool(request.deliver_cancel),
        concurrency_key=request.concurrency_key,
        unique=unique,
    )


def parse_activity_start(
    request: StartActivity, namespace: str, key: str | None
) -> tuple[Start, ScheduleActivity]:
    arguments = Blob(payloads.parse(request.input, "input").blob)
    delay_ms = ms_of(request.start_delay_seconds, request.start_delay_ms) or 0
    unique = _unique(request, delay_ms)
    if unique is not None and unique.debounce is not None and (request.good_until or request.good_for_ms):
        problem = "a debounced start has no latest start; debounce_max_seconds bounds its delay"
        raise ValidationFailed({"good_until" if request.good_until else "good_for_ms": [problem]})
    start = Start(
        namespace=namespace,
        workflow_type=STANDALONE_TYPE,
        task_queue=request.task_queue,
        input=arguments,
        workflow_id=request.activity_id,
        business_key=request.business_key,
        **_id_policies(request),
        priority=priority(request),
        build_id=request.build_id,
        start_key=key,
        unique=unique,
    )
    fitting = activity_timeouts if request.dispatch is None else layered_timeouts
    timeouts = fitting(
        ms_of(request.start_to_close_timeout_seconds, request.start_to_close_timeout_ms),
        ms_of(request.schedule_to_start_timeout_seconds, request.schedule_to_start_timeout_ms),
        ms_of(request.schedule_to_close_timeout_seconds, request.schedule_to_close_timeout_ms),
        ms_of(request.heartbeat_timeout_seconds, request.heartbeat_timeout_ms),
    )
    command = ScheduleActivity(
        activity_type=request.activity_type,
        task_queue=request.task_queue,
        arguments=arguments,
        retry=retry_policy(request.retry_policy),
        timeouts=timeouts,
        extra={} if request.on_lost_lease is None else {ON_LOST_LEASE: request.on_lost_lease},
        priority=PriorityOverride(cost=request.cost_estimate),
        routing_key=request.routing_key,
        dispatch=None if request.dispatch is None else msgspec.to_builtins(request.dispatch),
        delay_ms=_first_delay_ms(unique, delay_ms),
        good_until_ms=instant_of(request.good_until, "good_until"),
        good_for_ms=request.good_for_ms,
    )
    return start, command


def _id_policies(request: StartWorkflow | StartActivity) -> dict[str, Any]:
    """The policies for an id that is in use; contradicting ones are an error."""
    reuse, conflict, duplicate = request.id_reuse_policy, request.id_conflict_policy, request.duplicate_policy
    if conflict is not None and duplicate is not None and conflict != duplicate.replace("-", "_"):
        raise ValidationFailed(
            {"id_conflict_policy": [f"contradicts duplicate_policy {duplicate}; send one of them"]}
        )
    policies = {
        "duplicate_policy": DuplicatePolicy(duplicate or DuplicatePolicy.FAIL),
        "id_reuse_policy": None if reuse is None else IdReusePolicy(reuse),
        "id_conflict_policy": None if conflict is None else IdConflictPolicy(conflict),
    }
    if reuse == "reject_duplicate" and conflict == "terminate_existing":
        problem = "terminate_existing starts a new run under the same id, which reject_duplicate forbids"
        raise ValidationFailed({"id_conflict_policy": [problem]})
    return policies


def _unique(request: StartWorkflow | StartActivity, delay_ms: int) -> UniqueStart | None:
    """The unique key of a start, with how long it is debounced; fields that contradict each other are an error."""
    debounced = request.debounce_seconds
    until, conflict = request.unique_until, request.unique_conflict_policy
    for name in ("unique_until", "unique_conflict_policy", "debounce_seconds", "debounce_max_seconds"):
        if request.unique_key is None and getattr(request, name) is not None:
            raise ValidationFailed({name: ["needs unique_key"]})
    if request.unique_key is None:
        return None
    problem = None if debounced is None else _debounce_problem(request, delay_ms)
    if debounced is None and request.debounce_max_seconds is not None:
        problem = ("debounce_max_seconds", "needs debounce_seconds")
    if problem is not None:
        raise ValidationFailed({problem[0]: [problem[1]]})
    default = UniqueUntil.DONE if debounced is None else UniqueUntil.STARTED
    return UniqueStart(
        request.unique_key,
        default if until is None else UniqueUntil(until),
        UniqueConflictPolicy(conflict or UniqueConflictPolicy.USE_EXISTING),
        None if debounced is None else _debounce(debounced, request.debounce_max_seconds),
    )


def _debounce_problem(request: StartWorkflow | StartActivity, delay_ms: int) -> tuple[str, str] | None:
    """The field of a debounced start that contradicts the others, and why."""
    longest = request.debounce_max_seconds
    if request.unique_until == "done":
        return "unique_until", "must be started: inputs that come while the run works would be lost"
    if request.unique_conflict_policy == "fail":
        return "unique_conflict_policy", "contradicts debounce_seconds, by which a start joins the one before"
    if delay_ms:
        return "start_delay_seconds", "contradicts debounce_seconds; send one of them"
    if longest is not None and longest < (request.debounce_seconds or 0):
        return "debounce_max_seconds", "must be at least debounce_seconds"
    return None


def _debounce(seconds: float, longest: float | None) -> Debounce:
    delay_ms = round(seconds * 1000)
    return Debounce(delay_ms, delay_ms * LONGEST_DELAYS if longest is None else round(longest * 1000))


def _first_delay_ms(unique: UniqueStart | None, delay_ms: int) -> int:
    return delay_ms if unique is None or unique.debounce is None else unique.debounce.delay_ms


def priority(request: StartWorkflow | StartActivity) -> TaskPriority:
    """Level, fairness key and weight of the request, with defaults."""
    return priority_override(request).over(_DEFAULT_PRIORITY)


def memo_bytes(memo: Mapping[str, Any] | None) -> int:
    """The size of a memo, as it counts against its limit."""
    return len(json.dumps(memo or {}, ensure_ascii=False).encode())


def _memo_errors(memo: Mapping[str, Any] | None, limits: LimitPolicy) -> dict[str, list[str]]:
    too_large = memo_bytes(memo) > limits.memo_bytes_max
    return {"memo": [f"must be at most {limits.memo_bytes_max} bytes"]} if too_large else {}


def attribute_errors(attributes: Mapping[str, Any] | None, limits: LimitPolicy) -> dict[str, list[str]]:
    errors: dict[str, list[str]] = {}
    if not attributes:
        return errors
    if len(attributes) > limits.search_attributes_max:
        errors["search_attributes"] = [f"must have at most {limits.search_attributes_max} entries"]
    for name, value in attributes.items():
        if len(name) > limits.search_attribute_key_length_max or not _ATTRIBUTE_NAME.match(name):
            problem = "must be a letter followed by letters, digits or underscores"
            errors[f"search_attributes.{name[:60]}"] = [problem]
        elif (
            problem_of_value := _attribute_problem(value, limits.search_attribute_value_bytes_max)
        ) is not None:
            errors[f"search_attributes.{name}"] = [problem_of_value]
    return errors


def _attribute_problem(value: Any, bytes_max: int) -> str | None:
    members = value if isinstance(value, list) else [value]
    if any(isinstance(each, str) and len(each.encode()) > bytes_max for each in members):
        return f"must be at most {bytes_max} bytes"
    if any(isinstance(each, dict | list) for each in members):
        return "must be a plain value or a list of plain values"
    return None
