"""Pause and resume a queue, a fairness key, a namespace or a budget group. Active leases are not affected."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.core.limits.policies import PAUSED, LimitSetting
from penstock.core.model import TaskKind
from penstock.core.operations.limits_view import LimitPart, namespace_parts
from penstock.engine.limits import admission, limit_usage, policies
from penstock.engine.limits.admission import ScopeUpdate
from penstock.engine.limits.policies import UNSET, KeySettingsChange, PolicyUpdate, SettingChange
from penstock.server.endpoints.limits import budget_groups
from penstock.server.endpoints.limits.limit_changes import parse_end
from penstock.server.endpoints.limits.limits import existing_namespace, namespace_body
from penstock.server.operation import OperationCall, Response, text_path
from penstock.wire.fields import FAIRNESS_KEY_BYTES_MAX
from penstock.wire.limits import limits as wire
from penstock.wire.limits.limit_requests import (
    PauseGroup,
    PauseKey,
    PauseQueue,
    PauseScope,
    ResumeGroup,
    ResumeQueue,
    ResumeScope,
)
from penstock.wire.request_parser import field_error


async def pause_queue(call: OperationCall) -> Response:
    request: PauseQueue = call.body
    at_ms = await parse_end(call.ctx, request)
    change = PolicyUpdate(
        {LimitSetting.PAUSED: SettingChange(PAUSED, ends_at_ms=at_ms)}, reason=request.reason
    )
    name = text_path(call, "name")
    await _change(call, name, _kinds(request.task_queue_type), change)
    return await _queue_response(call, name)


async def resume_queue(call: OperationCall) -> Response:
    request: ResumeQueue = call.body
    change = PolicyUpdate({LimitSetting.PAUSED: SettingChange(UNSET)}, reason=request.reason)
    name = text_path(call, "name")
    await _change(call, name, await _used(call, name, _kinds(request.task_queue_type)), change)
    return await _queue_response(call, name)


async def _queue_response(call: OperationCall, name: str) -> Response:
    views = [await limit_usage.of_queue(call.ctx, call.namespace, name, kind) for kind in TaskKind]
    return Response(
        {"task_queue": name, "namespace": call.namespace}
        | {f"{view.queue.kind.value}_tasks": wire.pause(view.own) for view in views}
    )


async def pause_key(call: OperationCall) -> Response:
    request: PauseKey = call.body
    name, key = _key(call)
    change = PolicyUpdate(keys={key: KeySettingsChange(paused=True)}, reason=request.reason)
    kinds = _kinds(request.task_queue_type)
    await _change(call, name, kinds, change)
    return _key_response(call, name, key, kinds, paused=True)


async def resume_key(call: OperationCall) -> Response:
    request: PauseKey = call.body
    name, key = _key(call)
    change = PolicyUpdate(keys={key: KeySettingsChange(paused=False)}, reason=request.reason)
    kinds = _kinds(request.task_queue_type)
    await _change(call, name, await _used(call, name, kinds), change)
    return _key_response(call, name, key, kinds, paused=False)


def _key(call: OperationCall) -> tuple[str, str]:
    """The queue and the fairness key in the path. Keys are bounded in bytes, which is how they are stored."""
    name, key = text_path(call, "name"), text_path(call, "key")
    if len(key.encode()) > FAIRNESS_KEY_BYTES_MAX:
        raise field_error("key", f"must be at most {FAIRNESS_KEY_BYTES_MAX} bytes")
    return name, key


def _key_response(
    call: OperationCall, name: str, key: str, kinds: Sequence[TaskKind], *, paused: bool
) -> Response:
    return Response(
        {"task_queue": name, "namespace": call.namespace, "fairness_key": key}
        | {f"{kind.value}_tasks": {"paused": paused} for kind in kinds}
    )


def _kinds(kind: str | None) -> Sequence[TaskKind]:
    return list(TaskKind) if kind is None else [TaskKind(kind)]


async def _used(call: OperationCall, name: str, kinds: Sequence[TaskKind]) -> Sequence[TaskKind]:
    """The kinds that were ever configured; resuming the others must not create the queue."""
    views = [await policies.read(call.ctx, call.namespace, name, kind) for kind in kinds]
    return [view.queue.kind for view in views if view.queue.policy.version]


async def _change(call: OperationCall, name: str, kinds: Sequence[TaskKind], change: PolicyUpdate) -> None:
    for kind in kinds:
        await policies.change(call.ctx, call.namespace, name, kind, change, call.author)


async def pause_namespace(call: OperationCall) -> Response:
    request: PauseScope = call.body
    at_ms = await parse_end(call.ctx, request)
    return await _set_namespace(call, request.kind, _pause(request, at_ms))


async def resume_namespace(call: OperationCall) -> Response:
    request: ResumeScope = call.body
    return await _set_namespace(call, request.kind, _resume(request))


async def _set_namespace(call: OperationCall, kind: str, update: ScopeUpdate) -> Response:
    name = await existing_namespace(call)
    await admission.configure(call.ctx, namespace_parts(name)[LimitPart(kind)], update, call.author)
    return Response(await namespace_body(call, name))


async def pause_group(call: OperationCall) -> Response:
    request: PauseGroup = call.body
    at_ms = await parse_end(call.ctx, request)
    await budget_groups.configure(call, request.scope, request.kind, _pause(request, at_ms))
    return await budget_groups.group_response(call, request.scope)


async def resume_group(call: OperationCall) -> Response:
    request: ResumeGroup = call.body
    await budget_groups.configure(call, request.scope, request.kind, _resume(request))
    return await budget_groups.group_response(call, request.scope)


def _pause(request: PauseScope, at_ms: int | None) -> ScopeUpdate:
    return ScopeUpdate({LimitSetting.PAUSED: SettingChange(PAUSED)}, request.reason, at_ms)


def _resume(request: ResumeScope) -> ScopeUpdate:
    return ScopeUpdate({LimitSetting.PAUSED: SettingChange(UNSET)}, request.reason)
