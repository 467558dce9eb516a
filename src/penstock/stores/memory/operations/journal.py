"""The journal: grants and ends of leases, line by line."""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from penstock.stores.memory.changes import Phase
from penstock.stores.memory.tables import MemoryRepository


class MemoryJournal(MemoryRepository):
    async def page(self, after: int, limit: int) -> Sequence[tuple[int, str]]:
        rows = self._tables.journal
        return [(seq, rows[seq][1]) for seq in heapq.nsmallest(limit, (seq for seq in rows if seq > after))]

    async def any_before(self, at_ms: int) -> bool:
        return any(told_at_ms < at_ms for told_at_ms, _ in self._tables.journal.values())

    def append(self, line: Mapping[str, Any]) -> None:
        text = msgspec.json.encode(line).decode()

        def write() -> None:
            seq = next(self._tables.journal_numbers)
            self._changes.put(self._tables.journal, seq, (self._now_ms, text))

        self._changes.record(write)

    def forget(self, before_ms: int) -> None:
        def write() -> None:
            journal = self._tables.journal
            for seq in [seq for seq, (at_ms, _) in journal.items() if at_ms < before_ms]:
                self._changes.drop(journal, seq)

        self._changes.record(write, Phase.FORGET)
