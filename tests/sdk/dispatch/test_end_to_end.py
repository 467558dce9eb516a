"""Dispatch with a server and workers: activities are routed, and the history records why."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from penstock import ActivityStart, Client, Replayer, RetryPolicy, Worker, activity, workflow
from penstock.dispatch import dispatch_from
from penstock.dispatch.watcher import WatchedDispatch
from penstock.sdk import failures
from penstock.sdk.failures import ActivityError, WorkflowFailureError
from penstock.sdk.replay.replayer import History
from penstock.sdk.worker.lifecycle.registration_body import reported_rates
from penstock.testing import WorkflowEnvironment
from tests.sdk.histories import code

Json = dict[str, Any]
SECOND, MINUTE, HOUR = timedelta(seconds=1), timedelta(minutes=1), timedelta(hours=1)
TREE: Json = {
    "worker_config": {
        "default_task_queue": "home",
        "activity_queues": {
            "where": {"default": "llm", "by_handle": {"opus": "anthropic"}},
            "slow": {"default": "gpu"},
        },
    },
    "queue_options": {
        "anthropic": {"start_to_close_timeout": "2:00:00"},
        "gpu": {"heartbeat_timeout": "0:00:01", "start_to_close_timeout": "0:30:00"},
    },
}
CONFIG = dispatch_from(TREE)


@activity.defn(routing_key="model")
async def where(job: Json) -> str:
    return activity.info().task_queue


@workflow.defn
class Route:
    """Calls an activity on each model."""

    @workflow.run
    async def run(self, models: list[str]) -> list[str]:
        calls = [workflow.execute_activity(where, {"model": model}) for model in models]
        return list(await asyncio.gather(*calls))


@workflow.defn
class Stepwise:
    """Schedules one activity, waits for a signal, and schedules another."""

    def __init__(self) -> None:
        self.heard = False

    @workflow.run
    async def run(self) -> None:
        for _ in range(2):
            workflow.start_activity(where, {"model": "opus"})
            await workflow.wait_condition(lambda: self.heard)

    @workflow.signal
    def go(self) -> None:
        self.heard = True


@pytest.fixture
async def env() -> AsyncIterator[WorkflowEnvironment]:
    async with await WorkflowEnvironment.start_time_skipping(dispatch=CONFIG) as started:
        yield started


async def scheduled(env: WorkflowEnvironment, workflow_id: str) -> list[Json]:
    history = await env.client.get_workflow_handle(workflow_id).fetch_history()
    return [dict(each["payload"]) for each in history.events if each["event_type"] == "ActivityScheduled"]


# ── routing ─────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_handles_lead_work_to_the_workers_of_their_queues(env: WorkflowEnvironment) -> None:
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(Worker(env.client, task_queue="home", workflows=[Route]))
        for queue in ("llm", "anthropic"):
            await stack.enter_async_context(Worker(env.client, task_queue=queue, activities=[where]))
        found = await env.client.execute_workflow(
            Route.run, ["opus", "gpt", "opus"], id="route", task_queue="home"
        )
    assert found == ["anthropic", "llm", "anthropic"]
    first, second, _ = await scheduled(env, "route")
    assert (first["task_queue"], first["routing_key"]) == ("anthropic", "opus")
    assert first["dispatch"]["fingerprint"] == CONFIG.fingerprint
    assert first["dispatch"]["sources"]["start_to_close_timeout"] == "queue_options"
    assert second["activity"]["retry_policy"]["start_to_close_timeout"] == 600
    assert "routing_key" not in (await completed(env, "route"))
    for query, count in (("RoutingKey = 'opus'", 1), ("RoutingKey = 'gpt'", 1), ("RoutingKey = 'eu'", 0)):
        assert (await env.client.count_workflows(query)).count == count
    (run,) = [run async for run in env.client.list_workflows("RoutingKey STARTS_WITH 'op'")]
    assert run.search_attributes == {"RoutingKey": ["opus", "gpt"]}


async def completed(env: WorkflowEnvironment, workflow_id: str) -> Json:
    history = await env.client.get_workflow_handle(workflow_id).fetch_history()
    return next(dict(each["payload"]) for each in history.events if each["event_type"] == "ActivityCompleted")


async def test_the_budget_of_the_run_cuts_the_clocks_and_the_event_says_what_was_asked(
    env: WorkflowEnvironment,
) -> None:
    async with Worker(env.client, task_queue="home", workflows=[Stepwise]):
        handle = await env.client.start_workflow(
            Stepwise.run, id="cut", task_queue="home", run_timeout=4 * SECOND
        )
        await handle.signal(Stepwise.go)
        await handle.result()
    (first, _) = await scheduled(env, "cut")
    policy = first["activity"]["retry_policy"]
    assert (policy["start_to_close_timeout"], policy["schedule_to_close_timeout"]) == (4, 4)
    assert first["asked_timeouts"] == {"start_to_close_timeout_ms": 7_200_000}


async def test_an_activity_without_heartbeats_of_its_own_outlasts_its_heartbeat_timeout() -> None:
    async with await WorkflowEnvironment.start_time_skipping(dispatch=CONFIG) as env:

        @activity.defn
        async def slow() -> str:
            await env.sleep(MINUTE)
            return "done"

        @workflow.defn
        class Slowly:
            @workflow.run
            async def run(self) -> str:
                return await workflow.execute_activity(slow)

        async with (
            Worker(env.client, task_queue="home", workflows=[Slowly]),
            Worker(env.client, task_queue="gpu", activities=[slow]),
        ):
            assert await env.client.execute_workflow(Slowly.run, id="slow", task_queue="home") == "done"


# ── a file that changes ─────────────────────────────────────────────────────────────────────────────────────────


BEFORE = """
[penstock.worker_config]
default_task_queue = "home"
[penstock.worker_config.activity_queues.where]
default = "anthropic"
"""
AFTER = """
[penstock.worker_config]
default_activity_start_to_close_timeout = "0:00:07"
"""
BAD = "[penstock.worker_config]\ndefault_activity_start_to_close_timeot = 3\n"


async def test_a_file_that_changed_holds_for_what_is_scheduled_from_then_on_and_replay_is_untouched(
    env: WorkflowEnvironment, tmp_path: Path
) -> None:
    file = tmp_path / "penstock.toml"
    file.write_text(BEFORE)
    watched = WatchedDispatch(file, environ={})
    before = watched.current
    async with Worker(env.client, task_queue="home", workflows=[Stepwise], dispatch=watched):
        handle = await env.client.start_workflow(Stepwise.run, id="live", task_queue="home")
        while not await scheduled(env, "live"):
            await asyncio.sleep(0)
        file.write_text(AFTER)
        assert watched.reload_if_changed()
        file.write_text(BAD)
        assert not watched.reload_if_changed()
        await handle.signal(Stepwise.go)
        await handle.result()
    first, second = await scheduled(env, "live")
    assert (first["task_queue"], second["task_queue"]) == ("anthropic", "home")
    assert first["dispatch"]["fingerprint"] != second["dispatch"]["fingerprint"]
    assert second["activity"]["retry_policy"]["start_to_close_timeout"] == 7
    history = await handle.fetch_history()
    for config in (None, before, watched.current):
        assert Replayer(workflows=[Stepwise], dispatch=config).replay(history).failure is None


@pytest.mark.parametrize(
    "path", sorted((Path(__file__).parents[1] / "histories").glob("*.json")), ids=lambda path: path.stem
)
def test_histories_from_before_there_was_a_file_are_replayed_under_one(path: Path) -> None:
    found = Replayer(workflows=code.WORKFLOWS, dispatch=CONFIG).replay(History.from_file(path))
    assert found.failure is None


# ── budgets of starts ───────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("configured", "said", "execution_s", "run_s"),
    [
        ({}, {}, 3600, None),
        ({"run_timeout": "0:10:00"}, {}, 3600, 600),
        ({"run_timeout": "0:10:00"}, {"execution_timeout": MINUTE}, 60, 60),
        ({}, {"run_timeout": 2 * HOUR}, 7200, 7200),
        ({"workflow_execution_timeout": "0:00:30"}, {"execution_timeout": HOUR}, 3600, None),
    ],
)
async def test_a_start_has_the_budgets_of_the_file_where_it_names_none(
    configured: Json, said: Json, execution_s: int, run_s: int | None
) -> None:
    config = dispatch_from({"worker_config": configured})
    async with await WorkflowEnvironment.start_time_skipping(dispatch=config) as env:
        handle = await env.client.start_workflow("Nobody", id="w", task_queue="q", **said)
        started = (await handle.fetch_history()).events[0]["payload"]
    assert (started["execution_timeout_seconds"], started["run_timeout_seconds"]) == (execution_s, run_s)


@workflow.defn
class Clock:
    @workflow.run
    async def run(self) -> float:
        return workflow.time()


async def test_a_start_may_rest_before_its_code_runs_and_its_budget_begins_then() -> None:
    config = dispatch_from(
        {"worker_config": {"start_delay": "2:00:00", "workflow_execution_timeout": "1:00:00"}}
    )
    async with (
        await WorkflowEnvironment.start_time_skipping(dispatch=config) as env,
        Worker(env.client, task_queue="home", workflows=[Clock]),
    ):
        began = env.now()
        await env.client.execute_workflow(Clock.run, id="later", task_queue="home")
        assert env.now() - began >= 2 * HOUR
        at_once = env.now()
        await env.client.execute_workflow(Clock.run, id="now", task_queue="home", start_delay=timedelta(0))
        assert env.now() - at_once < HOUR


class _Mute:
    """A server that never answers."""

    async def control(self, *_: Any, **__: Any) -> Json:
        await asyncio.Event().wait()
        raise AssertionError


async def test_a_server_that_does_not_answer_in_time_is_told_of() -> None:
    config = dispatch_from({"worker_config": {"rpc_timeout": 0.001}})
    client = Client(_Mute(), namespace="default", dispatch=config)  # type: ignore[arg-type]
    with pytest.raises(asyncio.TimeoutError, match="did not answer the start of 'w'"):
        await client.start_workflow("Nobody", id="w", task_queue="q")


def test_a_worker_takes_what_it_is_not_told_from_its_configuration() -> None:
    config = dispatch_from(TREE | {"queue_options": {"gpu": {"max_task_queue_activities_per_second": 10}}})
    client = _Unused(lambda: config)
    made = Worker(client, task_queue="gpu", activities=[where])  # type: ignore[arg-type]
    told = made._options
    assert told.auto_heartbeat is True
    assert told.task_timeout == 10 * SECOND
    said = reported_rates(told, config, "gpu")
    assert said["max_task_queue_activities_per_second"] == 10
    plain = Worker(_Unused(lambda: None), task_queue="gpu", activities=[where])._options  # type: ignore[arg-type]
    assert (plain.auto_heartbeat, plain.task_timeout) == (False, 2 * SECOND)


@dataclass
class _Unused:
    dispatch: Any
    interceptors: tuple[Any, ...] = ()
    plugins: tuple[Any, ...] = ()


# ── standalone activities ───────────────────────────────────────────────────────────────────────────────────


async def test_a_standalone_activity_is_dispatched_by_the_file_of_its_client(
    env: WorkflowEnvironment,
) -> None:
    async with Worker(env.client, task_queue="anthropic", activities=[where]):
        assert await env.client.execute_activity(where, {"model": "opus"}) == "anthropic"
        (handle,) = await env.client.start_activities([ActivityStart(where, {"model": "opus"})])
        assert await handle.result() == "anthropic"


async def test_a_standalone_activity_needs_a_queue_if_no_file_says_one(env: WorkflowEnvironment) -> None:
    with pytest.raises(TypeError, match="needs task_queue="):
        await env.client.start_activity(where, {"model": "opus"}, dispatch=None)


# ── names of timeouts ───────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("name", "attempts"), [("TemporalTimeout:StartToClose", 1), ("TemporalTimeout:Heartbeat", 3)]
)
async def test_a_timeout_that_is_named_is_not_tried_again(
    env: WorkflowEnvironment, name: str, attempts: int
) -> None:
    tries: list[int] = []

    @activity.defn
    async def hang() -> None:
        tries.append(activity.info().attempt)
        await env.sleep(HOUR)

    @workflow.defn
    class Hanging:
        @workflow.run
        async def run(self) -> None:
            policy = RetryPolicy(maximum_attempts=3, non_retryable_error_types=[name])
            await workflow.execute_activity(
                hang, start_to_close_timeout=SECOND, retry_policy=policy, dispatch=None
            )

    async with Worker(env.client, task_queue="home", workflows=[Hanging], activities=[hang]):
        with pytest.raises(WorkflowFailureError) as ended:
            await env.client.execute_workflow(Hanging.run, id="hang", task_queue="home")
    assert isinstance(ended.value.cause, ActivityError)
    assert isinstance(ended.value.cause.cause, failures.TimeoutError)
    assert len(tries) == attempts
