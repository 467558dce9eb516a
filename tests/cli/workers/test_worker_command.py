"""`penstock worker module:app` as people type it: real processes on a real server."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from penstock import Penstock, TaskHandle
from tests.cli.recorded_server import RecordedServer, Run
from tests.support.live import TOKENS, LiveServer, free_port
from tests.support.patience import PATIENCE, PATIENCE_S
from tests.support.programs import environment_of

LATER = PATIENCE
INSTANCE = """
    from penstock import Penstock

    app = Penstock("shop", include=["shop.tasks"])
    other = 5
"""
TASKS = """
    import os
    import sys
    import time
    from datetime import timedelta

    from penstock import workflow
    from shop.instance import app

    @app.task
    async def add(first: int, second: int) -> int:
        return first + second

    @app.task(runs_in="process")
    def crunch() -> int:
        return os.getpid()

    @app.task(queue="slow")
    def wait_for(path: str) -> str:
        print("began", flush=True)
        with open(path) as pipe:  # until somebody writes to it
            return pipe.read()

    @app.workflow
    @workflow.defn
    class Sum:
        @workflow.run
        async def run(self, numbers: list[int]) -> int:
            total = 0
            for each in numbers:
                total = await workflow.execute_activity(
                    add, args=[total, each], start_to_close_timeout=timedelta(seconds=30)
                )
            return total
"""
OWN_URL = """
    from penstock import Penstock

    app = Penstock("lost", "http://127.0.0.1:1", control_token="nobody", worker_token="nobody")

    @app.task(name="add")
    async def plus(first: int, second: int) -> int:
        return first + second
"""
EMPTY = """
    from penstock import Penstock

    app = Penstock("empty")
"""
BROKEN = """
    def divide():
        return 1 / 0

    divide()
"""
NEEDY = "import no_such_package\n"
TWO = """
    from penstock import Penstock

    one = Penstock("one")
    other = Penstock("other")
"""
BROKEN_CONFIG = """
    from penstock import AppConfig, Penstock

    app = Penstock(config=AppConfig(custom_queues=[]))
"""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with a package, as a user has one."""
    folder = tmp_path_factory.mktemp("project")
    (folder / "shop").mkdir()
    files = {
        "__init__": "",
        "instance": INSTANCE,
        "tasks": TASKS,
        "own_url": OWN_URL,
        "empty": EMPTY,
        "broken": BROKEN,
        "needy": NEEDY,
        "two": TWO,
        "broken_config": BROKEN_CONFIG,
    }
    for name, text in files.items():
        (folder / "shop" / f"{name}.py").write_text(textwrap.dedent(text))
    (folder / "parcel").mkdir()
    (folder / "parcel" / "__init__.py").write_text(textwrap.dedent(OWN_URL))
    return folder


@pytest.fixture
def at_home(run: Run, place: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """The command line in this process, in the directory of the package."""
    monkeypatch.chdir(place)
    monkeypatch.syspath_prepend(str(place))
    return run


@pytest.fixture(scope="module")
def environment(live: LiveServer) -> dict[str, str]:
    return environment_of(live)


@pytest.fixture
def sender(live: LiveServer) -> Iterator[Penstock]:
    """Somebody who sends tasks, and has none of the code that runs them."""
    app = Penstock(
        "sender",
        live.url,
        control_token=TOKENS["DW_OPERATOR_TOKEN"],
        worker_token=TOKENS["DW_WORKER_TOKEN"],
        queues=["slow"],
    )

    @app.task
    async def add(first: int, second: int) -> int:
        raise AssertionError("run elsewhere")

    @app.task
    def crunch() -> int:
        raise AssertionError("run elsewhere")

    @app.task(queue="slow")
    def wait_for(path: str) -> str:
        raise AssertionError("run elsewhere")

    yield app
    app.close_sync()


def sent(app: Penstock, task: str, *args: Any) -> TaskHandle[Any]:
    return app.tasks[task].send_sync(*args)


def command(*args: str) -> list[str]:
    return [sys.executable, "-c", "from penstock.cli import main; main()", *args]


@contextmanager
def worker(place: Path, environment: Mapping[str, str], *args: str) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        command(*args),
        cwd=place,
        env=dict(environment),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()


def failed(place: Path, environment: Mapping[str, str], *args: str) -> tuple[int, str]:
    done = subprocess.run(
        command("worker", *args),
        cwd=place,
        env=dict(environment),
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.stdout == ""
    return done.returncode, done.stderr


def ended(process: subprocess.Popen[str]) -> tuple[int, str]:
    _, talk = process.communicate(timeout=PATIENCE_S)
    return process.returncode, talk


def wait_for_line(process: subprocess.Popen[str], words: str) -> str:
    """What it said up to a line with these words."""
    assert process.stderr is not None
    said = ""
    while words not in said:
        line = process.stderr.readline()
        assert line, said
        said += line
    return said


@pytest.mark.parametrize(
    "form",
    [("worker", "shop.instance:app"), ("worker", "-m", "shop/instance.py", "--loglevel", "debug")],
    ids=" ".join,
)
def test_an_app_is_run(
    place: Path, environment: dict[str, str], sender: Penstock, form: tuple[str, ...]
) -> None:
    with worker(place, environment, *form) as process:
        assert sent(sender, "add", 1, 2).result_sync(timeout=LATER) == 3
        process.send_signal(signal.SIGTERM)
        code, talk = ended(process)
    assert code == 0
    assert "Running shop on http://127.0.0.1" in talk
    assert "namespace default: 3 tasks, 1 workflow." in talk
    assert "Queues default, slow; up to" in talk


@pytest.mark.parametrize(
    "form",
    [
        ("worker", "run", "shop.instance:app"),
        ("worker:run", "shop.instance:app"),
        ("worker", "--concurrency", "3", "shop/instance.py:app"),
        ("worker", "shop/instance.py"),
        ("worker", "shop.instance", "--loglevel=warning"),
        ("worker", "-m", "shop.instance:app"),
        ("worker", "--check"),
    ],
    ids=" ".join,
)
def test_there_are_many_ways_to_name_an_app(at_home: Run, form: tuple[str, ...]) -> None:
    said = at_home(*form, "--check", "--json", env={"PENSTOCK_APP": "shop.instance:app"})
    assert json.loads(said.stdout)["app"] == "shop", said.output


@pytest.mark.parametrize("named", ["parcel", "parcel:app", "parcel/__init__.py"])
def test_a_package_that_holds_an_app_may_be_named_by_itself(at_home: Run, named: str) -> None:
    said = at_home("worker", named, "--check", "--json")
    assert json.loads(said.stdout)["app"] == "lost", said.output
    assert "parcel.__init__" not in sys.modules


def test_tasks_in_processes_and_workflows_run_there_too(
    place: Path, environment: dict[str, str], sender: Penstock
) -> None:
    async def summed() -> int:
        client = await sender.client()
        return await client.execute_workflow("Sum", [1, 2, 3], task_queue="default", result_type=int)

    with worker(place, environment, "worker", "shop.instance:app") as process:
        assert sent(sender, "crunch").result_sync(timeout=LATER) not in (process.pid, os.getpid())
        assert sender.clients.wait(summed()) == 6
        process.send_signal(signal.SIGINT)
        assert ended(process)[0] == 0


def test_only_the_queues_that_were_named_are_served(
    place: Path, environment: dict[str, str], sender: Penstock
) -> None:
    args = ("worker", "shop.instance:app", "--task-queue", "slow", "--concurrency", "5", "--json")
    with worker(place, environment, *args) as process:
        assert process.stdout is not None
        facts = json.loads(process.stdout.readline())
        talk = wait_for_line(process, "takes tasks")
        process.send_signal(signal.SIGTERM)
        code, _ = ended(process)
    assert (facts["app"], facts["task_queues"], facts["concurrency"]) == ("shop", ["slow"], 5)
    assert facts["tasks"] == ["add", "crunch", "wait_for"]
    assert code == 0
    assert "Queue slow; up to 5 tasks at once." in talk


@pytest.mark.parametrize("asked", [signal.SIGTERM, signal.SIGINT])
def test_a_worker_that_is_told_to_stop_lets_its_tasks_end(
    place: Path, environment: dict[str, str], sender: Penstock, tmp_path: Path, asked: signal.Signals
) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with worker(place, environment, "worker", "shop.instance:app") as process:
        handle = sent(sender, "wait_for", str(pipe))
        assert process.stdout is not None
        assert process.stdout.readline() == "began\n"
        process.send_signal(asked)
        pipe.write_text("done")
        code, _ = ended(process)
    assert code == 0
    assert handle.result_sync(timeout=LATER) == "done"


def test_being_told_again_ends_it_at_once(
    place: Path, environment: dict[str, str], sender: Penstock, tmp_path: Path
) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with worker(place, environment, "worker", "shop.instance:app") as process:
        handle = sent(sender, "wait_for", str(pipe))
        assert process.stdout is not None
        assert process.stdout.readline() == "began\n"
        process.send_signal(signal.SIGINT)
        wait_for_line(process, "Shutting down")
        for _ in range(20):
            process.send_signal(signal.SIGINT)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(1)
                break
        # A signal may also come when the interpreter has put back its default; shells show both as 130.
        assert process.returncode in (130, -signal.SIGINT)
    handle.cancel_sync()


@pytest.mark.parametrize(
    ("args", "told"),
    [
        (["shop.instance:ap"], "shop.instance has no 'ap'. Did you mean shop.instance:app?"),
        (["shop.instanc:app"], "There is no module 'shop.instanc'"),
        (["shoop.instance:app"], "There is no module 'shoop'"),
        (["shop.two"], "shop.two has 2 of them: choose one of shop.two:one or shop.two:other."),
        (["shop.broken_config"], "custom_queues are given, and queue_mode is DEFAULT. Leave them out"),
        (["shop.broken_config"], "shop/broken_config.py:4"),
        (["shop.instance.py"], "There is no file 'shop.instance.py'. A module is named without .py"),
        (["shop/nothing.py:app"], "There is no file 'shop/nothing.py' in this directory."),
        (["-m", "shop.instance:app", "shop.two:one"], "cannot both be meant"),
        (["shop.instance:app", "--processes=0"], "0 is not in the range"),
        (["shop.instance:app", "--processes=x"], "'x' is not a valid integer range"),
        (["shop.instance:app", "--max-claim-batch=-1"], "-1 is not in the range"),
        (["shop.instance:app", "--name="], "--name has 1 to 200 characters that one can see"),
        (["shop.instance:app", "--shutdown-timeout=nan"], "nan is not a number of seconds"),
        (["shop.instance:app", "--shutdown-timeout=inf"], "inf is not in the range"),
        (["shop.instance:app", "--loglevel=LOUD"], "'LOUD' is not one of"),
        (["shop.instance:app", "--processes=2", "--concurrency=3"], "cannot both be meant"),
        (["shop.instance:app", "--queues", "slow,"], "the name of a queue is empty"),
        (["shop.instance:other"], "shop.instance:other is not an app (made by Penstock(…)), but an int."),
        (["shop.empty:app"], "shop.empty:app has nothing to run."),
        (["shop.instance:app", "-t", "slwo"], "has no queue 'slwo'. Did you mean 'slow'?"),
        (["shop.instance:app", "--concurrency", "0"], "0 is not in the range"),
        (["run"], "Missing argument 'MODULE:APP'"),
        (["lst"], "No such command 'lst'. Did you mean 'list'?"),
    ],
)
def test_what_does_not_name_an_app_is_refused_before_anything_is_asked(
    at_home: Run, args: list[str], told: str
) -> None:
    said = at_home("worker", *args, env={"DURABLE_WORKFLOW_SERVER_URL": "http://127.0.0.1:1"})
    assert said.exit_code == 2
    assert said.stdout == ""
    assert told in " ".join(said.stderr.split())


@pytest.mark.parametrize(
    ("module", "told"),
    [
        ("broken", ["return 1 / 0", "ZeroDivisionError: division by zero", "import_failed: shop.broken"]),
        (
            "needy",
            ["import no_such_package", "No module named 'no_such_package'", "import_failed: shop.needy"],
        ),
    ],
)
def test_a_module_that_cannot_be_imported_shows_its_own_traceback(
    at_home: Run, module: str, told: list[str]
) -> None:
    said = at_home("worker", f"shop.{module}:app")
    assert said.exit_code == 1
    for each in told:
        assert each in said.stderr
    assert "penstock/cli" not in said.stderr
    assert "importlib" not in said.stderr


def test_a_server_that_is_away_and_one_that_refuses_are_told_apart(
    place: Path, environment: dict[str, str]
) -> None:
    away = f"http://127.0.0.1:{free_port()}"
    code, talk = failed(place, environment, "shop.instance:app", "--server", away)
    assert code == 1
    assert f"Cannot reach {away}" in talk
    code, talk = failed(place, environment, "shop.instance:app", "--token", "wrong")
    assert code == 1
    assert "error: unauthorized:" in talk
    code, talk = failed(place, environment, "shop.instance:app", "--namespace", "nowhere")
    assert code == 1
    assert "error: namespace_not_found:" in talk


def test_flags_count_more_than_what_the_app_says(
    place: Path, environment: dict[str, str], live: LiveServer, sender: Penstock
) -> None:
    args = ("worker", "shop.own_url:app", "--server", live.url, "--token", TOKENS["DW_WORKER_TOKEN"])
    with worker(place, environment, *args) as process:
        assert sent(sender, "add", 2, 3).result_sync(timeout=LATER) == 5
        process.send_signal(signal.SIGTERM)
        assert ended(process)[0] == 0


def test_the_verbs_of_the_noun_stay_what_they_were(ask: Run, server: RecordedServer) -> None:
    server.answer("GET", "/workers", {"workers": []})
    assert ask("worker", "list").exit_code == 0
    assert ask("worker:list").exit_code == 0
    assert ask("worker", "--help").exit_code == 0
    assert "describe" in ask("worker").output
