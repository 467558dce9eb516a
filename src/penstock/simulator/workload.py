"""What is simulated, as values. Times are milliseconds after the beginning of the simulation."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct, field

from penstock.core.model import WEIGHT_DEFAULT_MILLI, TaskKind
from penstock.core.priority_levels import LEVEL_DEFAULT
from penstock.wire.limits.limit_paths import LimitSettings


class AttemptOutcome(Struct, frozen=True):
    """How long an attempt takes, and how it ends."""

    duration_ms: int
    fails: bool = False


class SimulatedArrival(Struct, frozen=True):
    """One task. Attempts beyond those listed, such as after the death of a worker, are like the last one."""

    at_ms: int
    queue: str
    type: str
    attempts: tuple[AttemptOutcome, ...]
    kind: TaskKind = TaskKind.ACTIVITY
    key: str = ""
    level: int = LEVEL_DEFAULT
    weight_milli: int = WEIGHT_DEFAULT_MILLI
    cost: int = 0
    backoff_ms: tuple[int, ...] = ()
    """The pause after each attempt that fails; the last one repeats."""
    after: int | None = None
    """The arrival whose end causes this one, by its place in the workload; None: it comes at `at_ms`."""
    think_ms: int = 0
    """How long after that end it comes."""


class WorkerPool(Struct, frozen=True):
    """Workers of one kind on one queue. They leave when their tasks are done, or die and lose their leases."""

    queue: str
    count: int
    slots: int
    types: tuple[str, ...] = ()
    """The types that they take; none named: all."""
    kind: TaskKind = TaskKind.ACTIVITY
    joins_ms: int = 0
    leaves_ms: int | None = None
    dies_ms: int | None = None


class Workload(Struct, frozen=True):
    """Everything that one run of the simulator depends on."""

    arrivals: Sequence[SimulatedArrival]
    """In order of time; those with a cause in the order in which they were recorded."""
    pools: tuple[WorkerPool, ...]
    limits: tuple[LimitSettings, ...] = ()
    start_ms: int = 0
    """The instant at which it begins, in milliseconds since 1970: budgets count calendar minutes."""
    duration_ms: int = 0
    """How long tasks arrive."""
    until_ms: int = 0
    """When it ends at the latest, also with tasks waiting."""
    until_clear: bool = False
    """Whether it ends earlier, once every queue has had a moment without waiting tasks after its longest backlog."""
    lease_ms: int = 60_000
    """After this long the tasks of a dead worker run again."""
    notes: tuple[str, ...] = field(default=())
    """What the reader of the result must know about the workload."""
