"""What loads, what loads with a warning, and what is refused: with the full path and the nearest right word."""

from __future__ import annotations

import tomllib
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from penstock.dispatch import DispatchConfigError, dispatch_from, load_dispatch
from penstock.errors import ConfigurationError, Reason
from tests.dispatch.tables import BASELINE, FULL, PIPELINES, R1, tree

_BAD_HANDLE = {"act_llm": {"default": "llm", "handle_options": {"opus": {"heartbeat_timeout": "0:01:00"}}}}
_CAPPED_HANDLE = {
    "act_llm": {"default": "llm", "handle_options": {"opus": {"max_task_queue_activities_per_second": 5}}}
}


def _home(**options: Any) -> dict[str, Any]:
    return tree(options={"home": options})


def _home_retry(**said: Any) -> dict[str, Any]:
    return _home(retry_policy_config={**FULL, **said})


@pytest.mark.parametrize(
    ("given", "path", "words"),
    [
        pytest.param(
            tree(R1, {"anth": {"retry_policy_config": {**FULL, "non_retryable_error_types": ["X"]}}}),
            "penstock.queue_options.anth.retry_policy_config.non_retryable_error_types",
            "not allowed on an overlay; overlays add with `non_retryable_error_types_extra`",
            id="V1",
        ),
        pytest.param(
            tree(retry_policy_config={**BASELINE, "non_retryable_error_types_extra": ["X"]}),
            "penstock.worker_config.retry_policy_config.non_retryable_error_types_extra",
            "not allowed on the baseline; the main list is `non_retryable_error_types`",
            id="V2",
        ),
        pytest.param(
            _home(start_to_close_timeot="0:01:00"),
            "penstock.queue_options.home.start_to_close_timeot",
            "unknown key; did you mean 'start_to_close_timeout'?",
            id="V3",
        ),
        pytest.param(
            tree(_BAD_HANDLE),
            "penstock.worker_config.activity_queues.act_llm.handle_options.opus.heartbeat_timeout",
            "heartbeat is a property of the queue",
            id="V4",
        ),
        pytest.param(
            tree(_CAPPED_HANDLE),
            "penstock.worker_config.activity_queues.act_llm.handle_options.opus"
            ".max_task_queue_activities_per_second",
            "the cap belongs to the queue",
            id="V5",
        ),
        pytest.param(
            tree({"act_llm": {"by_handle": {"opus": "anth"}}}),
            "penstock.worker_config.activity_queues.act_llm.default",
            "'default' is required",
            id="V6",
        ),
        pytest.param(
            _home(start_to_close_timeout="0:00:00"),
            "penstock.queue_options.home.start_to_close_timeout",
            "above 0",
            id="V7",
        ),
        pytest.param(
            _home(start_to_close_timeout="-0:00:01"),
            "penstock.queue_options.home.start_to_close_timeout",
            "above 0",
            id="V8",
        ),
        *(
            pytest.param(
                _home(max_task_queue_activities_per_second=rate),
                "penstock.queue_options.home.max_task_queue_activities_per_second",
                words,
                id=row,
            )
            for row, rate, words in [
                ("V9", 0, "above 0"),
                ("V10", -1, "above 0"),
                ("V12", "50", "is not a number"),
                ("V13", float("inf"), "not a finite number"),
                ("V14", float("nan"), "not a finite number"),
            ]
        ),
        pytest.param(
            _home_retry(backoff_coefficient=0.5),
            "penstock.queue_options.home.retry_policy_config.backoff_coefficient",
            "1 or more",
            id="V15",
        ),
        *(
            pytest.param(
                _home_retry(maximum_attempts=attempts),
                "penstock.queue_options.home.retry_policy_config.maximum_attempts",
                words,
                id=row,
            )
            for row, attempts, words in [
                ("V17", 0, "1 or more, or 'unlimited'"),
                ("V18", "infinite", "'unlimited'"),
                ("V19", 2.0, "not a whole number"),
            ]
        ),
        pytest.param(
            _home_retry(initial_interval="0:02:00"),
            "penstock.queue_options.home.retry_policy_config.maximum_interval",
            "0:01:00 is below the initial_interval of 0:02:00",
            id="V20",
        ),
        pytest.param(
            tree(default_activity_start_to_close_timeout="0:00:00"),
            "penstock.worker_config.default_activity_start_to_close_timeout",
            "above 0",
            id="V21",
        ),
        pytest.param(
            tree(workflow_execution_timeout="-1:00:00"),
            "penstock.worker_config.workflow_execution_timeout",
            "above 0",
            id="V22",
        ),
        pytest.param(
            tree({"act_llm": {"default": "llm", "by_handle": {"opus": 3}}}),
            "penstock.worker_config.activity_queues.act_llm.by_handle.opus",
            "3 is not the name of a task queue",
            id="V23",
        ),
        pytest.param(
            tree({"act_llm": {"default": ""}}),
            "penstock.worker_config.activity_queues.act_llm.default",
            "must not be empty",
            id="V24",
        ),
        pytest.param(
            _home(start_to_close_timeout=True),
            "penstock.queue_options.home.start_to_close_timeout",
            "a boolean, not a duration",
            id="V28",
        ),
        pytest.param(
            _home(start_to_close_timeout=tomllib.loads("t = 00:05:00")["t"]),
            "penstock.queue_options.home.start_to_close_timeout",
            "quote it",
            id="V29",
        ),
        pytest.param(
            tree(default_task_queue="__penstock-x"),
            "penstock.worker_config.default_task_queue",
            "reserved",
            id="a reserved name",
        ),
        pytest.param(
            tree(default_task_queue="q" * 201),
            "penstock.worker_config.default_task_queue",
            "at most 200",
            id="a name that is too long",
        ),
        pytest.param(
            tree(default_task_queue="a\nb"),
            "penstock.worker_config.default_task_queue",
            "control characters",
            id="a name with a newline",
        ),
        pytest.param(
            tree(task_timeout="0:03:00"), "penstock.worker_config.task_timeout", "at most 0:02:00", id="task"
        ),
        pytest.param(
            tree(task_queue="old"),
            "penstock.worker_config.task_queue",
            "its new name",
            id="both names of home",
        ),
        pytest.param(
            {"queue_options": 3}, "penstock.queue_options", "is not a table", id="a table that is none"
        ),
        pytest.param(
            {"worker_runtime_profiles": {"default_profile": "balancd"}},
            "penstock.worker_runtime_profiles.default_profile",
            "'balancd' is unknown; known: ['balanced']; did you mean 'balanced'?",
            id="an unknown default profile",
        ),
        pytest.param(
            {"worker_scopes": {"default_scope": "ful"}},
            "penstock.worker_scopes.default_scope",
            "did you mean 'full'?",
            id="an unknown default scope",
        ),
        *(
            pytest.param(
                {"worker_runtime_profiles": {"profiles": {"p": profile}}},
                f"penstock.worker_runtime_profiles.profiles.p.{key}",
                words,
                id=f"profile: {words}",
            )
            for profile, key, words in [
                (
                    {"tuning_mode": "resource_based"},
                    "tuning_mode",
                    "reserved, not implemented; use 'explicit'",
                ),
                ({"tuning_mode": "magic"}, "tuning_mode", "'magic' is unknown"),
                (
                    {"max_concurrent_activity_task_polls": 0},
                    "max_concurrent_activity_task_polls",
                    "0 polls cannot feed 100 activity slots",
                ),
                ({"max_concurrent_workflow_tasks": 0}, "max_concurrent_workflow_tasks", "1 or more"),
                ({"inherits": "nobody"}, "inherits", "'nobody' is no profile"),
                ({"inherits": "p"}, "inherits", "over one level only"),
            ]
        ),
        pytest.param(
            {"queue_rate_burst_seconds": 61}, "penstock.queue_rate_burst_seconds", "at most 60", id="burst"
        ),
    ],
)
def test_a_wrong_value_is_refused_by_its_full_path(given: dict[str, Any], path: str, words: str) -> None:
    with pytest.raises(DispatchConfigError) as refused:
        dispatch_from(given)
    (problem,) = refused.value.problems
    assert problem.path == path
    assert words in str(problem)


def test_every_problem_is_told_at_once() -> None:
    with pytest.raises(DispatchConfigError) as refused:
        dispatch_from(
            {
                "worker_confg": {},
                "queue_options": {"q": {"heartbeat_timeout": "x", "start_to_close_timeout": 0}},
                "worker_runtime_profiles": {"default_profile": "none"},
            },
            strict=True,
        )
    assert sorted(problem.path for problem in refused.value.problems) == [
        "penstock.queue_options.q",
        "penstock.queue_options.q.heartbeat_timeout",
        "penstock.queue_options.q.start_to_close_timeout",
        "penstock.worker_confg",
        "penstock.worker_runtime_profiles.default_profile",
    ]


def test_a_refusal_is_a_value_error_and_one_of_ours() -> None:
    with pytest.raises(ValueError) as refused:
        dispatch_from({"oops": 1})
    assert isinstance(refused.value, ConfigurationError)
    assert refused.value.reason is Reason.CONFIGURATION_INVALID


@pytest.mark.parametrize(
    "given",
    [
        pytest.param(_home(max_task_queue_activities_per_second=50), id="V11"),
        pytest.param(_home_retry(backoff_coefficient=2), id="V16"),
        pytest.param(_home(), id="V27"),
        pytest.param(_home(start_to_close_timeout=300), id="V30"),
        pytest.param(tree(start_delay="0:00:00"), id="a start delay of nothing"),
        pytest.param(
            _home_retry(initial_interval="0:02:00", maximum_attempts=1), id="no pause, so none too short"
        ),
    ],
)
def test_what_is_right_loads_without_a_word(given: dict[str, Any]) -> None:
    assert dispatch_from(given).warnings == ()


@pytest.mark.parametrize(
    ("given", "warnings"),
    [
        pytest.param(
            tree({"act_llm": {"default": "anthrpic"}}, {"anthropic": {}}),
            [
                (
                    "penstock.worker_config.activity_queues.act_llm.default",
                    "task queue 'anthrpic' has no queue_options; activities there use the baseline;"
                    " did you mean 'anthropic'?",
                ),
                ("penstock.queue_options.anthropic", "nothing routes to task queue 'anthropic'"),
            ],
            id="V25",
        ),
        pytest.param(
            tree(options={"orphan": {}}),
            [("penstock.queue_options.orphan", "these options never apply")],
            id="V26",
        ),
        pytest.param(
            {"worker_config": {"task_queue": "home"}},
            [("penstock.worker_config.task_queue", "the old name of `default_task_queue`")],
            id="the old name of home",
        ),
        pytest.param(
            _home(heartbeat_timeout="0:20:00"),
            [
                (
                    "penstock.queue_options.home.heartbeat_timeout",
                    "above the start_to_close_timeout of 0:10:00",
                )
            ],
            id="a heartbeat longer than the attempt",
        ),
        pytest.param(
            _home(schedule_to_close_timeout="0:05:00"),
            [("penstock.queue_options.home.start_to_close_timeout", "above the schedule_to_close_timeout")],
            id="an attempt longer than all attempts",
        ),
        pytest.param(
            tree(
                options={"home": {"start_to_close_timeout": "0:25:00"}}, workflow_execution_timeout="1:00:00"
            ),
            [("penstock.queue_options.home.start_to_close_timeout", "3 attempts of 0:25:00 do not fit")],
            id="attempts that cannot all fit",
        ),
        pytest.param(
            tree(
                options={"home": {"start_to_close_timeout": "2:00:00"}}, workflow_execution_timeout="1:00:00"
            ),
            [("penstock.queue_options.home.start_to_close_timeout", "above the workflow_execution_timeout")],
            id="an attempt longer than its workflow",
        ),
        pytest.param(
            tree(run_timeout="2:00:00", workflow_execution_timeout="1:00:00"),
            [("penstock.worker_config.run_timeout", "above workflow_execution_timeout")],
            id="a run longer than its workflow",
        ),
        pytest.param(
            {
                "worker_runtime_profiles": {
                    "profiles": {"p": {"default_heartbeat_throttle_interval": "0:02:00"}}
                }
            },
            [
                (
                    "penstock.worker_runtime_profiles.profiles.p.default_heartbeat_throttle_interval",
                    "0:01:00 is in force",
                )
            ],
            id="a throttle above its bound",
        ),
        pytest.param(
            {"worker_runtime_profiles": {"profiles": {"p": {"max_concurrent_activities": 0}}}},
            [
                (
                    "penstock.worker_runtime_profiles.profiles.p.max_concurrent_activity_task_polls",
                    "5 polls are ignored",
                )
            ],
            id="polls without slots",
        ),
    ],
)
def test_what_is_probably_not_meant_loads_with_a_warning(
    given: dict[str, Any], warnings: list[tuple[str, str]]
) -> None:
    found = dispatch_from(given).warnings
    assert [warning.path for warning in found] == [path for path, _ in warnings]
    for warning, (_, words) in zip(found, warnings, strict=True):
        assert words in str(warning)


@pytest.mark.parametrize("how", ["flag", "key"])
def test_strict_queues_turn_the_warnings_about_queues_into_errors(how: str) -> None:
    given = tree({"act_llm": {"default": "anthrpic"}}, {"anthropic": {}})
    if how == "key":
        given["strict_queues"] = True
    with pytest.raises(DispatchConfigError) as refused:
        dispatch_from(given, strict=how == "flag")
    assert len(refused.value.problems) == 2


def test_the_published_file_loads_as_it_is_with_four_warnings() -> None:
    config = load_dispatch(PIPELINES, environ={})
    assert [str(warning).partition("task queue ")[2].split("'")[1] for warning in config.warnings] == [
        "llm-default-queue",
        "openai-queue",
        "extract-default-queue",
        "extract-azure-queue",
    ]
    assert config.root == "temporal"
    assert config.profile().name == "balanced"
    router, gpu = config.profile("router"), config.profile("gpu")
    assert (router.max_concurrent_activities, router.activity_task_polls) == (0, 0)
    assert (gpu.max_concurrent_activities, gpu.graceful_shutdown_timeout) == (4, timedelta(minutes=1))
    assert config.queue_cap("img-gen-gpu-queue") == 10
    assert config.is_traced


def test_the_published_file_is_refused_when_queues_are_strict() -> None:
    with pytest.raises(DispatchConfigError) as refused:
        load_dispatch(PIPELINES, environ={}, strict=True)
    assert len(refused.value.problems) == 4


def test_keys_of_other_programs_are_accepted_and_named() -> None:
    config = dispatch_from(
        {
            "is_enabled": True,
            "payload_codec_config": {"x": 1},
            "temporal_config": {
                "selected_server": "s",
                "temporal_log_config": {"is_dispatch_resolution_traced": True, "is_other_logged": False},
            },
        },
        "temporal",
    )
    assert config.is_traced
    assert config.unused == (
        "temporal.is_enabled",
        "temporal.payload_codec_config",
        "temporal.temporal_config.selected_server",
        "temporal.temporal_config.temporal_log_config.is_other_logged",
    )


@pytest.mark.parametrize(("root", "home"), [("temporal", "temporal_task_queue"), ("penstock", "default")])
def test_the_home_queue_is_capped_whatever_it_is_called(root: str, home: str) -> None:
    config = dispatch_from({}, root)
    assert config.worker_config.default_task_queue == home
    assert config.queue_cap(home) == 1000
    assert dispatch_from({"worker_config": {"default_task_queue": "mine"}}).queue_cap("mine") == 1000
    unset = {"queue_options": {home: {"max_task_queue_activities_per_second": "unset"}}}
    assert dispatch_from(unset, root).queue_cap(home) is None


def test_a_profile_takes_what_it_leaves_out_from_the_one_it_inherits() -> None:
    config = dispatch_from(
        {
            "worker_runtime_profiles": {
                "profiles": {
                    "gpu": {"max_concurrent_activities": 4},
                    "small": {"inherits": "gpu", "max_cached_workflows": 7},
                }
            }
        }
    )
    small = config.profile("small")
    assert (small.max_concurrent_activities, small.max_cached_workflows) == (4, 7)
    assert small.max_concurrent_workflow_tasks == 100


def test_heartbeats_are_sent_before_their_timeout_and_not_too_rarely() -> None:
    profile = dispatch_from({}).profile()
    assert profile.heartbeat_interval(timedelta(seconds=1)) == timedelta(milliseconds=800)
    assert profile.heartbeat_interval(None) == timedelta(seconds=30)
    assert profile.heartbeat_interval(timedelta(hours=1)) == timedelta(minutes=1)


def test_a_file_without_a_root_table_gives_the_defaults(tmp_path: Path) -> None:
    file = tmp_path / "pyproject.toml"
    file.write_text('[project]\nname = "x"\n')
    assert load_dispatch(file, environ={}) == dispatch_from({})


@pytest.mark.parametrize("root", ["penstock", "temporal", "tool.penstock"])
def test_the_root_table_is_found(tmp_path: Path, root: str) -> None:
    file = tmp_path / "x.toml"
    file.write_text(f'[{root}.worker_config]\ndefault_task_queue = "mine"\n[other]\nx = 1\n')
    config = load_dispatch(file, environ={})
    assert (config.root, config.worker_config.default_task_queue) == (root, "mine")


def test_two_root_tables_need_a_word_which_is_meant(tmp_path: Path) -> None:
    file = tmp_path / "x.toml"
    file.write_text('[penstock.worker_config]\ndefault_task_queue = "a"\n[temporal]\n')
    with pytest.raises(DispatchConfigError, match=r"has \[penstock\] and \[temporal\]; say which"):
        load_dispatch(file, environ={})
    assert load_dispatch(file, "penstock", environ={}).worker_config.default_task_queue == "a"


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b'[penstock]\nx = "\n', "x.toml:2: is not valid TOML"),
        (b"[penstock]\nx = '\xff'\n", "x.toml:2: is not UTF-8 text"),
        (b"penstock = 3\n[temporal]\nworker_config = 3\n", "temporal.worker_config"),
        (None, "cannot be read: No such file"),
    ],
)
def test_a_file_that_cannot_be_read_is_named_with_the_line(
    tmp_path: Path, content: bytes | None, words: str
) -> None:
    file = tmp_path / "x.toml"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(DispatchConfigError) as refused:
        load_dispatch(file, environ={})
    assert words in str(refused.value)


def test_a_problem_in_a_file_says_its_line(tmp_path: Path) -> None:
    file = tmp_path / "x.toml"
    file.write_text(
        "[penstock.worker_config.activity_queues.a]\n"
        'default = "q"\n'
        "by_handle = { # comment with } and ' in it\n"
        '  "x = {" = "one", # another\n'
        "  y = 3,\n"
        "}\n"
        '[[penstock.worker_config.activity_queues.a.by_pattern]]\nmatch = "*"\nqueue = 4\n'
        '[penstock.worker_config.activity_queues.a.handle_options]\nx.start_to_close_timeout = """\nsoon"""\n'
    )
    with pytest.raises(DispatchConfigError) as refused:
        load_dispatch(file, environ={})
    found = {
        problem.path.rpartition("activity_queues.a.")[2]: problem.origin for problem in refused.value.problems
    }
    assert found == {
        "by_handle.y": f"{file}:5",
        "by_pattern[0].queue": f"{file}:9",
        "handle_options.x.start_to_close_timeout": f"{file}:11",
    }


def test_the_fingerprint_changes_with_the_values_in_force_and_not_with_their_spelling() -> None:
    one = dispatch_from(_home(start_to_close_timeout="0:05:00"))
    same = dispatch_from(_home(start_to_close_timeout=300))
    other = dispatch_from(_home(start_to_close_timeout=301))
    assert one.fingerprint == same.fingerprint
    assert one.fingerprint != other.fingerprint
    assert len(one.fingerprint) == 64
