"""Timeouts are enforced when a report arrives: a late report is not recorded, whether or not the sweeper ran."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.core.model import ActivityStatus, RetrySchedule, RunStatus
from penstock.core.scheduling.polls import Leased
from penstock.engine.activities import activity_reports
from penstock.engine.activities.activity_reports import AttemptFailure
from penstock.engine.matching import permits
from penstock.errors import LeaseLost, PenstockError, Reason
from tests.engine.support import direct
from tests.engine.support.scene import ACTIVITY, Scene, charge, of, tries

CLOCKS = ("start_to_close", "schedule_to_close", "heartbeat")
LIMIT_MS = 1_000
OWN_TIMEOUT = {"kind": "timeout", "timeout_type": "start_to_close"}


def limited(clock: str) -> dict[str, Any]:
    return {f"{clock}_ms": LIMIT_MS}


async def running(scene: Scene, retry: RetrySchedule | None = None, **limits: Any) -> Leased:
    await scene.start()
    await scene.decide(charge(retry, **limits))
    return await scene.take(ACTIVITY)


async def refused(scene: Scene, leased: Leased, failure: AttemptFailure | None = None) -> PenstockError:
    with pytest.raises(LeaseLost) as refusal:
        await (scene.finish(leased) if failure is None else scene.fail_activity(leased, failure))
    return refusal.value


@pytest.mark.parametrize("clock", CLOCKS)
async def test_a_result_after_its_timeout_is_not_a_success(scene: Scene, clock: str) -> None:
    """The code had swallowed the cancellation, and its result came 0.1 s late."""
    leased = await running(scene, **limited(clock))
    scene.clock.advance(LIMIT_MS)
    refusal = await refused(scene, leased)
    assert refusal.reason is Reason.STALE_ATTEMPT
    assert refusal.details["timeout_kind"] == clock
    types = await scene.types(leased.run.run_id)
    assert ("ActivityCompleted" in types, types.count("ActivityTimedOut")) == (False, 1)
    assert scene.activity(leased).status is ActivityStatus.TIMED_OUT
    assert (await refused(scene, leased)).reason is Reason.STALE_ATTEMPT, "once more, and the same answer"
    assert await scene.types(leased.run.run_id) == types


@pytest.mark.parametrize("clock", CLOCKS)
async def test_a_result_in_the_last_moment_counts(scene: Scene, clock: str) -> None:
    leased = await running(scene, **limited(clock))
    scene.clock.advance(LIMIT_MS - 1)
    assert (await scene.finish(leased)).outcome == "completed"


async def test_a_late_result_of_an_activity_with_attempts_left_is_followed_by_another_attempt(
    scene: Scene,
) -> None:
    leased = await running(scene, tries(2, 0), start_to_close_ms=LIMIT_MS)
    scene.clock.advance(LIMIT_MS)
    await refused(scene, leased)
    again = await scene.take(ACTIVITY)
    assert again.task.attempt == 2
    assert (await scene.finish(again)).outcome == "completed"


async def test_a_late_failure_is_a_timeout(scene: Scene) -> None:
    """It would have failed the activity for good; the timeout is retried."""
    leased = await running(scene, tries(2, 0), start_to_close_ms=LIMIT_MS)
    scene.clock.advance(LIMIT_MS)
    await refused(scene, leased, AttemptFailure("no such card", non_retryable=True))
    assert (await scene.take(ACTIVITY)).task.attempt == 2


async def test_a_worker_may_report_the_timeout_itself(scene: Scene) -> None:
    leased = await running(scene, start_to_close_ms=LIMIT_MS)
    scene.clock.advance(LIMIT_MS)
    receipt = await scene.fail_activity(leased, AttemptFailure("too slow", "TimeoutError", extra=OWN_TIMEOUT))
    assert (receipt.outcome, receipt.late) == ("failed", None)


async def test_a_worker_that_reports_another_timeout_is_judged_by_the_servers_clock(scene: Scene) -> None:
    leased = await running(scene, heartbeat_ms=LIMIT_MS)
    scene.clock.advance(LIMIT_MS)
    refusal = await refused(scene, leased, AttemptFailure("too slow", "TimeoutError", extra=OWN_TIMEOUT))
    assert refusal.details["timeout_kind"] == "heartbeat"


@pytest.mark.parametrize("clock", CLOCKS)
async def test_a_heartbeat_after_the_timeout_does_not_bring_the_attempt_back(
    scene: Scene, clock: str
) -> None:
    leased = await running(scene, **limited(clock))
    scene.clock.advance(LIMIT_MS)
    beat = await scene.heartbeat(leased)
    assert (beat.recorded, beat.reason) == (False, Reason.STALE_ATTEMPT.value)
    activity = scene.activity(leased)
    assert await activity_reports.time_out(scene.ctx, activity.activity_id)


async def test_a_task_that_is_handed_back_after_its_timeout_has_timed_out(scene: Scene) -> None:
    leased = await running(scene, start_to_close_ms=LIMIT_MS)
    scene.clock.advance(LIMIT_MS)
    with pytest.raises(LeaseLost):
        await direct.hand_back_activity(scene.ctx, "default", leased.task.task_id, of(leased))
    assert await activity_reports.time_out(scene.ctx, scene.activity(leased).activity_id)


@pytest.mark.parametrize("clock", ["schedule_to_start", "schedule_to_close"])
async def test_a_claimed_task_is_not_started_after_its_timeout(scene: Scene, clock: str) -> None:
    await scene.start()
    await scene.decide(charge(**limited(clock)))
    leased = await scene.take(ACTIVITY, claim_lease_ms=60_000)
    scene.clock.advance(LIMIT_MS)
    with pytest.raises(LeaseLost) as refusal:
        await permits.start(scene.ctx, "default", leased.task.task_id, of(leased))
    assert refusal.value.details["timeout_kind"] == clock


async def test_a_result_after_the_deadline_of_its_run_is_not_recorded(scene: Scene) -> None:
    await scene.start(run_timeout_s=1)
    await scene.decide(charge())
    leased = await scene.take(ACTIVITY)
    scene.clock.advance(1_000)
    assert (await refused(scene, leased)).reason is Reason.RUN_TIMED_OUT
    assert scene.run(leased.run.run_id).is_open
    assert "ActivityCompleted" not in await scene.types(leased.run.run_id)


async def test_a_late_result_of_a_standalone_activity_ends_it_as_timed_out(scene: Scene) -> None:
    await scene.start_activity("charge-1", charge(start_to_close_ms=LIMIT_MS))
    leased = await scene.take(ACTIVITY)
    scene.clock.advance(LIMIT_MS)
    await refused(scene, leased)
    run = scene.run(leased.run.run_id)
    assert (run.status, run.closed_reason) == (RunStatus.FAILED, "timed_out")


@pytest.mark.parametrize("clock", ["schedule_to_start", "schedule_to_close"])
@pytest.mark.parametrize("swept", [True, False])
async def test_a_task_that_is_granted_after_its_timeout_has_timed_out(
    scene: Scene, clock: str, swept: bool
) -> None:
    await scene.start()
    await scene.decide(charge(tries(5, 0), **limited(clock)))
    scene.clock.advance(LIMIT_MS)
    leased = await scene.take(ACTIVITY)
    if swept:
        assert await activity_reports.time_out(scene.ctx, scene.activity(leased).activity_id)
    assert (await refused(scene, leased)).reason is Reason.STALE_ATTEMPT
    assert not (await scene.heartbeat(leased)).recorded
    assert scene.activity(leased).status is ActivityStatus.TIMED_OUT
    assert (await scene.types(leased.run.run_id)).count("ActivityTimedOut") == 1
