"""Keep-alive connections to one server, shared by all requests."""

from __future__ import annotations

import asyncio
import socket
import ssl as tls
from asyncio.staggered import staggered_race
from collections.abc import Callable, Sequence
from functools import partial
from ipaddress import ip_address
from urllib.parse import urlsplit

from penstock.sdk.http.connection import ConnectionLost, HttpConnection
from penstock.sdk.http.response import HttpResponse

CONNECT_SECONDS = 10.0
IDLE_SECONDS = 30.0
"""How long an idle connection stays open."""
NEXT_ADDRESS_SECONDS = 0.25
"""Delay before the next address of the host is tried in parallel (happy eyeballs, RFC 8305)."""


class ConnectFailed(Exception):
    """No connection was made, and nothing was sent."""

    def __init__(self, cause: Exception) -> None:
        super().__init__(str(cause))
        self.cause = cause


class HttpConnectionPool:
    """Opens one connection per concurrent request and reuses the most recently used one. Belongs to one event loop."""

    def __init__(self, url: str, ssl: tls.SSLContext | bool) -> None:
        parts = urlsplit(url)
        self._loop = asyncio.get_running_loop()
        self._host = parts.hostname or ""
        self._port = parts.port or (443 if parts.scheme == "https" else 80)
        self._ssl = _context(ssl) if parts.scheme == "https" else None
        self._all: set[HttpConnection] = set()
        self._idle: list[HttpConnection] = []
        self._sweeping: asyncio.TimerHandle | None = None
        self._closed = False

    async def send(
        self,
        request: bytes,
        timeout_s: float,
        *,
        again: bool,
        renewed: Callable[[], bytes] | None = None,
        on_send: Callable[[], None] | None = None,
    ) -> HttpResponse:
        """Send a request and wait for its response. Raises `TimeoutError` if it takes longer.

        `again`: if a reused connection turns out to be closed, the request is sent once more; `renewed` makes the
        bytes for that attempt, if the same ones must not be sent twice. `on_send` is called before each attempt.
        """
        kept = self._idle_connection()
        if kept is not None:
            try:
                return await self._exchange(kept, request, timeout_s, on_send)
            except ConnectionLost:
                if not again or self._closed:
                    raise
                request = request if renewed is None else renewed()
        return await self._exchange(await self._open(timeout_s), request, timeout_s, on_send)

    def close(self) -> None:
        """Close all connections and refuse new ones. If the event loop is gone, so are its connections."""
        self._closed = True
        if self._loop.is_closed():
            return
        if self._sweeping is not None:
            self._sweeping.cancel()
        for each in tuple(self._all):
            each.close()

    async def _exchange(
        self, connection: HttpConnection, request: bytes, timeout_s: float, on_send: Callable[[], None] | None
    ) -> HttpResponse:
        if on_send is not None:
            on_send()
        response = connection.send(request)
        ending = self._loop.call_later(timeout_s, _too_late, response)
        try:
            return await response
        finally:
            ending.cancel()
            if not response.cancelled():
                response.exception()
            if connection.is_usable:
                self._release(connection)
            else:
                connection.close()

    def _idle_connection(self) -> HttpConnection | None:
        while self._idle:
            connection = self._idle.pop()
            if connection.is_usable:
                return connection
        return None

    def _release(self, connection: HttpConnection) -> None:
        connection.idle_since = self._loop.time()
        self._idle.append(connection)
        if self._sweeping is None:
            self._sweeping = self._loop.call_later(IDLE_SECONDS, self._sweep)

    def _sweep(self) -> None:
        """Close connections that were idle for too long."""
        self._sweeping = None
        least = self._loop.time() - IDLE_SECONDS
        old = [each for each in self._idle if each.idle_since <= least]
        self._idle = [each for each in self._idle if each.idle_since > least]
        for each in old:
            each.close()
        if self._idle:
            left_s = self._idle[0].idle_since - least
            self._sweeping = self._loop.call_later(left_s, self._sweep)

    # Opening a connection

    async def _open(self, timeout_s: float) -> HttpConnection:
        try:
            async with asyncio.timeout(min(CONNECT_SECONDS, timeout_s)):
                connection = await self._connect()
        except (OSError, UnicodeError) as error:  # a TimeoutError is an OSError
            raise ConnectFailed(error) from None
        if self._closed:
            connection.close()
            raise ConnectFailed(ConnectionLost("Closed meanwhile"))
        return connection

    async def _connect(self) -> HttpConnection:
        """Connect to the first reachable address. An address that does not answer delays the others only briefly."""
        if _is_address(self._host):
            return await self._connect_to(self._host)
        found = await self._loop.getaddrinfo(self._host, self._port, type=socket.SOCK_STREAM)
        addresses = list(dict.fromkeys(str(address[0]) for *_, address in found))
        return await (
            self._connect_to(self._host) if len(addresses) == 1 else self._happy_eyeballs(addresses)
        )

    async def _happy_eyeballs(self, addresses: Sequence[str]) -> HttpConnection:
        tries = [partial(self._connect_to, each) for each in addresses]
        reached: HttpConnection | None
        reached, _, errors = await staggered_race(tries, NEXT_ADDRESS_SECONDS)
        if reached is None:
            raise max(filter(None, errors), key=lambda error: isinstance(error, tls.SSLError))
        return reached

    async def _connect_to(self, host: str) -> HttpConnection:
        name = None if self._ssl is None else self._host
        _, connection = await self._loop.create_connection(
            lambda: HttpConnection(self._all.discard), host, self._port, ssl=self._ssl, server_hostname=name
        )
        if connection.is_usable:  # otherwise it is lost already
            self._all.add(connection)
        return connection


def _context(ssl: tls.SSLContext | bool) -> tls.SSLContext:
    if isinstance(ssl, tls.SSLContext):
        return ssl
    made = tls.create_default_context()
    if not ssl:
        made.check_hostname = False
        made.verify_mode = tls.CERT_NONE
    return made


def _is_address(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return False
    return True


def _too_late(response: asyncio.Future[HttpResponse]) -> None:
    if not response.done():
        response.set_exception(TimeoutError())
