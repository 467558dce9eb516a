"""Accepted requests by the caller's request id, for deduplication."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.core.model import RetainedRequest, RunId
from penstock.stores.memory.tables import MemoryRepository, RequestName


class MemoryRequests(MemoryRepository):
    async def get(
        self, namespace: str, workflow_id: str, kind: str, request_id: str
    ) -> RetainedRequest | None:
        return self._tables.requests.get((namespace, workflow_id, kind, request_id))

    async def all_of(self, run_id: RunId) -> Sequence[RetainedRequest]:
        found = [self._tables.requests[name] for name in self._tables.requests_of.of(run_id)]
        return sorted(found, key=lambda request: (request.number, request.request_id))

    def insert(self, request: RetainedRequest) -> None:
        def write() -> None:
            name = _name(request)
            assert name not in self._tables.requests, f"{request.kind} {request.request_id!r} was accepted"
            self._changes.put(self._tables.requests, name, request)
            self._changes.add(self._tables.requests_of, request.run_id, name, None)

        self._changes.record(write)


def _name(request: RetainedRequest) -> RequestName:
    return request.namespace, request.workflow_id, request.kind, request.request_id
