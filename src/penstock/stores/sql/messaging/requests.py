"""Accepted requests by the caller's request id, in SQL."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import astuple

from penstock.core.model import RetainedRequest, RunId
from penstock.stores.sql.session import Repository


class SqlRequests(Repository):
    async def get(
        self, namespace: str, workflow_id: str, kind: str, request_id: str
    ) -> RetainedRequest | None:
        rows = await self._session.fetch("get_request", namespace, workflow_id, kind, request_id)
        return RetainedRequest(*rows[0][1:]) if rows else None

    async def all_of(self, run_id: RunId) -> Sequence[RetainedRequest]:
        return [RetainedRequest(*row[1:]) for row in await self._session.fetch("requests_of_run", run_id)]

    async def operator_requests(self, run_id: RunId) -> Sequence[RetainedRequest]:
        rows = await self._session.fetch("operator_requests_of_run", run_id)
        return [RetainedRequest(*row[1:]) for row in rows]

    async def deletions(
        self, namespace: str, workflow_id: str | None, before: str, limit: int
    ) -> Sequence[RetainedRequest]:
        rows = await self._session.fetch("deletions", namespace, workflow_id, before, limit)
        return [RetainedRequest(*row[1:]) for row in rows]

    def insert(self, request: RetainedRequest) -> None:
        self._session.record("insert_request", *astuple(request))
