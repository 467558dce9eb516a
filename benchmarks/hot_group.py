"""A budget group that several servers on one PostgreSQL claim from at once, with its limit and without.

Every server has queues of its own, so all that they share is the group. What their connections wait for meanwhile is
asked of the database again and again.
"""

from __future__ import annotations

import asyncio
import contextlib
import select
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import asyncpg
import msgspec
import uvloop

from benchmarks.client_processes import ORDER_SECONDS_MAX, ROOT, ClientFailed
from benchmarks.group_member import QUEUES, Order, Outcome
from benchmarks.limited_lines import LimitedLines, Limits, limited_lines
from benchmarks.processes import cpu_seconds, load_average
from benchmarks.samples import loads, spread
from benchmarks.sizes import Sizes
from benchmarks.stands import Ground, StoreName, new_store
from benchmarks.workloads import Say

SERVERS = (1, 3)
LOOK_SECONDS = 0.01
RUNNING = "runs"
WAITS = (
    "SELECT coalesce(wait_event_type || ': ' || wait_event, $1) FROM pg_stat_activity "
    "WHERE datname = current_database() AND state = 'active' AND pid <> pg_backend_pid()"
)


@dataclass(frozen=True, slots=True)
class Setting:
    servers: int
    batch: int
    limits: Limits


@dataclass(frozen=True, slots=True)
class Section:
    tasks: int
    seconds: float
    cpu_ms: float
    """Of the servers and of the database, for each task."""
    load: float
    waits: Counter[str]

    @property
    def per_second(self) -> float:
        return self.tasks / self.seconds


class Member:
    """A process that serves queues of its own."""

    def __init__(self, url: str, name: str, fill: int) -> None:
        self._process = subprocess.Popen(
            (sys.executable, "-m", "benchmarks.group_member", url, name, str(fill)),
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )

    def order(self, order: Order) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(msgspec.json.encode(order) + b"\n")
        self._process.stdin.flush()

    def hear(self) -> bytes:
        assert self._process.stdout is not None
        ready, _, _ = select.select([self._process.stdout], [], [], ORDER_SECONDS_MAX)
        line = self._process.stdout.readline() if ready else b""
        if not line:
            raise ClientFailed("a server of the group ended or fell silent")
        return line

    def end(self) -> None:
        self._process.kill()
        self._process.communicate()


class HotGroup:
    """One server, then three, each with and without the limit, in turn."""

    def __init__(self, ground: Ground, sizes: Sizes, say: Say) -> None:
        self._ground = ground
        self._sizes = sizes
        self._say = say
        self._sections: dict[Setting, list[Section]] = defaultdict(list)

    def run(self) -> list[dict[str, Any]]:
        uvloop.run(self._measure(new_store(StoreName.POSTGRES, self._ground)))
        return [self._row(setting) for setting in self._sections]

    async def _measure(self, url: str) -> None:
        with _members(url, max(SERVERS), self._fill) as members:
            async with limited_lines(StoreName.POSTGRES, url, 0) as lines:
                for number in range(1, self._sizes.limited_rounds + 1):
                    self._say(f"a group on {max(SERVERS)} servers: round {number}")
                    for setting in self._settings(number):
                        section = await self._section(url, lines, members[: setting.servers], setting)
                        self._sections[setting].append(section)

    @property
    def _fill(self) -> int:
        """So many tasks in each queue that none runs empty."""
        return max(self._sizes.hot_dispatches.values()) // QUEUES + max(self._sizes.hot_dispatches)

    def _settings(self, number: int) -> Iterator[Setting]:
        sides = (Limits.NONE, Limits.GROUP) if number % 2 else (Limits.GROUP, Limits.NONE)
        for servers in SERVERS:
            for limits in sides:
                for batch in self._sizes.hot_dispatches:
                    yield Setting(servers, batch, limits)

    async def _section(
        self, url: str, lines: LimitedLines, members: Sequence[Member], setting: Setting
    ) -> Section:
        await lines.limit(setting.limits)
        order = Order(self._sizes.hot_dispatches[setting.batch], setting.batch, setting.limits)
        assert self._ground.postgres is not None
        cpu = cpu_seconds(self._ground.postgres.pid)
        async with watched(url) as waits:
            for member in members:
                member.order(order)
            heard = await asyncio.gather(*(asyncio.to_thread(member.hear) for member in members))
        outcomes = [msgspec.json.decode(line, type=Outcome) for line in heard]
        cpu = cpu_seconds(self._ground.postgres.pid) - cpu + sum(each.cpu_seconds for each in outcomes)
        tasks = sum(each.tasks for each in outcomes)
        seconds = max(each.ended for each in outcomes) - min(each.began for each in outcomes)
        return Section(tasks, seconds, cpu * 1000 / tasks, load_average(), waits)

    def _row(self, setting: Setting) -> dict[str, Any]:
        sections = self._sections[setting]
        one = self._sections[Setting(1, setting.batch, setting.limits)]
        without = self._sections[Setting(setting.servers, setting.batch, Limits.NONE)]
        waits: Counter[str] = sum((each.waits for each in sections), Counter())
        return {
            "servers": setting.servers,
            "limits": setting.limits.value,
            "batch": setting.batch,
            "per_second": spread(each.per_second for each in sections),
            "cpu_ms": spread((each.cpu_ms for each in sections), 3),
            "to_one_server": _ratios(sections, one),
            "to_no_limit": _ratios(sections, without),
            "waits": {name: round(count / waits.total(), 3) for name, count in waits.most_common(6)},
            "load": loads(each.load for each in sections),
        }


def _ratios(sections: Sequence[Section], others: Sequence[Section]) -> dict[str, float]:
    """Round by round."""
    pairs = zip(sections, others, strict=True)
    return spread((one.per_second / other.per_second for one, other in pairs), 3)


@contextlib.contextmanager
def _members(url: str, count: int, fill: int) -> Iterator[list[Member]]:
    """Servers that have filled their queues and wait for orders."""
    members = [Member(url, f"server-{number}", fill) for number in range(count)]
    try:
        for member in members:
            member.hear()
        yield members
    finally:
        for member in members:
            member.end()


@contextlib.asynccontextmanager
async def watched(url: str) -> AsyncIterator[Counter[str]]:
    """What busy connections wait for, as often as it was seen."""
    waits: Counter[str] = Counter()
    connection = await asyncpg.connect(url)
    done = asyncio.Event()

    async def look() -> None:
        while not done.is_set():
            waits.update(row[0] for row in await connection.fetch(WAITS, RUNNING))
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(done.wait(), LOOK_SECONDS)

    looking = asyncio.create_task(look())
    try:
        yield waits
    finally:
        done.set()
        await looking
        await connection.close()
