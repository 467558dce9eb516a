"""The clients of an app: one per event loop, connected on first use."""

from __future__ import annotations

import asyncio
import atexit
import os
import threading
from collections.abc import AsyncGenerator, Coroutine
from datetime import timedelta
from typing import Any, TypeVar

from penstock.sdk.clients.client import Client
from penstock.sdk.clients.sync_client import LoopThread
from penstock.sdk.connection.connect_options import CREDENTIALS, ConnectOptions
from penstock.sdk.connection.transport import is_engine_address
from penstock.sdk.converters import DataConverter
from penstock.sdk.workflow_port.port import maybe_current

ResultT = TypeVar("ResultT")
_RESOLVED = ("url", "namespace", "profile", "insecure", "signature_profile", *CREDENTIALS)
CONNECTION_OPTIONS = (*_RESOLVED, "interceptors", "plugins", "ssl")
"""The arguments of an app that are those of `Client.connect`."""


class ClientPool:
    """Connects a client in each event loop that asks for one."""

    def __init__(self, data_converter: DataConverter, **connecting: Any) -> None:
        self.data_converter = data_converter
        self._connecting = connecting
        self._open: dict[asyncio.AbstractEventLoop, AsyncGenerator[Client]] = {}
        self._known: dict[asyncio.AbstractEventLoop, Client] = {}
        self._thread: LoopThread | None = None
        self._pid = os.getpid()
        self._lock = threading.Lock()

    @property
    def options(self) -> ConnectOptions:
        """The server address and credentials."""
        return ConnectOptions.resolve(**{name: self._connecting.get(name) for name in _RESOLVED})

    def prefer(self, **options: Any) -> None:
        """Override connection options of the app for the next clients."""
        given = {name: value for name, value in options.items() if value is not None}
        if any(name in given for name in CREDENTIALS):
            self._connecting = {
                name: value for name, value in self._connecting.items() if name not in CREDENTIALS
            }
        self._connecting = self._connecting | given

    async def check(self, retry_for: timedelta) -> None:
        """Raise if the server is unreachable or rejects the credentials."""
        connecting = self._connecting | {"data_converter": self.data_converter, "retry_for": retry_for}
        await (await Client.connect(**connecting)).close()

    async def get(self) -> Client:
        """Return the client of the running event loop.

        It is closed with the loop if `asyncio.run` or similar ends it.
        """
        if maybe_current() is not None:
            raise RuntimeError(
                "Workflow code does not send tasks: a replay would send them again. Call the same function with"
                " `await workflow.execute_activity(task, …)`."
            )
        loop = asyncio.get_running_loop()
        known = self._known.get(loop)
        if known is not None:
            return known
        self._forget_the_closed()
        connecting = self._connecting | {"data_converter": self.data_converter}
        client = await Client.connect(**connecting, lazy=not is_engine_address(self.options.url))
        keeping = self._keep(loop, client)
        self._known[loop], self._open[loop] = client, keeping
        await anext(keeping)
        return client

    async def close(self) -> None:
        """Close the client of the running event loop. The next send creates another."""
        keeping = self._open.get(asyncio.get_running_loop())
        if keeping is not None:
            await keeping.aclose()

    async def _keep(self, loop: asyncio.AbstractEventLoop, client: Client) -> AsyncGenerator[Client]:
        """Close the client when the event loop shuts down its async generators."""
        try:
            yield client
        finally:
            self._known.pop(loop, None)
            self._open.pop(loop, None)
            await client.close()

    def _forget_the_closed(self) -> None:
        for loop in [each for each in self._known if each.is_closed()]:
            del self._known[loop], self._open[loop]

    def wait(self, work: Coroutine[Any, Any, ResultT]) -> ResultT:
        """Run a coroutine on an event loop in a separate thread and wait for it, for sync code."""
        if asyncio._get_running_loop() is not None:
            work.close()
            raise RuntimeError(
                "A call that ends in _sync blocks, and would block this event loop: await its"
                " version without _sync, or use asyncio.to_thread."
            )
        return self._own_thread().wait(work)

    def _own_thread(self) -> LoopThread:
        with self._lock:
            if self._thread is None or self._pid != os.getpid():
                self._thread, self._pid = LoopThread(), os.getpid()
                atexit.register(self._thread.close, self.close)
            return self._thread

    def close_sync(self) -> None:
        """Close the client of sync code and end its thread."""
        with self._lock:
            thread, self._thread = self._thread, None
        if thread is not None:
            atexit.unregister(thread.close)
            thread.close(self.close)
