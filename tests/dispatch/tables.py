"""Small configurations that the tests of the dispatch room share."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from penstock.dispatch import DispatchConfig, dispatch_from

PIPELINES = Path(__file__).with_name("pipelines.toml")
"""A file of AI pipelines as their authors published it, multi-line inline tables and all."""

FULL = {
    "initial_interval": "0:00:01",
    "backoff_coefficient": 2.0,
    "maximum_interval": "0:01:00",
    "maximum_attempts": 5,
}
BASELINE: dict[str, Any] = {
    "initial_interval": "0:00:03",
    "backoff_coefficient": 2.0,
    "maximum_interval": "unlimited",
    "maximum_attempts": 3,
    "non_retryable_error_types": ["VE"],
}
R1: dict[str, Any] = {
    "act_llm": {"default": "llm", "by_handle": {"opus": "anth", "gpt": "oai"}},
    "act_img": {"default": "gpu"},
}
R2: dict[str, Any] = {
    "act_llm": {
        "default": "llm",
        "by_handle": {"opus": "anth"},
        "handle_options": {"opus": {"start_to_close_timeout": "0:15:00"}},
    }
}
QA: dict[str, Any] = {
    "anth": {
        "start_to_close_timeout": "0:05:00",
        "heartbeat_timeout": "0:01:00",
        "retry_policy_config": {**FULL, "non_retryable_error_types_extra": ["Auth"]},
    }
}


def tree(
    routes: dict[str, Any] | None = None, options: dict[str, Any] | None = None, **worker: Any
) -> dict[str, Any]:
    """A file's root table: home queue `home`, attempts of 10 minutes, one error that is never retried."""
    return {
        "worker_config": {
            "default_task_queue": "home",
            "default_activity_start_to_close_timeout": "0:10:00",
            "retry_policy_config": BASELINE,
            "activity_queues": routes or {},
            **worker,
        },
        "queue_options": options or {},
    }


def made(
    routes: dict[str, Any] | None = None, options: dict[str, Any] | None = None, **worker: Any
) -> DispatchConfig:
    return dispatch_from(tree(routes, options, **worker))
