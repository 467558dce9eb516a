"""Worker options, validated when the worker is created."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from datetime import timedelta
from typing import Any

from penstock.dispatch.bounds import POLLS_MAX, RATE_MAX, SLOTS_MAX
from penstock.sdk.activities.process_pool.pool import StartMethod
from penstock.sdk.worker.claim_options import Claiming, check_integer

BURST_SECONDS_MAX = 3_600
_SWITCHES = frozenset(
    {"auto_heartbeat", "debug_mode", "all_in_processes", "report_tracebacks", "report_source_lines"}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerOptions:
    """The numeric options and switches of a worker. Errors name the option and the values that it accepts."""

    max_concurrent_workflow_tasks: int = 100
    max_concurrent_activity_tasks: int = 100
    max_concurrent_local_activities: int = 100
    max_concurrent_workflow_task_polls: int = 2
    max_concurrent_activity_task_polls: int = 2
    max_cached_workflows: int = 1000
    sticky_queue_schedule_to_start_timeout: timedelta = timedelta(seconds=10)
    max_activities_per_second: float | None = None
    """Activities that this worker starts per second, regardless of its queue."""
    max_task_queue_activities_per_second: float | None = None
    """Activities that the queue hands out per second to all workers together; None requests nothing."""
    queue_rate_burst_seconds: float | None = None
    """Seconds of unused rate that the queue accumulates as burst; None requests nothing."""
    default_heartbeat_throttle_interval: timedelta = timedelta(seconds=30)
    max_heartbeat_throttle_interval: timedelta = timedelta(seconds=60)
    graceful_shutdown_timeout: timedelta = timedelta(0)
    auto_heartbeat: bool | timedelta = False
    """Send heartbeats for activities that do not configure this themselves, at a suitable or at this interval."""
    process_slots: int | None = None
    """Processes for activities that run in a process; None is one per activity slot."""
    process_start_method: StartMethod = "spawn"
    process_recycle_after: int | None = None
    """Replace a process after this many activities; None is never."""
    process_recycle_over_bytes: int | None = None
    """Replace a process that uses more memory than this after an activity; None is never."""
    all_in_processes: bool = False
    """Run activities in processes wherever possible. The processes are started in advance."""
    claiming: Claiming = field(default_factory=Claiming)
    task_timeout: timedelta = timedelta(seconds=2)
    """Fail a workflow task whose code does not yield to the event loop for this long."""
    debug_mode: bool = False
    """Disable deadlock detection, so that a debugger can stop workflow code."""
    report_tracebacks: bool = True
    """Include tracebacks in reported failures. The worker's log has them in any case."""
    report_source_lines: bool | None = None
    """Send the source lines around each frame of a reported failure; None: if the server asks for them."""

    @classmethod
    def of(cls, arguments: Mapping[str, Any], **resolved: Any) -> WorkerOptions:
        """Pick the options out of the arguments of `Worker`; `resolved` are those that it has computed."""
        return cls(**{each.name: arguments[each.name] for each in fields(cls)} | resolved)

    @property
    def max_threads(self) -> int:
        """Threads for sync activities, local ones included."""
        return max(1, self.max_concurrent_activity_tasks + self.max_concurrent_local_activities)

    def __post_init__(self) -> None:
        for each in fields(self):
            _check(each.name, getattr(self, each.name))


def _check(name: str, value: object) -> None:
    if name.endswith("_polls"):
        check_integer(name, value, 0, POLLS_MAX)
    elif name == "max_cached_workflows" or name.startswith("max_concurrent"):
        check_integer(name, value, 0, SLOTS_MAX)
    elif name.endswith("_per_second"):
        _check_rate(name, value)
    elif name == "queue_rate_burst_seconds":
        _check_burst(name, value)
    elif name.startswith("process_"):
        _check_process_option(name, value)
    elif name == "claiming":
        if not isinstance(value, Claiming):
            raise TypeError(f"claiming is a Claiming(…), not {type(value).__name__}")
    elif not (isinstance(value, bool) and name in _SWITCHES) and (name, value) != (
        "report_source_lines",
        None,
    ):
        _check_timedelta(name, value, may_be_zero=name == "graceful_shutdown_timeout")


def _check_process_option(name: str, value: object) -> None:
    if name == "process_start_method":
        if value not in ("spawn", "forkserver"):
            raise ValueError(f'{name} is "spawn" or "forkserver", not {value!r}')
    elif value is not None:
        check_integer(name, value, 1, 2**50 if name.endswith("_bytes") else SLOTS_MAX)


def _check_rate(name: str, value: object) -> None:
    if value is None:
        return
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{name} is a number, or None for no limit; not {type(value).__name__}")
    if not 0.000001 <= value <= RATE_MAX:
        raise ValueError(f"{name} is more than 0 and at most {RATE_MAX}, not {value}; None is no limit")


def _check_burst(name: str, value: object) -> None:
    if value is None:
        return
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{name} is a number of seconds, or None for no opinion; not {type(value).__name__}")
    if not 0 <= value <= BURST_SECONDS_MAX:
        raise ValueError(f"{name} is 0 to {BURST_SECONDS_MAX}, not {value}; None is no opinion")


def _check_timedelta(name: str, value: object, *, may_be_zero: bool) -> None:
    if not isinstance(value, timedelta):
        raise TypeError(f"{name} is a timedelta, such as timedelta(seconds=10); not {type(value).__name__}")
    if value < timedelta(0) or (not may_be_zero and not value):
        least = "0 or longer" if may_be_zero else "longer than 0"
        raise ValueError(f"{name} is {least}, not {value.total_seconds():g} seconds")
