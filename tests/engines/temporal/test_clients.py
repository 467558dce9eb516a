"""Clients, tasks, standalone activities and commands on a Temporal cluster."""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import subprocess
import sys
import time
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest
from temporalio import activity as temporal_activity
from temporalio import workflow as temporal_workflow
from temporalio.api.workflow.v1 import PendingActivityInfo
from temporalio.client import Client as TemporalClient
from temporalio.worker import UnsandboxedWorkflowRunner
from temporalio.worker import Worker as TemporalWorker

from penstock import Client, Penstock, RetryPolicy, Worker, activity, workflow
from penstock.client import (
    WorkflowExecutionStatus,
    WorkflowIDConflictPolicy,
)
from penstock.engines.temporal.gateway import runs
from penstock.engines.temporal.plugin import PenstockPlugin
from penstock.failures import (
    ActivityFailureError,
    ApplicationError,
    WorkflowAlreadyStartedError,
    WorkflowNotFoundError,
)
from penstock.sdk.converters import DataConverter, ZlibCodec
from tests.support.patience import PATIENCE_S
from tests.support.temporal import TemporalServer


@dataclass
class Order:
    customer: str
    amount: int


@activity.defn
async def charge(order: Order) -> str:
    return f"{order.customer} pays {order.amount}"


@activity.defn(runs_in="process")
def in_a_process(number: int) -> int:
    return number + 1


@activity.defn
async def refused() -> None:
    raise ApplicationError("no", 1, type="No", non_retryable=True)


@workflow.defn
class Buy:
    @workflow.run
    async def run(self, order: Order) -> str:
        await workflow.wait_condition(lambda: True)
        return await workflow.execute_activity(charge, order)


@workflow.defn
class ReadsTheClock:
    @workflow.run
    async def run(self) -> float:
        return time.time()


@workflow.defn
class Talks:
    @workflow.init
    def __init__(self, first: int) -> None:
        self.sum, self.is_finished = first, False

    @workflow.run
    async def run(self, first: int) -> int:
        await workflow.wait_condition(lambda: self.is_finished)
        return self.sum

    @workflow.query(name="sum")
    def total(self) -> int:
        return self.sum

    @workflow.update
    def add(self, number: int) -> int:
        self.sum += number
        return self.sum

    @workflow.signal
    def finish(self) -> None:
        self.is_finished = True


@workflow.defn
class Waits:
    @workflow.run
    async def run(self) -> None:
        await workflow.wait_condition(lambda: False)


async def test_an_id_in_use_raises_our_error(temporal_client: Client) -> None:
    first = await temporal_client.start_workflow(Waits, id="taken", task_queue="q")
    with pytest.raises(WorkflowAlreadyStartedError) as refusal:
        await temporal_client.start_workflow(Waits, id="taken", task_queue="q")
    assert refusal.value.run_id == first.first_execution_run_id
    same = await temporal_client.start_workflow(
        Waits, id="taken", task_queue="q", id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING
    )
    assert (same.first_execution_run_id, same.is_new) == (first.first_execution_run_id, False)
    assert (await first.describe()).status is WorkflowExecutionStatus.RUNNING
    await first.terminate("enough")
    assert (await first.describe()).status is WorkflowExecutionStatus.TERMINATED


async def test_a_missing_workflow_raises_our_error(temporal_client: Client) -> None:
    handle = temporal_client.get_workflow_handle("nobody")
    for request in (handle.describe(), handle.signal("x"), handle.cancel(), handle.result()):
        with pytest.raises(WorkflowNotFoundError):
            await request


async def test_runs_are_listed_and_counted(temporal_client: Client) -> None:
    handle = await temporal_client.start_workflow(Waits, id="listed", task_queue="q")
    async with asyncio.timeout(PATIENCE_S):
        while not (found := [each async for each in temporal_client.list_workflows("WorkflowId = 'listed'")]):
            await asyncio.sleep(0.05)
    assert [each.id for each in found] == ["listed"]
    assert (await temporal_client.count_workflows("WorkflowId = 'listed'")).count == 1
    await handle.terminate()


async def test_the_filters_of_a_list_are_applied(temporal_client: Client) -> None:
    """As `penstock workflow list --type Waits --status terminated` sends them."""
    for name in ("filtered-1", "filtered-2"):
        await temporal_client.start_workflow(Waits, id=name, task_queue="q")
    await temporal_client.get_workflow_handle("filtered-1").terminate()

    async def listed(**query: str) -> list[str]:
        found = await temporal_client.transport.control("GET", "/workflows", idempotent=True, query=query)
        return sorted(each["workflow_id"] for each in found["workflows"])

    ours = "WorkflowId STARTS_WITH 'filtered' OR WorkflowId = 'none'"
    async with asyncio.timeout(PATIENCE_S):
        while await listed(query=ours, status="failed") != ["filtered-1"]:  # found a moment later
            await asyncio.sleep(0.05)
    assert await listed(query=ours, status="running", workflow_type="Waits") == ["filtered-2"]
    assert await listed(query=ours, workflow_type="It's \\ another") == []
    await temporal_client.get_workflow_handle("filtered-2").terminate()


async def test_the_last_heartbeat_is_told_in_utc_wherever_the_command_runs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    beat = PendingActivityInfo()
    beat.last_heartbeat_time.FromSeconds(86_400)
    with monkeypatch.context() as patch:
        patch.setenv("TZ", "Asia/Tokyo")
        time.tzset()
        found = await runs._pending(beat)
    time.tzset()
    assert found["last_heartbeat_at"] == "1970-01-02T00:00:00.000Z"


async def test_a_list_of_activities_has_all_pages(temporal_client: Client) -> None:
    ids = {f"paged-{number}" for number in range(3)}
    for each in ids:
        await temporal_client.start_activity(refused, id=each, task_queue="paged")
    async with asyncio.timeout(PATIENCE_S):
        while not ids <= {each.id async for each in temporal_client.list_activities(page_size=1)}:
            await asyncio.sleep(0.05)
    for each in ids:
        await temporal_client.get_activity_handle(each).cancel()
    async with asyncio.timeout(PATIENCE_S):
        while not ids <= {each.id async for each in temporal_client.list_activities(status="cancelled")}:
            await asyncio.sleep(0.05)


async def test_requests_with_plain_json_work_as_those_of_the_sdk(temporal_client: Client) -> None:
    """As the commands of `penstock workflow` and `penstock activity` send them."""

    async def post(path: str, **body: Any) -> Any:
        return await temporal_client.transport.control("POST", path, body, idempotent=False)

    async with Worker(temporal_client, task_queue="plain", workflows=[Talks], activities=[charge, refused]):
        started = await post(
            "/workflows", workflow_type="Talks", task_queue="plain", input=[4], priority_key=2
        )
        path = f"/workflows/{started['workflow_id']}"
        assert (await post(f"{path}/query/sum"))["result"] == 4
        assert (await post(f"{path}/update/add", input=[3], request_id="u", wait_for="completed"))["run_id"]
        await post(f"{path}/signal/finish", input=[])
        handle = temporal_client.get_workflow_handle(started["workflow_id"])
        assert await handle.result(timeout=PATIENCE_S) == 7
        assert (await handle.describe()).priority_key == 2
        one = await post("/activities", activity_type="refused", task_queue="plain")
        with pytest.raises(ActivityFailureError):  # without a policy it is not retried
            await temporal_client.get_activity_handle(one["activity_id"]).result(timeout=PATIENCE_S)


async def test_a_standalone_activity_runs_and_fails_as_on_our_engine(temporal_client: Client) -> None:
    async with Worker(temporal_client, task_queue="alone", activities=[charge, refused]):
        assert await temporal_client.execute_activity(
            charge, Order("ada", 3), task_queue="alone", start_to_close_timeout=timedelta(seconds=60)
        ) == ("ada pays 3")
        handle = await temporal_client.start_activity(refused, id="no-1", task_queue="alone")
        with pytest.raises(ActivityFailureError) as failure:
            await handle.result(timeout=PATIENCE_S)
        assert isinstance(failure.value.cause, ApplicationError)
        assert (failure.value.cause.type, failure.value.cause.details) == ("No", (1,))
        described = await handle.describe()
        assert (described.activity_type, str(described.status)) == ("refused", "failed")


async def test_tasks_of_an_app_are_sent_and_run(temporal: TemporalServer) -> None:
    app = Penstock("shop", temporal.url, queue="tasks")

    @app.task(retry=2)
    async def add(one: int, two: int) -> int:
        return one + two

    client = await app.client()
    async with Worker(client, task_queue="tasks", activities=list(app.tasks.values())):
        handle = await add.send(2, 3)
        assert await handle.result(timeout=PATIENCE_S) == 5
    await app.close()


async def test_an_activity_runs_in_a_process(temporal_client: Client) -> None:
    async with Worker(temporal_client, task_queue="process", activities=[in_a_process]):
        assert await temporal_client.execute_activity(in_a_process, 4, task_queue="process") == 5


async def test_codecs_work_and_plain_payloads_are_json(temporal: TemporalServer) -> None:
    converter = DataConverter(codecs=[ZlibCodec()])
    async with (
        await Client.connect(temporal.url, data_converter=converter) as client,
        Worker(client, task_queue="codec", workflows=[Buy], activities=[charge]),
    ):
        handle = await client.start_workflow(Buy, Order("a" * 3000, 1), task_queue="codec")
        assert await handle.result(timeout=PATIENCE_S) == "a" * 3000 + " pays 1"


async def test_workers_of_other_programs_read_our_payloads(temporal: TemporalServer) -> None:
    @temporal_activity.defn(name="charge")
    async def theirs(order: dict[str, Any]) -> str:
        return f"they read {order['customer']} and {order['amount']}"

    other = await TemporalClient.connect(temporal.target)
    async with await Client.connect(temporal.url) as client:
        ours = Worker(client, task_queue="shared", workflows=[Buy])
        async with ours, TemporalWorker(other, task_queue="shared", activities=[theirs]):
            assert await client.execute_workflow(Buy, Order("ada", 3), task_queue="shared") == (
                "they read ada and 3"
            )


@temporal_workflow.defn(sandboxed=False)
class Theirs:
    @temporal_workflow.run
    async def run(self, name: str) -> str:
        return f"hello {name}"


async def test_the_plugin_adds_our_code_to_a_worker_of_somebody_else(temporal: TemporalServer) -> None:
    client = await TemporalClient.connect(temporal.target)
    worker = TemporalWorker(
        client,
        task_queue="plugged",
        workflows=[Theirs],
        workflow_runner=UnsandboxedWorkflowRunner(),
        plugins=[PenstockPlugin(workflows=[Buy, ReadsTheClock], activities=[charge, in_a_process])],
    )
    async with worker, await Client.connect(temporal.url) as ours:
        assert await client.execute_workflow(Theirs.run, "ada", id="t-1", task_queue="plugged") == "hello ada"
        assert await ours.execute_workflow(Buy, Order("ada", 3), task_queue="plugged") == "ada pays 3"
        assert await ours.execute_activity(in_a_process, 4, task_queue="plugged") == 5
        clock = await ours.start_workflow(ReadsTheClock, task_queue="plugged")
        async with asyncio.timeout(PATIENCE_S):
            while "WORKFLOW_TASK_FAILED" not in [
                each["event_type"] for each in (await clock.fetch_history()).events
            ]:
                await asyncio.sleep(0.05)
        await clock.terminate()
    assert multiprocessing.active_children() == []  # those of the plugin end with its worker


def penstock(server: TemporalServer, *words: str) -> dict[str, Any]:
    command = [sys.executable, "-m", "penstock", *words, "--server", server.url, "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


async def test_why_says_what_can_be_known_and_what_cannot(
    temporal: TemporalServer, temporal_client: Client
) -> None:
    handle = await temporal_client.start_workflow(Waits, id="why-1", task_queue="unserved")
    found = await asyncio.to_thread(penstock, temporal, "why", "why-1")
    assert found["engine"] == "temporal"
    assert found["summary"] == "no worker polls the task queue unserved for workflow tasks"
    assert any("which rule holds" in each for each in found["unknown"])
    await handle.terminate()
    found = await asyncio.to_thread(penstock, temporal, "why", "why-1")
    assert found["summary"] == "It does not wait: it is terminated."


async def test_a_queue_is_described_with_its_backlog_and_pollers(
    temporal: TemporalServer, temporal_client: Client
) -> None:
    await temporal_client.start_activity(
        charge, Order("ada", 1), task_queue="backlog", retry_policy=RetryPolicy(maximum_attempts=1)
    )
    async with asyncio.timeout(PATIENCE_S):
        while True:
            found = await asyncio.to_thread(penstock, temporal, "task-queue", "describe", "backlog")
            if found["stats"]["activity_tasks"]["ready_count"]:
                break
    assert found["pollers"] == []
    async with Worker(temporal_client, task_queue="backlog", activities=[charge], identity="till-1"):
        async with asyncio.timeout(PATIENCE_S):
            while "till-1" not in {each["worker_id"] for each in found["pollers"]}:
                found = await asyncio.to_thread(penstock, temporal, "task-queue", "describe", "backlog")
    assert found["unknown"]
