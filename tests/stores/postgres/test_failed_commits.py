"""A failed group commit on PostgreSQL: nothing of it is cached, and each caller gets its own error."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

import pytest

from penstock.core.model import Blob, TaskKind
from penstock.core.scheduling.polls import Poll
from penstock.engine.context import EngineContext
from penstock.engine.matching.dispatcher import Dispatcher
from penstock.engine.workers import worker_registry
from penstock.engine.workers.worker_registry import Registration
from penstock.engine.workflows import starts
from penstock.engine.workflows.starts import Start
from penstock.errors import Reason, Unavailable
from penstock.ports.store import Tx
from penstock.settings import load
from penstock.stores.group_commit import CommitPoint
from penstock.stores.postgres.pipeline import PipelinedConnection, PipelinedTransport
from penstock.stores.postgres.schema import migrate
from penstock.stores.postgres.store import PostgresStore
from penstock.system_clock import SystemEntropy
from penstock.wakeups.local import LocalWakeups
from tests.support.builders import a_run


class Node:
    """One server's store and engine; the network to its database can be cut at the next commit."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.wakeups = LocalWakeups()
        self.store: PostgresStore
        self._at_commit: Callable[[PipelinedConnection], None] | None = None

    async def open(self, url: str) -> Node:
        self.store = await PostgresStore.open(url, self.wakeups, node=self.name, on_commit=self._on_moment)
        return self

    @property
    def ctx(self) -> EngineContext:
        return EngineContext(self.store, self.wakeups, SystemEntropy(), load({"DW_AUTH_DRIVER": "none"}))

    def cut_at_next_commit(self) -> None:
        """The next commit is sent and does not arrive; the connection breaks instead."""
        self._at_commit = lambda connection: _lose_what_is_sent(connection._pipelined_transport)

    def cut_before_next_commit(self) -> None:
        """The connection breaks before the next commit is sent."""
        self._at_commit = PipelinedConnection.terminate

    def _on_moment(self, moment: CommitPoint, _keys: Sequence[str]) -> None:
        if self._at_commit is not None and moment is CommitPoint.BEFORE_COMMIT:
            cut, self._at_commit = self._at_commit, None
            for line in self.store._work:
                if line._connection is not None:
                    cut(line._connection)

    async def start(self, workflow_id: str, task_queue: str) -> str:
        request = Start("default", "Order", task_queue, Blob(""), workflow_id=workflow_id)
        return (await starts.start_workflow(self.ctx, request)).run.workflow_id

    async def poll(self, task_queue: str) -> list[str]:
        """The tasks that a worker of this server gets without waiting."""
        await worker_registry.register(self.ctx, Registration("default", self.name, task_queue, "python"))
        dispatcher = Dispatcher(self.ctx)
        try:
            answer = await dispatcher.poll(Poll("default", self.name, task_queue, TaskKind.WORKFLOW), 0)
        finally:
            await dispatcher.close()
        return [leased.run.workflow_id for leased in answer.leased]


class _BrokenTransport:
    """Drops everything that is written, and closes the connection."""

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def write(self, _: object) -> None:
        self._transport.abort()


def _lose_what_is_sent(wire: PipelinedTransport) -> None:
    wire._transport = _BrokenTransport(wire._transport)  # type: ignore[assignment]
    wire.write = wire._transport.write


@pytest.fixture
async def nodes(postgres_url: str) -> AsyncIterator[tuple[Node, Node]]:
    """Two servers on one database."""
    await migrate(postgres_url)
    opened = await Node("one").open(postgres_url), await Node("two").open(postgres_url)
    yield opened
    for node in opened:
        await node.store.close()


@pytest.mark.parametrize("reader", [0, 1], ids=["the same node", "another node"])
async def test_a_start_after_one_whose_commit_failed_is_leased_on_every_node(
    nodes: tuple[Node, Node], reader: int
):
    node = nodes[0]
    node.cut_at_next_commit()
    with pytest.raises(Unavailable) as refused:
        await node.start("order-1", "fresh")
    assert refused.value.reason is Reason.OUTCOME_UNKNOWN
    await node.start("order-2", "fresh")
    assert await nodes[reader].poll("fresh") == ["order-2"]


async def test_a_start_whose_connection_broke_before_its_commit_was_sent_is_made_on_another(
    nodes: tuple[Node, Node],
):
    node = nodes[0]
    node.cut_before_next_commit()
    assert await node.start("order-1", "fresh") == "order-1"
    assert await nodes[1].poll("fresh") == ["order-1"]


async def test_a_queue_made_in_a_group_that_failed_is_not_remembered(nodes: tuple[Node, Node]):
    node = nodes[0]
    node.cut_at_next_commit()
    with pytest.raises(Unavailable):
        await node.start("order-1", "fresh")
    assert node.store._immutable.queues == {}


async def test_a_start_whose_queue_is_known_from_a_commit_that_failed_is_not_lost_in_a_group(
    nodes: tuple[Node, Node],
):
    """Several at once, so that they share a commit, on new queues."""
    node = nodes[0]
    node.cut_at_next_commit()
    await asyncio.gather(*(node.start(f"first-{n}", f"q{n}") for n in range(6)), return_exceptions=True)
    await asyncio.gather(*(node.start(f"second-{n}", f"q{n}") for n in range(6)))
    for n in range(6):
        got = [*await nodes[1].poll(f"q{n}"), *await nodes[1].poll(f"q{n}")]
        assert f"second-{n}" in got


async def test_callers_whose_group_failed_are_each_told_by_a_refusal_of_their_own(nodes: tuple[Node, Node]):
    """Details that one of them adds to its error must not reach the others."""
    node = nodes[0]
    keys = [f"r{n}" for n in range(20)]

    async def insert(key: str) -> None:
        async def operation(tx: Tx) -> None:
            tx.runs.insert(a_run(key, workflow_id=key))

        try:
            await node.store.transact(operation, key=key)
        except Unavailable as refusal:
            refusal.details = {**refusal.details, "secret_of": key}
            raise

    node.cut_at_next_commit()
    outcomes = await asyncio.gather(*(insert(key) for key in keys), return_exceptions=True)
    refusals = {
        key: outcome for key, outcome in zip(keys, outcomes, strict=True) if isinstance(outcome, Unavailable)
    }
    assert len(refusals) > 1, "one group failed"
    assert {key: refusal.details["secret_of"] for key, refusal in refusals.items()} == {
        key: key for key in refusals
    }
