"""Runs and what belongs to them: histories, activities, timers, children, outbox, updates, retained requests."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from msgspec import Struct

from penstock.core.audit.trail import RequestEvent
from penstock.core.model import (
    Activity,
    ActivityId,
    ChildRun,
    Instance,
    NewEvent,
    OutboxMessage,
    RecordedEvent,
    RetainedRequest,
    Run,
    RunId,
    Timer,
    Update,
)
from penstock.core.starts.unique_starts import UniqueUntil
from penstock.core.timeline.values import TimelineEvent
from penstock.ports.tables.visibility import PageStart as PageStart


class RunFilter(Struct, frozen=True):
    """A filter for lists of runs; fields that are None match everything."""

    namespace: str
    host: str
    type: str | None = None
    bucket: str | None = None
    text: str | None = None
    """Part of the workflow id or business key."""


class Runs(Protocol):
    async def reserve(self, instance: Instance) -> Instance:
        """Insert the workflow id unless it exists; returns the row that is stored."""
        ...

    async def reserve_all(self, instances: Sequence[Instance]) -> Sequence[Instance]:
        """`reserve` for several workflow ids."""
        ...

    async def instance(self, namespace: str, workflow_id: str) -> Instance | None: ...
    async def named(
        self, namespace: str, workflow_id: str, run_id: RunId | None
    ) -> tuple[Instance, Run | None] | None:
        """A workflow id, and the given run (which may belong to another id) or else its latest run."""
        ...

    async def get(self, run_id: RunId) -> Run | None: ...
    async def get_many(self, run_ids: Sequence[RunId]) -> Sequence[Run | None]: ...
    async def lock(self, run_id: RunId) -> Run | None: ...
    async def of_instance(
        self, namespace: str, workflow_id: str, after: PageStart | None, limit: int
    ) -> Sequence[Run]:
        """The runs of a workflow id, the oldest first."""
        ...

    async def page(self, narrow: RunFilter, after: PageStart | None, limit: int) -> Sequence[Run]: ...
    async def overdue(self, now_ms: int, limit: int) -> Sequence[RunId]: ...
    async def blocked(self, namespace: str, task_queue: str, limit: int) -> Sequence[RunId]:
        """Open runs of a queue whose code and history diverge."""
        ...

    def insert(self, run: Run) -> None: ...
    def save(self, run: Run) -> None:
        """Update the columns that change during a run; not its memo and search attributes."""
        ...

    def save_attributes(self, run: Run) -> None:
        """Update the memo and the search attributes."""
        ...

    def replace_input(self, run: Run) -> None:
        """Update the input and the deadlines of a run that no worker has started."""
        ...

    def release(self, instance: Instance) -> None:
        """Delete a workflow id that was reserved, if it still names that run."""
        ...

    def succeed(self, instance: Instance) -> None:
        """Update the latest run of a workflow id."""
        ...


class UniqueKeyName(Struct, frozen=True):
    """A unique key in its namespace and scope, which is what the run hosts and its type."""

    namespace: str
    scope: str
    unique_key: str


class UniqueKeyRow(Struct, frozen=True):
    """The run that was started with a key last. Whether it still holds the key, its own state says."""

    run_id: RunId
    until: UniqueUntil
    starts: int = 1
    """How many starts it stands for, itself included."""
    latest_at_ms: int | None = None
    """Of a debounced start: when it begins at the latest, however many starts join it."""


class UniqueKeys(Protocol):
    """Rows are changed under their lock, except that a run hands its own on to its successor."""

    async def get(self, name: UniqueKeyName) -> UniqueKeyRow | None: ...
    async def lock(self, name: UniqueKeyName) -> UniqueKeyRow | None: ...
    async def reserve(self, name: UniqueKeyName, row: UniqueKeyRow) -> bool:
        """Insert the row unless the key has one; returns whether it was inserted."""
        ...

    def save(self, name: UniqueKeyName, row: UniqueKeyRow) -> None: ...
    def hand_on(self, run_id: RunId, successor: RunId) -> None:
        """Name the successor of a run in its place."""
        ...


PAGE_BYTES = 4_000_000
"""A page of a history ends with the event that reaches this size."""


class Histories(Protocol):
    async def page(self, run_id: RunId, after: int, limit: int) -> Sequence[RecordedEvent]:
        """Up to `limit` events after a sequence number; fewer if they are large, but at least one if there is any."""
        ...

    async def first_pages(
        self, run_ids: Sequence[RunId], limits: Sequence[int], after: Sequence[int] = ()
    ) -> Sequence[Sequence[RecordedEvent]]:
        """One page of each history, with its own limit, from the beginning or after a sequence number."""
        ...

    async def page_back(self, run_id: RunId, before: int, limit: int) -> Sequence[RecordedEvent]:
        """The last events before a sequence number, newest first."""
        ...

    async def timeline(self, run_id: RunId, after: int, limit: int) -> Sequence[TimelineEvent]:
        """Up to `limit` events after a sequence number, without their payloads, which may be large."""
        ...

    async def requests(self, run_id: RunId, after: int, limit: int) -> Sequence[RequestEvent]:
        """The events by which callers started the run and, after a sequence number, sent it something; the newest
        first.
        """
        ...

    async def last_of_type(self, run_id: RunId, types: Sequence[str]) -> RecordedEvent | None: ...
    async def buffered(self, run_id: RunId) -> Sequence[NewEvent]:
        """Events buffered until the leased workflow task ends, in order of arrival."""
        ...

    def append(self, events: Sequence[RecordedEvent]) -> None: ...
    def buffer(self, run_id: RunId, number: int, event: NewEvent) -> None: ...
    def clear_buffer(self, run_id: RunId) -> None: ...


class Activities(Protocol):
    async def get(self, activity_id: ActivityId) -> Activity | None: ...
    async def get_many(self, activity_ids: Sequence[ActivityId]) -> Sequence[Activity | None]: ...
    async def open_of(self, run_id: RunId) -> Sequence[Activity]: ...
    async def overdue(self, now_ms: int, limit: int) -> Sequence[ActivityId]: ...
    def insert(self, activity: Activity) -> None: ...
    def save(self, activity: Activity) -> None: ...
    def change(self, activity: Activity) -> None:
        """Update also its task, its task queue, its retry policy and its timeouts."""
        ...

    def replace_arguments(self, activity: Activity) -> None:
        """Update the arguments of an activity that no worker has started, and when it is scheduled."""
        ...


class Children(Protocol):
    async def get(self, parent_run_id: RunId, step: int) -> ChildRun | None: ...
    async def open_of(self, parent_run_id: RunId) -> Sequence[ChildRun]: ...
    async def all_of(self, parent_run_id: RunId) -> Sequence[ChildRun]: ...
    def insert(self, child: ChildRun) -> None: ...
    def save(self, child: ChildRun) -> None: ...


class Outbox(Protocol):
    async def get(self, message_id: str) -> OutboxMessage | None: ...
    async def lock(self, message_id: str) -> OutboxMessage | None:
        """Lock the message itself, where there may be no receiving run to lock."""
        ...

    async def waiting(self, limit: int) -> Sequence[str]:
        """Ids of undelivered messages, oldest first."""
        ...

    def insert(self, message: OutboxMessage) -> None: ...
    def delete(self, message_id: str) -> None: ...


class Updates(Protocol):
    async def get(self, update_id: str) -> Update | None: ...
    async def next_accepted(self, run_id: RunId) -> Update | None:
        """The update of a run that is applied next."""
        ...

    async def accepted_of(self, run_id: RunId) -> Sequence[Update]: ...
    async def all_of(self, run_id: RunId) -> Sequence[Update]: ...
    async def latest(self, run_id: RunId, limit: int) -> Sequence[Update]:
        """The updates that were accepted last, the newest first."""
        ...

    def insert(self, update: Update) -> None: ...
    def save(self, update: Update) -> None:
        """Record the outcome of an update, or its move to the run that continues its own."""
        ...


class Requests(Protocol):
    async def get(
        self, namespace: str, workflow_id: str, kind: str, request_id: str
    ) -> RetainedRequest | None: ...
    async def all_of(self, run_id: RunId) -> Sequence[RetainedRequest]: ...
    async def operator_requests(self, run_id: RunId) -> Sequence[RetainedRequest]:
        """Repairs and archivings of a run, the oldest first."""
        ...

    async def deletions(
        self, namespace: str, workflow_id: str | None, before: str, limit: int
    ) -> Sequence[RetainedRequest]:
        """Records of deleted runs, of one workflow id or (None) of all, with keys below `before`; the newest first."""
        ...

    def insert(self, request: RetainedRequest) -> None: ...


class Timers(Protocol):
    async def get(self, timer_id: str) -> Timer | None: ...
    async def open_of(self, run_id: RunId) -> Sequence[Timer]: ...
    async def due(self, now_ms: int, limit: int) -> Sequence[str]: ...
    async def next_due_at_ms(self) -> int | None: ...
    def insert(self, timer: Timer) -> None: ...
    def save(self, timer: Timer) -> None: ...
