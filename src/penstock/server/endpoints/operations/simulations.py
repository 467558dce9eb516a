"""Simulations: submit one, read it, list and cancel them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec

from penstock.core.model import TaskKind
from penstock.engine.limits import change_sets as sets
from penstock.engine.operations import simulations
from penstock.server.endpoints.limits import budget_groups, limits, queue_settings
from penstock.server.endpoints.matching import task_queues, workers
from penstock.server.endpoints.visibility import queue_series
from penstock.server.operation import OperationCall, Response, text_path
from penstock.wire.limits import change_sets as change_set_wire
from penstock.wire.limits.limit_requests import QueueLimitParameters, ReadGroup
from penstock.wire.operations.simulations import ListSimulations, LiveState, SubmitSimulation, shown
from penstock.wire.request_parser import field_error
from penstock.wire.requests import ListWorkers, ReadConfig
from penstock.wire.visibility.series import ReadSeries

QUEUES_MAX = 20


async def submit(call: OperationCall) -> Response:
    request: SubmitSimulation = call.body
    loads = [name for name in ("live", "model", "trace") if getattr(request, name) is not None]
    if len(loads) != 1:
        raise field_error("live", "give one of live, model and trace")
    if bool(request.target) != bool(request.may):
        raise field_error("target", "comes with may: what may be raised to meet it")
    job: dict[str, Any] = msgspec.to_builtins(request)
    asked = {name: value for name, value in job.items() if value and name not in ("model", "trace")}
    asked["load"] = loads[0]
    if request.live is not None:
        job["live"] = asked["live"] = msgspec.to_builtins(request.live)
        job["state"] = await _state(call, request.live)
    if request.change_set_id is not None:
        found = await sets.get(call.ctx, call.namespace, request.change_set_id)
        job["change_set_items"] = change_set_wire.shown(found.change_set)["items"]
    record = await simulations.submit(call.ctx, call.namespace, asked, msgspec.json.encode(job), call.author)
    return Response(shown(record), status=202)


async def read(call: OperationCall) -> Response:
    return Response(shown(await simulations.get(call.ctx, call.namespace, text_path(call, "simulation_id"))))


async def list_all(call: OperationCall) -> Response:
    query: ListSimulations = call.query
    found = await simulations.page(call.ctx, call.namespace, query.limit)
    listed = [shown(each, with_result=False) for each in found]
    return Response({"namespace": call.namespace, "simulations": listed})


async def cancel(call: OperationCall) -> Response:
    found = await simulations.cancel(call.ctx, call.namespace, text_path(call, "simulation_id"))
    return Response(shown(found))


# ── The state of the server, as its own endpoints show it ───────────────────────────────────────────────────────


async def _state(call: OperationCall, live: LiveState) -> dict[str, Any]:
    names = await _queues(call, live.queue)
    return {
        "queues": [await _queue(call, each) for each in names],
        "workers": (await workers.list_all(replace(call, query=ListWorkers()))).body["workers"],
    }


async def _queues(call: OperationCall, queue: str | None) -> list[str]:
    """The queues in question: the one that is named with those of its budget groups, or the longest."""
    if queue is None:
        found = (await task_queues.list_all(call)).body["task_queues"]
        waiting = {each["name"]: each["stats"]["approximate_backlog_count"] for each in found}
        longest = sorted(waiting, key=lambda each: (-waiting[each], each))
        return [each for each in longest if waiting[each]][:QUEUES_MAX]
    names = [queue]
    for kind in TaskKind:
        group = (await _limits(call, queue, kind))["limits"]["dispatch_budget_group"]["value"]
        if group is not None:
            of_group = await budget_groups.read(replace(call, path={"group": group}, query=ReadGroup()))
            names += [each["task_queue"] for each in of_group.body["task_queues"]]
    return list(dict.fromkeys(names))[:QUEUES_MAX]


async def _queue(call: OperationCall, name: str) -> dict[str, Any]:
    at = replace(call, path={"name": name})
    return {
        "name": name,
        "description": (await task_queues.describe(at)).body,
        "config": {
            kind.value: (await queue_settings.read(replace(at, query=ReadConfig(kind.value)))).body
            for kind in TaskKind
        },
        "limits": {kind.value: await _limits(call, name, kind) for kind in TaskKind},
        "series": {
            kind.value: (
                await queue_series.read(replace(at, query=ReadSeries(queue=name, kind=kind.value)))
            ).body
            for kind in TaskKind
        },
    }


async def _limits(call: OperationCall, name: str, kind: TaskKind) -> dict[str, Any]:
    query = QueueLimitParameters(task_queue_type=kind.value)
    found: dict[str, Any] = (await limits.read_queue(replace(call, path={"name": name}, query=query))).body
    return found
