"""Real PostgreSQL and Redis servers for the tests, started here if nobody gives us one.

A server comes from `PENSTOCK_TEST_PG_URL` / `PENSTOCK_TEST_REDIS_URL` or from the binaries of
`tests.support.binaries`. It listens on loopback only, lives in a temporary folder and ends with its context.
Where none can be started these functions raise: a test that needs a server never passes by skipping.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import functools
import itertools
import os
import random
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import asyncpg
import redis

from tests.support.accounts import Account
from tests.support.binaries import Binaries, NoServerFound, find_postgres, find_redis
from tests.support.patience import PATIENCE_S
from tests.support.process_guard import ProcessGuard

PG_URL_VARIABLE = "PENSTOCK_TEST_PG_URL"
REDIS_URL_VARIABLE = "PENSTOCK_TEST_REDIS_URL"

# Below the range from which the kernel takes ports for outgoing connections, so that a port which is free
# during a restart stays free.
PORTS = range(15_000, 30_000)

# The tests crash the server, not the machine: the page cache survives that, so fsync may be off. Commits must
# still reach the kernel before they are acknowledged, so synchronous_commit stays on.
POSTGRES_OPTIONS = {
    "listen_addresses": "127.0.0.1",
    "unix_socket_directories": "",
    "fsync": "off",
    "full_page_writes": "off",
    "max_connections": "200",
    "shared_buffers": "64MB",
    "max_wal_size": "512MB",
}

_names = itertools.count(1)


@dataclass(frozen=True, slots=True)
class Server:
    """A running server. `pid` is None for one that somebody else runs and that we must leave as it was."""

    url: str
    version: str
    source: str
    pid: int | None


class ServerDidNotStart(RuntimeError):
    """A server was found but did not come up; the message carries the end of its log."""


@contextlib.contextmanager
def postgres_server(binaries: Binaries | None = None) -> Iterator[Server]:
    """A PostgreSQL for the tests; `binaries` asks for one installation in particular."""
    if binaries is None and (url := os.environ.get(PG_URL_VARIABLE)):
        yield Server(url, _version_at_postgres(url), PG_URL_VARIABLE, pid=None)
        return
    with crashable_postgres(binaries) as postgres:
        yield postgres.server


@contextlib.contextmanager
def crashable_postgres(binaries: Binaries | None = None) -> Iterator[CrashablePostgres]:
    """A PostgreSQL of one's own that may be killed, paused and restarted; never the one others share."""
    with _workshop() as (folder, account):
        postgres = CrashablePostgres(account.reachable(binaries or find_postgres()), account, folder)
        postgres.start()
        try:
            yield postgres
        finally:
            postgres.stop()


@contextlib.contextmanager
def redis_server(binaries: Binaries | None = None) -> Iterator[Server]:
    """A Redis or Valkey for the tests, without persistence: Penstock treats it as a cache."""
    if binaries is None and (url := os.environ.get(REDIS_URL_VARIABLE)):
        yield Server(url, _version_at_redis(url), REDIS_URL_VARIABLE, pid=None)
        return
    with crashable_redis(binaries) as redis:
        yield redis.server


@contextlib.contextmanager
def crashable_redis(binaries: Binaries | None = None) -> Iterator[CrashableRedis]:
    """A Redis of one's own that may be killed, paused and restarted; never the one others share."""
    with _workshop() as (folder, account):
        redis = CrashableRedis(account.reachable(binaries or find_redis()), account, folder)
        redis.start()
        try:
            yield redis
        finally:
            redis.stop()


class CrashableRedis:
    """One Redis whose process comes and goes while its port stays; what it held goes with the process."""

    def __init__(self, binaries: Binaries, account: Account, folder: Path) -> None:
        self._binaries = binaries
        self._port = _free_port()
        options = {"port": str(self._port), "bind": "127.0.0.1", "save": "", "appendonly": "no"}
        options["dir"] = str(account.own(folder / "data"))
        flags = [word for key, value in options.items() for word in (f"--{key}", value)]
        self._process = _Process([binaries.server, *flags], account, folder / "log")

    @property
    def server(self) -> Server:
        """The server as it runs now; the pid changes with every restart, the URL does not."""
        url = f"redis://127.0.0.1:{self._port}/0"
        return Server(url, _named(self._binaries), self._binaries.source, self._process.pid)

    def start(self) -> None:
        """Start, or start again after `kill`; returns when it answers."""
        self._process.start(ready=lambda: _answers_ping(self._port))

    def kill(self) -> None:
        """SIGKILL: nobody says goodbye."""
        self._process.kill()

    def pause(self) -> None:
        """SIGSTOP: connections stay open and nothing answers."""
        self._process.signal_all(signal.SIGSTOP)

    def resume(self) -> None:
        """SIGCONT after `pause`."""
        self._process.signal_all(signal.SIGCONT)

    def stop(self) -> None:
        """Shut down in order if it still runs."""
        self._process.stop(signal.SIGTERM)


class CrashablePostgres:
    """One PostgreSQL cluster whose server process comes and goes while its data and its port stay."""

    def __init__(self, binaries: Binaries, account: Account, folder: Path) -> None:
        self._binaries = binaries
        self._data = account.own(folder / "data")
        self._port = _free_port()
        self._initialise(account)
        settings = {**POSTGRES_OPTIONS, "port": str(self._port)}
        flags = [word for key, value in settings.items() for word in ("-c", f"{key}={value}")]
        self._process = _Process([binaries.server, "-D", self._data, *flags], account, folder / "log")

    @property
    def server(self) -> Server:
        """The server as it runs now; the pid changes with every restart, the URL does not."""
        url = f"postgresql://postgres@127.0.0.1:{self._port}/postgres"
        return Server(url, _named(self._binaries), self._binaries.source, self._process.pid)

    def start(self) -> None:
        """Start, or start again after `kill`; returns when connections are accepted."""
        self._process.start(ready=self._is_ready, try_again_on="pre-existing shared memory block")

    def kill(self) -> None:
        """SIGKILL the server and all its sessions: nothing is flushed and nobody says goodbye."""
        self._process.kill()

    def restart(self) -> None:
        """Kill without warning and come back on the same port, recovering from the log."""
        self.kill()
        self.start()

    def pause(self) -> None:
        """SIGSTOP: connections stay open and nothing answers."""
        self._process.signal_all(signal.SIGSTOP)

    def resume(self) -> None:
        """SIGCONT after `pause`."""
        self._process.signal_all(signal.SIGCONT)

    def stop(self) -> None:
        """Shut down in order if it still runs."""
        self._process.stop(signal.SIGINT)

    def _initialise(self, account: Account) -> None:
        """Copy a cluster that this process has made before: that takes a tenth of the time."""
        fresh = _fresh_cluster(str(self._binaries), self._binaries.beside("initdb"))
        copied = account.run(["cp", "-a", f"{fresh}/.", self._data])
        if copied.returncode != 0:
            raise ServerDidNotStart(f"a cluster could not be copied:\n{copied.stderr}")

    def _is_ready(self) -> bool:
        try:
            lines = (self._data / "postmaster.pid").read_text().splitlines()
        except FileNotFoundError:
            return False
        # A killed predecessor leaves its own file behind, so the first line must name the present process.
        return bool(lines) and lines[0] == str(self._process.pid) and lines[-1].strip() == "ready"


@functools.cache
def _fresh_cluster(named: str, initdb: Path) -> Path:
    """A cluster in which nothing was ever done; it is gone when this process ends."""
    folder = Path(tempfile.mkdtemp(prefix="penstock-", dir=_parent()))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    account = Account.for_servers(folder)
    data = account.own(folder / "data")
    cluster = ["-D", str(data), "-U", "postgres", "-A", "trust", "-E", "UTF8"]
    made = account.run([initdb, *cluster, "--no-locale", "--no-sync", "--no-instructions"])
    if made.returncode != 0:
        raise ServerDidNotStart(f"initdb of {named} failed:\n{made.stderr}")
    return data


async def create_database(server: Server, *, template: str | None = None) -> str:
    """Make a fresh database on `server` and return its URL.

    With `template`, the name of a database to which nobody is connected, it begins as a copy of that one.
    """
    name = f"penstock_{os.getpid()}_{next(_names)}_{uuid.uuid4().hex[:8]}"
    source = f' TEMPLATE "{template}"' if template else ""
    await _execute(server.url, f'CREATE DATABASE "{name}"{source}')
    return urlunsplit(urlsplit(server.url)._replace(path=f"/{name}"))


async def drop_database(server: Server, url: str) -> None:
    """Drop the database at `url` and close its open connections."""
    name = urlsplit(url).path.removeprefix("/")
    await _execute(server.url, f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)')


def describe_servers() -> list[str]:
    """One line for each server that the tests will use, found without starting any."""
    lines = []
    for variable, find in ((PG_URL_VARIABLE, find_postgres), (REDIS_URL_VARIABLE, find_redis)):
        try:
            lines.append(f"as {variable} says" if os.environ.get(variable) else str(find()))
        except NoServerFound as missing:
            lines.append(str(missing))
    return lines


class _Process:
    """A server process that can be started more than once with the same command and log."""

    def __init__(self, command: Sequence[str | Path], account: Account, log: Path) -> None:
        self._command = command
        self._account = account
        self._log = log
        self._popen: subprocess.Popen[bytes] | None = None
        self._guardian: ProcessGuard | None = None

    @property
    def pid(self) -> int:
        assert self._popen is not None, "not started"
        return self._popen.pid

    def start(self, *, ready: Callable[[], bool], try_again_on: str | None = None) -> None:
        """Start and wait until `ready`; an early exit is final unless the log says `try_again_on`."""
        deadline = time.monotonic() + PATIENCE_S
        self._spawn()
        while not (self._running() and ready()):
            if not self._running():
                if try_again_on is None or try_again_on not in self._last_words():
                    self._dismiss_guardian()
                    raise ServerDidNotStart(f"{self._command[0]} ended early:\n{self._last_words()}")
                self._spawn()
            if time.monotonic() > deadline:
                self.kill()
                raise ServerDidNotStart(f"{self._command[0]} is not ready:\n{self._last_words()}")
            time.sleep(0.02)

    def stop(self, polite: signal.Signals) -> None:
        """Ask it to end; what has not ended in time is killed."""
        if self._popen is not None and self._running():
            self.signal_all(signal.SIGCONT)
            self._popen.send_signal(polite)
            try:
                self._popen.wait(PATIENCE_S)
            except subprocess.TimeoutExpired:
                self.kill()
        self._dismiss_guardian()

    def kill(self) -> None:
        """SIGKILL the process and its children, and wait until the process is gone."""
        if self._popen is not None:
            self.signal_all(signal.SIGKILL)
            self._popen.wait(PATIENCE_S)
        self._dismiss_guardian()

    def signal_all(self, number: signal.Signals) -> None:
        """Signal the process, then the children it had. They left its process group, so each is named."""
        if self._popen is None or not self._running():
            return
        children = _children_of(self._popen.pid)
        self._popen.send_signal(number)
        for child in children:
            with contextlib.suppress(ProcessLookupError):
                os.kill(child, number)

    def _spawn(self) -> None:
        with self._log.open("wb") as log:
            self._popen = self._account.spawn(self._command, log)
        self._dismiss_guardian()
        self._guardian = ProcessGuard(self._popen.pid, self._log.parent)

    def _dismiss_guardian(self) -> None:
        if self._guardian is not None:
            self._guardian.release()
            self._guardian = None

    def _running(self) -> bool:
        return self._popen is not None and self._popen.poll() is None

    def _last_words(self) -> str:
        return self._log.read_text(errors="replace")[-3000:]


@contextlib.contextmanager
def _workshop() -> Iterator[tuple[Path, Account]]:
    """A short temporary folder and the account that will run a server in it."""
    folder = Path(tempfile.mkdtemp(prefix="penstock-", dir=_parent()))
    try:
        yield folder, Account.for_servers(folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _parent() -> str | None:
    """/tmp even when TMPDIR says otherwise: that may be a place which the unprivileged account cannot enter."""
    return "/tmp" if os.access("/tmp", os.W_OK | os.X_OK) else None


def _free_port() -> int:
    for port in random.sample(PORTS, 100):
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
    raise ServerDidNotStart(f"no free port in {PORTS}")


def _answers_ping(port: int) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=1) as connection:
            connection.sendall(b"PING\r\n")
            return connection.recv(16).startswith(b"+PONG")
    except OSError:
        return False


def _children_of(pid: int) -> list[int]:
    """The direct children where the kernel lists them, else none: they then follow their parent unasked."""
    try:
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


def _named(binaries: Binaries) -> str:
    return f"{binaries.product} {binaries.version}"


def _version_at_postgres(url: str) -> str:
    """Ask a server that is not ours; one that cannot be reached fails here and not in some test."""

    async def ask() -> str:
        connection = await asyncpg.connect(url)
        try:
            return f"PostgreSQL {await connection.fetchval('SHOW server_version')}"
        finally:
            await connection.close()

    # A loop of its own thread, because the tests' loop belongs to pytest.
    with ThreadPoolExecutor(max_workers=1) as thread:
        return thread.submit(lambda: asyncio.run(ask())).result()


def _version_at_redis(url: str) -> str:
    with redis.Redis.from_url(url) as client:
        about = client.info("server")
    product = "Valkey" if "valkey_version" in about else "Redis"
    return f"{product} {about.get('valkey_version', about['redis_version'])}"


async def _execute(url: str, statement: str) -> None:
    connection = await asyncpg.connect(url)
    try:
        await connection.execute(statement)
    finally:
        await connection.close()
