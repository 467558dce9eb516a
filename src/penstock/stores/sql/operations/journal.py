"""The journal in SQL: grants and ends of leases, line by line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from penstock.stores.sql.session import Repository


class SqlJournal(Repository):
    async def page(self, after: int, limit: int) -> Sequence[tuple[int, str]]:
        return [(row[1], row[2]) for row in await self._session.fetch("journal_page", after, limit)]

    async def any_before(self, at_ms: int) -> bool:
        return bool(await self._session.fetch("any_journal_before", at_ms))

    def append(self, line: Mapping[str, Any]) -> None:
        text = msgspec.json.encode(line).decode()
        self._session.record("append_journal", self._session.now_ms, text)

    def forget(self, before_ms: int) -> None:
        self._session.record("forget_journal", before_ms)
