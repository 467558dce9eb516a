"""The client against a real server; the test plays the worker."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest

from penstock.sdk.clients.client import Client
from penstock.sdk.clients.descriptions import WorkflowExecutionStatus, WorkflowHistory
from penstock.sdk.clients.interceptors import (
    ClientInterceptor,
    OutboundInterceptor,
    SignalWorkflowInput,
    StartedWorkflow,
    StartWorkflowInput,
    WorkflowIDConflictPolicy,
)
from penstock.sdk.clients.starts import WithStartWorkflowOperation
from penstock.sdk.converters import DataConverter, ZlibCodec
from penstock.sdk.failures import (
    ApplicationError,
    CancelledError,
    QueryRejected,
    RequestIdConflictError,
    ServerRefused,
    TerminatedError,
    UpdateFailedError,
    WorkflowAlreadyStartedError,
    WorkflowClosedError,
    WorkflowFailureError,
    WorkflowNotFoundError,
)
from penstock.sdk.priority import Priority
from tests.acceptance.cluster import Cluster, Hand, value
from tests.sdk.server_fixtures import connected

USE_EXISTING = WorkflowIDConflictPolicy.USE_EXISTING


@pytest.fixture
async def hand(scene: Cluster) -> Hand:
    return await scene.worker("w1")


@dataclass
class Greeting:
    text: str
    times: int = 1


# Starts and results


async def test_a_workflow_is_started_by_name_and_its_result_has_the_type_that_was_asked_for(
    client: Client, hand: Hand
) -> None:
    handle = await client.start_workflow(
        "greeter", Greeting("hi"), id="w", task_queue="q", result_type=Greeting
    )
    task = await hand.take()
    assert value(task["arguments"]) == [{"text": "hi", "times": 1}]
    await hand.finish(task, {"text": "hello", "times": 3})
    assert await handle.result() == Greeting("hello", 3)
    assert (handle.id, handle.is_new, handle.run_id) == ("w", True, None)


async def test_executing_a_workflow_waits_for_its_result(client: Client, hand: Hand) -> None:
    async def work() -> None:
        await hand.finish(await hand.take(), 7)

    working = asyncio.create_task(work())
    result = await client.execute_workflow("adder", args=[3, 4], task_queue="q", result_type=int)
    await working
    assert result == 7


async def test_ids_that_are_not_given_are_made_up(client: Client) -> None:
    first = await client.start_workflow("greeter", task_queue="q")
    second = await client.start_workflow("greeter", task_queue="q")
    assert first.id != second.id


async def test_an_id_in_use_is_refused_or_its_open_run_is_used(client: Client) -> None:
    first = await client.start_workflow("greeter", id="w", task_queue="q")
    with pytest.raises(WorkflowAlreadyStartedError) as refused:
        await client.start_workflow("greeter", id="w", task_queue="q")
    assert refused.value.run_id == first.first_execution_run_id
    again = await client.start_workflow("greeter", id="w", task_queue="q", id_conflict_policy=USE_EXISTING)
    assert (again.first_execution_run_id, again.is_new) == (first.first_execution_run_id, False)


async def test_a_start_that_is_sent_again_under_its_request_id_is_the_same_start(client: Client) -> None:
    first = await client.start_workflow("greeter", id="w", task_queue="q", request_id="r")
    again = await client.start_workflow("greeter", id="w", task_queue="q", request_id="r")
    assert again.first_execution_run_id == first.first_execution_run_id


async def test_a_search_attribute_is_registered_once_however_often_it_is_asked_for(client: Client) -> None:
    for _ in range(2):
        await client.register_search_attribute("Customer", "keyword")
    with pytest.raises(ServerRefused) as refused:
        await client.register_search_attribute("Customer", "int")
    assert refused.value.reason == "attribute_already_exists"


async def test_what_a_start_says_is_found_in_the_description(client: Client) -> None:
    await client.register_search_attribute("Customer", "keyword")
    handle = await client.start_workflow(
        "greeter",
        id="w",
        task_queue="q",
        memo={"note": "for people"},
        search_attributes={"Customer": "acme"},
        priority=Priority(priority_key=2, fairness_key="acme", fairness_weight=2.5),
        execution_timeout=timedelta(hours=1),
        run_timeout=timedelta(seconds=90.5),
        business_key="order-7",
    )
    found = await handle.describe()
    assert (found.id, found.workflow_type, found.task_queue) == ("w", "greeter", "q")
    assert found.status is WorkflowExecutionStatus.RUNNING
    assert (found.memo, found.search_attributes) == ({"note": "for people"}, {"Customer": "acme"})
    assert (found.priority_key, found.fairness_key, found.fairness_weight) == (2, "acme", 2.5)
    assert found.business_key == "order-7"
    assert found.raw["run_timeout_seconds"] == 91
    assert found.execution_deadline == found.start_time + timedelta(hours=1)
    assert found.close_time is None
    assert found.start_time.tzinfo is not None


async def test_a_result_that_is_not_there_in_time_is_a_timeout_and_the_workflow_goes_on(
    client: Client,
) -> None:
    handle = await client.start_workflow("greeter", id="w", task_queue="q")
    with pytest.raises(TimeoutError, match=r"Workflow 'w' has not ended within 0.05 seconds"):
        await handle.result(timeout=0.05)
    assert (await handle.describe()).status is WorkflowExecutionStatus.RUNNING


async def test_a_failed_workflow_raises_what_its_code_raised(client: Client, hand: Hand) -> None:
    handle = await client.start_workflow("greeter", id="w", task_queue="q")
    await hand.decide(
        await hand.take(),
        {"type": "fail_workflow", "message": "no paper", "exception_type": "OutOfPaper"},
    )
    with pytest.raises(WorkflowFailureError, match='Workflow "w" failed: OutOfPaper: no paper') as failed:
        await handle.result()
    assert isinstance(failed.value.cause, ApplicationError)
    assert failed.value.cause.type == "OutOfPaper"


async def test_results_of_cancelled_and_terminated_workflows_say_so(client: Client, hand: Hand) -> None:
    first = await client.start_workflow("greeter", id="w1", task_queue="q")
    await first.cancel("not wanted")
    await _meet_stepwise_code(hand)
    with pytest.raises(WorkflowFailureError, match="not wanted") as failed:
        await first.result()
    assert isinstance(failed.value.cause, CancelledError)
    second = await client.start_workflow("greeter", id="w2", task_queue="q")
    await second.terminate("gone mad")
    with pytest.raises(WorkflowFailureError, match="gone mad") as failed:
        await second.result()
    assert isinstance(failed.value.cause, TerminatedError)


async def _meet_stepwise_code(hand: Hand) -> None:
    """A cancelled workflow meets code that cannot handle cancellation: it closes."""
    task = await hand.take()
    (await hand.decide(task, {"type": "complete_workflow", "result": None})).expect(409, "run_closed")


async def test_a_result_is_that_of_the_last_run_of_those_that_continue_each_other(
    client: Client, hand: Hand
) -> None:
    handle = await client.start_workflow("greeter", id="w", task_queue="q")
    await hand.decide(await hand.take(), {"type": "continue_as_new", "arguments": [2]})
    pinned = client.get_workflow_handle("w", run_id=handle.first_execution_run_id, result_type=str)
    waiting = asyncio.gather(handle.result(), pinned.result())
    await hand.finish(await hand.take(), "done")
    assert list(await waiting) == ["done", "done"]
    assert (await pinned.describe()).status is WorkflowExecutionStatus.CONTINUED_AS_NEW


async def test_a_workflow_that_never_was_is_not_found(client: Client) -> None:
    with pytest.raises(WorkflowNotFoundError):
        await client.get_workflow_handle("nobody").result()


# Signals, queries, updates


async def test_a_signal_is_heard_once_however_often_it_is_sent_under_its_request_id(
    client: Client, scene: Cluster
) -> None:
    handle = await client.start_workflow("greeter", id="w", task_queue="q")
    for _ in range(2):
        await handle.signal("approve", "anna", request_id="s1")
    with pytest.raises(RequestIdConflictError):
        await handle.signal("approve", "berta", request_id="s1")
    await handle.terminate()
    assert (await scene.event_types("w")).count("SignalReceived") == 1


async def test_a_start_may_bring_a_signal_which_an_open_run_gets_as_well(
    client: Client, scene: Cluster
) -> None:
    for name in ("anna", "berta"):
        await client.start_workflow(
            "greeter", id="w", task_queue="q", start_signal="approve", start_signal_args=[name]
        )
    await client.get_workflow_handle("w").terminate()
    signals = [each for each in await scene.events("w") if each["event_type"] == "SignalReceived"]
    assert len(signals) == 2


async def test_a_closed_workflow_cannot_be_told_anything(client: Client) -> None:
    handle = await client.start_workflow("greeter", id="w", task_queue="q")
    await handle.terminate()
    with pytest.raises(WorkflowClosedError):
        await handle.signal("approve")


async def answer_query(hand: Hand, **said: Any) -> None:
    task = (await hand.poll("query", 30)).expect(200)["task"]
    lease = {"lease_owner": hand.worker_id, "query_task_attempt": task["query_task_attempt"]}
    how = "fail" if "failure" in said else "complete"
    path = f"/api/worker/query-tasks/{task['query_task_id']}/{how}"
    (await hand.cluster.post(path, lease | said, role="worker")).ok()


async def test_a_query_is_answered_by_a_worker_in_the_type_that_was_asked_for(
    client: Client, scene: Cluster
) -> None:
    hand = await scene.worker("w1", capabilities=["query_tasks"])
    handle = await client.start_workflow("greeter", id="w", task_queue="q")
    answering = asyncio.create_task(answer_query(hand, result={"text": "so far", "times": 2}))
    assert await handle.query("progress", result_type=Greeting) == Greeting("so far", 2)
    await answering


async def test_a_query_that_the_workflow_does_not_know_is_rejected(client: Client, scene: Cluster) -> None:
    hand = await scene.worker("w1", capabilities=["query_tasks"])
    handle = await client.start_workflow("greeter", id="w", task_queue="q")
    failure = {"message": "there is no such query", "reason": "rejected_unknown_query"}
    answering = asyncio.create_task(answer_query(hand, failure=failure))
    with pytest.raises(QueryRejected, match="no such query"):
        await handle.query("progres")
    await answering


async def apply_update(hand: Hand, command: dict[str, Any]) -> None:
    """Start the workflow, then execute the update that arrives."""
    await hand.decide(await hand.take(), {"type": "open_condition_wait", "condition_key": "updated"})
    task = await hand.take()
    await hand.decide(task, {"update_id": task["workflow_update_id"]} | command)


async def test_an_update_is_answered_by_the_workflow(client: Client, hand: Hand) -> None:
    handle = await client.start_workflow("greeter", id="w", task_queue="q")
    working = asyncio.create_task(apply_update(hand, {"type": "complete_update", "result": 5}))
    assert await handle.execute_update("add", 2, id="u1", result_type=int) == 5
    await working
    again = await handle.start_update("add", 2, id="u1", wait_for="completed")
    assert await again.result() == 5
    assert again.id == "u1"


async def test_an_update_that_was_accepted_is_waited_for_later(client: Client, hand: Hand) -> None:
    handle = await client.start_workflow("greeter", id="w", task_queue="q")
    update = await handle.start_update("add", 2)
    assert update.workflow_run_id == handle.first_execution_run_id
    with pytest.raises(TimeoutError, match=r"Update 'add' of 'w' was not completed within 0.05 seconds"):
        await update.result(timeout=timedelta(seconds=0.05))
    working = asyncio.create_task(apply_update(hand, {"type": "complete_update", "result": "late"}))
    assert await update.result() == "late"
    await working


async def test_an_update_that_fails_raises_what_the_code_said(client: Client, hand: Hand) -> None:
    handle = await client.start_workflow("greeter", id="w", task_queue="q")
    command = {"type": "fail_update", "message": "too much", "exception_type": "Overdrawn"}
    working = asyncio.create_task(apply_update(hand, command))
    with pytest.raises(UpdateFailedError, match="too much") as failed:
        await handle.execute_update("withdraw", 100)
    await working
    assert isinstance(failed.value.cause, ApplicationError)
    assert failed.value.cause.type == "Overdrawn"


async def test_an_update_may_start_its_workflow_and_twice_is_once(
    client: Client, hand: Hand, scene: Cluster
) -> None:
    def start() -> WithStartWorkflowOperation[Any]:
        return WithStartWorkflowOperation("greeter", id="w", task_queue="q")

    update = await client.start_update_with_start_workflow("add", 2, start_workflow_operation=start(), id="u")
    working = asyncio.create_task(apply_update(hand, {"type": "complete_update", "result": 2}))
    result = await client.execute_update_with_start_workflow(
        "add", 2, start_workflow_operation=start(), id="u", result_type=int
    )
    await working
    assert result == await update.result() == 2
    assert (await scene.event_types("w")).count("UpdateAccepted") == 1


async def test_the_start_of_an_update_tells_its_workflow_or_why_there_is_none(client: Client) -> None:
    start: WithStartWorkflowOperation[Any] = WithStartWorkflowOperation("greeter", id="w", task_queue="q")
    waiting = asyncio.create_task(start.workflow_handle())
    await client.start_update_with_start_workflow("add", 2, start_workflow_operation=start)
    assert (await waiting).id == (await start.workflow_handle()).id == "w"
    with pytest.raises(RuntimeError, match="for one call"):
        await client.start_update_with_start_workflow("add", 2, start_workflow_operation=start)
    refused: WithStartWorkflowOperation[Any] = WithStartWorkflowOperation(
        "greeter", id="w", task_queue="q", id_conflict_policy=WorkflowIDConflictPolicy.FAIL
    )
    with pytest.raises(WorkflowAlreadyStartedError):
        await client.start_update_with_start_workflow("add", 2, start_workflow_operation=refused)
    with pytest.raises(WorkflowAlreadyStartedError):
        await refused.workflow_handle()


# Cancellation, termination, histories


async def test_a_cancel_that_is_sent_again_under_its_request_id_is_the_same(
    client: Client, hand: Hand
) -> None:
    handle = await client.start_workflow("greeter", id="w", task_queue="q")
    await handle.cancel("enough", request_id="c1")
    await handle.cancel("enough")
    await _meet_stepwise_code(hand)
    await handle.cancel("enough", request_id="c1")
    with pytest.raises(WorkflowClosedError):
        await handle.cancel("enough")


async def test_a_history_is_fetched_whole_and_kept_as_text(client: Client) -> None:
    handle = await client.start_workflow("greeter", id="w", task_queue="q")
    await handle.terminate()
    history = await handle.fetch_history()
    assert [each["sequence"] for each in history.events] == list(range(1, len(history.events) + 1))
    assert history.events[-1]["event_type"] == "WorkflowTerminated"
    assert WorkflowHistory.from_json(history.to_json()) == history


async def test_events_are_followed_as_they_come_until_the_run_closes(client: Client, hand: Hand) -> None:
    handle = await client.start_workflow("greeter", id="w", task_queue="q")
    seen: list[str] = []
    async for event in handle.fetch_history_events(wait_new_event=True):
        seen.append(event["event_type"])
        if len(seen) == 1:
            await hand.finish(await hand.take(), None)
    assert (seen[0], seen[-1]) == ("WorkflowStarted", "WorkflowCompleted")


# Visibility and batch operations


async def test_runs_are_listed_over_pages_and_counted(client: Client) -> None:
    for number in range(5):
        await client.start_workflow("greeter", id=f"w{number}", task_queue="q")
    await client.start_workflow("other", id="o", task_queue="q")
    query = 'WorkflowType = "greeter"'
    found = [each.id async for each in client.list_workflows(query, page_size=2)]
    assert found == ["w4", "w3", "w2", "w1", "w0"]
    assert [each.id async for each in client.list_workflows(query, page_size=2, limit=3)] == found[:3]
    counted = await client.count_workflows(query, by_status=True)
    assert (counted.count, counted.complete, sum(counted.groups.values())) == (5, True, 5)
    assert (await client.count_workflows()).count == 6


async def test_many_runs_are_seen_before_they_are_cancelled(client: Client) -> None:
    for number in range(3):
        await client.start_workflow("greeter", id=f"w{number}", task_queue="q")
    keep = await client.start_workflow("other", id="o", task_queue="q")
    query = 'WorkflowType = "greeter"'
    preview = await client.preview_batch(query)
    assert (preview.matched, sorted(each.id for each in preview.sample)) == (3, ["w0", "w1", "w2"])
    signalled = await client.signal_workflows(query, "approve", "anna")
    assert (signalled.matched, signalled.acted) == (3, 3)
    done = await client.cancel_workflows(query, reason="season is over")
    assert (done.matched, done.acted, done.failed) == (3, 3, 0)
    assert (
        await client.terminate_workflows(query)
    ).acted == 3  # cancellation was requested, and no worker came
    assert (await keep.describe()).status is WorkflowExecutionStatus.RUNNING


# Interceptors and codecs


class Shouting(ClientInterceptor):
    """An interceptor that records requests and changes them."""

    def __init__(self, seen: list[str], name: str) -> None:
        self.seen, self.name = seen, name

    def intercept_client(self, next: OutboundInterceptor) -> OutboundInterceptor:  # noqa: A002
        outer = self

        class Link(OutboundInterceptor):
            async def start_workflow(self, input: StartWorkflowInput) -> StartedWorkflow:  # noqa: A002
                outer.seen.append(f"{outer.name} start {input.workflow}")
                return await super().start_workflow(input)

            async def signal_workflow(self, input: SignalWorkflowInput) -> None:  # noqa: A002
                outer.seen.append(f"{outer.name} signal {input.signal} {list(input.args)}")
                await super().signal_workflow(input)

        return Link(next)


async def test_interceptors_see_what_passes_the_first_one_first(scene: Cluster) -> None:
    seen: list[str] = []
    chain = [Shouting(seen, "a"), Shouting(seen, "b")]
    async with await connected(scene, interceptors=chain) as client:
        handle = await client.start_workflow("greeter", id="w", task_queue="q")
        await handle.signal("approve", "anna")
    assert seen == [
        "a start greeter",
        "b start greeter",
        "a signal approve ['anna']",
        "b signal approve ['anna']",
    ]


async def test_a_client_speaks_through_its_converter(scene: Cluster, hand: Hand) -> None:
    packed = DataConverter(codecs=[ZlibCodec()])
    async with await connected(scene, data_converter=packed) as client:
        handle = await client.start_workflow("greeter", "x" * 10_000, id="w", task_queue="q")
        task = await hand.take()
        assert len(task["arguments"]["blob"]) < 5_000
        await hand.finish(task, packed.encode("y" * 10_000, "result"))
        assert await handle.result() == "y" * 10_000


# Errors that are found before anything is sent


async def test_one_argument_and_a_list_of_arguments_are_too_much(client: Client) -> None:
    with pytest.raises(TypeError, match="one argument, or several as args"):
        await client.start_workflow("greeter", 1, args=[2], task_queue="q")


async def test_an_option_that_is_misspelt_is_told_its_name(client: Client) -> None:
    with pytest.raises(TypeError, match="no option 'task_que'; did you mean 'task_queue'"):
        await client.start_workflow("greeter", task_que="q")  # type: ignore[call-overload]
    with pytest.raises(TypeError, match="needs task_queue"):
        await client.start_workflow("greeter")  # type: ignore[call-overload]


async def test_a_client_shows_no_token(client: Client) -> None:
    assert "secret" not in repr(client)
    assert repr(client).startswith("Client(HttpTransport('http://127.0.0.1:")


async def test_a_unique_key_returns_the_handle_of_the_run_that_holds_it(client: Client) -> None:
    options: dict[str, Any] = {"task_queue": "q", "unique_key": "k", "debounce": timedelta(minutes=1)}
    first = await client.start_workflow("greeter", "one", **options)
    second = await client.start_workflow("greeter", "two", **options)
    assert (second.id, second.result_run_id) == (first.id, first.result_run_id)
    options = {"task_queue": "q", "unique_key": "k", "unique_conflict_policy": "fail"}
    with pytest.raises(ServerRefused) as refused:
        await client.start_workflow("greeter", **options)
    assert refused.value.reason == "unique_key_held"


async def test_a_concurrency_key_goes_with_the_start_and_a_full_cap_refuses_it(client: Client) -> None:
    cap = {"name": "tenant-1", "max_open_runs": 1, "surplus": "refuse"}
    await client.transport.control("PATCH", "/run-limits/concurrency_key", cap, idempotent=True)
    options: dict[str, Any] = {"task_queue": "q", "concurrency_key": "tenant-1"}
    await client.start_workflow("greeter", id="first", **options)
    with pytest.raises(ServerRefused) as refused:
        await client.start_workflow("greeter", id="second", **options)
    assert refused.value.reason == "run_cap_reached"
