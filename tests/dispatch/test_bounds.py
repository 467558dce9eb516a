"""The built-in values, and every bound at its very edge: what is just right loads, what is just beyond does not."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.dispatch import DispatchConfigError, dispatch_from
from penstock.dispatch.inspection.effective import rows
from tests.dispatch.tables import tree

_BUILT_IN = {
    "worker_config.default_task_queue": "default",
    "worker_config.default_activity_start_to_close_timeout": "0:10:00",
    "worker_config.retry_policy_config.initial_interval": "0:00:03",
    "worker_config.retry_policy_config.backoff_coefficient": 2.0,
    "worker_config.retry_policy_config.maximum_interval": "unlimited",
    "worker_config.retry_policy_config.maximum_attempts": 3,
    "worker_config.workflow_execution_timeout": "1:00:00",
    "worker_config.task_timeout": "0:00:10",
    "queue_options.default.max_task_queue_activities_per_second": 1000.0,
    "worker_runtime_profiles.default_profile": "balanced",
    "worker_scopes.default_scope": "full",
    "temporal_config.temporal_log_config.is_dispatch_resolution_traced": False,
    "strict_queues": False,
    "auto_heartbeat": True,
    "queue_rate_burst_seconds": 1.0,
}
_BALANCED = {
    "tuning_mode": "explicit",
    "max_cached_workflows": 1000,
    "max_concurrent_workflow_tasks": 100,
    "max_concurrent_activities": 100,
    "max_concurrent_local_activities": 100,
    "max_concurrent_workflow_task_polls": 5,
    "max_concurrent_activity_task_polls": 5,
    "max_activities_per_second": 1000.0,
    "sticky_queue_schedule_to_start_timeout": "0:00:10",
    "max_heartbeat_throttle_interval": "0:01:00",
    "default_heartbeat_throttle_interval": "0:00:30",
    "graceful_shutdown_timeout": "0:00:30",
}


def test_the_built_in_values_are_the_published_ones() -> None:
    profile = {f"worker_runtime_profiles.profiles.balanced.{name}": said for name, said in _BALANCED.items()}
    assert {row.path: row.value for row in rows(dispatch_from({}))} == _BUILT_IN | profile


def _worker(**said: Any) -> dict[str, Any]:
    return tree(**said)


def _queue(**said: Any) -> dict[str, Any]:
    return tree(options={"home": said})


def _retry(**said: Any) -> dict[str, Any]:
    return tree(options={"home": {"retry_policy_config": said}})


def _profile(**said: Any) -> dict[str, Any]:
    return {"worker_runtime_profiles": {"profiles": {"p": said}}}


_TINY = "0:00:00.000001"


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        (_worker(default_task_queue="q" * 200), _worker(default_task_queue="q" * 201)),
        (_worker(default_task_queue="_penstock"), _worker(default_task_queue="__penstock")),
        (_worker(task_timeout="0:02:00"), _worker(task_timeout="0:02:00.000001")),
        (_worker(start_delay=0), _worker(start_delay="-0.001s")),
        (_worker(start_delay="-0s"), _worker(run_timeout="-0s")),
        (_worker(rpc_timeout=_TINY), _worker(rpc_timeout=0)),
        (_worker(run_timeout=_TINY), _worker(run_timeout=0)),
        (_worker(default_activity_heartbeat_timeout=_TINY), _worker(default_activity_heartbeat_timeout=0)),
        (_queue(schedule_to_start_timeout="3650d"), _queue(schedule_to_start_timeout="3650d 0.001s")),
        (
            _queue(max_task_queue_activities_per_second=0.000001),
            _queue(max_task_queue_activities_per_second=0.0000009),
        ),
        (
            _queue(max_task_queue_activities_per_second=1_000_000),
            _queue(max_task_queue_activities_per_second=1_000_001),
        ),
        (_retry(backoff_coefficient=1), _retry(backoff_coefficient=0.999)),
        (_retry(maximum_attempts=1), _retry(maximum_attempts=0)),
        (_retry(maximum_attempts=2**31 - 1), _retry(maximum_attempts=2**31)),
        (
            _retry(initial_interval=5, maximum_interval=5),
            _retry(initial_interval=5, maximum_interval="0:00:04.999999"),
        ),
        (
            _retry(non_retryable_error_types_extra=["E" * 255]),
            _retry(non_retryable_error_types_extra=["E" * 256]),
        ),
        (
            _retry(non_retryable_error_types_extra=["E E"]),
            _retry(non_retryable_error_types_extra=["E\nE"]),
        ),
        (
            _retry(
                non_retryable_error_types_extra=[f"E{number}" for number in range(999)]
            ),  # VE is the baseline's
            _retry(non_retryable_error_types_extra=[f"E{number}" for number in range(1000)]),
        ),
        (_profile(max_cached_workflows=0), _profile(max_cached_workflows=-1)),
        (_profile(max_cached_workflows=1_000_000), _profile(max_cached_workflows=1_000_001)),
        (_profile(max_concurrent_workflow_tasks=1), _profile(max_concurrent_workflow_tasks=0)),
        (
            _profile(max_concurrent_activities=0, max_concurrent_activity_task_polls=0),
            _profile(max_concurrent_activities=1, max_concurrent_activity_task_polls=0),
        ),
        (_profile(max_concurrent_local_activities=0), _profile(max_concurrent_local_activities=-1)),
        (_profile(max_concurrent_workflow_task_polls=1), _profile(max_concurrent_workflow_task_polls=0)),
        (
            _profile(max_concurrent_workflow_task_polls=1000),
            _profile(max_concurrent_workflow_task_polls=1001),
        ),
        (_profile(max_activities_per_second=0.000001), _profile(max_activities_per_second=0)),
        (
            _profile(sticky_queue_schedule_to_start_timeout=_TINY),
            _profile(sticky_queue_schedule_to_start_timeout=0),
        ),
        (_profile(graceful_shutdown_timeout=0), _profile(graceful_shutdown_timeout=-1)),
        ({"queue_rate_burst_seconds": 60}, {"queue_rate_burst_seconds": 60.001}),
        ({"queue_rate_burst_seconds": 0.001}, {"queue_rate_burst_seconds": 0}),
    ],
)
def test_a_bound_is_where_it_is_said_to_be(right: dict[str, Any], wrong: dict[str, Any]) -> None:
    dispatch_from(right)
    with pytest.raises(DispatchConfigError) as refused:
        dispatch_from(wrong)
    assert len(refused.value.problems) == 1


@pytest.mark.parametrize(
    ("right", "odd"),
    [
        (
            _worker(run_timeout="1:00:00", workflow_execution_timeout="1:00:00"),
            _worker(run_timeout="1:00:01", workflow_execution_timeout="1:00:00"),
        ),
        (_queue(heartbeat_timeout="0:10:00"), _queue(heartbeat_timeout="0:10:01")),
        (_queue(schedule_to_close_timeout="0:10:00"), _queue(schedule_to_close_timeout="0:09:59")),
        (_queue(start_to_close_timeout="1:00:00"), _queue(start_to_close_timeout="1:00:01")),
        (_queue(schedule_to_close_timeout="1:00:00"), _queue(schedule_to_close_timeout="1:00:01")),
        (
            _retry(maximum_attempts=6),
            _worker(
                default_activity_start_to_close_timeout="3650d",
                workflow_execution_timeout="3650d",
                retry_policy_config={"maximum_attempts": 2**31 - 1},
            ),
        ),
        (
            _worker(workflow_execution_timeout="0:30:00"),
            _worker(workflow_execution_timeout="0:29:59"),
        ),
        (
            _profile(default_heartbeat_throttle_interval="0:01:00"),
            _profile(default_heartbeat_throttle_interval="0:01:01"),
        ),
        (
            _profile(max_concurrent_activities=0, max_concurrent_activity_task_polls=0),
            _profile(max_concurrent_activities=0, max_concurrent_activity_task_polls=1),
        ),
    ],
)
def test_a_warning_begins_just_beyond_what_fits(right: dict[str, Any], odd: dict[str, Any]) -> None:
    assert dispatch_from(right).warnings == ()
    assert len(dispatch_from(odd).warnings) == 1
