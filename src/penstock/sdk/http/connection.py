"""One connection to a server: a request, its answer, then the next one."""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import cast

from httptools import HttpParserError, HttpResponseParser

_GZIP = 31


class Disconnected(ConnectionError):
    """The connection was closed before the whole answer was there."""


class Garbled(Exception):
    """What came is no answer of HTTP."""


@dataclass(slots=True)
class Answer:
    status: int
    headers: Mapping[bytes, bytes]
    """By their names in small letters."""
    body: bytes


class Connection(asyncio.Protocol):
    """Is given one request at a time. What cannot be trusted to stand at the end of an answer is not used again."""

    def __init__(self, lost: Callable[[Connection], None]) -> None:
        self.idle_since = 0.0
        self._lost = lost
        self._parser = HttpResponseParser(self)
        self._transport: asyncio.Transport | None = None
        self._answer: asyncio.Future[Answer] | None = None
        self._headers: dict[bytes, bytes] = {}
        self._parts: list[bytes] = []
        self._in_body = False
        self._keeps = True

    @property
    def is_usable(self) -> bool:
        """Whether it may be given another request."""
        return self._keeps and self._answer is None and self._transport is not None

    def ask(self, request: bytes) -> asyncio.Future[Answer]:
        """Send a whole request. Whoever does not wait for its answer any more closes the connection."""
        self._answer = answer = asyncio.get_running_loop().create_future()
        if self._transport is None:
            answer.set_exception(Disconnected("Server disconnected"))
        else:
            self._transport.write(request)
        return answer

    def close(self) -> None:
        self._keeps = False
        if self._transport is not None:
            self._transport.abort()

    # What the event loop tells

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        if self._answer is None:
            self.close()
            return
        try:
            self._parser.feed_data(data)
        except HttpParserError as error:
            self._fail(Garbled(str(error)))

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._lost(self)
        if self._answer is None:
            return
        if exc is None and self._in_body and self._ends_with_the_connection:
            self._keeps = False
            self._complete()
        else:
            self._fail(exc or Disconnected("Server disconnected"))

    # What the parser tells

    def on_message_begin(self) -> None:
        self._headers, self._parts, self._in_body = {}, [], False

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers[name.lower()] = value

    def on_headers_complete(self) -> None:
        self._in_body = True

    def on_body(self, body: bytes) -> None:
        self._parts.append(body)

    def on_message_complete(self) -> None:
        if self._parser.get_status_code() >= 200:  # what comes before says nothing yet
            self._keeps = self._parser.should_keep_alive()
            self._complete()

    @property
    def _ends_with_the_connection(self) -> bool:
        return not {b"content-length", b"transfer-encoding"} & self._headers.keys()

    def _complete(self) -> None:
        answer, self._answer = self._answer, None
        if answer is None or answer.done():
            return
        try:
            body = _unpacked(b"".join(self._parts), self._headers.get(b"content-encoding"))
        except zlib.error as error:
            answer.set_exception(Garbled(str(error)))
        else:
            answer.set_result(Answer(self._parser.get_status_code(), self._headers, body))

    def _fail(self, error: Exception) -> None:
        answer, self._answer = self._answer, None
        if answer is not None and not answer.done():
            answer.set_exception(error)
        self.close()


def _unpacked(body: bytes, encoding: bytes | None) -> bytes:
    if encoding is None or encoding.lower() != b"gzip":
        return body
    return zlib.decompress(body, wbits=_GZIP)
