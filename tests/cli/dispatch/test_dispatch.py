"""The commands that check and explain a dispatch configuration."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from tests.cli.recorded_server import RecordedServer, Run
from tests.dispatch.refusals import REFUSED

PIPELINES = str(Path(__file__).parents[2] / "dispatch" / "pipelines.toml")
EXPLAIN = ("dispatch", "explain", "act_llm_gen_text", "--handle", "claude-4.6-opus", "--config", PIPELINES)
NOBODY = {"DURABLE_WORKFLOW_SERVER_URL": "http://127.0.0.1:9"}


@pytest.fixture(autouse=True)
def _nothing_from_outside(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in [name for name in os.environ if name.startswith(("DW_", "PENSTOCK__"))]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)


def test_check_tells_the_warnings_and_succeeds(run: Run) -> None:
    result = run("config", "check", "--config", PIPELINES, "--json")
    assert result.exit_code == 0, result.output
    assert result.stderr.count("warning:") == 4
    body = json.loads(result.stdout)
    assert body["valid"]
    assert len(body["warnings"]) == 4
    assert body["fingerprint"][:12] in result.stderr


def test_check_without_a_file_checks_the_one_of_the_folder_too(run: Run) -> None:
    assert "dispatch" not in run("config", "check").stderr
    folder = Path("penstock.toml")
    folder.write_text('[penstock.worker_config]\ndefault_task_queue = "home"\n')
    result = run("config", "check")
    assert result.exit_code == 0
    assert "The dispatch configuration of penstock.toml is valid" in result.stderr
    assert "The configuration is valid." in result.stderr
    assert "penstock.toml:2" in run("config", "show", "--effective").stdout
    folder.write_text("[penstock.worker_config]\noops = 1\n")
    result = run("config", "check")
    assert result.exit_code == 2
    assert "penstock.worker_config.oops (penstock.toml:2): unknown key" in result.stderr


def test_check_refuses_a_pipe_instead_of_finding_nothing_in_it(run: Run) -> None:
    os.mkfifo("pipe.toml")
    result = run("config", "check", "pipe.toml")
    assert result.exit_code == 2
    assert "pipe.toml: cannot be read: it is a pipe" in result.stderr


def test_check_refuses_undeclared_queues_when_strict(run: Run) -> None:
    result = run("config", "check", "--config", PIPELINES, "--strict")
    assert result.exit_code == 2
    assert "DispatchConfigError: 4 problems" in result.stderr
    assert f"{PIPELINES}:13" in result.stderr


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (
            "[penstock.worker_confg]\n",
            "penstock.worker_confg (x.toml:1): unknown key; did you mean 'worker_config'?",
        ),
        ("[penstock\n", "x.toml:1: is not valid TOML"),
    ],
)
def test_check_of_a_bad_file_ends_with_two_and_names_the_line(run: Run, content: str, words: str) -> None:
    Path("x.toml").write_text(content.replace("[penstock\n", "[penstock]\nx = \n[penstock\n"))
    result = run("config", "check", "--config", "x.toml", "--json")
    assert result.exit_code == 2
    assert words.replace("x.toml:1: is", "x.toml:2: is") in result.stderr
    assert json.loads(result.stdout)["valid"] is False


@pytest.mark.parametrize(
    "command", [("config", "show"), ("dispatch", "explain", "act"), ("dispatch", "doctor")], ids=" ".join
)
def test_every_command_that_reads_a_bad_file_tells_it_as_data_too(run: Run, command: tuple[str, ...]) -> None:
    Path("x.toml").write_text("[penstock.worker_confg]\n")
    result = run(*command, "--config", "x.toml", "--json", env=NOBODY)
    assert result.exit_code == 2
    (problem,) = json.loads(result.stdout)["problems"]
    assert (problem["path"], problem["origin"]) == ("penstock.worker_confg", "x.toml:1")


@pytest.mark.parametrize(("given", "path", "words"), REFUSED)
def test_whatever_a_file_may_not_say_ends_check_with_two(
    run: Run, given: dict[str, Any], path: str, words: str
) -> None:
    Path("x.toml").write_text(f"penstock = {_toml(given)}\n")
    result = run("config", "check", "--config", "x.toml")
    assert result.exit_code == 2
    assert result.stderr.startswith(f"DispatchConfigError: {path} (x.toml:1): ")
    assert words in result.stderr


def _toml(value: object) -> str:
    """A value as TOML has it; tables inline."""
    match value:
        case dict():
            return (
                "{" + ", ".join(f"{json.dumps(name)} = {_toml(held)}" for name, held in value.items()) + "}"
            )
        case list():
            return f"[{', '.join(map(_toml, value))}]"
        case str() | bool():
            return json.dumps(value)
    return str(value)


@pytest.mark.parametrize(
    "flags",
    [["--strict"], ["--set", "auto_heartbeat=false"], ["--root", "penstock"], ["--config", PIPELINES]],
)
def test_a_file_that_is_not_there_is_one_of_dispatch_where_anything_says_so(
    run: Run, flags: list[str]
) -> None:
    result = run("config", "check", "nope.toml", *flags)
    assert result.exit_code == 2
    assert "nope.toml: cannot be read: No such file" in result.stderr


def test_a_servers_file_and_one_of_dispatch_are_checked_together(run: Run) -> None:
    Path("server.toml").write_text('DW_AUTH_DRIVER = "none"\n')
    result = run("config", "check", "--config", "server.toml", "--config", PIPELINES)
    assert result.exit_code == 0, result.output
    assert "The dispatch configuration is valid" in result.stderr
    assert "The configuration is valid." in result.stderr


def test_show_says_where_each_value_comes_from(run: Run) -> None:
    flags = ("--config", PIPELINES, "--set", "auto_heartbeat=false", "--json")
    given = json.loads(run("config", "show", *flags).stdout)
    all_of_them = json.loads(run("config", "show", "--effective", *flags).stdout)
    assert {"name": "auto_heartbeat", "value": False, "source": "--set auto_heartbeat"} in given
    default = {"name": "worker_config.task_timeout", "value": "0:00:10", "source": "built-in"}
    assert default in all_of_them
    assert default not in given


def test_an_activity_without_a_name_is_not_explained(run: Run) -> None:
    result = run("dispatch", "explain", "", "--config", PIPELINES, env=NOBODY)
    assert result.exit_code == 2
    assert "ACTIVITY is empty" in result.stderr


def test_the_schema_is_json(run: Run) -> None:
    assert json.loads(run("config", "schema").stdout)["$defs"]["dispatch"]["type"] == "object"


def test_explain_shows_each_value_with_the_layers_that_lost(run: Run) -> None:
    result = run(*EXPLAIN, env=NOBODY)
    assert result.exit_code == 0, result.output
    lines = result.stdout.splitlines()
    assert lines[0] == "dispatch  act_llm_gen_text  routing_key=claude-4.6-opus"
    place = lines.index(f"        start_to_close_timeout=0:15:00          (handle_options)  {PIPELINES}:50")
    assert lines[place + 1] == f"            over 0:05:00  (queue_options)  {PIPELINES}:32"
    assert lines[place + 2] == f"            over 0:10:00  (baseline)  {PIPELINES}:4"
    assert "Who polls anthropic-queue is not known" in result.stderr


def test_explain_says_who_polls_the_queue_now(ask: Run, server: RecordedServer) -> None:
    server.answer(
        "GET",
        "/workers",
        {
            "workers": [
                {"worker_id": "w1", "status": "active", "supported_activity_types": ["act_llm_gen_text"]},
                {"worker_id": "w2", "status": "active", "supported_activity_types": ["other"]},
            ]
        },
    )
    result = ask(*EXPLAIN)
    assert server.only_request.query == {"task_queue": "anthropic-queue"}
    assert [line.split() for line in result.stdout.splitlines()[-2:]] == [
        ["w1", "active", "yes"],
        ["w2", "active", "no"],
    ]
    assert [row["worker_id"] for row in json.loads(ask(*EXPLAIN, "--json").stdout)["pollers"]] == ["w1", "w2"]


def test_explain_refuses_a_bad_configuration(run: Run) -> None:
    result = run(*EXPLAIN, "--set", "worker_config.oops=1", env=NOBODY)
    assert result.exit_code == 2
    assert "temporal.worker_config.oops (--set worker_config.oops): unknown key" in result.stderr


def test_the_file_of_the_folder_is_meant_when_none_is_named(run: Run) -> None:
    Path("pyproject.toml").write_text('[tool.penstock.worker_config]\ndefault_task_queue = "mine"\n')
    result = run("dispatch", "explain", "a", "--json", env=NOBODY)
    assert json.loads(result.stdout)["values"]["task_queue"]["lost"][0]["value"] == "mine"


def test_doctor_finds_queues_that_nobody_serves_and_ends_with_one(ask: Run, server: RecordedServer) -> None:
    Path("penstock.toml").write_text(
        '[penstock.worker_config.activity_queues.resize]\ndefault = "gpu"\n'
        "[penstock.queue_options.gpu]\nmax_task_queue_activities_per_second = 10\n"
    )
    server.answer("GET", "/workers", {"workers": [{"worker_id": "h", "task_queue": "default"}]})
    result = ask("dispatch", "doctor", "--json")
    assert result.exit_code == 1
    (finding,) = json.loads(result.stdout)["findings"]
    assert (finding["kind"], finding["subject"]) == ("queue_without_worker", "gpu")


def test_doctor_is_content_when_every_queue_is_served(ask: Run, server: RecordedServer) -> None:
    workers = [{"worker_id": "h", "task_queue": "default"}]
    server.answer("GET", "/workers", {"workers": workers})
    result = ask("dispatch", "doctor")
    assert result.exit_code == 0
    assert "is served" in result.stderr


def test_doctor_says_when_no_server_answers(run: Run) -> None:
    result = run("dispatch", "doctor", "--config", PIPELINES, env=NOBODY)
    assert result.exit_code == 3
    assert "Only the configuration was examined" in result.stderr
