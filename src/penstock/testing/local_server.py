"""A server process for tests, on loopback, with its data in a temporary directory."""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import shutil
import socket
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from penstock.sdk.connection.transport import HttpTransport, RequestRetries
from penstock.sdk.failures import Unreachable

START_SECONDS = 30.0
STOP_SECONDS = 10.0
RECHECK_SECONDS = 0.05


class LocalServer:
    """A server process that is ready for requests."""

    def __init__(self, process: asyncio.subprocess.Process, folder: Path, url: str, token: str) -> None:
        self._process, self._folder = process, folder
        self.url, self.token = url, token

    @classmethod
    async def start(cls, settings: Mapping[str, str]) -> LocalServer:
        """Start a server and wait until it answers. If it exits instead, raise an error with its log."""
        folder = Path(tempfile.mkdtemp(prefix="penstock-test-"))
        port, token = _free_port(), secrets.token_urlsafe(32)
        try:
            with (folder / "log").open("wb") as log:
                process = await asyncio.create_subprocess_exec(
                    *(sys.executable, "-m", "penstock", "server", "start"),
                    env=_environment(folder, port, token) | dict(settings),
                    stdin=asyncio.subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    cwd=folder,
                )
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise
        server = cls(process, folder, f"http://127.0.0.1:{port}", token)
        try:
            await server._answers()
        except BaseException:
            await server.stop()
            raise
        return server

    async def stop(self) -> None:
        """Stop the server and remove its data. If it does not exit, it is killed."""
        if self._process.returncode is None:
            self._process.terminate()
            try:
                await asyncio.wait_for(self._process.wait(), STOP_SECONDS)
            except TimeoutError:
                self._process.kill()
                await self._process.wait()
        shutil.rmtree(self._folder, ignore_errors=True)

    async def _answers(self) -> None:
        transport = HttpTransport(self.url, token=self.token, retries=RequestRetries(seconds=0))
        ends_at = asyncio.get_running_loop().time() + START_SECONDS
        try:
            while True:
                if self._process.returncode is not None:
                    raise RuntimeError(f"The test's server exited. Its log:\n{self._log()}")
                with contextlib.suppress(Unreachable):
                    await transport.control("GET", "/health", idempotent=True)
                    return
                if asyncio.get_running_loop().time() > ends_at:
                    raise RuntimeError(f"The test's server does not answer. Its log:\n{self._log()}")
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._process.wait(), RECHECK_SECONDS)
        finally:
            await transport.close()

    def _log(self) -> str:
        return (self._folder / "log").read_text(errors="replace")[-4000:]


def _environment(folder: Path, port: int, token: str) -> dict[str, str]:
    """Return the environment of this process without settings of other servers."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("DW_")}
    return kept | {
        "DW_HOST": "127.0.0.1",
        "DW_PORT": str(port),
        "DW_DATABASE_URL": f"sqlite:///{folder / 'penstock.db'}",
        "DW_AUTH_TOKEN": token,
    }


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
