"""Streams in a store: messages that a workflow is sent, and items that a run writes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from penstock.core.messaging.messages import Message, MessageStream
from penstock.core.messaging.streams import StreamItem, WorkflowStream
from penstock.core.model import RunId


class Messages(Protocol):
    async def streams_of(self, run_id: RunId) -> Sequence[MessageStream]:
        """The streams that a run is sent, by name."""
        ...

    async def find(
        self, namespace: str, workflow_id: str, stream: str, message_id: str
    ) -> Message | None: ...
    async def undelivered(self, stream: MessageStream) -> Sequence[Message]:
        """What was sent and the code was not told of, by position."""
        ...

    def save(self, stream: MessageStream) -> None:
        """Record a stream, new or known."""
        ...

    def insert(self, message: Message) -> None: ...
    def mark_read(self, stream: MessageStream, after: int) -> None:
        """Forget the inputs of what was read beyond a position, and whatever was read too long ago."""
        ...

    def hand_over(self, stream: MessageStream) -> None:
        """Let what is unread belong to the run that has the stream now."""
        ...


class Streams(Protocol):
    async def get(self, run_id: RunId, name: str) -> WorkflowStream | None: ...
    async def of_run(self, run_id: RunId) -> Sequence[WorkflowStream]:
        """By name."""
        ...

    async def offsets(self, run_id: RunId, name: str, keys: Sequence[str]) -> Mapping[str, int]:
        """The offsets of the items that are known by these keys."""
        ...

    async def sizes(self, run_id: RunId, name: str, start: int, limit: int) -> Sequence[int]:
        """How large the payloads of the items from an offset on are."""
        ...

    async def page(self, run_id: RunId, name: str, start: int, limit: int) -> Sequence[StreamItem]: ...
    async def expired(self, now_ms: int, limit: int) -> Sequence[tuple[RunId, str]]:
        """Streams that were closed for longer than they are to be kept."""
        ...

    async def clear(self, run_id: RunId, name: str, most: int) -> int:
        """Delete up to so many items of a stream; says how many."""
        ...

    def insert(self, stream: WorkflowStream) -> None: ...
    def save(self, stream: WorkflowStream) -> None:
        """Record what writers change; not how far it was read."""
        ...

    def mark_read(self, run_id: RunId, name: str, items: int) -> None:
        """Record that some reader has left so many items behind, unless another one has left more."""
        ...

    def append(self, items: Sequence[StreamItem]) -> None: ...
    def delete(self, run_id: RunId, name: str) -> None: ...
