"""A worker with the addresses of two servers continues with the second if the first freezes; nothing starts twice."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from penstock.sdk import activity
from penstock.sdk.clients.client import Client
from penstock.sdk.connection.liveness import PROBE_SECONDS, UNANSWERED_SECONDS
from penstock.sdk.worker import Worker
from penstock.stores.group_commit import CommitPoint
from tests.faults.deadlines import until
from tests.faults.servers import Doomed, serving
from tests.sdk.server_fixtures import OPERATOR, WORKER
from tests.support.lag import Lag
from tests.support.patience import PATIENCE_S

pytestmark = pytest.mark.faults

CONTINUES_S = UNANSWERED_SECONDS + PROBE_SECONDS + 2.0
LEASE_S = 120
"""Longer than a test, so that work continues only because the worker left the frozen server."""
START_TO_CLOSE = timedelta(seconds=PATIENCE_S)


@dataclass
class Steps:
    """The steps that the worker started; those named `held…` end once `may_end` is set."""

    started: list[tuple[str, int]] = field(default_factory=list)
    may_end: asyncio.Event = field(default_factory=asyncio.Event)

    @activity.defn(name="step")
    async def step(self, name: str) -> str:
        self.started.append((name, activity.info().attempt))
        if name.startswith("held"):
            await self.may_end.wait()
        return name


@dataclass
class Scene:
    first: Doomed
    second: Doomed
    client: Client
    """Connected to the second server only."""
    steps: Steps

    async def start(self, name: str) -> asyncio.Task[str]:
        handle = await self.client.start_activity(
            "step", name, id=name, task_queue="q", start_to_close_timeout=START_TO_CLOSE
        )
        return asyncio.create_task(handle.result())

    async def run(self, name: str) -> None:
        assert await (await self.start(name)) == name


@asynccontextmanager
async def a_scene(folder: Path, database: str) -> AsyncIterator[Scene]:
    servers = [Doomed(folder, database, name=name, lease_s=LEASE_S) for name in ("first", "second")]
    first, second = servers
    steps = Steps()
    tokens: dict[str, Any] = {"control_token": OPERATOR, "worker_token": WORKER}
    async with (
        asyncio.timeout(PATIENCE_S),
        serving(*servers),
        await Client.connect(second.url, **tokens) as client,
        await Client.connect([first.url, second.url], **tokens) as both,
        Worker(both, task_queue="q", activities=[steps.step], max_concurrent_activity_tasks=4),
    ):
        scene = Scene(first, second, client, steps)
        await scene.run("before")
        assert both.transport.url == first.url  # type: ignore[attr-defined]
        try:
            yield scene
        finally:
            first.thaw()


async def test_a_worker_continues_with_the_second_server_if_the_first_freezes(
    tmp_path: Path, postgres_database: str
) -> None:
    async with a_scene(tmp_path, postgres_database) as scene:
        held = await scene.start("held")
        await until("the step runs", lambda: ("held", 1) in scene.steps.started)
        with Lag() as lag:
            scene.first.send(signal.SIGSTOP)
            frozen_at = time.monotonic()
            scene.steps.may_end.set()  # its report goes to the frozen server
            await asyncio.gather(scene.run("after"), held)
            took_s = time.monotonic() - frozen_at - lag.between(frozen_at, time.monotonic())
        assert took_s <= CONTINUES_S
        assert scene.steps.started == [("before", 1), ("held", 1), ("after", 1)]


async def test_a_task_that_the_frozen_server_leased_to_the_poll_starts_once(
    tmp_path: Path, postgres_database: str
) -> None:
    """It freezes between the commit of the claim and the response; when it resumes, it returns the task."""
    async with a_scene(tmp_path, postgres_database) as scene:
        scene.first.freeze_at(CommitPoint.AFTER_COMMIT)
        claimed = await scene.start("claimed")
        await scene.first.frozen()
        await scene.run("after")
        assert not claimed.done()
        scene.first.thaw()
        assert await claimed == "claimed"
        assert scene.steps.started == [("before", 1), ("after", 1), ("claimed", 1)]
