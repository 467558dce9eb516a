"""Messages of a stream, as workflow code reads them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class StreamMessage:
    """A message of a stream.

    Attributes:
        stream_name: name of the stream.
        message_id: the id that its sender gave it.
        position: its number in the stream, from 1.
        arguments: its input.
    """

    stream_name: str
    message_id: str
    position: int
    arguments: list[Any]
