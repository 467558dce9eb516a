"""Letters between runs, until they are delivered."""

from __future__ import annotations

import heapq
from collections.abc import Sequence

from penstock.core.model import Letter
from penstock.stores.memory.changes import Changes
from penstock.stores.memory.tables import Tables


class MemoryLetters:
    def __init__(self, tables: Tables, changes: Changes) -> None:
        self._tables = tables
        self._changes = changes

    async def get(self, letter_id: str) -> Letter | None:
        return self._tables.letters.get(letter_id)

    async def lock(self, letter_id: str) -> Letter | None:
        return await self.get(letter_id)

    async def waiting(self, limit: int) -> Sequence[str]:
        written = ((letter.created_at_ms, letter.letter_id) for letter in self._tables.letters.values())
        return [letter_id for _, letter_id in heapq.nsmallest(limit, written)]

    def insert(self, letter: Letter) -> None:
        def write() -> None:
            assert letter.letter_id not in self._tables.letters, f"letter {letter.letter_id} exists"
            self._changes.put(self._tables.letters, letter.letter_id, letter)

        self._changes.record(write)

    def delete(self, letter_id: str) -> None:
        def write() -> None:
            if letter_id in self._tables.letters:
                self._changes.drop(self._tables.letters, letter_id)

        self._changes.record(write)
