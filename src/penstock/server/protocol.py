"""HTTP connections with bounds on the size of a request's head and on the time that a request may take to arrive."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from typing import Any, Final, cast

import msgspec
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from penstock.errors import InvalidInput, PenstockError, Reason
from penstock.server.problems import body_of, status_of

HEAD_BYTES_MAX: Final = 65_536
HEAD_LINES_MAX: Final = 256
HEAD_SECONDS_MAX: Final = 10
BODY_SECONDS_MAX: Final = 60
_INTERIM: Final = b"HTTP/1.1 1"
_PHRASES: Final = {400: b"Bad Request", 408: b"Request Timeout", 431: b"Request Header Fields Too Large"}
_LOG: Final = logging.getLogger("penstock.http")
_LOG.setLevel(logging.ERROR)  # malformed requests are answered with an error and not logged


class _HeadTooLarge(Exception):
    """Aborts parsing; the caller sends the error response."""


class CoalescingTransport:
    """The transport of one response: joins its head with a body written in the same iteration of the event loop.

    uvicorn writes head and body separately, which costs two system calls and wakes the client twice. The first
    write is buffered until the second one or the end of the iteration. Interim responses (`100 Continue`) are written
    at once, because the client waits for them before it sends its body.

    uvicorn's response cycle uses this as an `asyncio.Transport`. Everything beyond writing and closing is delegated to
    the real transport; `tests/server/test_uvicorn_internals.py` lists what uvicorn uses.
    """

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport, self._loop = transport, loop
        self._head: bytes | None = None
        self._is_first = True
        self.on_interim: Callable[[], None] | None = None
        """Called before an interim response is written."""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def write(self, data: bytes) -> None:
        if self._is_first and data.startswith(_INTERIM):
            if self.on_interim is not None:
                self.on_interim()
            self._transport.write(data)
        elif self._is_first:
            self._is_first, self._head = False, data
            self._loop.call_soon(self._flush)
        elif self._head is not None:
            head, self._head = self._head, None
            self._transport.writelines((head, data))
        else:
            self._transport.write(data)

    def writelines(self, list_of_data: Iterable[bytes]) -> None:
        self.write(b"".join(list_of_data))

    def write_eof(self) -> None:
        self._flush()
        self._transport.write_eof()

    def close(self) -> None:
        self._flush()
        self._transport.close()

    def _flush(self) -> None:
        head, self._head = self._head, None
        if head is not None and not self._transport.is_closing():
            self._transport.write(head)


class BoundedProtocol(HttpToolsProtocol):
    """uvicorn's protocol with bounds; by itself it accepts heads of any size and waits for them without limit.

    Trailers are dropped, because uvicorn would add them to the headers.
    """

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.logger = _LOG
        self._in_head = True
        self._in_message = False
        self._too_large = False
        self._lines = 0
        self._bytes = 0
        self._unparsed = 0
        self._deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.timeout_keep_alive_task = self.loop.call_later(
            self.timeout_keep_alive, self.timeout_keep_alive_handler
        )

    def connection_lost(self, exc: Exception | None) -> None:
        self._disarm()
        self._unset_keepalive_if_required()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        was_in_head = self._in_head
        super().data_received(data)
        if self.transport.is_closing():
            return
        if not self._in_message:
            self._disarm()
            return
        if self._in_head and was_in_head:
            self._unparsed += len(data)
            if self._unparsed > HEAD_BYTES_MAX:
                self._too_large = True
                self.send_400_response("")
                return
        if self._deadline is None or was_in_head != self._in_head:
            self._arm()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._in_head = self._in_message = True
        self._lines = self._bytes = self._unparsed = 0

    def on_url(self, url: bytes) -> None:
        self._count(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        self._count(len(name) + len(value) + 4)
        if self._in_head:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._in_head = False
        before = self.cycle
        super().on_headers_complete()
        if self.cycle is not before:
            transport = CoalescingTransport(self.transport, self.loop)
            self.cycle.transport = cast("asyncio.Transport", transport)
            self._expect(self.cycle, transport)

    def on_message_complete(self) -> None:
        super().on_message_complete()
        self._in_head, self._in_message = True, False

    def _expect(self, cycle: RequestResponseCycle, transport: CoalescingTransport) -> None:
        """Follow RFC 9110, section 10.1.1, where uvicorn does not.

        HTTP/1.0 has no interim responses. A client that waits for `100 Continue` and gets a final answer instead may
        keep its body back; what it sends next could be taken for that body, so the connection ends with the answer.
        """
        if not cycle.waiting_for_100_continue:
            return
        if cycle.scope["http_version"] == "1.0":
            cycle.waiting_for_100_continue = False
            return
        keep_alive, cycle.keep_alive = cycle.keep_alive, False

        def continued() -> None:
            cycle.keep_alive = keep_alive

        transport.on_interim = continued

    def send_400_response(self, msg: str) -> None:
        """Send an error for a request that never reached a handler, in the same format as handlers do."""
        if self._too_large:
            most = f"{HEAD_BYTES_MAX} bytes and {HEAD_LINES_MAX} headers"
            self._send_error(InvalidInput(Reason.HEAD_TOO_LARGE, f"The request's head exceeds {most}."))
        else:
            self._send_error(InvalidInput(Reason.MALFORMED_REQUEST, "The request is not valid HTTP."))

    def _count(self, size: int) -> None:
        self._lines += 1
        self._bytes += size
        if self._lines > HEAD_LINES_MAX or self._bytes > HEAD_BYTES_MAX:
            self._too_large = True
            raise _HeadTooLarge

    def _arm(self) -> None:
        self._disarm()
        seconds = HEAD_SECONDS_MAX if self._in_head else BODY_SECONDS_MAX
        self._deadline = self.loop.call_later(seconds, self._too_late)

    def _disarm(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _too_late(self) -> None:
        self._send_error(InvalidInput(Reason.REQUEST_TIMEOUT, "The request took too long to arrive."))

    def _send_error(self, error: PenstockError) -> None:
        """Send an error and close the connection; only close it if a response is already under way."""
        status, raw = status_of(error), msgspec.json.encode(body_of(error))
        cycle = cast("RequestResponseCycle | None", self.cycle)
        if cycle is None or cycle.response_complete or not cycle.response_started:
            head = b"HTTP/1.1 %d %s\r\nContent-Type: application/json\r\n" % (status, _PHRASES[status])
            self.transport.write(head + b"Content-Length: %d\r\nConnection: close\r\n\r\n" % len(raw) + raw)
        self.transport.close()
