"""A store whose answers can be held back, to let things happen while an operation is on its way."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TypeVar

from penstock.ports.store import Condition, Keyed, Line, Operation, Store, one_by_one

T = TypeVar("T")


class GatedStore:
    """Commits at once; the caller learns of it when the gate of its line is open."""

    def __init__(self, behind: Store) -> None:
        self._behind = behind
        self.journals = behind.journals
        self._gates = {line: asyncio.Event() for line in Line}
        self.held = 0
        """How many answers wait at a gate."""
        for line in Line:
            self.open(line)

    def open(self, line: Line) -> None:
        self._gates[line].set()

    def shut(self, line: Line) -> None:
        self._gates[line].clear()

    async def transact(self, operation: Operation[T], *, key: str, line: Line = Line.WORK) -> T:
        answer = await self._behind.transact(operation, key=key, line=line)
        self.held += 1
        try:
            await self._gates[line].wait()
        finally:
            self.held -= 1
        return answer

    async def transact_each(self, asked: Sequence[Keyed[T]]) -> Sequence[T | Exception]:
        return await one_by_one(self, asked)

    async def read(self, operation: Operation[T], *, long: bool = False) -> T:
        return await self._behind.read(operation, long=long)

    async def check(self) -> None:
        await self._behind.check()

    def condition(self) -> Condition:
        return self._behind.condition()

    async def close(self) -> None:
        await self._behind.close()
