"""Limits of a queue, of a namespace and of the cluster: read, change, and who changed them."""

from __future__ import annotations

from penstock.core.limits import Part, Parts, cluster_parts, namespace_parts
from penstock.core.model import TaskKind
from penstock.engine import admission, limits, namespaces, policies
from penstock.server.endpoints.limiting import line_ask, scope_ask
from penstock.server.operation import Answer, Body, Call, text_path
from penstock.wire import limits as shown
from penstock.wire.limit_requests import (
    ChangeLineLimits,
    ChangeScopeLimits,
    LineParameters,
    ReadDeclarationHistory,
    ReadScopeHistory,
)
from penstock.wire.parsing import refuse


async def read_line(call: Call) -> Answer:
    return await _line(call, _kind(call.query, None))


async def change_line(call: Call) -> Answer:
    request: ChangeLineLimits = call.body
    kind = _kind(call.query, request.task_queue_type)
    ask, name = line_ask(request, await limits.now_ms(call.house)), text_path(call, "name")
    if ask.settings:
        await policies.configure(call.house, call.namespace, name, kind, ask, call.author)
    return await _line(call, kind)


def _kind(query: LineParameters, said: str | None) -> TaskKind:
    """Which tasks are meant, wherever it is said."""
    if said is not None and query.task_queue_type not in (None, said):
        raise refuse("task_queue_type", f"is {said} here and {query.task_queue_type} in the query string")
    return TaskKind(said or query.task_queue_type or "activity")


async def _line(call: Call, kind: TaskKind) -> Answer:
    view = await limits.of_line(call.house, call.namespace, text_path(call, "name"), kind)
    return Answer(shown.line(view.queue, view.own, view.scopes))


async def read_namespace(call: Call) -> Answer:
    name = await namespace_named(call)
    return Answer(await namespace_body(call, name))


async def change_namespace(call: Call) -> Answer:
    name = await namespace_named(call)
    await _change(call, namespace_parts(name))
    return Answer(await namespace_body(call, name))


async def namespace_history(call: Call) -> Answer:
    name = await namespace_named(call)
    return Answer({"namespace": name, **await _history(call, namespace_parts(name))})


async def namespace_named(call: Call) -> str:
    """The namespace of the path, which must be there."""
    return (await namespaces.describe(call.house, text_path(call, "name", 128).lower())).name


async def namespace_body(call: Call, name: str) -> Body:
    return {"namespace": name, **await _parts(call, namespace_parts(name))}


async def read_cluster(call: Call) -> Answer:
    return Answer(await _parts(call, cluster_parts()))


async def change_cluster(call: Call) -> Answer:
    await _change(call, cluster_parts())
    return Answer(await _parts(call, cluster_parts()))


async def cluster_history(call: Call) -> Answer:
    return Answer(await _history(call, cluster_parts()))


async def declaration_history(call: Call) -> Answer:
    query: ReadDeclarationHistory = call.query
    changes = await admission.declaration_history(call.house, query.limit)
    return Answer({"changes": [shown.declared_change(each) for each in changes]})


async def _change(call: Call, parts: Parts) -> None:
    request: ChangeScopeLimits = call.body
    ask = scope_ask(request, await limits.now_ms(call.house))
    await admission.configure(call.house, parts[Part(request.kind)], ask, call.author)


async def _parts(call: Call, parts: Parts) -> Body:
    views = await limits.of_parts(call.house, parts)
    return {part.value: shown.scope(view) for part, view in views.items()}


async def _history(call: Call, parts: Parts) -> Body:
    query: ReadScopeHistory = call.query
    changes = await admission.history(call.house, parts[Part(query.kind)], query.limit)
    return {"kind": query.kind, "changes": [shown.change(each) for each in changes]}
