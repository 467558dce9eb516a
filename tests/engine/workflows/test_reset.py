"""Reset and fork: a new run goes on from a decision point of another one, as that one was there."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from msgspec.structs import replace

from penstock.core import json_text
from penstock.core.history.commands import (
    CompleteUpdate,
    ContinueAsNew,
    OpenConditionWait,
    OpenSignalWait,
    SignalExternal,
    StartChild,
    StartTimer,
    UpsertMemo,
)
from penstock.core.history.events import EventType
from penstock.core.model import Blob, Run, RunId, RunStatus, TimerState
from penstock.core.payload_codec import encode
from penstock.engine.messaging import signals, updates
from penstock.engine.messaging.signals import Signal
from penstock.engine.messaging.updates import UpdateSubmission
from penstock.engine.runs.address import Address
from penstock.engine.workflows.copies import reset as resets
from penstock.engine.workflows.copies.reset import ForkTarget, Reapply, ResetRequest
from penstock.engine.workflows.copies.run_copies import MadeRun, SourceAddress
from penstock.errors import Conflict, PenstockError, Reason
from tests.engine.support.scene import ACTIVITY, DONE, NOTHING, WORKFLOW, Scene, charge

SOURCE = SourceAddress("default", "order-1")
SIGNALS, NONE = Reapply.SIGNALS, Reapply.NONE
OTHER = ForkTarget("other")


async def reset(scene: Scene, event: int, reapply: Reapply = SIGNALS, **address: Any) -> MadeRun:
    return await resets.reset(scene.ctx, replace(SOURCE, **address), ResetRequest(event, reapply))


async def fork(scene: Scene, event: int, target: ForkTarget = OTHER) -> MadeRun:
    return await resets.fork(scene.ctx, SOURCE, ResetRequest(event, NONE), target)


async def refusal(scene: Scene, event: int, **address: Any) -> PenstockError:
    before = len(scene.tables.runs), scene.tables.count("events"), scene.tables.count("tasks")
    with pytest.raises(Conflict) as refused:
        await reset(scene, event, **address)
    after = len(scene.tables.runs), scene.tables.count("events"), scene.tables.count("tasks")
    assert after == before, "nothing is half done"
    return refused.value


async def signal(scene: Scene, name: str) -> None:
    await signals.send(scene.ctx, Signal(Address("default", "order-1"), name, encode([1])))


async def two_activities(scene: Scene) -> Run:
    """A concurrent run: activity 1 has ended, activity 2 and a timer are open. Decisions at the events 2 and 5."""
    run = await scene.start()
    await scene.decide(charge(), concurrent=True)
    await scene.finish(await scene.take(ACTIVITY))
    await scene.decide(charge(), StartTimer(60), concurrent=True)
    return scene.run(run.run_id)


async def test_an_open_run_is_terminated_and_the_new_one_decides_anew(scene: Scene):
    source = await two_activities(scene)
    made = await reset(scene, 5)
    assert (made.source_run_id, made.reused_events, made.run.run_number) == (source.run_id, 4, 2)
    assert scene.run(source.run_id).status is RunStatus.TERMINATED
    leased = await scene.take(WORKFLOW)
    assert leased.task.run_id == made.run.run_id
    types = [EventType.WORKFLOW_STARTED, EventType.WORKFLOW_TASK_COMPLETED, EventType.ACTIVITY_SCHEDULED]
    assert await scene.types(made.run.run_id) == [*types, EventType.ACTIVITY_COMPLETED]
    copied = await scene.payload(made.run.run_id, 2)
    assert copied["activity_execution_id"] == f"{made.run.run_id}-a1"
    await scene.complete(leased, DONE, concurrent=True)
    assert scene.run(made.run.run_id).status is RunStatus.COMPLETED


async def test_times_of_copied_events_stay_and_the_start_names_who_recorded_them(scene: Scene):
    source = await two_activities(scene)
    scene.clock.advance(10_000)
    made = (await reset(scene, 5)).run
    before, after = await scene.events(source.run_id), await scene.events(made.run_id)
    assert [each.recorded_at_ms for each in after] == [each.recorded_at_ms for each in before[:4]]
    assert (await scene.payload(made.run_id, 0))["copied_history"] == [[4, source.run_id]]
    await scene.decide(charge(), concurrent=True)
    again = (await reset(scene, 2)).run
    assert again.lineage.copies == ((1, source.run_id),)


async def test_open_activities_and_timers_go_on_in_the_new_run(scene: Scene):
    await two_activities(scene)
    await signal(scene, "go")
    await scene.decide(concurrent=True)
    made = (await reset(scene, 9, NONE)).run
    run = scene.run(made.run_id)
    assert (run.open_activities, run.open_timers, run.last_step) == (1, 1, 3)
    await scene.decide(concurrent=True)
    again = await scene.take(ACTIVITY)
    assert (again.task.run_id, again.task.attempt) == (made.run_id, 1)
    await scene.finish(again)
    await scene.advance(60_000)
    assert (await scene.types(made.run_id))[-2:] == [EventType.ACTIVITY_COMPLETED, EventType.TIMER_FIRED]
    [timer] = [each for each in scene.tables.timers.values() if each.run_id == made.run_id]
    assert timer.state is TimerState.FIRED


async def test_signals_that_came_later_are_delivered_unless_excluded(scene: Scene):
    source = await two_activities(scene)
    for name in ("first", "second"):
        await signal(scene, name)
    made = (await reset(scene, 5)).run
    await scene.decide(concurrent=True)
    names = [
        json_text.read(each.payload)["signal_name"]
        for each in await scene.events(made.run_id)
        if each.type == EventType.SIGNAL_RECEIVED
    ]
    assert names == ["first", "second"]
    none = (await reset(scene, 5, NONE, run_id=made.run_id)).run
    await scene.decide(concurrent=True)
    assert EventType.SIGNAL_RECEIVED not in await scene.types(none.run_id)
    assert source.run_id != none.run_id


async def test_a_signal_in_the_buffer_is_not_lost(scene: Scene):
    await two_activities(scene)
    await signal(scene, "seen")
    await scene.take(WORKFLOW)
    await signal(scene, "buffered")
    made = (await reset(scene, 5)).run
    await scene.decide(concurrent=True)
    assert (await scene.types(made.run_id)).count(EventType.SIGNAL_RECEIVED) == 2


async def test_the_memo_is_that_of_the_decision_point(scene: Scene):
    await scene.start(memo='{"of":"start"}')
    memo = {"of": "code"}
    await scene.decide(UpsertMemo(memo, encode(memo)), charge(), concurrent=True)
    await scene.finish(await scene.take(ACTIVITY))
    later = {"of": "later"}
    await scene.decide(UpsertMemo(later, encode(later)), concurrent=True)
    assert scene.run((await reset(scene, 6)).run.run_id).memo == '{"of":"code"}'
    assert scene.run((await reset(scene, 2)).run.run_id).memo == '{"of":"start"}'


async def test_an_open_condition_of_stepwise_code_is_open_again(scene: Scene):
    await scene.start()
    await scene.decide(OpenConditionWait("paid", "f00d", 60))
    await signal(scene, "pay")
    await scene.decide(charge())
    made = (await reset(scene, 5, NONE)).run
    waits = scene.run(made.run_id).waits
    assert waits.condition is not None
    assert (waits.condition.key, waits.condition.heard) == ("paid", True)
    assert waits.condition.id == f"{made.run_id}-w1"
    await scene.decide(OpenConditionWait("shipped", "f00d"))
    assert EventType.CONDITION_WAIT_SATISFIED in await scene.types(made.run_id)


async def test_a_wait_for_a_signal_is_restored(scene: Scene):
    await scene.start()
    await scene.decide(OpenSignalWait("pay", 60))
    await signal(scene, "pay")
    await scene.decide(charge())
    made = (await reset(scene, 6, NONE)).run
    await scene.decide(DONE)
    assert not scene.run(made.run_id).is_open


async def test_an_update_that_was_open_is_accepted_anew(scene: Scene):
    source = await two_activities(scene)
    submission = UpdateSubmission(Address("default", "order-1"), "add", encode([1]), None)
    await updates.accept(scene.ctx, submission, asyncio.Event())
    await scene.decide(concurrent=True)
    await signal(scene, "go")
    await scene.decide(CompleteUpdate(f"{source.run_id}-u1", encode(7)), concurrent=True)
    made = (await reset(scene, 11, NONE)).run
    await scene.decide(CompleteUpdate(f"{made.run_id}-u1", encode(8)), concurrent=True)
    answers = [json_text.read(each.outcome or "") for each in scene.tables.updates.values()]
    assert sorted(each["result"] for each in answers) == sorted([encode(7), encode(8)])


@pytest.mark.parametrize("event", [1, 3, 4, 6, 99])
async def test_only_a_decision_point_is_reset_to(scene: Scene, event: int):
    await two_activities(scene)
    refused = await refusal(scene, event)
    assert refused.reason is Reason.NOT_A_DECISION_POINT
    assert refused.details["decision_points"] == [2, 5]


async def test_a_run_that_never_decided_has_no_point(scene: Scene):
    await scene.start()
    assert (await refusal(scene, 1)).details["decision_points"] == []


async def test_what_belongs_to_one_run_is_not_copied(scene: Scene):
    await scene.start()
    await scene.decide(StartChild("kid", None, NOTHING), concurrent=True)
    await signal(scene, "go")
    leased = next(each for each in [await scene.take(WORKFLOW) for _ in range(2)] if each.task.type != "kid")
    await scene.complete(leased, SignalExternal("x", "go", NOTHING), concurrent=True)
    refused = await refusal(scene, 6)
    assert refused.reason is Reason.RUN_NOT_COPYABLE
    assert "is open there" in refused.message
    assert (await reset(scene, 2)).reused_events == 1


async def test_an_older_run_is_reset_only_if_none_is_open(scene: Scene):
    first = await scene.start()
    await scene.decide(ContinueAsNew(NOTHING))
    assert (await refusal(scene, 2, run_id=first.run_id)).reason is Reason.ANOTHER_RUN_OPEN
    await scene.decide(DONE)
    made = (await reset(scene, 2, run_id=first.run_id)).run
    assert made.run_number == 3
    await scene.decide(DONE)


async def test_a_child_is_not_reset_under_its_waiting_parent(scene: Scene):
    await scene.start("parent")
    await scene.decide(StartChild("order", None, NOTHING, "order-1"), concurrent=True)
    await scene.decide(charge())
    assert (await refusal(scene, 2)).reason is Reason.RUN_NOT_COPYABLE


async def test_a_fork_leaves_its_source_alone_and_takes_another_input(scene: Scene):
    source = await two_activities(scene)
    made = (await fork(scene, 5, ForkTarget("other", Blob("BB==")))).run
    assert (made.workflow_id, made.run_number, made.input) == ("other", 1, "BB==")
    assert scene.run(source.run_id) == source
    await scene.decide(DONE, concurrent=True)
    assert not scene.run(made.run_id).is_open
    with pytest.raises(Conflict) as refused:
        await fork(scene, 5)
    assert refused.value.reason is Reason.INSTANCE_ALREADY_STARTED
    assert (await fork(scene, 5, ForkTarget())).run.workflow_id.startswith("order-1-fork-")


async def test_a_repeated_request_gets_the_same_run(scene: Scene):
    await two_activities(scene)
    request = ResetRequest(5, SIGNALS, "bad deploy", "r-1")
    first = await resets.reset(scene.ctx, SOURCE, request)
    assert (await resets.reset(scene.ctx, SOURCE, request)).run.run_id == first.run.run_id
    with pytest.raises(Conflict) as refused:
        await resets.reset(scene.ctx, SOURCE, replace(request, event=2))
    assert refused.value.reason is Reason.REQUEST_ID_CONFLICT


async def test_an_activity_that_the_copied_run_never_had_comes_from_the_first(scene: Scene):
    """The point lies in the part that was copied before, where an activity was open that has ended since."""
    await scene.start()
    await scene.decide(charge(), concurrent=True)
    await signal(scene, "go")
    await scene.decide(concurrent=True)
    await scene.finish(await scene.take(ACTIVITY))
    await scene.decide(charge(), concurrent=True)
    second = (await reset(scene, 7, NONE)).run
    third = (await reset(scene, 5, NONE)).run
    assert scene.run(third.run_id).open_activities == 1
    assert RunId(second.run_id) != third.run_id
    await scene.decide(concurrent=True)
    await scene.finish(await scene.take(ACTIVITY))
