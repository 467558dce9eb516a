"""Workers as operators see them."""

from __future__ import annotations

from penstock.core.scheduling.cohorts import status_now
from penstock.engine.workers import worker_registry
from penstock.server.operation import OperationCall, Response, text_path
from penstock.wire import responses
from penstock.wire.requests import ListWorkers


async def list_all(call: OperationCall) -> Response:
    query: ListWorkers = call.query
    stale_after_ms = call.ctx.settings.polls.worker_stale_after_ms
    fleet = await worker_registry.list_workers(call.ctx, call.namespace, query.task_queue)
    selected = [
        each
        for each in fleet.workers
        if query.status is None or status_now(each, fleet.now_ms, stale_after_ms).value == query.status
    ]
    return Response(
        {
            "namespace": call.namespace,
            "workers": [responses.worker(each, fleet.now_ms, stale_after_ms) for each in selected],
            "stale_after_seconds": stale_after_ms // 1000,
        }
    )


async def describe(call: OperationCall) -> Response:
    found = await worker_registry.describe(call.ctx, call.namespace, text_path(call, "worker_id"))
    fleet = await worker_registry.list_workers(call.ctx, call.namespace, found.task_queue)
    return Response(responses.worker(found, fleet.now_ms, call.ctx.settings.polls.worker_stale_after_ms))


async def deregister(call: OperationCall) -> Response:
    deregistered = await worker_registry.deregister(call.ctx, call.namespace, text_path(call, "worker_id"))
    return Response(
        {
            "worker_id": deregistered.worker_id,
            "outcome": "deregistered",
            "recovered_workflow_task_count": deregistered.workflow_tasks,
            "recovered_activity_task_count": deregistered.activity_tasks,
        }
    )
