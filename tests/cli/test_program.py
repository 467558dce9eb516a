"""The program as a whole: its two names, its two forms, its help, its start-up."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from penstock.cli.contract.program import dw
from penstock.cli.grammar import NounGroup, VerbCommand
from penstock.cli.program import Program, program
from penstock.cli.transport.session import ConnectionOption
from tests.cli.recorded_server import RecordedServer, Run
from tests.support.patience import PATIENCE_S

QUEUES = {"namespace": "default", "task_queues": []}


def commands(
    group: NounGroup = program, path: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    ctx = click.Context(group)
    for name in group.list_commands(ctx):
        command = group.get_command(ctx, name)
        assert command is not None
        yield (*path, name), command
        if isinstance(command, NounGroup):
            yield from commands(command, (*path, name))


ALL = list(commands())
VERBS = [(path, command) for path, command in ALL if isinstance(command, VerbCommand)]


@pytest.mark.parametrize("root", [program, dw], ids=["penstock", "dw"])
@pytest.mark.parametrize("form", [("task-queue", "list"), ("task-queue:list",)])
def test_both_programs_take_both_forms(server: RecordedServer, root: Program, form: tuple[str, ...]) -> None:
    server.answer("GET", "/task-queues", QUEUES)
    result = CliRunner().invoke(root, ["--server", server.url, *form, "--json"])
    shown = json.loads(result.stdout)
    assert {key: shown[key] for key in QUEUES} == QUEUES


def test_the_colon_form_reaches_a_noun_inside_another(server: RecordedServer, run: Run) -> None:
    server.answer("GET", "/task-queues/payments/config/history", {"changes": []})
    result = run("task-queue:config:history", "-t", "payments", "--json", "--server", server.url)
    assert result.exit_code == 0, result.output


def test_the_colon_form_takes_arguments(server: RecordedServer, run: Run) -> None:
    server.answer("GET", "/task-queues/payments", {"name": "payments", "admission": {"a": 1}})
    result = run("task-queue:describe", "payments", "--json", "--server", server.url)
    assert json.loads(result.stdout)["admission"] == {"a": 1}


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        (["wrokflow"], "workflow"),
        (["workflow", "strat"], "start"),
        (["task-que:list"], "task-queue:list"),
        (["task-queue:lst"], "list"),
    ],
)
def test_an_unknown_command_suggests_the_nearest(run: Run, typed: list[str], meant: str) -> None:
    result = run(*typed)
    assert result.exit_code == 2
    assert f"Did you mean '{meant}'" in result.stderr


def test_the_version_is_that_of_the_package(run: Run) -> None:
    from importlib.metadata import version

    assert run("--version").stdout == f"penstock {version('penstock')}\n"


@pytest.mark.parametrize(("path", "command"), ALL, ids=[" ".join(path) for path, _ in ALL])
def test_every_command_has_one_line_of_help_and_an_example(
    run: Run, path: tuple[str, ...], command: click.Command
) -> None:
    assert isinstance(command, NounGroup | VerbCommand)
    assert command.help is not None
    assert "\n" not in command.help
    assert command.help.endswith(".")
    assert command.example.startswith(("penstock ", "eval "))
    result = run(*path, "--help")
    assert result.exit_code == 0
    for line in command.example.splitlines():
        assert line in result.stdout


@pytest.mark.parametrize(("path", "command"), VERBS, ids=[" ".join(path) for path, _ in VERBS])
def test_every_example_is_a_command_line_that_parses(path: tuple[str, ...], command: VerbCommand) -> None:
    import shlex

    if not command.example.startswith("penstock "):
        return
    words = shlex.split(command.example.replace("\\\n", " "))[1:]
    own = list(itertools.takewhile(lambda word: word not in ("|", ">", "<"), words))
    assert own[: len(path)] == list(path)
    command.make_context(path[-1], own[len(path) :], resilient_parsing=False)


@pytest.mark.parametrize(("path", "command"), VERBS, ids=[" ".join(path) for path, _ in VERBS])
def test_every_command_with_data_takes_json(path: tuple[str, ...], command: VerbCommand) -> None:
    if path[0] in ("completion", "docs") or command.hidden:
        return
    assert "json" in [param.name for param in command.params if isinstance(param, ConnectionOption)]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_completion_script_calls_the_program_by_the_name_it_was_asked_under(run: Run, shell: str) -> None:
    assert "_PENSTOCK_COMPLETE" in run("completion", shell).stdout
    other = CliRunner().invoke(dw, ["completion", shell], prog_name="dw").stdout
    assert "_DW_COMPLETE" in other


def test_completion_knows_nouns_and_verbs() -> None:
    words = {"COMP_WORDS": "penstock workflow st", "COMP_CWORD": "2", "_PENSTOCK_COMPLETE": "bash_complete"}
    done = subprocess.run(
        [sys.executable, "-c", "from penstock.cli import main; main()"],
        env=os.environ | words,
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_S,
    )
    assert done.stdout == "plain,start\n"


@pytest.mark.parametrize("line", ["main --help", "dw --help", "dw workflow:list -s http://127.0.0.1:9"])
def test_a_small_command_loads_nothing_heavy(line: str, tmp_path: Path) -> None:
    """A newcomer's first command answers at once: what only servers and tables need stays on disk."""
    entry, *words = line.split()
    code = (
        "import sys, atexit\n"
        "atexit.register(lambda: print(' '.join(sorted(sys.modules)), file=sys.stderr))\n"
        f"sys.argv = ['program', *{words}]\n"
        f"from penstock.cli import {entry}; {entry}()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        env=os.environ | {"DW_CONFIG_HOME": str(tmp_path)},
    )
    assert done.returncode == (0 if "--help" in line else 3), done.stderr
    loaded = {name.partition(".")[0] for name in done.stderr.split()}
    heavy = {
        "rich",
        "aiohttp",
        "starlette",
        "uvicorn",
        "msgspec",
        "asyncio",
        "asyncpg",
        "sqlite3",
        "structlog",
    }
    assert loaded & heavy == set()


def test_lines_of_both_streams_are_in_order_where_they_go_to_one_pipe() -> None:
    code = "from penstock.cli.output.exits import echo_err; print('data'); echo_err('talk'); print('more')"
    around = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=around,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=True,
    )
    assert done.stdout.splitlines() == ["data", "talk", "more"]


def test_data_goes_to_stdout_and_talk_to_stderr(ask: Run, server: RecordedServer) -> None:
    server.answer("DELETE", "/workers/w1", {"worker_id": "w1", "outcome": "deregistered"})
    result = ask("worker", "deregister", "w1")
    assert result.stderr == "Deregistered the worker w1.\n"
    assert result.stdout == "Worker   w1\nOutcome  deregistered\n"
