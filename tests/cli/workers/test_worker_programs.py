"""Worker programs as both seeds start them: real processes on a real server."""

from __future__ import annotations

import contextlib
import os
import signal
import textwrap
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from penstock import Penstock, RetryPolicy, TaskFailed, TaskTimedOut
from tests.support.live import LiveServer
from tests.support.patience import PATIENCE, PATIENCE_S
from tests.support.programs import environment_of, program, sender_to, sent, told

LATER = PATIENCE
PIPELINES = Path(__file__).parents[2] / "dispatch" / "pipelines.toml"
INSTANCE = """
    from penstock import AppConfig, Penstock, PostgresConfig, QueueMode
    from penstock.sdk.app_config.queues import CustomQueueConfig

    config = AppConfig(
        queue_mode=QueueMode.CUSTOM,
        custom_queues=[
            CustomQueueConfig(name="stripe", priority=1, max_concurrency=3),
            CustomQueueConfig(name="email", priority=50, max_concurrency=10),
            CustomQueueConfig(name="reports", priority=100, max_concurrency=2),
        ],
        cluster_wide_cap=15,
        broker=PostgresConfig(database_url="postgresql+psycopg://db/tasks"),
    )
    app = Penstock("myapp", config=config, include=["myapp.tasks"])
"""
TASKS = """
    import asyncio
    import os
    import signal
    import time
    from datetime import timedelta

    from myapp.instance import app

    @app.task(queue="stripe")
    def pid() -> int:
        return os.getpid()

    @app.task(queue="email")
    async def pid_of_async() -> int:
        await asyncio.sleep(0)
        return os.getpid()

    @app.task(queue="reports")
    def die(how: str) -> None:
        if how == "exit":
            os._exit(1)
        os.kill(os.getpid(), signal.SIGSEGV)

    @app.task(queue="reports", retry=1)
    def die_once(path: str) -> str:
        if not os.path.exists(path):
            open(path, "w").close()
            os._exit(3)
        return "alive"

    @app.task(queue="email", timeout=timedelta(seconds=1))
    def hang() -> None:
        time.sleep(600)

    @app.task(queue="stripe")
    def wait_for(path: str) -> str:
        print("began", flush=True)
        with open(path) as pipe:
            return pipe.read()
"""
AHEAD = """
    import time

    from penstock import AppConfig, Penstock

    app = Penstock("ahead", config=AppConfig(prefetch_buffer=4, claim_lease_ms=5000))

    @app.task
    def wait(path: str) -> str:
        print("began", flush=True)
        with open(path) as pipe:
            return pipe.read()

    @app.task
    def stay() -> None:
        while True:
            try:
                print("began", flush=True)
                time.sleep(600)
            except BaseException:
                continue

    @app.task
    def quick() -> str:
        print("quick", flush=True)
        return "quick"
"""
PIPELINE = """
    from dataclasses import dataclass

    from penstock import Penstock, activity, workflow

    app = Penstock("pipelines")

    @activity.defn
    async def act_img_gen_images(prompt: str) -> str:
        return activity.info().task_queue

    @activity.defn(routing_key="handle")
    async def act_llm_gen_text(asked: dict) -> str:
        return activity.info().task_queue

    @activity.defn
    async def act_unrouted(name: str) -> str:
        return activity.info().task_queue

    @workflow.defn
    class WfPipeRouter:
        @workflow.run
        async def run(self) -> list[str]:
            return [
                await workflow.execute_activity(act_img_gen_images, "a cat"),
                await workflow.execute_activity(act_llm_gen_text, {"handle": "claude-4.6-opus"}),
            ]

    app.add(workflows=[WfPipeRouter], activities=[act_img_gen_images, act_llm_gen_text, act_unrouted])
"""
RELOADED = """
    from penstock import Penstock

    app = Penstock("reloaded")

    @app.task(queue="reloaded")
    async def version() -> int:
        return 1
"""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("programs")
    (folder / "myapp").mkdir()
    files = {
        "myapp/__init__": "",
        "myapp/instance": INSTANCE,
        "myapp/tasks": TASKS,
        "ahead": AHEAD,
    }
    for name, text in files.items():
        (folder / f"{name}.py").write_text(textwrap.dedent(text))
    (folder / "pipeline").mkdir()
    (folder / "pipeline" / "pipelines_app.py").write_text(textwrap.dedent(PIPELINE))
    (folder / "pipeline" / "penstock.toml").write_text(PIPELINES.read_text())
    (folder / "dev").mkdir()
    (folder / "dev" / "reloaded.py").write_text(textwrap.dedent(RELOADED))
    return folder


@pytest.fixture(scope="module")
def environment(live: LiveServer) -> dict[str, str]:
    return environment_of(live, PENSTOCK_APP="pipelines_app:app")


@pytest.fixture
def sender(live: LiveServer) -> Iterator[Penstock]:
    app = sender_to(live)
    yield app
    app.close_sync()


def test_tasks_of_three_queues_run_in_child_processes_and_a_dead_child_costs_only_its_task(
    place: Path, environment: dict[str, str], sender: Penstock, tmp_path: Path
) -> None:
    """Seed 002's priority queues with all flags; scenarios 3, 32 and 37 to 39 by the way."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    args = [
        *("--processes=2", "--max-claim-batch=2", "--max-claim-per-worker=10", "--name", "w1"),
        *("--max-tasks-per-child=1", "--max-memory-per-child-mb=500"),
    ]
    with program(place, environment, "myapp.instance:app", *args) as process:
        sibling = sent(sender, "stripe", "wait_for", str(pipe))
        assert process.printed() == "began"
        for how, words in (("exit", "exit code 1"), ("signal", "SIGSEGV")):
            with pytest.raises(TaskFailed) as caught:
                sent(sender, "reports", "die", how).result_sync(timeout=LATER)
            assert getattr(caught.value.cause, "type", None) == "WORKER_CRASHED"
            assert words in str(caught.value)
        again = RetryPolicy(maximum_attempts=2, initial_interval=timedelta(milliseconds=10))
        mark = str(tmp_path / "mark")
        handle = sent(sender, "reports", "die_once", mark, retry_policy=again)
        assert handle.result_sync(timeout=LATER) == "alive"
        with pytest.raises(TaskTimedOut):
            limit = timedelta(seconds=1)
            sent(sender, "email", "hang", start_to_close_timeout=limit).result_sync(timeout=LATER)
        pids = {sent(sender, "stripe", "pid").result_sync(timeout=LATER) for _ in range(2)}
        pids.add(sent(sender, "email", "pid_of_async").result_sync(timeout=LATER))
        pipe.write_text("done")
        assert sibling.result_sync(timeout=LATER) == "done"
        limits = told(sender, "task-queues", "stripe", "limits", task_queue_type="activity")
        whole = told(sender, "namespaces", "default", "limits")["activity_tasks"]["limits"]
        names = {each["worker_id"] for each in told(sender, "workers")["workers"]}
        assert process.told_to_end() == 0
    assert process.pid not in pids
    assert len(pids) == 3
    assert limits["limits"]["max_active_leases_per_queue"]["value"] == 3
    assert whole["max_active_leases"]["value"] == 15
    assert names == {"w1/stripe", "w1/email", "w1/reports"}
    said = process.said
    wanted = "processes=2, cluster_wide_cap=15, max_claim_per_worker=10, max_claim_batch=2"
    assert f"Concurrency config: {wanted}\n" in said
    assert "cluster_wide_cap=15 cannot bind: the workers that are there run 2 tasks at the most" in said
    assert "Queues stripe, email, reports, in this order; up to 2 tasks at once, in 2 processes." in said


def test_what_was_claimed_ahead_is_not_begun_after_the_signal_and_runs_elsewhere(
    place: Path, environment: dict[str, str], sender: Penstock, tmp_path: Path
) -> None:
    """Scenario 45, and the seed's soft caps: the line says what holds."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with program(place, environment, "ahead:app", "--processes=1") as process:
        first = sent(sender, "default", "wait", str(pipe))
        assert process.printed() == "began"
        others = [sent(sender, "default", "quick") for _ in range(4)]
        process.send_signal(signal.SIGTERM)
        with program(place, environment, "ahead:app", "--processes=1") as second:
            assert [each.result_sync(timeout=LATER) for each in others] == ["quick"] * 4
            pipe.write_text("done")
            assert first.result_sync(timeout=LATER) == "done"
            assert process.process.wait(PATIENCE_S) == 0
            assert second.told_to_end() == 0
    assert "max_claim_per_worker=5, max_claim_batch=0" in process.said
    assert "cluster_wide_cap=unlimited" in process.said


def test_a_task_that_does_not_end_with_its_worker_is_killed_and_tried_again_by_its_policy(
    place: Path, environment: dict[str, str], sender: Penstock
) -> None:
    """Scenario 46."""
    args = ("ahead.py:app", "--processes", "1", "--shutdown-timeout", "0")
    with program(place, environment, *args) as process:
        handle = sent(sender, "default", "stay")
        assert process.printed() == "began"
        assert process.told_to_end() == 1
    with pytest.raises(TaskFailed) as caught:
        handle.result_sync(timeout=LATER)
    assert getattr(caught.value.cause, "type", None) == "WORKER_CRASHED"
    assert "ended_by_force" in process.said


def test_the_three_boot_commands_route_real_work(
    place: Path, environment: dict[str, str], sender: Penstock, tmp_path: Path
) -> None:
    """Seed 001, as it is written: the app and the file are found, and each worker gets what is its own."""
    commands = (
        "--task-queue img-gen-gpu-queue --profile gpu --scope runner-img-gen",
        "--task-queue temporal_task_queue   --profile router  --scope router",
        "--task-queue anthropic-queue       --profile balanced --scope runner-llm",
    )

    async def piped() -> list[str]:
        client = await sender.client()
        found: list[str] = await client.execute_workflow(
            "WfPipeRouter", task_queue="temporal_task_queue", result_type=list[str]
        )
        return found

    with contextlib.ExitStack() as stack:
        programs = [
            stack.enter_context(program(place / "pipeline", environment, *each.split())) for each in commands
        ]
        assert sender.clients.wait(piped()) == ["img-gen-gpu-queue", "anthropic-queue"]
        seen = {each["task_queue"]: each for each in told(sender, "workers")["workers"]}
        codes = [each.told_to_end() for each in programs]
    assert codes == [0, 0, 0]
    assert seen["temporal_task_queue"]["max_concurrent_activity_tasks"] == 0
    assert seen["temporal_task_queue"]["max_concurrent_workflow_tasks"] == 200
    assert seen["img-gen-gpu-queue"]["max_concurrent_activity_tasks"] == 4
    start = programs[0].said
    assert "Profile gpu, scope runner-img-gen (0 workflows, 1 activity), queue img-gen-gpu-queue" in start


def test_code_that_changes_is_served_anew(
    place: Path, environment: dict[str, str], sender: Penstock, tmp_path: Path
) -> None:
    folder = place / "dev"
    with program(folder, environment, "reloaded:app", "--reload") as process:
        assert sent(sender, "reloaded", "version").result_sync(timeout=LATER) == 1
        changed = textwrap.dedent(RELOADED).replace("return 1", "return 22")
        (folder / "reloaded.py").write_text(changed)
        ends_at = time.monotonic() + LATER.total_seconds()
        while sent(sender, "reloaded", "version").result_sync(timeout=LATER) != 22:
            assert time.monotonic() < ends_at
        assert process.told_to_end() == 0
    assert "Changed: reloaded.py. Restarting." in process.said
