"""Where an activity goes and with which options: every row of the table of cases, and the laws behind them."""

from __future__ import annotations

import pickle
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.dispatch import (
    DispatchConfig,
    DispatchOptions,
    Layer,
    RetryPolicy,
    RetryPolicyConfigOverlay,
    dispatch_from,
)
from tests.dispatch.tables import BASELINE, FULL, QA, R1, R2, made

_ONLY_OPTIONS = {
    "act_llm": {"default": "llm", "handle_options": {"opus": {"start_to_close_timeout": "0:15:00"}}}
}


@pytest.mark.parametrize(
    ("routes", "activity", "key", "queue"),
    [
        pytest.param({}, "act_llm", "opus", None, id="Q1 no routes: the workflow's own queue"),
        pytest.param({}, "act_llm", None, None, id="Q2 no routes, no key"),
        pytest.param(R1, "act_llm", "opus", "anth", id="Q3 a listed handle"),
        pytest.param(R1, "act_llm", "mistral", "llm", id="Q4 a handle that is not listed"),
        pytest.param(R1, "act_llm", None, "llm", id="Q5 no key"),
        pytest.param(R1, "act_llm", "", "llm", id="Q6 the empty key is a key like any other"),
        pytest.param(R1, "act_img", "opus", "gpu", id="Q7 an activity without handles"),
        pytest.param(R1, "act_other", None, "home", id="Q8 an activity without a route"),
        pytest.param(R1, "act_other", "opus", "home", id="Q9 another activity's handles do not count"),
        pytest.param(R1, "act_llm", "Opus", "llm", id="Q10 case matters"),
        pytest.param(
            {"act_llm": {"default": "llm", "by_handle": {"opus": "home"}}},
            "act_llm",
            "opus",
            "home",
            id="Q11",
        ),
        pytest.param(
            {"act_llm": {"default": "home"}}, "act_llm", None, "home", id="Q12 home, said explicitly"
        ),
        pytest.param({"act_llm": {"default": "llm", "by_handle": {}}}, "act_llm", "opus", "llm", id="Q13"),
        pytest.param(_ONLY_OPTIONS, "act_llm", "opus", "llm", id="Q14 options make no route"),
        pytest.param(
            {"act_llm": {"default": "llm", "by_handle": {" ": "oai"}}},
            "act_llm",
            " ",
            "oai",
            id="a blank key",
        ),
        pytest.param(
            {"act_llm": {"default": "llm", "by_handle": {"azure/gpt 5.1": "oai"}}},
            "act_llm",
            "azure/gpt 5.1",
            "oai",
            id="Q15 any characters",
        ),
    ],
)
def test_the_queue_is_the_handles_or_the_activitys_or_home(
    routes: dict[str, Any], activity: str, key: str | None, queue: str | None
) -> None:
    config = made(routes)
    assert config.worker_config.resolve_queue(activity, key) == queue
    assert config.resolve(activity, key).task_queue == queue


_RETRY_F = {"ii": "0:00:01", "bc": 2.0, "mi": "0:01:00", "ma": 5}
_D5 = {"q": "anth", "stc": "0:05:00", "hb": "0:01:00", **_RETRY_F, "nr": ["VE", "Auth"]}
_HANDLE_RETRY = {
    "act_llm": {
        "default": "anth",
        "handle_options": {
            "opus": {
                "retry_policy_config": {
                    **FULL,
                    "maximum_attempts": 2,
                    "non_retryable_error_types_extra": ["H"],
                }
            }
        },
    }
}
_HANDLE_RETRY_NO_EXTRA = {
    "act_llm": {
        "default": "anth",
        "handle_options": {"opus": {"retry_policy_config": {**FULL, "maximum_attempts": 2}}},
    }
}


def _anth(**options: Any) -> dict[str, Any]:
    return {"anth": options}


def _retry(**said: Any) -> dict[str, Any]:
    return _anth(retry_policy_config=said)


@pytest.mark.parametrize(
    ("config", "activity", "key", "expected"),
    [
        pytest.param(made(), "a", None, {}, id="D1"),
        pytest.param(
            made(options={"home": {"start_to_close_timeout": "0:05:00"}}),
            "a",
            "opus",
            {"stc": "0:05:00"},
            id="D2 without routes the home queue's options still apply",
        ),
        pytest.param(made(options={"else": {"start_to_close_timeout": "0:05:00"}}), "a", None, {}, id="D3"),
        pytest.param(made(R1), "act_llm", "opus", {"q": "anth"}, id="D4"),
        pytest.param(made(R1, QA), "act_llm", "opus", _D5, id="D5"),
        pytest.param(made(R1, QA), "act_llm", "gpt", {"q": "oai"}, id="D6"),
        pytest.param(made(R2, QA), "act_llm", "opus", {**_D5, "stc": "0:15:00"}, id="D7"),
        pytest.param(made(R2), "act_llm", "opus", {"q": "anth", "stc": "0:15:00"}, id="D8"),
        pytest.param(made(R2, QA), "act_llm", "sonnet", {"q": "llm"}, id="D9"),
        pytest.param(
            made(_ONLY_OPTIONS, {"llm": {"start_to_close_timeout": "0:02:00"}}),
            "act_llm",
            "opus",
            {"q": "llm", "stc": "0:15:00"},
            id="D10",
        ),
        pytest.param(made({**R2, "act_obj": {"default": "anth"}}, QA), "act_obj", "opus", _D5, id="D11"),
        pytest.param(made(R2, QA), "act_llm", None, {"q": "llm"}, id="D12"),
        pytest.param(
            made(R1, {"home": {"start_to_close_timeout": "0:00:20"}}),
            "act_other",
            "opus",
            {"q": "home", "stc": "0:00:20"},
            id="D13",
        ),
        pytest.param(
            made(R1, _anth(start_to_close_timeout="0:05:00"), default_activity_heartbeat_timeout="0:01:00"),
            "act_llm",
            "opus",
            {"q": "anth", "stc": "0:05:00", "hb": "0:01:00"},
            id="D14",
        ),
        pytest.param(
            made(R1, _anth(heartbeat_timeout="0:00:30"), default_activity_heartbeat_timeout="0:01:00"),
            "act_llm",
            "opus",
            {"q": "anth", "hb": "0:00:30"},
            id="D15",
        ),
        pytest.param(
            made(R1, _anth(schedule_to_close_timeout="1:00:00", schedule_to_start_timeout="0:00:10")),
            "act_llm",
            "opus",
            {"q": "anth", "sc2": "1:00:00", "s2s": "0:00:10"},
            id="D16",
        ),
        pytest.param(made(R1, _anth()), "act_llm", "opus", {"q": "anth"}, id="D17"),
        pytest.param(
            made(R1, _anth(start_to_close_timeout="0:10:00")), "act_llm", "opus", {"q": "anth"}, id="D18"
        ),
        pytest.param(
            made(R1, _anth(start_to_close_timeout="0:00:05")),
            "act_llm",
            "opus",
            {"q": "anth", "stc": "0:00:05"},
            id="D19 shorter wins as well",
        ),
        pytest.param(
            made(R1, _anth(max_task_queue_activities_per_second=50)),
            "act_llm",
            "opus",
            {"q": "anth"},
            id="D20",
        ),
        pytest.param(made(R1, QA), "act_llm", "opus", _D5, id="N1"),
        pytest.param(
            made(R1, _retry(**FULL, non_retryable_error_types_extra=["B", "VE", "B"])),
            "act_llm",
            "opus",
            {"q": "anth", **_RETRY_F, "nr": ["VE", "B"]},
            id="N2",
        ),
        pytest.param(
            made(_HANDLE_RETRY, QA), "act_llm", "opus", {**_D5, "ma": 2, "nr": ["VE", "Auth", "H"]}, id="N3"
        ),
        pytest.param(made(_HANDLE_RETRY_NO_EXTRA, QA), "act_llm", "opus", {**_D5, "ma": 2}, id="N4"),
        pytest.param(made(R1, _retry(**FULL)), "act_llm", "opus", {"q": "anth", **_RETRY_F}, id="N5"),
        pytest.param(
            made(R1, _retry(**{**FULL, "maximum_attempts": "unlimited"})),
            "act_llm",
            "opus",
            {"q": "anth", **_RETRY_F, "ma": "unlimited"},
            id="N6",
        ),
        pytest.param(
            made(R1, _retry(**{**FULL, "maximum_interval": "unlimited"})),
            "act_llm",
            "opus",
            {"q": "anth", **_RETRY_F, "mi": "unlimited"},
            id="N7",
        ),
        pytest.param(
            made(R1, _retry(maximum_attempts=7)), "act_llm", "opus", {"q": "anth", "ma": 7}, id="N8"
        ),
        pytest.param(
            made(R1, _retry(non_retryable_error_types_extra=["X"])),
            "act_llm",
            "opus",
            {"q": "anth", "nr": ["VE", "X"]},
            id="N9",
        ),
        pytest.param(
            made(R1, _retry(**{**FULL, "maximum_attempts": 1})),
            "act_llm",
            "opus",
            {"q": "anth", **_RETRY_F, "ma": 1},
            id="N10",
        ),
        pytest.param(
            made(
                options={"home": {"retry_policy_config": {**FULL, "non_retryable_error_types_extra": ["X"]}}}
            ),
            "a",
            None,
            {**_RETRY_F, "nr": ["VE", "X"]},
            id="N11",
        ),
        pytest.param(
            made(R1, QA, retry_policy_config={**BASELINE, "non_retryable_error_types": []}),
            "act_llm",
            "opus",
            {**_D5, "nr": ["Auth"]},
            id="N12",
        ),
    ],
)
def test_the_last_layer_that_speaks_wins_and_names_only_add_up(
    config: DispatchConfig, activity: str, key: str | None, expected: dict[str, Any]
) -> None:
    base = {"q": None, "stc": "0:10:00", "sc2": None, "s2s": None, "hb": None}
    retry = {"ii": "0:00:03", "bc": 2.0, "mi": "unlimited", "ma": 3, "nr": ["VE"]}
    assert _flat(config.resolve(activity, key)) == {**base, **retry, **expected}
    assert config.worker_config.resolve_dispatch(activity, key, config.queue_options) == config.resolve(
        activity, key
    )


def _flat(options: DispatchOptions) -> dict[str, Any]:
    policy, shown = options.retry_policy, options.shown_values()
    attempts = shown["retry.maximum_attempts"]
    return {
        "q": options.task_queue,
        "stc": shown["start_to_close_timeout"],
        "sc2": shown.get("schedule_to_close_timeout"),
        "s2s": shown.get("schedule_to_start_timeout"),
        "hb": shown.get("heartbeat_timeout"),
        "ii": shown["retry.initial_interval"],
        "bc": policy.backoff_coefficient,
        "mi": shown["retry.maximum_interval"],
        "ma": attempts if attempts == "unlimited" else int(attempts),
        "nr": list(policy.non_retryable_error_types or ()),
    }


_ALL_FOUR = {
    "start_to_close_timeout": "0:05:00",
    "schedule_to_close_timeout": "1:00:00",
    "schedule_to_start_timeout": "0:00:10",
    "heartbeat_timeout": "0:01:00",
}


@pytest.mark.parametrize(
    ("config", "activity", "key", "more"),
    [
        pytest.param(made(), "a", None, set(), id="K1"),
        pytest.param(made(R1), "act_llm", "opus", {"task_queue"}, id="K2"),
        pytest.param(made(R1, {"anth": _ALL_FOUR}), "act_llm", "opus", {"task_queue", *_ALL_FOUR}, id="K3"),
        pytest.param(
            made(default_activity_heartbeat_timeout="0:00:30"), "a", None, {"heartbeat_timeout"}, id="K4"
        ),
    ],
)
def test_the_arguments_of_a_call_leave_out_what_is_unset(
    config: DispatchConfig, activity: str, key: str | None, more: set[str]
) -> None:
    kwargs = config.resolve(activity, key).to_execute_kwargs()
    assert set(kwargs) == {"start_to_close_timeout", "retry_policy", *more}
    assert None not in kwargs.values()


def test_the_arguments_of_a_call_are_plain_values_that_equal_those_of_the_options() -> None:
    options = made(R1, QA).resolve("act_llm", "opus")
    kwargs = options.to_execute_kwargs()
    assert kwargs["retry_policy"] == options.retry_policy
    assert hash(kwargs["retry_policy"]) == hash(options.retry_policy)
    assert repr(kwargs["retry_policy"]) == repr(options.retry_policy)
    assert type(kwargs["retry_policy"]) is RetryPolicy
    assert pickle.loads(pickle.dumps(kwargs)) == kwargs == options.to_execute_kwargs()


def test_an_overlay_that_repeats_the_baseline_is_still_the_source() -> None:
    options = made(R1, _anth(start_to_close_timeout="0:10:00")).resolve("act_llm", "opus")
    assert options.provenance["start_to_close_timeout"] == "queue_options"


def test_without_queue_options_there_is_no_queue_layer() -> None:
    config = made(R1, QA)
    options = config.worker_config.resolve_dispatch("act_llm", "opus", None)
    assert options.start_to_close_timeout == timedelta(minutes=10)


def test_options_are_equal_whatever_layer_gave_them() -> None:
    said = made(R1, _anth(start_to_close_timeout="0:10:00")).resolve("act_llm", "opus")
    unsaid = made(R1).resolve("act_llm", "opus")
    assert said == unsaid
    assert said.provenance != unsaid.provenance


def test_unlimited_pauses_are_not_cut_at_a_hundred_times_the_first() -> None:
    policy = made().resolve("a").retry_policy
    assert policy.maximum_interval is not None
    assert policy.maximum_interval > 1000 * policy.initial_interval


def test_what_is_tried_once_keeps_the_pauses_that_were_said_though_none_comes() -> None:
    policy = {"initial_interval": "0:02:00", "maximum_interval": "0:01:00", "maximum_attempts": 1}
    found = made(retry_policy_config=policy).resolve("a").retry_policy
    assert (found.initial_interval, found.maximum_interval) == (timedelta(minutes=2), timedelta(minutes=1))
    assert found.pauses_ms() == []


@pytest.mark.parametrize(("first", "pauses"), [("0.1ms", [1]), ("0.6ms", [1]), ("1.4ms", [1]), ("2ms", [2])])
def test_a_pause_is_never_rounded_away(first: str, pauses: list[int]) -> None:
    policy = {"initial_interval": first, "backoff_coefficient": 1, "maximum_attempts": "unlimited"}
    assert made(retry_policy_config=policy).resolve("a").retry_policy.pauses_ms() == pauses


def test_a_definition_stands_above_the_baseline_and_below_the_queue_and_a_call_above_all() -> None:
    definition = Layer(
        start_to_close_timeout=timedelta(seconds=7),
        schedule_to_start_timeout=timedelta(seconds=8),
        retry=RetryPolicyConfigOverlay(maximum_attempts=9, non_retryable_error_types_extra=("D",)),
    )
    call = Layer(
        heartbeat_timeout=timedelta(seconds=2),
        task_queue="anth",
        retry=RetryPolicyConfigOverlay(backoff_coefficient=3.0, non_retryable_error_types_extra=("C",)),
    )
    options = made(R2, QA).resolve("act_llm", "opus", decorator=definition, call_site=call)
    assert options.task_queue == "anth"
    assert options.start_to_close_timeout == timedelta(minutes=15)
    assert options.schedule_to_start_timeout == timedelta(seconds=8)
    assert options.heartbeat_timeout == timedelta(seconds=2)
    assert options.retry_policy.maximum_attempts == 5
    assert options.retry_policy.backoff_coefficient == 3.0
    assert options.retry_policy.non_retryable_error_types == ("VE", "D", "Auth", "C")
    assert options.provenance == {
        "task_queue": "call site",
        "start_to_close_timeout": "handle_options",
        "schedule_to_start_timeout": "decorator",
        "heartbeat_timeout": "call site",
        "retry.initial_interval": "queue_options",
        "retry.backoff_coefficient": "call site",
        "retry.maximum_interval": "queue_options",
        "retry.maximum_attempts": "queue_options",
        "retry.non_retryable": "baseline + decorator + queue_extra + call site",
    }


def test_options_of_an_activity_stand_between_those_of_its_queue_and_of_its_handle() -> None:
    options = {
        "start_to_close_timeout": "0:07:00",
        "schedule_to_start_timeout": "0:00:20",
        "heartbeat_timeout": "0:00:30",
        "retry_policy_config": {"maximum_attempts": 8, "non_retryable_error_types_extra": ["Mine"]},
    }
    route = {**R2["act_llm"], "options": options}
    config = made({"act_llm": route, "act_obj": {"default": "anth"}}, QA)
    opus, sonnet = config.resolve("act_llm", "opus"), config.resolve("act_llm", "sonnet")
    assert (opus.start_to_close_timeout, sonnet.start_to_close_timeout) == (
        timedelta(minutes=15),
        timedelta(minutes=7),
    )
    assert (opus.heartbeat_timeout, sonnet.task_queue) == (timedelta(seconds=30), "llm")
    assert opus.provenance == {
        "task_queue": "activity_queues.by_handle",
        "start_to_close_timeout": "handle_options",
        "schedule_to_start_timeout": "activity_options",
        "heartbeat_timeout": "activity_options",
        "retry.initial_interval": "queue_options",
        "retry.backoff_coefficient": "queue_options",
        "retry.maximum_interval": "queue_options",
        "retry.maximum_attempts": "activity_options",
        "retry.non_retryable": "baseline + queue_extra + activity_extra",
    }
    assert config.resolve("act_obj", "opus").heartbeat_timeout == timedelta(minutes=1)
    assert "Mine" in config.all_non_retryable_error_types()


def test_the_queue_options_are_those_of_the_queue_that_a_call_names() -> None:
    config = made(R1, QA)
    options = config.resolve("act_llm", "gpt", call_site=Layer(task_queue="anth"))
    assert (options.task_queue, options.start_to_close_timeout) == ("anth", timedelta(minutes=5))
    assert config.resolve("act_llm", "opus", call_site=Layer(task_queue="x")).heartbeat_timeout is None


def test_code_and_file_that_contradict_each_other_still_make_a_policy() -> None:
    call = Layer(retry=RetryPolicyConfigOverlay(initial_interval=timedelta(minutes=5)))
    policy = made(R1, QA).resolve("act_llm", "opus", call_site=call).retry_policy
    assert policy.initial_interval == policy.maximum_interval == timedelta(minutes=5)


def test_patterns_are_tried_in_order_after_the_exact_key() -> None:
    config = made(
        {
            "act_llm": {
                "default": "llm",
                "by_handle": {"claude-x": "exact"},
                "by_pattern": [
                    {"match": "claude-*", "queue": "anth"},
                    {"match": "*", "queue": "rest"},
                ],
                "handle_options": {"claude-x": {"start_to_close_timeout": "0:01:00"}},
                "handle_options_by_pattern": [{"match": "claude-*", "start_to_close_timeout": "0:02:00"}],
            }
        }
    )
    found = {key: config.resolve("act_llm", key) for key in ("claude-x", "claude-4", "gpt", None)}
    assert {key: options.task_queue for key, options in found.items()} == {
        "claude-x": "exact",
        "claude-4": "anth",
        "gpt": "rest",
        None: "llm",
    }
    assert found["claude-4"].provenance["task_queue"] == "activity_queues.by_pattern"
    assert found["claude-4"].provenance["start_to_close_timeout"] == "handle_options_by_pattern"
    assert found["claude-x"].start_to_close_timeout == timedelta(minutes=1)


def test_every_name_that_is_never_retried_anywhere_can_be_asked_for() -> None:
    assert made(_HANDLE_RETRY, QA).all_non_retryable_error_types() == {"VE", "Auth", "H"}


def test_a_configuration_survives_the_way_to_another_process() -> None:
    config = made(R2, QA)
    config.resolve("act_llm", "opus")
    again = pickle.loads(pickle.dumps(config))
    assert again == config
    assert again.fingerprint == config.fingerprint
    assert again.resolve("act_llm", "opus") == config.resolve("act_llm", "opus")


@pytest.mark.parametrize("patterns", [[], [{"match": "eu-*", "queue": "eu"}]])
def test_many_different_keys_do_not_fill_the_memory(patterns: list[dict[str, str]]) -> None:
    config = made({"act": {"default": "d", "by_handle": {"x": "y"}, "by_pattern": patterns}})
    for number in range(500):
        assert config.resolve("act", f"us-{number}").task_queue == "d"
        assert config.resolve("act", f"eu-{number}").task_queue == ("eu" if patterns else "d")
        assert config.resolve("act", "x").task_queue == "y"
    assert len(config._remembered) <= 3


def test_an_endless_variety_of_calls_does_not_fill_the_memory() -> None:
    config = made()
    for number in range(20_000):
        config.resolve("a", call_site=Layer(start_to_close_timeout=timedelta(microseconds=number + 1)))
    assert len(config._remembered) < 10_000


_timeouts = st.one_of(st.none(), st.integers(1, 500))
_names = st.lists(st.sampled_from("ABCDE"), max_size=4)


@given(base=st.integers(1, 500), queue=_timeouts, handle=_timeouts, lists=st.tuples(_names, _names, _names))
def test_the_last_word_wins_and_its_speaker_is_named_for_any_layers(
    base: int, queue: int | None, handle: int | None, lists: tuple[list[str], list[str], list[str]]
) -> None:
    def said(value: int | None, extra: list[str]) -> dict[str, Any]:
        table: dict[str, Any] = {"retry_policy_config": {"non_retryable_error_types_extra": extra}}
        return table if value is None else {**table, "start_to_close_timeout": value}

    config = dispatch_from(
        {
            "worker_config": {
                "default_activity_start_to_close_timeout": base,
                "retry_policy_config": {"non_retryable_error_types": lists[0]},
                "activity_queues": {"a": {"default": "q", "handle_options": {"h": said(handle, lists[2])}}},
            },
            "queue_options": {"q": said(queue, lists[1])},
        }
    )
    options = config.resolve("a", "h")
    layers = [("baseline", base), ("queue_options", queue), ("handle_options", handle)]
    label, seconds = [(label, value) for label, value in layers if value is not None][-1]
    assert options.start_to_close_timeout == timedelta(seconds=seconds or 0)
    assert options.provenance["start_to_close_timeout"] == label
    assert options.retry_policy.non_retryable_error_types == tuple(
        dict.fromkeys([*lists[0], *lists[1], *lists[2]])
    )
    givers = [g for g, names in zip(("baseline", "queue_extra", "handle_extra"), lists, strict=True) if names]
    assert options.provenance["retry.non_retryable"] == (" + ".join(givers) or "none")
    assert config.resolve("a", "other").retry_policy.non_retryable_error_types == tuple(
        dict.fromkeys(lists[0] + lists[1])
    )
