"""Limits of a queue, of a namespace and of the cluster: read, change, change log."""

from __future__ import annotations

from penstock.core.model import TaskKind
from penstock.core.operations.limits_view import LimitPart, Parts, cluster_parts, namespace_parts
from penstock.engine.limits import admission, change_log, limit_usage, policies
from penstock.engine.operations import namespaces
from penstock.server.endpoints.limits.limit_changes import parse_queue_limits, parse_scope_limits
from penstock.server.operation import Body, OperationCall, Response, text_path
from penstock.wire.limits import limits as wire
from penstock.wire.limits.limit_requests import (
    ChangeOwnLimits,
    ChangeQueueLimits,
    QueueLimitParameters,
    ReadDeclarationHistory,
    ReadLimitChanges,
    ReadScopeHistory,
)
from penstock.wire.request_parser import field_error


async def read_queue(call: OperationCall) -> Response:
    return await _queue_response(call, _kind(call.query, None))


async def change_queue(call: OperationCall) -> Response:
    request: ChangeQueueLimits = call.body
    kind = _kind(call.query, request.task_queue_type)
    change, name = await parse_queue_limits(call.ctx, request), text_path(call, "name")
    if change.settings:
        await policies.change(call.ctx, call.namespace, name, kind, change, call.author)
    return await _queue_response(call, kind)


def _kind(query: QueueLimitParameters, kind_in_body: str | None) -> TaskKind:
    """The kind of tasks, which the body or the query string may name."""
    if kind_in_body is not None and query.task_queue_type not in (None, kind_in_body):
        raise field_error(
            "task_queue_type", f"is {kind_in_body} here and {query.task_queue_type} in the query string"
        )
    return TaskKind(kind_in_body or query.task_queue_type or "activity")


async def _queue_response(call: OperationCall, kind: TaskKind) -> Response:
    view = await limit_usage.of_queue(call.ctx, call.namespace, text_path(call, "name"), kind)
    return Response(wire.line(view.queue, view.own, view.scopes))


async def read_namespace(call: OperationCall) -> Response:
    name = await existing_namespace(call)
    return Response(await namespace_body(call, name))


async def change_namespace(call: OperationCall) -> Response:
    name = await existing_namespace(call)
    await _change(call, namespace_parts(name))
    return Response(await namespace_body(call, name))


async def namespace_history(call: OperationCall) -> Response:
    name = await existing_namespace(call)
    return Response({"namespace": name, **await _history(call, namespace_parts(name))})


async def existing_namespace(call: OperationCall) -> str:
    """The name of the namespace in the path; raises `NotFound` if there is none."""
    return (await namespaces.describe(call.ctx, text_path(call, "name", 128).lower())).name


async def namespace_body(call: OperationCall, name: str) -> Body:
    return {"namespace": name, **await _limits_by_kind(call, namespace_parts(name))}


async def read_cluster(call: OperationCall) -> Response:
    return Response(await _limits_by_kind(call, cluster_parts()))


async def change_cluster(call: OperationCall) -> Response:
    await _change(call, cluster_parts())
    return Response(await _limits_by_kind(call, cluster_parts()))


async def cluster_history(call: OperationCall) -> Response:
    return Response(await _history(call, cluster_parts()))


async def declaration_history(call: OperationCall) -> Response:
    query: ReadDeclarationHistory = call.query
    changes = await admission.declaration_history(call.ctx, query.limit)
    return Response({"changes": [wire.declared_change(each) for each in changes]})


async def newest_changes(call: OperationCall) -> Response:
    query: ReadLimitChanges = call.query
    before_ms = None if query.before is None else int(query.before.timestamp() * 1000)
    found = await change_log.newest(call.ctx, call.namespace, before_ms, query.limit)
    changes = [{"scope": each.scope, **wire.logged_change(each.scope, each.change)} for each in found]
    return Response({"namespace": call.namespace, "changes": changes})


async def _change(call: OperationCall, parts: Parts) -> None:
    request: ChangeOwnLimits = call.body
    change = await parse_scope_limits(call.ctx, request)
    await admission.configure(call.ctx, parts[LimitPart(request.kind)], change, call.author)


async def _limits_by_kind(call: OperationCall, parts: Parts) -> Body:
    views = await limit_usage.of_parts(call.ctx, parts)
    return {part.value: wire.scope(view) for part, view in views.items()}


async def _history(call: OperationCall, parts: Parts) -> Body:
    query: ReadScopeHistory = call.query
    changes = await admission.history(call.ctx, parts[LimitPart(query.kind)], query.limit)
    return {"kind": query.kind, "changes": [wire.change(each) for each in changes]}
