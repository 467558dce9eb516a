"""Query tasks in SQL: short-lived rows, so that one server can ask and another can answer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec.structs import astuple

from penstock.core.model import QueryKind, QueryState, QueryTask
from penstock.core.scheduling.dispatch import WorkerFilter
from penstock.ports.tables.tasks import QueryQueue
from penstock.stores.sql.session import Repository, Row
from penstock.stores.sql.tasks.tasks import enclosed


class SqlQueries(Repository):
    async def get(self, query_id: str) -> QueryTask | None:
        return _first(await self._session.fetch("get_query", query_id))

    async def lock(self, query_id: str) -> QueryTask | None:
        return _first(await self._session.fetch("lock_query", query_id))

    async def count_pending(
        self, namespace: str, task_queue: str, now_ms: int, kind: QueryKind = QueryKind.QUERY
    ) -> int:
        rows = await self._session.fetch("count_pending_queries", namespace, task_queue, kind, now_ms)
        return int(rows[0][1])

    async def pending_on(self, lines: Sequence[QueryQueue], now_ms: int) -> Sequence[QueryQueue]:
        parameters = [(namespace, task_queue, kind, now_ms) for kind, namespace, task_queue in lines]
        answers = await self._session.fetch_each("count_pending_queries", parameters)
        return [line for line, rows in zip(lines, answers, strict=True) if int(rows[0][1])]

    async def lock_next(
        self,
        namespace: str,
        task_queue: str,
        worker_filter: WorkerFilter,
        now_ms: int,
        kind: QueryKind = QueryKind.QUERY,
    ) -> QueryTask | None:
        return _first(
            await self._session.fetch(
                "lock_next_query",
                namespace,
                task_queue,
                kind,
                enclosed(worker_filter.types),
                worker_filter.build_id,
                now_ms,
            )
        )

    async def lapsed(self, now_ms: int, limit: int) -> Sequence[str]:
        return [row[1] for row in await self._session.fetch("expired_queries", now_ms, limit)]

    def insert(self, query: QueryTask) -> None:
        self._session.record("insert_query", *astuple(query))

    def save(self, query: QueryTask) -> None:
        self._session.record(
            "save_query",
            query.query_id,
            query.state,
            query.attempt,
            query.lease_owner,
            query.lease_expires_at_ms,
            query.outcome,
        )

    def delete(self, query_id: str) -> None:
        self._session.record("delete_query", query_id)


def _first(rows: Sequence[Row]) -> QueryTask | None:
    if not rows:
        return None
    values: list[Any] = [*rows[0][1:]]
    values[10], values[15] = QueryState(values[10]), QueryKind(values[15])
    return QueryTask(*values)
