"""Search attributes: system attributes and those that a namespace registers."""

from __future__ import annotations

from penstock.core.visibility.fields import SYSTEM
from penstock.engine.visibility import search_attributes
from penstock.server.operation import OperationCall, Response, text_path
from penstock.wire.visibility.searches import RegisterSearchAttribute


async def list_all(call: OperationCall) -> Response:
    registered = await search_attributes.registered(call.ctx, call.namespace)
    return Response(
        {
            "system_attributes": {name: field.type for name, field in SYSTEM.items()},
            "custom_attributes": dict(registered),
        }
    )


async def register(call: OperationCall) -> Response:
    request: RegisterSearchAttribute = call.body
    await search_attributes.register(call.ctx, call.namespace, request.name, request.type)
    return Response({"name": request.name, "type": request.type, "outcome": "created"}, 201)


async def unregister(call: OperationCall) -> Response:
    name = text_path(call, "name", 128)
    await search_attributes.unregister(call.ctx, call.namespace, name)
    return Response({"name": name, "outcome": "deleted"})
