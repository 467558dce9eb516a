"""Pause and resume: a queue, a key of it, a namespace, a budget group. Nothing new goes; what runs goes on."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.core.limits import Part, namespace_parts
from penstock.core.model import TaskKind
from penstock.core.policies import PAUSED, Knob
from penstock.engine import admission, limits, policies
from penstock.engine.admission import ScopeAsk
from penstock.engine.policies import UNSET, Ask, KeyAsk, PolicyAsk
from penstock.server.endpoints import budget_groups
from penstock.server.endpoints.limiting import ends_at_ms
from penstock.server.endpoints.limits import namespace_body, namespace_named
from penstock.server.operation import Answer, Call, text_path
from penstock.wire import limits as shown
from penstock.wire.fields import FAIRNESS_KEY_BYTES_MAX
from penstock.wire.limit_requests import (
    PauseGroup,
    PauseKey,
    PauseQueue,
    PauseScope,
    ResumeGroup,
    ResumeQueue,
    ResumeScope,
)
from penstock.wire.parsing import refuse


async def pause_queue(call: Call) -> Answer:
    request: PauseQueue = call.body
    at_ms = ends_at_ms(request, await limits.now_ms(call.house))
    change = PolicyAsk({Knob.PAUSED: Ask(PAUSED, ends_at_ms=at_ms)}, reason=request.reason)
    name = text_path(call, "name")
    await _change(call, name, _kinds(request.task_queue_type), change)
    return await _queue(call, name)


async def resume_queue(call: Call) -> Answer:
    request: ResumeQueue = call.body
    change, name = PolicyAsk({Knob.PAUSED: Ask(UNSET)}, reason=request.reason), text_path(call, "name")
    await _change(call, name, await _used(call, name, _kinds(request.task_queue_type)), change)
    return await _queue(call, name)


async def _queue(call: Call, name: str) -> Answer:
    views = [await limits.of_line(call.house, call.namespace, name, kind) for kind in TaskKind]
    return Answer(
        {"task_queue": name, "namespace": call.namespace}
        | {f"{view.queue.kind.value}_tasks": shown.pause(view.own) for view in views}
    )


async def pause_key(call: Call) -> Answer:
    request: PauseKey = call.body
    name, key = _key(call)
    change = PolicyAsk(keys={key: KeyAsk(paused=True)}, reason=request.reason)
    kinds = _kinds(request.task_queue_type)
    await _change(call, name, kinds, change)
    return _key_answer(call, name, key, kinds, paused=True)


async def resume_key(call: Call) -> Answer:
    request: PauseKey = call.body
    name, key = _key(call)
    change = PolicyAsk(keys={key: KeyAsk(paused=False)}, reason=request.reason)
    kinds = _kinds(request.task_queue_type)
    await _change(call, name, await _used(call, name, kinds), change)
    return _key_answer(call, name, key, kinds, paused=False)


def _key(call: Call) -> tuple[str, str]:
    """The queue, and its key; a key is counted in bytes, because that is what is kept."""
    name, key = text_path(call, "name"), text_path(call, "key")
    if len(key.encode()) > FAIRNESS_KEY_BYTES_MAX:
        raise refuse("key", f"must be at most {FAIRNESS_KEY_BYTES_MAX} bytes")
    return name, key


def _key_answer(call: Call, name: str, key: str, kinds: Sequence[TaskKind], *, paused: bool) -> Answer:
    return Answer(
        {"task_queue": name, "namespace": call.namespace, "fairness_key": key}
        | {f"{kind.value}_tasks": {"paused": paused} for kind in kinds}
    )


def _kinds(kind: str | None) -> Sequence[TaskKind]:
    return list(TaskKind) if kind is None else [TaskKind(kind)]


async def _used(call: Call, name: str, kinds: Sequence[TaskKind]) -> Sequence[TaskKind]:
    """The kinds for which something was ever set: for the others there is nothing to end."""
    views = [await policies.read(call.house, call.namespace, name, kind) for kind in kinds]
    return [view.queue.kind for view in views if view.queue.policy.version]


async def _change(call: Call, name: str, kinds: Sequence[TaskKind], change: PolicyAsk) -> None:
    for kind in kinds:
        await policies.configure(call.house, call.namespace, name, kind, change, call.author)


async def pause_namespace(call: Call) -> Answer:
    request: PauseScope = call.body
    at_ms = ends_at_ms(request, await limits.now_ms(call.house))
    return await _set_namespace(call, request.kind, _pause(request, at_ms))


async def resume_namespace(call: Call) -> Answer:
    request: ResumeScope = call.body
    return await _set_namespace(call, request.kind, _resume(request))


async def _set_namespace(call: Call, kind: str, ask: ScopeAsk) -> Answer:
    name = await namespace_named(call)
    await admission.configure(call.house, namespace_parts(name)[Part(kind)], ask, call.author)
    return Answer(await namespace_body(call, name))


async def pause_group(call: Call) -> Answer:
    request: PauseGroup = call.body
    at_ms = ends_at_ms(request, await limits.now_ms(call.house))
    await budget_groups.configure(call, request.scope, request.kind, _pause(request, at_ms))
    return await budget_groups.answer(call, request.scope)


async def resume_group(call: Call) -> Answer:
    request: ResumeGroup = call.body
    await budget_groups.configure(call, request.scope, request.kind, _resume(request))
    return await budget_groups.answer(call, request.scope)


def _pause(request: PauseScope, at_ms: int | None) -> ScopeAsk:
    return ScopeAsk({Knob.PAUSED: Ask(PAUSED)}, request.reason, at_ms)


def _resume(request: ResumeScope) -> ScopeAsk:
    return ScopeAsk({Knob.PAUSED: Ask(UNSET)}, request.reason)
