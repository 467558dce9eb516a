"""Unique starts: at most one run per unique key, and starts of a key that are merged into one.

Theory of operation
-------------------
A start may carry a *unique key*. Its run holds the key, within its namespace and type, until it is done or until a
worker has started it, as the start chose (`UniqueUntil`). A start that finds the key held begins nothing: it returns
the run that holds it, or is refused (`UniqueConflictPolicy`).

A start may also be *debounced*: its run waits until no other start of the key has come for a while. Each start that
comes in time replaces the input and begins the wait anew, but never beyond the longest delay, which counts from the
first start. A run that is due, and that no worker has taken yet, still takes the latest input; it is not delayed again.

Who holds a key is derived from the run that the key's row names: whether it is open, and whether its first task was
ever leased. So nothing has to release a key, and nothing that ends a run can forget to.

Invariants:
- `one-holder`: of the runs that were started with a key, at most one holds it. A run that an operator forks has none.
- A debounced start is either carried out with its own input, or its input was replaced by that of a later start.

Rejected: releasing keys where runs close (every path that closes a run would have to), and a table of starts that are
not runs yet (nothing to describe, cancel, list or signal until the wait is over).
"""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct
from msgspec.structs import replace

from penstock.core.model import Run, Task, TaskState
from penstock.core.pauses import is_held

KEY_MAX = 255
LONGEST_DELAYS = 10
"""The longest delay of a debounced start that names none, in delays."""


class UniqueUntil(StrEnum):
    """How long a run holds its unique key. The values are API."""

    DONE = "done"
    STARTED = "started"
    """Until its first task is leased by a worker."""


class UniqueConflictPolicy(StrEnum):
    """What a start does whose unique key is held. The values are API."""

    USE_EXISTING = "use_existing"
    FAIL = "fail"


class Debounce(Struct, frozen=True):
    """How long a start waits for another one, and how long at most."""

    delay_ms: int
    longest_ms: int

    def due_at_ms(self, first_at_ms: int, now_ms: int) -> int:
        """When the run may begin, if no other start comes; `first_at_ms` is the time of its first start."""
        return min(now_ms + self.delay_ms, max(now_ms, first_at_ms + self.longest_ms))


class UniqueStart(Struct, frozen=True):
    """The unique key of a start."""

    key: str
    until: UniqueUntil = UniqueUntil.DONE
    conflict: UniqueConflictPolicy = UniqueConflictPolicy.USE_EXISTING
    debounce: Debounce | None = None


def scope_of(workflow_type: str, activity_type: str | None) -> str:
    """Where a key is unique in its namespace: among the starts of a type, that of a standalone activity if given."""
    return f"workflow/{workflow_type}" if activity_type is None else f"activity/{activity_type}"


class UniqueConflict(StrEnum):
    """What a start does whose unique key another run holds."""

    USE_EXISTING = "use_existing"
    REFUSE = "refuse"
    REPLACE_INPUT = "replace_input"


def is_held_by(run: Run, first_task: Task | None, until: UniqueUntil) -> bool:
    """Whether a run holds the key that it was started with."""
    return run.is_open and (until is UniqueUntil.DONE or is_unstarted(first_task))


def is_unstarted(first_task: Task | None) -> bool:
    """Whether no worker has started a run yet."""
    if first_task is None:
        return False
    return first_task.attempt == 0 and first_task.state in (TaskState.READY, TaskState.DELAYED)


def decide_conflict(unique: UniqueStart, first_task: Task | None) -> UniqueConflict:
    """What a start does whose key is held by the run with this first task."""
    if unique.debounce is not None and is_unstarted(first_task):
        return UniqueConflict.REPLACE_INPUT
    return (
        UniqueConflict.REFUSE if unique.conflict is UniqueConflictPolicy.FAIL else UniqueConflict.USE_EXISTING
    )


def postponed(task: Task, due_at_ms: int) -> Task:
    """The first task of a run that another start joins: one that is ready stays so, one that is held stays held."""
    if task.state is not TaskState.DELAYED:
        return task
    if is_held(task):
        return replace(task, retry_due_at_ms=due_at_ms)
    return replace(task, available_at_ms=due_at_ms)
