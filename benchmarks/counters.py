"""What is counted beside a workload: requests, statements, commits and bytes, each asked of whoever knows it."""

from __future__ import annotations

import asyncio
import contextlib
import re
import threading
import urllib.request
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import asyncpg

from benchmarks.databases import Postgres, durable_postgres
from benchmarks.hot_group import watched
from benchmarks.process_trees import tree
from benchmarks.statements import named

STATEMENTS = "pg_stat_statements"
FRAMES = (
    "BEGIN",
    "COMMIT",
    "END",
    "ROLLBACK",
    "SAVEPOINT",
    "RELEASE",
    "SET",
    "RESET",
    "PRAGMA",
    "SELECT pg_advisory_unlock_all",
)
"""What makes a transaction or a connection is no statement of an operation."""
OWN = ("pg_stat_", "pg_current_wal_lsn")
TOP = 12
_REQUESTS = re.compile(
    r'^penstock_requests_total\{operation="([^"]*)",status="[^"]*"\} ([0-9.e+]+)$', re.MULTILINE
)

Counts = dict[str, float]


@dataclass(frozen=True, slots=True)
class Statement:
    """How often a database was sent a statement."""

    sql: str
    calls: int
    seconds: float = 0.0
    """How long the database took; of SQLite nobody knows."""


@dataclass(slots=True)
class Counted:
    """What happened inside a block, known after it."""

    requests: Counts = field(default_factory=dict)
    """By operation."""
    statements: list[Statement] | None = None
    """What reached PostgreSQL, if it tells."""
    disk_bytes: float | None = None
    switches: Counts = field(default_factory=dict)
    """How often threads of each process were put to sleep."""

    def each(self, count: float) -> dict[str, Any]:
        """For one of so many."""
        found: dict[str, Any] = {
            "requests": _each(self.requests, count),
            "switches": _each(self.switches, count),
            "disk_bytes": None if self.disk_bytes is None else round(self.disk_bytes / count, 1),
        }
        return found if self.statements is None else found | _told(self.statements, count)


def _each(counts: Mapping[str, float], count: float) -> Counts:
    return {name: round(value / count, 4) for name, value in counts.items() if value}


def asked_each(statements: Iterable[Statement], count: float) -> dict[str, Any]:
    """Statements and commits for one of so many, and which are sent most often."""
    every = list(statements)
    asked = [each for each in every if not each.sql.startswith(FRAMES)]
    commits = sum(each.calls for each in every if each.sql.startswith(("COMMIT", "END")))
    most = sorted(asked, key=lambda each: -each.calls)[:TOP]
    return {
        "statements": round(sum(each.calls for each in asked) / count, 4),
        "commits": round(commits / count, 4),
        "frequent": [_one(each, count) for each in most],
    }


def _told(statements: Sequence[Statement], count: float) -> dict[str, Any]:
    asked = [each for each in statements if not each.sql.startswith(FRAMES)]
    slowest = sorted(asked, key=lambda each: -each.seconds)[:TOP]
    return asked_each(statements, count) | {
        "database_ms": round(sum(each.seconds for each in asked) * 1000 / count, 4),
        "slowest": [_one(each, count) for each in slowest],
    }


def _one(each: Statement, count: float) -> dict[str, Any]:
    return {
        "statement": named(each.sql),
        "calls": round(each.calls / count, 4),
        "ms": round(each.seconds * 1000 / count, 4),
    }


@contextlib.contextmanager
def counted(
    url: str, pids: Mapping[str, int], postgres: Postgres | None, *, tells: bool
) -> Iterator[Counted]:
    """Count until the end of the block; `tells` is whether PostgreSQL says which statements reached it."""
    found = Counted()
    requests, written, switches = _requests(url), _written(pids, postgres), _switches(pids)
    if postgres is not None and tells:
        _ask(postgres, f"SELECT {STATEMENTS}_reset()")
    yield found
    if postgres is not None and tells:
        found.statements = _statements(postgres)
    after, late = _written(pids, postgres), _switches(pids)
    found.disk_bytes = None if written is None or after is None else after - written
    found.switches = {name: late[name] - switches[name] for name in switches}
    now = _requests(url)
    found.requests = {name: now[name] - requests.get(name, 0.0) for name in now}


@contextlib.contextmanager
def telling_postgres(folder: Path, name: str) -> Iterator[tuple[Postgres, bool]]:
    """A PostgreSQL that counts its statements, or one that does not where the extension is not installed."""
    with contextlib.ExitStack() as stack:
        try:
            given = {"shared_preload_libraries": STATEMENTS}
            postgres = stack.enter_context(durable_postgres(folder, name, given))
            _ask(postgres, f"CREATE EXTENSION {STATEMENTS}")
        except (RuntimeError, asyncpg.PostgresError):
            stack.close()
            yield stack.enter_context(durable_postgres(folder, f"{name}-plain")), False
        else:
            yield postgres, True


@contextlib.contextmanager
def connections(postgres: Postgres) -> Iterator[Counter[str]]:
    """What busy connections do or wait for inside the block, as often as it was seen; known after it."""
    (name,) = _ask(postgres, "SELECT max(datname) FROM pg_database WHERE datname LIKE 'bench%'")[0]
    found, done = Counter[str](), threading.Event()

    async def look() -> None:
        async with watched(postgres.url(str(name))) as waits:
            await asyncio.to_thread(done.wait)
        found.update(waits)

    looking = threading.Thread(target=lambda: asyncio.run(look()))
    looking.start()
    try:
        yield found
    finally:
        done.set()
        looking.join()


def _requests(url: str) -> Counts:
    """By operation, as the server counts them for Prometheus."""
    with urllib.request.urlopen(f"{url}/metrics", timeout=10) as answer:
        return requests_in(answer.read().decode())


def requests_in(page: str) -> Counts:
    found: Counter[str] = Counter()
    for operation, value in _REQUESTS.findall(page):
        found[operation] += float(value)  # type: ignore[assignment]
    return dict(found)


def _written(pids: Mapping[str, int], postgres: Postgres | None) -> float | None:
    """Bytes to the log of PostgreSQL, or by the server into the files of SQLite."""
    if postgres is not None:
        return float(_ask(postgres, "SELECT pg_wal_lsn_diff(pg_current_wal_lsn(), '0/0')")[0][0])
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pids['server']}/io").read_text().splitlines():
            name, _, value = line.partition(": ")
            if name == "write_bytes":
                return float(value)
    return None


def _switches(pids: Mapping[str, int]) -> dict[str, int]:
    return {name: sum(map(_switches_of, tree(pid))) for name, pid in pids.items()}


def _switches_of(pid: int) -> int:
    found = 0
    with contextlib.suppress(OSError):
        for thread in Path(f"/proc/{pid}/task").iterdir():
            for line in (thread / "status").read_text().splitlines():
                if line.startswith("voluntary_ctxt_switches"):
                    found += int(line.split()[1])
    return found


def _statements(postgres: Postgres) -> list[Statement]:
    rows = _ask(postgres, f"SELECT query, calls, total_exec_time FROM {STATEMENTS}")
    found = [Statement(" ".join(str(row[0]).split()), int(row[1]), float(row[2]) / 1000) for row in rows]
    return [each for each in found if not any(word in each.sql for word in OWN)]


def _ask(postgres: Postgres, sql: str) -> list[Any]:
    async def asked() -> list[Any]:
        connection = await asyncpg.connect(postgres.url())
        try:
            return list(await connection.fetch(sql))
        finally:
            await connection.close()

    return asyncio.run(asked())
