"""Why a workflow, an activity or a task waits."""

from __future__ import annotations

from penstock.engine import explaining
from penstock.engine.explaining import Explained
from penstock.server.operation import Answer, Body, Call, text_path
from penstock.wire import explaining as shown


async def workflow(call: Call) -> Answer:
    found = await explaining.workflow(call.house, call.namespace, text_path(call, "workflow_id"))
    return Answer(_whole(found))


async def activity(call: Call) -> Answer:
    found = await explaining.activity(call.house, call.namespace, text_path(call, "activity_id"))
    return Answer(_whole(found))


async def task(call: Call) -> Answer:
    found = await explaining.task(call.house, call.namespace, text_path(call, "task_id"))
    return Answer(_whole(found))


def _whole(found: Explained) -> Body:
    return _one(found) | {
        "activities": [_one(each) for each in found.parts],
        "timers": [shown.timer(each) for each in found.timers],
    }


def _one(found: Explained) -> Body:
    return shown.subject(found.run, found.task, found.activity) | shown.answer(
        found.explanation, found.now_ms
    )
