"""The unmodified public SDK as client and worker; with several servers, each uses a different one."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from durable_workflow import Client, WorkflowHandle
from durable_workflow.errors import (
    NamespaceNotFound,
    Unauthorized,
    WorkflowAlreadyStarted,
    WorkflowCancelled,
    WorkflowFailed,
    WorkflowNotFound,
    WorkflowTerminated,
    WorkflowTimedOut,
)

from tests.acceptance.cluster import Cluster, until
from tests.acceptance.sdk import sdk_worker
from tests.support.patience import PATIENCE_S

QUEUE = "sdk"


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
    """What the activities wrote, without the process that wrote it."""
    return [line.split()[0] for line in journal.read_text().splitlines()]


@contextlib.asynccontextmanager
async def working(scene: Cluster) -> AsyncIterator[None]:
    """A worker in this process, connected to the last server."""
    assert scene.namespace is not None
    async with sdk_worker.client_of(scene.last.url, scene.namespace) as client:
        worker = sdk_worker.worker(client, QUEUE)
        run = asyncio.create_task(worker.run())
        try:
            yield
        finally:
            await worker.stop()
            await asyncio.wait_for(run, PATIENCE_S)


@contextlib.contextmanager
def worker_process(scene: Cluster, journal: Path, number: int = -1) -> Iterator[subprocess.Popen[bytes]]:
    """A worker in a process of its own, which a test may kill."""
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith(("DW_", "DURABLE_WORKFLOW_"))
    }
    url = scene.servers[number].url
    command = [sys.executable, sdk_worker.__file__, url, str(scene.namespace), QUEUE, str(journal)]
    with (journal.parent / "worker.log").open("ab") as log:
        process = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.wait(PATIENCE_S)


async def start(client: Client, workflow_type: str, workflow_id: str, *arguments: object) -> WorkflowHandle:
    return await client.start_workflow(
        workflow_type=workflow_type, task_queue=QUEUE, workflow_id=workflow_id, input=list(arguments)
    )


async def test_a_greeter_is_run_until_it_is_done(scene: Cluster, client: Client, journal: Path) -> None:
    assert scene.namespace is not None
    handle = await start(client, "greeter", "g-1", "Ada")
    async with sdk_worker.client_of(scene.last.url, scene.namespace) as other:
        done = await sdk_worker.worker(other, QUEUE).run_until(workflow_id="g-1", timeout=PATIENCE_S)
    assert done.status == "completed"
    assert await client.get_result(handle) == "Hello, Ada"
    assert noted(journal) == ["greet-Ada"]


async def test_run_until_does_not_sit_out_its_polls_when_an_activity_is_retried(
    scene: Cluster, client: Client, journal: Path
) -> None:
    """Its polls last 35 seconds each; the whole of it must take less than one of them."""
    handle = await start(client, "patient", "p-1", "Ada")
    await sdk_worker.worker(client, QUEUE).run_until(workflow_id="p-1", timeout=PATIENCE_S)
    assert await client.get_result(handle) == [42, "Hello, Ada"]
    assert noted(journal) == ["flaky-1", "flaky-2", "flaky-3", "greet-Ada"]


async def test_a_running_worker_does_greetings_retries_and_timers(
    scene: Cluster, client: Client, journal: Path
) -> None:
    async with working(scene):
        greeters = [await start(client, "greeter", f"g-{n}", f"guest-{n}") for n in range(5)]
        patient = await start(client, "patient", "p-1", "Bob")
        for number, handle in enumerate(greeters):
            result = await client.get_result(handle, timeout=PATIENCE_S)
            assert result == f"Hello, guest-{number}"
        assert await client.get_result(patient, timeout=PATIENCE_S) == [42, "Hello, Bob"]
    assert sorted(noted(journal)) == sorted(
        [*(f"greet-guest-{n}" for n in range(5)), "flaky-1", "flaky-2", "flaky-3", "greet-Bob"]
    )
    types = await scene.event_types("p-1")
    assert types.count("ActivityRetryScheduled") == 2
    assert types.count("TimerFired") == 1
    assert (await scene.get("/api/workers")).ok()["workers"] == []


async def test_a_workflow_goes_on_in_another_process_after_its_worker_was_killed_between_tasks(
    scene: Cluster, client: Client, journal: Path
) -> None:
    handle = await start(client, "two_days", "two-days", "Ada", "Bob")

    async def asleep() -> bool:
        return (await scene.describe("two-days"))["wait_kind"] == "timer"

    with worker_process(scene, journal) as first:
        await until(asleep)
        first.send_signal(signal.SIGKILL)
        await asyncio.to_thread(first.wait, 20)
    with worker_process(scene, journal, number=0) as second:
        result = await client.get_result(handle, timeout=PATIENCE_S)
    assert result == ["Hello, Ada", "Hello, Bob"]
    assert journal.read_text().splitlines() == [f"greet-Ada {first.pid}", f"greet-Bob {second.pid}"]


async def test_an_activity_whose_worker_was_killed_is_done_by_the_next_one(
    scene: Cluster, client: Client, journal: Path
) -> None:
    handle = await start(client, "survivor", "survivor")

    async def stuck() -> bool:
        return noted(journal) == ["stuck-1"]

    with worker_process(scene, journal) as first:
        await until(stuck)
        first.send_signal(signal.SIGKILL)
        await asyncio.to_thread(first.wait, 20)
    with worker_process(scene, journal) as second:
        assert await client.get_result(handle, timeout=PATIENCE_S) == 2
    assert journal.read_text().splitlines() == [f"stuck-1 {first.pid}", f"stuck-2 {second.pid}"]


async def test_a_worker_that_is_told_to_stop_leaves_no_registration(scene: Cluster) -> None:
    async with working(scene):

        async def registered() -> bool:
            return len((await scene.get("/api/workers")).ok()["workers"]) == 1

        await until(registered)
        (shown,) = (await scene.get("/api/workers")).ok()["workers"]
        assert shown["runtime"] == "python"
        assert sorted(shown["supported_activity_types"]) == sorted(
            ["greet", "flaky", "hopeless", "stuck_at_first", "beat_until_cancelled"]
        )
        assert shown["workflow_definition_fingerprints"]["greeter"].startswith("sha256:")
    assert (await scene.get("/api/workers")).ok()["workers"] == []


async def test_failures_reach_the_client_and_the_workflow_that_catches_them(
    scene: Cluster, client: Client, journal: Path
) -> None:
    async with working(scene):
        doomed = await start(client, "doomed", "doomed")
        forgiving = await start(client, "forgiving", "forgiving")
        with pytest.raises(WorkflowFailed, match="never"):
            await client.get_result(doomed, timeout=PATIENCE_S)
        assert "never" in await client.get_result(forgiving, timeout=PATIENCE_S)
    assert noted(journal) == ["hopeless", "hopeless"]
    assert (await client.describe_workflow("doomed")).status == "failed"


async def test_a_heartbeating_activity_learns_of_the_cancellation(
    scene: Cluster, client: Client, journal: Path
) -> None:
    async def wrote(what: str) -> bool:
        return what in noted(journal)

    async with working(scene):
        handle = await start(client, "beating", "beating")
        await until(lambda: wrote("beating"))
        await handle.cancel(reason="enough")
        await until(lambda: wrote("cancelled"))
        with pytest.raises(WorkflowCancelled, match="enough"):
            await client.get_result(handle, timeout=PATIENCE_S)
    assert noted(journal) == ["beating", "cancelled"]


async def test_a_terminated_and_a_timed_out_workflow_raise_their_own_errors(client: Client) -> None:
    handle = await start(client, "greeter", "g-1", "Ada")
    await handle.terminate(reason="stop")
    with pytest.raises(WorkflowTerminated, match="stop"):
        await client.get_result(handle)
    late = await client.start_workflow(
        workflow_type="greeter",
        task_queue=QUEUE,
        workflow_id="g-2",
        input=["Bob"],
        execution_timeout_seconds=1,
        run_timeout_seconds=1,
    )
    with pytest.raises(WorkflowTimedOut):
        await client.get_result(late, timeout=PATIENCE_S)


async def test_a_duplicate_start_raises_or_returns_the_run_there_is(client: Client) -> None:
    first = await start(client, "greeter", "g-1", "Ada")
    with pytest.raises(WorkflowAlreadyStarted):
        await start(client, "greeter", "g-1", "Bob")
    same = await client.start_workflow(
        workflow_type="greeter",
        task_queue=QUEUE,
        workflow_id="g-1",
        input=["Bob"],
        duplicate_policy="use-existing",
    )
    assert same.run_id == first.run_id


async def test_the_client_describes_lists_and_reads_histories(
    scene: Cluster, client: Client, journal: Path
) -> None:
    (await scene.post("/api/search-attributes", {"name": "Team", "type": "keyword"})).expect(201)
    async with working(scene):
        handle = await client.start_workflow(
            workflow_type="greeter",
            task_queue=QUEUE,
            workflow_id="g-1",
            input=["Ada"],
            memo={"for": "you"},
            search_attributes={"Team": "blue"},
            priority=3,
            fairness_key="tenant-1",
        )
        await client.get_result(handle, timeout=PATIENCE_S)
    await start(client, "patient", "p-1", "Bob")
    shown = await handle.describe()
    assert (shown.workflow_id, shown.status, shown.workflow_type) == ("g-1", "completed", "greeter")
    assert (shown.input, shown.output) == (["Ada"], "Hello, Ada")
    runs = await handle.list_runs()
    assert [run.run_id for run in runs.runs] == [handle.run_id]
    assert (await handle.describe_run()).status == "completed"
    listed = await client.list_workflows(page_size=1)
    assert [each.workflow_id for each in listed.executions] == ["p-1"]
    rest = await client.list_workflows(page_size=1, next_page_token=listed.next_page_token)
    assert [each.workflow_id for each in rest.executions] == ["g-1"]
    running = await client.list_workflows(status="running", workflow_type="patient")
    assert [each.workflow_id for each in running.executions] == ["p-1"]
    page = await handle.get_history(page_size=2)
    more = await handle.get_history(page_size=100, next_page_token=page["next_page_token"])
    types = [event["event_type"] for event in page["events"] + more["events"]]
    assert (types[0], types[-1]) == ("StartAccepted", "WorkflowCompleted")


async def test_a_standalone_activity_is_run_by_the_same_worker(
    scene: Cluster, client: Client, journal: Path
) -> None:
    async with working(scene):
        handle = await client.start_activity(
            activity_type="greet", task_queue=QUEUE, activity_id="a-1", input=["Ada"]
        )
        assert await handle.result(timeout=PATIENCE_S) == "Hello, Ada"
    assert (await handle.describe()).status == "completed"
    assert noted(journal) == ["greet-Ada"]


async def test_what_the_client_may_not_or_cannot_find_has_its_own_error(
    scene: Cluster, client: Client
) -> None:
    with pytest.raises(WorkflowNotFound):
        await client.describe_workflow("nobody")
    async with sdk_worker.client_of(scene.first.url, "nowhere") as lost:
        with pytest.raises(NamespaceNotFound):
            await lost.list_workflows()
    async with Client(scene.first.url, token="wrong", namespace=str(scene.namespace)) as stranger:
        with pytest.raises(Unauthorized):
            await stranger.list_workflows()


async def test_the_client_sees_queues_builds_and_workers(scene: Cluster, client: Client) -> None:
    async with working(scene):

        async def registered() -> bool:
            return len((await client.list_workers()).workers) == 1

        await until(registered)
        queue = await client.describe_task_queue(QUEUE)
        assert queue.name == QUEUE
        assert (await client.health())["status"] == "serving"
        (worker,) = (await client.list_workers()).workers
        assert (await client.describe_worker(worker.worker_id)).task_queue == QUEUE
        builds = await client.list_task_queue_build_ids(QUEUE)
        assert [cohort.build_id for cohort in builds.build_ids] == [None]
