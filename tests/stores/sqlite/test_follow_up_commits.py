"""Follow-up operations on SQLite: a claim that a start wakes is committed in the same transaction."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from penstock.core.model import Blob, RunId, TaskKind
from penstock.core.scheduling.polls import Poll
from penstock.engine.context import EngineContext
from penstock.engine.matching.dispatcher import Dispatcher, PollAnswer
from penstock.engine.workers import worker_registry
from penstock.engine.workers.worker_registry import Registration
from penstock.engine.workflows import starts
from penstock.engine.workflows.starts import Start
from penstock.errors import Unavailable
from penstock.ports.store import Tx
from penstock.settings import load
from penstock.stores.group_commit import CommitPoint
from penstock.stores.sqlite import connections
from penstock.stores.sqlite.store import SqliteStore
from penstock.system_clock import SystemEntropy
from penstock.wakeups.local import LocalWakeups
from tests.support.builders import NOW_MS, a_run, an_event
from tests.support.clock import ManualClock

DRIVER: Any = vars(connections)["sqlite3"]


class Disk:
    """Counts commits, and fails one on request."""

    def __init__(self) -> None:
        self.commits = 0
        self.fails = False

    def __call__(self, moment: CommitPoint, _keys: Sequence[str]) -> None:
        if moment is CommitPoint.BEFORE_COMMIT:
            self.commits += 1
            if self.fails:
                self.fails = False
                raise DRIVER.OperationalError("disk I/O error")


class Node:
    """A store with a dispatcher at which one worker polls."""

    def __init__(self, store: SqliteStore, wakeups: LocalWakeups, disk: Disk) -> None:
        self.store, self.wakeups, self.disk = store, wakeups, disk
        self.ctx = EngineContext(store, wakeups, SystemEntropy(), load({"DW_AUTH_DRIVER": "none"}))
        self.dispatcher = Dispatcher(self.ctx)

    async def start(self, workflow_id: str) -> None:
        request = Start("default", "Order", "orders", Blob(""), workflow_id=workflow_id)
        await starts.start_workflow(self.ctx, request)

    async def waiting(self) -> asyncio.Task[PollAnswer]:
        """A poll that found no task and waits."""
        await worker_registry.register(self.ctx, Registration("default", "w1", "orders", "python"))
        poll = Poll("default", "w1", "orders", TaskKind.WORKFLOW)
        task = asyncio.create_task(self.dispatcher.poll(poll, 60_000))
        while not any(each.waiters for each in self.dispatcher._queues.values()):
            await asyncio.sleep(0)
        while self.dispatcher._tasks:
            await asyncio.wait(set(self.dispatcher._tasks))
        return task

    async def is_there(self, name: str) -> bool:
        return await self.store.read(lambda tx: tx.runs.get(RunId(name))) is not None


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[Node]:
    wakeups, disk = LocalWakeups(), Disk()
    store = await SqliteStore.open(tmp_path / "penstock.db", ManualClock(NOW_MS), wakeups, on_commit=disk)
    opened = Node(store, wakeups, disk)
    yield opened
    await opened.dispatcher.close()
    await store.close()


def names(answer: PollAnswer) -> list[str]:
    return [leased.run.workflow_id for leased in answer.leased]


async def test_the_claim_of_a_poll_that_waits_is_committed_with_the_start_that_wakes_it(node: Node):
    poll = await node.waiting()
    before = node.disk.commits
    await node.start("order-1")
    assert names(await poll) == ["order-1"]
    assert node.disk.commits == before + 1


async def test_a_commit_that_fails_takes_back_the_start_and_its_claim(node: Node):
    poll = await node.waiting()
    node.disk.fails = True
    with pytest.raises(Unavailable):
        await node.start("order-1")
    with pytest.raises(Unavailable):
        await poll
    again = await node.waiting()
    await node.start("order-1")
    answer = await again
    assert [(leased.run.workflow_id, leased.task.attempt) for leased in answer.leased] == [("order-1", 1)]


async def test_a_follower_that_fails_halfway_leaves_what_it_followed(node: Node):
    followers: list[asyncio.Future[None]] = []

    async def halfway(tx: Tx) -> None:
        assert await tx.runs.get(RunId("first")) is not None, "it comes behind what gave it a reason"
        tx.runs.insert(a_run("follower", workflow_id="follower"))
        tx.histories.append([an_event("follower", 1), an_event("follower", 1)])

    def follow() -> None:
        followers.append(asyncio.ensure_future(node.store.transact(halfway, key="follower")))

    async def first(tx: Tx) -> None:
        tx.runs.insert(a_run("first", workflow_id="first"))
        tx.wake("queue:1")

    node.wakeups.listen("queue:1", follow, before_commit=True)
    await node.store.transact(first, key="first")
    with pytest.raises(DRIVER.IntegrityError):
        await followers[0]
    assert len(followers) == 1
    assert [await node.is_there(name) for name in ("first", "follower")] == [True, False]


async def test_a_bell_of_a_group_that_ran_twice_is_heard_though_it_was_foretold_for_the_group_before(
    node: Node,
):
    heard: list[str] = []
    node.wakeups.listen("queue:1", lambda: heard.append("rang"), before_commit=True)

    async def wake(tx: Tx) -> None:
        tx.wake("queue:1")

    async def halfway(tx: Tx) -> None:
        tx.histories.append([an_event("nobody", 1), an_event("nobody", 1)])

    await node.store.transact(wake, key="wake")
    assert heard == ["rang"]
    both = (node.store.transact(each, key=each.__name__) for each in (halfway, wake))
    await asyncio.gather(*both, return_exceptions=True)
    assert heard == ["rang"] * 2
