"""From a trace to a workload: what arrived, for how long it ran, who worked, and under which limits.

Each task runs for as long as it did, attempt by attempt, and pauses before its retries as it did. A task that another
task's end made ready arrives at the end of that task plus the recorded think time (a closed arrival); all others
arrive at their recorded moments (open arrivals). Tasks that ran or waited when the window began arrive at its
beginning. Attempts whose end is not in the trace are taken to last as long as the median of their type.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median

from msgspec import Struct

from penstock.core.model import WEIGHT_DEFAULT_MILLI, TaskKind, TaskState
from penstock.core.verify.journal import LeaseEnded, LeaseGranted, TaskGone, TaskReady
from penstock.errors import InvalidInput, Reason
from penstock.simulator.traces.trace_file import RecordedWorker, Trace
from penstock.simulator.workload import AttemptOutcome, SimulatedArrival, WorkerPool, Workload

DRAIN_FACTOR = 10
DRAIN_LEAST_MS = 24 * 3_600_000
UNKNOWN_MS = 1_000
"""How long tasks of a type take of which no end was recorded."""
_FAILED = frozenset({"failed", "throttled", "timed_out", "expired", "lost"})
_UNCHARGED = frozenset({"handed_back", "undelivered", "returned"})


@dataclass(slots=True)
class RecordedTask:
    """Everything that a trace tells of one task."""

    task_id: str
    queue: str
    kind: str
    key: str
    level: int
    type: str = "task"
    weight: int | None = None
    cost: int = 0
    after: str | None = None
    ready_at_ms: list[int] = field(default_factory=list)
    granted_at_ms: list[int] = field(default_factory=list)
    ends: list[tuple[int, str]] = field(default_factory=list)
    is_gone: bool = False

    def leave(self, *, is_held: bool) -> None:
        """It waits no longer. One that a pause held became ready, as far as the load goes, when it was released."""
        self.is_gone = True
        if is_held and len(self.ready_at_ms) > len(self.granted_at_ms):
            self.ready_at_ms.pop()

    @property
    def was_granted_again(self) -> bool:
        return len(self.granted_at_ms) > 1


class Replay(Struct, frozen=True):
    """A workload made of a trace, and which recorded task each arrival is."""

    workload: Workload
    tasks: Sequence[RecordedTask]
    """In the order of the arrivals."""
    running: frozenset[int]
    """Arrivals that ran already when the window began."""
    closed: int
    """Arrivals that a task's end caused."""
    notes: tuple[str, ...]


def tasks_of(trace: Trace) -> dict[str, RecordedTask]:
    """All tasks of a trace, in the order of their first event. Times count from the beginning of the window."""
    found: dict[str, RecordedTask] = {}
    for event in trace.events:
        at_ms = event.at_ms - trace.head.from_ms
        match event:
            case TaskReady():
                task = found.setdefault(event.task_id, _task(event))
                task.type = event.type
                task.weight = event.weight if task.weight is None else task.weight
                task.cost = event.cost
                if not task.ready_at_ms:
                    task.after = event.after
                task.ready_at_ms.append(at_ms)
                task.is_gone = False
            case LeaseGranted():
                task = found.setdefault(event.task_id, _task(event))
                if not task.ready_at_ms:
                    task.ready_at_ms.append(min(at_ms, 0))
                task.granted_at_ms.append(at_ms)
            case LeaseEnded() if event.task_id in found:
                task = found[event.task_id]
                if len(task.ends) < len(task.granted_at_ms):
                    task.ends.append((at_ms, event.how))
            case TaskGone() if event.task_id in found:
                found[event.task_id].leave(is_held=event.how == TaskState.DELAYED)
    return found


def _task(event: TaskReady | LeaseGranted) -> RecordedTask:
    level = 5 if event.level is None else event.level
    return RecordedTask(event.task_id, event.task_queue, event.kind, event.key or "", level)


def replay_of(trace: Trace, tasks_max: int) -> Replay:
    """The workload of a trace.

    Raises:
        InvalidInput: it has no task, or more than `tasks_max`.
    """
    found = tasks_of(trace)
    tasks = [each for each in found.values() if not each.is_gone or each.granted_at_ms]
    if not tasks:
        raise InvalidInput(Reason.VALIDATION_FAILED, "The trace has no tasks: nothing arrived in its window.")
    if len(tasks) > tasks_max:
        message = f"The trace has {len(tasks):,} tasks, more than {tasks_max:,}. Allow more with --tasks-max."
        raise InvalidInput(Reason.VALIDATION_FAILED, message)
    usual = _usual_durations(tasks)
    tasks.sort(key=lambda each: max(0, each.ready_at_ms[0]))
    index_of = {each.task_id: index for index, each in enumerate(tasks)}
    arrivals = [_arrival(each, found, index_of, usual, trace.duration_ms) for each in tasks]
    running = frozenset(
        index for index, each in enumerate(tasks) if each.granted_at_ms and each.granted_at_ms[0] < 0
    )
    carried = sum(each.ready_at_ms[0] < 0 for each in tasks)
    workload = Workload(
        arrivals,
        tuple(_pool(each) for each in trace.tail.workers),
        trace.tail.limits,
        trace.head.from_ms,
        max(trace.duration_ms, 1),
        trace.duration_ms * DRAIN_FACTOR + DRAIN_LEAST_MS,
    )
    closed = sum(each.after is not None for each in arrivals)
    return Replay(workload, tasks, running, closed, tuple(_notes(found.values(), carried)))


def _usual_durations(tasks: Sequence[RecordedTask]) -> Mapping[str, int]:
    durations: defaultdict[str, list[int]] = defaultdict(list)
    for each in tasks:
        for granted_at_ms, (ended_at_ms, how) in zip(each.granted_at_ms, each.ends, strict=False):
            if how == "completed":
                durations[each.type].append(max(0, ended_at_ms - granted_at_ms))
    return {name: round(median(found)) for name, found in durations.items()}


def _arrival(
    task: RecordedTask,
    found: Mapping[str, RecordedTask],
    index_of: Mapping[str, int],
    usual: Mapping[str, int],
    window_ms: int,
) -> SimulatedArrival:
    at_ms = max(0, task.ready_at_ms[0])
    cause = _cause(task, found, index_of)
    return SimulatedArrival(
        at_ms,
        task.queue,
        task.type,
        tuple(_attempts(task, usual.get(task.type, UNKNOWN_MS), window_ms)),
        TaskKind(task.kind),
        task.key,
        task.level,
        WEIGHT_DEFAULT_MILLI if task.weight is None else task.weight,
        task.cost,
        tuple(_pauses(task)) or (0,),
        after=None if cause is None else cause[0],
        think_ms=0 if cause is None else cause[1],
    )


def _cause(
    task: RecordedTask, found: Mapping[str, RecordedTask], index_of: Mapping[str, int]
) -> tuple[int, int] | None:
    """The arrival whose end causes this one, and the think time between them; None: it arrives by itself.

    A task is caused only by one that ended for good in the window.
    """
    other = found.get(task.after or "")
    if other is None or other is task or not other.ends or len(other.ends) < len(other.granted_at_ms):
        return None
    ended_at_ms = other.ends[-1][0]
    if task.ready_at_ms[0] < 0 or ended_at_ms > task.ready_at_ms[0]:
        return None
    return index_of[other.task_id], task.ready_at_ms[0] - ended_at_ms


def _attempts(task: RecordedTask, usual_ms: int, window_ms: int) -> Iterator[AttemptOutcome]:
    """The last attempt always ends the task; one that goes on beyond the window takes at least until its end."""
    count = max(1, len(task.granted_at_ms))
    for number in range(count):
        if number < len(task.ends):
            duration_ms = task.ends[number][0] - max(0, task.granted_at_ms[number])
        elif number < len(task.granted_at_ms):
            duration_ms = max(usual_ms, window_ms - task.granted_at_ms[number])
        else:
            duration_ms = usual_ms
        yield AttemptOutcome(max(0, duration_ms), fails=number < count - 1)


def _pauses(task: RecordedTask) -> Iterator[int]:
    """How long after the end of each attempt the next one was ready."""
    for (ended_at_ms, _), ready_at_ms in zip(task.ends, task.ready_at_ms[1:], strict=False):
        yield max(0, ready_at_ms - ended_at_ms)


def _pool(worker: RecordedWorker) -> WorkerPool:
    return WorkerPool(
        worker.queue,
        1,
        worker.slots,
        tuple(sorted(worker.types)),
        TaskKind(worker.kind),
        worker.joins_ms,
        worker.leaves_ms,
        worker.dies_ms,
    )


def _notes(tasks: Iterable[RecordedTask], carried: int) -> Iterator[str]:
    gone = unended = 0
    for each in tasks:
        gone += each.is_gone and not each.granted_at_ms
        unended += len(each.ends) < len(each.granted_at_ms)
    if carried:
        yield f"{carried:,} tasks were there before the window; they arrive at its beginning."
    if gone:
        yield f"{gone:,} tasks that were cancelled or held by a pause while they waited are left out."
    if unended:
        yield f"{unended:,} tasks had not ended with the window; they take the usual time of their type, or longer."
