"""Small programs of the kinds that people bring from Temporal, each run twice in a row on one server.

They are written in the shape that such programs have, with the names of that SDK where they exist here.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import pytest
from cryptography.fernet import Fernet
from pydantic import BaseModel

from penstock import Client, DataConverter, RetryPolicy, SimplePlugin, activity, workflow
from penstock.client import WorkflowUpdateStage
from penstock.failures import ActivityError, ApplicationError, UpdateFailedError, WorkflowFailureError
from penstock.worker import Replayer, Worker
from tests.acceptance.cluster import Cluster
from tests.sdk.server_fixtures import connected, new_namespace

TWICE = pytest.mark.parametrize("time", ["first", "second"])
SOON = timedelta(milliseconds=20)


@pytest.fixture(scope="module")
async def home(cluster: Cluster) -> AsyncIterator[Client]:
    """One namespace for both runs of each program: the second finds what the first has left."""
    async with await connected(await new_namespace(cluster)) as made:
        yield made


# Polling: a service that is not ready is asked again by the retry policy


class Service:
    def __init__(self) -> None:
        self.asked = 0

    @activity.defn
    async def compose(self, name: str) -> str:
        self.asked += 1
        if self.asked < 3:
            raise ApplicationError("not ready", type="NotReady")
        return f"{name} was ready at attempt {activity.info().attempt}"


@workflow.defn
class Polling:
    @workflow.run
    async def run(self, name: str) -> str:
        return await workflow.execute_activity_method(
            Service.compose,
            name,
            start_to_close_timeout=timedelta(seconds=30),
            retry_policy=RetryPolicy(initial_interval=SOON, backoff_coefficient=1.0),
        )


@TWICE
async def test_polling_by_retries(home: Client, time: str) -> None:
    async with Worker(home, task_queue="polling", workflows=[Polling], activities=[Service().compose]):
        found = await home.execute_workflow(Polling.run, "it", id="polling", task_queue="polling")
    assert found == "it was ready at attempt 3"


# A timer whose end moves


@workflow.defn
class UpdatableTimer:
    def __init__(self) -> None:
        self.wake_at = 0.0
        self.changed = False

    @workflow.run
    async def run(self, wake_at: float) -> int:
        self.wake_at = wake_at
        rounds = 0
        while workflow.time() < self.wake_at:
            rounds += 1
            self.changed = False
            try:
                await workflow.wait_condition(
                    lambda: self.changed, timeout=timedelta(seconds=self.wake_at - workflow.time())
                )
            except TimeoutError:
                break
        return rounds

    @workflow.signal
    def wake(self, at: float) -> None:
        self.wake_at, self.changed = at, True

    @workflow.query
    def wakes_at(self) -> float:
        return self.wake_at


@TWICE
async def test_a_timer_whose_end_moves(home: Client, time: str) -> None:
    async with Worker(home, task_queue="timer", workflows=[UpdatableTimer], max_cached_workflows=0):
        handle = await home.start_workflow(UpdatableTimer.run, 1.9e9, id="timer", task_queue="timer")
        assert await handle.query(UpdatableTimer.wakes_at) == 1.9e9
        await handle.signal(UpdatableTimer.wake, 2.0e9)
        assert await handle.query(UpdatableTimer.wakes_at) == 2.0e9
        await handle.signal(UpdatableTimer.wake, 1.0)
        assert await handle.result() == 2


# A sliding window of children, which continues as new


@dataclass
class Window:
    total: int
    size: int
    begun: int = 0
    ended: list[int] = field(default_factory=list)


@workflow.defn
class Processor:
    @workflow.run
    async def run(self, number: int, parent_id: str) -> None:
        await workflow.get_external_workflow_handle_for(SlidingWindow.run, parent_id).signal(
            SlidingWindow.report, number
        )


@workflow.defn
class SlidingWindow:
    @workflow.init
    def __init__(self, window: Window) -> None:
        self.window = window

    @workflow.run
    async def run(self, window: Window) -> list[int]:
        own_id = workflow.info().workflow_id
        begun_here = 0
        while window.begun < window.total:
            await workflow.wait_condition(lambda: window.begun - len(window.ended) < window.size)
            await workflow.start_child_workflow(
                Processor.run,
                args=[window.begun, own_id],
                id=f"{own_id}-{window.begun}",
                parent_close_policy=workflow.ParentClosePolicy.ABANDON,
            )
            window.begun += 1
            begun_here += 1
            if begun_here == 3:
                await workflow.wait_condition(workflow.all_handlers_finished)
                workflow.continue_as_new(window)
        await workflow.wait_condition(lambda: len(window.ended) == window.total)
        return sorted(window.ended)

    @workflow.signal
    def report(self, number: int) -> None:
        if number not in self.window.ended:
            self.window.ended.append(number)


@TWICE
async def test_a_sliding_window_of_children(home: Client, time: str) -> None:
    async with Worker(home, task_queue="window", workflows=[SlidingWindow, Processor]):
        found = await home.execute_workflow(
            SlidingWindow.run, Window(total=5, size=2), id="window", task_queue="window"
        )
    assert found == [0, 1, 2, 3, 4]


# Message handlers that await, and exclude each other


@activity.defn
async def allocate(node: str, job: str) -> str:
    return f"{job} on {node}"


@workflow.defn
class ClusterManager:
    def __init__(self) -> None:
        self.nodes: dict[str, str | None] = {"a": None, "b": None}
        self.lock = asyncio.Lock()
        self.is_over = False

    @workflow.run
    async def run(self) -> dict[str, str | None]:
        await workflow.wait_condition(lambda: self.is_over)
        await workflow.wait_condition(workflow.all_handlers_finished)
        return self.nodes

    @workflow.update
    async def assign(self, job: str) -> str:
        async with self.lock:
            free = [name for name, taken in self.nodes.items() if taken is None]
            if not free:
                raise ApplicationError("no node is free", type="Full")
            found = await workflow.execute_activity(
                allocate, args=[free[0], job], start_to_close_timeout=timedelta(seconds=30)
            )
            self.nodes[free[0]] = job
            return found

    @workflow.signal
    def shut_down(self) -> None:
        self.is_over = True


@TWICE
async def test_handlers_that_exclude_each_other(home: Client, time: str) -> None:
    async with Worker(home, task_queue="manager", workflows=[ClusterManager], activities=[allocate]):
        handle = await home.start_workflow(ClusterManager.run, id="manager", task_queue="manager")
        first, second = await asyncio.gather(
            handle.execute_update(ClusterManager.assign, "x", id=f"x {handle.result_run_id}"),
            handle.execute_update(ClusterManager.assign, "y", id=f"y {handle.result_run_id}"),
        )
        assert {first[-1], second[-1]} == {"a", "b"}
        third = await handle.start_update(
            ClusterManager.assign, "z", wait_for_stage=WorkflowUpdateStage.ACCEPTED
        )
        await handle.signal(ClusterManager.shut_down)
        with pytest.raises(UpdateFailedError) as failed:
            await third.result()
        assert isinstance(failed.value.__cause__, ApplicationError)
        assert failed.value.__cause__.type == "Full"
        assert sorted(str(job) for job in (await handle.result()).values()) == ["x", "y"]


# Encryption as a plug-in: the server stores nothing that can be read


class Encryption:
    name = "fernet"

    def __init__(self, key: bytes) -> None:
        self._fernet = Fernet(key)

    def encode(self, data: bytes) -> bytes:
        return self._fernet.encrypt(data)

    def decode(self, data: bytes) -> bytes:
        return self._fernet.decrypt(data)


@activity.defn
async def whisper(text: str) -> str:
    if text == "fail":
        raise ApplicationError("it failed", "secret detail", type="Whispered", non_retryable=True)
    return f"{text}, quietly"


@workflow.defn
class Secret:
    @workflow.run
    async def run(self, text: str) -> str:
        return await workflow.execute_activity(whisper, text)


@TWICE
async def test_encrypted_payloads(cluster: Cluster, time: str) -> None:
    plugin = SimplePlugin(
        "encryption", data_converter=DataConverter(codecs=[Encryption(Fernet.generate_key())])
    )
    async with (
        await connected(await new_namespace(cluster), plugins=[plugin]) as client,
        Worker(client, task_queue="q", workflows=[Secret], activities=[whisper]),
    ):
        handle = await client.start_workflow(Secret.run, "a secret", id="secret", task_queue="q")
        assert await handle.result() == "a secret, quietly"
        failing = await client.start_workflow(Secret.run, "fail", id="failing", task_queue="q")
        with pytest.raises(WorkflowFailureError) as failed:
            await failing.result()
        assert isinstance(failed.value.cause, ActivityError)
        assert isinstance(failed.value.cause.cause, ApplicationError)
        assert failed.value.cause.cause.details == ("secret detail",)
        history = await handle.fetch_history()
    assert Replayer(workflows=[Secret], plugins=[plugin]).replay(history).failure is None
    assert Replayer(workflows=[Secret]).replay(history).failure is not None, "the key is needed"


# Pydantic models as arguments and results


class Line(BaseModel):
    article: str
    price: float


class Order(BaseModel):
    number: int
    lines: list[Line]


@activity.defn
async def total(orders: list[Order]) -> Line:
    return Line(article="total", price=sum(line.price for order in orders for line in order.lines))


@workflow.defn
class Billing:
    @workflow.run
    async def run(self, orders: list[Order]) -> Order:
        return Order(number=0, lines=[await workflow.execute_activity(total, orders)])


@TWICE
async def test_pydantic_models(home: Client, time: str) -> None:
    orders = [Order(number=1, lines=[Line(article="pen", price=1.5), Line(article="ink", price=2.5)])]
    async with Worker(home, task_queue="billing", workflows=[Billing], activities=[total]):
        found: Any = await home.execute_workflow(Billing.run, orders, id="billing", task_queue="billing")
    assert found == Order(number=0, lines=[Line(article="total", price=4.0)])
