"""Parses the commands of a completed workflow task into values of the core."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import msgspec
from msgspec.structs import replace

from penstock.core import identifiers
from penstock.core.history.commands import (
    CancelExternal,
    CancelSelectionOperation,
    CancelStep,
    CancelWorkflow,
    Command,
    CompleteUpdate,
    CompleteWorkflow,
    ContinueAsNew,
    FailUpdate,
    FailWorkflow,
    OpenConditionWait,
    OpenSignalWait,
    RecordLocalActivity,
    RecordSideEffect,
    RecordVersionMarker,
    ScheduleActivity,
    SignalExternal,
    StartChild,
    StartTimer,
    Terminal,
    UpsertMemo,
    UpsertSearchAttributes,
)
from penstock.core.id_policies import IdReusePolicy
from penstock.core.model import ActivityTimeouts, Blob, ClosePolicy, PriorityOverride
from penstock.core.model import RetrySchedule as CoreRetryPolicy
from penstock.core.priority_levels import level_of
from penstock.core.scheduling.cohorts import BUILD_ID
from penstock.core.scheduling.worker_deaths import ON_LOST_LEASE
from penstock.core.timestamps import instant
from penstock.errors import PenstockError, ValidationFailed
from penstock.wire import payloads
from penstock.wire.command_shapes import (
    MISPLACED_FIELDS,
    CancelExternalCommand,
    CancellationPolicy,
    CancelSelectionCommand,
    CancelStepCommand,
    CancelWorkflowCommand,
    CompleteUpdateCommand,
    CompleteWorkflowCommand,
    ConditionWaitCommand,
    ContinueAsNewCommand,
    FailUpdateCommand,
    FailWorkflowCommand,
    GroupPath,
    LocalActivityCommand,
    ScheduleActivityCommand,
    SelectEntry,
    SideEffectCommand,
    SignalExternalCommand,
    SignalWaitCommand,
    StartChildCommand,
    StartTimerCommand,
    UpsertMemoCommand,
    UpsertSearchAttributesCommand,
    VersionMarkerCommand,
    WithSummary,
    WithTarget,
)
from penstock.wire.fields import FAIRNESS_KEY_BYTES_MAX
from penstock.wire.messaging import streams
from penstock.wire.numbers import to_milli
from penstock.wire.request_parser import parse
from penstock.wire.requests import NestedPriority, RetryPolicy, StartWorkflow, WithPriority

T = TypeVar("T")
NO_WORKER_SESSIONS = (
    "is not available on this server: give activities that must share a worker a task queue of their own"
)
STEPWISE_MAX = 1_000
"""Most commands of one workflow task."""
MEMO_ENTRIES_MAX = 100
MEMO_VALUE_BYTES_MAX = 10_240
_MEMO_KEY = re.compile(r"(?!-?[0-9]+\Z)[A-Za-z0-9_.:-]{1,64}\Z")
_ATTRIBUTE_KEY = re.compile(r"[A-Za-z][A-Za-z0-9_]*\Z")
_GROUP = (
    "parallel_group_id",
    "parallel_group_kind",
    "parallel_group_mode",
    "parallel_group_base_sequence",
    "parallel_group_size",
    "parallel_group_index",
    "selection_member_key",
    "selection_member_index",
    "selection_member_base_sequence",
    "selection_member_size",
    "selection_member_kind",
)
"""Fields of a parallel group that an event repeats from its command."""


def parse_commands(
    bodies: Sequence[Mapping[str, Any]], namespace: str | None = None, *, concurrent: bool = False
) -> list[Command]:
    """Parse all commands; the error names invalid fields as `commands.0.delay_seconds`.

    A command may only name its own namespace. Some commands are for concurrent runs only, some for stepwise runs.
    """
    if not concurrent:
        _check_count(bodies)
    commands: list[Command] = []
    errors: dict[str, list[str]] = {}
    for index, body in enumerate(bodies):
        try:
            _check_namespace(body, namespace)
            _check_mode(body, concurrent=concurrent)
            command = _command(dict(body))
        except ValidationFailed as error:
            errors |= {f"commands.{index}.{field}": each for field, each in error.details["errors"].items()}
            continue
        commands.append(command)
        if isinstance(command, Terminal) and index < len(bodies) - 1:
            errors[f"commands.{index}.type"] = ["ends the run, so it must be the last command"]
    if errors:
        raise ValidationFailed(errors)
    return commands


def _check_count(bodies: Sequence[Mapping[str, Any]]) -> None:
    if not bodies:
        raise ValidationFailed({"commands": ["must have at least one command, unless the run is concurrent"]})
    if len(bodies) > STEPWISE_MAX:
        raise ValidationFailed(
            {"commands": [f"must be at most {STEPWISE_MAX}, unless the run is concurrent"]}
        )


def _check_namespace(body: Mapping[str, Any], namespace: str | None) -> None:
    named = body.get("namespace")
    if namespace is not None and named is not None and named != namespace:
        raise ValidationFailed({"namespace": ["must be the run's own namespace, or left out"]})


def _check_mode(body: Mapping[str, Any], *, concurrent: bool) -> None:
    kind = body.get("type")
    if isinstance(kind, str) and kind in (_STEPWISE_ONLY if concurrent else _CONCURRENT_ONLY):
        mode = "stepwise" if concurrent else "concurrent"
        raise ValidationFailed({"type": [f"{kind} is for {mode} runs"]})
    if concurrent and body.get("parallel_group_path") is not None:
        raise ValidationFailed(
            {"parallel_group_path": ["must be left out: steps of a concurrent run have no groups"]}
        )


def _command(body: dict[str, Any]) -> Command:
    kind = body.get("type")
    make = _MAKE.get(kind) if isinstance(kind, str) else None
    if make is None:
        known = ", ".join(SUPPORTED)
        raise ValidationFailed({"type": [f"must be one of {known}; got {str(kind)[:60]!r}"]})
    misplaced = [name for name in MISPLACED_FIELDS[str(kind)].intersection(body) if body[name] is not None]
    if misplaced:
        raise ValidationFailed({name: [f"is not a field of {kind}"] for name in sorted(misplaced)})
    return make(body)


def _timer(body: dict[str, Any]) -> StartTimer:
    request = parse(body, StartTimerCommand)
    seconds, milliseconds = request.delay_seconds, request.delay_ms
    if seconds is None and milliseconds is None:
        raise ValidationFailed({"delay_seconds": ["is required, or delay_ms"]})
    whole = -(-(milliseconds or 0) // 1000) if seconds is None else seconds
    return StartTimer(whole, _extra(body), milliseconds)


def _cancel_step(body: dict[str, Any]) -> CancelStep:
    request = parse(body, CancelStepCommand)
    return CancelStep(request.step_sequence, bool(request.wait))


def _signal_external(body: dict[str, Any]) -> SignalExternal:
    request = parse(body, SignalExternalCommand)
    arguments = _arguments(request.arguments)
    only = bool(request.child_workflow_only)
    return SignalExternal(request.workflow_id, request.signal_name, arguments, request.run_id, only)


def _cancel_external(body: dict[str, Any]) -> CancelExternal:
    request = parse(body, CancelExternalCommand)
    only = bool(request.child_workflow_only)
    return CancelExternal(request.workflow_id, request.run_id, request.reason, only)


def _cancel_workflow(body: dict[str, Any]) -> CancelWorkflow:
    return CancelWorkflow(parse(body, CancelWorkflowCommand).reason)


def _complete(body: dict[str, Any]) -> CompleteWorkflow:
    return CompleteWorkflow(_value(parse(body, CompleteWorkflowCommand).result, "result"))


def _continue(body: dict[str, Any]) -> ContinueAsNew:
    request = parse(body, ContinueAsNewCommand)
    return ContinueAsNew(
        _target_arguments(request),
        request.workflow_type,
        _target_queue(request),
        priority_override(request),
        request.run_timeout_seconds,
        None if request.retry_policy is None else retry_policy(request.retry_policy),
        request.memo,
        _named_attributes(request.search_attributes),
    )


def _local(body: dict[str, Any]) -> RecordLocalActivity:
    request = parse(body, LocalActivityCommand)
    completed = request.outcome == "completed"
    if not completed and request.message is None:
        raise ValidationFailed({"message": ["is required: how the activity ended"]})
    fields = {
        "attempts": request.attempts,
        "attempt_count": len(request.attempts or ()) or 1,
        "message": request.message,
        "exception_type": request.exception_type,
        "exception_class": request.exception_type,
        "non_retryable": None if completed else bool(request.non_retryable),
        "timeout_kind": request.timeout_kind,
        "exception": None if completed else request.exception,
    }
    return RecordLocalActivity(
        activity_type=request.activity_type,
        outcome=request.outcome,
        arguments=_arguments(request.arguments),
        result=_value(request.result, "result") if completed else None,
        reported_fields=_present(fields),
        extra=_extra(body) | _present({"local_number": request.local_number}),
    )


def _child(body: dict[str, Any]) -> StartChild:
    request = parse(body, StartChildCommand)
    errors = run_timeout_errors(request)
    if errors:
        raise ValidationFailed(errors)
    workflow_id = request.workflow_id
    problem = None if workflow_id is None else identifiers.WORKFLOW_ID.problem(workflow_id)
    return StartChild(
        workflow_type=request.workflow_type,
        task_queue=_target_queue(request),
        arguments=_target_arguments(request),
        workflow_id=workflow_id if problem is None else None,
        reuse=IdReusePolicy(request.id_reuse_policy or IdReusePolicy.REJECT_DUPLICATE),
        problem=None if problem is None else f"workflow_id: {problem}",
        policy=request.parent_close_policy or ClosePolicy.ABANDON,
        retry=retry_policy(request.retry_policy),
        execution_timeout_s=request.execution_timeout_seconds,
        run_timeout_s=request.run_timeout_seconds,
        extra=_extra(body),
        priority=priority_override(request),
        memo=request.memo or {},
        search_attributes=_named_attributes(request.search_attributes) or {},
        business_key=request.business_key,
        build_id=request.build_id,
        delay_ms=ms_of(request.start_delay_seconds, request.start_delay_ms) or 0,
    )


def run_timeout_errors(request: StartWorkflow | StartChildCommand) -> dict[str, list[str]]:
    """The problem of a run timeout that is longer than the execution timeout around it."""
    execution_s, run_s = request.execution_timeout_seconds, request.run_timeout_seconds
    if execution_s is None or run_s is None or run_s <= execution_s:
        return {}
    return {"run_timeout_seconds": [f"must not exceed execution_timeout_seconds ({execution_s})"]}


def _side_effect(body: dict[str, Any]) -> RecordSideEffect:
    request = parse(body, SideEffectCommand)
    return RecordSideEffect(_value(request.result, "result"), streams.directive(request.workflow_stream))


def _version_marker(body: dict[str, Any]) -> RecordVersionMarker:
    request = parse(body, VersionMarkerCommand)
    if not request.min_supported <= request.version <= request.max_supported:
        raise ValidationFailed({"version": ["must lie between min_supported and max_supported"]})
    return RecordVersionMarker(
        request.change_id, request.version, request.min_supported, request.max_supported
    )


def _search_attributes(body: dict[str, Any]) -> UpsertSearchAttributes:
    attributes = parse(body, UpsertSearchAttributesCommand).attributes
    _check_attribute_names(attributes, "attributes")
    return UpsertSearchAttributes(attributes)


def _check_attribute_names(attributes: Mapping[str, Any], field: str) -> None:
    wrong = [name for name in attributes if not _ATTRIBUTE_KEY.match(name) or len(name) > 128]
    if wrong:
        raise ValidationFailed({f"{field}.{wrong[0][:140]}": ["is not a valid name of a search attribute"]})


def _named_attributes(attributes: dict[str, Any] | None) -> dict[str, Any] | None:
    """Search attributes of a run that a command starts; null entries are dropped."""
    _check_attribute_names(attributes or {}, "search_attributes")
    if attributes is None:
        return None
    return {name: value for name, value in attributes.items() if value is not None}


def _memo(body: dict[str, Any]) -> UpsertMemo:
    blob = _value(parse(body, UpsertMemoCommand).entries, "entries")
    entries = _json_map(blob)
    if len(entries) > MEMO_ENTRIES_MAX:
        raise ValidationFailed({"entries": [f"must be at most {MEMO_ENTRIES_MAX}"]})
    for name, value in entries.items():
        if not _MEMO_KEY.match(name):
            raise ValidationFailed({f"entries.{name[:80]}": ["is not a valid name of a memo entry"]})
        if len(json.dumps(value).encode()) > MEMO_VALUE_BYTES_MAX:
            raise ValidationFailed({f"entries.{name}": [f"must be at most {MEMO_VALUE_BYTES_MAX} bytes"]})
    return UpsertMemo(entries, blob)


def _json_map(blob: Blob) -> dict[str, Any]:
    try:
        entries = payloads.decode(blob)
        if isinstance(entries, dict) and json.loads(json.dumps(entries, allow_nan=False)) == entries:
            return entries
    except (PenstockError, TypeError, ValueError):
        pass
    raise ValidationFailed({"entries": ["must be a map of JSON values"]})


def _condition(body: dict[str, Any]) -> OpenConditionWait:
    request = parse(body, ConditionWaitCommand)
    extra = _extra(body)
    return OpenConditionWait(
        request.condition_key, request.condition_definition_fingerprint, request.timeout_seconds, extra
    )


def _signal_wait(body: dict[str, Any]) -> OpenSignalWait:
    request = parse(body, SignalWaitCommand)
    if body.get("parallel_group_path") is not None:
        raise ValidationFailed({"parallel_group_path": ["must be left out: a signal wait is awaited alone"]})
    return OpenSignalWait(request.signal_name.strip(), request.timeout_seconds)


def _complete_update(body: dict[str, Any]) -> CompleteUpdate:
    request = parse(body, CompleteUpdateCommand)
    return CompleteUpdate(request.update_id, _value(request.result, "result"))


def _fail_update(body: dict[str, Any]) -> FailUpdate:
    request = parse(body, FailUpdateCommand)
    fields = {
        "exception_type": request.exception_type,
        "exception_class": request.exception_class or request.exception_type,
        "exception": request.exception,
        "non_retryable": request.non_retryable,
    }
    return FailUpdate(
        request.update_id,
        request.message,
        _present(fields),
    )


def _cancel_selection(body: dict[str, Any]) -> CancelSelectionOperation:
    request = parse(body, CancelSelectionCommand)
    return CancelSelectionOperation(
        request.selection_group_id, request.member_index, msgspec.to_builtins(request)
    )


def _value(value: object, field: str) -> Blob:
    return Blob(payloads.parse_value(value, field).blob)


def _arguments(value: object) -> Blob:
    return Blob(payloads.parse(value, "arguments").blob)


def _target_queue(request: WithTarget) -> str | None:
    return _agreed_value("task_queue", request.queue, request.task_queue)


def _target_arguments(request: WithTarget) -> Blob:
    arguments = _agreed_value("input", request.arguments, request.input)
    return Blob(payloads.parse(arguments, "arguments" if request.input is None else "input").blob)


def _activity(body: dict[str, Any]) -> ScheduleActivity:
    if body.get("worker_session") is not None:
        raise ValidationFailed({"worker_session": [NO_WORKER_SESSIONS]})
    return _schedule(parse(body, ScheduleActivityCommand), body)


def _failure(body: dict[str, Any]) -> FailWorkflow:
    return _fail(parse(body, FailWorkflowCommand))


def _schedule(request: ScheduleActivityCommand, body: dict[str, Any]) -> ScheduleActivity:
    clocks = (
        ms_of(request.start_to_close_timeout, request.start_to_close_timeout_ms),
        ms_of(request.schedule_to_start_timeout, request.schedule_to_start_timeout_ms),
        ms_of(request.schedule_to_close_timeout, request.schedule_to_close_timeout_ms),
        ms_of(request.heartbeat_timeout, request.heartbeat_timeout_ms),
    )
    resolved = request.dispatch
    timeouts = activity_timeouts(*clocks) if resolved is None else layered_timeouts(*clocks)
    return ScheduleActivity(
        activity_type=request.activity_type,
        task_queue=_target_queue(request),
        arguments=_target_arguments(request),
        retry=retry_policy(request.retry_policy),
        timeouts=timeouts,
        extra=_extra(body) | _activity_extra(request),
        priority=replace(priority_override(request), cost=request.cost_estimate),
        routing_key=request.routing_key,
        dispatch=None if resolved is None else msgspec.to_builtins(resolved),
        delay_ms=ms_of(request.start_delay_seconds, request.start_delay_ms) or 0,
        good_until_ms=instant_of(request.good_until, "good_until"),
        good_for_ms=request.good_for_ms,
    )


def _activity_extra(request: ScheduleActivityCommand) -> dict[str, Any]:
    """What is stored with an activity and repeated in its events."""
    return _present({ON_LOST_LEASE: request.on_lost_lease, BUILD_ID: request.build_id})


def instant_of(text: str | None, field: str) -> int | None:
    """An ISO-8601 instant in milliseconds since 1970."""
    at_ms = None if text is None else instant(text)
    if text is not None and at_ms is None:
        raise ValidationFailed({field: ["must be an ISO-8601 instant"]})
    return at_ms


_NO_PRIORITY = NestedPriority()


def priority_override(request: WithPriority) -> PriorityOverride:
    """Level, key and weight of a request. Keys are bounded in bytes, which is how they are stored."""
    nested = request.priority if isinstance(request.priority, NestedPriority) else _NO_PRIORITY
    flat = None if isinstance(request.priority, NestedPriority) else request.priority
    level = _agreed_value("priority_key", flat, _level(request.priority_key), _level(nested.priority_key))
    key = _agreed_value("fairness_key", request.fairness_key, nested.fairness_key)
    weight = _agreed_value("fairness_weight", request.fairness_weight, nested.fairness_weight)
    if key is not None and len(key.encode()) > FAIRNESS_KEY_BYTES_MAX:
        raise ValidationFailed({"fairness_key": [f"must be at most {FAIRNESS_KEY_BYTES_MAX} bytes"]})
    return PriorityOverride(level, key, None if weight is None else to_milli(weight))


def _level(priority_key: int | None) -> int | None:
    return None if priority_key is None else level_of(priority_key)


def _agreed_value(field: str, *values: T | None) -> T | None:
    """The value that was given, once or in several fields with equal values."""
    agreed = None
    for value in values:
        if value is None:
            continue
        if agreed is not None and value != agreed:
            raise ValidationFailed({field: ["is given twice with different values"]})
        agreed = value if agreed is None else agreed
    return agreed


def activity_timeouts(
    start_to_close_ms: int | None,
    schedule_to_start_ms: int | None,
    schedule_to_close_ms: int | None,
    heartbeat_ms: int | None,
) -> ActivityTimeouts:
    """The four timeouts; an inner one must not exceed the one around it."""
    for name, inner, outer_name, outer in (
        ("heartbeat_timeout", heartbeat_ms, "start_to_close_timeout", start_to_close_ms),
        ("start_to_close_timeout", start_to_close_ms, "schedule_to_close_timeout", schedule_to_close_ms),
        (
            "schedule_to_start_timeout",
            schedule_to_start_ms,
            "schedule_to_close_timeout",
            schedule_to_close_ms,
        ),
    ):
        if inner is not None and outer is not None and inner > outer:
            raise ValidationFailed({name: [f"must not exceed {outer_name} ({_limit_text(outer)})"]})
    return layered_timeouts(start_to_close_ms, schedule_to_start_ms, schedule_to_close_ms, heartbeat_ms)


def layered_timeouts(
    start_to_close_ms: int | None,
    schedule_to_start_ms: int | None,
    schedule_to_close_ms: int | None,
    heartbeat_ms: int | None,
) -> ActivityTimeouts:
    """The four timeouts from layers of configuration, which were not chosen together: inner ones are cut to fit."""
    return ActivityTimeouts(
        schedule_to_start_ms=schedule_to_start_ms,
        start_to_close_ms=start_to_close_ms,
        schedule_to_close_ms=schedule_to_close_ms,
        heartbeat_ms=heartbeat_ms,
    )


def _limit_text(limit_ms: int) -> str:
    return f"{limit_ms} ms" if limit_ms % 1000 else str(limit_ms // 1000)


def retry_policy(request: RetryPolicy | None) -> CoreRetryPolicy:
    if request is None:
        return CoreRetryPolicy()
    return CoreRetryPolicy(
        max_attempts=request.max_attempts or 1,
        given=True,
        backoff_s=tuple(request.backoff_seconds or ()),
        non_retryable_error_types=tuple(request.non_retryable_error_types or ()),
        backoff_ms=tuple(request.backoff_ms or ()),
    )


def _fail(request: FailWorkflowCommand) -> FailWorkflow:
    fields = {
        "exception_type": request.exception_type,
        "exception_class": request.exception_class or request.exception_type,
        "exception": request.exception,
        "non_retryable": request.non_retryable,
        "failed_step_sequence": request.failed_step_sequence,
        "failed_activity_execution_id": request.failed_activity_execution_id,
    }
    return FailWorkflow(request.message, _present(fields))


def _extra(body: Mapping[str, Any]) -> dict[str, Any]:
    """Fields that the events of a step repeat. The innermost entry of its group path is repeated beside the path."""
    extra: dict[str, Any] = {}
    if body.get("summary") is not None:
        extra["summary"] = parse(dict(body), WithSummary).summary
    if body.get("cancellation_policy") is not None:
        extra["cancellation_policy"] = parse(dict(body), CancellationPolicy).cancellation_policy
    if body.get("parallel_group_path") is None:
        return extra
    for entry in parse(dict(body), GroupPath).path:
        if entry.parallel_group_index >= entry.parallel_group_size:
            raise ValidationFailed({"parallel_group_path": ["has an index outside of its group"]})
    path = body["parallel_group_path"]
    if path[0].get("parallel_group_mode") == "select":
        parse(path[0], SelectEntry)
    entries = [{name: entry[name] for name in _GROUP if entry.get(name) is not None} for entry in path]
    return extra | entries[-1] | {"parallel_group_path": entries}


def _present(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}


def ms_of(seconds: int | None, milliseconds: int | None) -> int | None:
    """A duration given in seconds or in milliseconds, which take precedence."""
    return milliseconds if milliseconds is not None or seconds is None else seconds * 1000


_MAKE: dict[str, Callable[[dict[str, Any]], Command]] = {
    "schedule_activity": _activity,
    "record_local_activity": _local,
    "start_timer": _timer,
    "start_child_workflow": _child,
    "record_side_effect": _side_effect,
    "record_version_marker": _version_marker,
    "upsert_search_attributes": _search_attributes,
    "upsert_memo": _memo,
    "open_condition_wait": _condition,
    "open_signal_wait": _signal_wait,
    "complete_update": _complete_update,
    "fail_update": _fail_update,
    "cancel_selection_operation": _cancel_selection,
    "complete_workflow": _complete,
    "fail_workflow": _failure,
    "continue_as_new": _continue,
    "cancel_step": _cancel_step,
    "signal_external_workflow": _signal_external,
    "cancel_external_workflow": _cancel_external,
    "cancel_workflow": _cancel_workflow,
}
SUPPORTED = tuple(_MAKE)
_CONCURRENT_ONLY = frozenset(
    {"cancel_step", "signal_external_workflow", "cancel_external_workflow", "cancel_workflow"}
)
_STEPWISE_ONLY = frozenset({"open_condition_wait", "open_signal_wait", "cancel_selection_operation"})
