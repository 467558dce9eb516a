"""Connections on which BEGIN travels with the statement behind it, and COMMIT with the one before it.

A transaction needs two statements that say nothing but where it begins and ends, and asyncpg waits for the answer to
each. PostgreSQL need not be waited for: it takes several statements in a row, up to the next `Sync`, and does not carry
out those behind one that failed. So what asyncpg sends is handed on with a statement more in it, before or after its
own. The answer to that one has no rows, and asyncpg passes over it.

A statement goes before whatever asyncpg sends first. One goes after nothing but a text that asyncpg has prepared, which
it sends in one piece (`Bind`, `Execute`, `Sync`) under the name that it gave it the first time: before that it may ask
questions of its own, about types.

A statement that asyncpg prepares ends with `Sync`, where asyncpg sends `Flush`. After a `Flush` PostgreSQL waits for
the rest of an unfinished statement: the session counts as active, so that neither
`idle_in_transaction_session_timeout` nor `statement_timeout` ends it, and a client that is frozen there holds its row
locks for as long as it is frozen (seen: a cluster that stood still for 8 s). After a `Sync` it is idle in its
transaction, and the timeout applies. asyncpg does not expect the `ReadyForQuery` that follows, so `_ReadyFilter` takes
it out of what is received.
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
"""In `Bind`, behind its kind, its length and the name of a portal, which is empty."""
NAME_MAX = 64
NAMES_MAX = 1024
SYNC = b"S" + struct.pack("!i", 4)
FLUSH = b"H" + struct.pack("!i", 4)
READY = ord("Z")
HEADER = struct.Struct("!Bi")


class PipelinedTransport:
    """A transport that can be told to carry a statement before or after another one."""

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._before = b""
        self._after = b""
        self._carrier = b""
        self.bound = b""
        """The name of the prepared statement that was sent last where something was to be carried."""
        self.writes = 0
        """How often something was sent inside `piggyback`."""
        self.write: Callable[[memoryview], None] = self._write

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def _write(self, data: memoryview) -> None:
        self._transport.write(self._synced(data) if data[0] == PARSE else data)

    def _synced(self, data: memoryview) -> bytes | memoryview:
        """What prepares a statement, with `Sync` at its end."""
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
    def piggyback(self, before: bytes, after: bytes, bearer: bytes) -> Iterator[None]:
        """What is sent first in the block has a statement before it, the bearer one after it."""
        self._before, self._after, self._carrier = before, after, bearer
        self.write = self._write_piggybacked
        try:
            yield
        finally:
            self._before = self._after = b""
            self.write = self._write


class _ReadyFilter(asyncio.Protocol):
    """Receives in the place of asyncpg until it has taken out one `ReadyForQuery`, then steps aside.

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
                self._step_aside(self._unread[:at] + self._unread[end:])
                return
            at = end
        whole, self._unread = self._unread[:at], self._unread[at:]
        if whole:
            self._protocol.data_received(whole)

    def _step_aside(self, rest: bytes) -> None:
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
    """Made by asyncpg, with a transport that `PipelinedLoop` gave it."""

    def __init__(self, protocol: Any, transport: Any, *others: Any) -> None:
        super().__init__(protocol, transport, *others)
        self._wire: PipelinedTransport = transport
        self._names: dict[str, bytes] = {}
        self.prepared: list[object] = []
        """Prepared statements that others carry; they are closed when nobody knows of them."""

    @property
    def writes(self) -> int:
        """How often something was sent by `fetch_after` and `execute_between`."""
        return self._wire.writes

    async def fetch_after(self, before: bytes, sql: str, *values: Any) -> list[asyncpg.Record]:
        """Ask, with a statement before the question."""
        with self._wire.piggyback(before, b"", b""):
            return await self.fetch(sql, *values)

    async def execute_between(self, before: bytes, sql: str, values: Sequence[Any], after: bytes) -> str:
        """Carry out a text with a statement before it, and one after it if the text is known; tells what came last."""
        with self._wire.piggyback(before, after, self._names.get(sql, b"-")):
            told = await self.execute(sql, *values)
        if len(self._names) > NAMES_MAX:
            self._names.clear()
        self._names[sql] = self._wire.bound
        return told


class PipelinedLoop:
    """The running loop, but what connects through it gets a `PipelinedTransport`."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loop, name)

    async def create_connection(self, factory: Callable[[], Any], *given: Any, **options: Any) -> Any:
        return await self._wired(self._loop.create_connection, factory, *given, **options)

    async def create_unix_connection(self, factory: Callable[[], Any], *given: Any, **options: Any) -> Any:
        return await self._wired(self._loop.create_unix_connection, factory, *given, **options)

    async def start_tls(self, transport: Any, *given: Any, **options: Any) -> Any:
        upgraded = await self._loop.start_tls(transport._transport, *given, **options)
        return None if upgraded is None else PipelinedTransport(upgraded)

    @staticmethod
    async def _wired(connect: Any, factory: Callable[[], Any], *given: Any, **options: Any) -> Any:
        _, opening = await connect(lambda: _Handshake(factory()), *given, **options)
        return opening.wire, opening.protocol


class _Handshake(asyncio.Protocol):
    """Stands at the beginning of a connection, and steps aside once both ends know each other."""

    def __init__(self, protocol: Any) -> None:
        self.protocol = protocol
        self.wire: PipelinedTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        _keep_alive(transport.get_extra_info("socket"))
        self.wire = PipelinedTransport(cast("asyncio.Transport", transport))
        self.wire.set_protocol(self.protocol)
        self.protocol.connection_made(self.wire)


KEEPALIVE = {"TCP_KEEPIDLE": 5, "TCP_KEEPINTVL": 2, "TCP_KEEPCNT": 3}
"""Seconds of silence before a peer is probed, seconds between probes, and probes without an answer until it is gone."""


def _keep_alive(bound: socket.socket | None) -> None:
    """Have the kernel find out that the database is gone while nothing is sent; systems differ in what they offer."""
    if bound is None or bound.family not in (socket.AF_INET, socket.AF_INET6):
        return
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in KEEPALIVE.items():
        if hasattr(socket, name):
            bound.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


def bind_and_execute(name: str) -> bytes:
    """What has a prepared statement carried out that takes nothing: `Bind` and `Execute`, without `Sync`."""
    bind = b"\0" + name.encode() + b"\0" + struct.pack("!hhh", 0, 0, 0)
    execute = b"\0" + struct.pack("!i", 0)
    return _message(b"B", bind) + _message(b"E", execute)


def _message(kind: bytes, body: bytes) -> bytes:
    return kind + struct.pack("!i", 4 + len(body)) + body


async def connect(url: str, **options: Any) -> PipelinedConnection:
    connection = await asyncpg.connect(url, **_wired(), **options)
    return cast("PipelinedConnection", connection)


async def create_pool(url: str, **options: Any) -> asyncpg.Pool[asyncpg.Record]:
    return await asyncpg.create_pool(url, **_wired(), **options)


def _wired() -> dict[str, Any]:
    return {"loop": PipelinedLoop(), "connection_class": PipelinedConnection}
