"""Query tasks, few and short-lived."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.core.model import QueryKind, QueryState, QueryTask
from penstock.core.scheduling.dispatch import WorkerFilter
from penstock.ports.tables.tasks import QueryQueue
from penstock.stores.memory.tables import MemoryRepository


class MemoryQueries(MemoryRepository):
    async def get(self, query_id: str) -> QueryTask | None:
        return self._tables.queries.get(query_id)

    async def lock(self, query_id: str) -> QueryTask | None:
        return self._tables.queries.get(query_id)

    async def count_pending(
        self, namespace: str, task_queue: str, now_ms: int, kind: QueryKind = QueryKind.QUERY
    ) -> int:
        return len(self._pending(namespace, task_queue, now_ms, kind))

    async def pending_on(self, lines: Sequence[QueryQueue], now_ms: int) -> Sequence[QueryQueue]:
        return [
            (kind, namespace, task_queue)
            for kind, namespace, task_queue in lines
            if self._pending(namespace, task_queue, now_ms, kind)
        ]

    async def lock_next(
        self,
        namespace: str,
        task_queue: str,
        worker_filter: WorkerFilter,
        now_ms: int,
        kind: QueryKind = QueryKind.QUERY,
    ) -> QueryTask | None:
        fitting = [
            query
            for query in self._pending(namespace, task_queue, now_ms, kind)
            if (not worker_filter.types or query.workflow_type in worker_filter.types)
            and query.compatibility in (None, worker_filter.build_id)
        ]
        return min(fitting, key=lambda query: (query.created_at_ms, query.query_id), default=None)

    async def lapsed(self, now_ms: int, limit: int) -> Sequence[str]:
        lapsed = [
            query.query_id
            for query in self._tables.queries.values()
            if query.expires_at_ms <= now_ms
            or (query.state is QueryState.LEASED and (query.lease_expires_at_ms or 0) <= now_ms)
        ]
        return lapsed[:limit]

    def insert(self, query: QueryTask) -> None:
        def write() -> None:
            assert query.query_id not in self._tables.queries, f"query {query.query_id} exists"
            self._changes.put(self._tables.queries, query.query_id, query)

        self._changes.record(write)

    def save(self, query: QueryTask) -> None:
        self._changes.record(lambda: self._changes.put(self._tables.queries, query.query_id, query))

    def delete(self, query_id: str) -> None:
        def write() -> None:
            if query_id in self._tables.queries:
                self._changes.drop(self._tables.queries, query_id)

        self._changes.record(write)

    def _pending(self, namespace: str, task_queue: str, now_ms: int, kind: QueryKind) -> list[QueryTask]:
        return [
            query
            for query in self._tables.queries.values()
            if query.namespace == namespace
            and query.task_queue == task_queue
            and query.kind is kind
            and query.state is QueryState.PENDING
            and query.expires_at_ms > now_ms
        ]
