"""The earliest deadline of each kind in SQL: one statement reads the head of every index by time."""

from __future__ import annotations

from collections.abc import Mapping

from penstock.ports.tables.next_due import Due
from penstock.stores.sql.session import Repository


class SqlNextDue(Repository):
    async def until(self, at_ms: int) -> Mapping[Due, int]:
        rows = await self._session.fetch("next_due", at_ms)
        found: dict[Due, int] = {}
        for _, name, due_at_ms in rows:
            if due_at_ms is not None:
                found[Due(name)] = min(int(due_at_ms), found.get(Due(name), int(due_at_ms)))
        return found
