"""A store whose answers can be delayed, so that things can happen while an operation is in flight."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TypeVar

from penstock.ports.store import Operation, Store, StoreHealth, Transaction, TransactionClass
from tests.support.one_by_one import one_by_one

T = TypeVar("T")


class GatedStore:
    """Commits at once; the caller gets the answer when the gate of its transaction class is open."""

    def __init__(self, behind: Store) -> None:
        self._behind = behind
        self.journals = behind.journals
        self._gates = {line: asyncio.Event() for line in TransactionClass}
        self.held = 0
        """How many answers wait at a gate."""
        for line in TransactionClass:
            self.open(line)

    def open(self, line: TransactionClass) -> None:
        self._gates[line].set()

    def shut(self, line: TransactionClass) -> None:
        self._gates[line].clear()

    async def transact(
        self, operation: Operation[T], *, key: str, tx_class: TransactionClass = TransactionClass.WORK
    ) -> T:
        answer = await self._behind.transact(operation, key=key, tx_class=tx_class)
        self.held += 1
        try:
            await self._gates[tx_class].wait()
        finally:
            self.held -= 1
        return answer

    async def transact_all(self, asked: Sequence[Transaction[T]]) -> Sequence[T | Exception]:
        return await one_by_one(self, asked)

    async def read(self, operation: Operation[T], *, long: bool = False) -> T:
        return await self._behind.read(operation, long=long)

    async def check(self) -> None:
        await self._behind.check()

    def health(self) -> StoreHealth:
        return self._behind.health()

    async def close(self) -> None:
        await self._behind.close()
