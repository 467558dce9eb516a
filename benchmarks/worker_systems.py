"""The worker programs that are compared: how each is started, what it needs beside it, and how it gets a task."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from benchmarks.databases import OPTIONS, Postgres
from benchmarks.peers.environments import Absent, environment, python_of
from benchmarks.stands import Ground, StoreName, stand
from benchmarks.workloads import Say
from tests.support.binaries import NoServerFound, find_redis
from tests.support.servers import crashable_redis

CELERY_PACKAGES = ("celery[redis]==5.7.0",)
PROCRASTINATE_PACKAGES = ("procrastinate==3.10.0", "psycopg[binary]==3.3.8")
HORSIES_PACKAGES = ("horsies==0.5.4", "psycopg[binary]==3.3.8")
HORSIES_PYTHON = "3.13"
CHILDREN = "2"
KEPT = "fsync={fsync}, synchronous_commit={synchronous_commit}".format(**OPTIONS)
ADDRESS = "BENCH_ADDRESS"


Command = tuple[str | Path, ...]


class Kind(StrEnum):
    """Where tasks run: only workers of the same kind are compared."""

    ONE = "one process"
    CHILDREN = "2 child processes"


@dataclass(frozen=True, slots=True)
class Place:
    """Servers that are up: how they are found, and their processes."""

    environment: Mapping[str, str]
    pids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class System:
    name: str
    settings: str
    python: Path
    app: str
    """The module with its app and `send`."""
    commands: Mapping[Kind, Command]
    serving: Callable[[], AbstractContextManager[Place]]
    """Its servers with nothing in them, up inside the block."""
    is_ours: bool = False


def ours(store: StoreName, ground: Ground) -> System:
    """Our worker as it ships, and with child processes."""
    python, app = Path(sys.executable), "benchmarks.peers.app_penstock"
    command = (python, "-m", "penstock", "worker", "run", f"{app}:app", "--loglevel", "warning")
    return System(
        name=f"penstock, {store.value}",
        settings="synchronous=FULL" if store is StoreName.SQLITE else KEPT,
        python=python,
        app=app,
        commands={Kind.ONE: command, Kind.CHILDREN: (*command, "--processes", CHILDREN)},
        serving=lambda: _penstock(store, ground),
        is_ours=True,
    )


@contextlib.contextmanager
def _penstock(store: StoreName, ground: Ground) -> Iterator[Place]:
    with stand(store, ground) as server:
        yield Place({"DURABLE_WORKFLOW_SERVER_URL": server.url}, tuple(server.pids.values()))


def celery(ground: Ground, say: Say) -> System:
    """Celery with Redis, or `Absent`."""
    try:
        find_redis()
    except NoServerFound as missing:
        raise Absent(str(missing)) from missing
    home = environment(CELERY_PACKAGES, say, install=True)
    app = "benchmarks.peers.app_celery"
    command = (home / "bin" / "celery", "-A", app, "worker", "-l", "WARNING", "-c", CHILDREN)
    return System(
        name="celery, redis",
        settings=f"{CELERY_PACKAGES[0]}; Redis keeps nothing on disk, no results; -c 2, pools threads and prefork",
        python=home / "bin" / "python",
        app=app,
        commands={Kind.ONE: (*command, "-P", "threads"), Kind.CHILDREN: (*command, "-P", "prefork")},
        serving=_redis,
    )


@contextlib.contextmanager
def _redis() -> Iterator[Place]:
    with crashable_redis() as redis:
        server = redis.server
        yield Place({ADDRESS: server.url}, () if server.pid is None else (server.pid,))


def procrastinate(ground: Ground, say: Say) -> System:
    """Procrastinate on PostgreSQL, or `Absent`."""
    database = _database(ground)
    home = environment(PROCRASTINATE_PACKAGES, say, install=True)
    app = "benchmarks.peers.app_procrastinate"
    command = (home / "bin" / "procrastinate", "--app", f"{app}.app", "worker")
    return System(
        name="procrastinate, postgres",
        settings=f"{PROCRASTINATE_PACKAGES[0]}, as it ships; {KEPT}",
        python=home / "bin" / "python",
        app=app,
        commands={Kind.ONE: command},
        serving=lambda: _postgres(database),
    )


def horsies(ground: Ground, say: Say) -> System:
    """Horsies on PostgreSQL, or `Absent`."""
    database = _database(ground)
    home = environment(HORSIES_PACKAGES, say, install=True, python=python_of(HORSIES_PYTHON))
    app = "benchmarks.peers.app_horsies"
    words = ("worker", f"{app}:app", "--processes", CHILDREN, "--loglevel", "WARNING")
    return System(
        name="horsies, postgres",
        settings=f"{HORSIES_PACKAGES[0]}, Python {HORSIES_PYTHON}, as it ships but for 2 processes; {KEPT}",
        python=home / "bin" / "python",
        app=app,
        commands={Kind.CHILDREN: (home / "bin" / "horsies", *words)},
        serving=lambda: _postgres(database),
    )


def _database(ground: Ground) -> Postgres:
    if ground.postgres is None:
        raise Absent("PostgreSQL was not chosen")
    return ground.postgres


@contextlib.contextmanager
def _postgres(database: Postgres) -> Iterator[Place]:
    yield Place({ADDRESS: database.new_database()}, (database.pid,))


PEERS = (celery, procrastinate, horsies)
