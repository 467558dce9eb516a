"""What loads, what loads with a warning, and what is refused: with the full path and the nearest right word."""

from __future__ import annotations

import copy
import pickle
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from penstock.dispatch import DispatchConfigError, dispatch_from, load_dispatch
from penstock.errors import ConfigurationError, Reason
from tests.dispatch.refusals import REFUSED, home, home_retry
from tests.dispatch.tables import PIPELINES, tree


@pytest.mark.parametrize(("given", "path", "words"), REFUSED)
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
        pytest.param(home(max_task_queue_activities_per_second=50), id="V11"),
        pytest.param(home_retry(backoff_coefficient=2), id="V16"),
        pytest.param(home(), id="V27"),
        pytest.param(home(start_to_close_timeout=300), id="V30"),
        pytest.param(tree(start_delay="0:00:00"), id="a start delay of nothing"),
        pytest.param(
            home_retry(initial_interval="0:02:00", maximum_attempts=1), id="no pause, so none too short"
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
            home(heartbeat_timeout="0:20:00"),
            [
                (
                    "penstock.queue_options.home.heartbeat_timeout",
                    "above the start_to_close_timeout of 0:10:00",
                )
            ],
            id="a heartbeat longer than the attempt",
        ),
        pytest.param(
            home(schedule_to_close_timeout="0:05:00"),
            [
                (
                    "penstock.worker_config.default_activity_start_to_close_timeout",
                    "above the schedule_to_close_timeout",
                )
            ],
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


@pytest.mark.parametrize(
    ("root", "words"),
    [("penstok", r"x.toml: has no table \[penstok\]; there is \[temporal\]"), ("", r"has no table \[\]")],
)
def test_a_root_table_that_is_asked_for_is_meant_to_be_there(tmp_path: Path, root: str, words: str) -> None:
    file, other = tmp_path / "x.toml", tmp_path / "other.toml"
    file.write_text("[temporal]\n")
    other.write_text("[mine.worker_config]\n")
    with pytest.raises(DispatchConfigError, match=words):
        load_dispatch(file, root, environ={})
    assert load_dispatch([file, other], "mine", environ={}).root == "mine"
    assert load_dispatch((), "mine", environ={}).files == ()


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
        (b"[penstock]\nx = '\xff'\n", "x.toml:2: is not valid TOML: line 2: not UTF-8 text"),
        (b"penstock = 3\n[temporal]\nworker_config = 3\n", "temporal.worker_config"),
        (b"temporal = 3\n", "temporal"),
        (b"[[penstock]]\nx = 1\n", "penstock"),
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


def test_what_was_loaded_cannot_be_changed() -> None:
    config = dispatch_from(tree({"act": {"default": "q", "by_handle": {"x": "q"}}}, {"q": {}}))
    route = config.worker_config.activity_queues["act"]
    tables: list[Any] = [
        config.worker_config.activity_queues,
        route.by_handle,
        route.handle_options,
        config.queue_options,
        config.worker_runtime_profiles.profiles,
        config.worker_scopes.scopes,
        config.origins,
    ]
    for table in tables:
        for change in (
            table.clear,
            lambda table=table: table.update(q=1),
            lambda table=table: table.pop("q"),
        ):
            with pytest.raises(TypeError, match="does not change"):
                change()
    with pytest.raises(AttributeError):
        config.strict_queues = True  # type: ignore[misc]
    for copied in (pickle.loads(pickle.dumps(config)), copy.deepcopy(config)):
        assert copied == config
        assert copied.resolve("act", "x") == config.resolve("act", "x")


def test_the_fingerprint_changes_with_the_values_in_force_and_not_with_their_spelling() -> None:
    one = dispatch_from(home(start_to_close_timeout="0:05:00"))
    same = dispatch_from(home(start_to_close_timeout=300))
    other = dispatch_from(home(start_to_close_timeout=301))
    assert one.fingerprint == same.fingerprint
    assert one.fingerprint != other.fingerprint
    assert len(one.fingerprint) == 64


def test_the_default_scope_may_stand_for_a_tag(tmp_path: Path) -> None:
    file = tmp_path / "x.toml"
    file.write_text('[penstock.worker_scopes]\ndefault_scope = "runner-gpu"\n')
    assert load_dispatch(file, environ={}).scope().tags == ("gpu",)


def test_an_attempt_that_does_not_fit_into_the_workflow_is_told_also_of_the_built_in_budget(
    tmp_path: Path,
) -> None:
    file = tmp_path / "x.toml"
    file.write_text('[penstock.queue_options.default]\nstart_to_close_timeout = "2:00:00"\n')
    [warning] = load_dispatch(file, environ={}).warnings
    assert "above the workflow_execution_timeout of 1:00:00" in warning.message


@pytest.mark.parametrize(
    ("text", "where", "words"),
    [
        (
            '[penstock.queue_options.llm]\nheartbeat_timeout = "0:01:00"\n'
            '[penstock.worker_config.activity_queues.act.handle_options.quick]\nstart_to_close_timeout = "0:00:30"\n',
            "queue_options.llm.heartbeat_timeout",
            "above the start_to_close_timeout of 0:00:30",
        ),
        (
            '[penstock.worker_config]\ndefault_activity_heartbeat_timeout = "0:05:00"\n'
            '[penstock.queue_options.llm]\nstart_to_close_timeout = "0:01:00"\n',
            "worker_config.default_activity_heartbeat_timeout",
            "above the start_to_close_timeout of 0:01:00",
        ),
        (
            '[penstock.queue_options.llm]\nschedule_to_close_timeout = "0:20:00"\n'
            '[penstock.worker_config.activity_queues.act.handle_options.slow]\nstart_to_close_timeout = "0:30:00"\n',
            "handle_options.slow.start_to_close_timeout",
            "above the schedule_to_close_timeout of 0:20:00",
        ),
        (
            '[penstock.worker_config]\nworkflow_execution_timeout = "1:00:00"\n'
            "[penstock.queue_options.llm.retry_policy_config]\nmaximum_attempts = 20\n",
            "worker_config.default_activity_start_to_close_timeout",
            "20 attempts of 0:10:00 do not fit",
        ),
    ],
)
def test_timeouts_are_compared_as_they_meet_in_a_call(
    tmp_path: Path, text: str, where: str, words: str
) -> None:
    file = tmp_path / "x.toml"
    file.write_text(f'{text}[penstock.worker_config.activity_queues.act]\ndefault = "llm"\n')
    found = [warning for warning in load_dispatch(file, environ={}).warnings if words in warning.message]
    assert [warning.path.endswith(where) for warning in found] == [True]


_PATTERNS = """
[penstock.worker_config.activity_queues.act]
default = "default"
by_pattern = [{match = "claude-o*", queue = "early"}, {match = "claude-*", queue = "anth"}]
handle_options_by_pattern = [{match = "%s", %s}]
[penstock.queue_options.early]
[penstock.queue_options.anth]
%s
"""


@pytest.mark.parametrize("match", ["*-4", "claude-?-4", "claude-[!o]*", "claude-[a-f]*"])
def test_options_that_meet_only_where_two_patterns_do_are_compared_too(tmp_path: Path, match: str) -> None:
    file = tmp_path / "x.toml"
    file.write_text(
        _PATTERNS % (match, 'start_to_close_timeout = "0:00:30"', 'heartbeat_timeout = "0:01:00"')
    )
    [warning] = load_dispatch(file, environ={}).warnings
    assert warning.path == "penstock.queue_options.anth.heartbeat_timeout"
    pauses = 'retry_policy_config = {maximum_interval = "0:01:00"}'
    file.write_text(_PATTERNS % (match, pauses, 'retry_policy_config = {initial_interval = "0:05:00"}'))
    with pytest.raises(DispatchConfigError) as refused:
        load_dispatch(file, environ={})
    [problem] = refused.value.problems
    assert problem.hint.startswith("seen for act with routing key 'claude-")
    assert problem.path.endswith("handle_options_by_pattern[0].retry_policy_config.maximum_interval")
    assert "below the initial_interval of 0:05:00" in problem.message


@pytest.mark.parametrize("match", ["claude-opus*", "gpt-*", "claude-o?"])
def test_patterns_that_never_meet_are_not_compared(tmp_path: Path, match: str) -> None:
    file = tmp_path / "x.toml"
    pauses = 'retry_policy_config = {maximum_interval = "0:01:00"}'
    file.write_text(_PATTERNS % (match, pauses, 'retry_policy_config = {initial_interval = "0:05:00"}'))
    assert load_dispatch(file, environ={}).warnings == ()


def test_the_overlay_of_retries_has_the_name_that_its_specification_gives_it() -> None:
    from penstock.dispatch import QueueOptions, RetryOverlay, RetryPolicyConfigOverlay

    overlay = RetryPolicyConfigOverlay(non_retryable_error_types_extra=("InvalidOrder",))
    assert QueueOptions(retry_policy_config=overlay).as_layer().retry is overlay
    assert RetryOverlay is RetryPolicyConfigOverlay, "the earlier name still works"
