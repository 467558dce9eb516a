"""A TCP proxy in front of PostgreSQL that can drop a reply to a COMMIT, or everything from a COMMIT on.

A server commits on its own account too, so a test that means one transaction names it by bytes that only that one
sends: `of`.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from urllib.parse import urlsplit, urlunsplit

from penstock.stores.postgres.transactions import BEGIN, COMMIT, PIGGYBACKED

ALONE = COMMIT.encode() + b"\x00"
"""How the text of a simple query ends on the wire."""


def commits(chunk: bytes) -> bool:
    """Whether the bytes contain a COMMIT, alone or with the last write."""
    return chunk.endswith(ALONE) or PIGGYBACKED[COMMIT] in chunk


class SwallowingProxy:
    """Forwards everything until it is told to drop."""

    def __init__(self, target_url: str) -> None:
        self._target = urlsplit(target_url)
        self.port = 0
        self.of = b""
        """Which transactions count: those that send these bytes after their BEGIN; all of them if empty."""
        self.to_swallow = 0
        self.swallowed = 0
        self.to_fall_silent = False
        """Go silent at the next COMMIT, which is not forwarded."""
        self.silent = False
        """Connections stay open on both sides, and nothing is forwarded."""
        self._open: set[asyncio.StreamWriter] = set()

    def speak_again(self) -> None:
        """Forward again. Connections that lost data are closed."""
        self.silent = False
        for each in self._open:
            each.transport.abort()

    @property
    def url(self) -> str:
        who, at, _ = self._target.netloc.rpartition("@")
        return urlunsplit(self._target._replace(netloc=f"{who}{at}127.0.0.1:{self.port}"))

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        assert self._target.hostname is not None
        there, out = await asyncio.open_connection(self._target.hostname, self._target.port or 5432)
        back = asyncio.create_task(self._pass_back(there, writer))
        self._open |= {out, writer}
        sent = b""
        with contextlib.suppress(OSError):
            while chunk := await reader.read(65_536):
                if PIGGYBACKED[BEGIN] in chunk:
                    sent = chunk
                elif sent:
                    sent += chunk
                ends = commits(chunk)
                is_meant = ends and self.of in sent
                if ends:
                    sent = b""
                if self.to_fall_silent and is_meant:
                    self.to_fall_silent, self.silent = False, True
                if self.silent:
                    continue
                if self.to_swallow and is_meant:
                    self.to_swallow -= 1
                    self.swallowed += 1
                    back.cancel()
                    await asyncio.wait([back])
                    out.write(chunk)
                    await there.read(65_536)
                    break
                out.write(chunk)
                await out.drain()
        back.cancel()
        self._open -= {out, writer}
        for each in (out, writer):
            each.transport.abort()

    async def _pass_back(self, there: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while chunk := await there.read(65_536):
                if self.silent:
                    continue
                writer.write(chunk)
                await writer.drain()
        if not self.silent:
            writer.transport.abort()


@contextlib.asynccontextmanager
async def swallowing_proxy(target_url: str) -> AsyncIterator[SwallowingProxy]:
    proxy = SwallowingProxy(target_url)
    server = await asyncio.start_server(proxy.serve, "127.0.0.1", 0)
    proxy.port = server.sockets[0].getsockname()[1]
    try:
        yield proxy
    finally:
        server.close()
