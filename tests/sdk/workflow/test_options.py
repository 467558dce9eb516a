"""Options of activities, children and continue-as-new, and that the server applies them."""

from __future__ import annotations

import asyncio
import itertools
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from penstock.sdk import activity, workflow
from penstock.sdk.clients import starts
from penstock.sdk.clients.client import Client
from penstock.sdk.failures import ActivityError, CancelledError, WorkflowFailureError
from penstock.sdk.priority import Priority, priority_fields
from penstock.sdk.retry import RetryPolicy
from penstock.sdk.worker import Worker
from penstock.wire import command_shapes, requests
from tests.acceptance.cluster import Cluster
from tests.sdk.replay.histories_by_hand import Story, a_run

_ids = itertools.count(1)
SHORT = timedelta(seconds=30)
MINE = Priority(priority_key=2, fairness_key="acme", fairness_weight=2.5)


def new_id() -> str:
    return f"o-{next(_ids)}"


def told(priority: Priority) -> list[Any]:
    return [priority.priority_key, priority.fairness_key, priority.fairness_weight]


# ── field by field ──────────────────────────────────────────────────────────────────────────────────────────────

OF_THE_REQUEST = {"request_id", "rpc_timeout", "start_signal", "start_signal_args"}
"""Options of a client's request, not of what it starts."""
OF_UNIQUE_KEYS = set(starts.UniqueOptions.__annotations__)


def _is_identity(name: str) -> bool:
    """An activity of a workflow is identified by its step; the id of a child is tested separately."""
    return name == "id" or name.startswith("id_")


def test_a_workflow_can_say_of_an_activity_whatever_a_standalone_start_can() -> None:
    standalone = {name for name in starts.StandaloneActivityOptions.__annotations__ if not _is_identity(name)}
    missing = standalone - OF_THE_REQUEST - set(workflow.ActivityOptions.__annotations__)
    assert missing - OF_UNIQUE_KEYS == {
        "business_key"
    }  # a name of the hidden run that hosts a standalone activity


def test_a_workflow_can_say_of_a_child_whatever_a_client_can_say_of_a_workflow() -> None:
    standalone = {name for name in starts.StartOptions.__annotations__ if not _is_identity(name)}
    of_callers = OF_THE_REQUEST | OF_UNIQUE_KEYS | {"concurrency_key"}
    assert standalone - of_callers <= set(workflow.ChildWorkflowOptions.__annotations__)


def test_commands_have_the_fields_of_the_requests_that_start_the_same_thing() -> None:
    renamed = {
        "task_queue": "queue",
        "input": "arguments",
        **{f"{name}_timeout_seconds": f"{name}_timeout" for name in _CLOCKS},
    }
    only_of_requests = {"activity_id", "activity_class", "business_key", "duplicate_policy"}
    wanted = {renamed.get(name, name) for name in requests.StartActivity.__struct_fields__}
    missing = wanted - only_of_requests - set(command_shapes.ScheduleActivityCommand.__struct_fields__)
    assert {name for name in missing if not _is_identity(name)} == _unique_fields()
    renamed = {"task_queue": "queue", "input": "arguments"}
    only_of_requests = {"compatibility", "duplicate_policy", "deliver_cancel", "concurrency_key"}
    wanted = {renamed.get(name, name) for name in requests.StartWorkflow.__struct_fields__}
    missing = wanted - only_of_requests - set(command_shapes.StartChildCommand.__struct_fields__)
    assert {name for name in missing if not _is_identity(name)} == _unique_fields()


def _unique_fields() -> set[str]:
    return set(requests.WithUniqueKey.__struct_fields__) - set(requests.WithPriority.__struct_fields__)


_CLOCKS = ("start_to_close", "schedule_to_start", "schedule_to_close", "heartbeat")


# ── activities ──────────────────────────────────────────────────────────────────────────────────────────────


@workflow.defn
class Costly:
    @workflow.run
    async def run(self) -> None:
        await workflow.execute_activity(
            "spend",
            task_queue="bare",
            cost_estimate=40,
            start_delay=timedelta(milliseconds=10),
            good_until=timedelta(hours=1),
            on_lost_lease="fail",
            build_id="b-7",
        )


async def test_an_activity_of_a_workflow_has_a_cost_a_delay_an_expiry_and_a_build_of_its_own(
    client: Client, scene: Cluster
) -> None:
    async with Worker(client, task_queue="q", workflows=[Costly]):
        handle = await client.start_workflow(Costly.run, id=new_id(), task_queue="q")
        other = await scene.worker("other", "bare", build_id="b-6")
        one = await scene.worker("one", "bare", build_id="b-7")
        assert (await other.poll("activity", 1))["poll_status"] == "empty"
        task = await one.take("activity")
        assert (task["activity_type"], task["cost_estimate"]) == ("spend", 40)
        await one.finish(task)
        await handle.result()
    [scheduled] = [
        event["payload"]
        for event in (await handle.fetch_history()).events
        if event["event_type"] == "ActivityScheduled"
    ]
    assert (scheduled["on_lost_lease"], scheduled["build_id"]) == ("fail", "b-7")
    assert "good_until_ms" in scheduled


@workflow.defn
class Expires:
    @workflow.run
    async def run(self, past: str) -> str:
        try:
            await workflow.execute_activity("spend", good_until=datetime.fromisoformat(past))
        except ActivityError as error:
            return f"{type(error.cause).__name__} {getattr(error.cause, 'kind', None)}"
        return "ran"


async def test_an_activity_that_is_past_its_good_until_times_out_and_never_runs(client: Client) -> None:
    past = (datetime.now(UTC) - timedelta(minutes=1)).isoformat()
    async with Worker(client, task_queue="q", workflows=[Expires]):
        handle = await client.start_workflow(Expires.run, past, id=new_id(), task_queue="q")
        assert await handle.result() == "TimeoutError schedule_to_start"


@pytest.mark.parametrize(
    "options",
    [
        {"cost_estimate": -1},
        {"cost_estimate": 1.5},
        {"cost_estimate": True},
        {"start_delay": timedelta(seconds=-1)},
        {"good_until": datetime(2026, 1, 1)},  # noqa: DTZ001 - without a time zone on purpose
        {"good_until": timedelta(0)},
        {"on_lost_lease": "retry"},
        {"task_queue": "orders\n"},
        {"task_queue": ""},
        {"build_id": ".."},
        {"summary": "x" * 401},
    ],
    ids=str,
)
def test_an_option_that_no_server_takes_is_refused_where_the_code_says_it(options: Any) -> None:
    @workflow.defn
    class Wrong:
        @workflow.run
        async def run(self) -> None:
            await workflow.execute_activity("spend", **options)

    with pytest.raises(ValueError, match=next(iter(options))):
        a_run(Wrong).activate(Story().events)


@workflow.defn
class UsesInvalidNames:
    """Uses names from data, and skips those that are refused."""

    @workflow.run
    async def run(self) -> list[str]:
        problems = []
        for call in (self._activity, self._child, self._type, self._next):
            try:
                await call()
            except ValueError as error:
                problems.append(str(error))
        await workflow.sleep(0.001)  # records all commands so far
        return problems

    async def _activity(self) -> None:
        await workflow.execute_activity("spend", task_queue="orders\n", start_to_close_timeout=SHORT)

    async def _child(self) -> None:
        await workflow.execute_child_workflow("Child", task_queue="..")

    async def _type(self) -> None:
        await workflow.execute_activity("spend\0", start_to_close_timeout=SHORT)

    async def _next(self) -> None:
        workflow.continue_as_new(task_queue="q" * 256)


async def test_an_invalid_name_raises_an_error_that_code_can_catch_and_no_task_fails(
    client: Client,
) -> None:
    async with Worker(client, task_queue="q", workflows=[UsesInvalidNames]):
        problems = await client.execute_workflow(UsesInvalidNames.run, id=new_id(), task_queue="q")
    assert [each.partition(":")[0].partition(" must")[0] for each in problems] == [
        "task_queue",
        "task_queue",
        "The name of an activity",
        "task_queue",
    ]
    assert "U+000A is not allowed" in problems[0]


# ── children ────────────────────────────────────────────────────────────────────────────────────────────────


@workflow.defn
class Described:
    @workflow.run
    async def run(self) -> list[Any]:
        info = workflow.info()
        return [dict(info.memo), dict(info.search_attributes)]


@workflow.defn
class StartsDescribed:
    @workflow.run
    async def run(self, child_id: str) -> Any:
        return await workflow.execute_child_workflow(
            Described.run,
            id=child_id,
            memo={"for": "people"},
            search_attributes={"Customer": "acme"},
            business_key="b-1",
            start_delay=timedelta(milliseconds=10),
        )


async def test_a_child_has_a_memo_search_attributes_and_a_business_key_of_its_own(client: Client) -> None:
    child_id = new_id()
    await client.register_search_attribute("Customer", "keyword")
    async with Worker(client, task_queue="q", workflows=[StartsDescribed, Described]):
        result = await client.execute_workflow(StartsDescribed.run, child_id, id=new_id(), task_queue="q")
        assert result == [{"for": "people"}, {"Customer": "acme"}]
    described = await client.get_workflow_handle(child_id).describe()
    assert described.raw["business_key"] == "b-1"


# ── continue-as-new ─────────────────────────────────────────────────────────────────────────────────────────────


@activity.defn
async def my_priority() -> list[Any]:
    return told(activity.info().priority)


OTHERWISE = {
    "priority": Priority(priority_key=5, fairness_weight=0.5),
    "run_timeout": timedelta(minutes=5),
    "memo": {"run": 2},
    "search_attributes": {"Stage": "two"},
}


@workflow.defn
class GoesOn:
    @workflow.run
    async def run(self, how: str, seen: list[Any]) -> list[Any]:
        info = workflow.info()
        seen.append([told(info.priority), await workflow.execute_activity(my_priority)])
        if len(seen) == 1:
            options: dict[str, Any] = {} if how == "inherits" else OTHERWISE
            workflow.continue_as_new(args=[how, seen], **options)
        assert info.run_timeout is not None
        return [*seen, dict(info.memo), dict(info.search_attributes), info.run_timeout.total_seconds()]


@pytest.mark.parametrize(
    ("how", "then"),
    [
        ("inherits", [[2, "acme", 2.5], {"run": 1}, {"Stage": "one"}, 600.0]),
        ("overrides", [[5, "acme", 0.5], {"run": 2}, {"Stage": "two"}, 300.0]),
    ],
)
async def test_continue_as_new_inherits_or_overrides_priority_memo_attributes_and_run_timeout(
    client: Client, how: str, then: list[Any]
) -> None:
    await client.register_search_attribute("Stage", "keyword")
    async with Worker(client, task_queue="q", workflows=[GoesOn], activities=[my_priority]):
        first, second, *rest = await client.execute_workflow(
            GoesOn.run,
            args=[how, []],
            id=new_id(),
            task_queue="q",
            priority=MINE,
            run_timeout=timedelta(minutes=10),
            memo={"run": 1},
            search_attributes={"Stage": "one"},
        )
    assert first == [told(MINE)] * 2
    assert [second[0], *rest] == then
    assert second[1] == second[0]


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"task_timeout": timedelta(seconds=5)}, "task_timeout"),
        ({"retry_policy": RetryPolicy(maximum_attempts=2)}, "retry_policy"),
    ],
)
def test_continue_as_new_names_the_option_that_it_does_not_support(options: Any, named: str) -> None:
    @workflow.defn
    class GoesWrong:
        @workflow.run
        async def run(self) -> None:
            workflow.continue_as_new(**options)

    with pytest.raises(TypeError, match=named):
        a_run(GoesWrong).activate(Story().events)


# ── cancelled before a worker came ──────────────────────────────────────────────────────────────────────────────


@workflow.defn
class CleansUp:
    @workflow.run
    async def run(self) -> None:
        try:
            await asyncio.sleep(3600)
        finally:
            await workflow.execute_activity(my_priority)


async def test_a_workflow_that_was_cancelled_before_a_worker_came_hears_it_and_cleans_up(
    client: Client,
) -> None:
    handle = await client.start_workflow(CleansUp.run, id=new_id(), task_queue="q")
    await handle.cancel("changed my mind")
    assert (await handle.describe()).status != "cancelled"
    async with Worker(client, task_queue="q", workflows=[CleansUp], activities=[my_priority]):
        with pytest.raises(WorkflowFailureError) as failed:
            await handle.result()
    assert isinstance(failed.value.cause, CancelledError)
    assert "changed my mind" in str(failed.value.cause)
    types = [event["event_type"] for event in (await handle.fetch_history()).events]
    assert types[:2] == ["WorkflowStarted", "CancelRequested"]
    assert "ActivityCompleted" in types


@workflow.defn
class StopsItsActivity:
    def __init__(self) -> None:
        self.enough = False

    @workflow.run
    async def run(self) -> list[str]:
        how = workflow.ActivityCancellationType.WAIT_CANCELLATION_COMPLETED
        work = workflow.start_activity(
            stop_slowly, heartbeat_timeout=timedelta(seconds=30), cancellation_type=how
        )
        await workflow.wait_condition(lambda: self.enough)
        work.cancel()
        try:
            await work
        except ActivityError as error:
            return [type(error.cause).__name__, *stopped]
        return ["completed"]

    @workflow.signal
    def stop(self) -> None:
        self.enough = True


begun: list[asyncio.Event] = []
stopped: list[str] = []


@activity.defn
async def stop_slowly() -> None:
    begun[-1].set()
    try:
        while True:
            activity.heartbeat()
            await asyncio.sleep(0.02)
    except asyncio.CancelledError:
        await asyncio.sleep(0.1)
        stopped.append("stopped")
        raise


async def test_a_workflow_waits_until_its_cancelled_activity_has_stopped(client: Client) -> None:
    stopped.clear()
    begun.append(asyncio.Event())
    worker = Worker(
        client,
        task_queue="q",
        workflows=[StopsItsActivity],
        activities=[stop_slowly],
        max_heartbeat_throttle_interval=timedelta(milliseconds=20),
    )
    async with worker:
        handle = await client.start_workflow(StopsItsActivity.run, id=new_id(), task_queue="q")
        await begun[-1].wait()
        await handle.signal(StopsItsActivity.stop)
        assert await handle.result() == ["CancelledError", "stopped"]


@pytest.mark.parametrize("given", [5, "high", {"priority_key": 1}])
def test_a_priority_that_is_none_is_refused_by_a_word_that_says_what_it_takes(given: Any) -> None:
    with pytest.raises(TypeError, match=r"priority takes a Priority, such as Priority\(priority_key=1\)"):
        priority_fields(given)
    assert priority_fields(None) == {}
    assert priority_fields(MINE)["priority"]["fairness_key"] == "acme"
