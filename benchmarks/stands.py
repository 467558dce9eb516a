"""A stand: one real server process on a store that keeps every commit, and orders that are sent to it."""

from __future__ import annotations

import contextlib
import itertools
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

import msgspec

from benchmarks.databases import Postgres
from benchmarks.work import Order, Outcome
from tests.support import live

ORDER_SECONDS_MAX = 300
ROOT = Path(__file__).parent.parent
_numbers = itertools.count(1)


class StoreName(StrEnum):
    SQLITE = "sqlite"
    POSTGRES = "postgres"


class ClientFailed(RuntimeError):
    """A client process ended without an outcome; the message is what it said last."""


@dataclass(frozen=True, slots=True)
class Stand:
    """A server that answers, and the processes whose CPU time an order counts."""

    store: StoreName
    url: str
    pids: dict[str, int]

    def send(self, order: Order) -> Outcome:
        """Carry out one order in a client process of its own, with ids that no other order has."""
        return self.begin(order).finish()

    def begin(self, order: Order) -> Running:
        """The same without waiting for its end."""
        ready = _addressed(order, self)
        client = subprocess.Popen(
            (sys.executable, "-m", "benchmarks.client"),
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        return Running(client, msgspec.json.encode(ready))


@dataclass(frozen=True, slots=True)
class Running:
    """A client process at work."""

    client: subprocess.Popen[bytes]
    order: bytes

    def __post_init__(self) -> None:
        assert self.client.stdin is not None
        self.client.stdin.write(self.order)
        self.client.stdin.close()

    def finish(self) -> Outcome:
        assert self.client.stdout is not None and self.client.stderr is not None
        try:
            # The outcome and the last words are short, so neither pipe can fill up before the end.
            self.client.wait(ORDER_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            self.client.kill()
            self.client.wait()
        with self.client.stdout as out, self.client.stderr as err:
            said, complained = out.read(), err.read()
        if self.client.returncode != 0:
            raise ClientFailed(complained.decode(errors="replace")[-3000:])
        return msgspec.json.decode(said, type=Outcome)


def _addressed(order: Order, stand: Stand) -> Order:
    return msgspec.structs.replace(
        order, url=stand.url, pids=stand.pids, name=f"{order.name}-{next(_numbers)}"
    )


@contextlib.contextmanager
def stand(store: StoreName, folder: Path, postgres: Postgres | None) -> Iterator[Stand]:
    """A server on an empty store, up inside the block and gone after it."""
    name = f"{store}-{next(_numbers)}"
    if store is StoreName.SQLITE:
        url = f"sqlite:///{folder / name}.sqlite"
    else:
        assert postgres is not None, "a PostgreSQL stand needs a PostgreSQL"
        url = postgres.new_database()
        live.migrate(folder, url)
    settings = {"DW_SQLITE_SYNCHRONOUS": "full"} if store is StoreName.SQLITE else {}
    with live.running(live.server(folder, url, name=name, settings=settings)) as (server,):
        pids = {"server": server.pid} | ({"database": postgres.pid} if postgres else {})
        if store is StoreName.SQLITE:
            pids.pop("database", None)
        yield Stand(store, server.url, pids)


__all__ = ["ClientFailed", "Running", "Stand", "StoreName", "stand"]
