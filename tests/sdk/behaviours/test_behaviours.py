"""Every behaviour of workflows, on both stores, with cached runs, without a cache, and with workers that die."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from penstock.sdk.clients.client import Client
from penstock.sdk.clients.handles import WorkflowHandle
from penstock.sdk.replay.replayer import History
from tests.acceptance.cluster import Cluster
from tests.sdk.behaviours.every import WORKFLOWS, mortal_worker, worker
from tests.sdk.behaviours.history_replay import Retracer
from tests.sdk.behaviours.scene import BEHAVIOURS, Behaviour, Scene
from tests.sdk.server_fixtures import connected, new_namespace
from tests.support.live import migrate, running, server
from tests.support.patience import PATIENCE_S
from tests.support.servers import Server, create_database, drop_database

SHORT_LEASES = {
    "DW_WORKFLOW_TASK_TIMEOUT": "2",
    "DW_ACTIVITY_TASK_TIMEOUT": "2",
    "DW_QUERY_TASK_TIMEOUT": "5",
    "DW_WORKER_STALE_AFTER_SECONDS": "5",
}
"""Leases of a dead worker expire soon."""
DEATHS = 4
QUEUE = "behaviours"
RETRACER = Retracer(WORKFLOWS)
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module", params=["sqlite", "postgres"])
async def cluster(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, postgres: Server
) -> AsyncIterator[Cluster]:
    folder = tmp_path_factory.mktemp(request.param)
    async with _database(request.param, folder, postgres) as url:
        made = server(folder, url, settings=SHORT_LEASES)
        with running(made):
            async with aiohttp.ClientSession() as session:
                yield Cluster([made], session)


@asynccontextmanager
async def _database(store: str, folder: Path, postgres: Server) -> AsyncIterator[str]:
    if store == "sqlite":
        yield f"sqlite:///{folder}/penstock.db"
        return
    url = await create_database(postgres)
    try:
        migrate(folder, url)
        yield url
    finally:
        await drop_database(postgres, url)


@asynccontextmanager
async def _worker(manner: str, client: Client, url: str, folder: Path) -> AsyncIterator[None]:
    if manner == "killed":
        seed = random.randrange(10**6)
        print(f"the worker dies by dice {seed}")
        log = folder / "worker.log"
        async with mortal_worker(url, client.namespace, QUEUE, log, deaths=DEATHS, dice=random.Random(seed)):
            yield
        return
    async with worker(client, QUEUE, cached=1000 if manner == "cached" else 0):
        yield


@pytest.mark.parametrize("manner", ["cached", "uncached", "killed"])
async def test_every_behaviour_holds_and_its_history_can_be_retraced(
    cluster: Cluster, manner: str, tmp_path: Path
) -> None:
    place = await new_namespace(cluster)
    async with await connected(place) as client, _worker(manner, client, cluster.first.url, tmp_path):
        scenes = [Scene(client, QUEUE, tmp_path, manner == "killed") for _ in BEHAVIOURS]
        found = await asyncio.gather(
            *(_show(each, scene) for each, scene in zip(BEHAVIOURS, scenes, strict=True))
        )
        problems = [each for each in found if each is not None]
        histories = {
            each.sentence: await _histories(scene) for each, scene in zip(BEHAVIOURS, scenes, strict=True)
        }
    for sentence, recorded in histories.items():
        problems += [problem for each in recorded if (problem := _retrace(sentence, each)) is not None]
    assert not problems, "\n\n".join(problems)


async def _show(each: Behaviour, scene: Scene) -> str | None:
    """Run a behaviour and return what went wrong, if anything."""
    began = time.monotonic()
    try:
        async with asyncio.timeout(PATIENCE_S):
            await each.script(scene)
    except Exception as error:
        took = time.monotonic() - began
        shown = [_shown((await handle.fetch_history()).events) for handle in scene.handles]
        return "\n  ".join([f"{each.sentence} ({took:.1f} s): {type(error).__name__}: {error}", *shown])
    return None


def _shown(events: Sequence[Mapping[str, Any]]) -> str:
    return " ".join(f"{event['sequence']}:{event['event_type']}" for event in events)


async def _histories(scene: Scene) -> list[History]:
    """The histories of all workflows of a behaviour, including the runs that they continued from."""
    found = []
    for handle in scene.handles:
        described = await handle.describe()
        run_id: str | None = described.run_id
        while run_id is not None:
            run: WorkflowHandle[Any] = scene.client.get_workflow_handle(handle.id, run_id=run_id)
            of_run = await run.describe()
            events = (await run.fetch_history()).events
            about = {"namespace": of_run.namespace, "priority_key": of_run.priority_key}
            found.append(History.read(about | {"events": events, "fairness_key": of_run.fairness_key}))
            run_id = of_run.continued_from_run_id
    return found


def _retrace(sentence: str, history: History) -> str | None:
    try:
        RETRACER.check(history)
    except Exception as error:
        shown = _shown(history.events)
        return f"{sentence}: history of {history.type}: {type(error).__name__}: {error}\n  {shown}"
    return None


def test_there_are_many_behaviours_and_each_is_a_sentence_of_its_own() -> None:
    sentences = [each.sentence for each in BEHAVIOURS]
    assert len(sentences) == len(set(sentences)) >= 40
