"""Updates: accepted, applied one after the other, and always answered."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from penstock.core.history.commands import (
    CompleteUpdate,
    ContinueAsNew,
    FailUpdate,
    OpenConditionWait,
)
from penstock.core.model import Blob, Update, UpdateStatus
from penstock.core.scheduling.polls import Leased
from penstock.engine.messaging import signals, updates
from penstock.engine.messaging.updates import UpdateResult, UpdateSubmission
from penstock.engine.runs.address import Address
from penstock.engine.workflows import run_close
from penstock.engine.workflows.run_close import EndMode
from penstock.engine.workflows.workflow_reports import WAITING_FOR_HISTORY
from penstock.errors import Conflict, InvalidInput, Reason
from tests.engine.support.scene import ACTIVITY, DONE, NOTHING, WORKFLOW, Scene, a_scene, charge

PAID = OpenConditionWait("paid", "f00d")
ONE = Blob("AQ==")


async def ask(scene: Scene, name: str = "approve", arguments: Blob = NOTHING, **changes: Any) -> UpdateResult:
    asked = UpdateSubmission(Address("default", "order-1"), name, arguments, changes.pop("request_id", None))
    return await updates.accept(scene.ctx, asked, asyncio.Event())


def now(scene: Scene, answered: UpdateResult) -> Update:
    return scene.tables.updates[answered.update.update_id]


async def apply(scene: Scene, answered: UpdateResult) -> Leased:
    """Claim the task of an update and complete it."""
    leased = await scene.take(WORKFLOW)
    assert leased.task.update_id == answered.update.update_id
    await scene.complete(leased, CompleteUpdate(answered.update.update_id, ONE))
    return leased


async def a_waiting_run(scene: Scene) -> Any:
    run = await scene.start()
    await scene.decide(PAID)
    return run


async def test_an_update_has_a_task_of_its_own_and_a_plain_one_follows(scene: Scene):
    run = await a_waiting_run(scene)
    answered = await ask(scene)
    assert now(scene, answered).status is UpdateStatus.ACCEPTED
    leased = await apply(scene, answered)
    assert [event.type for event in leased.events][-1] == "UpdateAccepted"
    assert now(scene, answered).status is UpdateStatus.COMPLETED
    plain = await scene.take(WORKFLOW)
    assert plain.task.update_id is None
    assert (await scene.types(run.run_id))[2:] == ["UpdateAccepted", "UpdateApplied", "UpdateCompleted"]
    await scene.complete(plain, DONE)


async def test_an_update_that_the_code_refuses_fails_with_the_reason(scene: Scene):
    await a_waiting_run(scene)
    answered = await ask(scene)
    await scene.decide(FailUpdate(answered.update.update_id, "no", {"exception_type": "Refused"}))
    update = now(scene, answered)
    assert update.status is UpdateStatus.FAILED
    assert json.loads(update.outcome or "{}")["message"] == "no"


async def test_updates_are_applied_one_after_the_other_and_the_code_looks_in_between(scene: Scene):
    await a_waiting_run(scene)
    one, two = await ask(scene), await ask(scene)
    await apply(scene, one)
    await scene.decide(PAID)
    await apply(scene, two)
    await scene.decide(DONE)


async def test_an_update_waits_for_the_first_look_of_the_code(scene: Scene):
    await scene.start()
    answered = await ask(scene)
    first = await scene.take(WORKFLOW)
    assert first.task.update_id is None
    await scene.complete(first, PAID)
    await apply(scene, answered)


async def test_an_update_comes_after_a_signal_that_was_acknowledged_before_it(scene: Scene):
    """Seen: a signal that was sent before the first workflow task was handled after an update sent later."""
    run = await scene.start()
    signal = signals.Signal(Address("default", "order-1"), "pay", NOTHING)
    await signals.send(scene.ctx, signal)
    answered = await ask(scene)
    await scene.decide(PAID)
    assert (await scene.types(run.run_id))[2:] == ["SignalReceived", "UpdateAccepted"]
    await apply(scene, answered)


async def test_an_update_that_races_with_a_decision_comes_after_it(scene: Scene):
    run = await scene.start()
    leased = await scene.take(WORKFLOW)
    answered = await ask(scene)
    await scene.complete(leased, charge())
    assert (await scene.types(run.run_id))[1:] == ["ActivityScheduled", "UpdateAccepted"]
    await apply(scene, answered)


async def test_what_wakes_the_code_while_an_update_is_applied_is_looked_at_afterwards(scene: Scene):
    run = await scene.start()
    await scene.decide(charge())
    answered = await ask(scene)
    leased = await scene.take(WORKFLOW)
    await scene.finish(await scene.take(ACTIVITY))
    await scene.complete(leased, CompleteUpdate(answered.update.update_id, ONE))
    assert (await scene.types(run.run_id))[-2:] == ["UpdateCompleted", "ActivityCompleted"]
    await scene.decide(DONE)


async def test_the_task_of_an_update_that_fails_is_tried_again_and_the_update_stays_accepted(scene: Scene):
    await a_waiting_run(scene)
    answered = await ask(scene)
    await scene.fail(await scene.take(WORKFLOW))
    assert now(scene, answered).status is UpdateStatus.ACCEPTED
    await scene.advance(1_000)
    await apply(scene, answered)


async def test_a_worker_that_has_nothing_to_say_to_an_update_is_asked_again_after_the_code_has_looked(
    scene: Scene,
):
    await a_waiting_run(scene)
    answered = await ask(scene)
    await scene.fail(await scene.take(WORKFLOW), kind=WAITING_FOR_HISTORY)
    plain = await scene.take(WORKFLOW)
    assert plain.task.update_id is None
    await scene.complete(plain, PAID)
    await apply(scene, answered)


async def test_another_decision_in_the_task_of_an_update_is_refused_and_nothing_is_written(scene: Scene):
    run = await a_waiting_run(scene)
    await ask(scene)
    leased = await scene.take(WORKFLOW)
    before = await scene.types(run.run_id)
    with pytest.raises(Conflict) as refused:
        await scene.complete(leased, DONE)
    assert refused.value.reason is Reason.INVALID_COMMANDS
    assert await scene.types(run.run_id) == before


# ── Answers ─────────────────────────────────────────────────────────────────────────────────────────────


async def test_a_caller_that_waits_for_an_update_gets_its_result(scene: Scene):
    await a_waiting_run(scene)
    answered = await ask(scene)
    waiting = asyncio.create_task(updates.wait(scene.ctx, answered, 60_000, asyncio.Event()))
    await asyncio.sleep(0)
    await apply(scene, answered)
    received = await waiting
    assert (received.update.status, received.timed_out) == (UpdateStatus.COMPLETED, False)


async def test_a_caller_that_does_not_wait_learns_that_it_is_pending(scene: Scene):
    await a_waiting_run(scene)
    received = await updates.wait(scene.ctx, await ask(scene), 0, asyncio.Event())
    assert (received.update.status, received.timed_out) == (UpdateStatus.ACCEPTED, True)


async def test_an_update_that_is_sent_again_is_applied_once_and_gets_the_same_answer(scene: Scene):
    run = await a_waiting_run(scene)
    first = await ask(scene, arguments=ONE, request_id="a")
    again = await ask(scene, arguments=ONE, request_id="a")
    assert (again.retained, again.update.update_id) == (True, first.update.update_id)
    await apply(scene, first)
    answered = await ask(scene, arguments=ONE, request_id="a")
    assert answered.update.status is UpdateStatus.COMPLETED
    assert (await scene.types(run.run_id)).count("UpdateAccepted") == 1


async def test_a_request_id_is_for_one_update(scene: Scene):
    await a_waiting_run(scene)
    await ask(scene, arguments=ONE, request_id="a")
    with pytest.raises(Conflict) as refused:
        await ask(scene, request_id="a")
    assert refused.value.reason is Reason.REQUEST_ID_CONFLICT


async def test_a_run_holds_so_many_updates():
    scene = a_scene(max_pending_updates="1")
    await a_waiting_run(scene)
    first = await ask(scene)
    with pytest.raises(InvalidInput) as refused:
        await ask(scene)
    assert refused.value.reason is Reason.STRUCTURAL_LIMIT_EXCEEDED
    await apply(scene, first)
    await ask(scene)


# ── When the run closes ─────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("end", EndMode)
async def test_an_update_fails_when_its_run_is_ended_and_says_so(scene: Scene, end: EndMode):
    run = await a_waiting_run(scene)
    answered = await ask(scene)
    await run_close.end_run(scene.ctx, "default", "order-1", end, None)
    update = now(scene, answered)
    assert update.status is UpdateStatus.FAILED
    assert "before the update was applied" in json.loads(update.outcome or "{}")["message"]
    assert scene.live(run.run_id) == []
    with pytest.raises(Conflict) as refused:
        await ask(scene)
    assert refused.value.reason is Reason.RUN_NOT_ACTIVE


async def test_an_update_fails_when_its_run_times_out(scene: Scene):
    run = await scene.start(run_timeout_s=5)
    await scene.decide(PAID)
    answered = await ask(scene)
    scene.clock.advance(5_000)
    await run_close.expire_run(scene.ctx, run.run_id)
    assert now(scene, answered).status is UpdateStatus.FAILED


async def test_an_update_that_races_with_the_end_of_the_run_fails(scene: Scene):
    await scene.start()
    leased = await scene.take(WORKFLOW)
    answered = await ask(scene)
    await scene.complete(leased, DONE)
    assert now(scene, answered).status is UpdateStatus.FAILED


async def test_an_update_that_was_not_applied_continues_in_the_run_that_continues(scene: Scene):
    await scene.start()
    leased = await scene.take(WORKFLOW)
    answered = await ask(scene, arguments=ONE)
    receipt = await scene.complete(leased, ContinueAsNew(NOTHING))
    update = now(scene, answered)
    assert (update.status, update.run_id != receipt.run.run_id) == (UpdateStatus.ACCEPTED, True)
    assert "UpdateAccepted" in await scene.types(update.run_id)
    await scene.decide(PAID)
    await apply(scene, answered)
    payload = [json.loads(event.payload) for event in await scene.events(update.run_id)]
    assert [each["arguments"] for each in payload if "update_id" in each and "arguments" in each] == [
        ONE,
        ONE,
    ]
    assert scene.run(receipt.run.run_id).open_updates == 0


async def test_a_caller_that_waits_for_an_update_gets_its_result_from_the_successor(scene: Scene):
    await scene.start()
    leased = await scene.take(WORKFLOW)
    answered = await ask(scene)
    await scene.complete(leased, ContinueAsNew(NOTHING))
    await scene.decide(PAID)
    await apply(scene, answered)
    received = await updates.wait(scene.ctx, answered, 60_000, asyncio.Event())
    assert received.update.status is UpdateStatus.COMPLETED
