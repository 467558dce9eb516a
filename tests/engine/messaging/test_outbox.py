"""The outbox: messages are recorded with their cause and delivered once, by any server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from penstock.core.history.commands import Command, StartChild
from penstock.core.model import ClosePolicy, OutboxKind, Run, RunId
from penstock.engine.context import EngineContext
from penstock.engine.maintenance.sweepers.pending_outbox import pending_outbox
from penstock.engine.workflows import outbox_relay, run_close
from penstock.engine.workflows.run_close import EndMode
from penstock.ports.store import Store, Tx
from penstock.settings import load
from penstock.stores.postgres.schema import migrate
from penstock.stores.postgres.store import PostgresStore
from penstock.stores.sqlite.store import SqliteStore
from penstock.wakeups.local import LocalWakeups
from tests.engine.support.scene import DONE, NOTHING, WORKFLOW, Scene, a_poll
from tests.support.builders import NOW_MS, a_letter
from tests.support.claims import leased_of
from tests.support.clock import ManualClock
from tests.support.entropy import CountingEntropy

CHILDREN = 12


async def a_message_to_its_parent(scene: Scene) -> tuple[Run, str]:
    """A waiting parent, and the outbox message of its closed child."""
    parent = await scene.start()
    await scene.decide(StartChild("Ship", None, NOTHING))
    await scene.decide(DONE)
    [message] = scene.tables.outbox.values()
    return parent, message.message_id


async def test_a_message_is_recorded_with_its_cause_and_notifies_the_relay(scene: Scene):
    notified = asyncio.Event()
    scene.wakeups.listen("outbox", notified.set)
    parent, message_id = await a_message_to_its_parent(scene)
    assert notified.is_set()
    assert scene.tables.outbox[message_id].run_id == parent.run_id
    assert (await scene.types(parent.run_id))[-1] == "ChildRunStarted", "nothing has reached the parent yet"


async def test_a_message_takes_effect_once(scene: Scene):
    parent, message_id = await a_message_to_its_parent(scene)
    assert await outbox_relay.deliver(scene.ctx, message_id)
    assert not await outbox_relay.deliver(scene.ctx, message_id)
    assert (await scene.types(parent.run_id)).count("ChildRunCompleted") == 1
    assert scene.tables.outbox == {}


async def test_a_message_to_a_run_that_does_not_exist_is_discarded(scene: Scene):
    async def write(tx: Tx) -> None:
        for number, kind in enumerate(OutboxKind):
            run_id = RunId("nobody") if kind in (OutboxKind.CHILD_ENDED, OutboxKind.CHILD_STARTED) else ""
            payload = (
                '{"step":1,"type":"ChildRunCompleted","payload":{},"reason":"x","parent_run_id":"p",'
                '"sender_run_id":"nobody","sender_workflow_id":"nobody","status":"failed","closed_reason":"failed",'
                '"fire":{"schedule_key":"nobody","nominal_at_ms":1,"kind":"scheduled"}}'
            )
            message = a_letter(f"l{number}", workflow_id="nobody", run_id=run_id, kind=kind, payload=payload)
            tx.outbox.insert(message)

    await scene.ctx.store.transact(write, key="outbox")
    await pending_outbox(scene.ctx).sweep()
    await pending_outbox(scene.ctx).sweep()
    assert scene.tables.outbox == {}, "neither a message nor an answer is left"


async def test_a_request_to_end_reaches_a_child_once(scene: Scene):
    await scene.start()
    await scene.decide(StartChild("Ship", None, NOTHING, "ship-1", policy=ClosePolicy.REQUEST_CANCEL))
    await run_close.end_run(scene.ctx, "default", "order-1", EndMode.CANCEL, None)
    [message] = scene.tables.outbox.values()
    await outbox_relay.deliver(scene.ctx, message.message_id)
    child = scene.tables.instances["default", "ship-1"].run_id
    before = await scene.types(child)
    assert before[-1] == "WorkflowCancelled"
    assert not await outbox_relay.deliver(scene.ctx, message.message_id)
    assert await scene.types(child) == before


async def test_a_child_that_has_ended_already_is_left_alone(scene: Scene):
    await scene.start()
    await scene.decide(StartChild("Ship", None, NOTHING, "ship-1", policy=ClosePolicy.TERMINATE))
    await run_close.end_run(scene.ctx, "default", "order-1", EndMode.CANCEL, None)
    await scene.decide(DONE)
    await pending_outbox(scene.ctx).sweep()
    child = scene.tables.instances["default", "ship-1"].run_id
    assert await scene.types(child) == ["WorkflowStarted", "WorkflowCompleted"]
    assert scene.tables.outbox == {}


# ── Two servers ─────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture(params=["sqlite", "postgres"])
def address(request: pytest.FixtureRequest, tmp_path: Path) -> str | Path:
    """The database of both servers: a file, or a PostgreSQL database of the test's own."""
    if request.param == "sqlite":
        return tmp_path / "penstock.db"
    url: str = request.getfixturevalue("postgres_url")
    return url


@pytest.fixture
async def stores(address: str | Path) -> AsyncIterator[list[Store]]:
    """The stores of two servers: one shared, or two on one database."""
    clock, wakeups = ManualClock(NOW_MS), LocalWakeups()
    opened: list[Store]
    match address:
        case Path():
            opened = [await SqliteStore.open(address, clock, wakeups)] * 2
        case str():
            await migrate(address)
            opened = [await PostgresStore.open(address, LocalWakeups()) for _ in range(2)]
    yield opened
    for store in set(opened):
        await store.close()


async def test_two_servers_that_relay_the_same_messages_deliver_each_once(stores: list[Store]):
    """Many children close together while two servers relay the outbox."""
    entropy, given = CountingEntropy(), load({"DW_AUTH_DRIVER": "none"})
    houses = [EngineContext(store, LocalWakeups(), entropy, given) for store in stores]
    scene = Scene(houses[0], ManualClock(NOW_MS), LocalWakeups())
    await scene.register("w1")
    parent = await scene.start()

    async def decide(*commands: Command) -> None:
        [verdict] = await scene.ask(a_poll(WORKFLOW, "w1"))
        await scene.complete(leased_of(verdict)[0], *commands)

    await decide(*[StartChild("Ship", None, NOTHING) for _ in range(CHILDREN)])
    for _ in range(CHILDREN):
        await decide(DONE)
    messages = await scene.read(lambda tx: tx.outbox.waiting(100))
    assert len(messages) == CHILDREN
    reported = await asyncio.gather(
        *(outbox_relay.deliver(ctx, message) for message in messages for ctx in (*houses, *houses))
    )
    assert sum(reported) == CHILDREN
    types = await scene.types(parent.run_id)
    assert types.count("ChildRunCompleted") == CHILDREN
    assert await scene.read(lambda tx: tx.outbox.waiting(100)) == []
    stored = await scene.read(lambda tx: tx.runs.get(parent.run_id))
    assert stored is not None
    assert (stored.open_children, stored.last_sequence) == (0, len(types))
    await decide(DONE)
