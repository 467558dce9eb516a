"""What a file may not say: a tree of values, the path that is named, and words of what is told."""

from __future__ import annotations

import tomllib
from typing import Any

import pytest

from tests.dispatch.tables import BASELINE, FULL, R1, tree

_BAD_HANDLE = {"act_llm": {"default": "llm", "handle_options": {"opus": {"heartbeat_timeout": "0:01:00"}}}}
_CAPPED_HANDLE = {
    "act_llm": {"default": "llm", "handle_options": {"opus": {"max_task_queue_activities_per_second": 5}}}
}


def home(**options: Any) -> dict[str, Any]:
    return tree(options={"home": options})


def home_retry(**said: Any) -> dict[str, Any]:
    return home(retry_policy_config={**FULL, **said})


REFUSED = [
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
        home(start_to_close_timeot="0:01:00"),
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
        tree({"act_llm": {"default": "llm", "options": {"max_task_queue_activities_per_second": 5}}}),
        "penstock.worker_config.activity_queues.act_llm.options.max_task_queue_activities_per_second",
        "the cap belongs to the queue",
        id="a cap of an activity",
    ),
    pytest.param(
        tree(
            {"act": {"default": "home", "options": {"retry_policy_config": {"maximum_interval": "0:00:01"}}}}
        ),
        "penstock.worker_config.activity_queues.act.options.retry_policy_config.maximum_interval",
        "0:00:01 is below the initial_interval of 0:00:03",
        id="pauses of an activity that do not fit those of the baseline",
    ),
    pytest.param(
        tree({"act_llm": {"by_handle": {"opus": "anth"}}}),
        "penstock.worker_config.activity_queues.act_llm.default",
        "'default' is required",
        id="V6",
    ),
    pytest.param(
        home(start_to_close_timeout="0:00:00"),
        "penstock.queue_options.home.start_to_close_timeout",
        "above 0",
        id="V7",
    ),
    pytest.param(
        home(start_to_close_timeout="-0:00:01"),
        "penstock.queue_options.home.start_to_close_timeout",
        "above 0",
        id="V8",
    ),
    *(
        pytest.param(
            home(max_task_queue_activities_per_second=rate),
            "penstock.queue_options.home.max_task_queue_activities_per_second",
            words,
            id=row,
        )
        for row, rate, words in [
            ("V9", 0, "above 0"),
            ("V10", -1, "above 0"),
            ("V12", "50", "must be a finite number above 0"),
            ("V13", float("inf"), "must be a finite number"),
            ("V14", float("nan"), "must be a finite number"),
        ]
    ),
    pytest.param(
        home_retry(backoff_coefficient=0.5),
        "penstock.queue_options.home.retry_policy_config.backoff_coefficient",
        "at least 1, not 0.5",
        id="V15",
    ),
    *(
        pytest.param(
            home_retry(maximum_attempts=attempts),
            "penstock.queue_options.home.retry_policy_config.maximum_attempts",
            words,
            id=row,
        )
        for row, attempts, words in [
            ("V17", 0, '1 or more, or "unlimited", not 0'),
            ("V18", "infinite", 'or "unlimited", not "infinite"'),
            ("V19", 2.0, "must be a whole number"),
        ]
    ),
    pytest.param(
        home_retry(initial_interval="0:02:00"),
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
        "must be the name of a task queue",
        id="V23",
    ),
    pytest.param(
        tree({"act_llm": {"default": "llm", "by_handle": {"": "oai"}}}),
        'penstock.worker_config.activity_queues.act_llm.by_handle.""',
        "a routing key, which must not be empty",
        id="an empty handle",
    ),
    pytest.param(
        tree({"act_llm": {"default": ""}}),
        "penstock.worker_config.activity_queues.act_llm.default",
        'not empty, no control characters or other invisible ones, and no reserved __penstock at the beginning, not ""',
        id="V24",
    ),
    pytest.param(
        home(start_to_close_timeout=True),
        "penstock.queue_options.home.start_to_close_timeout",
        "a boolean, not a duration",
        id="V28",
    ),
    pytest.param(
        home(start_to_close_timeout=tomllib.loads("t = 00:05:00")["t"]),
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
    *(
        pytest.param(
            tree({"act": {"default": name}}),
            "penstock.worker_config.activity_queues.act.default",
            "other invisible ones",
            id=f"a name with {name!a}",
        )
        for name in ("a\u202eb", "a\u200bb", "a\u2028b")
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
        {"queue_options": 3},
        "penstock.queue_options",
        "must be a table with an entry for each task queue, not 3",
        id="a table that is none",
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
                "is reserved, not implemented; use explicit",
            ),
            ({"tuning_mode": "magic"}, "tuning_mode", 'must be explicit, not "magic"'),
            (
                {"max_concurrent_activity_task_polls": 0},
                "max_concurrent_activity_task_polls",
                "0 polls cannot feed 100 activity slots",
            ),
            (
                {"max_concurrent_workflow_tasks": 0},
                "max_concurrent_workflow_tasks",
                "from 1 to 1000000, not 0",
            ),
            ({"inherits": "nobody"}, "inherits", "'nobody' is no profile"),
            ({"inherits": "p"}, "inherits", "over one level only"),
        ]
    ),
    pytest.param(
        {"queue_rate_burst_seconds": 61}, "penstock.queue_rate_burst_seconds", "at most 60", id="burst"
    ),
]
