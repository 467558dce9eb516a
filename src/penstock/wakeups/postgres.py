"""Wakeups across servers by PostgreSQL LISTEN/NOTIFY."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import asyncpg
import structlog

from penstock.wakeups.local import LocalWakeups

RECONNECT_S = (0.2, 5.0)
PROBE_EVERY_S = 5.0
PROBE_S_MAX = 3.0
"""How often an idle connection is probed, and how long a probe may take."""
log = structlog.get_logger("penstock.wakeups")


class PostgresListener:
    """Listens on one connection for the lifetime of the server.

    A broken connection is replaced. Notifications sent meanwhile are lost, so all subscribers are called once.
    """

    def __init__(self, url: str, channel: str, node: str, wakeups: LocalWakeups) -> None:
        self._url = url
        self._channel = channel
        self._node = node
        self._wakeups = wakeups
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.create_task(self._listen_forever(), name="penstock-listener")

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task

    async def _listen_forever(self) -> None:
        pause = RECONNECT_S[0]
        while True:
            try:
                await self._listen()
                pause = RECONNECT_S[0]
            except (
                OSError,
                asyncpg.PostgresError,
                asyncpg.InterfaceError,
                asyncpg.InternalClientError,
            ) as error:
                log.warning(
                    "LISTEN connection failed; reconnecting", error=type(error).__name__, seconds=pause
                )
                await asyncio.sleep(pause)
                pause = min(pause * 2, RECONNECT_S[1])

    async def _listen(self) -> None:
        connection = await asyncpg.connect(
            self._url, timeout=5, server_settings={"application_name": "penstock-listen"}
        )
        ended = asyncio.Event()
        connection.add_termination_listener(lambda _: ended.set())
        try:
            await connection.add_listener(self._channel, self._on_notification)
            self._wakeups.notify_all()
            while not ended.is_set():
                await self._check_alive(connection, ended)
        finally:
            connection.terminate()

    @staticmethod
    async def _check_alive(connection: Any, ended: asyncio.Event) -> None:
        """Wait for the connection to end, probing it: one that was cut off silently never reports its end."""
        try:
            await asyncio.wait_for(ended.wait(), PROBE_EVERY_S)
        except TimeoutError:
            await connection.execute("SELECT 1", timeout=PROBE_S_MAX)

    def _on_notification(self, _connection: Any, _pid: int, _channel: str, payload: object) -> None:
        node, *topics = str(payload).split(",")
        if node != self._node:
            self._wakeups.notify(topics)
