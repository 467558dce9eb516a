"""`penstock migrate temporal`: imports are rewritten, and what cannot be is reported with its line."""

from __future__ import annotations

import ast
import json
import stat
import sys
from pathlib import Path
from typing import Any

import pytest
import temporalio.activity
import temporalio.workflow
from click.testing import CliRunner, Result

from penstock import Replayer, Worker, workflow
from penstock.cli.program import program as command_line
from penstock.sdk.connection.connect_options import ConnectOptions
from penstock.sdk.worker.registry import WorkerRegistry
from penstock.testing import WorkflowEnvironment

PROGRAM = '''\
"""A program for Temporal."""

import os
from datetime import timedelta

from temporalio import activity, workflow
from temporalio.client import Client, WorkflowFailureError as Failed
from temporalio.common import RetryPolicy; ATTEMPTS = 3
from temporalio.exceptions import ApplicationError
from temporalio.contrib.pydantic import pydantic_data_converter

with workflow.unsafe.imports_passed_through():
    from temporalio.worker import Worker, WorkerTuner  # tuned


@activity.defn
async def greet(name: str) -> str:
    return f"Héllo {name}"


@workflow.defn
class Greeter:
    @workflow.run
    async def run(self, name: str) -> str:
        options: workflow.ActivityConfig = {"start_to_close_timeout": timedelta(seconds=30)}
        policy = RetryPolicy(maximum_attempts=ATTEMPTS)
        return await workflow.execute_activity(greet, name, retry_policy=policy, **options)

    @workflow.query
    def meter(self) -> None:
        workflow.metric_meter()


async def connect() -> Client:
    return await Client.connect("localhost:7233", namespace=os.environ["TEMPORAL_NAMESPACE"])
'''


@temporalio.workflow.defn
class Theirs:
    @temporalio.workflow.run
    async def run(self) -> None: ...


@temporalio.activity.defn
async def theirs() -> None: ...


@workflow.defn
class Mixed:
    """Calls the other SDK."""

    @workflow.run
    async def run(self) -> Any:
        return temporalio.workflow.now()


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(command_line, ["migrate", "temporal", *map(str, arguments)])


def line_of(source: str, text: str) -> int:
    return next(number for number, line in enumerate(source.splitlines(), 1) if text in line)


@pytest.fixture
def program(tmp_path: Path) -> Path:
    path = tmp_path / "greeting.py"
    path.write_text(PROGRAM)
    path.chmod(0o750)
    return path


def test_imports_are_rewritten_and_the_rest_of_the_file_stays_as_it_is(program: Path) -> None:
    assert run(program).exit_code == 1
    after = program.read_text()
    expected = (
        PROGRAM.replace("from temporalio import activity", "from penstock import activity")
        .replace(
            "from temporalio.client import Client, WorkflowFailureError as Failed",
            "from penstock.client import Client\nfrom penstock.failures import WorkflowFailureError as Failed",
        )
        .replace("from temporalio.common import RetryPolicy;", "from penstock import RetryPolicy;")
        .replace("from temporalio.exceptions", "from penstock.failures")
        .replace(
            "from temporalio.worker import Worker, WorkerTuner",
            "from penstock.worker import Worker\n    from temporalio.worker import WorkerTuner",
        )
        .replace("workflow.ActivityConfig", "workflow.ActivityOptions")
    )
    assert after == expected
    assert stat.S_IMODE(program.stat().st_mode) == 0o750
    ast.parse(after)


def test_what_cannot_be_rewritten_is_reported_with_its_line(program: Path) -> None:
    found = run(program)
    after = program.read_text()
    reported = dict(
        line.removeprefix(f"{program}:").split(": ", 1)
        for line in found.stdout.splitlines()
        if line.startswith(str(program))
    )
    for text, part in (
        ("pydantic_data_converter", "Pydantic models are read and written as they are"),
        ("from penstock.worker import Worker", "slots are numbers"),
        ("metric_meter", "metric_meter"),
        ("TEMPORAL_NAMESPACE", "DURABLE_WORKFLOW_NAMESPACE"),
    ):
        assert part in reported[str(line_of(after, text))]
    assert "'localhost:7233' is an address of a Temporal server" in found.stdout
    assert "left to do: 6" in found.stderr


def test_a_second_run_changes_nothing_more(program: Path) -> None:
    run(program)
    after = program.read_bytes()
    again = run(program, "--json")
    assert program.read_bytes() == after
    (only,) = json.loads(again.stdout)
    assert only["changed"] == 0
    assert only["notes"]


def test_a_dry_run_changes_no_file(program: Path) -> None:
    found = run(program, "--dry-run")
    assert program.read_text() == PROGRAM
    assert f"{program}:{line_of(PROGRAM, 'metric_meter')}: workflow.metric_meter" in found.stdout


def test_a_directory_is_searched_and_a_file_that_is_no_python_is_reported_and_left(tmp_path: Path) -> None:
    (tmp_path / "pack" / ".venv").mkdir(parents=True)
    clean, broken = tmp_path / "pack" / "clean.py", tmp_path / "broken.py"
    hidden = tmp_path / "pack" / ".venv" / "theirs.py"
    for path in (clean, hidden):
        path.write_text("from temporalio import workflow\n")
    broken.write_text("from temporalio import (\n")
    (tmp_path / "other.py").write_text("print(")
    found = run(tmp_path)
    assert found.exit_code == 1
    assert clean.read_text() == "from penstock import workflow\n"
    assert hidden.read_text() == "from temporalio import workflow\n"
    assert broken.read_text() == "from temporalio import (\n"
    assert f"{broken}:1: cannot be read as Python" in found.stdout
    assert "other.py" not in found.output
    broken.unlink()
    assert run(tmp_path).exit_code == 0


async def test_a_rewritten_program_runs(program: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run(program)
    program.write_text(
        program.read_text().replace("    from temporalio.worker import WorkerTuner  # tuned\n", "")
    )
    text = program.read_text()
    program.write_text("\n".join(line for line in text.split("\n") if "pydantic" not in line))
    monkeypatch.syspath_prepend(str(program.parent))
    monkeypatch.delitem(sys.modules, "greeting", raising=False)
    import greeting  # type: ignore[import-not-found]

    async with (
        await WorkflowEnvironment.start_time_skipping() as env,
        Worker(env.client, task_queue="q", workflows=[greeting.Greeter], activities=[greeting.greet]),
    ):
        said = await env.client.execute_workflow(greeting.Greeter.run, "you", id="w", task_queue="q")
    assert said == "Héllo you"


# Mistakes of people who come with such code


def test_an_address_of_temporal_names_both_ways() -> None:
    with pytest.raises(
        ValueError, match=r"http://localhost:7233, and a Temporal cluster temporal://localhost:7233/"
    ):
        ConnectOptions.resolve(url="localhost:7233", environment={})


def test_variables_of_temporal_are_named_with_ours_if_no_address_is_given(
    caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    environment = {"TEMPORAL_ADDRESS": "there:7233", "HOME": str(tmp_path)}
    ConnectOptions.resolve(url="http://here:1", environment=environment)
    assert not caplog.records
    ConnectOptions.resolve(environment=environment)
    (only,) = caplog.records
    assert "TEMPORAL_ADDRESS is set, and is not read: set DURABLE_WORKFLOW_SERVER_URL" in only.getMessage()


def test_definitions_by_temporalio_name_the_way_here() -> None:
    with pytest.raises(ValueError, match=r"decorated by temporalio: .*`penstock migrate temporal PATH`"):
        WorkerRegistry([Theirs], [])
    with pytest.raises(TypeError, match=r"decorated by temporalio: .*`penstock migrate temporal PATH`"):
        WorkerRegistry([], [theirs])


async def test_code_that_calls_temporalio_in_a_run_is_told_the_way_here() -> None:
    started = {
        "sequence": 1,
        "event_type": "WorkflowStarted",
        "payload": {"workflow_type": "Mixed"},
        "recorded_at": "2026-11-15T23:18:54.791Z",
    }
    result = Replayer(workflows=[Mixed]).replay([started])
    assert "The code calls temporalio" in str(result.failure)
