"""A store that logs the statements that operations fetch."""

from __future__ import annotations

import types
from collections.abc import Coroutine, Generator, Sequence
from typing import Any, TypeVar

from penstock.ports.store import Operation, Store, StoreHealth, Transaction, TransactionClass, Tx
from tests.support.one_by_one import one_by_one

T = TypeVar("T")


class StatementLogStore:
    """Wraps a SQL store and records the name of every statement that is fetched."""

    def __init__(self, behind: Store) -> None:
        self._behind = behind
        self.journals = behind.journals
        self.asked: list[str] = []

    async def transact(
        self, operation: Operation[T], *, key: str, tx_class: TransactionClass = TransactionClass.WORK
    ) -> T:
        async def overheard(tx: Tx) -> T:
            return await self._overhear(operation(tx))  # type: ignore[arg-type]

        return await self._behind.transact(overheard, key=key, tx_class=tx_class)

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

    @types.coroutine
    def _overhear(self, operation: Coroutine[Any, Any, T]) -> Generator[Any, Any, T]:
        answers = None
        while True:
            try:
                fetches = operation.send(answers)
            except StopIteration as end:
                return end.value
            self.asked += [fetch.statement.name for fetch in fetches]
            answers = yield fetches
