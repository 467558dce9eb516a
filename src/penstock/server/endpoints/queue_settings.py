"""The settings of a task queue: read, change, and who changed them."""

from __future__ import annotations

from penstock.core.model import TaskKind
from penstock.engine import policies
from penstock.engine.policies import PolicyView
from penstock.server.endpoints.configuring import policy_ask
from penstock.server.operation import Answer, Call, text_path
from penstock.wire import policies as shown
from penstock.wire.requests import ConfigureQueue, ReadConfig, ReadConfigHistory


async def read(call: Call) -> Answer:
    query: ReadConfig = call.query
    kind = TaskKind(query.task_queue_type)
    return _answer(await policies.read(call.house, call.namespace, text_path(call, "name"), kind))


async def configure(call: Call) -> Answer:
    request: ConfigureQueue = call.body
    name, kind = text_path(call, "name"), TaskKind(request.task_queue_type)
    return _answer(
        await policies.configure(call.house, call.namespace, name, kind, policy_ask(request), call.author)
    )


async def history(call: Call) -> Answer:
    query: ReadConfigHistory = call.query
    name, kind = text_path(call, "name"), TaskKind(query.task_queue_type)
    changes = await policies.history(call.house, call.namespace, name, kind, query.limit)
    return Answer(
        {
            "task_queue": name,
            "task_queue_type": kind.value,
            "namespace": call.namespace,
            "changes": [shown.change(each) for each in changes],
        }
    )


def _answer(view: PolicyView) -> Answer:
    return Answer(shown.config(view.queue, view.keys, view.key_count))
