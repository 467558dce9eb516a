"""Message streams of a run, as its code reads them: what was delivered, and how far the code has come.

The server stores messages outside the history. It delivers those of a stream while the code reads it, as signals of a
reserved name, and the worker reports with each completion which streams the code reads and how far it has read. All of
this follows from the history and the code, so a replay comes to the same positions.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from penstock.core import payload_codec
from penstock.core.messaging.messages import CURSOR_SCHEMA, MESSAGE_SCHEMA
from penstock.core.model import Blob
from penstock.errors import InvalidInput
from penstock.sdk.converters import DataConverter
from penstock.sdk.workflow_port.streams import StreamMessage

Json = dict[str, Any]


@dataclass(slots=True)
class Inbox:
    """One stream: messages that the code has not read, in order."""

    name: str
    cursor: int = 0
    readers: int = 0
    """How many calls wait for a message."""
    messages: list[StreamMessage] = field(default_factory=list)

    def take(self, most: int) -> list[StreamMessage]:
        taken = self.messages[:most]
        del self.messages[: len(taken)]
        self.cursor = taken[-1].position
        return taken


class Inboxes:
    """All streams of a run."""

    def __init__(self, converter: DataConverter) -> None:
        self._converter = converter
        self._by_name: dict[str, Inbox] = {}

    def of(self, name: str) -> Inbox:
        return self._by_name.setdefault(name, Inbox(name))

    def accept(self, arguments: object) -> None:
        """Take in a delivery or a position that an earlier run has read to; anything else is ignored."""
        body = _body(arguments)
        if body is None:
            return
        inbox = self.of(str(body["stream_name"]))
        if body["schema"] == CURSOR_SCHEMA:
            inbox.cursor = max(inbox.cursor, int(body["through_position"]))
        elif body["schema"] == MESSAGE_SCHEMA and int(body["position"]) > self._last(inbox):
            values = self._converter.decode_arguments(body["payload_envelope"]["blob"])
            message = StreamMessage(inbox.name, str(body["message_id"]), int(body["position"]), values)
            inbox.messages.append(message)

    def cursors_on_the_wire(self) -> list[Json]:
        return [
            {"stream_name": each.name, "through_position": each.cursor}
            for each in self._by_name.values()
            if each.cursor
        ]

    def waits_on_the_wire(self) -> list[Json]:
        return [
            {"stream_name": each.name, "after_position": each.cursor}
            for each in self._by_name.values()
            if each.readers
        ]

    @staticmethod
    def _last(inbox: Inbox) -> int:
        return inbox.messages[-1].position if inbox.messages else inbox.cursor


def _body(arguments: object) -> Mapping[str, Any] | None:
    """The map that the server wrote, which no payload codec of users has touched."""
    try:
        values = payload_codec.decode(Blob(str(arguments)))
    except InvalidInput:
        return None
    body = values[0] if isinstance(values, list) and values else None
    return body if isinstance(body, Mapping) and "schema" in body and "stream_name" in body else None
