"""The history of a run as one document, sent while it is read."""

from __future__ import annotations

from collections.abc import AsyncIterator

from penstock.core.history.bundle import Bundle
from penstock.engine import exporting
from penstock.server.operation import Answer, Call, text_path
from penstock.wire.exports import BundleWriter


async def export(call: Call) -> Answer:
    named = text_path(call, "run_id") if "run_id" in call.path else None
    bundle = await exporting.find(call.house, call.namespace, text_path(call, "workflow_id", 128), named)
    return Answer(_written(call, bundle))


async def _written(call: Call, bundle: Bundle) -> AsyncIterator[bytes]:
    key = call.house.settings.export_key
    writer = BundleWriter(bundle, None if key is None else key.reveal())
    yield writer.head()
    async for page in exporting.pages(call.house, bundle.run):
        yield writer.events(page)
    yield writer.tail()
