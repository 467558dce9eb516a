"""Standalone activities through the client; the test plays the worker."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import pytest

from penstock.sdk import activity
from penstock.sdk.clients import start_batcher
from penstock.sdk.clients.client import Client
from penstock.sdk.clients.descriptions import WorkflowExecutionStatus
from penstock.sdk.clients.starts import ActivityStart
from penstock.sdk.failures import (
    ActivityFailureError,
    ActivityNotFoundError,
    ApplicationError,
    CancelledError,
    ServerRefused,
    WorkflowAlreadyStartedError,
)
from penstock.sdk.failures import TimeoutError as ActivityTimeout
from penstock.sdk.priority import Priority
from penstock.sdk.retry import RetryPolicy
from tests.acceptance.cluster import Cluster, Hand, value
from tests.support.patience import PATIENCE_S


@pytest.fixture
async def hand(scene: Cluster) -> Hand:
    return await scene.worker("w1")


@dataclass
class Receipt:
    total: int


@activity.defn
async def charge(account: str, amount: int) -> Receipt:
    raise AssertionError("played by hand")


@activity.defn(name="paint it")
def paint(colour: str) -> str:
    raise AssertionError("played by hand")


def undecorated() -> None: ...


async def test_an_activity_is_started_by_its_function_and_its_result_has_its_type(
    client: Client, hand: Hand
) -> None:
    handle = await client.start_activity(charge, args=["acme", 5], id="a", task_queue="q")
    task = await hand.take("activity")
    assert (task["activity_type"], value(task["arguments"])) == ("charge", ["acme", 5])
    await hand.finish(task, {"total": 5})
    assert await handle.result() == Receipt(5)
    assert (handle.id, handle.is_new) == ("a", True)
    assert await client.get_activity_handle("a", result_type=Receipt).result() == Receipt(5)


async def test_executing_an_activity_waits_for_its_result(client: Client, hand: Hand) -> None:
    async def work() -> None:
        await hand.finish(await hand.take("activity"), "red all over")

    working = asyncio.create_task(work())
    assert await client.execute_activity(paint, "red", task_queue="q") == "red all over"
    await working


async def test_an_activity_that_fails_for_good_raises_what_it_said(client: Client, hand: Hand) -> None:
    handle = await client.start_activity("greet", id="a", task_queue="q")
    failure = {"message": "no paper", "type": "OutOfPaper", "non_retryable": True}
    (await hand.report(await hand.take("activity"), "fail", failure=failure)).ok()
    with pytest.raises(ActivityFailureError, match="no paper") as failed:
        await handle.result()
    cause = failed.value.cause
    assert isinstance(cause, ApplicationError)
    assert cause.type == "OutOfPaper"


async def test_an_activity_that_is_cancelled_says_so(client: Client) -> None:
    handle = await client.start_activity("greet", id="a", task_queue="q")
    await handle.cancel("not wanted")
    with pytest.raises(ActivityFailureError) as failed:
        await handle.result()
    assert isinstance(failed.value.cause, CancelledError)
    assert (await handle.describe()).status is WorkflowExecutionStatus.CANCELLED


async def test_a_result_that_is_not_there_in_time_is_a_timeout(client: Client) -> None:
    handle = await client.start_activity("greet", id="a", task_queue="q")
    with pytest.raises(TimeoutError, match=r"Activity 'a' has not ended within 0.05 seconds"):
        await handle.result(timeout=0.05)


async def test_what_a_start_says_is_found_in_the_description_and_in_the_task(
    client: Client, hand: Hand
) -> None:
    handle = await client.start_activity(
        "greet",
        id="a",
        task_queue="q",
        priority=Priority(priority_key=1, fairness_key="acme"),
        retry_policy=RetryPolicy(maximum_attempts=3),
        start_to_close_timeout=timedelta(seconds=20),
        schedule_to_close_timeout=timedelta(minutes=1),
        business_key="order-7",
    )
    found = await handle.describe()
    assert (found.id, found.activity_type, found.task_queue) == ("a", "greet", "q")
    assert (found.priority_key, found.fairness_key, found.business_key) == (1, "acme", "order-7")
    assert found.status is WorkflowExecutionStatus.RUNNING
    assert found.raw["schedule_to_close_deadline_at"] is not None
    task = await hand.take("activity")
    assert task["retry_policy"]["max_attempts"] == 3


async def test_an_activity_that_is_not_begun_while_it_is_good_has_expired(client: Client) -> None:
    long_ago = datetime.now(UTC) - timedelta(seconds=5)
    handle = await client.start_activity("greet", id="a", task_queue="q", good_until=long_ago)
    with pytest.raises(ActivityFailureError) as failed:
        await handle.result(timeout=PATIENCE_S)
    assert isinstance(failed.value.cause, ActivityTimeout)


async def test_an_activity_may_rest_before_it_starts(client: Client, hand: Hand) -> None:
    await client.start_activity("greet", id="later", task_queue="q", start_delay=timedelta(milliseconds=300))
    await client.start_activity("greet", id="now", task_queue="q")
    order = [(await hand.take("activity"))["workflow_id"] for _ in range(2)]
    assert order == ["now", "later"]


async def test_times_that_make_no_sense_are_told_by_their_name(client: Client) -> None:
    with pytest.raises(ValueError, match="heartbeat_timeout must be longer than nothing"):
        await client.start_activity("greet", task_queue="q", heartbeat_timeout=timedelta(0))
    with pytest.raises(TypeError, match="start_to_close_timeout must be a timedelta, not int"):
        await client.start_activity("greet", task_queue="q", start_to_close_timeout=5)  # type: ignore[call-overload]


async def test_an_id_in_use_is_refused(client: Client) -> None:
    await client.start_activity("greet", id="a", task_queue="q")
    with pytest.raises(WorkflowAlreadyStartedError):
        await client.start_activity("greet", id="a", task_queue="q")
    with pytest.raises(ActivityNotFoundError):
        await client.get_activity_handle("b").describe()


async def test_many_are_started_with_few_requests_in_their_order(
    client: Client, hand: Hand, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(start_batcher, "BATCH_ITEMS_MAX", 10)
    starts = [ActivityStart(paint, str(number), task_queue="q") for number in range(25)]
    handles = await client.start_activities(starts)
    assert [handle.id for handle in handles] == [start.input.id for start in starts]
    tasks = await hand.drain(25)
    assert sorted(int(value(task["arguments"])[0]) for task in tasks) == list(range(25))  # type: ignore[index]
    await hand.report_all(tasks, "complete", result="done")
    assert [await handle.result() for handle in handles] == ["done"] * 25
    assert [each.id async for each in client.list_activities(status="completed", limit=1)] != []


async def test_one_of_many_that_is_refused_does_not_keep_the_others_from_starting(client: Client) -> None:
    await client.start_activity("greet", id="taken", task_queue="q")

    def starts(first: str) -> list[ActivityStart[object]]:
        return [ActivityStart("greet", id=each, task_queue="q") for each in (first, "taken", f"{first}-too")]

    outcomes = await client.start_activities(starts("a"), return_exceptions=True)
    assert [isinstance(each, ServerRefused) for each in outcomes] == [False, True, False]
    with pytest.raises(WorkflowAlreadyStartedError):
        await client.start_activities(starts("b"))
    assert (await client.get_activity_handle("b-too").describe()).id == "b-too"


async def test_a_wrong_number_of_arguments_is_told_before_anything_is_sent(client: Client) -> None:
    with pytest.raises(TypeError, match=r"activity 'charge' takes 2 arguments \(account, amount\); 1 given"):
        await client.start_activity(charge, "acme", task_queue="q")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"activity 'paint it' takes 1 argument \(colour\); 0 given"):
        await client.start_activity(paint, task_queue="q")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="not an activity"):
        await client.start_activity(undecorated, task_queue="q")
    with pytest.raises(TypeError, match="no option 'timeout'"):
        await client.start_activity(paint, "red", task_queue="q", timeout=5)  # type: ignore[call-overload]
    assert [each async for each in client.list_activities()] == []
