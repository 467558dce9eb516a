"""Export of a run's history, streamed while it is read."""

from __future__ import annotations

from collections.abc import AsyncIterator

from penstock.core.audit.bundle import Bundle
from penstock.engine.operations import history_export
from penstock.server.operation import OperationCall, Response, text_path
from penstock.wire.operations.history_export import BundleWriter


async def export(call: OperationCall) -> Response:
    named = text_path(call, "run_id") if "run_id" in call.path else None
    bundle = await history_export.find(call.ctx, call.namespace, text_path(call, "workflow_id", 128), named)
    return Response(_written(call, bundle))


async def _written(call: OperationCall, bundle: Bundle) -> AsyncIterator[bytes]:
    key = call.ctx.settings.export_key
    writer = BundleWriter(bundle, None if key is None else key.reveal())
    yield writer.head()
    async for page in history_export.pages(call.ctx, bundle.run):
        yield writer.events(page)
    yield writer.tail()
