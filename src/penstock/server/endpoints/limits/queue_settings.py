"""Settings of a task queue: read, change, change log."""

from __future__ import annotations

from penstock.core.model import TaskKind
from penstock.engine.limits import policies
from penstock.engine.limits.policies import PolicyView
from penstock.server.endpoints.limits.queue_setting_changes import parse_queue_settings
from penstock.server.operation import OperationCall, Response, text_path
from penstock.wire.limits import queue_settings as wire
from penstock.wire.requests import ConfigureQueue, ReadConfig, ReadConfigHistory


async def read(call: OperationCall) -> Response:
    query: ReadConfig = call.query
    kind = TaskKind(query.task_queue_type)
    return _settings_response(await policies.read(call.ctx, call.namespace, text_path(call, "name"), kind))


async def configure(call: OperationCall) -> Response:
    request: ConfigureQueue = call.body
    name, kind = text_path(call, "name"), TaskKind(request.task_queue_type)
    return _settings_response(
        await policies.configure(
            call.ctx, call.namespace, name, kind, parse_queue_settings(request), call.author
        )
    )


async def history(call: OperationCall) -> Response:
    query: ReadConfigHistory = call.query
    name, kind = text_path(call, "name"), TaskKind(query.task_queue_type)
    changes = await policies.history(call.ctx, call.namespace, name, kind, query.limit)
    return Response(
        {
            "task_queue": name,
            "task_queue_type": kind.value,
            "namespace": call.namespace,
            "changes": [wire.change(each) for each in changes],
        }
    )


def _settings_response(view: PolicyView) -> Response:
    return Response(wire.config(view.queue, view.keys, view.key_count))
