"""What a type checker infers for the client. Nothing here runs: mypy checks it with the tests."""

from __future__ import annotations

from typing import Any, assert_type

from penstock.sdk.clients.client import Client
from penstock.sdk.clients.handles import ActivityHandle, WorkflowHandle, WorkflowUpdateHandle
from penstock.sdk.clients.starts import ActivityStart, WithStartWorkflowOperation
from penstock.sdk.clients.sync_client import SyncActivityHandle, SyncClient, SyncWorkflowHandle


class Order:
    async def run(self, number: int) -> str:
        return str(number)

    async def approve(self, by: str) -> None: ...

    def nudge(self) -> None: ...

    def progress(self) -> float:
        return 0.5

    async def change(self, amount: int) -> bytes:
        return b""

    def rename(self, first: str, second: str) -> bool:
        return True


class Nothing:
    async def run(self) -> None: ...


class Pair:
    async def run(self, first: int, second: str) -> list[str]:
        return []


async def charge(amount: int) -> str:
    return ""


def paint(colour: str, times: int) -> float:
    return 0.0


def rest() -> None: ...


async def workflows(client: Client) -> None:
    assert_type(await client.start_workflow(Order.run, 1, task_queue="q"), WorkflowHandle[str])
    assert_type(await client.execute_workflow(Order.run, 1, id="w", task_queue="q"), str)
    assert_type(
        await client.start_workflow(Pair.run, args=[1, "a"], task_queue="q"), WorkflowHandle[list[str]]
    )
    assert_type(await client.start_workflow(Nothing.run, task_queue="q"), WorkflowHandle[None])
    assert_type(await client.start_workflow(Order, 1, task_queue="q"), WorkflowHandle[str])
    assert_type(await client.start_workflow("order", 1, task_queue="q"), WorkflowHandle[Any])
    assert_type(await client.start_workflow("order", 1, task_queue="q", result_type=int), WorkflowHandle[int])
    assert_type(client.get_workflow_handle("w", result_type=int), WorkflowHandle[int])
    assert_type(client.get_workflow_handle("w"), WorkflowHandle[Any])
    assert_type(client.get_workflow_handle_for(Order.run, "w"), WorkflowHandle[str])
    assert_type(client.get_workflow_handle_for(Pair, "w"), WorkflowHandle[list[str]])


async def mistakes(client: Client, handle: WorkflowHandle[str]) -> None:
    await client.start_workflow(Order.run, "one", task_queue="q")  # type: ignore[arg-type]
    await client.start_workflow(Order.run, task_queue="q")  # type: ignore[arg-type]
    await client.start_workflow(Order.run, 1)  # type: ignore[call-overload]
    await client.start_workflow(Order.run, 1, task_queue="q", run_timeout=5)  # type: ignore[call-overload]
    await handle.signal(Order.approve, 5)  # type: ignore[arg-type]
    await handle.execute_update(Order.change, "much")  # type: ignore[arg-type]
    await client.start_activity(charge, "much", task_queue="q")  # type: ignore[arg-type]


async def talking(handle: WorkflowHandle[str]) -> None:
    assert_type(await handle.result(), str)
    await handle.signal(Order.approve, "anna")
    await handle.signal(Order.nudge)
    await handle.signal("approve", "anna")
    assert_type(await handle.query(Order.progress), float)
    assert_type(await handle.query("progress", result_type=float), float)
    assert_type(await handle.execute_update(Order.change, 5), bytes)
    assert_type(await handle.execute_update(Order.rename, args=["a", "b"]), bool)
    assert_type(await handle.start_update(Order.change, 5), WorkflowUpdateHandle[bytes])
    assert_type(await (await handle.start_update("change", 5, result_type=bytes)).result(), bytes)


async def updates_with_a_start(client: Client) -> None:
    start = WithStartWorkflowOperation(Order.run, 1, id="w", task_queue="q")
    assert_type(start, WithStartWorkflowOperation[str])
    assert_type(await start.workflow_handle(), WorkflowHandle[str])
    assert_type(
        await client.execute_update_with_start_workflow(Order.change, 5, start_workflow_operation=start),
        bytes,
    )


async def activities(client: Client) -> None:
    assert_type(await client.start_activity(charge, 5, task_queue="q"), ActivityHandle[str])
    assert_type(await client.execute_activity(paint, args=["red", 2], task_queue="q"), float)
    assert_type(await client.execute_activity(rest, task_queue="q"), None)
    assert_type(await client.start_activity("charge", 5, task_queue="q"), ActivityHandle[Any])
    await client.start_activity(charge, 1, routing_key="eu", dispatch=None, task_queue="q")
    starts = [ActivityStart(charge, number, task_queue="q") for number in range(3)]
    assert_type(await client.start_activities(starts), list[ActivityHandle[str]])
    assert_type(client.get_activity_handle("a", result_type=int), ActivityHandle[int])


def without_async(client: SyncClient) -> None:
    handle = client.start_workflow(Order.run, 1, task_queue="q")
    assert_type(handle, SyncWorkflowHandle[str])
    assert_type(handle.result(timeout=5), str)
    assert_type(handle.query(Order.progress), float)
    assert_type(handle.execute_update(Order.change, 5), bytes)
    assert_type(handle.start_update(Order.change, 5).result(), bytes)
    assert_type(client.execute_workflow(Order.run, 1, task_queue="q"), str)
    assert_type(client.start_activity(charge, 5, task_queue="q"), SyncActivityHandle[str])
    assert_type(client.get_workflow_handle("w", result_type=int).result(), int)
    assert_type([each.id for each in client.list_workflows()], list[str])
    client.start_workflow(Order.run, "one", task_queue="q")  # type: ignore[arg-type]
    assert_type(SyncClient.connect("http://127.0.0.1:8080", namespace="n"), SyncClient)
