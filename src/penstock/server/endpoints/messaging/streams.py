"""Message streams to workflows, and workflow streams that runs write."""

from __future__ import annotations

from typing import Any

from penstock.core import identifiers
from penstock.core.model import Blob, Run
from penstock.engine.messaging import messages, streams
from penstock.engine.messaging.messages import OutgoingMessage
from penstock.engine.messaging.streams import StreamReadRequest
from penstock.server.endpoints.workflows.addresses import address, workflow_id
from penstock.server.operation import OperationCall, Response, text_path
from penstock.wire import payloads
from penstock.wire.messaging import streams as wire
from penstock.wire.messaging.streams import AppendItems, CloseStream, ReadItems, SendMessage
from penstock.wire.request_parser import field_error


async def send(call: OperationCall) -> Response:
    request: SendMessage = call.body
    stream = text_path(call, "stream")
    problem = identifiers.STREAM.problem(stream)
    if problem is not None:
        raise field_error("stream", problem)
    content = Blob(payloads.parse(request.input, "input").blob)
    sent = await messages.send(call.ctx, OutgoingMessage(address(call), stream, request.message_id, content))
    return Response(
        {
            "workflow_id": sent.run.workflow_id,
            "run_id": sent.run.run_id,
            "stream_name": stream,
            "message_id": request.message_id,
            "position": sent.position,
            "outcome": "message_deduplicated" if sent.repeated else "message_appended",
            "retained": sent.repeated,
        },
        200 if sent.repeated else 202,
    )


async def list_all(call: OperationCall) -> Response:
    run, found = await streams.list_streams(call.ctx, *_run(call))
    return Response(_about(run) | {"streams": [wire.stream(run, each) for each in found]})


async def describe(call: OperationCall) -> Response:
    run, found = await streams.describe(call.ctx, *_run(call), text_path(call, "stream"))
    return Response(_about(run) | {"stream": wire.stream(run, found)})


async def read(call: OperationCall) -> Response:
    query: ReadItems = call.query
    wanted = StreamReadRequest(
        *_run(call), text_path(call, "stream"), query.start, query.max_items, query.acknowledge
    )
    page = await streams.read(call.ctx, wanted, query.wait_seconds * 1000, call.dispatcher.draining)
    return Response(
        _about(page.run)
        | {
            "stream": wire.stream(page.run, page.stream),
            "items": [wire.item(each) for each in page.items],
            "next_offset": page.next_offset,
            "terminal": page.is_last,
        }
    )


async def append(call: OperationCall) -> Response:
    request: AppendItems = call.body
    written = await streams.add(call.ctx, address(call), text_path(call, "stream"), wire.append(request))
    appended = written.appended
    assert appended is not None, "an append returns what was appended"
    accepted = len(appended.items)
    return Response(
        _about(written.run)
        | {
            "stream": wire.stream(written.run, written.stream),
            "accepted_offsets": list(appended.offsets),
            "accepted": accepted,
            "deduped": len(appended.offsets) - accepted,
        }
    )


async def close(call: OperationCall) -> Response:
    request: CloseStream = call.body
    written = await streams.close(call.ctx, address(call), text_path(call, "stream"), wire.close(request))
    return Response(_about(written.run) | {"stream": wire.stream(written.run, written.stream)})


def _run(call: OperationCall) -> tuple[str, str, str]:
    return call.namespace, workflow_id(call), text_path(call, "run_id")


def _about(run: Run) -> dict[str, Any]:
    return {"workflow_id": run.workflow_id, "workflow_run_id": run.run_id}
