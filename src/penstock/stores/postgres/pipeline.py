"""Pipelining for asyncpg: BEGIN is sent with the statement behind it, COMMIT with the one before it.

A transaction needs two statements that do nothing but delimit it, and asyncpg waits for the response to each.
PostgreSQL's extended query protocol does not require that: the server executes all messages up to the next `Sync`, and
skips those behind one that failed. asyncpg has no pipeline mode, so this module wraps its transport and adds the
messages of one more prepared statement (`Bind`, `Execute`) to what asyncpg sends. The response to them has no rows, and
asyncpg ignores it.

A statement can be put before anything that asyncpg sends first. It can be put after a statement only if asyncpg has
prepared that one already, because then asyncpg sends it in one piece (`Bind`, `Execute`, `Sync`), under the name that
it was given the first time; before that, asyncpg may query types in between.

When asyncpg prepares a statement, it ends with `Flush`; here it ends with `Sync`. After a `Flush` PostgreSQL waits for
the rest of an unfinished statement: the session counts as active, so that neither
`idle_in_transaction_session_timeout` nor `statement_timeout` ends it, and a client that is suspended at that point
holds its row locks indefinitely (observed: a cluster without progress for 8 s). After a `Sync` the session is idle in
transaction, and the timeout applies. asyncpg does not expect the `ReadyForQuery` that follows, so `_ReadyFilter`
removes it from what is received.

`tests/stores/postgres/test_asyncpg_internals.py` pins what this relies on beyond the documented API of asyncpg.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, cast

import asyncpg

if TYPE_CHECKING:
    _Connection = asyncpg.Connection[asyncpg.Record]
else:
    _Connection = asyncpg.Connection

BIND, PARSE = b"BP"
NAME_AT = 6
"""Offset of the statement name in `Bind`: behind the type, the length and the empty name of the portal."""
NAME_MAX = 64
NAMES_MAX = 1024
SYNC = b"S" + struct.pack("!i", 4)
FLUSH = b"H" + struct.pack("!i", 4)
READY = ord("Z")
HEADER = struct.Struct("!Bi")


class PipelinedTransport:
    """A transport that can add a prepared statement before or after the one that is sent."""

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._before = b""
        self._after = b""
        self._carrier = b""
        self.bound = b""
        """The name of the prepared statement that was sent last inside `piggyback`."""
        self.writes = 0
        """How often something was sent inside `piggyback`."""
        self.write: Callable[[memoryview], None] = self._write

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def _write(self, data: memoryview) -> None:
        self._transport.write(self._synced(data) if data[0] == PARSE else data)

    def _synced(self, data: memoryview) -> bytes | memoryview:
        """A message that prepares a statement, with `Sync` in place of `Flush`."""
        if data[-len(FLUSH) :] != FLUSH:
            return data
        _ReadyFilter.on(self._transport)
        return bytes(data[: -len(FLUSH)]) + SYNC

    def _write_piggybacked(self, data: memoryview) -> None:
        self.writes += 1
        pieces: list[bytes | memoryview] = [self._synced(data) if data[0] == PARSE else data]
        if data[0] == BIND and data[-len(SYNC) :] == SYNC:
            self.bound = bytes(data[NAME_AT : NAME_AT + NAME_MAX]).partition(b"\0")[0]
            if self._after and self.bound == self._carrier:
                pieces = [data[: -len(SYNC)], self._after, SYNC]
                self._after = b""
        if self._before and data[0] in (BIND, PARSE):
            pieces = [self._before, *pieces]
            self._before = b""
        self._transport.write(pieces[0] if len(pieces) == 1 else b"".join(pieces))

    @contextlib.contextmanager
    def piggyback(self, before: bytes, after: bytes, carrier: bytes) -> Iterator[None]:
        """Inside the block, add `before` to the first message, and `after` to the statement named `carrier`."""
        self._before, self._after, self._carrier = before, after, carrier
        self.write = self._write_piggybacked
        try:
            yield
        finally:
            self._before = self._after = b""
            self.write = self._write


class _ReadyFilter(asyncio.Protocol):
    """Receives in place of asyncpg until it has removed one `ReadyForQuery`, then restores the protocol of asyncpg.

    Nothing else is outstanding when a statement is prepared. If preparing fails, asyncpg sends a `Sync` of its own and
    waits for the `ReadyForQuery` of that one, which is the second.
    """

    def __init__(self, transport: asyncio.Transport, protocol: Any) -> None:
        self._transport = transport
        self._protocol = protocol
        self._unread = b""

    @classmethod
    def on(cls, transport: asyncio.Transport) -> None:
        transport.set_protocol(cls(transport, transport.get_protocol()))

    def data_received(self, data: bytes) -> None:
        self._unread += data
        at = 0
        while at + HEADER.size <= len(self._unread):
            kind, length = HEADER.unpack_from(self._unread, at)
            end = at + 1 + length
            if end > len(self._unread):
                break
            if kind == READY:
                self._restore(self._unread[:at] + self._unread[end:])
                return
            at = end
        whole, self._unread = self._unread[:at], self._unread[at:]
        if whole:
            self._protocol.data_received(whole)

    def _restore(self, rest: bytes) -> None:
        self._transport.set_protocol(self._protocol)
        if rest:
            self._protocol.data_received(rest)

    def eof_received(self) -> Any:
        return self._protocol.eof_received()

    def connection_lost(self, error: Exception | None) -> None:
        self._protocol.connection_lost(error)

    def pause_writing(self) -> None:
        self._protocol.pause_writing()

    def resume_writing(self) -> None:
        self._protocol.resume_writing()


class PipelinedConnection(_Connection):
    """A connection of asyncpg over a `PipelinedTransport`."""

    def __init__(self, protocol: Any, transport: Any, *others: Any) -> None:
        super().__init__(protocol, transport, *others)
        self._pipelined_transport: PipelinedTransport = transport
        self._names: dict[str, bytes] = {}
        self.prepared: list[object] = []
        """The piggybacked statements; asyncpg closes a prepared statement when it is garbage collected."""

    @property
    def writes(self) -> int:
        """How many messages `fetch_after` and `execute_between` have sent."""
        return self._pipelined_transport.writes

    async def fetch_after(self, before: bytes, sql: str, *values: Any) -> list[asyncpg.Record]:
        """Fetch, with a piggybacked statement before it."""
        with self._pipelined_transport.piggyback(before, b"", b""):
            return await self.fetch(sql, *values)

    async def execute_between(self, before: bytes, sql: str, values: Sequence[Any], after: bytes) -> str:
        """Execute with one statement before it, and one after it if it is prepared; returns the last status."""
        with self._pipelined_transport.piggyback(before, after, self._names.get(sql, b"-")):
            status = await self.execute(sql, *values)
        if len(self._names) > NAMES_MAX:
            self._names.clear()
        self._names[sql] = self._pipelined_transport.bound
        return status


class PipelinedLoop:
    """The running event loop, whose connections get a `PipelinedTransport`."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loop, name)

    async def create_connection(self, factory: Callable[[], Any], *given: Any, **options: Any) -> Any:
        return await self._pipelined(self._loop.create_connection, factory, *given, **options)

    async def create_unix_connection(self, factory: Callable[[], Any], *given: Any, **options: Any) -> Any:
        return await self._pipelined(self._loop.create_unix_connection, factory, *given, **options)

    async def start_tls(self, transport: Any, *given: Any, **options: Any) -> Any:
        upgraded = await self._loop.start_tls(transport._transport, *given, **options)
        return None if upgraded is None else PipelinedTransport(upgraded)

    @staticmethod
    async def _pipelined(connect: Any, factory: Callable[[], Any], *given: Any, **options: Any) -> Any:
        _, handshake = await connect(lambda: _Handshake(factory()), *given, **options)
        return handshake.transport, handshake.protocol


class _Handshake(asyncio.Protocol):
    """The protocol of a connection until its transport is wrapped."""

    def __init__(self, protocol: Any) -> None:
        self.protocol = protocol
        self.transport: PipelinedTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        _keep_alive(transport.get_extra_info("socket"))
        self.transport = PipelinedTransport(cast("asyncio.Transport", transport))
        self.transport.set_protocol(self.protocol)
        self.protocol.connection_made(self.transport)


KEEPALIVE = {"TCP_KEEPIDLE": 5, "TCP_KEEPINTVL": 2, "TCP_KEEPCNT": 3}
"""Idle seconds before the first probe, seconds between probes, and unanswered probes until the peer is gone."""


def _keep_alive(bound: socket.socket | None) -> None:
    """Enable TCP keepalives, as far as the system offers them, so that the kernel detects a dead database."""
    if bound is None or bound.family not in (socket.AF_INET, socket.AF_INET6):
        return
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in KEEPALIVE.items():
        if hasattr(socket, name):
            bound.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


def bind_and_execute(name: str) -> bytes:
    """The messages that execute a prepared statement without parameters: `Bind` and `Execute`, without `Sync`."""
    bind = b"\0" + name.encode() + b"\0" + struct.pack("!hhh", 0, 0, 0)
    execute = b"\0" + struct.pack("!i", 0)
    return _message(b"B", bind) + _message(b"E", execute)


def _message(kind: bytes, body: bytes) -> bytes:
    return kind + struct.pack("!i", 4 + len(body)) + body


async def connect(url: str, **options: Any) -> PipelinedConnection:
    connection = await asyncpg.connect(url, **_pipelined(), **options)
    return cast("PipelinedConnection", connection)


async def create_pool(url: str, **options: Any) -> asyncpg.Pool[asyncpg.Record]:
    return await asyncpg.create_pool(url, **_pipelined(), **options)


def _pipelined() -> dict[str, Any]:
    return {"loop": PipelinedLoop(), "connection_class": PipelinedConnection}
