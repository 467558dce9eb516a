"""Workers as operators see them."""

from __future__ import annotations

from penstock.core.scheduling.cohorts import status_now
from penstock.engine import workers
from penstock.server.operation import Answer, Call, text_path
from penstock.wire import rendering
from penstock.wire.requests import ListWorkers


async def list_all(call: Call) -> Answer:
    query: ListWorkers = call.query
    stale_after_ms = call.house.settings.polls.worker_stale_after_ms
    fleet = await workers.every(call.house, call.namespace, query.task_queue)
    shown = [
        each
        for each in fleet.workers
        if query.status is None or status_now(each, fleet.now_ms, stale_after_ms).value == query.status
    ]
    return Answer(
        {
            "namespace": call.namespace,
            "workers": [rendering.worker(each, fleet.now_ms, stale_after_ms) for each in shown],
            "stale_after_seconds": stale_after_ms // 1000,
        }
    )


async def describe(call: Call) -> Answer:
    found = await workers.describe(call.house, call.namespace, text_path(call, "worker_id"))
    fleet = await workers.every(call.house, call.namespace, found.task_queue)
    return Answer(rendering.worker(found, fleet.now_ms, call.house.settings.polls.worker_stale_after_ms))


async def deregister(call: Call) -> Answer:
    left = await workers.deregister(call.house, call.namespace, text_path(call, "worker_id"))
    return Answer(
        {
            "worker_id": left.worker_id,
            "outcome": "deregistered",
            "recovered_workflow_task_count": left.workflow_tasks,
            "recovered_activity_task_count": left.activity_tasks,
        }
    )
