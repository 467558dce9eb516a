"""Turns requests about schedules into what the engine stores, with the checks that need more than one field."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

import msgspec

from penstock.core import json_text
from penstock.core.external_payloads import envelope
from penstock.core.schedules.overlap import Overlap
from penstock.core.schedules.record import SchedulePolicies
from penstock.core.schedules.spec import ScheduleSpec
from penstock.core.schedules.spec_text import InvalidSpec, read_spec
from penstock.core.timestamps import instant
from penstock.engine.schedules.actions import StoredAction
from penstock.engine.schedules.zones import UnknownZone, zone
from penstock.errors import InvalidInput, Reason, ValidationFailed
from penstock.server.endpoints.workflows.start_requests import (
    attribute_errors,
    memo_bytes,
    parse_activity_start,
    parse_workflow_start,
)
from penstock.settings import LimitPolicy
from penstock.wire.request_parser import parse
from penstock.wire.requests import StartActivity, StartWorkflow
from penstock.wire.schedules.requests import ActionBody, SpecBody, WithSchedulePolicies

T = TypeVar("T")
_ALIASES: Final = {
    "workflow_execution_timeout": "execution_timeout_seconds",
    "workflow_run_timeout": "run_timeout_seconds",
}
_POLICIES: Final = {
    "jitter_seconds": "jitter_s",
    "max_runs": "max_runs",
    "catchup_window_seconds": "catchup_window_s",
    "pause_on_failure": "pause_on_failure",
    "start_by_seconds": "start_by_s",
}


def document_of(body: msgspec.Struct) -> dict[str, Any]:
    """A request object as JSON, without the fields that are absent."""
    found = msgspec.to_builtins(body)
    return {name: _plain(value) for name, value in found.items() if value is not None}


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _plain(each) for name, each in value.items() if each is not None}
    return [_plain(each) for each in value] if isinstance(value, list) else value


def spec_text(body: SpecBody) -> str:
    """The text of a specification that was checked."""
    document = document_of(body)
    checked_spec(document)
    return json_text.written(document)


def checked_spec(document: Mapping[str, Any], jitter_s: int = 0) -> ScheduleSpec:
    """The specification; raises `ValidationFailed` with each field that is wrong."""
    try:
        spec = read_spec(document, jitter_s * 1000)
    except InvalidSpec as error:
        raise ValidationFailed(
            {f"spec.{field}": [problem] for field, problem in error.problems.items()}
        ) from None
    try:
        zone(spec.time_zone)
    except UnknownZone as error:
        raise ValidationFailed({"spec.timezone": [str(error)]}) from None
    return spec


def action_document(body: ActionBody) -> dict[str, Any]:
    """An action as JSON, with its names normalized; raises `ValidationFailed` for two values of one field."""
    document = msgspec.to_builtins(body)
    found = {name: value for name, value in document.items() if value is not None}
    for alias, name in _ALIASES.items():
        if alias in found:
            value = found.pop(alias)
            if found.setdefault(name, value) != value:
                raise ValidationFailed({f"action.{alias}": ["is given twice with different values"]})
    return found


def merged_action(before: StoredAction, given: Mapping[str, Any]) -> dict[str, Any]:
    """An action with some of its keys changed; without a new input it keeps its own."""
    kinds = {"workflow_type", "activity_type"}
    kept = before.shown
    if kinds & given.keys():
        kept = {name: value for name, value in kept.items() if name not in kinds}
    own_input = envelope(before.start.input)
    return {**kept, "input": own_input, **given}


def stored_action(document: Mapping[str, Any], namespace: str, limits: LimitPolicy) -> StoredAction:
    """The start that an action describes; raises `ValidationFailed` with each field that is wrong."""
    is_activity = "activity_type" in document
    if is_activity == ("workflow_type" in document):
        raise ValidationFailed(
            {"action.workflow_type": ["is required, or activity_type: exactly one of them"]}
        )
    shown = {name: value for name, value in document.items() if name != "input"}
    return _under(
        "action",
        lambda: (
            _activity(document, shown, namespace)
            if is_activity
            else _workflow(document, shown, namespace, limits)
        ),
    )


def _workflow(
    document: Mapping[str, Any], shown: dict[str, Any], namespace: str, limits: LimitPolicy
) -> StoredAction:
    request = parse(_known(document, StartWorkflow), StartWorkflow)
    return StoredAction(parse_workflow_start(request, {}, namespace, None, limits), shown)


def _activity(document: Mapping[str, Any], shown: dict[str, Any], namespace: str) -> StoredAction:
    if "task_queue" not in document:
        raise ValidationFailed({"task_queue": ["is required for an activity"]})
    request = parse(_known(document, StartActivity), StartActivity)
    start, command = parse_activity_start(request, namespace, None)
    return StoredAction(start, shown, command)


def _known(document: Mapping[str, Any], shape: type[msgspec.Struct]) -> dict[str, Any]:
    """The fields of an action that its kind of start has; others are refused."""
    known = {field.encode_name for field in msgspec.structs.fields(shape)}
    foreign = {name: ["does not apply to this kind of action"] for name in document if name not in known}
    if foreign:
        raise ValidationFailed(foreign)
    return dict(document)


def _under(field: str, read: Callable[[], T]) -> T:
    """The result; problems are named as parts of a field."""
    try:
        return read()
    except ValidationFailed as error:
        problems = error.details["errors"]
        raise ValidationFailed({f"{field}.{name}": each for name, each in problems.items()}) from None


def policies(request: WithSchedulePolicies, before: SchedulePolicies) -> SchedulePolicies:
    """The policies with what a request changes."""
    given = {
        name: value for field, name in _POLICIES.items() if (value := getattr(request, field)) is not None
    }
    overlap = before.overlap if request.overlap_policy is None else Overlap(request.overlap_policy)
    return msgspec.structs.replace(before, overlap=overlap, **given)


def memo(given: Mapping[str, Any] | None, limits: LimitPolicy) -> str:
    """The text of a memo; raises `memo_too_large`."""
    size = memo_bytes(given)
    if size > limits.memo_bytes_max:
        problem = f"must be at most {limits.memo_bytes_max} bytes, not {size}"
        errors = {"memo": [problem]}
        raise InvalidInput(
            Reason.MEMO_TOO_LARGE, f"The memo {problem}.", errors=errors, validation_errors=errors
        )
    return json.dumps(given or {})


def search_attributes(given: Mapping[str, Any] | None, limits: LimitPolicy) -> str:
    errors = attribute_errors(given, limits)
    if errors:
        raise ValidationFailed(errors)
    return json.dumps(given or {})


def period(start: str, end: str) -> tuple[int, int]:
    """The instants of a backfill; raises `invalid_time_range` unless the end is after the start."""
    found = {"start_time": instant(start), "end_time": instant(end)}
    errors = {
        name: ["must be an ISO 8601 instant such as 2026-01-31T12:00:00Z"]
        for name, at_ms in found.items()
        if at_ms is None
    }
    if errors:
        raise ValidationFailed(errors)
    start_ms, end_ms = found["start_time"], found["end_time"]
    assert start_ms is not None
    assert end_ms is not None
    if end_ms <= start_ms:
        errors = {"end_time": ["must be after start_time"]}
        raise InvalidInput(
            Reason.INVALID_TIME_RANGE,
            "The period of a backfill ends after it starts.",
            errors=errors,
            validation_errors=errors,
        )
    return start_ms, end_ms
