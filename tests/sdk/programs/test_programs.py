"""Small programs of the kinds that people bring from Temporal run here, twice in a row, on both stores.

All programs of a store run side by side, on one server, with the same ids in both rounds. In the second round no run
is cached: every task replays its history.
"""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest

from penstock.worker import Worker
from tests.acceptance.cluster import Cluster
from tests.sdk.programs import carried, hello, messages, operations, patterns, runs
from tests.sdk.programs.program import PROGRAMS, Home, Program
from tests.sdk.server_fixtures import connected, new_namespace, serving
from tests.support.live import migrate, running, server
from tests.support.patience import PATIENCE_S
from tests.support.servers import Server, create_database, drop_database

SUBJECTS = (carried, hello, messages, operations, patterns, runs)
ROUNDS = {"first": 1000, "second": 0}
"""How many runs a worker keeps in memory, by round."""

Outcomes = Mapping[tuple[str, str], str]
"""The traceback of each program and round; empty if it went well."""


async def played(program: Program, home: Home) -> str:
    try:
        async with asyncio.timeout(PATIENCE_S):
            await program.play(home)
    except Exception:
        return traceback.format_exc()
    return ""


async def play_all(cluster: Cluster) -> Outcomes:
    scene = await new_namespace(cluster)
    workflows = {each for program in PROGRAMS.values() for each in program.workflows}
    activities = {each for program in PROGRAMS.values() for each in program.activities}
    outcomes: dict[tuple[str, str], str] = {}
    async with await connected(scene) as client:
        for number, cached in ROUNDS.items():
            async with Worker(
                client,
                task_queue="programs",
                workflows=sorted(workflows, key=lambda each: each.__name__),
                activities=list(activities),
                process_slots=1,
                max_cached_workflows=cached,
            ):
                stories = [played(each, Home(client, scene, each.name)) for each in PROGRAMS.values()]
                found = await asyncio.gather(*stories)
            outcomes |= {(name, number): trace for name, trace in zip(PROGRAMS, found, strict=True)}
    return outcomes


@asynccontextmanager
async def on_postgres(folder: Path, postgres: Server) -> AsyncIterator[Cluster]:
    url = await create_database(postgres)
    migrate(folder, url)
    made = server(folder, url)
    with running(made):
        async with aiohttp.ClientSession() as session:
            yield Cluster([made], session)
    await drop_database(postgres, url)


@pytest.fixture(scope="module", params=["sqlite", "postgres"])
async def outcomes(
    request: pytest.FixtureRequest, postgres: Server, tmp_path_factory: pytest.TempPathFactory
) -> Outcomes:
    folder = tmp_path_factory.mktemp("programs")
    made = serving(folder) if request.param == "sqlite" else on_postgres(folder, postgres)
    async with made as cluster:
        return await play_all(cluster)


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_runs_twice_in_a_row(name: str, outcomes: Outcomes) -> None:
    for number in ROUNDS:
        assert not outcomes[name, number], f"{number} time:\n{outcomes[name, number]}"
