"""Operations on streams, and update validation."""

from __future__ import annotations

from typing import Final

from penstock.core.permissions import RouteFamily as Family
from penstock.server.endpoints.messaging import streams, update_validation
from penstock.server.operation import Operation
from penstock.wire import requests
from penstock.wire.messaging import streams as wire
from penstock.wire.messaging import update_validation as validating

_WORKFLOW = "/api/workflows/{workflow_id}"
_STREAMS = _WORKFLOW + "/runs/{run_id}/streams"
_STREAM = _STREAMS + "/{stream}"
_VT = "/api/worker/update-validation-tasks"

STREAM_OPERATIONS: Final = (
    Operation(
        "POST",
        f"{_WORKFLOW}/message-streams/{{stream}}/messages",
        "send_message",
        "Append a message to a message stream of a workflow, once per message id.",
        Family.WORK,
        streams.send,
        wire.SendMessage,
        status=202,
        refusals=(404, 409),
    ),
    Operation(
        "GET",
        _STREAMS,
        "list_streams",
        "List the streams that a run writes.",
        Family.WORK,
        streams.list_all,
        refusals=(404,),
    ),
    Operation(
        "GET",
        _STREAM,
        "describe_stream",
        "Describe a stream that a run writes.",
        Family.WORK,
        streams.describe,
        refusals=(404,),
    ),
    Operation(
        "GET",
        f"{_STREAM}/items",
        "read_stream",
        "Read the items of a stream from an offset, or wait for the next.",
        Family.WORK,
        streams.read,
        query=wire.ReadItems,
        waits=True,
        refusals=(404,),
    ),
    Operation(
        "POST",
        f"{_STREAM}/items",
        "append_to_stream",
        "Add items to a stream of an open run.",
        Family.WORK,
        streams.append,
        wire.AppendItems,
        refusals=(404, 409, 429),
    ),
    Operation(
        "POST",
        f"{_STREAM}/close",
        "close_stream",
        "End a stream of an open run.",
        Family.WORK,
        streams.close,
        wire.CloseStream,
        refusals=(404, 409),
    ),
    Operation(
        "POST",
        f"{_VT}/poll",
        "poll_update_validation_tasks",
        "Wait for an update to validate and lease it.",
        Family.WORKER_PROTOCOL,
        update_validation.poll,
        requests.PollTasks,
        waits=True,
        polls=True,
        refusals=(409, 412, 503),
    ),
    Operation(
        "POST",
        f"{_VT}/{{validation_id}}/approve",
        "approve_update",
        "Approve an update.",
        Family.WORKER_PROTOCOL,
        update_validation.approve,
        validating.ApproveUpdate,
        refusals=(404, 409),
    ),
    Operation(
        "POST",
        f"{_VT}/{{validation_id}}/reject",
        "reject_update",
        "Reject an update, or report that it could not be validated.",
        Family.WORKER_PROTOCOL,
        update_validation.reject,
        validating.RejectUpdate,
        refusals=(404, 409),
    ),
)
