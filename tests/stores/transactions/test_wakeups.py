"""Topics are notified after the commit, and only then."""

from __future__ import annotations

import asyncio

import pytest

from penstock.core.model import RunId
from penstock.errors import Conflict, Reason
from penstock.ports.store import Store, Tx
from penstock.wakeups.local import LocalWakeups
from tests.stores.store_operations import record
from tests.support.builders import a_run
from tests.support.patience import PATIENCE_S


class Listener:
    """Records the notified topics, in order."""

    def __init__(self, wakeups: LocalWakeups, *topics: str) -> None:
        self.heard: list[str] = []
        self._changed = asyncio.Event()
        for topic in topics:
            wakeups.listen(topic, lambda topic=topic: self._hear(topic))  # type: ignore[misc]

    def _hear(self, topic: str) -> None:
        self.heard.append(topic)
        self._changed.set()

    async def until(self, topic: str) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while topic not in self.heard:
                self._changed.clear()
                await self._changed.wait()


async def test_a_bell_rings_when_the_operation_is_committed(store: Store, wakeups: LocalWakeups):
    listener = Listener(wakeups, "run:r1", "run:r2")
    heard_inside: list[str] = []

    async def operation(tx: Tx) -> None:
        tx.wake("run:r1")
        await tx.runs.get(RunId("r1"))
        heard_inside.extend(listener.heard)

    await store.transact(operation, key="r1")
    await listener.until("run:r1")
    assert heard_inside == []
    assert set(listener.heard) == {"run:r1"}


async def test_whoever_is_woken_sees_what_was_committed(store: Store, wakeups: LocalWakeups):
    woken = asyncio.Event()
    wakeups.listen("run:r1", woken.set)

    def write(tx: Tx) -> None:
        tx.wake("run:r1")
        tx.runs.insert(a_run())

    async def look_when_woken() -> bool:
        async with asyncio.timeout(PATIENCE_S):
            await woken.wait()
        return await store.read(lambda tx: tx.runs.get(RunId("r1"))) is not None

    watcher = asyncio.create_task(look_when_woken())
    await record(store, write)
    assert await watcher


async def test_an_operation_that_refuses_wakes_nobody(store: Store, wakeups: LocalWakeups):
    listener = Listener(wakeups, "run:r1", "run:r2")

    async def refuse(tx: Tx) -> None:
        tx.wake("run:r1")
        raise Conflict(Reason.RUN_NOT_ACTIVE, "not now")

    with pytest.raises(Conflict):
        await store.transact(refuse, key="r1")
    await record(store, lambda tx: tx.wake("run:r2"))
    await listener.until("run:r2")
    assert "run:r1" not in listener.heard


async def test_a_bell_rings_for_each_of_many_operations_that_go_together(store: Store, wakeups: LocalWakeups):
    topics = [f"run:r{n}" for n in range(30)]
    listener = Listener(wakeups, *topics)
    await asyncio.gather(
        *(record(store, lambda tx, topic=topic: tx.wake(topic), key=topic) for topic in topics)  # type: ignore[misc]
    )
    for topic in topics:
        await listener.until(topic)
