"""A model of runs and their messages: what the SQL statements about them do, in dictionaries.

It implements the part of `Tx` that the equivalence test of runs uses. Writes are applied after the operation has
returned.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any, TypeVar, cast

from msgspec.structs import replace

from penstock.core.model import (
    ChildRun,
    ChildState,
    Instance,
    NewEvent,
    OutboxMessage,
    RecordedEvent,
    RetainedRequest,
    Run,
    RunId,
    Update,
    UpdateStatus,
)
from penstock.ports.store import Operation, Store, Tx

T = TypeVar("T")


class RunModel:
    """All rows, by primary key."""

    def __init__(self) -> None:
        self._writes: list[Callable[[], None]] = []
        self.instances: dict[tuple[str, str], Instance] = {}
        self.runs: dict[RunId, Run] = {}
        self.events: dict[RunId, list[RecordedEvent]] = {}
        self.buffers: dict[RunId, dict[int, NewEvent]] = {}
        self.children: dict[tuple[RunId, int], ChildRun] = {}
        self.updates: dict[str, Update] = {}
        self.outbox: dict[str, OutboxMessage] = {}
        self.requests: dict[tuple[str, str, str, str], RetainedRequest] = {}

    @classmethod
    def store(cls) -> Store:
        """The model, as far as it goes, as a store."""
        return cast("Store", cls())

    async def transact(self, operation: Operation[T], *, key: str) -> T:
        answer = await self.read(operation)
        writes, self._writes = self._writes, []
        for write in writes:
            write()
        return answer

    async def read(self, operation: Operation[T]) -> T:
        parts = {
            "runs": ModelRuns(self),
            "histories": ModelHistories(self),
            "children": ModelChildren(self),
            "updates": ModelUpdates(self),
            "outbox": ModelOutbox(self),
            "requests": ModelRequests(self),
        }
        return await operation(cast("Tx", SimpleNamespace(**parts)))

    def put(self, table: dict[Any, Any], key: object, value: object) -> None:
        self.record(lambda: table.update({key: value}))

    def record(self, write: Callable[[], None]) -> None:
        self._writes.append(write)


class _Rows:
    def __init__(self, model: RunModel) -> None:
        self._model = model


class ModelRuns(_Rows):
    async def reserve(self, instance: Instance) -> Instance:
        return self._model.instances.setdefault((instance.namespace, instance.workflow_id), instance)

    async def instance(self, namespace: str, workflow_id: str) -> Instance | None:
        return self._model.instances.get((namespace, workflow_id))

    async def get(self, run_id: RunId) -> Run | None:
        return self._model.runs.get(run_id)

    async def get_many(self, run_ids: Sequence[RunId]) -> Sequence[Run | None]:
        return [self._model.runs.get(run_id) for run_id in run_ids]

    async def of_instance(self, namespace: str, workflow_id: str, after: None, limit: int) -> Sequence[Run]:
        found = [run for run in self._model.runs.values() if run.workflow_id == workflow_id]
        return sorted(found, key=lambda run: (run.started_at_ms, run.run_id))[:limit]

    async def blocked(self, namespace: str, task_queue: str, limit: int) -> Sequence[RunId]:
        found = [run for run in self._model.runs.values() if run.task_queue == task_queue]
        return sorted(run.run_id for run in found if run.blocked is not None)[:limit]

    def insert(self, run: Run) -> None:
        self._model.put(self._model.runs, run.run_id, run)

    def save(self, run: Run) -> None:
        before = self._model.runs[run.run_id]
        self.insert(replace(run, memo=before.memo, search_attributes=before.search_attributes))

    def save_attributes(self, run: Run) -> None:
        before = self._model.runs[run.run_id]
        self.insert(replace(before, memo=run.memo, search_attributes=run.search_attributes))

    def succeed(self, instance: Instance) -> None:
        self._model.put(self._model.instances, (instance.namespace, instance.workflow_id), instance)


class ModelHistories(_Rows):
    async def page(self, run_id: RunId, after: int, limit: int) -> Sequence[RecordedEvent]:
        return self._model.events.get(run_id, [])[after : after + limit]

    async def page_back(self, run_id: RunId, before: int, limit: int) -> Sequence[RecordedEvent]:
        return self._model.events.get(run_id, [])[: before - 1][::-1][:limit]

    async def buffered(self, run_id: RunId) -> Sequence[NewEvent]:
        return [event for _, event in sorted(self._model.buffers.get(run_id, {}).items())]

    def append(self, events: Sequence[RecordedEvent]) -> None:
        for event in events:
            history = self._model.events.setdefault(event.run_id, [])
            self._model.record(lambda event=event, history=history: history.append(event))  # type: ignore[misc]

    def buffer(self, run_id: RunId, number: int, event: NewEvent) -> None:
        self._model.put(self._model.buffers.setdefault(run_id, {}), number, event)

    def clear_buffer(self, run_id: RunId) -> None:
        self._model.record(lambda: self._model.buffers.get(run_id, {}).clear())


class ModelChildren(_Rows):
    async def get(self, parent_run_id: RunId, step: int) -> ChildRun | None:
        return self._model.children.get((parent_run_id, step))

    async def all_of(self, parent_run_id: RunId) -> Sequence[ChildRun]:
        found = [child for child in self._model.children.values() if child.parent_run_id == parent_run_id]
        return sorted(found, key=lambda child: child.step)

    async def open_of(self, parent_run_id: RunId) -> Sequence[ChildRun]:
        return [child for child in await self.all_of(parent_run_id) if child.state is ChildState.OPEN]

    def insert(self, child: ChildRun) -> None:
        self._model.put(self._model.children, (child.parent_run_id, child.step), child)

    def save(self, child: ChildRun) -> None:
        self.insert(child)


class ModelUpdates(_Rows):
    async def all_of(self, run_id: RunId) -> Sequence[Update]:
        found = [update for update in self._model.updates.values() if update.run_id == run_id]
        return sorted(found, key=lambda update: update.number)

    async def accepted_of(self, run_id: RunId) -> Sequence[Update]:
        return [update for update in await self.all_of(run_id) if update.status is UpdateStatus.ACCEPTED]

    async def next_accepted(self, run_id: RunId) -> Update | None:
        return next(iter(await self.accepted_of(run_id)), None)

    def insert(self, update: Update) -> None:
        self._model.put(self._model.updates, update.update_id, update)

    def save(self, update: Update) -> None:
        self.insert(update)


class ModelOutbox(_Rows):
    async def get(self, message_id: str) -> OutboxMessage | None:
        return self._model.outbox.get(message_id)

    async def waiting(self, limit: int) -> Sequence[str]:
        found = sorted((each.created_at_ms, each.message_id) for each in self._model.outbox.values())
        return [message_id for _, message_id in found[:limit]]

    def insert(self, message: OutboxMessage) -> None:
        self._model.put(self._model.outbox, message.message_id, message)

    def delete(self, message_id: str) -> None:
        self._model.record(lambda: self._model.outbox.__delitem__(message_id))


class ModelRequests(_Rows):
    async def get(
        self, namespace: str, workflow_id: str, kind: str, request_id: str
    ) -> RetainedRequest | None:
        return self._model.requests.get((namespace, workflow_id, kind, request_id))

    async def all_of(self, run_id: RunId) -> Sequence[RetainedRequest]:
        found = [request for request in self._model.requests.values() if request.run_id == run_id]
        return sorted(found, key=lambda request: request.number)

    def insert(self, request: RetainedRequest) -> None:
        name = (request.namespace, request.workflow_id, request.kind, request.request_id)
        self._model.put(self._model.requests, name, request)
