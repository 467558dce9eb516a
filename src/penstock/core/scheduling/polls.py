"""A poll, and the four answers that a claim gives to one: `Granted`, `Held`, `Refused` or `Retry`."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

from msgspec import Struct

from penstock.core.model import Activity, RecordedEvent, Run, Task, TaskKind
from penstock.core.scheduling.charges import Charge
from penstock.core.scheduling.dispatch import Hold, WorkerFilter
from penstock.errors import PenstockError

HISTORY_PAGE_DEFAULT = 500
TASKS_PER_POLL_MAX = 100


class Poll(Struct, frozen=True):
    """One open request for tasks."""

    namespace: str
    worker_id: str
    task_queue: str
    kind: TaskKind
    build_id: str | None = None
    poll_request_id: str | None = None
    """Makes the poll idempotent: a repeated poll gets the tasks that the first one leased."""
    tasks_max: int = 1
    history_page: int = HISTORY_PAGE_DEFAULT
    activities_per_second_micro: int | None = None
    """The dispatch rate of the queue that its worker asks for, per million seconds; None: no preference."""
    activities_burst_ms: int | None = None
    """For how long the same worker lets unused dispatches accumulate."""
    claim_lease_ms: int | None = None
    """Prefetch: the lease of tasks that are not started yet; None: the tasks are started at once."""
    lease_ms: int | None = None
    """The longest lease of an activity task; None: the default of the server."""


class Leased(Struct, frozen=True):
    """A leased task with everything that its worker needs to run it."""

    task: Task
    run: Run
    activity: Activity | None = None
    events: Sequence[RecordedEvent] = ()
    seen: int = 0
    """The last event that the worker has already, because it caches the run."""
    charge: Charge | None = None
    """What the grant charged, to be refunded if the task is not delivered; None: an earlier poll was charged."""


class Granted(Struct, frozen=True):
    """Tasks leased to the poll."""

    leased: tuple[Leased, ...]
    worker_filter: WorkerFilter


class Held(Struct, frozen=True):
    """No task now, for a reason. The poll stays open until a wakeup, `retry_in_ms`, or its deadline."""

    hold: Hold
    worker_filter: WorkerFilter
    at_ms: int = 0
    """When the claim looked, by the clock of the store."""
    retry_in_ms: int | None = None
    """When time alone may end the hold; None: only a wakeup does."""
    scope_ids: tuple[int, ...] = ()
    """The scopes whose limits are in the way: their topics tell when they may open."""
    others_may_be_served: bool = False
    """Whether the hold is about this worker only: it is full, or tasks are sticky to other workers."""


class Refused(Struct, frozen=True):
    """The worker may not poll this queue."""

    error: PenstockError


class RetryReason(StrEnum):
    SERVED_APART = "served_apart"
    """Not looked at: the worker may take other sticky tasks than the first poll of the claim. Claim for it next."""
    OTHER_FILTER = "other_filter"
    """Not looked at: the worker takes other types or another build than the claim was for."""
    MORE_TO_SEE = "more_to_see"
    """The claim did not see every task that may be ready: a lane held fewer than planned, or lanes were placed."""


class Retry(Struct, frozen=True):
    """No answer yet: claim again at once."""

    reason: RetryReason
    worker_filter: WorkerFilter
    held: Held | None = None
    """What was in the way so far; None: the poll was not looked at."""


ClaimResult = Granted | Held | Refused | Retry
