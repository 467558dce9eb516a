"""Non-deterministic code blocks its run, visibly, until a worker with matching code registers."""

from __future__ import annotations

from typing import Any

import pytest
from durable_workflow.errors import NonDeterministicReplayError
from msgspec.structs import asdict

from penstock.core.history.commands import StartTimer
from penstock.core.model import Run, TaskState
from penstock.core.scheduling.retries import BLOCKED_BACKOFF_MS
from penstock.engine.messaging import signals
from penstock.engine.messaging.signals import Signal
from penstock.engine.runs.address import Address
from penstock.engine.workflows import run_close
from penstock.engine.workflows.run_close import EndMode
from penstock.engine.workflows.workflow_reports import WAITING_FOR_HISTORY
from tests.engine.support.scene import ACTIVITY, DONE, NOTHING, WORKFLOW, Scene, charge

ERROR = NonDeterministicReplayError(1, "timer", ["ActivityScheduled"])
REST_MS = BLOCKED_BACKOFF_MS[0]
OLD = {"build_id": "build-1", "fingerprints": {"Order": "f00d"}}


async def diverge(scene: Scene, worker_id: str = "w1", **changes: Any) -> None:
    leased = await scene.take(WORKFLOW, worker_id, **changes)
    await scene.fail(leased, str(ERROR), type(ERROR).__name__)


async def a_blocked_run(scene: Scene) -> Run:
    await scene.register("w1", **OLD)
    run = await scene.start()
    await scene.decide(charge())
    await scene.finish(await scene.take(ACTIVITY))
    await diverge(scene)
    return run


def account(scene: Scene, run: Run) -> dict[str, Any]:
    blocked = scene.run(run.run_id).blocked
    return {} if blocked is None else asdict(blocked)


async def test_a_blocked_run_reports_where_code_and_history_diverge(scene: Scene):
    run = await a_blocked_run(scene)
    payload = account(scene, run)
    assert (payload["reason"], payload["sequence"], payload["yielded"]) == ("nondeterminism", 1, "timer")
    assert payload["recorded"] == ("ActivityScheduled",)
    assert (payload["event_sequence"], payload["event_type"]) == (2, "ActivityScheduled")
    assert (payload["worker_id"], payload["build_id"], payload["fingerprint"]) == ("w1", "build-1", "f00d")
    assert payload["message"] == str(ERROR)
    assert scene.run(run.run_id).is_open


async def test_it_backs_off_longer_than_after_another_failure_and_is_tried_again(scene: Scene):
    run = await a_blocked_run(scene)
    await scene.advance(REST_MS - 1)
    assert await scene.claim(WORKFLOW) is None
    await scene.advance(1)
    await diverge(scene)
    assert scene.run(run.run_id).task_failures == 2
    await scene.advance(REST_MS)
    assert await scene.claim(WORKFLOW) is None


async def test_it_is_blocked_since_the_first_time(scene: Scene):
    run = await a_blocked_run(scene)
    since = account(scene, run)["since"]
    await scene.advance(REST_MS)
    await diverge(scene)
    assert account(scene, run)["since"] == since


@pytest.mark.parametrize(
    "changes", [OLD | {"build_id": "build-2"}, OLD | {"fingerprints": {"Order": "beef"}}]
)
async def test_a_worker_with_other_code_is_given_the_task_at_once(scene: Scene, changes: dict[str, Any]):
    run = await a_blocked_run(scene)
    await scene.register("w2", **changes)
    leased = await scene.take(WORKFLOW, "w2", build_id=changes["build_id"])
    assert leased.run.run_id == run.run_id
    await scene.complete(leased, DONE)
    assert scene.run(run.run_id).blocked is None
    assert not scene.run(run.run_id).is_open


@pytest.mark.parametrize(
    "changes",
    [OLD, OLD | {"build_id": "build-2", "workflow_types": ("Refund",)}, OLD | {"task_queue": "mail"}],
    ids=["the same code", "another type", "another queue"],
)
async def test_a_worker_that_cannot_replay_unblocks_no_run(scene: Scene, changes: dict[str, Any]):
    run = await a_blocked_run(scene)
    await scene.register("w2", **changes)
    assert {task.state for task in scene.live(run.run_id)} == {TaskState.DELAYED}


async def test_another_failure_is_reported_instead(scene: Scene):
    run = await a_blocked_run(scene)
    await scene.advance(REST_MS)
    await scene.fail(await scene.take(WORKFLOW), "boom", "RuntimeError")
    stored = scene.run(run.run_id)
    assert (stored.blocked, stored.task_error) == (None, "RuntimeError: boom")


async def test_code_without_new_commands_matches(scene: Scene):
    run = await a_blocked_run(scene)
    await scene.advance(REST_MS)
    await scene.fail(await scene.take(WORKFLOW), "nothing new", WAITING_FOR_HISTORY)
    stored = scene.run(run.run_id)
    assert (stored.blocked, stored.task_failures, stored.task_error) == (None, 0, None)


async def test_a_blocked_run_receives_signals_and_can_be_ended(scene: Scene):
    run = await a_blocked_run(scene)
    await signals.send(scene.ctx, Signal(Address("default", "order-1"), "pay", NOTHING))
    assert (await scene.types(run.run_id))[-1] == "SignalReceived"
    await run_close.end_run(scene.ctx, "default", "order-1", EndMode.TERMINATE, None)
    assert scene.run(run.run_id).blocked is None
    await scene.register("w2", build_id="build-2")
    assert scene.live(run.run_id) == []


async def test_a_run_that_has_not_been_blocked_keeps_its_backoff(scene: Scene):
    run = await scene.start()
    await scene.fail(await scene.take(WORKFLOW), "boom", "RuntimeError")
    await scene.register("w2", build_id="build-2")
    assert {task.state for task in scene.live(run.run_id)} == {TaskState.DELAYED}


async def test_only_the_runs_that_are_blocked_are_unblocked(scene: Scene):
    blocked = await a_blocked_run(scene)
    resting = await scene.start("order-2")
    await scene.fail(await scene.take(WORKFLOW), "boom", "RuntimeError")
    await scene.register("w2", **(OLD | {"build_id": "build-2"}))
    assert {task.state for task in scene.live(blocked.run_id)} == {TaskState.READY}
    assert {task.state for task in scene.live(resting.run_id)} == {TaskState.DELAYED}


async def test_a_failure_without_a_place_blocks_as_well(scene: Scene):
    run = await scene.start()
    await scene.decide(StartTimer(0))
    await scene.advance(0)
    await scene.fail(await scene.take(WORKFLOW), "it differs somehow", "NonDeterminismError")
    payload = account(scene, run)
    assert (payload["sequence"], payload["event_type"], payload["message"]) == (
        None,
        None,
        "it differs somehow",
    )
