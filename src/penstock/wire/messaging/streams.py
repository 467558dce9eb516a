"""Message streams and workflow streams: requests and responses."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from penstock.core.history.events import CODEC
from penstock.core.messaging.streams import (
    StreamAppend,
    StreamClose,
    StreamItem,
    StreamItemDraft,
    StreamOrigin,
    WorkflowStream,
)
from penstock.core.model import Blob, Run
from penstock.core.timestamps import iso, iso_or_none
from penstock.errors import ValidationFailed
from penstock.wire import payloads
from penstock.wire.fields import INT_MAX, NO_NUL, Name, RequestId, Seconds
from penstock.wire.request_parser import parse
from penstock.wire.requests import Anything, RequestModel
from penstock.wire.responses import Body, envelope, readable

ITEMS_PER_APPEND_MAX = 1_000
Reference = Annotated[str, Meta(min_length=1, max_length=2048, pattern=NO_NUL)]
ErrorReason = Annotated[str, Meta(min_length=1, max_length=1000, pattern=NO_NUL)]
PendingMax = Annotated[int, Meta(ge=1, le=INT_MAX)]


class SendMessage(RequestModel):
    message_id: RequestId
    input: Anything = None


class Item(RequestModel):
    payload: Anything = None
    payload_codec: Literal["avro"] | None = None
    payload_reference: Reference | None = None
    item_type: Name | None = None
    content_type: Name | None = None
    idempotency_key: RequestId | None = None


Items = Annotated[list[Item], Meta(min_length=1, max_length=ITEMS_PER_APPEND_MAX)]


class AppendItems(RequestModel):
    items: Items
    max_pending_items: PendingMax | None = None
    """Reject the items if more than so many would be unread."""


class CloseStream(RequestModel):
    error_reason: ErrorReason | None = None
    """If given, the stream ends with an error."""
    retention_seconds: Seconds | None = None
    """How long it is retained; as long as its run by default."""


class ReadItems(RequestModel):
    start: Annotated[int, Meta(ge=0, le=INT_MAX)] = msgspec.field(name="from", default=0)
    max_items: Annotated[int, Meta(ge=1, le=500)] = 100
    wait_seconds: Annotated[int, Meta(ge=0, le=60)] = 0
    acknowledge: bool = True
    """Whether items before `from` count as read from now on; false for those who only look."""


class _Directive(RequestModel, kw_only=True):
    operation: Literal["append", "close", "error"]
    stream_name: Name
    command_identity: Name | None = None
    command_ordinal: Annotated[int, Meta(ge=0, le=INT_MAX)]
    items: Items | None = None
    max_pending_items: PendingMax | None = None
    error_reason: ErrorReason | None = None
    retention_seconds: Seconds | None = None


def append(request: AppendItems) -> StreamAppend:
    drafts = [_draft(each, f"items.{place}") for place, each in enumerate(request.items)]
    return StreamAppend(drafts, StreamOrigin.CLIENT, pending_max=request.max_pending_items)


def close(request: CloseStream) -> StreamClose:
    return StreamClose(request.error_reason, request.retention_seconds)


def directive(body: Mapping[str, Any] | None, field: str = "workflow_stream") -> Body | None:
    """Parse the stream operation of a command; payloads become blobs."""
    if body is None:
        return None
    parsed = _parse_directive(body, field)
    checked: Body = msgspec.structs.asdict(parsed)
    checked["items"] = [
        msgspec.structs.asdict(each) | {"payload": _blob(each, f"{field}.items.{index}")}
        for index, each in enumerate(parsed.items or ())
    ]
    checked["error_reason"] = parsed.error_reason if parsed.operation == "error" else None
    return checked


def _parse_directive(body: Mapping[str, Any], field: str) -> _Directive:
    try:
        parsed = parse(dict(body), _Directive)
    except ValidationFailed as error:
        errors = error.details["errors"]
        raise ValidationFailed({f"{field}.{name}": each for name, each in errors.items()}) from None
    if parsed.operation == "append" and not parsed.items:
        raise ValidationFailed({f"{field}.items": ["is required: the items to append"]})
    if parsed.operation == "error" and parsed.error_reason is None:
        raise ValidationFailed({f"{field}.error_reason": ["is required: why the stream failed"]})
    return parsed


def _draft(item: Item, field: str) -> StreamItemDraft:
    return StreamItemDraft(
        payload=_blob(item, field),
        reference=item.payload_reference,
        idempotency_key=item.idempotency_key,
        item_type=item.item_type,
        content_type=item.content_type,
    )


def _blob(item: Item, field: str) -> Blob | None:
    """The payload of an item; None if it only has a reference."""
    if item.payload is None and item.payload_reference is not None:
        return None
    return Blob(payloads.parse_value(item.payload, f"{field}.payload").blob)


def stream(run: Run, each: WorkflowStream) -> Body:
    return {
        "workflow_id": run.workflow_id,
        "workflow_run_id": run.run_id,
        "stream_name": each.name,
        "status": each.status.value,
        "last_offset": each.last_offset,
        "total_items": each.total_items,
        "pending_items": each.pending_items,
        "error_reason": each.error_reason,
        "opened_at": iso(each.opened_at_ms),
        "last_appended_at": iso_or_none(each.last_appended_at_ms),
        "closed_at": iso_or_none(each.closed_at_ms),
        "retention_seconds": each.retention_s,
    }


def item(each: StreamItem) -> Body:
    return {
        "offset": each.offset,
        "payload": envelope(each.payload),
        "value": readable(each.payload),
        "payload_reference": each.reference,
        "payload_codec": CODEC if each.payload is not None else None,
        "idempotency_key": each.idempotency_key,
        "item_type": each.item_type,
        "content_type": each.content_type,
        "origin": each.origin.value,
        "origin_reference": each.origin_reference,
        "emitted_at": iso(each.emitted_at_ms),
    }
