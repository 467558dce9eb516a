"""Workflow ids: reuse, any printable text, and handles bound to their start."""

from __future__ import annotations

import pytest

from penstock import WorkflowIDConflictPolicy, WorkflowIDReusePolicy
from penstock.sdk.clients.client import Client
from penstock.sdk.clients.starts import ActivityStart
from penstock.sdk.failures import (
    TerminatedError,
    WorkflowAlreadyStartedError,
    WorkflowClosedError,
    WorkflowFailureError,
)
from tests.acceptance.cluster import Cluster, Hand

REUSE, CONFLICT = WorkflowIDReusePolicy, WorkflowIDConflictPolicy
ODD_IDS = [
    "orders/2026/7",
    "a b",
    "50%",
    "q?x=1#y",
    "ünïcode-注文",
    "a%2Fb",
    "*~'\"\\",
    ".hidden",
    "..a",
    "a+b&c",
]
WORDS = ["batch", "count", "signal-with-start", "batch-operations"]
"""Ids that are also segments of routes."""


@pytest.fixture
async def hand(scene: Cluster) -> Hand:
    return await scene.worker("w1")


async def test_a_program_that_starts_its_workflow_under_a_fixed_id_runs_twice(
    client: Client, hand: Hand
) -> None:
    for number in range(3):
        handle = await client.start_workflow("greeter", id="hello", task_queue="q")
        await hand.finish(await hand.take(), number)
        assert await handle.result() == number
    runs = [each async for each in client.list_workflows("WorkflowId = 'hello'")]
    assert len(runs) == 3


async def test_a_handle_stays_with_the_start_that_made_it(client: Client, hand: Hand) -> None:
    first = await client.start_workflow("greeter", id="w", task_queue="q")
    await hand.finish(await hand.take(), "first")
    second = await client.start_workflow("greeter", id="w", task_queue="q")
    assert await first.result() == "first"
    assert (await first.describe()).run_id == first.first_execution_run_id
    with pytest.raises(WorkflowClosedError):
        await first.signal("approve")
    with pytest.raises(WorkflowClosedError):
        await first.cancel()
    assert (await first.fetch_history()).run_id == first.first_execution_run_id
    newest = client.get_workflow_handle("w")
    assert (await newest.describe()).run_id == second.first_execution_run_id
    await second.signal("approve")
    await newest.terminate()
    with pytest.raises(WorkflowFailureError) as failed:
        await second.result()
    assert isinstance(failed.value.cause, TerminatedError)
    assert await client.get_workflow_handle("w", run_id=first.first_execution_run_id).result() == "first"


async def test_a_handle_follows_the_runs_that_continue_its_own_and_no_others(
    client: Client, hand: Hand
) -> None:
    first = await client.start_workflow("greeter", id="w", task_queue="q")
    task = await hand.take()
    await hand.report(task, "complete", commands=[{"type": "continue_as_new"}])
    await hand.finish(await hand.take(), "continued")
    await client.start_workflow("greeter", id="w", task_queue="q")
    assert await first.result() == "continued"
    named = client.get_workflow_handle("w", run_id=first.first_execution_run_id)
    assert await named.result() == "continued"


async def test_each_reuse_policy_does_as_it_says(client: Client, hand: Hand) -> None:
    async def again(reuse: WorkflowIDReusePolicy) -> None:
        await client.start_workflow("greeter", id="w", task_queue="q", id_reuse_policy=reuse)

    await again(REUSE.REJECT_DUPLICATE)
    await hand.finish(await hand.take(), 1)
    for refusing in (REUSE.REJECT_DUPLICATE, REUSE.ALLOW_DUPLICATE_FAILED_ONLY):
        with pytest.raises(WorkflowAlreadyStartedError):
            await again(refusing)
    await again(REUSE.ALLOW_DUPLICATE)
    await client.get_workflow_handle("w").terminate()
    with pytest.raises(WorkflowAlreadyStartedError):
        await again(REUSE.REJECT_DUPLICATE)
    await again(REUSE.ALLOW_DUPLICATE_FAILED_ONLY)


async def test_what_runs_is_terminated_and_started_anew_if_that_is_wanted(client: Client) -> None:
    first = await client.start_workflow("greeter", id="w", task_queue="q")
    second = await client.start_workflow(
        "greeter", id="w", task_queue="q", id_conflict_policy=CONFLICT.TERMINATE_EXISTING
    )
    with pytest.raises(WorkflowFailureError) as failed:
        await first.result()
    assert isinstance(failed.value.cause, TerminatedError)
    assert second.first_execution_run_id != first.first_execution_run_id
    assert (await second.describe()).is_current_run


async def test_a_signal_with_a_start_begins_a_new_run_once_the_last_one_has_ended(
    client: Client, hand: Hand
) -> None:
    first = await client.start_workflow("greeter", id="w", task_queue="q", start_signal="hi")
    await hand.finish(await hand.take(), 1)  # refused: the code has not seen the signal
    await hand.finish(await hand.take(), 1)
    second = await client.start_workflow("greeter", id="w", task_queue="q", start_signal="hi")
    assert (await first.result(), second.is_new) == (1, True)


async def test_the_word_that_the_contract_has_for_it_is_understood(client: Client) -> None:
    assert CONFLICT("use-existing") is CONFLICT.USE_EXISTING
    with pytest.raises(ValueError, match="use_exsting"):
        CONFLICT("use_exsting")


async def test_activities_and_tasks_are_started_again_under_their_ids(client: Client, hand: Hand) -> None:
    first = await client.start_activity("greet", id="a", task_queue="q")
    await hand.report(await hand.take("activity"), "complete", result=1)
    assert await first.result() == 1
    with pytest.raises(WorkflowAlreadyStartedError):
        await client.start_activity("greet", id="a", task_queue="q", id_reuse_policy=REUSE.REJECT_DUPLICATE)
    [second] = await client.start_activities([ActivityStart("greet", id="a", task_queue="q")])
    assert (await first.result(), (await first.describe()).status.value) == (1, "completed")
    assert (await client.get_activity_handle("a").describe()).status.value == "running"
    third = await client.start_activity(
        "greet", id="a", task_queue="q", id_conflict_policy=CONFLICT.TERMINATE_EXISTING
    )
    await second.cancel() if (await second.describe()).status.value == "running" else None
    assert (await second.describe()).status.value == "terminated"
    assert (await third.describe()).status.value == "running"
    await third.cancel()


@pytest.mark.parametrize("id", [*ODD_IDS, *WORDS])
async def test_any_printable_id_is_reached_by_every_request(client: Client, hand: Hand, id: str) -> None:  # noqa: A002
    handle = await client.start_workflow("greeter", id=id, task_queue="q")
    assert (await handle.describe()).id == id
    await handle.signal("hi")
    assert (await client.get_workflow_handle(id).fetch_history()).run_id == handle.first_execution_run_id
    await handle.cancel()
    activity = await client.start_activity("greet", id=f"act:{id}", task_queue="q")
    assert (await activity.describe()).id == f"act:{id}"
    found = [
        each.id async for each in client.list_workflows(f"WorkflowId = '{id.replace(chr(39), chr(39) * 2)}'")
    ]
    assert found == [id]


@pytest.mark.parametrize(
    ("id", "told"),
    [("a\tb", r"U\+0009 is not allowed"), ("..", "is not allowed"), ("x" * 129, "at most 128")],
)
async def test_an_impossible_id_is_refused_before_anything_is_sent(
    client: Client,
    id: str,  # noqa: A002
    told: str,
) -> None:
    with pytest.raises(ValueError, match=told):
        await client.start_workflow("greeter", id=id, task_queue="q")
    with pytest.raises(ValueError, match=told):
        await client.start_activity("greet", id=id, task_queue="q")
