"""Search attributes: those that every run has, and those that a namespace registers."""

from __future__ import annotations

from penstock.core.visibility.fields import SYSTEM
from penstock.engine import search_attributes
from penstock.server.operation import Answer, Call, text_path
from penstock.wire.visibility import RegisterSearchAttribute


async def list_all(call: Call) -> Answer:
    registered = await search_attributes.registered(call.house, call.namespace)
    return Answer(
        {
            "system_attributes": {name: field.type for name, field in SYSTEM.items()},
            "custom_attributes": dict(registered),
        }
    )


async def register(call: Call) -> Answer:
    request: RegisterSearchAttribute = call.body
    await search_attributes.register(call.house, call.namespace, request.name, request.type)
    return Answer({"name": request.name, "type": request.type, "outcome": "created"}, 201)


async def unregister(call: Call) -> Answer:
    name = text_path(call, "name", 128)
    await search_attributes.unregister(call.house, call.namespace, name)
    return Answer({"name": name, "outcome": "deleted"})
