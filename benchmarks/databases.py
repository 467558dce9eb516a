"""A PostgreSQL of the benchmarks' own, with the settings of a database that must not lose a commit."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import asyncpg

from tests.support.accounts import Account
from tests.support.binaries import Binaries, find_postgres
from tests.support.process_guard import ProcessGuard

START_SECONDS_MAX = 30.0
STOP_SECONDS_MAX = 20.0
OPTIONS = {
    "listen_addresses": "127.0.0.1",
    "unix_socket_directories": "",
    "fsync": "on",
    "synchronous_commit": "on",
    "full_page_writes": "on",
    "max_connections": "100",
    "shared_buffers": "256MB",
    "max_wal_size": "2GB",
}
"""Durable, with room for a small machine; everything else is as PostgreSQL ships."""

_numbers = itertools.count(1)


@dataclass(frozen=True, slots=True)
class Postgres:
    """A running PostgreSQL: where it is, which it is, and whose CPU time to count."""

    port: int
    version: str
    pid: int

    def url(self, database: str = "postgres") -> str:
        return f"postgresql://postgres@127.0.0.1:{self.port}/{database}"

    def new_database(self) -> str:
        """Make an empty database and return its URL."""
        name = f"bench_{next(_numbers)}"
        asyncio.run(self._execute(f'CREATE DATABASE "{name}"'))
        return self.url(name)

    async def _execute(self, statement: str) -> None:
        connection = await asyncpg.connect(self.url())
        try:
            await connection.execute(statement)
        finally:
            await connection.close()


@contextlib.contextmanager
def durable_postgres(
    folder: Path, name: str = "postgres", options: Mapping[str, str] | None = None
) -> Iterator[Postgres]:
    """A PostgreSQL below `folder` that ends with the block, and also when we are killed; `options` beside ours."""
    home = folder / name
    home.mkdir()
    account = Account.for_servers(home)
    binaries = account.reachable(find_postgres())
    data, port = account.own(home / "data"), _free_port()
    _initialise(binaries, account, data)
    given = OPTIONS | dict(options or {})
    flags = [word for option, value in given.items() for word in ("-c", f"{option}={value}")]
    with (home / "log").open("wb") as log:
        process = account.spawn([binaries.server, "-D", data, "-p", str(port), *flags], log)
    guardian = ProcessGuard(process.pid, home)
    try:
        _wait_until_ready(process, data, home / "log")
        yield Postgres(port, f"{binaries.product} {binaries.version}", process.pid)
    finally:
        _stop(process)
        guardian.release()


def _initialise(binaries: Binaries, account: Account, data: Path) -> None:
    made = account.run(
        [binaries.beside("initdb"), "-D", data, "-U", "postgres", "-A", "trust", "-E", "UTF8", "--no-locale"]
    )
    if made.returncode != 0:
        raise RuntimeError(f"initdb failed:\n{made.stderr}")


def _wait_until_ready(process: subprocess.Popen[bytes], data: Path, log: Path) -> None:
    ends_at = time.monotonic() + START_SECONDS_MAX
    while time.monotonic() < ends_at:
        with contextlib.suppress(FileNotFoundError):
            lines = (data / "postmaster.pid").read_text().splitlines()
            if lines and lines[-1].strip() == "ready":
                return
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(0.05)
            break
    raise RuntimeError(f"PostgreSQL did not start:\n{log.read_text()[-2000:]}")


def _stop(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        process.send_signal(signal.SIGINT)
        try:
            process.wait(STOP_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(STOP_SECONDS_MAX)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
