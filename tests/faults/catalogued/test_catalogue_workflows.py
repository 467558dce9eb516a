"""Rows F70 to F74 of the fault catalogue: broken code, huge histories and fan-outs, retry storms."""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from datetime import datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.cluster import Cluster, Hand, Json, until
from tests.faults.catalogue import apart, clusters
from tests.faults.programs import versioned_worker
from tests.support.patience import PATIENCE_S
from tests.support.servers import Server

pytestmark = pytest.mark.faults
EVENTS_MAX, ACTIVITIES_MAX = 15_000, 1_200
SETTINGS = {
    "DW_WORKFLOW_TASK_TIMEOUT": "3",
    "DW_MAX_HISTORY_EVENTS": str(EVENTS_MAX),
    "DW_MAX_PENDING_ACTIVITIES": str(ACTIVITIES_MAX),
    "DW_MAX_PENDING_TIMERS": "10",
}
CHUNK, CHUNKS = 1_000, {"sqlite": 5, "postgres": 2}
STORM, PER_SECOND = 30, 10


@pytest.fixture(scope="module", params=["sqlite", "postgres"])
async def cluster(
    request: pytest.FixtureRequest, postgres: Server, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Cluster]:
    async with clusters(request.param, tmp_path_factory.mktemp("rows"), postgres, SETTINGS) as made:
        yield made


@pytest.fixture
async def scene(cluster: Cluster) -> Cluster:
    return await apart(cluster)


@contextlib.contextmanager
def sdk_worker(scene: Cluster, version: str, folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A process of the public SDK with one version of the code; it is killed at the end."""
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith(("DW_", "DURABLE_WORKFLOW_"))
    }
    command = [
        *(sys.executable, versioned_worker.__file__, scene.first.url),
        *(str(scene.namespace), f"worker-{version}", version),
    ]
    with (folder / f"{version}.log").open("ab") as log:
        process = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
    try:
        yield process
    finally:
        process.kill()
        process.wait(PATIENCE_S)


async def becomes(scene: Cluster, workflow_id: str, **wanted: Any) -> Json:
    """The run's description, once it has these values."""
    found: Json = {}

    async def so() -> bool:
        found.update(await scene.describe(workflow_id))
        return all(found.get(name) == value for name, value in wanted.items())

    await until(so, looks_max=3_000)
    return found


# --- code that is wrong ---


@pytest.mark.fault("F70")
@pytest.mark.slow
async def test_f70_code_that_parts_from_its_history_blocks_the_run_until_a_build_that_fits_comes(
    scene: Cluster, tmp_path: Path
):
    with sdk_worker(scene, "first", tmp_path):
        (await scene.start("order-1", input=["Ada"])).expect(201)
        await becomes(scene, "order-1", open_timers=1)
    with sdk_worker(scene, "broken", tmp_path):
        await until(lambda: is_blocked(scene, "order-1"), looks_max=3_000)
        shown = await scene.describe("order-1")
        blocked = shown["blocked"]
        assert (shown["status_bucket"], shown["closed_reason"]) == ("running", None)
        assert blocked["reason"] == "nondeterminism"
        assert (blocked["event_type"], blocked["build_id"]) == ("ActivityScheduled", "broken")
        assert "ActivityScheduled" in blocked["recorded"]
        assert "imer" in blocked["yielded"]
        why = (await scene.get("/api/workflows/order-1/why")).expect(200)
        rests_until = datetime.fromisoformat(why["binding"]["opens_at"])
        assert rests_until - datetime.fromisoformat(blocked["since"]) >= timedelta(seconds=9.9)
        failures = shown["workflow_task_failures"]
    with sdk_worker(scene, "fixed", tmp_path):
        done = await becomes(scene, "order-1", status="completed")
    assert done["output"] == "Hello, Ada!"
    assert (done["blocked"], done["workflow_task_failures"]) == (None, 0)
    assert failures == 1, "it is not tried again and again"


async def is_blocked(scene: Cluster, workflow_id: str) -> bool:
    return (await scene.describe(workflow_id))["blocked"] is not None


@pytest.mark.fault("F71")
@pytest.mark.slow
async def test_f71_code_that_never_yields_loses_its_task_and_another_worker_goes_on(
    scene: Cluster, tmp_path: Path
):
    with sdk_worker(scene, "endless", tmp_path) as stuck:
        (await scene.start("order-1", input=["Ada"])).expect(201)
        await until(lambda: is_leased(scene), looks_max=3_000)
        rescuer = await scene.worker("rescuer")
        task = await rescuer.take()
        assert task["workflow_task_attempt"] >= 2
        assert stuck.poll() is None, "it still spins"
        (await rescuer.finish(task, "by another")).expect(200)
        assert (await scene.describe("order-1"))["output"] == "by another"
        assert (await scene.line(kind="workflow"))["leased_count"] == 0


async def is_leased(scene: Cluster) -> bool:
    return bool((await scene.line(kind="workflow"))["leased_count"])


# --- runs that grow ---


@pytest.mark.fault("F72")
async def test_f72_a_run_is_warned_at_four_fifths_of_a_limit_and_stopped_at_it_with_advice(scene: Cluster):
    hand = await scene.worker("w1")
    (await scene.start("order-1")).expect(201)
    task = await hand.take()
    timer = {"type": "start_timer", "delay_seconds": 600}
    refused = (await hand.decide(task, *[timer] * 11)).expect(422, "structural_limit_exceeded")
    assert (refused["limit_kind"], refused["configured_limit"]) == ("pending_timer_count", 10)
    assert "Await or cancel" in refused["message"]
    assert await scene.event_types("order-1") == ["WorkflowStarted"]
    (await hand.decide(task, *[timer] * 8)).expect(200)
    [warning] = (await scene.describe("order-1"))["warnings"]
    assert (warning["limit_kind"], warning["percent"]) == ("pending_timer_count", 80)


@pytest.mark.fault("F72")
@pytest.mark.slow
async def test_f72_a_history_at_its_limit_advises_to_continue_as_new_and_can_still_end(scene: Cluster):
    hand = await scene.worker("w1")
    (await scene.start("order-1")).expect(201)
    task = await hand.take()
    effect = {"type": "record_side_effect", "result": 1}
    nap = {"type": "start_timer", "delay_seconds": 0}
    warned: list[Json] = []
    while True:
        reply = await hand.decide(task, *[effect] * 900, nap)
        if reply.status != 200:
            break
        warned = (await scene.describe("order-1"))["warnings"] or warned
        task = await hand.take()
    reply.expect(422, "structural_limit_exceeded")
    assert reply["limit_kind"] == "history_event_count"
    assert "ontinue as new" in reply["message"]
    assert [each["limit_kind"] for each in warned] == ["history_event_count"]
    assert warned[0]["percent"] >= 80
    (await hand.finish(task, "enough")).expect(200)
    assert (await scene.describe("order-1"))["status"] == "completed"


@pytest.mark.fault("F73")
@pytest.mark.slow
async def test_f73_a_huge_fan_out_goes_in_chunks_and_other_keys_are_served_meanwhile(
    scene: Cluster, request: pytest.FixtureRequest
):
    hand = await scene.worker("w1")
    (await scene.start("big", fairness_key="big")).expect(201)
    task = await hand.take()
    one = {"type": "schedule_activity", "activity_type": "greet", "arguments": []}
    refused = await hand.decide(task, *[one] * (CHUNK + 1))
    assert (refused.status, refused.reason) in (
        (422, "structural_limit_exceeded"),
        (422, "validation_failed"),
    )
    done = 0
    for number in range(CHUNKS[request.node.callspec.params["cluster"]]):
        (await hand.decide(task, *[one] * CHUNK)).expect(200)
        done += await serve_all(scene, hand, f"small-{number}")
        task = await hand.take()
        (await hand.report(task, "heartbeat")).expect(200)
    assert done % CHUNK == 0
    (await hand.finish(task, done)).expect(200)
    assert (await scene.describe("big"))["output"] == done


async def serve_all(scene: Cluster, hand: Hand, small: str) -> int:
    """Serve a chunk; a task of another key that comes behind all of it goes within the next two."""
    (await scene.start_activity(small, fairness_key="small")).expect(201)
    first = await hand.some(2)
    assert small in {task["workflow_id"] for task in first}, "a small key does not wait for a big one"
    await hand.finish_all(first)
    done = len(first) - 1
    while done < CHUNK:
        tasks = await hand.some(min(100, CHUNK - done))
        await hand.finish_all(tasks)
        done += len(tasks)
    return done


# --- retries ---


@pytest.mark.fault("F74")
@pytest.mark.slow
async def test_f74_a_storm_of_retries_keeps_to_the_budget_of_its_queue(scene: Cluster):
    hand = await scene.worker("w1")
    (await scene.config(retry_rps_limit=PER_SECOND, reason="the bank is slow")).expect(200)
    policy = {"max_attempts": 3, "backoff_seconds": []}
    names = [f"charge-{number}" for number in range(STORM)]
    await asyncio.gather(*(scene.start_activity(name, retry_policy=policy) for name in names))
    await hand.report_all(await hand.drain(STORM), "fail", failure={"message": "503 from the bank"})
    (await scene.start_activity("fresh")).expect(201)
    shown = await asyncio.gather(*(scene.get(f"/api/activities/{name}/why") for name in names))
    moved = [reply["binding"] for reply in shown if (reply["binding"] or {}).get("kind") == "retry_budget"]
    assert len(moved) > STORM // 2
    assert all("the retry budget of 10 retries a second" in each["message"] for each in moved)
    places = sorted(datetime.fromisoformat(each["opens_at"]) for each in moved)
    interval = timedelta(seconds=1) / PER_SECOND
    for first, after_next in zip(places, places[2:], strict=False):
        assert after_next - first > interval * 0.99, "no more than two moments are nearer than one place"
    assert all(sooner <= later for sooner, later in pairwise(places))
    assert (await hand.take("activity"))["workflow_id"] in {"fresh", *names}
    (await scene.config(retry_rps_limit="default")).expect(200)
    rest = await hand.drain(STORM)
    assert {task["attempt_number"] for task in rest} <= {1, 2}
