"""Workers, by namespace and id."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from penstock.core.model import WorkerRecord, WorkerStatus
from penstock.stores.memory.tables import MemoryRepository


class MemoryWorkers(MemoryRepository):
    async def get(self, namespace: str, worker_id: str) -> WorkerRecord | None:
        return self._tables.workers.get((namespace, worker_id))

    async def get_many(self, namespace: str, worker_ids: Sequence[str]) -> Sequence[WorkerRecord | None]:
        return [self._tables.workers.get((namespace, worker_id)) for worker_id in worker_ids]

    async def list(self, namespace: str, task_queue: str | None) -> Sequence[WorkerRecord]:
        found = [
            worker
            for worker in self._tables.workers.values()
            if worker.namespace == namespace and task_queue in (None, worker.task_queue)
        ]
        return sorted(found, key=lambda worker: (-worker.heartbeat_at_ms, worker.worker_id))

    def save(self, worker: WorkerRecord) -> None:
        name = (worker.namespace, worker.worker_id)
        self._changes.record(lambda: self._changes.put(self._tables.workers, name, worker))

    def mark(self, namespace: str, worker_id: str, status: WorkerStatus) -> None:
        def write() -> None:
            worker = self._tables.workers.get((namespace, worker_id))
            if worker is not None:
                marked = replace(worker, status=status, updated_at_ms=self._now_ms)
                self._changes.put(self._tables.workers, (namespace, worker_id), marked)

        self._changes.record(write)

    def heartbeat(self, worker: WorkerRecord) -> None:
        def write() -> None:
            name = (worker.namespace, worker.worker_id)
            known = self._tables.workers.get(name)
            if known is None:
                return
            touched = replace(
                known,
                status=worker.status,
                workflow_slots=worker.workflow_slots,
                activity_slots=worker.activity_slots,
                task_slots=known.task_slots if worker.task_slots is None else worker.task_slots,
                process_metrics=known.process_metrics
                if worker.process_metrics is None
                else worker.process_metrics,
                heartbeat_interval_s=worker.heartbeat_interval_s or known.heartbeat_interval_s,
                heartbeat_at_ms=max(known.heartbeat_at_ms, worker.heartbeat_at_ms),
                updated_at_ms=worker.heartbeat_at_ms,
            )
            self._changes.put(self._tables.workers, name, touched)

        self._changes.record(write)

    async def silent(self, since_ms: int, limit: int) -> Sequence[tuple[str, str]]:
        silent = [worker for worker in self._tables.workers.values() if worker.heartbeat_at_ms < since_ms]
        silent.sort(key=lambda worker: worker.heartbeat_at_ms)
        return [(worker.namespace, worker.worker_id) for worker in silent[:limit]]

    def touch(self, namespace: str, worker_id: str, now_ms: int) -> None:
        def write() -> None:
            worker = self._tables.workers.get((namespace, worker_id))
            if worker is not None and worker.heartbeat_at_ms < now_ms:
                seen = replace(worker, heartbeat_at_ms=now_ms)
                self._changes.put(self._tables.workers, (namespace, worker_id), seen)

        self._changes.record(write)

    def delete(self, namespace: str, worker_id: str) -> None:
        def write() -> None:
            if (namespace, worker_id) in self._tables.workers:
                self._changes.drop(self._tables.workers, (namespace, worker_id))

        self._changes.record(write)
