"""Reading message streams in workflow code."""

from __future__ import annotations

import re

from penstock.sdk.workflow_port.port import current
from penstock.sdk.workflow_port.streams import StreamMessage

MESSAGES_AT_ONCE_MAX = 100
_NAME = re.compile(r"[A-Za-z0-9._:-]{1,128}")


class MessageReader:
    """An ordered inbox of a workflow id: each message is stored once, and read once, across continue-as-new."""

    def __init__(self, name: str) -> None:
        self.name = name

    async def receive(self, max_items: int = 1) -> list[StreamMessage]:
        """Wait for a message, and return it with those behind it that have arrived.

        Args:
            max_items: the most messages to return, up to 100.
        """
        if not 1 <= max_items <= MESSAGES_AT_ONCE_MAX:
            raise ValueError(f"max_items must be from 1 to {MESSAGES_AT_ONCE_MAX}, and is {max_items}")
        return await current().receive(self.name, max_items)

    async def receive_one(self) -> StreamMessage:
        """Wait for the next message, and return it."""
        (message,) = await self.receive()
        return message


def message_stream(name: str) -> MessageReader:
    """Return a message stream of the workflow, which callers append to by its name.

    Args:
        name: 1 to 128 letters, digits, dots, underscores, colons and dashes.
    """
    if not _NAME.fullmatch(name):
        raise ValueError(
            f"a stream name has 1 to 128 letters, digits, dots, underscores, colons and dashes, not {name!r}"
        )
    current()
    return MessageReader(name)
