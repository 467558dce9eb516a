"""Namespaces: list, describe, create, update, delete."""

from __future__ import annotations

from penstock.core.identifiers import reserved_namespace
from penstock.engine.operations import namespaces
from penstock.server.operation import OperationCall, Response, text_path
from penstock.wire import responses
from penstock.wire.request_parser import field_error
from penstock.wire.requests import CreateNamespace, DeleteNamespace, UpdateNamespace


async def list_all(call: OperationCall) -> Response:
    found = await namespaces.list_namespaces(call.ctx)
    return Response({"namespaces": [responses.namespace(each) for each in found]})


async def describe(call: OperationCall) -> Response:
    found = await namespaces.describe(call.ctx, _name(call))
    body = responses.namespace(found)
    if found.external_storage is not None:
        kept = await call.ctx.store.read(lambda tx: tx.external_payloads.totals(found.name))
        body["external_payloads"] = {"objects": kept.objects, "bytes": kept.size_bytes}
    return Response(body)


async def create(call: OperationCall) -> Response:
    request: CreateNamespace = call.body
    name = request.name.lower()
    problem = reserved_namespace(name)
    if problem is not None:
        raise field_error("name", problem)
    created = await namespaces.create(
        call.ctx,
        name,
        request.description,
        request.retention_days,
        fair=request.fairness != "off",
    )
    return Response(responses.namespace(created), 201)


async def update(call: OperationCall) -> Response:
    request: UpdateNamespace = call.body
    changed = await namespaces.update(
        call.ctx,
        _name(call),
        request.description,
        request.retention_days,
        fair=None if request.fairness is None else request.fairness == "on",
    )
    return Response(responses.namespace(changed))


async def delete(call: OperationCall) -> Response:
    request: DeleteNamespace = call.query
    gone = await namespaces.delete(call.ctx, _name(call), with_closed_runs=request.with_closed_runs)
    counts = {
        "namespaces": 1,
        "workflow_runs": gone.runs,
        "workflow_schedules": gone.schedules,
        "search_attribute_definitions": gone.search_attributes,
        "workflow_worker_registrations": gone.workers,
    }
    return Response(responses.namespace(gone.namespace) | {"deleted": counts})


def _name(call: OperationCall) -> str:
    return text_path(call, "name", 128).lower()
