"""Messages: each has one position in its stream, is delivered once, and moves to the successor run."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from penstock.core import payload_codec
from penstock.core.history.commands import ContinueAsNew, FailWorkflow, OpenConditionWait, StartTimer
from penstock.core.history.events import MESSAGE_STREAM_SIGNAL
from penstock.core.messaging.messages import REMEMBERED, Cursor
from penstock.core.model import Run
from penstock.core.scheduling.polls import Leased
from penstock.engine.messaging import messages
from penstock.engine.messaging.messages import MessageReceipt, OutgoingMessage
from penstock.engine.runs.address import Address
from penstock.errors import Conflict, InvalidInput, NotFound, Reason
from tests.engine.support import direct
from tests.engine.support.scene import DONE, NOTHING, WORKFLOW, Scene, of

AGAIN = ContinueAsNew(NOTHING)


def awaits(position: int = 0, stream: str = "orders") -> OpenConditionWait:
    """The code waits for the message after a position."""
    return OpenConditionWait(f"message-stream:{stream}:{position}")


async def send(scene: Scene, message_id: str, *values: Any, stream: str = "orders") -> MessageReceipt:
    content = payload_codec.encode([*values])
    return await messages.send(
        scene.ctx, OutgoingMessage(Address("default", "order-1"), stream, message_id, content)
    )


async def complete(scene: Scene, leased: Leased, *commands: Any, read: int = 0) -> None:
    cursors = [Cursor("orders", read)] if read else []
    task_id = leased.task.task_id
    await direct.complete_workflow_task(scene.ctx, "default", task_id, of(leased), commands, cursors)


async def stream_events(scene: Scene, run: Run) -> list[Any]:
    """The stream events of a run: positions of delivered messages, and read positions."""
    found: list[Any] = []
    for event in await scene.events(run.run_id):
        payload = await scene.payload(run.run_id, event.sequence - 1)
        if payload.get("signal_name") == MESSAGE_STREAM_SIGNAL:
            arguments: Any = payload_codec.decode(payload["arguments"])
            details = arguments[0]
            found.append(details.get("position") or {"read": details["through_position"]})
    return found


def current(scene: Scene) -> Run:
    return scene.run(scene.tables.instances["default", "order-1"].run_id)


async def test_a_message_reaches_the_code_as_a_signal_that_wraps_it(scene: Scene):
    run = await scene.start()
    await scene.decide(awaits())
    sent = await send(scene, "m1", "hallo", 7)
    assert (sent.position, sent.repeated) == (1, False)
    payload = await scene.payload(run.run_id, -1)
    assert payload["signal_name"] == MESSAGE_STREAM_SIGNAL
    assert payload_codec.decode(payload["arguments"]) == [
        {
            "schema": "durable-workflow.v2.message-stream.message",
            "stream_name": "orders",
            "message_id": "m1",
            "position": 1,
            "payload_envelope": {"codec": "avro", "blob": payload_codec.encode(["hallo", 7])},
        }
    ]
    assert scene.live(run.run_id), "the code that waits is woken"


async def test_a_message_is_delivered_when_the_code_it_waits_for_its_stream_and_not_before(scene: Scene):
    run = await scene.start()
    await send(scene, "m1")
    assert await stream_events(scene, run) == [], "its first task is not done"
    await scene.decide(StartTimer(0))
    await send(scene, "m2")
    assert await stream_events(scene, run) == [], "it waits for a timer"
    await scene.advance(1)
    await scene.decide(awaits(stream="others"))
    await send(scene, "m3")
    assert await stream_events(scene, run) == [], "it waits for others"
    assert not scene.live(run.run_id), "and is not disturbed"
    await send(scene, "m1", stream="others")
    await complete(scene, await scene.take(WORKFLOW), awaits())
    assert await stream_events(scene, run) == [1, 1, 2, 3]
    await send(scene, "m4")
    assert await stream_events(scene, run) == [1, 1, 2, 3, 4]


async def test_the_messages_come_after_the_wait_that_they_end(scene: Scene):
    run = await scene.start()
    await send(scene, "m1")
    await scene.decide(awaits())
    assert await scene.types(run.run_id) == ["WorkflowStarted", "ConditionWaitOpened", "SignalReceived"]
    assert scene.live(run.run_id), "the code is woken"
    assert scene.run(run.run_id).unseen_signals == 1


async def test_positions_are_dense_in_each_stream_however_many_send_at_once(scene: Scene):
    run = await scene.start()
    sent = await asyncio.gather(*(send(scene, f"m{n}", stream=f"s{n % 2}") for n in range(20)))
    assert sorted(each.position for each in sent) == sorted([*range(1, 11)] * 2)
    streams = await scene.read(lambda tx: tx.messages.streams_of(run.run_id))
    assert [(stream.name, stream.last_position) for stream in streams] == [("s0", 10), ("s1", 10)]


async def test_a_message_that_is_sent_again_has_its_first_place_and_no_second_effect(scene: Scene):
    run = await scene.start()
    await scene.decide(awaits())
    await send(scene, "m1", 1)
    await send(scene, "m2", 2)
    again = await send(scene, "m1", 1)
    assert (again.position, again.repeated) == (1, True)
    assert await stream_events(scene, run) == [1, 2]


async def test_another_message_under_a_known_id_is_refused(scene: Scene):
    await scene.start()
    await send(scene, "m1", 1)
    with pytest.raises(Conflict) as refused:
        await send(scene, "m1", 2)
    assert refused.value.reason is Reason.REQUEST_ID_CONFLICT
    assert (await send(scene, "m1", 2, stream="elsewhere")).position == 1


async def test_a_closed_run_takes_no_message_but_knows_those_it_had(scene: Scene):
    await scene.start()
    await send(scene, "m1", 1)
    await scene.decide(DONE)
    assert (await send(scene, "m1", 1)).repeated
    with pytest.raises(Conflict) as refused:
        await send(scene, "m2", 2)
    assert refused.value.reason is Reason.RUN_NOT_ACTIVE


async def test_nobody_sends_messages_to_a_workflow_that_is_not_there(scene: Scene):
    with pytest.raises(NotFound) as refused:
        await send(scene, "m1")
    assert refused.value.reason is Reason.INSTANCE_NOT_FOUND


async def test_messages_that_come_while_a_task_is_leased_wait_for_its_end(scene: Scene):
    run = await scene.start()
    await scene.decide(awaits())
    await send(scene, "m1")
    leased = await scene.take(WORKFLOW)
    await send(scene, "m2")
    assert await stream_events(scene, run) == [1]
    await complete(scene, leased, awaits(1), read=1)
    assert await stream_events(scene, run) == [1, 2]
    assert scene.live(run.run_id)


async def test_what_was_read_stays_read_and_nobody_reads_what_was_not_sent(scene: Scene):
    run = await scene.start()
    for n in (1, 2, 3):
        await send(scene, f"m{n}", n)

    async def read() -> int:
        [stream] = await scene.read(lambda tx: tx.messages.streams_of(run.run_id))
        return stream.through_position

    for delivered_position, kept in ((2, 2), (1, 2), (99, 3)):
        await complete(scene, await scene.take(WORKFLOW), StartTimer(0), read=delivered_position)
        assert await read() == kept
        await scene.advance(1)


async def test_the_next_run_learns_how_far_was_read_and_what_was_not_when_it_waits(scene: Scene):
    await scene.start()
    for n in (1, 2, 3):
        await send(scene, f"m{n}", n)
    await complete(scene, await scene.take(WORKFLOW), AGAIN, read=2)
    after = current(scene)
    assert await stream_events(scene, after) == [{"read": 2}]
    assert await scene.types(after.run_id) == ["WorkflowStarted", "SignalReceived"]
    assert (await send(scene, "m4", 4)).position == 4
    assert (await send(scene, "m1", 1)).repeated
    await scene.decide(awaits(2))
    assert await stream_events(scene, after) == [{"read": 2}, 3, 4]


async def test_a_message_that_came_during_the_last_task_reaches_the_next_run_once(scene: Scene):
    await scene.start()
    await scene.decide(awaits())
    await send(scene, "m1", 1)
    leased = await scene.take(WORKFLOW)
    await send(scene, "m2", 2)
    await complete(scene, leased, AGAIN, read=1)
    await scene.decide(awaits(1))
    assert await stream_events(scene, current(scene)) == [{"read": 1}, 2]


async def test_a_chain_of_runs_reads_each_message_once(scene: Scene):
    await scene.start()
    for n in range(1, 6):
        await send(scene, f"m{n}", n)
    for n in range(1, 6):
        await scene.decide(awaits(n - 1))
        before = [{"read": n - 1}] if n > 1 else []
        assert await stream_events(scene, current(scene)) == [*before, *range(n, 6)]
        await complete(scene, await scene.take(WORKFLOW), AGAIN, read=n)
    run_id = current(scene).run_id
    [stream] = await scene.read(lambda tx: tx.messages.streams_of(run_id))
    assert (stream.last_position, stream.delivered_position, stream.through_position) == (5, 5, 5)


async def test_cursors_that_a_task_before_the_last_sent_hold_in_the_next_run(scene: Scene):
    await scene.start()
    await send(scene, "m1", 1)
    await complete(scene, await scene.take(WORKFLOW), StartTimer(0), read=1)
    await scene.advance(1)
    await complete(scene, await scene.take(WORKFLOW), AGAIN)
    assert await stream_events(scene, current(scene)) == [{"read": 1}]


async def test_a_run_that_fails_for_good_hands_nothing_on(scene: Scene):
    run = await scene.start()
    await send(scene, "m1", 1)
    await scene.decide(FailWorkflow("boom"))
    assert current(scene).run_id == run.run_id
    assert len(await scene.read(lambda tx: tx.messages.streams_of(run.run_id))) == 1


async def test_so_many_unread_messages_and_no_more_wait_for_a_workflow(scene: Scene):
    await scene.start()
    await send(scene, "m1", 1)
    most = scene.ctx.bounds.unseen_signals_max
    scene.tables.execute("UPDATE message_streams SET last_position = ?", most)
    with pytest.raises(InvalidInput) as refused:
        await send(scene, "m2", 2)
    assert refused.value.reason is Reason.STRUCTURAL_LIMIT_EXCEEDED
    assert refused.value.details["limit_kind"] == "pending_signal_count"


async def test_so_many_streams_and_no_more_has_a_workflow(scene: Scene):
    await scene.start()
    for n in range(100):
        await send(scene, "m1", stream=f"s{n}")
    with pytest.raises(InvalidInput) as refused:
        await send(scene, "m1", stream="one-more")
    assert refused.value.details["limit_kind"] == "message_stream_count"
    assert (await send(scene, "m2", stream="s7")).position == 2


async def test_a_stream_that_is_read_for_ever_takes_no_more_and_more_room(scene: Scene):
    await scene.start()
    for n in range(1, 3 * REMEMBERED, 500):
        for each in range(n, n + 500):
            await send(scene, f"m{each}", each)
        await complete(scene, await scene.take(WORKFLOW), AGAIN, read=n + 499)
    assert scene.tables.count("messages", "input IS NULL") == scene.tables.count("messages") == REMEMBERED
