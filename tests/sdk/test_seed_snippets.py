"""The Python code of the seeds runs as it stands there, with our import line.

The seeds are read where they lie beside the project; what is run is the copy that is kept here.
"""

from __future__ import annotations

import textwrap
import tomllib
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from penstock import Client, Priority, RetryPolicy, Worker, activity, workflow

SEEDS = Path(__file__).parents[3] / "shared" / "seeds"

WORKER_SLOTS = """
worker = Worker(
client,
task_queue="payments",
workflows=[PaymentWorkflow],
activities=[charge_card, send_receipt],
max_concurrent_workflow_tasks=8,
max_concurrent_activity_tasks=12,
)
"""
DISPATCH_OPTIONS = """
@dataclass
class DispatchOptions:
    task_queue: str | None                         # None ⇒ omit kwarg, ride workflow's queue
    start_to_close_timeout: timedelta
    retry_policy: RetryPolicy
    schedule_to_close_timeout: timedelta | None = None
    schedule_to_start_timeout: timedelta | None = None
    heartbeat_timeout: timedelta | None = None

    def to_execute_kwargs(self) -> dict[str, Any]:
        # Splat into workflow.execute_activity(...) — omits keys whose value is None
        # so the Temporal SDK's own defaults kick in rather than receiving None.
        ...
"""
CALL_SITE = """
async def make_llm_text(self, job_metadata, llm_setting_main, llm_prompt_for_text):
    worker_config = get_config().temporal.worker_config
    dispatch_kwargs = worker_config.resolve_dispatch(
        activity_name=act_llm_gen_text.__name__,
        routing_key=llm_assignment.llm_handle,                             # for by_handle / handle_options
        queue_options_by_queue=get_config().temporal.queue_options,
        is_traced=get_config().temporal.temporal_config.temporal_log_config.is_dispatch_resolution_traced,
    ).to_execute_kwargs()
    return await workflow.execute_activity(
        act_llm_gen_text,
        arg=llm_assignment,
        summary=build_activity_summary("LLM text", job_metadata,
                                       extras={"model": llm_assignment.llm_handle}),
        **dispatch_kwargs,    # task_queue + start_to_close + schedule_to_close + heartbeat + retry_policy
    )
"""
START_WITH_PRIORITY = """
await client.start_workflow(
MyWorkflow.run,
args="hello",
id="my-workflow-id",
task_queue="my-task-queue",
priority=Priority(priority_key=1),
)
"""
START_WITH_FAIRNESS = """
await client.start_workflow(
MyWorkflow.run,
args="hello",
id="my-workflow-id",
task_queue="my-task-queue",
priority=Priority(priority_key=3, fairness_key="a-key", fairness_weight=3.14),
)
"""
ACTIVITY_WITH_PRIORITY = """
await workflow.execute_activity(
say_hello,
"hi",
priority=Priority(priority_key=3),
start_to_close_timeout=timedelta(seconds=5),
)
"""
ACTIVITY_WITH_FAIRNESS = """
await workflow.execute_activity(
say_hello,
"hi",
priority=Priority(priority_key=3, fairness_key="a-key", fairness_weight=3.14),
start_to_close_timeout=timedelta(seconds=5),
)
"""
CHILD_WITH_PRIORITY = """
await workflow.execute_child_workflow(
MyChildWorkflow.run,
args="hello child",
priority=Priority(priority_key=1),
)
"""
CHILD_WITH_FAIRNESS = """
await workflow.execute_child_workflow(
MyChildWorkflow.run,
args="hello child",
priority=Priority(priority_key=3, fairness_key="a-key", fairness_weight=3.14),
)
"""
PROFILES = """
[temporal.worker_runtime_profiles.profiles.balanced]
tuning_mode = "explicit"
max_cached_workflows               = 1000
max_concurrent_workflow_tasks      = 100
max_concurrent_activities          = 100
max_concurrent_local_activities    = 100
max_concurrent_workflow_task_polls = 5
max_concurrent_activity_task_polls = 5
max_activities_per_second          = 1000          # worker-local rate cap
sticky_queue_schedule_to_start_timeout = "0:00:10"
max_heartbeat_throttle_interval        = "0:01:00"
default_heartbeat_throttle_interval    = "0:00:30"
graceful_shutdown_timeout              = "0:00:30"

# Router profile — workflow-only, no activities at all.
[temporal.worker_runtime_profiles.profiles.router]
tuning_mode = "explicit"
max_cached_workflows               = 2000
max_concurrent_workflow_tasks      = 200
max_concurrent_activities          = 0             # 👈 ge=0 allows workflow-only workers
max_concurrent_local_activities    = 0
max_concurrent_workflow_task_polls = 10
max_concurrent_activity_task_polls = 0
max_activities_per_second          = 1
sticky_queue_schedule_to_start_timeout = "0:00:10"
max_heartbeat_throttle_interval        = "0:01:00"
default_heartbeat_throttle_interval    = "0:00:30"
graceful_shutdown_timeout              = "0:00:30"

# GPU profile — small slot count, long heartbeats
[temporal.worker_runtime_profiles.profiles.gpu]
tuning_mode = "explicit"
max_cached_workflows               = 100
max_concurrent_workflow_tasks      = 10
max_concurrent_activities          = 4             # GPU memory-bound
max_concurrent_local_activities    = 0
max_concurrent_workflow_task_polls = 2
max_concurrent_activity_task_polls = 2
max_activities_per_second          = 10
sticky_queue_schedule_to_start_timeout = "0:00:30"
max_heartbeat_throttle_interval        = "0:05:00"
default_heartbeat_throttle_interval    = "0:01:00"
graceful_shutdown_timeout              = "0:01:00"
"""

IN_THE_SEEDS = {
    "000": (WORKER_SLOTS,),
    "001": (DISPATCH_OPTIONS, CALL_SITE, PROFILES),
    "004": (
        START_WITH_PRIORITY,
        START_WITH_FAIRNESS,
        ACTIVITY_WITH_PRIORITY,
        ACTIVITY_WITH_FAIRNESS,
        CHILD_WITH_PRIORITY,
        CHILD_WITH_FAIRNESS,
    ),
}


@pytest.mark.parametrize("number", IN_THE_SEEDS)
def test_the_copies_are_those_of_the_seeds(number: str) -> None:
    """Where the seeds are missing, the copies stand for them."""
    for seed in SEEDS.glob(f"{number}_*.txt"):
        text = seed.read_text()
        for snippet in IN_THE_SEEDS[number]:
            assert snippet.strip() in text


def defined(snippet: str, **names: Any) -> dict[str, Any]:
    """The definitions of a snippet."""
    exec(compile(snippet, "<seed>", "exec", dont_inherit=True), names)
    return names


def coroutine_function(snippet: str, **names: Any) -> Any:
    """A function that awaits the snippet and returns its value."""
    body = textwrap.indent("return " + snippet.strip(), "    ")
    return defined(f"async def snippet():\n{body}\n", **names)["snippet"]


@workflow.defn
class PaymentWorkflow:
    @workflow.run
    async def run(self, order: str) -> str:
        paid = await workflow.execute_activity(charge_card, order)
        return await workflow.execute_activity(send_receipt, paid)


@activity.defn
async def charge_card(order: str) -> str:
    return f"{order} paid"


@activity.defn
def send_receipt(what: str) -> str:
    return f"receipt: {what}"


@activity.defn
async def say_hello(word: str) -> list[Any]:
    priority = activity.info().priority
    return [word, priority.priority_key, priority.fairness_key]


@workflow.defn
class MyChildWorkflow:
    @workflow.run
    async def run(self, word: str) -> list[Any]:
        priority = workflow.info().priority
        return [word, priority.priority_key, priority.fairness_key]


@workflow.defn
class MyWorkflow:
    @workflow.run
    async def run(self, word: str) -> dict[str, Any]:
        told: dict[str, Any] = {"word": word}
        for name, snippet in WITHIN.items():
            told[name] = await snippet()
        return told


WITHIN = {
    name: coroutine_function(
        snippet,
        workflow=workflow,
        Priority=Priority,
        timedelta=timedelta,
        say_hello=say_hello,
        MyChildWorkflow=MyChildWorkflow,
    )
    for name, snippet in {
        "activity": ACTIVITY_WITH_PRIORITY,
        "fair activity": ACTIVITY_WITH_FAIRNESS,
        "child": CHILD_WITH_PRIORITY,
        "fair child": CHILD_WITH_FAIRNESS,
    }.items()
}


@dataclass
class Assignment:
    llm_handle: str
    prompt: str


@activity.defn
async def act_llm_gen_text(assignment: Assignment) -> str:
    return f"{assignment.llm_handle}: {assignment.prompt}"


DispatchOptions = defined(
    DISPATCH_OPTIONS, dataclass=dataclass, timedelta=timedelta, RetryPolicy=RetryPolicy, Any=Any
)["DispatchOptions"]


class Resolved(DispatchOptions):  # type: ignore[misc, valid-type]
    """The seed leaves the body out and describes it."""

    def to_execute_kwargs(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if value is not None}


class Resolver:
    def resolve_dispatch(self, *, activity_name: str, routing_key: str, **_: Any) -> Resolved:
        assert (activity_name, routing_key) == ("act_llm_gen_text", "claude-4.6-opus")
        return Resolved(
            task_queue="anthropic-queue",
            start_to_close_timeout=timedelta(minutes=15),
            heartbeat_timeout=timedelta(minutes=1),
            retry_policy=RetryPolicy(maximum_attempts=5, non_retryable_error_types=["AnthropicAuthError"]),
        )


def get_config() -> Any:
    log_config = SimpleNamespace(is_dispatch_resolution_traced=False)
    temporal_config = SimpleNamespace(temporal_log_config=log_config)
    temporal = SimpleNamespace(worker_config=Resolver(), queue_options={}, temporal_config=temporal_config)
    return SimpleNamespace(temporal=temporal)


def build_activity_summary(what: str, job: str, *, extras: dict[str, str]) -> str:
    return " · ".join([what, f"pipe={job}", *(f"{name}={value}" for name, value in extras.items())])


make_llm_text = defined(
    CALL_SITE,
    get_config=get_config,
    act_llm_gen_text=act_llm_gen_text,
    llm_assignment=Assignment("claude-4.6-opus", "translate"),
    build_activity_summary=build_activity_summary,
    workflow=workflow,
)["make_llm_text"]


@workflow.defn
class WfPipeRouter:
    @workflow.run
    async def run(self) -> str:
        return str(await make_llm_text(self, "translate_doc", None, None))


async def test_the_worker_of_seed_000_runs_payments(client: Client) -> None:
    names = {"charge_card": charge_card, "send_receipt": send_receipt, "PaymentWorkflow": PaymentWorkflow}
    worker: Worker = defined(WORKER_SLOTS, Worker=Worker, client=client, **names)["worker"]
    async with worker:
        result = await client.execute_workflow(PaymentWorkflow.run, "order 7", task_queue="payments")
    assert result == "receipt: order 7 paid"


async def test_the_call_site_of_seed_001_routes_an_activity_to_its_queue(client: Client) -> None:
    async with (
        Worker(client, task_queue="routers", workflows=[WfPipeRouter]),
        Worker(client, task_queue="anthropic-queue", activities=[act_llm_gen_text]),
    ):
        handle = await client.start_workflow(WfPipeRouter.run, id="router", task_queue="routers")
        assert await handle.result() == "claude-4.6-opus: translate"
    events = (await handle.fetch_history()).events
    scheduled = next(each["payload"] for each in events if each["event_type"] == "ActivityScheduled")
    assert scheduled["summary"] == "LLM text · pipe=translate_doc · model=claude-4.6-opus"


@pytest.mark.parametrize("name", ["balanced", "router", "gpu"])
async def test_the_profiles_of_seed_001_are_options_of_a_worker(client: Client, name: str) -> None:
    profile = tomllib.loads(PROFILES)["temporal"]["worker_runtime_profiles"]["profiles"][name]
    options = {each: _span(value) for each, value in profile.items() if each != "tuning_mode"}
    runs_activities = options["max_concurrent_activities"] > 0
    activities = [charge_card, send_receipt] if runs_activities else []
    worker = Worker(client, task_queue=name, workflows=[PaymentWorkflow], activities=activities, **options)
    async with worker:
        assert worker.is_running


def _span(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    hours, minutes, seconds = map(int, value.split(":"))
    return timedelta(hours=hours, minutes=minutes, seconds=seconds)


@pytest.mark.parametrize("snippet", [START_WITH_PRIORITY, START_WITH_FAIRNESS])
async def test_the_starts_of_seed_004_run_a_workflow_that_calls_the_activities_and_children_of_seed_004(
    client: Client, snippet: str
) -> None:
    start = coroutine_function(snippet, client=client, MyWorkflow=MyWorkflow, Priority=Priority)
    async with Worker(
        client, task_queue="my-task-queue", workflows=[MyWorkflow, MyChildWorkflow], activities=[say_hello]
    ):
        handle = await start()
        told = await handle.result()
    inherited = "a-key" if snippet is START_WITH_FAIRNESS else None
    assert told == {
        "word": "hello",
        "activity": ["hi", 3, inherited],
        "fair activity": ["hi", 3, "a-key"],
        "child": ["hello child", 1, inherited],
        "fair child": ["hello child", 3, "a-key"],
    }
