"""What it costs to find where an activity goes: a configuration of 1,000 routes, asked in this process."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from typing import Any

from benchmarks.samples import spread
from benchmarks.workloads import Say
from penstock.dispatch import DispatchConfig, dispatch_from

ROUTES = 1_000
QUEUES = 50
ROUNDS = 9
CALLS = 20_000


def resolving(say: Say) -> list[dict[str, Any]]:
    """CPU microseconds of one resolution: of keys that are listed, of ever new ones, and the first of each activity."""
    say("resolving: 1,000 routes")
    config = _configuration()
    names = [f"act_{number}" for number in range(ROUTES)]
    listed = itertools.cycle(names)
    fresh = itertools.count()
    return [
        _row("a listed key", lambda: config.resolve(next(listed), "key_1")),
        _row("a key never seen", lambda: config.resolve(names[next(fresh) % ROUTES], f"user_{next(fresh)}")),
        _row(
            "without memory",
            lambda: config.worker_config.resolve_dispatch(next(listed), "key_1", config.queue_options),
        ),
    ]


def _configuration() -> DispatchConfig:
    overlay = {"maximum_attempts": 5, "non_retryable_error_types_extra": ["AuthError"]}
    return dispatch_from(
        {
            "worker_config": {
                "activity_queues": {
                    f"act_{number}": {
                        "default": f"queue_{number % QUEUES}",
                        "by_handle": {f"key_{key}": f"queue_{key}" for key in range(5)},
                        "handle_options": {"key_1": {"start_to_close_timeout": "0:15:00"}},
                    }
                    for number in range(ROUTES)
                }
            },
            "queue_options": {
                f"queue_{number}": {"start_to_close_timeout": "0:05:00", "retry_policy_config": overlay}
                for number in range(QUEUES)
            },
        }
    )


def _row(name: str, call: Callable[[], object]) -> dict[str, Any]:
    return {"name": name, "routes": ROUTES, "us": spread((_round(call) for _ in range(ROUNDS)), 2)}


def _round(call: Callable[[], object]) -> float:
    began = time.process_time()
    for _ in range(CALLS):
        call()
    return (time.process_time() - began) / CALLS * 1e6
