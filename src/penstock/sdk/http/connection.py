"""One connection to a server: a request, its response, then the next one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import cast

from httptools import HttpParserError, HttpParserUpgrade, HttpResponseParser

from penstock.sdk.http.response import HttpResponse, MalformedResponse, ResponseBuilder, not_http


class ConnectionLost(ConnectionError):
    """The connection was closed before the response was complete."""


class HttpConnection(asyncio.Protocol):
    """Carries one request at a time. A connection whose state after a response is uncertain is not reused."""

    def __init__(self, lost: Callable[[HttpConnection], None]) -> None:
        self.idle_since = 0.0
        self._lost = lost
        self._parser = HttpResponseParser(self)
        self._transport: asyncio.Transport | None = None
        self._waiter: asyncio.Future[HttpResponse] | None = None
        self._draft = ResponseBuilder()
        self._keeps = True
        """Whether the connection may be reused. Once False, it stays so."""

    @property
    def is_usable(self) -> bool:
        """Whether another request may be sent."""
        is_open = self._transport is not None and not self._transport.is_closing()
        return is_open and self._keeps and self._waiter is None

    def send(self, request: bytes) -> asyncio.Future[HttpResponse]:
        """Send a whole request. A caller that stops waiting for the response must close the connection."""
        self._waiter = response = asyncio.get_running_loop().create_future()
        if self._transport is None or self._transport.is_closing():
            response.set_exception(ConnectionLost("Server disconnected"))
        else:
            self._transport.write(request)
        return response

    def close(self) -> None:
        self._keeps = False
        if self._transport is not None:
            self._transport.abort()

    # Callbacks of the event loop

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        if self._waiter is None:
            self.close()
            return
        try:
            self._draft.count(len(data))
            self._parser.feed_data(data)
        except MalformedResponse as error:
            self._fail(error)
        except (HttpParserError, HttpParserUpgrade) as error:
            own = error.__context__  # an error raised in a callback of the parser
            self._fail(own if isinstance(own, MalformedResponse) else not_http(error))

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._lost(self)
        if exc is None and self._waiter is not None and self._draft.ends_with_the_connection:
            self._keeps = False
            self._complete()
        else:
            self._fail(self._describe_loss(exc))

    # Callbacks of the parser

    def on_message_begin(self) -> None:
        self._draft.begin()
        if self._waiter is None:  # a response without a request
            self._keeps = False

    def on_header(self, name: bytes, value: bytes) -> None:
        self._draft.add_header(name, value)

    def on_headers_complete(self) -> None:
        self._draft.has_head = (
            self._parser.get_status_code() >= 200
        )  # an informational response; the real one follows

    def on_body(self, body: bytes) -> None:
        self._draft.add_body(body)

    def on_message_complete(self) -> None:
        if self._draft.has_head:
            self._keeps = self._keeps and self._parser.should_keep_alive()
            self._complete()

    def _describe_loss(self, lost: Exception | None) -> Exception:
        """Return the error for a lost connection.

        A reset instead of a response means that the server has closed it meanwhile.
        """
        if lost is None:
            return ConnectionLost("Server disconnected")
        if isinstance(lost, ConnectionError) and not self._draft.came:
            return ConnectionLost(*lost.args)
        return lost

    def _complete(self) -> None:
        response, draft = self._reset()
        if response is None or response.done():
            return
        try:
            response.set_result(draft.whole(self._parser.get_status_code()))
        except MalformedResponse as error:
            response.set_exception(error)

    def _fail(self, error: Exception) -> None:
        response, _ = self._reset()
        if response is not None and not response.done():
            response.set_exception(error)
        self.close()

    def _reset(self) -> tuple[asyncio.Future[HttpResponse] | None, ResponseBuilder]:
        """Return the waiting future and the response so far, and clear both."""
        response, draft = self._waiter, self._draft
        self._waiter, self._draft = None, ResponseBuilder()
        return response, draft
