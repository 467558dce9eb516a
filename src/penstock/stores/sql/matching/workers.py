"""Worker registrations in SQL, and the cohorts of their builds."""

from __future__ import annotations

import builtins
from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec.structs import astuple

from penstock.core.model import Cohort, WorkerRecord, WorkerStatus
from penstock.core.operations import journal_lines
from penstock.stores.sql.operations.journal import SqlJournal
from penstock.stores.sql.session import Repository, Row

_JOURNAL_STATES = {
    WorkerStatus.ACTIVE: "registered",
    WorkerStatus.DRAINING: "draining",
    WorkerStatus.STALE: "silent",
}


class SqlWorkers(Repository):
    async def get(self, namespace: str, worker_id: str) -> WorkerRecord | None:
        rows = await self._session.fetch("get_worker", namespace, worker_id)
        return _worker(rows[0]) if rows else None

    async def get_many(self, namespace: str, worker_ids: Sequence[str]) -> Sequence[WorkerRecord | None]:
        answers = await self._session.fetch_each("get_worker", ((namespace, each) for each in worker_ids))
        return [_worker(rows[0]) if rows else None for rows in answers]

    async def list(self, namespace: str, task_queue: str | None) -> Sequence[WorkerRecord]:
        return [_worker(row) for row in await self._session.fetch("list_workers", namespace, task_queue)]

    def save(self, worker: WorkerRecord) -> None:
        self._session.record(
            "save_worker",
            worker.namespace,
            worker.worker_id,
            worker.task_queue,
            worker.runtime,
            worker.sdk_version,
            worker.build_id,
            _text(worker.workflow_types),
            _text(worker.activity_types),
            _text(worker.fingerprints),
            worker.workflow_slots,
            worker.activity_slots,
            worker.status.value,
            _text(worker.advertised),
            None if worker.task_slots is None else _text(worker.task_slots),
            None if worker.process_metrics is None else _text(worker.process_metrics),
            worker.heartbeat_interval_s,
            worker.registered_at_ms,
            worker.heartbeat_at_ms,
            worker.updated_at_ms,
            worker.session_at_ms,
        )

    def mark(self, worker: WorkerRecord, status: WorkerStatus) -> None:
        session = self._session
        session.record("mark_worker", worker.namespace, worker.worker_id, status.value, session.now_ms)
        if session.journals:
            line = journal_lines.worker(worker, _JOURNAL_STATES[status], session.now_ms)
            SqlJournal(session).append(line)

    def heartbeat(self, worker: WorkerRecord) -> None:
        self._session.record(
            "record_heartbeat",
            worker.namespace,
            worker.worker_id,
            worker.status.value,
            worker.workflow_slots,
            worker.activity_slots,
            None if worker.task_slots is None else _text(worker.task_slots),
            None if worker.process_metrics is None else _text(worker.process_metrics),
            worker.heartbeat_interval_s,
            worker.heartbeat_at_ms,
        )

    async def silent(self, since_ms: int, limit: int) -> Sequence[tuple[str, str]]:
        return [(row[1], row[2]) for row in await self._session.fetch("silent_workers", since_ms, limit)]

    def touch(self, namespace: str, worker_id: str, now_ms: int) -> None:
        self._session.record("touch_worker", namespace, worker_id, now_ms)

    def delete(self, namespace: str, worker_id: str) -> None:
        self._session.record("delete_worker", namespace, worker_id)


class SqlCohorts(Repository):
    async def get(self, namespace: str, task_queue: str, build_id: str) -> Cohort | None:
        rows = await self._session.fetch("get_cohort", namespace, task_queue, build_id)
        return Cohort(*rows[0][1:]) if rows else None

    async def promoted(self, namespace: str, task_queue: str) -> Cohort | None:
        rows = await self._session.fetch("promoted_cohort", namespace, task_queue)
        return Cohort(*rows[0][1:]) if rows else None

    async def start_context(self, namespace: str, task_queue: str) -> tuple[str | None, bool]:
        row = (await self._session.fetch("start_context", namespace, task_queue))[0]
        return row[1] or None, row[2] is not None

    async def list(self, namespace: str, task_queue: str) -> Sequence[Cohort]:
        return [Cohort(*row[1:]) for row in await self._session.fetch("list_cohorts", namespace, task_queue)]

    def save(self, cohort: Cohort) -> None:
        self._session.record("save_cohort", *astuple(cohort))


def _text(value: Any) -> str:
    return msgspec.json.encode(value).decode()


def _worker(row: Row) -> WorkerRecord:
    values: builtins.list[Any] = [*row[1:]]
    values[6] = tuple(msgspec.json.decode(values[6]))
    values[7] = tuple(msgspec.json.decode(values[7]))
    values[8] = msgspec.json.decode(values[8])
    values[11] = WorkerStatus(values[11])
    values[12] = msgspec.json.decode(values[12])
    for place in (13, 14):
        values[place] = None if values[place] is None else msgspec.json.decode(values[place])
    return WorkerRecord(*values)
