"""Signals, queries, updates, conditions and streams on the public SDK; every history is replayed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from durable_workflow.errors import (
    QueryFailed,
    ServerError,
    SignalFailed,
    UpdateFailed,
    UpdateRejected,
    WorkflowCancelled,
    WorkflowNotFound,
    WorkflowTerminated,
)

from tests.acceptance.cluster import Cluster, until, value
from tests.acceptance.sdk.flow_gates import GATES, next_task_held
from tests.acceptance.sdk.flow_replay import Past
from tests.acceptance.sdk.flow_runner import Flows, both_stores, flowing, on_a_queue_of_its_own, working

pytestmark = both_stores


@pytest.fixture(scope="module")
async def flows(cluster: Cluster) -> AsyncIterator[Flows]:
    async with flowing(cluster) as made:
        yield made


def heard(past: Past) -> list[Any]:
    """The first argument of every signal, in the order of the history."""
    return [value({"blob": payload["arguments"]})[0] for payload in past.of("SignalReceived")]  # type: ignore[index]


async def query(flows: Flows, workflow_id: str, name: str, *arguments: Any) -> Any:
    return (await flows.client.query_workflow(workflow_id, name, args=list(arguments)))["result"]


# Signals


async def test_signals_before_the_first_task_are_not_lost(flows: Flows) -> None:
    own = on_a_queue_of_its_own(flows)
    handle = await own.start("collector", 3)
    for item in ("a", "b", "c"):
        await handle.signal("add", [item])
    async with working(own.scene, own.task_queue):
        assert await own.result(handle) == ["a", "b", "c"]
    await own.replayed(handle)


@pytest.mark.parametrize(
    ("how", "early"),
    [("signal", "a"), ("signal", "ab"), ("signal", "ca"), ("signal", "abc"), ("update", "ab")],
)
async def test_waits_that_are_over_before_they_begin_are_passed(flows: Flows, how: str, early: str) -> None:
    own = on_a_queue_of_its_own(flows)
    handle = await own.start("stations", ["a", "b", "c"], 3600)
    for word in early:
        await (handle.signal("say", [word]) if how == "signal" else handle.update("write", [word]))
    async with next_task_held(handle.workflow_id) as held, working(own.scene, own.task_queue):
        await held.reached()
        for word in "abc":
            if word not in early:
                await handle.signal("say", [word])
        held.open()
        passed, words = await own.result(handle)
    assert passed == [True, True, True]
    assert sorted(words) == ["a", "b", "c"]
    await own.replayed(handle)


@pytest.mark.parametrize(("how", "early"), [("signal", "b"), ("signal", "ab"), ("update", "bc")])
async def test_what_is_said_between_a_timeout_and_its_task_is_heard_by_later_waits(
    flows: Flows, how: str, early: str
) -> None:
    own = on_a_queue_of_its_own(flows)
    async with working(own.scene, own.task_queue):
        handle = await own.start("stations", ["a", "b", "c"], 2)
        await own.saw(handle.workflow_id, "ConditionWaitOpened")
    await own.saw(handle.workflow_id, "TimerFired")
    for word in early:
        await (handle.signal("say", [word]) if how == "signal" else handle.update("write", [word]))
    async with next_task_held(handle.workflow_id) as held, working(own.scene, own.task_queue):
        await held.reached()
        for word in "bc":
            if word not in early:
                await handle.signal("say", [word])
        held.open()
        assert (await own.result(handle))[0] == [False, True, True]
    await own.replayed(handle)


async def test_a_wait_may_stand_between_a_selection_and_the_one_that_lost_it(flows: Flows) -> None:
    gate = flows.name("gate")
    handle = await flows.start("after_the_race", gate)
    await flows.saw(handle.workflow_id, "ConditionWaitOpened")
    await handle.signal("say", ["one"])
    await handle.signal("say", ["more"])
    GATES[gate].open()
    await flows.saw(handle.workflow_id, "ConditionWaitOpened", 2)
    await handle.signal("say", ["two"])
    assert await flows.result(handle) == ["clock", "late", [1, None], ["one", "more", "two"]]
    await flows.replayed(handle)


async def test_signals_by_the_dozen_arrive_once_and_in_the_order_of_the_history(flows: Flows) -> None:
    handle = await flows.start("collector", 40)
    await asyncio.gather(*(handle.signal("add", [number]) for number in range(40)))
    result = await flows.result(handle)
    assert sorted(result) == list(range(40))
    (past,) = await flows.replayed(handle)
    assert result == heard(past)


async def test_signals_that_come_while_activities_end_are_each_worked_on_once(flows: Flows) -> None:
    handle = await flows.start("pump", 12)
    for first in range(0, 12, 3):
        await asyncio.gather(*(handle.signal("add", [number]) for number in range(first, first + 3)))
    result = await flows.result(handle)
    (past,) = await flows.replayed(handle)
    assert result == heard(past)
    assert sorted(result) == list(range(12))


async def test_signals_to_a_leased_task_are_written_after_what_it_decided(flows: Flows) -> None:
    workflow_id = flows.name("pump")
    async with next_task_held(workflow_id) as held:
        handle = await flows.start("pump", 3, workflow_id=workflow_id)
        await held.reached()
        for item in ("a", "b", "c"):
            await handle.signal("add", [item])
        assert await flows.scene.event_types(workflow_id) == ["WorkflowStarted"]
    assert await flows.result(handle) == ["a", "b", "c"]
    (past,) = await flows.replayed(handle)
    assert past.types[1:3] == ["ConditionWaitOpened", "SignalReceived"]


async def test_signals_to_every_leased_task_in_turn_change_nothing_that_was_decided(flows: Flows) -> None:
    workflow_id = flows.name("turns")
    handle = await flows.start("turns", 8, workflow_id=workflow_id)
    await flows.saw(workflow_id, "ConditionWaitOpened")
    for number in range(0, 8, 2):
        async with next_task_held(workflow_id) as held:
            await handle.signal("add", [number])
            await held.reached()
            await handle.signal("add", [number + 1])
        await flows.saw(workflow_id, "SignalReceived", number + 2)
    assert await flows.result(handle) == list(range(8))
    await flows.replayed(handle)


async def test_two_identical_waits_take_a_signal_each(flows: Flows) -> None:
    handle = await flows.start("turns", 2)
    for number in range(2):
        await flows.saw(handle.workflow_id, "ConditionWaitOpened", number + 1)
        await handle.signal("add", [number])
    assert await flows.result(handle) == [0, 1]
    (past,) = await flows.replayed(handle)
    assert past.types.count("ConditionWaitSatisfied") == 2


async def test_the_second_of_two_identical_waits_is_not_opened_if_its_signal_is_there(flows: Flows) -> None:
    workflow_id = flows.name("turns")
    handle = await flows.start("turns", 2, workflow_id=workflow_id)
    await flows.saw(workflow_id, "ConditionWaitOpened")
    own = [handle.signal("add", [number]) for number in range(2)]
    await asyncio.gather(*own)
    assert sorted(await flows.result(handle)) == [0, 1]
    await flows.replayed(handle)


async def test_a_wait_that_is_not_satisfied_yet_is_opened_again(flows: Flows) -> None:
    handle = await flows.start("collector", 3)
    for number in range(3):
        await flows.saw(handle.workflow_id, "ConditionWaitOpened", number + 1)
        await handle.signal("add", [number])
    assert await flows.result(handle) == [0, 1, 2]
    await flows.replayed(handle)


async def test_signals_are_heard_while_steps_are_under_way(flows: Flows) -> None:
    one, two, three = (flows.name("gate") for _ in range(3))
    handle = await flows.start("busy", one, two, three)
    await GATES[one].reached()
    await handle.signal("add", ["a"])
    assert await query(flows, handle.workflow_id, "heard") == ["a"]
    GATES[one].open()
    await GATES[two].reached()
    await handle.signal("add", ["b"])
    GATES[two].open()
    await flows.saw(handle.workflow_id, "ActivityCompleted", 2)
    await handle.signal("add", ["c"])
    GATES[three].open()
    assert await flows.result(handle) == [["a"], ["a", "b", "c"]]
    (past,) = await flows.replayed(handle)
    assert past.types.count("ActivityScheduled") == 4


async def test_a_signal_that_is_sent_again_is_heard_once(flows: Flows) -> None:
    handle = await flows.start("collector", 2)
    first = await handle.signal("add", ["a"], request_id="one")
    again = await handle.signal("add", ["a"], request_id="one")
    assert again["command_id"] == first["command_id"]
    assert (first["retained"], again["retained"]) == (False, True)
    with pytest.raises(SignalFailed) as refused:
        await handle.signal("add", ["other"], request_id="one")
    assert refused.value.reason == "request_id_conflict"
    await handle.signal("add", ["b"], request_id="two")
    assert await flows.result(handle) == ["a", "b"]
    await flows.replayed(handle)


async def test_signals_that_nobody_can_hear_are_refused(flows: Flows) -> None:
    handle = await flows.start("collector", 1)
    with pytest.raises(SignalFailed) as unknown:
        await handle.signal("shout", ["a"])
    assert unknown.value.reason == "unknown_signal"
    await handle.signal("add", ["a"])
    assert await flows.result(handle) == ["a"]
    with pytest.raises(SignalFailed) as late:
        await handle.signal("add", ["b"])
    assert late.value.reason == "run_not_active"
    with pytest.raises(WorkflowNotFound):
        await flows.client.signal_workflow("no-such-workflow", "add", args=["a"])
    await flows.replayed(handle)


async def test_a_signal_starts_the_workflow_that_it_is_for_and_finds_it_the_next_time(flows: Flows) -> None:
    workflow_id = flows.name("collector")
    body = {
        "workflow_id": workflow_id,
        "workflow_type": "collector",
        "task_queue": flows.task_queue,
        "input": [2],
        "signal_name": "add",
    }
    path = "/api/workflows/signal-with-start"
    first = (await flows.scene.post(path, body | {"signal_input": ["a"]})).ok()
    second = (await flows.scene.post(path, body | {"signal_input": ["b"]})).ok()
    assert (first["outcome"], second["outcome"]) == ("started_new", "returned_existing_active")
    assert first["run_id"] == second["run_id"]
    handle = flows.client.get_workflow_handle(workflow_id)
    assert await flows.result(handle) == ["a", "b"]
    await flows.replayed(handle)


# Queries


async def test_queries_answer_from_the_state_of_a_run_open_or_closed(flows: Flows) -> None:
    handle = await flows.start("collector", 2)
    assert await query(flows, handle.workflow_id, "items") == []
    # Until its code has looked signals wait, and no query sees them.
    await flows.saw(handle.workflow_id, "ConditionWaitOpened")
    await handle.signal("add", ["a"])
    assert await query(flows, handle.workflow_id, "items") == ["a"]
    assert await query(flows, handle.workflow_id, "item", 0) == "a"
    await handle.signal("add", ["b"])
    assert await flows.result(handle) == ["a", "b"]
    assert await query(flows, handle.workflow_id, "items") == ["a", "b"]
    (past,) = await flows.replayed(handle)
    run = f"/api/workflows/{past.workflow_id}/runs/{past.run_id}"
    assert (await flows.scene.post(f"{run}/query/items", {})).expect(200)["result"] == ["a", "b"]


async def test_queries_that_cannot_be_answered_say_why(flows: Flows) -> None:
    handle = await flows.start("collector", 1)
    await flows.saw(handle.workflow_id, "ConditionWaitOpened")
    with pytest.raises(QueryFailed) as unknown:
        await handle.query("nonsense")
    assert unknown.value.status == 404
    with pytest.raises(QueryFailed, match="index out of range"):
        await handle.query("item", [7])
    await handle.signal("add", ["a"])
    assert await flows.result(handle) == ["a"]
    await flows.replayed(handle)


async def test_a_run_that_was_continued_is_not_asked_any_more(flows: Flows) -> None:
    handle = await flows.start("chain", 1, [])
    assert await flows.result(handle) == [1, 0]
    first, last = await flows.replayed(handle)
    path = f"/api/workflows/{first.workflow_id}/runs/{first.run_id}/query/items"
    (await flows.scene.post(path, {})).expect(409, "historical_run_command_rejected")
    path = f"/api/workflows/{last.workflow_id}/runs/{last.run_id}/query/items"
    (await flows.scene.post(path, {})).expect(404, "rejected_unknown_query")


async def test_queries_beside_signals_and_updates_change_nothing(flows: Flows) -> None:
    handle = await flows.start("ledger")
    await asyncio.gather(
        *(handle.update("add", [1], wait_for="completed") for _ in range(5)),
        *(handle.query("balance") for _ in range(5)),
        *(handle.signal("note", [str(number)]) for number in range(5)),
    )
    await handle.update("close", wait_for="completed")
    assert await flows.result(handle) == [5, ["0", "1", "2", "3", "4"]]
    await flows.replayed(handle)


# Updates


async def test_an_update_is_answered_when_it_is_accepted_or_when_it_is_done(flows: Flows) -> None:
    handle = await flows.start("ledger")
    accepted = await handle.update("add", [1], wait_for="accepted")
    assert accepted["update_status"] == "accepted"
    done = await handle.update("add", [2], wait_for="completed")
    assert (done["update_status"], done["outcome"]) == ("completed", "update_completed")
    assert done["result"] == 3
    assert await query(flows, handle.workflow_id, "balance") == 3
    await handle.update("close", wait_for="completed")
    assert await flows.result(handle) == [3, []]
    (past,) = await flows.replayed(handle)
    assert [past.types.count(f"Update{what}") for what in ("Accepted", "Applied", "Completed")] == [3, 3, 3]


async def test_an_update_whose_handler_fails_leaves_no_trace_in_the_state(flows: Flows) -> None:
    handle = await flows.start("ledger")
    await handle.update("add", [5], wait_for="completed")
    with pytest.raises(UpdateFailed, match="spoiled"):
        await handle.update("spoil", ["spoiled"], wait_for="completed")
    assert await query(flows, handle.workflow_id, "balance") == 5
    await handle.update("close", wait_for="completed")
    assert await flows.result(handle) == [5, []]
    (past,) = await flows.replayed(handle)
    assert [past.types.count(f"Update{what}") for what in ("Accepted", "Applied", "Completed")] == [3, 2, 3]


async def test_updates_before_the_first_task_are_done_in_their_order(flows: Flows) -> None:
    own = on_a_queue_of_its_own(flows)
    handle = await own.start("ledger")
    for amount in (1, 2):
        await handle.update("add", [amount], wait_for="accepted")
    await handle.update("close", wait_for="accepted")
    async with working(own.scene, own.task_queue):
        assert await own.result(handle) == [3, []]
    await own.replayed(handle)


async def test_updates_are_done_while_an_activity_runs(flows: Flows) -> None:
    gate = flows.name("gate")
    handle = await flows.start("ledger", gate)
    await GATES[gate].reached()
    assert (await handle.update("add", [4], wait_for="completed"))["result"] == 4
    await handle.update("close", wait_for="completed")
    GATES[gate].open()
    assert await flows.result(handle) == [4, []]
    (past,) = await flows.replayed(handle)
    assert "ConditionWaitOpened" not in past.types


async def test_updates_in_the_middle_of_a_group_do_not_start_it_again(flows: Flows) -> None:
    one, two, three = (flows.name("gate") for _ in range(3))
    handle = await flows.start("busy", one, two, three)
    await GATES[one].reached()
    GATES[one].open()
    await GATES[two].reached()
    assert (await handle.update("tell", ["a"], wait_for="completed"))["result"] == 1
    GATES[two].open()
    await flows.saw(handle.workflow_id, "ActivityCompleted", 2)
    assert (await handle.update("tell", ["b"], wait_for="completed"))["result"] == 2
    GATES[three].open()
    assert await flows.result(handle) == [[], ["a", "b"]]
    (past,) = await flows.replayed(handle)
    assert past.types.count("ActivityScheduled") == 4


async def test_a_selection_goes_on_while_it_is_talked_to(flows: Flows) -> None:
    gate = flows.name("gate")
    handle = await flows.start("distracted", gate)
    await GATES[gate].reached()
    await handle.signal("add", ["a"])
    assert (await handle.update("tell", ["b"], wait_for="completed"))["result"] == 2
    GATES[gate].open()
    await flows.saw(handle.workflow_id, "ConditionWaitOpened")
    await handle.update("tell", ["end"], wait_for="completed")
    assert await flows.result(handle) == ["work", ["a", "b"], ["a", "b", "end"]]
    await flows.replayed(handle)


async def test_updates_and_signals_at_once_are_each_applied_once(flows: Flows) -> None:
    handle = await flows.start("ledger")
    answers = await asyncio.gather(
        *(handle.update("add", [1], wait_for="completed", wait_timeout_seconds=60) for _ in range(10)),
        *(handle.signal("note", [str(number)]) for number in range(10)),
    )
    assert sorted(answer["result"] for answer in answers[:10]) == list(range(1, 11))
    await handle.update("close", wait_for="completed")
    assert await flows.result(handle) == [10, [str(number) for number in range(10)]]
    await flows.replayed(handle)


async def test_an_update_to_a_leased_task_waits_for_its_end(flows: Flows) -> None:
    workflow_id = flows.name("ledger")
    async with next_task_held(workflow_id) as held:
        handle = await flows.start("ledger", workflow_id=workflow_id)
        await held.reached()
        waiting = await handle.update("add", [1], wait_for="completed", wait_timeout_seconds=1)
        assert (waiting["update_status"], waiting["wait_timed_out"]) == ("accepted", True)
    again = await handle.update("add", [2], wait_for="completed")
    assert again["result"] == 3
    await handle.update("close", wait_for="completed")
    assert await flows.result(handle) == [3, []]
    await flows.replayed(handle)


async def test_an_update_that_is_sent_again_is_done_once(flows: Flows) -> None:
    handle = await flows.start("ledger")
    first = await handle.update("add", [1], wait_for="completed", request_id="one")
    again = await handle.update("add", [1], wait_for="completed", request_id="one")
    assert (again["update_id"], again["result"], again["retained"]) == (first["update_id"], 1, True)
    with pytest.raises(UpdateFailed) as refused:
        await handle.update("add", [2], wait_for="completed", request_id="one")
    assert refused.value.reason == "request_id_conflict"
    await handle.update("close", wait_for="completed")
    assert await flows.result(handle) == [1, []]
    await flows.replayed(handle)


async def test_updates_that_nobody_can_do_are_refused(flows: Flows) -> None:
    handle = await flows.start("ledger")
    with pytest.raises(ServerError) as unknown:
        await handle.update("nonsense", wait_for="completed")
    assert unknown.value.reason() == "unknown_update"
    await handle.update("close", wait_for="completed")
    assert await flows.result(handle) == [0, []]
    with pytest.raises(ServerError) as late:
        await handle.update("add", [1])
    assert late.value.reason() == "run_not_active"
    await flows.replayed(handle)


@pytest.mark.parametrize("action", ["cancel", "terminate"])
async def test_an_update_that_was_waiting_when_its_run_was_stopped_fails(flows: Flows, action: str) -> None:
    workflow_id = flows.name("ledger")
    async with next_task_held(workflow_id) as held:
        handle = await flows.start("ledger", workflow_id=workflow_id)
        await held.reached()
        update = asyncio.create_task(handle.update("add", [1], wait_for="completed", wait_timeout_seconds=30))

        async def waiting() -> bool:
            return bool((await flows.scene.describe(workflow_id))["pending"]["updates"])

        await until(waiting)
        await getattr(handle, action)(reason="enough")
        with pytest.raises(UpdateFailed):
            await update
    with pytest.raises((WorkflowCancelled, WorkflowTerminated)):
        await flows.result(handle)
    await flows.replayed(handle)


async def test_validators_let_through_what_they_accept_and_nothing_else(flows: Flows) -> None:
    handle = await flows.start("guarded")
    assert (await handle.update("add", [10], wait_for="completed"))["result"] == 10
    with pytest.raises(UpdateRejected, match="amounts are positive") as refused:
        await handle.update("add", [-1], wait_for="completed")
    assert refused.value.validation_errors == {"amount": ["must be positive"]}
    with pytest.raises(UpdateRejected):
        await handle.update("take", [11], wait_for="accepted")
    assert (await handle.update("take", [4], wait_for="completed"))["result"] == 6
    await handle.update("add", [10], wait_for="completed")
    with pytest.raises(UpdateFailed, match="unlucky"):
        await handle.update("take", [13], wait_for="completed")
    await handle.update("close", wait_for="completed")
    assert await flows.result(handle) == 16
    (past,) = await flows.replayed(handle)
    names = [payload["update_name"] for payload in past.of("UpdateAccepted")]
    assert names == ["add", "take", "add", "take", "close"]
    assert "UpdateRejected" not in past.types


async def test_validators_of_many_updates_at_once_see_a_state_that_is_true(flows: Flows) -> None:
    handle = await flows.start("guarded")
    amounts = [1, -1, 2, -2, 3]
    answers = await asyncio.gather(
        *(handle.update("add", [amount], wait_for="completed") for amount in amounts), return_exceptions=True
    )
    assert [isinstance(answer, UpdateRejected) for answer in answers] == [False, True, False, True, False]
    await handle.update("close", wait_for="completed")
    assert await flows.result(handle) == 6
    await flows.replayed(handle)


# Conditions


async def test_a_condition_that_is_never_met_ends_with_its_timeout(flows: Flows) -> None:
    handle = await flows.start("deadline", 1)
    await flows.saw(handle.workflow_id, "ConditionWaitOpened", 2)
    await handle.signal("say", ["now"])
    await handle.signal("say", ["end"])
    assert await flows.result(handle) == [False, 0, True, ["now", "end"]]
    (past,) = await flows.replayed(handle)
    assert past.types.count("TimerFired") == 1


async def test_a_condition_that_is_met_in_time_takes_its_timer_with_it(flows: Flows) -> None:
    handle = await flows.start("deadline", 3600)
    await flows.saw(handle.workflow_id, "ConditionWaitOpened")
    await handle.signal("say", ["now"])
    await flows.saw(handle.workflow_id, "ConditionWaitOpened", 2)
    await handle.signal("say", ["end"])
    assert await flows.result(handle) == [True, 1, True, ["now", "end"]]
    (past,) = await flows.replayed(handle)
    assert past.types.count("TimerFired") == 0
    assert past.types.count("TimerCancelled") == past.types.count("TimerScheduled") == 2


async def test_a_condition_that_other_signals_open_again_still_ends_with_its_timeout(flows: Flows) -> None:
    handle = await flows.start("deadline", 2)
    for number in range(2):
        await flows.saw(handle.workflow_id, "ConditionWaitOpened", number + 1)
        await handle.signal("say", [f"word {number}"])
    await flows.saw(handle.workflow_id, "TimerFired")
    await flows.saw(handle.workflow_id, "ActivityCompleted")
    await handle.signal("say", ["end"])
    assert await flows.result(handle) == [False, 2, True, ["word 0", "word 1", "end"]]
    await flows.replayed(handle)


async def test_a_condition_without_time_is_looked_at_once(flows: Flows) -> None:
    result, past = await flows.run("no_time")
    assert result == [True, False, False]
    assert past.types.count("ConditionWaitOpened") == 2


@pytest.mark.parametrize("action", ["cancel", "terminate"])
async def test_a_wait_is_stopped_with_its_run(flows: Flows, action: str) -> None:
    handle = await flows.start("deadline", 3600)
    await flows.saw(handle.workflow_id, "ConditionWaitOpened")
    await getattr(handle, action)(reason="enough")
    with pytest.raises((WorkflowCancelled, WorkflowTerminated), match="enough"):
        await flows.result(handle)
    (past,) = await flows.replayed(handle)
    assert past.types.count("TimerCancelled") == 1


async def test_a_timeout_that_comes_while_the_signal_is_looked_at_is_too_late(flows: Flows) -> None:
    handle = await flows.start("deadline", 1)
    await flows.saw(handle.workflow_id, "ConditionWaitOpened")
    async with next_task_held(handle.workflow_id) as held:
        await handle.signal("say", ["now"])
        await held.reached()
        clock = await flows.start("deadline", 1)
        await flows.saw(clock.workflow_id, "TimerFired")
    await handle.signal("say", ["end"])
    assert await flows.result(handle) == [True, 1, True, ["now", "end"]]
    await flows.replayed(handle)


async def test_a_signal_that_comes_while_the_timeout_is_looked_at_is_heard_later(flows: Flows) -> None:
    handle = await flows.start("deadline", 1)
    await flows.saw(handle.workflow_id, "ConditionWaitOpened")
    async with next_task_held(handle.workflow_id) as held:
        await held.reached()
        await handle.signal("say", ["now"])
        await handle.signal("say", ["end"])
    in_time, _, later, words = await flows.result(handle)
    assert (in_time, later, words) == (False, True, ["now", "end"])
    await flows.replayed(handle)


# Message streams


async def test_a_stream_is_read_in_its_order_and_each_message_once(flows: Flows) -> None:
    handle = await flows.start("reader", "mail", 2, [])
    first = await handle.append_message("mail", "m-1", ["one"])
    again = await handle.append_message("mail", "m-1", ["one"])
    assert first["position"] == again["position"] == 1
    await handle.append_message("mail", "m-2", ["two"])
    assert await flows.result(handle) == [[1, "m-1", "one"], [2, "m-2", "two"]]
    await flows.replayed(handle)


async def test_a_stream_goes_on_in_the_next_run(flows: Flows) -> None:
    handle = await flows.start("reader", "mail", 7, [])
    for number in range(1, 8):
        await handle.append_message("mail", f"m-{number}", [number])
        if number == 3:
            await handle.append_message("mail", "m-1", [1])
    assert await flows.result(handle) == [[number, f"m-{number}", number] for number in range(1, 8)]
    assert len(await flows.replayed(handle)) == 4


async def test_messages_that_come_while_a_batch_is_worked_on_are_the_next_batch(flows: Flows) -> None:
    gate = flows.name("gate")
    handle = await flows.start("batch_reader", 4, gate)
    await handle.append_message("work", "w-1", ["a"])
    await GATES[gate].reached()
    await handle.append_message("ends", "e-1", ["end"])
    for number, word in enumerate("bcd", start=2):
        await handle.append_message("work", f"w-{number}", [word])
    GATES[gate].open()
    assert await flows.result(handle) == [["a", "b", "c", "d"], ["end"]]
    await flows.replayed(handle)


async def test_messages_before_the_first_task_wait_for_their_reader(flows: Flows) -> None:
    own = on_a_queue_of_its_own(flows)
    handle = await own.start("reader", "mail", 3, [])
    for number in range(1, 4):
        await handle.append_message("mail", f"m-{number}")
    async with working(own.scene, own.task_queue):
        assert await own.result(handle) == [[number, f"m-{number}"] for number in range(1, 4)]
    await own.replayed(handle)


async def test_messages_from_many_senders_are_read_once_across_runs(flows: Flows) -> None:
    handle = await flows.start("reader", "mail", 12, [])
    await asyncio.gather(*(handle.append_message("mail", f"m-{number}", [number]) for number in range(12)))
    result = await flows.result(handle)
    assert [position for position, *_ in result] == list(range(1, 13))
    assert sorted(number for *_, number in result) == list(range(12))
    await flows.replayed(handle)
