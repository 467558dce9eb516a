"""A TCP proxy between a worker and its server that delays the server's responses, or holds them until released."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from urllib.parse import urlsplit


class LateProxy:
    """Passes requests on at once. Answers wait while it `holds`, and for as long as `delay_s` says."""

    def __init__(self, target_url: str, delay_s: Callable[[], float] = lambda: 0.0) -> None:
        self._target = urlsplit(target_url)
        self._delay_s = delay_s
        self._open = asyncio.Event()
        self._open.set()
        self.port = 0
        self.held = b""
        """What the server has answered since the proxy holds answers back."""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def hold(self) -> None:
        """Hand no answer on from now on."""
        self.held = b""
        self._open.clear()

    def release(self) -> None:
        """Hand on what was held back, and everything that follows."""
        self._open.set()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        assert self._target.hostname is not None
        there, out = await asyncio.open_connection(self._target.hostname, self._target.port)
        back = asyncio.create_task(self._pass_back(there, writer))
        with contextlib.suppress(OSError):
            while chunk := await reader.read(65_536):
                out.write(chunk)
                await out.drain()
        back.cancel()
        for each in (out, writer):
            each.transport.abort()

    async def _pass_back(self, there: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while chunk := await there.read(65_536):
                if not self._open.is_set():
                    self.held += chunk
                    await self._open.wait()
                delay_s = self._delay_s()
                if delay_s:
                    await asyncio.sleep(delay_s)
                writer.write(chunk)
                await writer.drain()
        writer.transport.abort()


@contextlib.asynccontextmanager
async def late_proxy(target_url: str, delay_s: Callable[[], float] = lambda: 0.0) -> AsyncIterator[LateProxy]:
    proxy = LateProxy(target_url, delay_s)
    server = await asyncio.start_server(proxy.serve, "127.0.0.1", 0)
    proxy.port = server.sockets[0].getsockname()[1]
    try:
        yield proxy
    finally:
        proxy.release()
        server.close()
