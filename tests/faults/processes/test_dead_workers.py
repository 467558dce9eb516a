"""Worker programs that are killed, also by their own tasks: each task is settled, and the queue continues."""

from __future__ import annotations

import json
import subprocess
import textwrap
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from penstock import Penstock, TaskFailed, TaskHandle
from tests.faults.deadlines import until
from tests.faults.programs.worker_program import worker_program
from tests.support.live import PENSTOCK, TOKENS, LiveServer, running, server
from tests.support.patience import PATIENCE_S

LATER = PATIENCE_S
APP_NAME = "mortal_app:app"
APP = """
    import os
    import signal
    import time
    from datetime import timedelta
    from pathlib import Path

    from penstock import Penstock, RetryPolicy, activity

    app = Penstock("mortal", queue="mortal")
    FOR_EVER = RetryPolicy(initial_interval=timedelta(milliseconds=10), backoff_coefficient=1)

    def first_hang(mark: str) -> int:
        if activity.info().attempt == 1:
            Path(mark).write_text("began")
            time.sleep(600)
        return activity.info().attempt

    @app.task
    def once(mark: str) -> int:
        return first_hang(mark)

    @app.task(retry=1)
    def again(mark: str) -> int:
        return first_hang(mark)

    @app.task(on_lost_lease="redeliver")
    def anew(mark: str) -> int:
        return first_hang(mark)

    @app.task(retry=FOR_EVER)
    def poison(of: str) -> None:
        os.kill(os.getpid(), signal.SIGKILL) if of == "worker" else os._exit(3)

    @app.task
    def add(a: int, b: int) -> int:
        return a + b
"""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("mortal")
    (found / "mortal_app.py").write_text(textwrap.dedent(APP))
    return found


@pytest.fixture(scope="module")
def live(place: Path) -> Iterator[LiveServer]:
    settings = {"DW_JOURNAL": "true", "DW_ACTIVITY_TASK_TIMEOUT": "2"}
    made = server(place, f"sqlite:///{place}/penstock.db", settings=settings)
    with running(made):
        yield made


@pytest.fixture
def app(place: Path, live: LiveServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[Penstock]:
    """The same tasks, to be sent from here."""
    names: dict[str, object] = {"__name__": "mortal_app"}
    monkeypatch.setenv("DURABLE_WORKFLOW_SERVER_URL", live.url)
    monkeypatch.setenv("DURABLE_WORKFLOW_CONTROL_TOKEN", TOKENS["DW_OPERATOR_TOKEN"])
    exec(textwrap.dedent(APP), names)
    made = names["app"]
    assert isinstance(made, Penstock)
    yield made
    made.close_sync()


def crash_of(handle: TaskHandle[object]) -> TaskFailed:
    with pytest.raises(TaskFailed) as caught:
        handle.result_sync(timeout=LATER)
    assert getattr(caught.value.cause, "type", None) == "WORKER_CRASHED"
    return caught.value


def told(live: LiveServer, *words: str) -> subprocess.CompletedProcess[str]:
    command = [*PENSTOCK, *words, "--server", live.url, "--token", TOKENS["DW_ADMIN_TOKEN"]]
    return subprocess.run(command, capture_output=True, text=True, check=True)


async def test_a_running_task_of_a_killed_worker_fails_is_retried_or_is_delivered_again(
    place: Path, live: LiveServer, app: Penstock
) -> None:
    """Scenario 32, with and without a policy; the worker has no children."""
    marks = {name: place / f"{name}.mark" for name in ("once", "again", "anew")}
    with worker_program(place, live, APP_NAME, "first") as first:
        sent = {name: await app.tasks[name].send(str(mark)) for name, mark in marks.items()}
        for name, mark in marks.items():
            await until(f"{name} runs", mark.exists)
        first.kill()
    with worker_program(place, live, APP_NAME, "second"):
        with pytest.raises(TaskFailed) as caught:
            await sent["once"].result(timeout=LATER)
        assert getattr(caught.value.cause, "type", None) == "WORKER_CRASHED"
        assert await sent["again"].result(timeout=LATER) == 2
        assert await sent["anew"].result(timeout=LATER) == 2
    described = [await sent[name].describe() for name in ("once", "again")]
    assert [(each.attempt, each.worker_deaths) for each in described] == [(1, 1), (2, 1)]


@pytest.mark.fault("F12")
def test_a_task_that_kills_its_process_is_quarantined_and_costs_nobody_else_anything(
    place: Path, live: LiveServer, app: Penstock
) -> None:
    """Scenario 40 with child processes."""
    with worker_program(place, live, APP_NAME, "parent", "--processes=2") as parent:
        before = app.tasks["add"].send_many_sync([(number, 1) for number in range(10)])
        poison = app.tasks["poison"].send_sync("child")
        between = app.tasks["add"].send_many_sync([(number, 2) for number in range(10)])
        assert "3 workers died running it. The last: " in str(crash_of(poison))
        assert [each.result_sync(timeout=LATER) for each in before] == list(range(1, 11))
        assert [each.result_sync(timeout=LATER) for each in between] == list(range(2, 12))
        assert app.tasks["add"].send_sync(20, 22).result_sync(timeout=LATER) == 42
        assert parent.poll() is None
    described = told(live, "activity", "describe", poison.id)
    assert "3, which ended it: it is quarantined" in described.stdout
    assert "quarantined" in told(live, "activity", "list").stdout
    seen = poison.describe_sync()
    assert (seen.worker_deaths, seen.is_quarantined) == (3, True)
    why = json.loads(told(live, "why", poison.id, "--json").stdout)
    assert why["binding"]["kind"] == "quarantined"


@pytest.mark.fault("F12")
def test_a_task_that_kills_every_worker_is_quarantined_and_the_next_worker_goes_on(
    place: Path, live: LiveServer, app: Penstock
) -> None:
    """Scenario 40 and fault F12, with workers that have no children; the journal holds every ending."""
    poison = app.tasks["poison"].send_sync("worker")
    for number in range(3):
        with worker_program(place, live, APP_NAME, f"victim-{number}") as victim:
            assert victim.wait(PATIENCE_S) == -9
    with ExitStack() as stack:
        stack.enter_context(worker_program(place, live, APP_NAME, "survivor"))
        assert "The lease of survivor" not in str(crash_of(poison))
        assert app.tasks["add"].send_sync(20, 22).result_sync(timeout=LATER) == 42
    (place / "journal").write_text(told(live, "journal", "export").stdout)
    ran = subprocess.run(
        [*PENSTOCK, "verify", "--dense", "--journal", str(place / "journal"), "--json"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
