"""Pauses of one run or of one activity: which tasks they hold back, and how.

Theory of operation
-------------------
A pause keeps tasks from being dispatched, and nothing else: signals, updates, timers and results are recorded as ever,
and the code sees them when it goes on. It is a field of the run's `Waits`, read and changed under the run's lock, which
every operation that makes a task of the run ready holds too. So whoever makes a task ready asks `held_back`, and after
the transaction that pauses there is no dispatch any more.

A held task is *delayed* until `HELD_AT_MS`, a time that does not come; when it was really due is kept in
`Task.retry_due_at_ms`. Claims, sweepers, lanes and meters need to know nothing of pauses: a held task is in no lane.
`released` gives it back its time.

An attempt that a worker has already is not interrupted by the pause of its run. Its result is recorded, and a retry of
it waits. The schedule-to-start timeout does not count while a task is held, because it counts from the time at which
the task is available; all other timeouts, of the activity and of the run, do.

Rejected: a state `held` of tasks, which every statement that lists live tasks would have to know; and a filter in the
claim, which would walk over the held tasks of a lane again with every poll.
"""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace

from penstock.core.model import Run, Task, TaskState
from penstock.core.waits import Pause

HELD_AT_MS: Final = 253_370_764_800_000
"""The year 9999."""


def pause_of(run: Run, task: Task) -> Pause | None:
    """The pause that holds back a task of a run: its activity's own, or the run's."""
    own = None if task.activity_id is None else run.waits.paused_steps.get(step_of(task))
    return own or run.waits.paused


def step_of(task: Task) -> int:
    """The step of an activity task, which the id of its activity ends with."""
    assert task.activity_id is not None
    return int(task.activity_id.rpartition("-a")[2])


def is_held(task: Task) -> bool:
    return task.state is TaskState.DELAYED and task.available_at_ms == HELD_AT_MS


def held_back(run: Run, task: Task) -> Task:
    """A task that is about to wait, held if its run or activity is paused."""
    if task.state not in (TaskState.READY, TaskState.DELAYED) or is_held(task) or pause_of(run, task) is None:
        return task
    due_at_ms = task.available_at_ms
    return replace(task, state=TaskState.DELAYED, available_at_ms=HELD_AT_MS, retry_due_at_ms=due_at_ms)


def released(task: Task, now_ms: int) -> Task:
    """A held task as it waits after the pause: ready, or delayed until it is due."""
    due_at_ms = now_ms if task.retry_due_at_ms is None else task.retry_due_at_ms
    if due_at_ms > now_ms:
        return replace(task, available_at_ms=due_at_ms, retry_due_at_ms=None)
    return replace(task, state=TaskState.READY, available_at_ms=now_ms, retry_due_at_ms=None)
