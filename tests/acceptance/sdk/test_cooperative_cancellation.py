"""Cancellation with time to clean up, with the worker and the client of the unmodified public SDK."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from durable_workflow import Client, Worker, WorkflowHandle
from durable_workflow.errors import ServerError, WorkflowCancelled

from tests.acceptance.cluster import Cluster, until
from tests.acceptance.sdk import sdk_worker
from tests.acceptance.sdk.flows_cancellation import (
    QUEUE,
    adding_worker,
    capable_worker,
    chores_worker,
    default_worker,
)
from tests.support.patience import PATIENCE_S

REQUESTED, DELIVERED = "CooperativeCancellationRequested", "CooperativeCancellationDelivered"


@pytest.fixture
async def client(scene: Cluster) -> AsyncIterator[Client]:
    assert scene.namespace is not None
    async with sdk_worker.client_of(scene.first.url, scene.namespace) as made:
        yield made


@pytest.fixture
def journal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "journal"
    path.touch()
    monkeypatch.setattr(sdk_worker, "JOURNAL", path)
    return path


def noted(journal: Path) -> list[str]:
    return [line.rpartition(" ")[0] for line in journal.read_text().splitlines()]


@contextlib.asynccontextmanager
async def working(scene: Cluster, *makers: Callable[[Client], Worker]) -> AsyncIterator[None]:
    """Workers in this process, connected to the last server."""
    assert scene.namespace is not None
    async with sdk_worker.client_of(scene.last.url, scene.namespace) as client:
        workers = [make(client) for make in makers]
        runs = [asyncio.create_task(worker.run()) for worker in workers]
        try:
            yield
        finally:
            await asyncio.gather(*(worker.stop() for worker in workers))
            await asyncio.wait_for(asyncio.gather(*runs), PATIENCE_S)


async def start(client: Client, workflow_id: str, *arguments: object) -> WorkflowHandle:
    return await client.start_workflow(
        workflow_type="careful", task_queue=QUEUE, workflow_id=workflow_id, input=list(arguments)
    )


async def seen(scene: Cluster, workflow_id: str, event_type: str) -> None:
    """Wait until a run has an event."""

    async def has_it() -> bool:
        return event_type in await scene.event_types(workflow_id)

    await until(has_it)


OPENED = {
    "activity": "ActivityScheduled",
    "waiting activity": "ActivityScheduled",
    "timer": "TimerScheduled",
    "condition": "ConditionWaitOpened",
    "child": "ChildRunStarted",
    "group": "TimerScheduled",
    "selection": "TimerScheduled",
    "handle": "SelectionResolved",
    "steps before": "ActivityScheduled",
}


@pytest.mark.parametrize("how", OPENED)
async def test_code_that_waits_is_cancelled_there_cleans_up_and_lets_it_through(
    scene: Cluster, client: Client, journal: Path, how: str
) -> None:
    async with working(scene, capable_worker, chores_worker):
        handle = await start(client, "c-1", how)
        await seen(scene, "c-1", OPENED[how])
        await client.request_workflow_cancellation("c-1", reason="enough")
        with pytest.raises(WorkflowCancelled, match="enough"):
            await client.get_result(handle, timeout=PATIENCE_S)
    assert noted(journal).count(f"clean-{how}") == 1
    types = await scene.event_types("c-1")
    assert types.index(REQUESTED) < types.index(DELIVERED) < types.index("WorkflowCancelled")
    assert types.count(DELIVERED) == 1
    assert (await scene.describe("c-1"))["status"] == "cancelled"


async def test_what_the_call_had_open_is_cancelled_with_the_delivery(
    scene: Cluster, client: Client, journal: Path
) -> None:
    """Of a group: an activity that waits and two timers. What had ended before stays as it is."""
    async with working(scene, capable_worker, chores_worker):
        handle = await start(client, "c-1", "group", "return")
        await seen(scene, "c-1", "ActivityCompleted")
        await client.request_workflow_cancellation("c-1", reason="enough")
        assert await client.get_result(handle, timeout=PATIENCE_S) == ["cleaned group", "enough"]
    types = await scene.event_types("c-1")
    behind = types[types.index(DELIVERED) :]
    assert behind[1:4] == ["ActivityCancelled", "TimerCancelled", "TimerCancelled"]
    assert behind.count("ActivityCancelled") == 1
    assert types[-1] == "WorkflowCompleted"
    queue = (await scene.get("/api/task-queues/nobody")).ok()
    assert queue["stats"]["activity_tasks"]["ready_count"] == 0


async def test_an_activity_that_runs_learns_that_it_was_cancelled(
    scene: Cluster, client: Client, journal: Path
) -> None:
    async def wrote(what: str) -> bool:
        return what in noted(journal)

    async with working(scene, capable_worker, chores_worker):
        await start(client, "c-1", "activity")
        await until(lambda: wrote("work"))
        await client.request_workflow_cancellation("c-1")
        await until(lambda: wrote("stopped"))


async def test_code_may_wait_until_the_activity_has_stopped(
    scene: Cluster, client: Client, journal: Path
) -> None:
    async def wrote(what: str) -> bool:
        return what in noted(journal)

    async with working(scene, capable_worker, chores_worker):
        handle = await start(client, "c-1", "ending activity")
        await until(lambda: wrote("work"))
        await client.request_workflow_cancellation("c-1")
        with pytest.raises(WorkflowCancelled):
            await client.get_result(handle, timeout=PATIENCE_S)
    assert noted(journal) == ["work", "stopped", "clean-ending activity"]
    types = await scene.event_types("c-1")
    assert types.index("ActivityFailed") < types.index(DELIVERED)


@pytest.mark.parametrize(
    ("how", "cleaned"),
    [
        ("child", {"clean-child", "clean-timer"}),
        ("ending child", {"clean-ending child", "clean-timer"}),
        ("abandoned child", {"clean-abandoned child"}),
    ],
)
async def test_a_child_is_asked_to_cancel_too_awaited_or_abandoned(
    scene: Cluster, client: Client, journal: Path, how: str, cleaned: set[str]
) -> None:
    async with working(scene, capable_worker, chores_worker):
        handle = await start(client, "c-1", how)
        await seen(scene, "c-1", "ChildRunStarted")
        started = next(e for e in await scene.events("c-1") if e["event_type"] == "ChildRunStarted")
        child = started["payload"]["child_workflow_instance_id"]
        await seen(scene, child, "TimerScheduled")
        await client.request_workflow_cancellation("c-1", reason="enough")
        with pytest.raises(WorkflowCancelled):
            await client.get_result(handle, timeout=PATIENCE_S)
        if how != "abandoned child":
            await seen(scene, child, "WorkflowCancelled")
    assert set(noted(journal)) == cleaned
    types = await scene.event_types("c-1")
    if how == "ending child":
        assert noted(journal)[0] == "clean-timer"
        assert types.index("ChildRunCancelled") < types.index(DELIVERED)
    if how == "abandoned child":
        assert (await scene.describe(child))["status_bucket"] == "running"


async def test_a_child_that_outlives_its_parent_has_time_to_clean_up(
    scene: Cluster, client: Client, journal: Path
) -> None:
    async with working(scene, capable_worker, chores_worker):
        handle = await start(client, "c-1", "orphan")
        assert await client.get_result(handle, timeout=PATIENCE_S) == "not cancelled"
        started = next(e for e in await scene.events("c-1") if e["event_type"] == "ChildRunStarted")
        await seen(scene, started["payload"]["child_workflow_instance_id"], "WorkflowCancelled")
    assert noted(journal) == ["clean-timer"]


async def test_a_shielded_wait_is_not_interrupted_but_the_next_call_is(
    scene: Cluster, client: Client, journal: Path
) -> None:
    async with working(scene, capable_worker, chores_worker):
        handle = await start(client, "c-1", "shield", "return")
        await seen(scene, "c-1", "ConditionWaitOpened")
        await client.request_workflow_cancellation("c-1")
        assert (await client.update_workflow("c-1", "nudge", wait_for="completed"))["result"] == "nudged"
        await handle.signal("ready")
        assert (await client.get_result(handle, timeout=PATIENCE_S))[0] == "cleaned shield"
    types = await scene.event_types("c-1")
    assert types.index("ConditionWaitSatisfied") < types.index(DELIVERED)


async def test_a_request_before_the_code_ran_is_delivered_at_its_first_call(
    scene: Cluster, client: Client, journal: Path
) -> None:
    async with working(scene, capable_worker, chores_worker):
        await start(client, "c-0", "timer")
        await seen(
            scene, "c-0", "TimerScheduled"
        )  # so the worker is registered: before, a request would end the run
        handle = await start(client, "c-1", "steps before", "return")
        await client.request_workflow_cancellation("c-1", reason="at once")
        assert await client.get_result(handle, timeout=PATIENCE_S) == ["cleaned steps before", "at once"]
    assert noted(journal) == ["clean-steps before"]


async def test_a_repeated_request_returns_the_first_one(
    scene: Cluster, client: Client, journal: Path
) -> None:
    async with working(scene, capable_worker):
        handle = await start(client, "c-1", "shield")
        await seen(scene, "c-1", "ConditionWaitOpened")
        first = await client.request_workflow_cancellation("c-1", cleanup_timeout_seconds=600)
        again = await client.request_workflow_cancellation(
            "c-1", run_id=handle.run_id, reason="again", cleanup_timeout_seconds=1
        )
    assert (first["duplicate"], again["duplicate"]) == (False, True)
    assert again["cancellation_request"] == first["cancellation_request"]
    assert (await scene.event_types("c-1")).count(REQUESTED) == 1


async def test_a_run_whose_code_does_not_end_in_time_is_closed_as_cancelled(
    scene: Cluster, client: Client, journal: Path
) -> None:
    async with working(scene, capable_worker):
        handle = await start(client, "c-1", "timer", "hang")
        await seen(scene, "c-1", "TimerScheduled")
        asked = await client.request_workflow_cancellation("c-1", reason="enough", cleanup_timeout_seconds=1)
        with pytest.raises(WorkflowCancelled, match="enough"):
            await client.get_result(handle, timeout=PATIENCE_S)
    last = (await scene.events("c-1"))[-1]
    deadline = asked["cancellation_request"]["cleanup_deadline_at"]
    assert (last["event_type"], last["payload"]["cleanup_deadline_at"]) == ("WorkflowCancelled", deadline)
    assert last["recorded_at"] >= deadline


async def test_a_closed_run_refuses_a_request(scene: Cluster, client: Client, journal: Path) -> None:
    async with working(scene, capable_worker):
        handle = await start(client, "c-1", "timer")
        await handle.cancel()
        with pytest.raises(ServerError) as refused:
            await client.request_workflow_cancellation("c-1")
    assert refused.value.reason() == "run_not_active"


async def test_a_request_is_refused_while_no_worker_can_deliver_it(
    scene: Cluster, client: Client, journal: Path
) -> None:
    """Such a worker would abandon every task of the run."""
    async with working(scene, default_worker):
        await start(client, "c-1", "timer")
        await seen(scene, "c-1", "TimerScheduled")
        with pytest.raises(ServerError) as refused:
            await client.request_workflow_cancellation("c-1")
    assert refused.value.reason() == "cooperative_cancellation_not_supported"
    assert REQUESTED not in await scene.event_types("c-1")


async def test_a_worker_without_the_capability_does_not_get_such_a_run(
    scene: Cluster, client: Client, journal: Path
) -> None:
    """The capable worker stops after the request; the other one polls for the run's tasks until the next comes."""
    async with working(scene, capable_worker):
        handle = await start(client, "c-1", "shield", "return")
        await seen(scene, "c-1", "ConditionWaitOpened")
        await client.request_workflow_cancellation("c-1", cleanup_timeout_seconds=3600)
        await seen(scene, "c-1", REQUESTED)
    async with working(scene, default_worker, chores_worker):
        await handle.signal("ready")

        async def withheld() -> bool:
            return "cannot deliver" in str((await scene.get("/api/workflows/c-1/debug")).ok().body)

        await until(withheld)
        assert DELIVERED not in await scene.event_types("c-1")
        async with working(scene, capable_worker):
            assert (await client.get_result(handle, timeout=PATIENCE_S))[0] == "cleaned shield"
    assert (await scene.event_types("c-1")).count(DELIVERED) == 1


@pytest.mark.parametrize("how", ["brief selection", "shielded selection"])
async def test_a_member_of_a_selection_that_ends_between_request_and_delivery_does_not_decide_it(
    scene: Cluster, client: Client, journal: Path, how: str
) -> None:
    """Unless the selection is shielded: then it goes on as if nothing had been requested."""
    async with working(scene, capable_worker):
        handle = await start(client, "c-1", how, "return")
        await seen(scene, "c-1", "TimerScheduled")
    await scene.worker("w-1", QUEUE, capabilities=["cooperative_cancellation"])
    await client.request_workflow_cancellation("c-1", cleanup_timeout_seconds=3600)
    await seen(scene, "c-1", "TimerFired")
    async with working(scene, capable_worker, chores_worker):
        assert await client.get_result(handle, timeout=PATIENCE_S) == [f"cleaned {how}", None]
    types = await scene.event_types("c-1")
    assert types.index(REQUESTED) < types.index("TimerFired") < types.index(DELIVERED)
    assert types.count("SelectionResolved") == (how == "shielded selection")


async def test_a_query_of_a_run_with_a_request_is_answered(
    scene: Cluster, client: Client, journal: Path
) -> None:
    async with working(scene, capable_worker):
        handle = await start(client, "c-1", "timer", "hang")
        await seen(scene, "c-1", "TimerScheduled")
        await client.request_workflow_cancellation("c-1")
        assert (await handle.query("is_ready"))["result"] is False
        await seen(scene, "c-1", DELIVERED)
        assert (await handle.query("is_ready"))["result"] is False


async def test_a_run_that_continues_as_new_before_it_receives_a_request_hands_it_on(
    scene: Cluster, client: Client, journal: Path
) -> None:
    async with working(scene, capable_worker, chores_worker):
        handle = await start(client, "c-1", "again")
        await seen(scene, "c-1", "ConditionWaitOpened")
        asked = await client.request_workflow_cancellation("c-1", reason="enough")
        await handle.signal("ready")
        current = client.get_workflow_handle("c-1")
        await until(lambda: _is_closed(scene, "c-1"))
        assert await client.get_result(current, timeout=PATIENCE_S) == ["cleaned timer", "enough"]
    (requested,) = [e for e in await scene.events("c-1") if e["event_type"] == REQUESTED]
    assert requested["payload"]["workflow_command_id"] == asked["cancellation_request"]["request_id"]
    assert requested["payload"]["cleanup_deadline_at"] == asked["cancellation_request"]["cleanup_deadline_at"]


async def test_the_next_worker_delivers_what_one_that_is_gone_did_not(
    scene: Cluster, client: Client, journal: Path
) -> None:
    """The first one holds the task with the request when it is removed."""
    async with working(scene, capable_worker):
        handle = await start(client, "c-1", "timer", "return")
        await seen(scene, "c-1", "TimerScheduled")
    first = await scene.worker("w-1", QUEUE, capabilities=["cooperative_cancellation"])
    asked = await client.request_workflow_cancellation("c-1", cleanup_timeout_seconds=3600)
    task = await first.take()
    assert task["cancellation_request"] == asked["cancellation_request"]
    (await scene.ask("DELETE", "/api/workers/w-1", role="admin")).expect(200)
    async with working(scene, capable_worker, chores_worker):
        assert await client.get_result(handle, timeout=PATIENCE_S) == ["cleaned timer", None]
    call = {"request_id": task["cancellation_request"]["request_id"], "sequence": 1, "call_kind": "timer"}
    late = await first.report(task, "deliver-cancellation", **call)
    assert late.status == 409
    assert (await scene.event_types("c-1")).count(DELIVERED) == 1


async def test_a_capable_worker_runs_activities_in_processes_that_it_watches(
    scene: Cluster, client: Client, journal: Path
) -> None:
    async with working(scene, adding_worker):
        handle = await client.start_workflow(
            workflow_type="adding", task_queue=QUEUE, workflow_id="c-1", input=[]
        )
        assert await client.get_result(handle, timeout=PATIENCE_S) == 3


async def test_a_local_activity_that_runs_is_interrupted_by_the_heartbeat_of_its_task(
    scene: Cluster, client: Client, tmp_path: Path
) -> None:
    marker = tmp_path / "lingers"

    async def lingers() -> bool:
        return marker.exists()

    async with working(scene, adding_worker):
        handle = await client.start_workflow(
            workflow_type="lingering", task_queue=QUEUE, workflow_id="c-1", input=[str(marker)]
        )
        await until(lingers)
        await client.request_workflow_cancellation("c-1", cleanup_timeout_seconds=3600)
        assert await client.get_result(handle, timeout=PATIENCE_S) == "cleaned"
    types = await scene.event_types("c-1")
    assert types == ["WorkflowStarted", REQUESTED, DELIVERED, "WorkflowCompleted"]


async def _is_closed(scene: Cluster, workflow_id: str) -> bool:
    return bool((await scene.describe(workflow_id))["is_terminal"])
