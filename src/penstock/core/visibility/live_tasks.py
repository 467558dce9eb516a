"""What runs in a list wait for: their live tasks, counted by kind and state, and what follows from them.

A run waits for a gate if a task of it is ready: a limit, a turn or a worker is missing. It waits by design if all it
has is a timer, a signal or a retry whose time has not come. Which gate it is, `why` says for one task; a list only says
that there is one.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

from msgspec import Struct


class LiveTasks(Struct, frozen=True):
    """Tasks of one run, kind and state that are neither done nor cancelled.

    Attributes:
        kind: `workflow` or `activity`.
        state: `ready`, `delayed` or `leased`.
        count: How many there are.
        task_queue: The queue of one of them, the first by name.
        type: The type of one of them; None for workflow tasks.
        available_at_ms: When the first of them may be dispatched.
    """

    kind: str
    state: str
    count: int
    task_queue: str
    type: str | None
    available_at_ms: int


class RunWait(StrEnum):
    """What a run waits for. The values are API."""

    GATE = "gate"
    RUNNING = "running"
    BY_DESIGN = "by_design"


def waits_for(tasks: Sequence[LiveTasks]) -> RunWait:
    """What holds an open run: a gate before all else, then what runs, else what its code asked for."""
    states = {each.state for each in tasks}
    if "ready" in states:
        return RunWait.GATE
    return RunWait.RUNNING if "leased" in states else RunWait.BY_DESIGN
