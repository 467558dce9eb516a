"""Namespaces: list, describe, create, update, delete, and where their large payloads go."""

from __future__ import annotations

import json

import msgspec

from penstock.engine import namespaces
from penstock.server.operation import Answer, Call, text_path
from penstock.wire import rendering
from penstock.wire.requests import CreateNamespace, SetExternalStorage, UpdateNamespace


async def list_all(call: Call) -> Answer:
    found = await namespaces.every(call.house)
    return Answer({"namespaces": [rendering.namespace(each) for each in found]})


async def describe(call: Call) -> Answer:
    return Answer(rendering.namespace(await namespaces.describe(call.house, _name(call))))


async def create(call: Call) -> Answer:
    request: CreateNamespace = call.body
    made = await namespaces.create(
        call.house,
        request.name.lower(),
        request.description,
        request.retention_days,
        fair=request.fairness != "off",
    )
    return Answer(rendering.namespace(made), 201)


async def update(call: Call) -> Answer:
    request: UpdateNamespace = call.body
    changed = await namespaces.update(
        call.house,
        _name(call),
        request.description,
        request.retention_days,
        fair=None if request.fairness is None else request.fairness == "on",
    )
    return Answer(rendering.namespace(changed))


async def set_external_storage(call: Call) -> Answer:
    request: SetExternalStorage = call.body
    kept = {name: value for name, value in msgspec.to_builtins(request).items() if value is not None}
    if "config" in kept:
        kept["config"] = {name: value for name, value in kept["config"].items() if value is not None}
    changed = await namespaces.store_payloads(call.house, _name(call), json.dumps(kept))
    return Answer(rendering.namespace(changed))


async def delete(call: Call) -> Answer:
    gone = await namespaces.delete(call.house, _name(call))
    return Answer(rendering.namespace(gone) | {"deleted": {"namespaces": 1}})


def _name(call: Call) -> str:
    return text_path(call, "name", 128).lower()
