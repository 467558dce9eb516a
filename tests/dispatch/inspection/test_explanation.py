"""Why an activity is dispatched as it is, with the layers that lost."""

from __future__ import annotations

from penstock.dispatch import dispatch_from, load_dispatch
from penstock.dispatch.inspection.explanation import explain
from tests.dispatch.tables import PIPELINES, QA, R1, R2, made


def test_each_value_has_its_source_its_line_and_those_it_beat() -> None:
    config = load_dispatch(PIPELINES, environ={})
    body = explain(config, "act_llm_gen_text", "claude-4.6-opus").as_json()
    timeout = body["values"]["start_to_close_timeout"]
    assert timeout == {
        "value": "0:15:00",
        "source": "handle_options",
        "path": 'worker_config.activity_queues.act_llm_gen_text.handle_options."claude-4.6-opus"'
        ".start_to_close_timeout",
        "origin": f"{PIPELINES}:50",
        "lost": [
            {
                "value": "0:10:00",
                "source": "baseline",
                "path": "worker_config.default_activity_start_to_close_timeout",
                "origin": f"{PIPELINES}:4",
            },
            {
                "value": "0:05:00",
                "source": "queue_options",
                "path": "queue_options.anthropic-queue.start_to_close_timeout",
                "origin": f"{PIPELINES}:32",
            },
        ],
    }
    queue = body["values"]["task_queue"]
    assert (queue["value"], queue["source"]) == ("anthropic-queue", "activity_queues.by_handle")
    assert [lost["value"] for lost in queue["lost"]] == ["temporal_task_queue", "llm-default-queue"]
    assert body["values"]["retry.maximum_interval"]["lost"][0]["origin"] == "built-in"
    assert body["warnings"] == []


def test_only_the_warnings_that_concern_the_call_are_told() -> None:
    config = load_dispatch(PIPELINES, environ={})
    (warning,) = explain(config, "act_llm_gen_text", "gpt-5.1").warnings
    assert "'openai-queue' has no queue_options" in warning
    (stranger,) = explain(config, "act_llm_gen_txt").warnings
    assert "no route is for 'act_llm_gen_txt'; it goes to 'temporal_task_queue'" in stranger
    misspelt = explain(config, "act_llm_gen_text", "claude-4.6-opuss").warnings
    assert "the route knows no key 'claude-4.6-opuss'; did you mean 'claude-4.6-opus'?" in misspelt
    assert not any("no key" in each for each in explain(config, "act_llm_gen_text", "mistral").warnings)
    assert "did you mean 'act_llm_gen_text'?" in stranger


def test_timeouts_that_cannot_be_are_shown_with_what_cuts_them() -> None:
    config = made(
        R1,
        {"anth": {"start_to_close_timeout": "3:00:00", "heartbeat_timeout": "4:00:00"}},
        run_timeout="2:00:00",
    )
    cuts = {cut.name: (cut.effective, cut.why) for cut in explain(config, "act_llm", "opus").cuts}
    assert cuts == {
        "start_to_close_timeout": ("1:00:00", "the run of the workflow"),
        "heartbeat_timeout": ("1:00:00", "the run of the workflow"),
    }
    within = made(R1, {"anth": {"schedule_to_close_timeout": "0:05:00", "heartbeat_timeout": "0:06:00"}})
    cuts = {cut.name: (cut.effective, cut.why) for cut in explain(within, "act_llm", "opus").cuts}
    assert cuts == {
        "start_to_close_timeout": ("0:05:00", "schedule_to_close_timeout"),
        "heartbeat_timeout": ("0:05:00", "start_to_close_timeout"),
    }


def test_without_routes_the_activity_rides_the_workflows_queue_with_the_options_of_home() -> None:
    explanation = explain(made(options={"home": {"start_to_close_timeout": 5}}), "a")
    assert explanation.values[0].won.source == "workflow's own queue"
    assert explanation.served_queue == "home"
    assert explanation.values[1].won.value == "0:00:05"


def test_a_pattern_is_named_by_its_place() -> None:
    config = made({"a": {"default": "d", "by_pattern": [{"match": "x*", "queue": "q"}]}})
    won = explain(config, "a", "xy").values[0].won
    assert (won.value, won.source) == ("q", "activity_queues.by_pattern")
    assert won.path == "worker_config.activity_queues.a.by_pattern[0].queue"


def test_what_never_retried_names_came_from_is_told() -> None:
    explanation = explain(made(R2, QA), "act_llm", "opus")
    assert explanation.values[-1].won.value == "['Auth','VE']"
    assert explanation.values[-1].won.source == "baseline + queue_extra"


def test_warnings_are_told_under_the_root_of_a_project_file_too() -> None:
    config = dispatch_from({"worker_config": {"activity_queues": {"a": {"default": "q"}}}}, "tool.penstock")
    (warning,) = explain(config, "a").warnings
    assert warning.startswith("tool.penstock.worker_config.activity_queues.a.default")
    (unknown,) = config.unknown_activities(["b"])
    assert unknown.path == "tool.penstock.worker_config.activity_queues.a"
