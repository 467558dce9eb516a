"""Retention in SQL: expired runs, and the rows that deleted runs have left."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import astuple

from penstock.core.external_payloads import LAST_USE_MARGIN_MS
from penstock.core.model import Instance, Run, RunId
from penstock.core.operations.run_counts import PurgedRows
from penstock.stores.sql.operations.external_payloads import release_uses
from penstock.stores.sql.session import Repository

_COUNTED = ("clear_run_events", "clear_run_tasks", "clear_run_activities", "clear_run_timers")
_OTHERS = (
    "clear_run_buffered",
    "clear_run_children",
    "clear_run_updates",
    "clear_run_attributes",
    "clear_run_items",
    "clear_run_streams",
)
_BY_WORKFLOW_ID = ("clear_run_requests", "clear_run_messages", "clear_run_message_streams")


class SqlRetention(Repository):
    async def expired(self, namespace: str, before_ms: int, limit: int) -> Sequence[RunId]:
        rows = await self._session.fetch("expired_runs", namespace, before_ms, limit)
        return [RunId(row[1]) for row in rows]

    async def newest_other(self, run: Run) -> RunId | None:
        rows = await self._session.fetch("newest_other_run", run.namespace, run.workflow_id, run.run_id)
        return RunId(rows[0][1]) if rows else None

    async def unlink(self, run_id: RunId, most: int) -> bool:
        counts = [len(await self._session.fetch(name, run_id, most)) for name in _BY_WORKFLOW_ID]
        return any(count >= most for count in counts)

    def forget(self, run: Run, instance: Instance | None = None) -> None:
        self._session.record("forget_run", run.run_id)
        if run.lineage.unique_key is not None:
            self._session.record("forget_unique_key", run.run_id)
        if instance is None:
            self._session.record("forget_instance", run.namespace, run.workflow_id, run.run_id)
        else:
            self._session.record("succeed_instance", *astuple(instance))
        self._session.record("forget_unindexed", run.run_id)
        self._session.record("record_deleted_run", run.run_id)

    async def remains(self, limit: int) -> Sequence[RunId]:
        return [RunId(row[1]) for row in await self._session.fetch("deleted_runs", limit)]

    async def clear(self, run_id: RunId, most: int) -> PurgedRows:
        counted = [len(await self._session.fetch(name, run_id, most)) for name in _COUNTED]
        others = [len(await self._session.fetch(name, run_id, most)) for name in _OTHERS]
        check_at_ms = self._session.now_ms + LAST_USE_MARGIN_MS
        others.append(await release_uses(self._session, run_id, most, check_at_ms))
        events, tasks, activities, timers = counted
        full = any(count >= most for count in (*counted, *others))
        return PurgedRows(events, tasks, activities, timers, sum(others), full)

    def bury(self, run_id: RunId) -> None:
        self._session.record("forget_deleted_run", run_id)
