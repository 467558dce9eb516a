"""Change sets of limits in SQL."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.core.limits.change_sets import ChangeSet, ChangeSetState, decoded, encoded
from penstock.ports.tables.visibility import PageStart
from penstock.stores.sql.session import Repository

_FIRST_PAGE = (2**62, "")


class SqlChangeSets(Repository):
    async def get(self, namespace: str, change_set_id: str) -> ChangeSet | None:
        rows = await self._session.fetch("get_change_set", namespace, change_set_id)
        return decoded(rows[0][1]) if rows else None

    async def lock(self, change_set_id: str) -> ChangeSet | None:
        rows = await self._session.fetch("lock_change_set", change_set_id)
        return decoded(rows[0][1]) if rows else None

    async def page(
        self, namespace: str, state: ChangeSetState | None, before: PageStart | None, limit: int
    ) -> Sequence[ChangeSet]:
        place = (before.started_at_ms, before.run_id) if before else _FIRST_PAGE
        rows = await self._session.fetch(
            "page_change_sets", namespace, None if state is None else state.value, *place, limit
        )
        return [decoded(row[1]) for row in rows]

    async def due(self, now_ms: int, limit: int) -> Sequence[str]:
        return [row[1] for row in await self._session.fetch("due_change_sets", now_ms, limit)]

    def create(self, change_set: ChangeSet) -> None:
        self._session.record(
            "create_change_set",
            change_set.change_set_id,
            change_set.namespace,
            change_set.state.value,
            change_set.created_at_ms,
            change_set.due_at_ms,
            encoded(change_set),
        )

    def save(self, change_set: ChangeSet) -> None:
        self._session.record(
            "save_change_set",
            change_set.change_set_id,
            change_set.state.value,
            change_set.due_at_ms,
            encoded(change_set),
        )
