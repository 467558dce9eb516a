"""The systems that are measured side by side: how each is started, how it is set up, and what it keeps."""

from __future__ import annotations

import contextlib
import itertools
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from pathlib import Path

from benchmarks import temporal_peer
from benchmarks.databases import OPTIONS, Postgres
from benchmarks.peers.environments import Absent, environment, python_of
from benchmarks.stands import Ground, StoreName, stand
from benchmarks.workloads import Say
from tests.support.binaries import NoServerFound, find_redis
from tests.support.servers import crashable_redis

PGQUEUER = ("pgqueuer==1.6.0", "asyncpg==0.32.0")
PROCRASTINATE = ("procrastinate==3.10.0", "psycopg[binary]==3.3.8")
HORSIES = ("horsies==0.5.4", "psycopg[binary]==3.3.8")
HORSIES_PYTHON = "3.13"
CELERY = ("celery[redis]==5.7.0",)
DRAMATIQ = ("dramatiq==2.2.1", "redis==8.1.0")
"""Its files are found by a pattern, in which brackets in the name of a folder would have a meaning."""
DBOS = ("dbos==3.3.0",)
KEPT = ("fsync", "synchronous_commit", "full_page_writes")
ON_POSTGRES = "PostgreSQL, " + ", ".join(f"{name}={OPTIONS[name]}" for name in KEPT)
ON_REDIS = "Redis keeps nothing on disk: an acknowledged task is lost with it"
CHILDREN = "2"
LONG_IDLE_SECONDS = 33.0
"""More than the 30 seconds after which our workers poll again, and tell that they are there."""
_numbers = itertools.count(1)

Command = tuple[str | Path, ...]


@dataclass(frozen=True, slots=True)
class Counts:
    """How much of each workload: enough that a repetition takes some seconds; 0 is nothing."""

    tasks: int
    batched: int
    backlog: int
    asked: int
    workflows: Mapping[int, int] = field(default_factory=dict)
    queued: Mapping[int, int] = field(default_factory=dict)

    def least(self) -> Counts:
        """Enough for a smoke."""
        return replace(
            self,
            tasks=min(self.tasks, 20),
            batched=min(self.batched, 200),
            backlog=min(self.backlog, 20),
            asked=min(self.asked, 3),
            workflows={steps: min(count, 5) for steps, count in self.workflows.items()},
            queued={steps: min(count, 5) for steps, count in self.queued.items()},
        )


@dataclass(frozen=True, slots=True)
class Address:
    """Where a system is, and the processes of its servers, if it has any."""

    text: str
    pids: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class System:
    name: str
    settings: str
    """How it was set up, and what it keeps when the machine fails."""
    python: Path
    program: str
    """The module that is its client, and its worker if it has no command for that."""
    counts: Counts
    serving: Callable[[], AbstractContextManager[Address]]
    """Its servers with nothing in them, up inside the block."""
    worker: Command = ()
    """The command of its worker, if it has one."""
    is_ours: bool = False
    embedded: bool = False
    """Whether workflows run in the process that starts them."""
    idle_seconds: float = 8.0
    """How long it is left alone: longer where it polls or tells of itself only now and then."""

    def command(self, role: str, address: str) -> Command:
        if role == "worker" and self.worker:
            return self.worker
        return (self.python, "-m", self.program, role, address)


def ours(store: StoreName, ground: Ground) -> System:
    kept = "SQLite, WAL, synchronous=FULL" if store is StoreName.SQLITE else ON_POSTGRES
    return System(
        name=f"penstock, {store.value}",
        settings=f"{kept}; one server process with tokens and history; uvloop; a worker of 400 places for activities, "
        "4 polls for them and one for workflows (as it ships: 100, 2 and 2); 256 sends, or 4 of 100, and 100 workflows "
        "in flight",
        python=Path(sys.executable),
        program="benchmarks.peers.with_penstock_app",
        counts=Counts(6000, 8000, 8000, 100, {1: 1000, 5: 400}),
        serving=lambda: _penstock(store, ground),
        is_ours=True,
        idle_seconds=LONG_IDLE_SECONDS,
    )


@contextlib.contextmanager
def _penstock(store: StoreName, ground: Ground) -> Iterator[Address]:
    with stand(store, ground) as server:
        yield Address(server.url, server.pids)


def pgqueuer(ground: Ground, say: Say, *, install: bool) -> System:
    database, home = _database(ground), environment(PGQUEUER, say, install=install)
    return System(
        name="pgqueuer",
        settings=f"{PGQUEUER[0]}; {ON_POSTGRES}; a worker takes 200 at a time, 64 sends in flight",
        python=_python(home),
        program="benchmarks.peers.with_pgqueuer",
        counts=Counts(3000, 20_000, 20_000, 60),
        serving=lambda: _postgres(database),
    )


def procrastinate(ground: Ground, say: Say, *, install: bool) -> System:
    database, home = _database(ground), environment(PROCRASTINATE, say, install=install)
    return System(
        name="procrastinate",
        settings=f"{PROCRASTINATE[0]}; {ON_POSTGRES}; a worker runs 10 at once, 4 sends in flight; a result is "
        "found by looking every ms",
        python=_python(home),
        program="benchmarks.peers.with_procrastinate",
        counts=Counts(1000, 800, 600, 80),
        serving=lambda: _postgres(database),
        idle_seconds=LONG_IDLE_SECONDS,
    )


def horsies(ground: Ground, say: Say, *, install: bool) -> System:
    database, python = _database(ground), python_of(HORSIES_PYTHON)
    home = environment(HORSIES, say, install=install, python=python)
    words = ("worker", "benchmarks.peers.tasks_horsies:app", "--processes", CHILDREN)
    return System(
        name="horsies",
        settings=f"{HORSIES[0]}, Python {HORSIES_PYTHON}; {ON_POSTGRES}; 2 child processes that are never replaced, 8 "
        "tasks ahead",
        python=_python(home),
        program="benchmarks.peers.with_horsies",
        counts=Counts(300, 0, 200, 40, {1: 150, 5: 100}),
        serving=lambda: _postgres(database),
        worker=(home / "bin" / "horsies", *words, "--loglevel", "WARNING", "--max-tasks-per-child", "0"),
    )


def celery(ground: Ground, say: Say, *, install: bool) -> System:
    _check_redis()
    home = environment(CELERY, say, install=install)
    words = (
        "-A",
        "benchmarks.peers.tasks_celery",
        "worker",
        "-P",
        "prefork",
        "-c",
        CHILDREN,
        "-l",
        "WARNING",
    )
    return System(
        name="celery",
        settings=f"{CELERY[0]}; {ON_REDIS}; 2 child processes, results in Redis, acknowledged before it runs",
        python=_python(home),
        program="benchmarks.peers.with_celery",
        counts=Counts(1500, 0, 1000, 100),
        serving=_redis,
        worker=(_python(home), "-m", "celery", *words, "--without-gossip", "--without-mingle"),
    )


def dramatiq(ground: Ground, say: Say, *, install: bool) -> System:
    _check_redis()
    home = environment(DRAMATIQ, say, install=install)
    return System(
        name="dramatiq",
        settings=f"{DRAMATIQ[0]}; {ON_REDIS}; one process, 8 threads, results in Redis",
        python=_python(home),
        program="benchmarks.peers.with_dramatiq",
        counts=Counts(4000, 0, 2000, 100),
        serving=_redis,
        worker=(_python(home), "-m", "dramatiq", "benchmarks.peers.tasks_dramatiq", "-p", "1", "-t", "8"),
    )


def dbos_sqlite(ground: Ground, say: Say, *, install: bool) -> System:
    home, folder = environment(DBOS, say, install=install), ground.folder
    return System(
        name="dbos, sqlite",
        settings=f"{DBOS[0]}; SQLite as it ships, rollback journal, one commit for each operation; {_DBOS_SETTINGS}",
        python=_python(home),
        program="benchmarks.peers.with_dbos",
        counts=Counts(400, 0, 200, 40, {1: 300, 5: 120}),
        serving=lambda: _dbos_file(folder),
        embedded=True,
    )


def dbos_postgres(ground: Ground, say: Say, *, install: bool) -> System:
    database, home = _database(ground), environment(DBOS, say, install=install)
    return System(
        name="dbos, postgres",
        settings=f"{DBOS[0]}; {ON_POSTGRES}; {_DBOS_SETTINGS}; 8 threads send",
        python=_python(home),
        program="benchmarks.peers.with_dbos",
        counts=Counts(800, 0, 400, 40, {1: 400, 5: 150}, {1: 300, 5: 120}),
        serving=lambda: _postgres(database),
        embedded=True,
    )


_DBOS_SETTINGS = (
    "workflows in the client's process in 8 threads, tasks by a queue that is polled every 50 ms, results every "
    "10 ms (as it ships: 1 s each)"
)


@contextlib.contextmanager
def _dbos_file(folder: Path) -> Iterator[Address]:
    yield Address(f"sqlite:///{_new_folder(folder, 'dbos') / 'dbos.sqlite'}")


def temporal(ground: Ground, say: Say, *, install: bool) -> System:
    peer, folder = temporal_peer.installed(say, install=install), ground.folder
    packages = ", ".join(temporal_peer.PACKAGES)
    return System(
        name="temporal dev server",
        settings=f"server {peer.version} ({packages}), fresh for each repetition; SQLite file, WAL, "
        "synchronous=NORMAL: the last commits may be lost with the power; no sandbox, 100 slots, 16 "
        "sends and 100 workflows in flight; the first 98 % of tasks are rated",
        python=peer.python,
        program="benchmarks.peers.with_temporal",
        counts=Counts(300, 0, 200, 60, {1: 200, 5: 120}),
        serving=lambda: _temporal(peer, folder),
        idle_seconds=LONG_IDLE_SECONDS,
    )


@contextlib.contextmanager
def _temporal(peer: temporal_peer.Peer, folder: Path) -> Iterator[Address]:
    with temporal_peer.durable_server(peer, _new_folder(folder, "temporal")) as (address, pid):
        yield Address(address, {"server": pid})


@contextlib.contextmanager
def _redis() -> Iterator[Address]:
    with crashable_redis() as redis:
        server = redis.server
        yield Address(server.url, {} if server.pid is None else {"broker": server.pid})


@contextlib.contextmanager
def _postgres(database: Postgres) -> Iterator[Address]:
    yield Address(database.new_database(), {"database": database.pid})


def _check_redis() -> None:
    try:
        find_redis()
    except NoServerFound as missing:
        raise Absent(str(missing)) from missing


def _database(ground: Ground) -> Postgres:
    if ground.postgres is None:
        raise Absent("PostgreSQL was not chosen")
    return ground.postgres


def _python(home: Path) -> Path:
    return home / "bin" / "python"


def _new_folder(folder: Path, name: str) -> Path:
    made = folder / f"peer-{name}-{next(_numbers)}"
    made.mkdir()
    return made


PEERS: Mapping[str, Callable[..., System]] = {
    "pgqueuer": pgqueuer,
    "procrastinate": procrastinate,
    "horsies": horsies,
    "celery": celery,
    "dramatiq": dramatiq,
    "dbos, sqlite": dbos_sqlite,
    "dbos, postgres": dbos_postgres,
    "temporal dev server": temporal,
}
"""By the names of their systems."""
