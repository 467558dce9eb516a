"""Several files, the environment and flags: the last word wins, and each value knows who said it."""

from __future__ import annotations

import os
from datetime import timedelta
from pathlib import Path

import pytest

from penstock.dispatch import DispatchConfigError, load_dispatch
from penstock.dispatch.file.sources import has_root
from penstock.dispatch.inspection.effective import rows
from tests.dispatch.tables import PIPELINES


def _file(tmp_path: Path, name: str, text: str) -> Path:
    file = tmp_path / name
    file.write_text(text)
    return file


def test_a_later_file_wins_and_may_take_back_what_an_earlier_one_said(tmp_path: Path) -> None:
    later = _file(
        tmp_path,
        "production.toml",
        "[temporal.queue_options.anthropic-queue]\n"
        'heartbeat_timeout = "unset"\nstart_to_close_timeout = "0:07:00"\n'
        '[temporal.queue_options]\nimg-gen-gpu-queue = "unset"\n'
        "[temporal.worker_config.activity_queues.act_llm_gen_text.by_handle]\n"
        '"gpt-5.1" = "unset"\n'
        '[temporal.worker_config]\ntask_timeout = "unset"\n',
    )
    config = load_dispatch([PIPELINES, later], environ={})
    anthropic = config.queue_options["anthropic-queue"]
    assert anthropic.heartbeat_timeout is None
    assert anthropic.start_to_close_timeout == timedelta(minutes=7)
    assert anthropic.max_task_queue_activities_per_second == 50
    assert "img-gen-gpu-queue" not in config.queue_options
    assert config.resolve("act_llm_gen_text", "gpt-5.1", is_traced=False).task_queue == "llm-default-queue"
    assert config.worker_config.task_timeout is None
    sources = {row.path: row.source for row in rows(config)}
    assert sources["queue_options.anthropic-queue.start_to_close_timeout"] == f"{later}:3"
    assert sources["worker_config.default_task_queue"] == f"{PIPELINES}:3"
    assert sources["worker_config.workflow_execution_timeout"] == "built-in"


def test_what_always_has_a_value_goes_back_to_the_built_in_one(tmp_path: Path) -> None:
    ours = _file(
        tmp_path,
        "ours.toml",
        """
        [penstock.worker_config]
        default_task_queue = "mine"
        [penstock.worker_runtime_profiles.profiles.balanced]
        max_concurrent_activities = 7
        [penstock.queue_options.mine.retry_policy_config]
        maximum_attempts = 9
        """,
    )
    theirs = _file(
        tmp_path,
        "theirs.toml",
        """
        [penstock.worker_config]
        default_task_queue = "unset"
        [penstock.worker_runtime_profiles.profiles.balanced]
        max_concurrent_activities = "unset"
        [penstock.queue_options.mine.retry_policy_config]
        maximum_attempts = "unset"
        """,
    )
    config = load_dispatch([ours, theirs], environ={})
    assert config.worker_config.default_task_queue == "default"
    assert config.profile("balanced").max_concurrent_activities == 100
    assert config.worker_config.resolve_dispatch("a").retry_policy.maximum_attempts == 3


def test_the_environment_knows_queues_that_have_their_names_without_a_file(tmp_path: Path) -> None:
    file = _file(
        tmp_path,
        "x.toml",
        """
        [penstock.worker_config.activity_queues.act]
        default = "llm"
        by_pattern = [{match = "claude-*", queue = "by-pattern"}]
        """,
    )
    environ = {
        "PENSTOCK__QUEUE_OPTIONS__DEFAULT__HEARTBEAT_TIMEOUT": "0:00:30",
        "PENSTOCK__QUEUE_OPTIONS__BY_PATTERN__HEARTBEAT_TIMEOUT": "0:00:40",
    }
    options = load_dispatch(file, environ=environ).queue_options
    assert {
        name: str(each.heartbeat_timeout) for name, each in options.items() if each.heartbeat_timeout
    } == {
        "default": "0:00:30",
        "by-pattern": "0:00:40",
    }


@pytest.mark.parametrize(
    "variable",
    [
        "PENSTOCK__QUEUE_OPTIONS__ANTHROPIC-QUEUE__START_TO_CLOSE_TIMEOUT",
        "PENSTOCK__QUEUE_OPTIONS__ANTHROPIC_QUEUE__START_TO_CLOSE_TIMEOUT",
        "PENSTOCK__queue_options__anthropic-queue__start_to_close_timeout",
    ],
)
def test_the_environment_wins_over_files_in_any_spelling_of_a_name(variable: str) -> None:
    config = load_dispatch(PIPELINES, environ={variable: "0:07:00", "PENSTOCK_TOKEN": "x"})
    assert config.queue_options["anthropic-queue"].start_to_close_timeout == timedelta(minutes=7)
    sources = {row.path: row.source for row in rows(config)}
    assert sources["queue_options.anthropic-queue.start_to_close_timeout"] == f"environment {variable}"


def test_blanks_around_a_variable_are_not_meant() -> None:
    environ = {
        "PENSTOCK__WORKER_CONFIG__DEFAULT_TASK_QUEUE": "  at home ",
        "PENSTOCK__AUTO_HEARTBEAT": " false ",
    }
    config = load_dispatch(environ=environ)
    assert config.worker_config.default_task_queue == "at home"
    assert not config.auto_heartbeat
    quoted = load_dispatch(environ={"PENSTOCK__WORKER_CONFIG__DEFAULT_TASK_QUEUE": " ' at home' "})
    assert quoted.worker_config.default_task_queue == " at home"


def test_the_environment_names_handles_and_whole_tables_as_toml_has_them(tmp_path: Path) -> None:
    file = _file(
        tmp_path,
        "x.toml",
        """
        [penstock.worker_config.activity_queues.act]
        default = "llm"
        by_handle = {"claude-4.6" = "anth", "gpt" = "oai"}
        """,
    )
    by_handle = "PENSTOCK__WORKER_CONFIG__ACTIVITY_QUEUES__ACT__BY_HANDLE"
    patterns = "PENSTOCK__WORKER_CONFIG__ACTIVITY_QUEUES__ACT__BY_PATTERN"
    environ = {
        by_handle: '{"azure/gpt 5.1" = "azure", "gpt" = "unset"}',
        f"{by_handle}__CLAUDE_4_6": "careful",
        patterns: '[{match = "mistral-*", queue = "mistral"}]',
        "PENSTOCK__WORKER_CONFIG__ACTIVITY_QUEUES__ACT__HANDLE_OPTIONS__CLAUDE_4_6__START_TO_CLOSE_TIMEOUT": "5s",
        "PENSTOCK__QUEUE_OPTIONS__AZURE__HEARTBEAT_TIMEOUT": "7s",
        "PENSTOCK__WORKER_CONFIG__DEFAULT_TASK_QUEUE": "elsewhere",
        "PENSTOCK__QUEUE_OPTIONS__ELSEWHERE__HEARTBEAT_TIMEOUT": "8s",
    }
    config = load_dispatch(file, environ=environ)
    keys = ("azure/gpt 5.1", "gpt", "claude-4.6", "mistral-7")
    assert [config.resolve("act", key).task_queue for key in keys] == ["azure", "llm", "careful", "mistral"]
    assert config.resolve("act", "claude-4.6").start_to_close_timeout == timedelta(seconds=5)
    assert config.resolve("act", "azure/gpt 5.1").heartbeat_timeout == timedelta(seconds=7)
    assert config.resolve("other").heartbeat_timeout == timedelta(seconds=8)
    sources = {row.path: row.source for row in rows(config)}
    route = "worker_config.activity_queues.act"
    assert sources[f'{route}.by_handle."azure/gpt 5.1"'] == f"environment {by_handle}"
    assert sources[f'{route}.by_handle."claude-4.6"'] == f"environment {by_handle}__CLAUDE_4_6"
    assert sources[f"{route}.by_pattern[0].queue"] == f"environment {patterns}"


@pytest.mark.parametrize(
    ("variable", "words"),
    [
        ("PENSTOCK__QUEUE_OPTIONS__ANTROPIC_QUEUE__HEARTBEAT_TIMEOUT", "did you mean 'anthropic-queue'?"),
        ("PENSTOCK__QUEUE_OPTONS__X", "did you mean 'queue_options'?"),
        ("PENSTOCK__QUEUE_OPTIONS", "is a table, not a value; name a key of it, or write it whole as TOML"),
        (
            "PENSTOCK__WORKER_CONFIG__ACTIVITY_QUEUES__ACT_LLM_GEN_TEXT__BY_PATTERN",
            "is a list of tables, not a value",
        ),
        ("PENSTOCK__STRICT_QUEUES__X", "holds one value"),
    ],
)
def test_a_variable_that_names_nothing_is_refused(variable: str, words: str) -> None:
    with pytest.raises(DispatchConfigError) as refused:
        load_dispatch(PIPELINES, environ={variable: "0:01:00"})
    assert variable in str(refused.value)
    assert words in str(refused.value)


def test_flags_win_over_the_environment_and_values_are_read_as_what_is_wanted() -> None:
    config = load_dispatch(
        PIPELINES,
        environ={"PENSTOCK__WORKER_CONFIG__DEFAULT_TASK_QUEUE": "7", "PENSTOCK__STRICT_QUEUES": "false"},
        overrides=[
            "worker_config.default_activity_heartbeat_timeout=90s",
            "temporal.queue_options.openai-queue.max_task_queue_activities_per_second=2.5",
            'worker_config.activity_queues.act_llm_gen_text.by_handle."a=b"=openai-queue',
            'queue_options.openai-queue.retry_policy_config.non_retryable_error_types_extra=["X"]',
            "worker_config.default_task_queue=8",
        ],
    )
    assert config.worker_config.default_task_queue == "8"
    assert config.worker_config.default_activity_heartbeat_timeout == timedelta(seconds=90)
    assert config.queue_cap("openai-queue") == 2.5
    assert config.resolve("act_llm_gen_text", "a=b", is_traced=False).task_queue == "openai-queue"
    assert "X" in config.all_non_retryable_error_types()


@pytest.mark.parametrize(
    ("text", "queue"),
    [
        ('"a b"', "a b"),
        ("'a b'", "a b"),
        ('"a\\u0062"', "ab"),
        ("a b", "a b"),
        ("7", "7"),
        ('"half', '"half'),
    ],
)
def test_a_text_in_quotes_is_read_without_them(text: str, queue: str) -> None:
    variable = {"PENSTOCK__WORKER_CONFIG__DEFAULT_TASK_QUEUE": text}
    override = f"worker_config.default_task_queue={text}"
    for config in (load_dispatch(environ=variable), load_dispatch(environ={}, overrides=[override])):
        assert config.worker_config.default_task_queue == queue


def test_a_value_is_one_value() -> None:
    with pytest.raises(DispatchConfigError, match="must be a finite number"):
        load_dispatch(environ={}, overrides=["queue_rate_burst_seconds=5\nx=3"])


@pytest.mark.parametrize("override", ["", "=3", "worker_config", "a b=3", "worker_config.oops=3"])
def test_a_flag_that_is_no_path_and_value_is_refused(override: str) -> None:
    with pytest.raises(DispatchConfigError):
        load_dispatch(PIPELINES, environ={}, overrides=[override])


@pytest.mark.parametrize(
    ("text", "has"),
    [
        ('[tool.poetry.dependencies]\npenstock = "^0.1"\n', False),
        ('text = """\n[penstock.worker_config]\n"""\n', False),
        ('["tool"."penstock".worker_config]\n', True),
        ("[temporal]\n", True),
        ("[penstock.worker_config]\nbroken = \n", True),
    ],
)
def test_a_file_is_of_dispatch_if_it_has_the_table_and_not_if_it_has_the_word(
    tmp_path: Path, text: str, has: bool
) -> None:
    file = tmp_path / "pyproject.toml"
    file.write_text(text)
    assert has_root(file) is has


def test_a_pipe_is_refused_for_it_could_not_be_read_again(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe.toml"
    os.mkfifo(pipe)
    with pytest.raises(DispatchConfigError, match="it is a pipe; a configuration is read more than once"):
        load_dispatch(pipe, environ={})
    assert not has_root(pipe)


def test_a_path_that_cannot_be_looked_at_is_refused_with_the_cause(tmp_path: Path) -> None:
    with pytest.raises(DispatchConfigError, match="cannot be read: File name too long"):
        load_dispatch(tmp_path / ("x" * 5000), environ={})


def test_a_problem_is_told_on_one_line_whatever_the_names_are(tmp_path: Path) -> None:
    file = _file(tmp_path, "x.toml", '[penstock.queue_options."a\\nb"]\n')
    with pytest.raises(DispatchConfigError) as refused:
        load_dispatch(file, environ={})
    assert str(refused.value.problems[0]).startswith(r'penstock.queue_options."a\nb" ')


def test_a_table_that_only_a_flag_speaks_of_is_told_with_the_flag() -> None:
    with pytest.raises(DispatchConfigError) as refused:
        load_dispatch(PIPELINES, environ={}, overrides=["queue_option.gpu.heartbeat_timeout=1s"])
    (problem,) = refused.value.problems
    assert problem.origin == "--set queue_option.gpu.heartbeat_timeout"
