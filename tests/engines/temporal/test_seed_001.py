"""Every statement of seed 001 that depends on Temporal, on a real Temporal server.

The seed's file and its three boot commands run as they stand there, plus `--engine temporal --address`.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from temporalio import activity as temporal_activity
from temporalio import workflow as temporal_workflow
from temporalio.client import Client as TemporalClient
from temporalio.worker import UnsandboxedWorkflowRunner
from temporalio.worker import Worker as TemporalWorker

from penstock import Client, Worker, activity, workflow
from penstock.dispatch import load_dispatch
from penstock.engines.temporal.payloads import CONVERTER
from penstock.engines.temporal.worker import worker_arguments
from penstock.failures import ActivityError
from penstock.sdk.worker.options import WorkerOptions
from tests.engines.temporal.pipelines_app import WfPipeRouter
from tests.support.patience import PATIENCE_S
from tests.support.temporal import TemporalServer

SEED_FILE = Path(__file__).parents[2] / "dispatch" / "pipelines.toml"
ROOT = Path(__file__).parents[3]
BOOTS = (
    ("img-gen-gpu-queue", "gpu", "runner-img-gen"),
    ("temporal_task_queue", "router", "router"),
    ("anthropic-queue", "balanced", "runner-llm"),
)


@dataclass
class Boot:
    """A worker process, and where its log is."""

    process: subprocess.Popen[bytes]
    log: Path


@contextmanager
def booted(server: TemporalServer, folder: Path, *more: str) -> Iterator[dict[str, Boot]]:
    """Run the seed's three boot commands."""
    boots: dict[str, Boot] = {}
    try:
        for queue, profile, scope in BOOTS:
            log = folder / f"{profile}.log"
            command = [sys.executable, "-m", "penstock", "worker", "tests.engines.temporal.pipelines_app:app"]
            command += ["--engine", "temporal", "--address", server.target, "--config", str(SEED_FILE)]
            command += ["--task-queue", queue, "--profile", profile, "--scope", scope, *more]
            with log.open("wb") as out:
                process = subprocess.Popen(
                    command, cwd=ROOT, stdout=out, stderr=out, env=os.environ | {"NO_COLOR": "1"}
                )
            boots[profile] = Boot(process, log)
        yield boots
    finally:
        for boot in boots.values():
            boot.process.send_signal(signal.SIGTERM)
        for boot in boots.values():
            boot.process.wait(PATIENCE_S)


@pytest.fixture(scope="module")
async def routed(temporal: TemporalServer, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """One run through the three workers, with its history and the workers' logs."""
    folder = tmp_path_factory.mktemp("seed")
    traced = "temporal_config.temporal_log_config.is_dispatch_resolution_traced=true"
    with booted(temporal, folder, "--set", traced) as boots:
        async with await Client.connect(temporal.url, dispatch=load_dispatch(SEED_FILE)) as client:
            handle = await client.start_workflow(
                WfPipeRouter, "claude-4.6-opus", id="seed-001", task_queue="temporal_task_queue"
            )
            found = await handle.result(timeout=PATIENCE_S)
            history = await handle.fetch_history()
        pids = {profile: boot.process.pid for profile, boot in boots.items()}
    logs = {profile: boot.log.read_text() for profile, boot in boots.items()}
    codes = {profile: boot.process.returncode for profile, boot in boots.items()}
    scheduled = [
        each["payload"] for each in history.events if each["event_type"] == "ACTIVITY_TASK_SCHEDULED"
    ]
    named = {each["activityType"]["name"]: each for each in scheduled}
    return {
        "result": found,
        "scheduled": named,
        "logs": logs,
        "pids": pids,
        "codes": codes,
        "history": history,
    }


def test_each_activity_runs_on_the_worker_of_its_queue(routed: dict[str, Any]) -> None:
    text, image = routed["result"]["text"], routed["result"]["image"]
    assert (text["queue"], text["pid"]) == ("anthropic-queue", routed["pids"]["balanced"])
    assert (image["queue"], image["pid"]) == ("img-gen-gpu-queue", routed["pids"]["gpu"])
    assert text["text"] == "claude-4.6-opus: translate"


def test_the_workers_stop_with_code_0(routed: dict[str, Any]) -> None:
    assert routed["codes"] == {"balanced": 0, "router": 0, "gpu": 0}, routed["logs"]


def test_options_come_from_baseline_queue_and_handle(routed: dict[str, Any]) -> None:
    text = routed["scheduled"]["act_llm_gen_text"]
    assert text["taskQueue"]["name"] == "anthropic-queue"
    assert text["startToCloseTimeout"] == "900s"  # the handle's
    assert text["heartbeatTimeout"] == "60s"  # the queue's
    assert text["retryPolicy"]["maximumAttempts"] == 5
    assert text["retryPolicy"]["nonRetryableErrorTypes"] == ["AnthropicAuthError"]
    image = routed["scheduled"]["act_img_gen_images"]
    assert (image["startToCloseTimeout"], image["heartbeatTimeout"]) == ("1800s", "120s")
    assert image["retryPolicy"]["maximumAttempts"] == 3  # the baseline's


def test_the_workflow_has_a_budget_of_its_own(routed: dict[str, Any]) -> None:
    started = routed["history"].events[0]["payload"]
    assert started["workflowExecutionTimeout"] == "3600s"


def test_the_trace_shows_the_layer_of_each_value(routed: dict[str, Any]) -> None:
    assert (
        "dispatch  act_llm_gen_text  routing_key=claude-4.6-opus\n"
        "        task_queue=anthropic-queue            (activity_queues.by_handle)\n"
        "        start_to_close_timeout=0:15:00        (handle_options)\n"
        "        heartbeat_timeout=0:01:00             (queue_options)\n"
        "        retry.maximum_attempts=5              (queue_options)\n"
        "        retry.non_retryable=['AnthropicAuthError']  (queue_extra)"
    ) in routed["logs"]["router"]


def test_a_worker_says_what_it_serves(routed: dict[str, Any]) -> None:
    assert "Profile gpu, scope runner-img-gen" in routed["logs"]["gpu"]
    assert "task queue img-gen-gpu-queue" in routed["logs"]["gpu"]


async def test_the_summary_is_what_temporals_ui_shows(
    routed: dict[str, Any], temporal: TemporalServer
) -> None:
    client = await TemporalClient.connect(temporal.target)
    history = await client.get_workflow_handle("seed-001").fetch_history()
    summaries = [
        (await CONVERTER.decode([each.user_metadata.summary]))[0]
        for each in history.events
        if each.user_metadata.HasField("summary")
    ]
    assert summaries == ["LLM text · pipe=translate_doc · model=claude-4.6-opus"]


def test_an_unknown_queue_is_refused_before_anything_is_connected() -> None:
    command = [sys.executable, "-m", "penstock", "worker", "nothing:here", "--engine", "temporal"]
    command += ["--address", "127.0.0.1:1", "--config", str(SEED_FILE), "--task-queue", "antrhopic-queue"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert done.returncode == 2
    assert (
        "WorkerTaskQueueUnknownError: task queue 'antrhopic-queue' is not declared in config." in done.stderr
    )
    assert "Did you mean: 'anthropic-queue'?" in done.stderr


# In this process, with files of their own


@activity.defn
async def where() -> str:
    return activity.info().task_queue


@activity.defn
async def failing(kind: str) -> None:
    CALLS.append(kind)
    raise (KeyError if kind == "listed" else ValueError)(kind)


@activity.defn(auto_heartbeat=False)
async def silent() -> None:
    await asyncio.sleep(PATIENCE_S)


@activity.defn
async def lively() -> str:
    await asyncio.sleep(1.5)
    return "alive"


CALLS: list[str] = []


@workflow.defn
class Calls:
    """Calls an activity by name, and returns the result or the error's words."""

    @workflow.run
    async def run(self, name: str, args: list[Any]) -> Any:
        try:
            return await workflow.execute_activity(name, args=args)
        except ActivityError as error:
            return [str(error.retry_state), type(error.cause).__name__, getattr(error.cause, "kind", None)]


@workflow.defn
class CallsLocally:
    @workflow.run
    async def run(self) -> Any:
        try:
            return await workflow.execute_local_activity(where, start_to_close_timeout=timedelta(seconds=60))
        except ActivityError as error:
            return [str(error.retry_state), getattr(error.cause, "type", None)]


def dispatch_of(tmp_path: Path, text: str) -> Any:
    path = tmp_path / "dispatch.toml"
    path.write_text(text)
    return load_dispatch(path)


async def called(client: Client, queue: str, config: Any, name: str, *args: Any, **options: Any) -> Any:
    """Call one activity through a workflow, with one worker of this queue."""
    everything: list[Any] = [where, failing, silent, lively]
    async with Worker(
        client, task_queue=queue, workflows=[Calls], activities=everything, dispatch=config, **options
    ):
        return await client.execute_workflow(Calls, args=[name, list(args)], task_queue=queue)


async def test_without_routes_an_activity_rides_the_queue_of_its_workflow(
    temporal_client: Client, tmp_path: Path
) -> None:
    config = dispatch_of(
        tmp_path,
        '[temporal.worker_config]\ndefault_task_queue = "elsewhere"\n[temporal.queue_options.elsewhere]\n',
    )
    assert await called(temporal_client, "own-queue", config, "where") == "own-queue"


async def test_a_retry_policy_of_the_file_is_enforced(temporal_client: Client, tmp_path: Path) -> None:
    text = """
[temporal.worker_config]
default_task_queue = "retries"
[temporal.worker_config.retry_policy_config]
non_retryable_error_types = ["KeyError"]
[temporal.queue_options.retries.retry_policy_config]
initial_interval = "0:00:00.01"
maximum_attempts = 3
"""
    config = dispatch_of(tmp_path, text)
    CALLS.clear()
    assert (await called(temporal_client, "retries", config, "failing", "plain"))[
        0
    ] == "maximum_attempts_reached"
    assert (await called(temporal_client, "retries", config, "failing", "listed"))[
        0
    ] == "non_retryable_failure"
    assert CALLS == ["plain"] * 3 + ["listed"]


@pytest.mark.parametrize(
    ("setting", "kind"),
    [("start_to_close_timeout", "start_to_close"), ("heartbeat_timeout", "heartbeat")],
)
async def test_a_timeout_of_the_file_is_enforced(
    temporal_client: Client, tmp_path: Path, setting: str, kind: str
) -> None:
    text = f"""
[temporal.worker_config]
default_task_queue = "timeouts"
[temporal.queue_options.timeouts]
{setting} = "0:00:01"
[temporal.queue_options.timeouts.retry_policy_config]
maximum_attempts = 1
"""
    found = await called(temporal_client, "timeouts", dispatch_of(tmp_path, text), "silent")
    assert found[1:] == ["TimeoutError", kind]


async def test_automatic_heartbeats_keep_a_silent_activity_alive(
    temporal_client: Client, tmp_path: Path
) -> None:
    text = """
[temporal.worker_config]
default_task_queue = "beats"
[temporal.queue_options.beats]
heartbeat_timeout = "0:00:01"
[temporal.queue_options.beats.retry_policy_config]
initial_interval = "0:00:00.1"
maximum_attempts = "unlimited"
"""
    assert await called(temporal_client, "beats", dispatch_of(tmp_path, text), "lively") == "alive"


async def test_a_worker_without_activity_slots_leaves_activities_to_others(temporal_client: Client) -> None:
    async with Worker(
        temporal_client,
        task_queue="zero",
        workflows=[Calls],
        activities=[where],
        max_concurrent_activities=0,
        max_concurrent_activity_task_polls=0,
        max_activities_per_second=1,
    ):
        handle = await temporal_client.start_workflow(Calls, args=["where", []], task_queue="zero")
        async with asyncio.timeout(PATIENCE_S):
            while not (await handle.describe()).pending_activities:
                await asyncio.sleep(0.05)
        for _ in range(10):
            [pending] = (await handle.describe()).pending_activities
            assert pending.raw["state"] == "scheduled"
            await asyncio.sleep(0.05)
        async with Worker(temporal_client, task_queue="zero", activities=[where]):
            assert await handle.result(timeout=PATIENCE_S) == "zero"


async def test_a_local_activity_fails_on_a_router_instead_of_waiting_for_ever(
    temporal_client: Client,
) -> None:
    """The seed's router and gpu profiles have no slots for local activities; this one registers none either."""
    async with Worker(
        temporal_client,
        task_queue="router",
        workflows=[CallsLocally],
        max_concurrent_activities=0,
        max_concurrent_local_activities=0,
    ):
        found = await temporal_client.execute_workflow(CallsLocally, task_queue="router")
    assert found == ["non_retryable_failure", "LocalActivitiesDisabled"]


@pytest.mark.parametrize("cap", ["queue", "worker"])
async def test_a_rate_cap_holds(temporal_client: Client, tmp_path: Path, cap: str) -> None:
    """24 activities at four a second take at least two seconds, whatever the limiters allow as a burst."""
    config: Any = None
    options: dict[str, Any] = {}
    if cap == "queue":
        text = """
[temporal.worker_config]
default_task_queue = "rate-queue"
[temporal.queue_options.rate-queue]
max_task_queue_activities_per_second = 4
"""
        config = dispatch_of(tmp_path, text)
    else:
        options = {"max_activities_per_second": 4}
    loop = asyncio.get_running_loop()
    async with Worker(
        temporal_client,
        task_queue=f"rate-{cap}",
        workflows=[Calls],
        activities=[where],
        dispatch=config,
        **options,
    ):
        began = loop.time()
        await asyncio.gather(
            *(
                temporal_client.execute_workflow(Calls, args=["where", []], task_queue=f"rate-{cap}")
                for _ in range(24)
            )
        )
        assert loop.time() - began >= 2


def test_a_profile_becomes_the_arguments_of_temporals_worker() -> None:
    config = load_dispatch(SEED_FILE)
    options = WorkerOptions(
        max_concurrent_activity_tasks=4, max_activities_per_second=10, max_concurrent_local_activities=0
    )
    found = worker_arguments(options, config, "img-gen-gpu-queue")
    assert (found["max_activities_per_second"], found["max_task_queue_activities_per_second"]) == (10, 10)
    assert found["disable_eager_activity_execution"] is True
    assert found["no_remote_activities"] is False
    router = WorkerOptions(max_concurrent_activity_tasks=0, max_activities_per_second=1)
    found = worker_arguments(router, config, "temporal_task_queue")
    assert found["no_remote_activities"] is True
    assert "max_activities_per_second" not in found


# The resolver in a program of temporalio


@temporal_activity.defn
async def act_llm_gen_text() -> list[Any]:
    info = temporal_activity.info()
    policy = info.retry_policy
    assert policy is not None
    return [
        info.task_queue,
        str(info.start_to_close_timeout),
        str(info.heartbeat_timeout),
        policy.maximum_attempts,
        list(policy.non_retryable_error_types or ()),
    ]


@temporal_workflow.defn(sandboxed=False)
class TheirWorkflow:
    @temporal_workflow.run
    async def run(self) -> list[Any]:
        config = load_dispatch(SEED_FILE)
        options = config.worker_config.resolve_dispatch(
            activity_name="act_llm_gen_text",
            routing_key="claude-4.6-opus",
            queue_options_by_queue=config.queue_options,
        )
        found: list[Any] = await temporal_workflow.execute_activity(
            act_llm_gen_text, **options.to_execute_kwargs()
        )
        return found


async def test_resolved_options_are_splatted_into_temporalios_own_call(temporal: TemporalServer) -> None:
    client = await TemporalClient.connect(temporal.target)
    runner = TemporalWorker(client, task_queue="anthropic-queue", activities=[act_llm_gen_text])
    router = TemporalWorker(
        client, task_queue="theirs", workflows=[TheirWorkflow], workflow_runner=UnsandboxedWorkflowRunner()
    )
    async with runner, router:
        found = await client.execute_workflow(TheirWorkflow.run, id="theirs", task_queue="theirs")
    assert found == ["anthropic-queue", "0:15:00", "0:01:00", 5, ["AnthropicAuthError"]]
