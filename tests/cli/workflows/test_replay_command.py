"""`penstock workflow replay`: code against histories of a real server."""

from __future__ import annotations

import asyncio
import importlib
import json
import os
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock import Penstock
from tests.support.live import TOKENS, running
from tests.support.live import server as new_server
from tests.support.patience import PATIENCE_S

MODULE = """
    import asyncio
    from datetime import timedelta

    from penstock import Penstock, workflow

    app = Penstock("flows")

    @app.task
    async def add(first: int, second: int) -> int:
        return first + second

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
            {change}
            return total
    {more}
"""
ASLEEP = """
    @app.workflow
    @workflow.defn
    class Asleep:
        @workflow.run
        async def run(self) -> None:
            await asyncio.sleep(3600)
"""


class DemoDisplay:
    """A directory with workflow code old and new, and a server that has run the old."""

    def __init__(self, folder: Path, environment: dict[str, str]) -> None:
        self.folder, self.environment = folder, environment

    def penstock(self, *args: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-c", "from penstock.cli import main; main()", "workflow", *args],
            cwd=self.folder,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )

    def replay(self, *args: str) -> subprocess.CompletedProcess[str]:
        return self.penstock("replay", *args)


@pytest.fixture(scope="module")
def demo_display(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DemoDisplay]:
    folder = tmp_path_factory.mktemp("replay")
    frame = textwrap.dedent(MODULE)
    change = "await asyncio.sleep(5)"
    more = textwrap.dedent(ASLEEP)
    (folder / "flows_old.py").write_text(frame.format(change="pass", more=more))
    (folder / "flows_new.py").write_text(frame.format(change=change, more=more))
    (folder / "flows_few.py").write_text(frame.format(change="pass", more=""))
    (folder / "bare.py").write_text("number = 5\n")
    with running(new_server(folder, f"sqlite:///{folder}/penstock.db")) as (live,):
        token = TOKENS["DW_ADMIN_TOKEN"]
        around = {key: value for key, value in os.environ.items() if not key.startswith(("DW_", "DURABLE_"))}
        around |= {"DURABLE_WORKFLOW_SERVER_URL": live.url, "DURABLE_WORKFLOW_AUTH_TOKEN": token}
        made = DemoDisplay(folder, around)
        asyncio.run(record(folder, live.url))
        for name in ("sum-1", "sum-2"):
            made.penstock("export", name, "-o", f"{name}.json").check_returncode()
        yield made


async def record(folder: Path, url: str) -> None:
    """Run the old code, so that there are histories of it."""
    sys.path.insert(0, str(folder))
    try:
        module: Any = importlib.import_module("flows_old")
    finally:
        sys.path.remove(str(folder))
    app: Penstock = module.app
    app.clients.prefer(
        url=url, control_token=TOKENS["DW_OPERATOR_TOKEN"], worker_token=TOKENS["DW_WORKER_TOKEN"]
    )
    client = await app.client()
    async with app.worker(client):
        for number in (1, 2):
            run = client.execute_workflow(module.Sum.run, [1, 2], id=f"sum-{number}", task_queue="default")
            assert await run == 3
        asleep = await client.start_workflow(module.Asleep.run, id="asleep", task_queue="default")
        async for event in asleep.fetch_history_events(wait_new_event=True):
            if event["event_type"] == "TimerScheduled":
                break


@pytest.mark.parametrize(
    "which",
    [
        ["--file", "sum-1.json"],
        ["--workflow-id", "sum-1"],
        ["--workflow-id", "asleep"],
        ["--query", "WorkflowType = 'Sum'"],
    ],
    ids=" ".join,
)
@pytest.mark.parametrize("code", ["flows_old", "flows_old:app"])
def test_code_that_fits_its_histories_is_told_so(
    demo_display: DemoDisplay, code: str, which: list[str]
) -> None:
    done = demo_display.replay(code, *which)
    assert done.returncode == 0, done.stderr
    assert all(line.startswith("fits ") for line in done.stdout.splitlines())
    counted = "2 histories" if "--query" in which else "1 history"
    assert f"The code fits {counted}." in done.stderr


def test_code_that_changed_shows_the_first_event_and_its_own_line(demo_display: DemoDisplay) -> None:
    done = demo_display.replay("flows_new:Sum", "--file", "sum-1.json", "--file", "sum-2.json")
    assert done.returncode == 1
    first = done.stdout.splitlines()[:4]
    line = (demo_display.folder / "flows_new.py").read_text().splitlines().index(
        "        await asyncio.sleep(5)"
    ) + 1
    assert first[0].startswith("does not fit sum-1 Sum ")
    assert first[1].startswith("  event ")
    assert "WorkflowCompleted" in first[1]
    assert first[2] == "  the code asks for: start_timer"
    assert first[3] == f"  at {demo_display.folder}/flows_new.py:{line} in Sum.run"
    assert "error: history_does_not_fit: 2 of 2 histories do not fit the code." in done.stderr
    assert "workflow.patched" in done.stderr


def test_one_that_does_not_fit_among_others_is_enough(demo_display: DemoDisplay) -> None:
    done = demo_display.replay("flows_new", "--query", "StartTime > '1h ago'", "--json")
    assert done.returncode == 1
    answer = json.loads(done.stdout)
    assert (answer["replayed"], answer["fitting"]) == (3, 1)
    by_id = {each["workflow_id"]: each for each in answer["results"]}
    assert by_id["asleep"]["fits"] is True
    unfit = by_id["sum-1"]
    assert (unfit["fits"], unfit["error"], unfit["asked"]) == (False, "NonDeterminismError", "start_timer")
    assert unfit["where"].endswith("in Sum.run")
    assert isinstance(unfit["sequence"], int)


def test_the_newest_of_many_are_replayed_if_a_limit_says_so(demo_display: DemoDisplay) -> None:
    done = demo_display.replay("flows_old", "--query", "WorkflowType = 'Sum'", "--limit", "1")
    assert done.returncode == 0
    assert done.stdout.startswith("fits sum-2")
    assert "The newest 1 were replayed" in done.stderr


def test_a_history_of_a_type_that_the_code_does_not_have_does_not_fit(demo_display: DemoDisplay) -> None:
    done = demo_display.replay("flows_few", "--workflow-id", "asleep")
    assert done.returncode == 1
    assert 'The history is of a workflow "Asleep", and this replayer has Sum.' in done.stdout


@pytest.mark.parametrize(
    ("args", "told"),
    [
        (["flows_old"], "Select histories"),
        (["flows_old", "--file", "sum-1.json", "--workflow-id", "sum-1"], "Select histories"),
        (["flows_old", "--file", "sum-1.json", "--run", "r"], "--run is a run of --workflow-id"),
        (["flows_old:Summ", "--file", "sum-1.json"], "Did you mean flows_old:Sum?"),
        (
            ["flows_old:add", "--file", "sum-1.json"],
            "is not a workflow class (under @workflow.defn) or an app",
        ),
        (["bare", "--file", "sum-1.json"], "bare has no workflow"),
        (["flows_odd", "--file", "sum-1.json"], "There is no module 'flows_odd'"),
        (["flows_old", "flows_new", "--file", "sum-1.json"], "Two of these workflows have the same name."),
        (["flows_old", "--file", "nothing.json"], "does not exist"),
        (["--file", "sum-1.json"], "Missing argument"),
    ],
)
def test_what_cannot_be_replayed_is_a_mistake_of_usage(
    demo_display: DemoDisplay, args: list[str], told: str
) -> None:
    done = demo_display.replay(*args)
    assert done.returncode == 2
    assert told in done.stderr


@pytest.mark.parametrize("text", ["no json", "[1, 2]", "{}", '"text"'])
def test_a_file_that_is_no_history_is_told_so(demo_display: DemoDisplay, text: str) -> None:
    (demo_display.folder / "odd.json").write_text(text)
    done = demo_display.replay("flows_old", "--file", "odd.json")
    assert done.returncode == 1
    assert "error: history_unreadable: odd.json" in done.stderr


def test_a_list_of_events_without_a_type_does_not_fit(demo_display: DemoDisplay) -> None:
    (demo_display.folder / "odd.json").write_text('[{"event_type": "TimerScheduled", "sequence": 1}]')
    done = demo_display.replay("flows_old", "--file", "odd.json", "--json")
    assert done.returncode == 1
    assert json.loads(done.stdout)["results"][0]["workflow_type"] is None


def test_a_run_that_is_not_there_is_refused_by_the_server(demo_display: DemoDisplay) -> None:
    done = demo_display.replay("flows_old", "--workflow-id", "nobody")
    assert done.returncode == 1
    assert "instance_not_found" in done.stderr
    done = demo_display.replay("flows_old", "--query", "WorkflowType = 'Nobody'")
    assert done.returncode == 1
    assert "nothing_found" in done.stderr
