"""A stand: one real server process on a store that keeps every commit, and orders that are sent to it."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

import msgspec

from benchmarks.client_processes import Crew, Running
from benchmarks.databases import Postgres
from benchmarks.work import Order, Outcome
from tests.support import live

_numbers = itertools.count(1)


class StoreName(StrEnum):
    SQLITE = "sqlite"
    POSTGRES = "postgres"


@dataclass(frozen=True, slots=True)
class Ground:
    """What all stands of a run share: a folder, clients, and PostgreSQL if it was chosen."""

    folder: Path
    crew: Crew
    postgres: Postgres | None


@dataclass(frozen=True, slots=True)
class Stand:
    """A server that answers, and the processes whose CPU time an order counts."""

    store: StoreName
    url: str
    pids: dict[str, int]
    crew: Crew

    def send(self, order: Order) -> Outcome:
        """Have an order carried out, with ids that no other order has."""
        return self.begin(order).finish()

    def begin(self, order: Order) -> Running:
        """The same without waiting for its end."""
        name = f"{order.name}-{next(_numbers)}"
        return self.crew.begin(msgspec.structs.replace(order, url=self.url, pids=self.pids, name=name))


@contextlib.contextmanager
def stand(store: StoreName, ground: Ground) -> Iterator[Stand]:
    """A server on an empty store, up inside the block and gone after it."""
    with serving(store, ground, new_store(store, ground)) as server:
        yield server


def new_store(store: StoreName, ground: Ground) -> str:
    """The URL of an empty database with the present schema."""
    if store is StoreName.SQLITE:
        return f"sqlite:///{ground.folder / f'bench-{next(_numbers)}'}.sqlite"
    assert ground.postgres is not None, "a PostgreSQL stand needs a PostgreSQL"
    url = ground.postgres.new_database()
    live.migrate(ground.folder, url)
    return url


@contextlib.contextmanager
def serving(
    store: StoreName,
    ground: Ground,
    url: str,
    settings: Mapping[str, str] | None = None,
    command: Sequence[str] | None = None,
) -> Iterator[Stand]:
    """A server on the database at `url`, with settings beside those that every stand has."""
    settings = {"DW_SQLITE_SYNCHRONOUS": "full" if store is StoreName.SQLITE else ""} | dict(settings or {})
    name = f"{store}-{next(_numbers)}"
    made = live.server(ground.folder, url, name=name, settings=settings, command=command)
    with live.running(made) as (server,):
        pids = {"server": server.pid}
        if store is StoreName.POSTGRES and ground.postgres is not None:
            pids["database"] = ground.postgres.pid
        yield Stand(store, server.url, pids, ground.crew)
