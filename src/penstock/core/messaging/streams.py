"""Workflow streams: items that a run publishes for readers. Workflow code and callers may append.

Reading from an offset acknowledges all items before it. Items that no reader has acknowledged are pending; a writer
may bound their number.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace

from penstock.core.history.structural_limits import exceeded
from penstock.core.model import Blob, Json, RunId
from penstock.errors import Conflict, Exhausted, Reason

ITEMS_MAX: Final = 50_000
"""Most items of one stream."""
STREAMS_MAX: Final = 100
"""Most streams of one run."""
RETRY_AFTER_S: Final = 1


class StreamStatus(StrEnum):
    OPEN = "open"
    CLOSED = "closed"
    ERRORED = "errored"


class StreamOrigin(StrEnum):
    """Who appended an item."""

    WORKFLOW = "workflow"
    CLIENT = "client"


class WorkflowStream(Struct, frozen=True):
    run_id: RunId
    name: str
    opened_at_ms: int
    status: StreamStatus = StreamStatus.OPEN
    total_items: int = 0
    read_items: int = 0
    """Items acknowledged by a reader."""
    error_reason: str | None = None
    last_appended_at_ms: int | None = None
    closed_at_ms: int | None = None
    retention_s: int | None = None
    """How long it is kept once it is closed; None: as long as its run."""

    @property
    def pending_items(self) -> int:
        return self.total_items - self.read_items

    @property
    def last_offset(self) -> int | None:
        return self.total_items - 1 if self.total_items else None

    @property
    def is_terminal(self) -> bool:
        return self.status is not StreamStatus.OPEN

    @property
    def expires_at_ms(self) -> int | None:
        if self.closed_at_ms is None or self.retention_s is None:
            return None
        return self.closed_at_ms + self.retention_s * 1000


class StreamItem(Struct, frozen=True):
    run_id: RunId
    stream: str
    offset: int
    payload: Blob | None
    reference: str | None
    """The location of a payload that is stored elsewhere."""
    idempotency_key: str | None
    item_type: str | None
    content_type: str | None
    origin: StreamOrigin
    origin_reference: str | None
    emitted_at_ms: int

    @property
    def size(self) -> int:
        return len(self.payload or "")


class StreamItemDraft(Struct, frozen=True):
    """An item to append."""

    payload: Blob | None = None
    reference: str | None = None
    idempotency_key: str | None = None
    item_type: str | None = None
    content_type: str | None = None


class StreamAppend(Struct, frozen=True):
    """Items to append, and how many may be pending afterwards."""

    drafts: Sequence[StreamItemDraft]
    origin: StreamOrigin
    origin_reference: str | None = None
    pending_max: int | None = None

    @property
    def keys(self) -> list[str]:
        return [each.idempotency_key for each in self.drafts if each.idempotency_key is not None]


class StreamClose(Struct, frozen=True):
    error_reason: str | None = None
    """None: closed normally."""
    retention_s: int | None = None


class StreamCommand(Struct, frozen=True):
    """An operation of workflow code on one of its streams."""

    stream: str
    act: StreamAppend | StreamClose


class StreamAppended(Struct, frozen=True):
    stream: WorkflowStream
    items: tuple[StreamItem, ...]
    """The new items."""
    offsets: tuple[int, ...]
    """The offsets of all items in the request, in order."""


def append(
    stream: WorkflowStream, wanted: StreamAppend, known: Mapping[str, int], now_ms: int
) -> StreamAppended:
    """Append items; those whose idempotency key is in `known` (by offset) are skipped.

    Raises `workflow_stream_closed`, `workflow_stream_full` and `structural_limit_exceeded`.
    """
    known, items, offsets = dict(known), list[StreamItem](), list[int]()
    for draft in wanted.drafts:
        key, offset = draft.idempotency_key, stream.total_items + len(items)
        if key is not None and known.setdefault(key, offset) != offset:
            offsets.append(known[key])
            continue
        offsets.append(offset)
        items.append(_item(stream, draft, wanted, offset, now_ms))
    if items:
        _check_open(stream)
        _check_room(stream, len(items), wanted.pending_max)
        total = stream.total_items + len(items)
        stream = replace(stream, total_items=total, last_appended_at_ms=now_ms)
    return StreamAppended(stream, tuple(items), tuple(offsets))


def close(stream: WorkflowStream, wanted: StreamClose, now_ms: int) -> WorkflowStream:
    """Close a stream; closing it again in the same way changes nothing.

    Raises `workflow_stream_closed`.
    """
    status = StreamStatus.CLOSED if wanted.error_reason is None else StreamStatus.ERRORED
    if stream.is_terminal:
        if stream.status is not status:
            raise _is_closed(stream)
        return stream
    return replace(
        stream,
        status=status,
        error_reason=wanted.error_reason,
        closed_at_ms=now_ms,
        retention_s=wanted.retention_s,
    )


def closed_with_run(stream: WorkflowStream, closed_at_ms: int | None) -> WorkflowStream:
    """The stream as readers see it: a stream left open is closed with its run."""
    if closed_at_ms is None or stream.is_terminal:
        return stream
    return replace(stream, status=StreamStatus.CLOSED, closed_at_ms=closed_at_ms)


def check_streams(count: int) -> None:
    """Raise `structural_limit_exceeded` if a run would have too many streams."""
    if count > STREAMS_MAX:
        raise exceeded("workflow_stream_count", count, STREAMS_MAX)


def parse_stream_command(said: Json) -> StreamCommand:
    """The stream operation of a command that was validated on the wire."""
    name, identity, ordinal = str(said["stream_name"]), said.get("command_identity"), said["command_ordinal"]
    if said["operation"] != "append":
        return StreamCommand(name, StreamClose(said.get("error_reason"), said.get("retention_seconds")))
    reference = f"{identity}:{ordinal}"
    drafts = [_draft(each, f"dw-stream:{reference}:{index}") for index, each in enumerate(said["items"])]
    return StreamCommand(
        name, StreamAppend(drafts, StreamOrigin.WORKFLOW, reference, said.get("max_pending_items"))
    )


def _draft(said: Mapping[str, Any], key: str) -> StreamItemDraft:
    return StreamItemDraft(
        payload=said.get("payload"),
        reference=said.get("payload_reference"),
        idempotency_key=said.get("idempotency_key") or key,
        item_type=said.get("item_type"),
        content_type=said.get("content_type"),
    )


def _item(
    stream: WorkflowStream, draft: StreamItemDraft, wanted: StreamAppend, offset: int, now_ms: int
) -> StreamItem:
    return StreamItem(
        run_id=stream.run_id,
        stream=stream.name,
        offset=offset,
        payload=draft.payload,
        reference=draft.reference,
        idempotency_key=draft.idempotency_key,
        item_type=draft.item_type,
        content_type=draft.content_type,
        origin=wanted.origin,
        origin_reference=wanted.origin_reference,
        emitted_at_ms=now_ms,
    )


def _check_open(stream: WorkflowStream) -> None:
    if stream.is_terminal:
        raise _is_closed(stream)


def _check_room(stream: WorkflowStream, more: int, pending_max: int | None) -> None:
    if stream.total_items + more > ITEMS_MAX:
        raise exceeded("workflow_stream_item_count", stream.total_items + more, ITEMS_MAX)
    pending = stream.pending_items + more
    if pending_max is not None and pending > pending_max:
        raise Exhausted(
            Reason.WORKFLOW_STREAM_FULL,
            f"{stream.pending_items} items of {stream.name!r} are not read yet; {more} more would exceed "
            f"{pending_max}. Try again when readers have caught up.",
            stream_name=stream.name,
            pending_items=stream.pending_items,
            max_pending_items=pending_max,
            retryable=True,
            retry_after_seconds=RETRY_AFTER_S,
        )


def _is_closed(stream: WorkflowStream) -> Conflict:
    return Conflict(
        Reason.WORKFLOW_STREAM_CLOSED,
        f"The stream {stream.name!r} is {stream.status.value} already.",
        stream_name=stream.name,
        status=stream.status.value,
        outcome="rejected",
    )
