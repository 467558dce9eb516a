"""Schedules while servers are killed (-9) around commits and disagree about the time: no fire doubled, none lost.

    python -m tests.faults.schedule_campaign --store postgres --fires 10000

Schedules that fire every second run on one server (SQLite) or three (PostgreSQL; the clocks of two are 5 s ahead and
5 s behind). One server kills itself before or after a commit, again and again. Then the schedules are paused, and each
must have exactly one run for each of its seconds from its first to its last.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp

from penstock.core.timestamps import instant, iso
from penstock.stores.group_commit import CommitPoint
from tests.faults.deadlines import until
from tests.faults.programs import clock_skewed_server
from tests.faults.servers import Doomed, serving
from tests.support.live import LiveServer, headers, migrate, running, server
from tests.support.patience import PATIENCE_S
from tests.support.servers import create_database, postgres_server

SECOND_MS = 1_000
SKEWS_MS = (5_000, -5_000)
MOMENT_CHARS = len("-2026-11-20T08:00:00Z")
"""Of the id of a run: the moment behind the id of its schedule."""
COMMITS_MAX = 12
"""A server dies within so many commits."""


@dataclass
class ScheduleFindings:
    fires: int = 0
    kills: int = 0
    problems: list[str] = field(default_factory=list)


@dataclass
class ScheduleCampaign:
    url: str
    session: aiohttp.ClientSession
    names: list[str] = field(default_factory=list)

    async def ask(self, method: str, path: str, body: Any = None) -> Any:
        """Send a request until a server answers it."""

        async def answered() -> Any:
            try:
                async with self.session.request(
                    method, f"{self.url}/api{path}", json=body, headers=headers("operator")
                ) as reply:
                    return await reply.json() if reply.status < 500 else None
            except aiohttp.ClientError:
                return None

        return await until(f"{method} {path} is answered", answered)

    async def create(self, count: int) -> None:
        action = {"workflow_type": "tick", "task_queue": "ticks"}
        for number in range(count):
            name = f"every-second-{number}"
            body = {"schedule_id": name, "spec": {"intervals": [{"every": "PT1S"}]}, "action": action}
            await self.ask("POST", "/schedules", body | {"overlap_policy": "allow_all"})
            self.names.append(name)

    async def fires(self) -> int:
        return sum([(await self.ask("GET", f"/schedules/{name}"))["fires_count"] for name in self.names])

    async def has_fired_again(self) -> None:
        """Wait until every schedule has fired since this call, so that what was due before it has, too."""
        before = {name: await self._fired_at(name) for name in self.names}

        async def fired() -> bool:
            return all([await self._fired_at(name) > since for name, since in before.items()])

        await until("every schedule fires again", fired)

    async def _fired_at(self, name: str) -> str:
        return str((await self.ask("GET", f"/schedules/{name}"))["last_fire"] or "")

    async def check(self, findings: ScheduleFindings) -> None:
        """Pause every schedule, and hold its fires against the seconds that it has run."""
        for name in self.names:
            await self.ask("POST", f"/schedules/{name}/pause", {})
        runs = await self._runs()
        for name in self.names:
            moments = await self._moments(name)
            findings.fires += len(moments)
            expected = list(range(moments[0], moments[-1] + 1, SECOND_MS))
            findings.problems += [f"{name}: {iso(each)} is lost" for each in expected if each not in moments]
            findings.problems += [
                f"{name}: {iso(each)} fired {count} times"
                for each, count in Counter(moments).items()
                if count > 1
            ]
            ids = {f"{name}-{iso(each).replace('.000Z', 'Z')}" for each in moments}
            own = Counter({each: count for each, count in runs.items() if each[:-MOMENT_CHARS] == name})
            findings.problems += [f"{each} has no run" for each in ids if each not in own]
            findings.problems += [f"{each} has {count} runs" for each, count in own.items() if count > 1]
            findings.problems += [f"{each} was not fired" for each in own if each not in ids]

    async def _moments(self, name: str) -> list[int]:
        found: list[int] = []
        after: int | None = 0
        while after is not None:
            page = await self.ask("GET", f"/schedules/{name}/history?limit=500&after_sequence={after}")
            for event in page["events"]:
                if event["event_type"] == "ScheduleTriggered":
                    at_ms = instant(event["payload"]["fire_time"])
                    assert at_ms is not None
                    found.append(at_ms)
            after = page["next_cursor"]
        return found

    async def _runs(self) -> Counter[str]:
        """The workflow ids of all runs."""
        found: Counter[str] = Counter()
        token: str | None = ""
        while token is not None:
            more = f"&next_page_token={token}" if token else ""
            page = await self.ask("GET", f"/workflows?workflow_type=tick&page_size=200{more}")
            found.update(each["workflow_id"] for each in page["workflows"])
            token = page["next_page_token"]
        return found


async def schedule_campaign(
    folder: Path, database_url: str, dice: random.Random, *, schedules: int, kills: int, fires: int
) -> ScheduleFindings:
    """Kill a server so often while schedules fire, until they have fired so often."""
    findings = ScheduleFindings()
    doomed = Doomed(folder, database_url)
    with running(*_skewed(folder, database_url)) as others:
        url = others[0].url if others else doomed.url
        async with serving(doomed), aiohttp.ClientSession() as session:
            campaign = ScheduleCampaign(url, session)
            await campaign.create(schedules)
            ends_at = time.monotonic() + PATIENCE_S * 10
            while findings.kills < kills or await campaign.fires() < fires:
                assert time.monotonic() < ends_at, f"only {await campaign.fires()} fires"
                doomed.die_at(dice.choice(list(CommitPoint)), dice.randint(1, COMMITS_MAX))
                await doomed.died()
                await doomed.start()
                findings.kills += 1
            await campaign.has_fired_again()
            await campaign.check(findings)
    return findings


def _skewed(folder: Path, database_url: str) -> list[LiveServer]:
    """Two servers whose clocks are ahead and behind; none on SQLite, which one server owns."""
    if not database_url.startswith("postgres"):
        return []
    servers = []
    for skew_ms in SKEWS_MS:
        offset = folder / f"offset{skew_ms}"
        offset.write_text(str(skew_ms))
        command = (sys.executable, clock_skewed_server.__file__, str(offset))
        servers.append(server(folder, database_url, name=f"skewed{skew_ms}", command=command))
    return servers


async def _on(
    store: str, folder: Path, seed: int, schedules: int, kills: int, fires: int
) -> ScheduleFindings:
    dice = random.Random(seed)
    if store == "sqlite":
        url = f"sqlite:///{folder}/penstock.db"
        return await schedule_campaign(folder, url, dice, schedules=schedules, kills=kills, fires=fires)
    with postgres_server() as postgres:
        url = await create_database(postgres)
        migrate(folder, url)
        return await schedule_campaign(folder, url, dice, schedules=schedules, kills=kills, fires=fires)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.faults.schedule_campaign")
    parser.add_argument("--store", choices=("sqlite", "postgres"), default="postgres")
    parser.add_argument("--fires", type=int, default=10_000)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--schedules", type=int, default=50)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="penstock-schedules-"))
    found = asyncio.run(_on(given.store, folder, given.seed, given.schedules, given.kills, given.fires))
    print(f"{found.fires} fires, {found.kills} kills, {len(found.problems)} problems; logs in {folder}")
    print("\n".join(found.problems[:50]))
    sys.exit(bool(found.problems))


if __name__ == "__main__":
    main()
