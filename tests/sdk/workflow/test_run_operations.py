"""Runs that are paused, reset, forked, run again and deleted by a handle, with real workers."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from penstock import Client, Replayer, Worker, activity, workflow
from penstock.errors import Reason
from penstock.sdk.failures import ServerRefused
from tests.support.patience import PATIENCE_S


@activity.defn
async def price(item: str) -> str:
    return f"price of {item}"


@workflow.defn
class Order:
    """Draws random numbers and runs an activity before and after a signal."""

    def __init__(self) -> None:
        self.approved: list[str] = []

    @workflow.signal
    def approve(self, name: str) -> None:
        self.approved.append(name)

    @workflow.run
    async def run(self, item: str) -> list[str]:
        first = str(workflow.uuid4())
        cost = await workflow.execute_activity(price, item)
        await workflow.wait_condition(lambda: bool(self.approved))
        second = str(workflow.uuid4())
        return [first, cost, *self.approved, second, item]


def points(events: Sequence[Mapping[str, Any]]) -> list[int]:
    return [event["sequence"] for event in events if event["event_type"] == "WorkflowTaskCompleted"]


async def test_reset_and_fork_replay_to_the_point_and_decide_anew(client: Client) -> None:
    async with Worker(client, task_queue="orders", workflows=[Order], activities=[price]):
        handle = await client.start_workflow(Order.run, "tea", id="order-1", task_queue="orders")
        await handle.signal(Order.approve, "Ada")
        before = await asyncio.wait_for(handle.result(), PATIENCE_S)
        last = points((await handle.fetch_history()).events)[-1]
        forked = await handle.fork(last, id="order-2", args=["coffee"])
        await forked.signal(Order.approve, "Grace")
        other = await asyncio.wait_for(forked.result(), PATIENCE_S)
        again = await handle.reset(last, reason="once more")
        after = await asyncio.wait_for(again.result(), PATIENCE_S)
    assert (other[0], other[1], other[-1]) == (before[0], "price of tea", "coffee"), "results are reused"
    assert other[3] != before[3], "what is decided anew has random numbers of its own"
    assert "Ada" in after
    assert after[0] == before[0]
    for made in (forked, again):
        history = await made.fetch_history()
        assert Replayer(workflows=[Order]).replay(history).fits


async def test_a_paused_run_takes_signals_and_goes_on_when_resumed(client: Client) -> None:
    async with Worker(client, task_queue="orders", workflows=[Order], activities=[price]):
        handle = await client.start_workflow(Order.run, "tea", id="order-1", task_queue="orders")
        await handle.pause("stock is counted")
        await handle.signal(Order.approve, "Ada")
        described = await handle.describe()
        assert described.raw["pause"]["reason"] == "stock is counted"
        await handle.resume()
        assert "Ada" in await asyncio.wait_for(handle.result(), PATIENCE_S)


async def test_a_fork_of_a_run_whose_code_is_not_there_says_so(client: Client) -> None:
    async with Worker(client, task_queue="orders", workflows=[Order], activities=[price]):
        handle = await client.start_workflow(Order.run, "tea", id="order-1", task_queue="orders")
        await handle.signal(Order.approve, "Ada")
        await asyncio.wait_for(handle.result(), PATIENCE_S)
    forked = await handle.fork(2)
    why = await client.get_workflow_handle(forked.id).describe()
    assert why.status == "running"


async def test_a_closed_run_is_run_again_and_deleted(client: Client) -> None:
    async with Worker(client, task_queue="orders", workflows=[Order], activities=[price]):
        handle = await client.start_workflow(Order.run, "tea", id="order-1", task_queue="orders")
        await handle.signal(Order.approve, "Ada")
        await asyncio.wait_for(handle.result(), PATIENCE_S)
        again = await handle.rerun("once more")
        assert again.run_id != handle.first_execution_run_id
        await again.terminate()
        await again.delete("not needed")
        with pytest.raises(ServerRefused) as refused:
            await again.describe()
        assert refused.value.reason == Reason.RUN_NOT_FOUND
