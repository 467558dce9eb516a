"""Rows F57 to F69 of the fault catalogue: repeated, late, forged and concurrent reports; polls and queries."""

from __future__ import annotations

import asyncio
import math
import random
from collections import Counter
from collections.abc import AsyncIterator
from datetime import datetime
from typing import Any

import pytest

from penstock.core.model import Activity, ActivityStatus, RunStatus
from penstock.core.scheduling.polls import Leased
from penstock.engine.activities import activity_reports
from penstock.engine.maintenance.sweepers.expired_leases import expired_leases
from penstock.engine.workflows import run_close
from penstock.engine.workflows.run_close import EndMode
from penstock.errors import PenstockError
from tests.acceptance.cluster import Cluster, Hand, Json, Reply, until
from tests.engine.support.scene import ACTIVITY, Scene, a_poll, a_scene, charge
from tests.faults.catalogue import apart, clusters, said
from tests.support.claims import leased_of
from tests.support.effort import times
from tests.support.servers import Server

pytestmark = pytest.mark.faults
QUERIES_PENDING_MAX = 20
QUERIES, ASKERS = {"sqlite": 1_500, "postgres": 500}, 100
QUERY_SECONDS = 3
SETTINGS = {
    "DW_WORKFLOW_TASK_TIMEOUT": "2",
    "DW_ACTIVITY_TASK_TIMEOUT": "2",
    "DW_QUERY_TASK_TIMEOUT": str(QUERY_SECONDS),
    "DW_QUERY_TASK_MAX_PENDING_PER_QUEUE": str(QUERIES_PENDING_MAX),
    "DW_WORKER_STALE_AFTER_SECONDS": "3600",
}
ROUNDS, SEEDS, AT_ONCE = times(2_000), 4, 50
REAL_ROUNDS = 60


@pytest.fixture(scope="module", params=["sqlite", "postgres"])
async def cluster(
    request: pytest.FixtureRequest, postgres: Server, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Cluster]:
    async with clusters(request.param, tmp_path_factory.mktemp("rows"), postgres, SETTINGS) as made:
        yield made


@pytest.fixture
async def scene(cluster: Cluster) -> Cluster:
    return await apart(cluster)


async def held(scene: Cluster, kind: str, worker: str = "w1") -> tuple[Hand, Json]:
    """A task in the hands of a worker."""
    hand = await scene.worker(worker)
    if kind == "workflow":
        (await scene.start("order-1")).expect(201)
    else:
        (await scene.start_activity("charge-1")).expect(201)
    return hand, await hand.take(kind)


async def result_of(scene: Cluster, kind: str) -> Any:
    if kind == "workflow":
        return (await scene.describe("order-1"))["output"]
    return (await scene.get("/api/activities/charge-1/result")).ok()["result"]


# --- reports that come twice, or late ---


@pytest.mark.fault("F57")
@pytest.mark.parametrize("kind", ["workflow", "activity"])
async def test_f57_a_report_sent_twice_is_accepted_once_and_answered_alike(scene: Cluster, kind: str):
    hand, task = await held(scene, kind)
    replies = [(await hand.finish(task, "once")).expect(200) for _ in range(3)]
    assert [reply["already_accepted"] for reply in replies] == [False, True, True]
    assert {(reply["outcome"], reply["recorded"]) for reply in replies} == {("completed", True)}
    assert await result_of(scene, kind) == "once"


@pytest.mark.fault("F58")
@pytest.mark.parametrize("kind", ["workflow", "activity"])
async def test_f58_of_two_stories_the_first_counts_and_the_second_is_logged(scene: Cluster, kind: str):
    hand, task = await held(scene, kind)
    (await hand.finish(task, "first")).expect(200)
    refused = (await hand.finish(task, "second")).expect(409, "completion_conflict")
    assert refused["accepted_outcome"] == "completed"
    assert await result_of(scene, kind) == "first"
    [line] = said(scene, "a report was rejected")
    assert (line["reason"], line["worker_id"], line["task_id"]) == (
        "completion_conflict",
        "w1",
        task["task_id"],
    )


@pytest.mark.fault("F59")
@pytest.mark.parametrize("kind", ["workflow", "activity"])
async def test_f59_a_report_after_the_task_went_to_another_changes_nothing(scene: Cluster, kind: str):
    late, lost = await held(scene, kind)
    keen = await scene.worker("keen")
    again = await keen.take(kind)
    reason = "lease_owner_mismatch" if kind == "workflow" else "stale_attempt"
    (await late.finish(lost, "late")).expect(409, reason)
    (await keen.finish(again, "in time")).expect(200)
    assert await result_of(scene, kind) == "in time"


@pytest.mark.fault("F60")
@pytest.mark.parametrize("beyond_ms", [0, 1, 10_000])
async def test_f60_a_heartbeat_at_the_end_of_the_lease_never_brings_it_back(beyond_ms: int):
    """The sweeper has not run yet: the row is still leased, although the lease expired."""
    scene = a_scene()
    await scene.start_activity(command=charge(heartbeat_ms=3_600_000))
    leased = await scene.take(ACTIVITY)
    ends_at_ms = leased.task.lease_expires_at_ms
    assert ends_at_ms is not None
    scene.clock.advance(ends_at_ms - scene.clock.now_ms() - 1)
    assert (await scene.heartbeat(leased)).recorded
    ends_at_ms = scene.task(leased.task.task_id).lease_expires_at_ms
    assert ends_at_ms is not None
    scene.clock.advance(ends_at_ms - scene.clock.now_ms() + beyond_ms)
    before = (scene.task(leased.task.task_id), scene.activity(leased))
    beat = await scene.heartbeat(leased)
    assert (beat.recorded, beat.reason) == (False, "lease_expired")
    assert (scene.task(leased.task.task_id), scene.activity(leased)) == before
    await expired_leases(scene.ctx).sweep()
    assert await scene.claim(ACTIVITY, "w2") is not None


# --- heartbeats out of order ---


@pytest.mark.fault("F61")
async def test_f61_heartbeats_in_any_order_leave_the_longest_lease_and_the_latest_details(scene: Cluster):
    hand, task = await held(scene, "activity")
    numbers = [*range(8)]
    random.Random(61).shuffle(numbers)
    ends: list[datetime] = []
    for number in [*numbers, 3]:
        beat = await hand.report(task, "heartbeat", sequence=number, details={"step": number})
        ends.append(datetime.fromisoformat(beat.expect(200)["lease_expires_at"]))
    assert ends == sorted(ends), "a lease only ever grows"
    shown = (await scene.get("/api/activities/charge-1")).expect(200)
    assert shown["last_heartbeat"] == {"sequence": 7, "details": {"step": 7}}


@pytest.mark.fault("F61")
async def test_f61_the_next_attempt_counts_its_heartbeats_anew():
    scene = a_scene()
    await scene.start_activity()
    first = await scene.take(ACTIVITY)
    await scene.heartbeat(first, '{"sequence": 9, "details": "far"}')
    await scene.heartbeat(first, '{"sequence": 8, "details": "overtaken"}')
    assert scene.activity(first).heartbeat_details == '{"sequence": 9, "details": "far"}'
    scene.clock.advance(10**7)
    await expired_leases(scene.ctx).sweep()
    again = await scene.take(ACTIVITY)
    await scene.heartbeat(again, '{"sequence": 0, "details": "begins"}')
    assert scene.activity(again).heartbeat_details == '{"sequence": 0, "details": "begins"}'


# --- reports by others ---


def reports(task: Json) -> list[tuple[str, Json]]:
    if "activity_attempt_id" in task:
        return [("complete", {"result": 1}), ("fail", {"failure": {"message": "no"}}), ("heartbeat", {})]
    return [
        ("complete", {"commands": [{"type": "complete_workflow"}]}),
        ("fail", {"failure": {"message": "no"}}),
        ("heartbeat", {}),
    ]


@pytest.mark.fault("F62")
@pytest.mark.parametrize("kind", ["workflow", "activity"])
async def test_f62_a_token_of_another_namespace_opens_nothing_and_tells_nothing(scene: Cluster, kind: str):
    """Every refusal is the one for a task that never was, apart from the name that the caller gave itself."""
    hand, task = await held(scene, kind)
    elsewhere = await apart(scene)
    thief = await elsewhere.worker("w1")
    for action, fields in reports(task):
        stolen = await thief.report(task, action, **fields)
        invented = await thief.report(task | {"task_id": "no-such-task"}, action, **fields)
        stolen.expect(404, "task_not_found")
        assert unnamed(stolen) == unnamed(invented)
    lines = said(elsewhere, "a report was rejected")
    assert len(lines) == 2 * len(reports(task))
    assert {(line["reason"], line["worker_id"]) for line in lines} == {("task_not_found", "w1")}
    assert task["task_id"] in {line["task_id"] for line in lines}
    (await hand.finish(task, "mine")).expect(200)
    assert await result_of(scene, kind) == "mine"


def unnamed(reply: Reply) -> Json:
    return {name: value for name, value in reply.body.items() if name != "task_id"}


@pytest.mark.fault("F62")
async def test_f62_a_guessed_token_and_a_neighbours_lease_are_refused_and_logged(scene: Cluster):
    hand, task = await held(scene, "activity")
    thief = await scene.worker("thief")
    guessed = task | {"activity_attempt_id": f"{task['attempt_number']}.guess"}
    for action, fields in reports(task):
        (await thief.report(guessed, action, **fields)).expect(404, "attempt_not_found")
    (await thief.finish(task)).expect(409, "lease_owner_mismatch")
    reasons = Counter(line["reason"] for line in said(scene, "a report was rejected"))
    assert reasons == {"attempt_not_found": 3, "lease_owner_mismatch": 1}
    (await hand.finish(task, "mine")).expect(200)


# --- complete, cancel and time out at once ---

TERMINAL = (RunStatus.COMPLETED, RunStatus.CANCELLED, RunStatus.FAILED)


@pytest.mark.fault("F63")
@pytest.mark.slow
@pytest.mark.parametrize("seed", range(SEEDS))
async def test_f63_of_complete_cancel_and_timeout_exactly_one_counts_in_every_round(seed: int):
    dice = random.Random(seed)
    seen: Counter[RunStatus] = Counter()
    for _ in range(ROUNDS // SEEDS // AT_ONCE):
        scene = a_scene()
        await scene.register()
        for number in range(AT_ONCE):
            await scene.start_activity(f"charge-{number}", charge(schedule_to_close_ms=1_000))
        [verdict] = await scene.ask(a_poll(ACTIVITY, tasks_max=AT_ONCE))
        scene.clock.advance(dice.choice((999, 1_000)))
        for leased in leased_of(verdict):
            seen[await a_round(scene, leased, dice)] += 1
    assert sum(seen.values()) == ROUNDS // SEEDS
    assert set(seen) == set(TERMINAL), seen


async def a_round(scene: Scene, leased: Leased, dice: random.Random) -> RunStatus:
    """Three act at once; returns how it ended."""
    acts = [finish(scene, leased), cancel(scene, leased), time_out(scene, leased)]
    dice.shuffle(acts)
    told = await asyncio.gather(*acts)
    run = scene.run(leased.run.run_id)
    assert run.status in TERMINAL
    assert sum(ended for ended, _ in told) == 1, told
    types = await scene.types(run.run_id)
    assert sum(each in ENDS for each in types) == 1, types
    assert not scene.live(run.run_id)
    for ended, reason in told:
        assert ended or reason is None or reason in REASONS[run.status], (reason, run.status)
    return run.status


ENDS = ("WorkflowCompleted", "WorkflowFailed", "WorkflowCancelled", "WorkflowTerminated", "WorkflowTimedOut")
REASONS = {
    RunStatus.COMPLETED: {"run_closed", "run_already_closed", "run_not_active"},
    RunStatus.CANCELLED: {"run_cancelled", "run_not_active"},
    RunStatus.FAILED: {"run_closed", "run_already_closed", "run_not_active"},
}
Told = tuple[bool, str | None]
"""Whether an operation reports that it closed the run; the reason if it was rejected."""


async def finish(scene: Scene, leased: Leased) -> Told:
    """A result that comes too late is refused, and the timeout is recorded in its place: that is an end as well."""
    try:
        receipt = await scene.finish(leased)
    except PenstockError as refusal:
        return "timeout_kind" in refusal.details, refusal.reason.value
    return receipt.outcome == "completed", None


async def cancel(scene: Scene, leased: Leased) -> Told:
    try:
        ended = await run_close.end_run(
            scene.ctx, "default", leased.run.workflow_id, EndMode.CANCEL, None, leased.run.run_id
        )
    except PenstockError as refusal:
        return False, refusal.reason.value
    return ended.run.status is RunStatus.CANCELLED, None


async def time_out(scene: Scene, leased: Leased) -> Told:
    assert isinstance(leased.activity, Activity)
    done = await activity_reports.time_out(scene.ctx, leased.activity.activity_id)
    timed_out = scene.activity(leased).status is ActivityStatus.TIMED_OUT
    return done and timed_out, None


@pytest.mark.fault("F63")
async def test_f63_the_same_with_three_clients_on_real_servers(scene: Cluster):
    """The third is the clock: each activity may run for a second, and every third round waits that long."""
    hand = await scene.worker("w1")
    ends: Counter[str] = Counter()
    names = [f"charge-{number}" for number in range(REAL_ROUNDS)]
    await asyncio.gather(*(scene.start_activity(name, start_to_close_timeout_seconds=1) for name in names))
    tasks = await hand.drain(REAL_ROUNDS)

    async def race(number: int, task: Json) -> None:
        name = task["workflow_id"]
        if number % 3 == 0:
            await until(lambda: is_closed(scene, name))
        acts = [hand.finish(task, "done"), scene.post(f"/api/activities/{name}/cancel", {})]
        replies = await asyncio.gather(*(acts if number % 2 else reversed(acts)))
        done, stopped = replies if number % 2 else reversed(replies)
        shown = (await scene.get(f"/api/activities/{name}")).expect(200)
        ends[shown["status"]] += 1
        assert (done.status == 200) == (shown["status"] == "completed"), (done.body, shown.body)
        assert (stopped.status < 300) == (shown["status"] == "cancelled"), (stopped.body, shown.body)
        if done.status != 200:
            assert (done.status, done.reason in LATE) == (409, True), done.body

    await asyncio.gather(*(race(number, task) for number, task in enumerate(tasks)))
    assert sum(ends.values()) == REAL_ROUNDS
    assert ends["failed"] >= REAL_ROUNDS // 3, ends


LATE = ("run_cancelled", "run_closed", "run_already_closed", "stale_attempt", "lease_expired")


async def is_closed(scene: Cluster, name: str) -> bool:
    return bool((await scene.get(f"/api/activities/{name}")).expect(200)["is_terminal"])


# --- starts ---


@pytest.mark.fault("F64")
@pytest.mark.parametrize("policy", ["fail", "use-existing"])
async def test_f64_starts_of_one_id_at_once_make_one_run(scene: Cluster, policy: str):
    replies = await asyncio.gather(*(scene.start("order-1", duplicate_policy=policy) for _ in range(20)))
    made = [reply for reply in replies if reply.status == 201]
    assert len(made) == 1
    run_id = made[0]["run_id"]
    for reply in replies:
        if reply is made[0]:
            continue
        if policy == "fail":
            reply.expect(409, "instance_already_started")
        else:
            assert (reply.status, reply["run_id"], reply["outcome"]) == (
                200,
                run_id,
                "returned_existing_active",
            )
    runs = (await scene.get("/api/workflows/order-1/runs")).expect(200)["runs"]
    assert [run["run_id"] for run in runs] == [run_id]


# --- polls ---


@pytest.mark.fault("F65")
@pytest.mark.parametrize("slots", [0, -1, 10**9, 2**63, 1.5, "many"])
async def test_f65_slots_that_cannot_be_are_refused_and_nothing_is_leased(scene: Cluster, slots: object):
    body = {"worker_id": "w1", "task_queue": "q", "runtime": "python"}
    for field in ("max_concurrent_workflow_tasks", "max_concurrent_activity_tasks"):
        refused = await scene.post("/api/worker/register", body | {field: slots}, role="worker")
        assert (refused.status, refused.reason) in ((422, "validation_failed"), (400, "malformed_json"))
    (await scene.start_activity("charge-1")).expect(201)
    hand = await scene.worker("w1")
    polled = await hand.poll("activity", max_tasks=slots)
    assert (polled.status, polled.reason) in ((422, "validation_failed"), (400, "malformed_json"))
    assert (await scene.line())["leased_count"] == 0


@pytest.mark.fault("F65")
@pytest.mark.fault("F66")
async def test_f65_a_poll_for_more_than_the_slots_is_cut_to_them(scene: Cluster):
    hand = await scene.worker("w1", max_concurrent_activity_tasks=3)
    for number in range(10):
        (await scene.start_activity(f"charge-{number}")).expect(201)
    assert len(await hand.some(100)) == 3
    assert (await hand.poll("activity", max_tasks=100)).expect(200)["poll_status"] == "empty"


# --- queries ---


async def a_waiting_run(scene: Cluster) -> Hand:
    hand = await scene.worker("w1")
    (await scene.start("order-1")).expect(201)
    (await hand.decide(await hand.take(), {"type": "start_timer", "delay_seconds": 600})).expect(200)
    return hand


@pytest.mark.fault("F67")
@pytest.mark.slow
@pytest.mark.timeout(400)
async def test_f67_a_flood_of_queries_is_bounded_and_workflow_tasks_go_on(
    scene: Cluster, request: pytest.FixtureRequest
):
    hand = await a_waiting_run(scene)
    asked = QUERIES[request.node.callspec.params["cluster"]]
    replies: list[Reply] = []

    async def ask_on() -> None:
        for _ in range(asked // ASKERS):
            replies.append(await scene.post("/api/workflows/order-1/query/state", {}))

    began = asyncio.get_running_loop().time()
    flood = asyncio.gather(*(ask_on() for _ in range(ASKERS)))
    done = 0
    while not flood.done() or done < 10:
        (await scene.start(f"other-{done}")).expect(201)
        (await hand.finish(await hand.take())).expect(200)
        done += 1
    await flood
    lines = math.ceil((asyncio.get_running_loop().time() - began) / QUERY_SECONDS) + 1
    outcomes = Counter((reply.status, reply.reason) for reply in replies)
    assert set(outcomes) <= {(429, "query_task_queue_full"), (504, "query_worker_timeout")}, outcomes
    assert outcomes[429, "query_task_queue_full"] > 0
    assert outcomes[504, "query_worker_timeout"] <= QUERIES_PENDING_MAX * lines, "no more wait than may"
    assert all(int(reply.headers["Retry-After"]) >= 1 for reply in replies if reply.status == 429)


@pytest.mark.fault("F68")
async def test_f68_questions_that_nobody_can_answer_are_refused_at_once(scene: Cluster):
    """At once: the server never waits for a worker that is not there, so no deadline is used up."""
    (await scene.post("/api/workflows/unknown/query/state", {})).expect(404, "instance_not_found")
    (await scene.start("order-1")).expect(201)
    lonely = (await scene.post("/api/workflows/order-1/query/state", {})).expect(
        409, "query_worker_unavailable"
    )
    assert lonely["task_queue"] == "q"
    hand = await scene.worker("w1")
    (await hand.finish(await hand.take(), "done")).expect(200)
    (await scene.ask("DELETE", "/api/workers/w1", role="admin")).ok()
    (await scene.post("/api/workflows/order-1/query/state", {})).expect(409, "query_worker_unavailable")


@pytest.mark.fault("F68")
async def test_f68_a_question_to_a_worker_that_does_not_poll_ends_at_its_deadline(scene: Cluster):
    await a_waiting_run(scene)
    (await scene.post("/api/workflows/order-1/query/state", {})).expect(504, "query_worker_timeout")


# --- registration ---


@pytest.mark.fault("F69")
async def test_f69_changed_code_under_an_active_id_is_refused_and_a_new_id_is_welcome(scene: Cluster):
    told: Json = {"worker_id": "w1", "task_queue": "q", "runtime": "python"}
    old = {"workflow_definition_fingerprints": {"greeter": "sha256:old"}, "build_id": "one"}
    new = {"workflow_definition_fingerprints": {"greeter": "sha256:new"}, "build_id": "two"}
    (await scene.post("/api/worker/register", told | old, role="worker")).expect(201)
    refused = (await scene.post("/api/worker/register", told | new, role="worker")).expect(
        409, "workflow_definition_changed"
    )
    assert refused["workflow_type"] == "greeter"
    shown = (await scene.get("/api/workers/w1")).expect(200)
    assert (shown["build_id"], shown["workflow_definition_fingerprints"]) == (
        "one",
        {"greeter": "sha256:old"},
    )
    (await scene.post("/api/worker/register", told | new | {"worker_id": "w2"}, role="worker")).expect(201)
