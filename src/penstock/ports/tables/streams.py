"""Tables of streams: messages sent to a workflow, and items written by a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from penstock.core.messaging.messages import Message, MessageStream
from penstock.core.messaging.streams import StreamItem, WorkflowStream
from penstock.core.model import RunId


class Messages(Protocol):
    async def streams_of(self, run_id: RunId) -> Sequence[MessageStream]:
        """The message streams of a run, by name."""
        ...

    async def find(
        self, namespace: str, workflow_id: str, stream: str, message_id: str
    ) -> Message | None: ...
    async def undelivered(self, stream: MessageStream) -> Sequence[Message]:
        """Messages that were not delivered to the code yet, by position."""
        ...

    def save(self, stream: MessageStream) -> None:
        """Insert or update a stream."""
        ...

    def insert(self, message: Message) -> None: ...
    def mark_read(self, stream: MessageStream, after: int) -> None:
        """Delete the inputs of messages read after a position, and messages read too long ago."""
        ...

    def hand_over(self, stream: MessageStream) -> None:
        """Move unread messages to the run that owns the stream now."""
        ...


class Streams(Protocol):
    async def get(self, run_id: RunId, name: str) -> WorkflowStream | None: ...
    async def of_run(self, run_id: RunId) -> Sequence[WorkflowStream]:
        """By name."""
        ...

    async def offsets(self, run_id: RunId, name: str, keys: Sequence[str]) -> Mapping[str, int]:
        """The offsets of items by idempotency key."""
        ...

    async def sizes(self, run_id: RunId, name: str, start: int, limit: int) -> Sequence[int]:
        """The payload sizes of the items from an offset on."""
        ...

    async def page(self, run_id: RunId, name: str, start: int, limit: int) -> Sequence[StreamItem]: ...
    async def expired(self, now_ms: int, limit: int) -> Sequence[tuple[RunId, str]]:
        """Closed streams whose retention has expired."""
        ...

    async def clear(self, run_id: RunId, name: str, most: int) -> int:
        """Delete up to `most` items of a stream; returns how many."""
        ...

    def insert(self, stream: WorkflowStream) -> None: ...
    def save(self, stream: WorkflowStream) -> None:
        """Update what writers change; not the reading position."""
        ...

    def mark_read(self, run_id: RunId, name: str, items: int) -> None:
        """Advance the number of items read, unless it is higher already."""
        ...

    def append(self, items: Sequence[StreamItem]) -> None: ...
    def delete(self, run_id: RunId, name: str) -> None: ...
