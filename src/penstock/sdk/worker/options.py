"""How a worker is to work: its numbers, checked when it is made."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from datetime import timedelta

from penstock.dispatch.bounds import POLLS_MAX, RATE_MAX, SLOTS_MAX
from penstock.sdk.activities.process_pool.pool import StartMethod
from penstock.sdk.worker.claim_options import Claiming

BURST_SECONDS_MAX = 3_600
_SWITCHES = frozenset({"auto_heartbeat", "debug_mode", "all_in_processes", "report_tracebacks"})


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerOptions:
    """The numbers of a worker. Each mistake is named with its way out."""

    max_concurrent_workflow_tasks: int = 100
    max_concurrent_activity_tasks: int = 100
    max_concurrent_local_activities: int = 100
    max_concurrent_workflow_task_polls: int = 2
    max_concurrent_activity_task_polls: int = 2
    max_cached_workflows: int = 1000
    sticky_queue_schedule_to_start_timeout: timedelta = timedelta(seconds=10)
    max_activities_per_second: float | None = None
    """How many activities this worker takes in a second, whatever its queue has room for."""
    max_task_queue_activities_per_second: float | None = None
    """How many the whole queue gives out, to all workers together; None: no opinion."""
    queue_rate_burst_seconds: float | None = None
    """For how long the queue saves up what it did not give out; None: no opinion."""
    default_heartbeat_throttle_interval: timedelta = timedelta(seconds=30)
    max_heartbeat_throttle_interval: timedelta = timedelta(seconds=60)
    graceful_shutdown_timeout: timedelta = timedelta(0)
    auto_heartbeat: bool | timedelta = False
    """Activities that say nothing of it heartbeat by themselves, at a fitting pace or at this one."""
    process_slots: int | None = None
    """Processes for activities that run in one; None: as many as there are places for activities."""
    process_start_method: StartMethod = "spawn"
    process_recycle_after: int | None = None
    """A process is replaced after so many activities; None: never."""
    process_recycle_over_bytes: int | None = None
    """A process that holds more memory after an activity is replaced; None: never."""
    all_in_processes: bool = False
    """Activities run in processes wherever they can, each in one of its own; the processes are ready before."""
    claiming: Claiming = field(default_factory=Claiming)
    task_timeout: timedelta = timedelta(seconds=2)
    """A workflow task whose code does not give way for so long is failed, with its stack."""
    debug_mode: bool = False
    """Code may stop as long as a person looks at it: no task counts as stuck."""
    report_tracebacks: bool = True
    """Failures are reported with their tracebacks; the log of the worker has them in any case."""

    @property
    def threads_most(self) -> int:
        """Threads for functions, whether they run as activities or as local ones."""
        return max(1, self.max_concurrent_activity_tasks + self.max_concurrent_local_activities)

    def __post_init__(self) -> None:
        for each in fields(self):
            _check(each.name, getattr(self, each.name))


def _check(name: str, value: object) -> None:
    if name.endswith("_polls"):
        _whole(name, value, 0, POLLS_MAX)
    elif name == "max_cached_workflows":
        _whole(name, value, 0, SLOTS_MAX)
    elif name.endswith("_per_second"):
        _rate(name, value)
    elif name == "queue_rate_burst_seconds":
        _burst(name, value)
    elif name.startswith("max_concurrent"):
        _whole(name, value, 0, SLOTS_MAX)
    elif name.startswith("process_"):
        _of_processes(name, value)
    elif name == "claiming":
        if not isinstance(value, Claiming):
            raise TypeError(f"claiming is a Claiming(…), not {type(value).__name__}")
    elif not isinstance(value, bool) or name not in _SWITCHES:
        _span(name, value, may_be_zero=name == "graceful_shutdown_timeout")


def _whole(name: str, value: object, least: int, most: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{name} is a whole number, not {type(value).__name__}")
    if not least <= value <= most:
        raise ValueError(f"{name} is {least} to {most}, not {value}")


def _of_processes(name: str, value: object) -> None:
    if name == "process_start_method":
        if value not in ("spawn", "forkserver"):
            raise ValueError(f'{name} is "spawn" or "forkserver", not {value!r}')
    elif value is not None:
        _whole(name, value, 1, 2**50 if name.endswith("_bytes") else SLOTS_MAX)


def _rate(name: str, value: object) -> None:
    if value is None:
        return
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{name} is a number, or None for no limit; not {type(value).__name__}")
    if not 0.000001 <= value <= RATE_MAX:
        raise ValueError(f"{name} is more than 0 and at most {RATE_MAX}, not {value}; None is no limit")


def _burst(name: str, value: object) -> None:
    if value is None:
        return
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{name} is a number of seconds, or None for no opinion; not {type(value).__name__}")
    if not 0 <= value <= BURST_SECONDS_MAX:
        raise ValueError(f"{name} is 0 to {BURST_SECONDS_MAX}, not {value}; None is no opinion")


def _span(name: str, value: object, *, may_be_zero: bool) -> None:
    if not isinstance(value, timedelta):
        raise TypeError(f"{name} is a timedelta, such as timedelta(seconds=10); not {type(value).__name__}")
    if value < timedelta(0) or (not may_be_zero and not value):
        least = "0 or longer" if may_be_zero else "longer than 0"
        raise ValueError(f"{name} is {least}, not {value.total_seconds():g} seconds")
