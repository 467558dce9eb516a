"""Workflows, signals, queries and updates given as code instead of names."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

import pytest

from penstock.sdk import workflow
from penstock.sdk.call_targets import UNSET, query_target, signal_target, update_target, workflow_target
from penstock.sdk.clients.client import Client
from penstock.sdk.workflows.definitions import DefinitionError
from tests.acceptance.cluster import Cluster, value


@dataclass
class Cart:
    items: list[str]
    total: int = 0


@workflow.defn(name="order")
class Order:
    @workflow.run
    async def run(self, cart: Cart, note: str = "") -> Cart:
        return cart

    @workflow.signal(name="approved-by")
    async def approve(self, who: str) -> None: ...

    @workflow.query
    def progress(self) -> Cart:
        return Cart([])

    @workflow.update
    async def change(self, item: str, times: int) -> int:
        return times

    def helper(self) -> None: ...


@workflow.defn(dynamic=True)
class Any_:  # noqa: N801
    @workflow.run
    async def run(self, *args: str) -> None: ...


async def test_a_workflow_is_meant_by_its_class_or_its_run_method(client: Client, scene: Cluster) -> None:
    hand = await scene.worker("w1")
    first = await client.start_workflow(Order.run, Cart(["pen"], 3), id="w1", task_queue="q")
    second = await client.start_workflow(Order, args=[Cart(["ink"]), "gift"], id="w2", task_queue="q")
    for _ in range(2):
        task = await hand.take()
        assert task["workflow_type"] == "order"
        arguments = value(task["arguments"])
        assert isinstance(arguments, list)
        await hand.finish(task, arguments[0])
    assert await first.result() == Cart(["pen"], 3)
    assert await second.result() == Cart(["ink"])
    assert await client.get_workflow_handle_for(Order.run, "w1").result() == Cart(["pen"], 3)
    assert await client.get_workflow_handle_for(Order, "w2").result() == Cart(["ink"])


async def test_signals_are_meant_by_their_methods(client: Client, scene: Cluster) -> None:
    handle = await client.start_workflow(
        Order.run,
        args=[Cart([])],
        id="w",
        task_queue="q",
        start_signal=Order.approve,
        start_signal_args=["anna"],
    )
    await handle.signal(Order.approve, "berta")
    await client.signal_workflows('WorkflowType = "order"', Order.approve, "clara")
    await handle.terminate()
    heard = [each["payload"] for each in await scene.events("w") if each["event_type"] == "SignalReceived"]
    assert [each["signal_name"] for each in heard] == ["approved-by"] * 3


async def test_queries_and_updates_give_the_type_of_their_methods(client: Client, scene: Cluster) -> None:
    hand = await scene.worker("w1", capabilities=["query_tasks"])
    handle = await client.start_workflow(Order.run, args=[Cart([])], id="w", task_queue="q")
    asking = asyncio.create_task(handle.query(Order.progress))
    task = (await hand.poll("query", 30)).expect(200)["task"]
    lease = {"lease_owner": "w1", "query_task_attempt": task["query_task_attempt"]}
    path = f"/api/worker/query-tasks/{task['query_task_id']}/complete"
    (await scene.post(path, lease | {"result": {"items": ["pen"], "total": 1}}, role="worker")).ok()
    assert await asking == Cart(["pen"], 1)
    update = await handle.start_update(Order.change, args=["pen", 2])
    await hand.decide(await hand.take(), {"type": "open_condition_wait", "condition_key": "k"})
    task = await hand.take()
    command = {"type": "complete_update", "update_id": task["workflow_update_id"], "result": 2}
    await hand.decide(task, command)
    assert await update.result() == 2


async def test_a_wrong_number_of_arguments_is_told_before_anything_is_sent(client: Client) -> None:
    told = r"workflow 'order' takes 1 to 2 arguments \(cart, note\); 0 given"
    with pytest.raises(TypeError, match=told):
        await client.start_workflow(Order, task_queue="q")
    with pytest.raises(TypeError, match=r"workflow 'order' takes 1 to 2 arguments .*; 3 given"):
        await client.start_workflow(Order.run, args=[1, 2, 3], task_queue="q")
    handle = client.get_workflow_handle("nobody")
    with pytest.raises(TypeError, match=r"signal 'approved-by' takes 1 argument \(who\); 0 given"):
        await handle.signal(Order.approve, args=[])
    with pytest.raises(TypeError, match=r"query 'progress' takes no arguments; 1 given"):
        await handle.query(Order.progress, args=[1])
    with pytest.raises(TypeError, match=r"update 'change' takes 2 arguments \(item, times\); 1 given"):
        await handle.execute_update(Order.change, args=["pen"])
    with pytest.raises(TypeError, match="must be a list of arguments, not one text"):
        await handle.signal("approve", args="anna")
    assert (await client.count_workflows()).count == 0


async def test_a_plain_argument_of_the_wrong_type_is_told_by_its_name(client: Client) -> None:
    told = r"update 'change': argument 2 \(times\) must be int, not str"
    with pytest.raises(TypeError, match=told):
        await client.get_workflow_handle("nobody").execute_update(Order.change, args=["pen", "2"])
    called = update_target(Order.change)
    for wrong in (None, True, 2.0, b"2", [2], {"a": 2}):
        with pytest.raises(TypeError, match="argument 2"):
            called.arguments(UNSET, ["pen", wrong])


def test_what_a_converter_may_still_make_fit_is_left_to_it() -> None:
    @workflow.defn
    class Odd:
        @workflow.run
        async def run(self, a: float, b: list, c: Cart, d: int | None, e: bytes) -> None: ...

    given = [1, (1, 2), {"items": []}, None, "eA=="]
    assert workflow_target(Odd).arguments(UNSET, given) == given


def test_what_is_no_such_thing_is_told_so() -> None:
    with pytest.raises(
        TypeError,
        match=r"Order.helper is not a workflow signal: pass a method decorated with @workflow\.signal",
    ):
        signal_target(Order.helper)
    with pytest.raises(TypeError, match=r"Order.approve is not a workflow query"):
        query_target(Order.approve)
    with pytest.raises(TypeError, match="5 is not a workflow update"):
        update_target(5)
    with pytest.raises(TypeError, match="start it by name"):
        workflow_target(Any_)
    with pytest.raises(DefinitionError, match="Cart is not a workflow"):
        workflow_target(Cart)
    with pytest.raises(ValueError, match="must not be empty"):
        workflow_target("")
