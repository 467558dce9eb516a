"""Update validation: a rejected update leaves no trace."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from penstock.core import payload_codec
from penstock.core.history.commands import OpenConditionWait
from penstock.core.model import Blob, QueryState, Run
from penstock.engine.maintenance.sweepers.expired_queries import expired_queries
from penstock.engine.matching import update_validation
from penstock.engine.matching.query_tasks import LeasedQuery
from penstock.engine.messaging import queries, updates
from penstock.engine.messaging.updates import UpdateResult, UpdateSubmission
from penstock.engine.runs.address import Address
from penstock.errors import Conflict, InvalidInput, LeaseLost, NotFound, PenstockError, Reason, Unavailable
from tests.engine.support.scene import WORKFLOW, Scene, a_poll, a_scene

ARGUMENTS = payload_codec.encode([7])
CONTRACT = {"updates": ["set"], "update_validators": ["set"]}
VALIDATOR = {
    "capabilities": ["update_validation_tasks"],
    "workflow_command_contracts": {"Order": CONTRACT},
}
DRAINING = asyncio.Event()


async def waiting_run(**settings: str) -> Scene:
    """A run that waits, on a queue with a worker that validates its updates."""
    scene = a_scene(**settings)
    await scene.register(advertised=VALIDATOR)
    await scene.start()
    await scene.decide(OpenConditionWait("set"))
    return scene


def update(scene: Scene, request_id: str | None = "u1") -> asyncio.Task[UpdateResult]:
    asked = UpdateSubmission(Address("default", "order-1"), "set", ARGUMENTS, request_id)
    return asyncio.create_task(updates.accept(scene.ctx, asked, asyncio.Event()))


async def take(scene: Scene, worker_id: str = "w1") -> LeasedQuery:
    """The update pending validation, once it is submitted."""
    leased = None
    while leased is None:
        leased = await update_validation.poll(scene.ctx, a_poll(WORKFLOW, worker_id), 0, asyncio.Event())
        await asyncio.sleep(0)
    return leased


async def report(scene: Scene, leased: LeasedQuery, state: QueryState, **changes: Any) -> None:
    payload: dict[str, Any] = {"owner": "w1", "attempt": leased.query.attempt, "outcome": {}} | changes
    await update_validation.report(
        scene.ctx,
        "default",
        leased.query.query_id,
        payload["owner"],
        payload["attempt"],
        state,
        payload["outcome"],
    )


async def refusal(asked: asyncio.Task[UpdateResult]) -> PenstockError:
    with pytest.raises(PenstockError) as refused:
        await asked
    return refused.value


def order(scene: Scene) -> Run:
    return scene.run(scene.tables.instances["default", "order-1"].run_id)


async def test_an_update_that_the_code_approves_is_accepted():
    scene = await waiting_run()
    asked = update(scene)
    leased = await take(scene)
    assert (leased.query.name, leased.query.arguments) == ("set", ARGUMENTS)
    assert [event.type for event in leased.events][-1] == "ConditionWaitOpened"
    assert order(scene).open_updates == 0, "nothing is recorded before"
    await report(scene, leased, QueryState.ANSWERED)
    assert (await asked).update.name == "set"
    assert (await scene.types(order(scene).run_id))[-1] == "UpdateAccepted"
    assert not scene.tables.queries


async def test_an_update_that_the_code_rejects_leaves_no_trace():
    scene = await waiting_run()
    asked = update(scene)
    errors = {"amount": ["must be positive"]}
    outcome = {"message": "no", "reason": "update_validator_rejected", "validation_errors": errors}
    await report(scene, await take(scene), QueryState.FAILED, outcome=outcome)
    refused = await refusal(asked)
    assert isinstance(refused, InvalidInput)
    assert refused.reason is Reason.UPDATE_VALIDATOR_REJECTED
    assert (refused.message, refused.details["validation_errors"]) == ("no", errors)
    assert "UpdateAccepted" not in await scene.types(order(scene).run_id)
    assert scene.tables.count("requests") == 0


async def test_a_worker_that_cannot_validate_is_reported():
    scene = await waiting_run()
    asked = update(scene)
    outcome = {"message": "cannot replay", "reason": "update_validation_worker_failed"}
    await report(scene, await take(scene), QueryState.FAILED, outcome=outcome)
    refused = await refusal(asked)
    assert isinstance(refused, Conflict)
    assert refused.reason is Reason.UPDATE_VALIDATION_WORKER_FAILED
    assert refused.details["worker_reason"] == "update_validation_worker_failed"


async def test_an_update_that_was_accepted_is_not_validated_again():
    scene = await waiting_run()
    asked = update(scene)
    await report(scene, await take(scene), QueryState.ANSWERED)
    first = await asked
    again = await update(scene)
    assert again.retained
    assert again.update == first.update


async def test_an_update_that_nobody_takes_is_refused_after_a_while():
    scene = await waiting_run(query_task_timeout="1")
    refused = await refusal(update(scene))
    assert isinstance(refused, Unavailable)
    assert refused.reason is Reason.UPDATE_VALIDATION_TASK_NOT_CLAIMED
    assert refused.details["retryable"] is True
    assert not scene.tables.queries


async def test_an_update_that_somebody_took_and_forgot_is_refused_after_a_while():
    scene = await waiting_run(query_task_timeout="1")
    asked = update(scene)
    await take(scene)
    refused = await refusal(asked)
    assert refused.reason is Reason.UPDATE_VALIDATION_EXECUTION_TIMEOUT
    assert refused.details["retryable"] is True


@pytest.mark.parametrize(
    ("worker", "reason"),
    [
        ({"advertised": {"capabilities": ["query_tasks"]}}, Reason.UPDATE_VALIDATION_CAPABILITY_UNSUPPORTED),
        ({"workflow_types": ("Invoice",)}, Reason.UPDATE_VALIDATOR_WORKER_UNAVAILABLE),
        ({"build_id": "other"}, Reason.UPDATE_VALIDATOR_WORKER_INCOMPATIBLE),
    ],
)
async def test_an_update_is_refused_at_once_when_no_worker_that_is_there_could_validate_it(
    scene: Scene, worker: dict[str, Any], reason: Reason
):
    run = await scene.start(build_id="b1")
    await scene.register(**({"advertised": VALIDATOR, "build_id": "b1"} | worker))
    with pytest.raises(Conflict) as refused:
        await update_validation.require_approval(scene.ctx, run, "set", ARGUMENTS, DRAINING)
    assert refused.value.reason is reason
    assert not scene.tables.queries


async def test_so_many_updates_and_no_more_wait_to_be_validated():
    scene = await waiting_run(query_task_max_pending_per_queue="1")
    first = update(scene, "u1")
    while not scene.tables.queries:
        await asyncio.sleep(0)
    refused = await refusal(update(scene, "u2"))
    assert refused.reason is Reason.UPDATE_VALIDATOR_WORKER_UNAVAILABLE
    assert refused.details["retryable"] is True
    await report(scene, await take(scene), QueryState.ANSWERED)
    await first


async def test_a_validation_whose_worker_died_goes_to_another():
    scene = await waiting_run()
    await scene.register("w2", advertised=VALIDATOR)
    asked = update(scene)
    lost = await take(scene)
    [_row] = scene.tables.queries.values()
    scene.tables.execute("UPDATE query_tasks SET expires_at_ms = expires_at_ms + 1000000000")
    scene.clock.set(lost.query.lease_expires_at_ms or 0)
    assert await expired_queries(scene.ctx).sweep() == 1
    second = await take(scene, "w2")
    with pytest.raises(LeaseLost) as refused:
        await report(scene, lost, QueryState.FAILED)
    assert refused.value.reason is Reason.STALE_UPDATE_VALIDATION_COMPLETION
    await report(scene, second, QueryState.ANSWERED, owner="w2")
    await asked


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"owner": "w2"}, Reason.STALE_UPDATE_VALIDATION_COMPLETION),
        ({"attempt": 2}, Reason.STALE_UPDATE_VALIDATION_COMPLETION),
    ],
)
async def test_only_who_holds_a_validation_answers_it(changes: dict[str, Any], reason: Reason):
    scene = await waiting_run()
    asked = update(scene)
    leased = await take(scene)
    with pytest.raises(LeaseLost) as refused:
        await report(scene, leased, QueryState.ANSWERED, **changes)
    assert refused.value.reason is reason
    await report(scene, leased, QueryState.ANSWERED)
    with pytest.raises((LeaseLost, NotFound)) as late:
        await report(scene, leased, QueryState.ANSWERED)
    assert late.value.reason in (
        Reason.UPDATE_VALIDATION_TASK_NOT_LEASED,
        Reason.UPDATE_VALIDATION_TASK_NOT_FOUND,
    )
    await asked


async def test_an_answer_after_the_lease_changes_nothing():
    scene = await waiting_run()
    asked = update(scene)
    leased = await take(scene)
    scene.clock.set(leased.query.lease_expires_at_ms or 0)
    with pytest.raises(LeaseLost) as refused:
        await report(scene, leased, QueryState.ANSWERED)
    assert refused.value.reason is Reason.UPDATE_VALIDATION_LEASE_EXPIRED
    asked.cancel()
    await asyncio.wait([asked])
    with pytest.raises(NotFound) as gone:
        await report(scene, leased, QueryState.ANSWERED)
    assert gone.value.reason is Reason.UPDATE_VALIDATION_TASK_NOT_FOUND


async def test_queries_and_validations_are_different_query_tasks():
    scene = await waiting_run()
    asked = update(scene)
    leased = await take(scene)
    with pytest.raises(NotFound):
        await queries.report(
            scene.ctx, "default", leased.query.query_id, "w1", 1, QueryState.ANSWERED, {"result": 1}
        )
    await report(scene, leased, QueryState.ANSWERED)
    await asked


async def test_a_server_that_drains_waits_for_no_validation():
    scene = await waiting_run()
    leaving = asyncio.Event()
    asked = asyncio.create_task(
        update_validation.require_approval(scene.ctx, order(scene), "set", Blob(ARGUMENTS), leaving)
    )
    while not scene.tables.queries:
        await asyncio.sleep(0)
    leaving.set()
    with pytest.raises(Unavailable) as refused:
        await asked
    assert refused.value.reason is Reason.SERVER_DRAINING
