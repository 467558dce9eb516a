"""Runs a worker and a client of the public SDK, with the helpers of the flow tests."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import itertools
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
from durable_workflow import Client, Replayer, Worker, WorkflowHandle
from durable_workflow.history_bundle_verify import verify_bundle

from tests.acceptance.cluster import Cluster, until
from tests.acceptance.sdk import (
    flow_gates,
    flows_children,
    flows_messaging,
    flows_random,
    flows_work,
    sdk_worker,
)
from tests.acceptance.sdk.flow_activities import ACTIVITIES
from tests.acceptance.sdk.flow_gates import TaskGateInterceptor
from tests.acceptance.sdk.flow_replay import Past, check
from tests.support.patience import PATIENCE_S

QUEUE = "flows"
LOOK_SECONDS = 0.05
WORKFLOWS = (
    *flows_work.WORKFLOWS,
    *flows_messaging.WORKFLOWS,
    *flows_children.WORKFLOWS,
    *flows_random.WORKFLOWS,
)
both_stores = pytest.mark.parametrize("cluster", ["sqlite", "postgres-3"], indirect=True, scope="module")
"""One server on SQLite; and three on one PostgreSQL, of which client and worker use different ones."""
_numbers = itertools.count(1)


@dataclass(frozen=True)
class Flows:
    """Flows in one namespace. With several servers, client and worker talk to different ones."""

    scene: Cluster
    client: Client
    workflows: Sequence[type] = WORKFLOWS
    task_queue: str = QUEUE

    def name(self, what: str) -> str:
        """A unique name for a workflow, gate or tag."""
        return f"{what}-{next(_numbers)}"

    async def start(
        self, workflow_type: str, *arguments: Any, workflow_id: str = "", **how: Any
    ) -> WorkflowHandle:
        """Start a workflow; the handle follows its chain of runs."""
        started = await self.client.start_workflow(
            workflow_type=workflow_type,
            task_queue=self.task_queue,
            workflow_id=workflow_id or self.name(workflow_type),
            input=list(arguments),
            **how,
        )
        return self.client.get_workflow_handle(started.workflow_id, workflow_type=workflow_type)

    async def register_attributes(self, **types: str) -> None:
        """Register search attributes of the namespace, which several tests share."""
        for name, kind in types.items():
            await self.scene.post("/api/search-attributes", {"name": name, "type": kind})

    async def result(self, handle: WorkflowHandle) -> Any:
        """What the newest run returned; a run that does not end is shown as it is."""
        try:
            return await self.client.get_result(handle, poll_interval=LOOK_SECONDS, timeout=PATIENCE_S)
        except TimeoutError as problem:
            raise AssertionError(f"{problem}\n{await self.past(handle.workflow_id)}") from problem

    async def run(self, workflow_type: str, *arguments: Any, **how: Any) -> tuple[Any, Past]:
        """The result of a whole workflow, and its past, replayed."""
        handle = await self.start(workflow_type, *arguments, **how)
        result = await self.result(handle)
        return result, (await self.replayed(handle))[-1]

    async def past(self, workflow_id: str, run_id: str | None = None) -> Past:
        run = run_id or (await self.scene.describe(workflow_id))["run_id"]
        return Past(workflow_id, run, await self.scene.events(workflow_id, run))

    async def replayed(self, handle: WorkflowHandle) -> list[Past]:
        """The pasts of all runs of a workflow, after they and those of its children were replayed."""
        replayer = Replayer(workflows=self.workflows)
        pasts = [await self.past(handle.workflow_id, run) for run in await self.runs(handle.workflow_id)]
        for past in pasts:
            check(replayer, past)
            await self._exported(replayer, past)
            for child in {payload["child_workflow_instance_id"] for payload in past.of("ChildRunStarted")}:
                await self.replayed(self.client.get_workflow_handle(child))
        return pasts

    async def _exported(self, replayer: Replayer, past: Past) -> None:
        """What is exported is the same history, and the SDK can read it."""
        reply = await self.scene.get(f"/api/workflows/{past.workflow_id}/runs/{past.run_id}/history/export")
        events = reply.expect(200)["history_events"]
        assert [(event["sequence"], event["type"], event["payload"]) for event in events] == [
            (event["sequence"], event["event_type"], event["payload"]) for event in past.events
        ]
        replayer.replay(reply.body, workflow_id=past.workflow_id, run_id=past.run_id)
        report = verify_bundle(reply.body)
        assert (report["status"], report["findings"]) == ("ok", []), report
        page = await self.scene.get(
            f"/api/workflows/{past.workflow_id}/runs/{past.run_id}/history?page_size=1000"
        )
        audited = page.expect(200)["events"]
        replayer.replay(audited, workflow_id=past.workflow_id, run_id=past.run_id)

    async def runs(self, workflow_id: str) -> list[str]:
        return [run.run_id for run in (await self.client.list_workflow_runs(workflow_id)).runs]

    async def continued(self, workflow_id: str, runs: int) -> None:
        """Wait until a chain has so many runs."""

        async def long_enough() -> bool:
            return len(await self.runs(workflow_id)) >= runs

        await until(long_enough)

    async def saw(self, workflow_id: str, event_type: str, times: int = 1) -> None:
        """Wait until the current run's history tells of something."""

        async def told() -> bool:
            return (await self.scene.event_types(workflow_id)).count(event_type) >= times

        await until(told)

    async def closed(self, workflow_id: str) -> str:
        """Wait until a workflow is closed, and return its status."""

        async def is_closed() -> bool:
            return bool((await self.scene.describe(workflow_id))["is_terminal"])

        await until(is_closed)
        return str((await self.scene.describe(workflow_id))["closed_reason"])

    async def child_of(self, handle: WorkflowHandle) -> WorkflowHandle:
        """The first child of a workflow, once there is one."""
        await self.saw(handle.workflow_id, "ChildRunStarted")
        (first, *_) = (await self.past(handle.workflow_id)).of("ChildRunStarted")
        return self.client.get_workflow_handle(first["child_workflow_instance_id"])


def worker(client: Client, task_queue: str, workflows: Sequence[type] = WORKFLOWS) -> Worker:
    return Worker(
        client,
        task_queue=task_queue,
        workflows=workflows,
        activities=ACTIVITIES,
        interceptors=[TaskGateInterceptor()],
        max_concurrent_activity_tasks=50,
        shutdown_timeout=5.0,
    )


@contextlib.asynccontextmanager
async def working(
    scene: Cluster, task_queue: str, workflows: Sequence[type] = WORKFLOWS
) -> AsyncIterator[None]:
    """A worker in this process, connected to the last server."""
    async with sdk_worker.client_of(scene.last.url, str(scene.namespace)) as client:
        made = worker(client, task_queue, workflows)
        run = asyncio.create_task(made.run())
        try:
            yield
        finally:
            flow_gates.open_all()
            await made.stop()
            await asyncio.wait_for(run, PATIENCE_S)


@contextlib.asynccontextmanager
async def flowing(cluster: Cluster, *, idle: bool = False) -> AsyncIterator[Flows]:
    """Flows in a namespace of their own, with a worker unless it shall be idle."""
    name = f"flows-{next(_numbers)}"
    (await cluster.post("/api/namespaces", {"name": name}, role="admin")).expect(201)
    scene = cluster.at(name)
    async with sdk_worker.client_of(scene.first.url, name) as client, contextlib.AsyncExitStack() as stack:
        if not idle:
            await stack.enter_async_context(working(scene, QUEUE))
        yield Flows(scene, client)


def on_a_queue_of_its_own(flows: Flows) -> Flows:
    """The flows on a queue without workers."""
    return dataclasses.replace(flows, task_queue=flows.name("queue"))
