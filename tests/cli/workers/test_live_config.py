"""A worker program whose configuration changes: places and rates at once, the rest is told to need a restart."""

from __future__ import annotations

import os
import signal
import textwrap
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from penstock import Penstock, TaskHandle, activity, workflow
from penstock.cli.dispatch.files import Sources
from penstock.cli.workers.live_config import LiveConfigUpdater
from penstock.cli.workers.plan import Flags, WorkerPlan
from penstock.cli.workers.worker_profile import WorkerFlags, choose, worker_profile_from
from tests.support.live import LiveServer
from tests.support.patience import PATIENCE_S
from tests.support.programs import Program, environment_of, program, sender_to, sent, told

APP = """
    import sys

    from penstock import Penstock, activity, workflow

    app = Penstock("followed")

    @activity.defn
    def hold(name: str, path: str) -> str:
        sys.stdout.write(f"began {name}\\n")
        sys.stdout.flush()
        with open(path) as pipe:
            said = pipe.read()
        sys.stdout.write(f"ended {name}\\n")
        sys.stdout.flush()
        return said

    @activity.defn
    async def quick(name: str) -> str:
        return name

    @workflow.defn
    class Nothing:
        @workflow.run
        async def run(self) -> None: ...

    app.add(workflows=[Nothing], activities=[hold, quick])
"""
LATER_S = PATIENCE_S


@pytest.fixture
def sender(live: LiveServer) -> Iterator[Penstock]:
    app = sender_to(live)
    yield app
    app.close_sync()


def until(is_so: Callable[[], Any]) -> None:
    ends_at = time.monotonic() + LATER_S
    while not is_so():
        assert time.monotonic() < ends_at, "it did not come to be so"


@dataclass
class Followed:
    """A worker, its file, and what it said."""

    folder: Path
    queue: str
    worker: Program
    pipes: dict[str, Path] = field(default_factory=dict)

    def write(self, *, cap: float | None = None, **profile: object) -> None:
        write(self.folder, self.queue, cap, profile)

    def says(self, words: str) -> None:
        until(lambda: words in self.worker.said)

    def goes_by(self, words: str) -> None:
        until(
            lambda: any(
                words in line
                for line in self.worker.said.splitlines()
                if "applied the new configuration" in line
            )
        )

    def holding(self, sender: Penstock, name: str) -> TaskHandle[Any]:
        self.pipes[name] = pipe = self.folder / f"pipe-{name}"
        os.mkfifo(pipe)
        return sent(sender, self.queue, "hold", name, str(pipe))

    def let_go(self, name: str) -> None:
        self.pipes[name].write_text(name)


def write(folder: Path, queue: str, cap: float | None, profile: dict[str, object]) -> None:
    """Exchange the file whole, as an editor does."""
    lines = [
        "[penstock.worker_config]",
        f'default_task_queue = "{queue}"',
        "[penstock.worker_runtime_profiles.profiles.balanced]",
        *(f"{name} = {value}" for name, value in profile.items()),
    ]
    if cap is not None:
        lines += [f"[penstock.queue_options.{queue}]", f"max_task_queue_activities_per_second = {cap}"]
    draft = folder / "draft"
    draft.write_text("\n".join(lines) + "\n")
    draft.replace(folder / "penstock.toml")


@contextmanager
def followed(
    live: LiveServer, folder: Path, queue: str, *args: str, cap: float | None = None, **profile: object
) -> Iterator[Followed]:
    (folder / "followed.py").write_text(textwrap.dedent(APP))
    write(folder, queue, cap, profile)
    with program(folder, environment_of(live), "followed:app", "--name", queue, *args) as worker:
        yield Followed(folder, queue, worker)


def test_places_come_and_go_while_tasks_run(live: LiveServer, sender: Penstock, tmp_path: Path) -> None:
    with followed(live, tmp_path, "places", max_concurrent_activities=1) as it:
        handles = [it.holding(sender, name) for name in "abcd"]
        assert it.worker.printed() == "began a"
        it.write(max_concurrent_activities=3, max_cached_workflows=7, max_concurrent_workflow_tasks=9)
        it.worker.send_signal(signal.SIGHUP)
        assert {it.worker.printed(), it.worker.printed()} == {"began b", "began c"}
        it.goes_by("max_concurrent_activities: 1 -> 3")
        it.goes_by("max_concurrent_workflow_tasks: 100 -> 9")
        it.says("Restart the worker to apply: max_cached_workflows: 1000 -> 7\n")

        it.write(max_concurrent_activities=1)
        it.goes_by("max_concurrent_activities: 3 -> 1")
        until(lambda: told(sender, "workers", "places")["max_concurrent_activity_tasks"] == 1)
        for name in "bca":
            it.let_go(name)
            assert it.worker.printed() == f"ended {name}"
        assert it.worker.printed() == "began d"
        it.let_go("d")
        assert [each.result_sync() for each in handles] == list("abcd")
        assert it.worker.told_to_end() == 0


def test_rates_change_and_a_bad_file_changes_nothing(
    live: LiveServer, sender: Penstock, tmp_path: Path
) -> None:
    with followed(live, tmp_path, "rates", cap=500, max_activities_per_second=0.001) as it:
        assert sent(sender, "rates", "quick", "first").result_sync() == "first"
        second = sent(sender, "rates", "quick", "second")
        it.write(cap=50, max_activities_per_second=100)
        assert second.result_sync() == "second"
        it.goes_by("max_activities_per_second: 0.001 -> 100")
        it.goes_by("max_task_queue_activities_per_second: 500.0 -> 50")
        until(lambda: rate_of(sender, "rates") == 50)

        (tmp_path / "penstock.toml").write_text(
            "[penstock.worker_runtime_profiles.profiles.balanced]\nmax = 1\n"
        )
        it.says("dispatch configuration refused")
        write(tmp_path, "elsewhere", 9, {"max_activities_per_second": 100})
        it.says("Restart the worker to apply: task_queue: rates -> elsewhere")
        assert sent(sender, "rates", "quick", "third").result_sync() == "third"
        assert rate_of(sender, "rates") == 50
        assert it.worker.told_to_end() == 0


def rate_of(sender: Penstock, queue: str) -> float | None:
    said = told(sender, "task-queues", queue, "config", task_queue_type="activity")
    rate: float | None = said["effective"]["queue_rps_limit"]
    return rate


# ── what is followed, without a server ──────────────────────────────────────────────────────────────────────


class Adjusted:
    """A worker that keeps what it is told."""

    def __init__(self) -> None:
        self.told: list[dict[str, Any]] = []

    async def adjust(self, **numbers: Any) -> None:
        self.told.append(numbers)


@activity.defn
async def thing() -> None: ...


@workflow.defn
class Flow:
    @workflow.run
    async def run(self) -> None: ...


def following(
    folder: Path, worker: Adjusted, flags: Flags, words: WorkerFlags | None = None, name: str = "balanced"
) -> LiveConfigUpdater:
    app = Penstock("followed")
    app.add(workflows=[Flow], activities=[thing])
    sources = written(folder, {}, name)
    what = worker_profile_from(sources.load(), sources, words or WorkerFlags())
    made: Any = worker
    return LiveConfigUpdater(WorkerPlan(app, [what.task_queue], flags, what, choose(what, app)), made)


def written(folder: Path, profile: Mapping[str, object], name: str = "balanced") -> Sources:
    lines = [f"{key} = {value}" for key, value in profile.items()]
    text = f"[penstock.worker_runtime_profiles.profiles.{name}]\n" + "\n".join(lines) + "\n"
    if name != "balanced":
        text += f'[penstock.worker_runtime_profiles]\ndefault_profile = "{name}"\n'
    (folder / "dispatch.toml").write_text(text)
    return Sources([folder / "dispatch.toml"])


async def test_a_flag_counts_more_than_a_file_that_changes(tmp_path: Path) -> None:
    worker = Adjusted()
    it = following(tmp_path, worker, Flags(concurrency=2, grace_s=3))
    changed = {"max_concurrent_activities": 5, "max_concurrent_local_activities": 6}
    await it.apply(written(tmp_path, changed | {"graceful_shutdown_timeout": '"0:00:09"'}).load())
    assert worker.told == [{"max_concurrent_local_activities": 6}]


async def test_a_worker_of_the_default_profile_goes_by_another_one_that_becomes_it(tmp_path: Path) -> None:
    worker = Adjusted()
    it = following(tmp_path, worker, Flags())
    await it.apply(written(tmp_path, {"max_concurrent_activities": 7}, name="other").load())
    assert worker.told == [{"max_concurrent_activities": 7}]


async def test_a_worker_whose_profile_is_gone_keeps_its_numbers_and_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    worker = Adjusted()
    it = following(tmp_path, worker, Flags(), WorkerFlags(profile="mine"), name="mine")
    await it.apply(written(tmp_path, {"max_concurrent_activities": 7}).load())
    assert worker.told == []
    assert "The worker keeps its configuration" in caplog.text
    assert "profile 'mine' is not declared" in caplog.text


async def test_places_that_come_to_be_none_need_a_restart_and_so_do_polls_and_caches(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    worker = Adjusted()
    it = following(tmp_path, worker, Flags())
    changed = {"max_concurrent_activities": 0, "max_cached_workflows": 5, "max_concurrent_workflow_tasks": 8}
    await it.apply(written(tmp_path, changed).load())
    assert worker.told == [{"max_concurrent_workflow_tasks": 8}]
    assert "Restart the worker to apply: max_cached_workflows: 1000 -> 5" in caplog.text
    assert "max_concurrent_activities: 100 -> 0" in caplog.text
    caplog.clear()
    await it.apply(written(tmp_path, {}).load())
    assert worker.told[1:] == [{"max_concurrent_workflow_tasks": 100}]
    assert "restart" not in caplog.text
