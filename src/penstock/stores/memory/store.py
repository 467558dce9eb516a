"""A store in the memory of this process: operations run one after the other, each to its end."""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from typing import TypeVar

from penstock.errors import Reason, Unavailable
from penstock.ports.clock import Clock
from penstock.ports.store import Operation, StoreHealth, Transaction, TransactionClass, one_by_one
from penstock.ports.wakeups import Wakeups
from penstock.stores.memory.tables import Tables
from penstock.stores.memory.transaction import MemoryTx

T = TypeVar("T")


class MemoryStore:
    """Keeps the guarantees of a store except durability: its rows are lost when the process ends."""

    def __init__(self, clock: Clock, wakeups: Wakeups, *, journals: bool = False) -> None:
        self.journals = journals
        self._clock = clock
        self._wakeups = wakeups
        self._tables = Tables()
        self._closed = False

    async def transact(
        self, operation: Operation[T], *, key: str, tx_class: TransactionClass = TransactionClass.WORK
    ) -> T:
        await self.check()
        tx = self._tx(writable=True)
        try:
            result = _run_to_end(operation(tx))
            tx.changes.apply()
        except BaseException:
            tx.changes.undo()
            raise
        if tx.topics:
            self._wakeups.notify(tuple(tx.topics))
        return result

    async def transact_all(self, asked: Sequence[Transaction[T]]) -> Sequence[T | Exception]:
        await self.check()
        return await one_by_one(self, asked)

    async def read(self, operation: Operation[T], *, long: bool = False) -> T:
        await self.check()
        return _run_to_end(operation(self._tx(writable=False)))

    def _tx(self, *, writable: bool) -> MemoryTx:
        return MemoryTx(self._tables, self._clock.now_ms(), writable=writable, journals=self.journals)

    async def check(self) -> None:
        if self._closed:
            raise Unavailable(Reason.STORE_UNAVAILABLE, "The store is closed.", outcome="nothing happened")

    def health(self) -> StoreHealth:
        return StoreHealth()

    async def close(self) -> None:
        self._closed = True


def _run_to_end(operation: Awaitable[T]) -> T:
    """Run a coroutine that awaits only its transaction, which never suspends it."""
    steps = operation.__await__()
    try:
        next(steps)
    except StopIteration as end:
        result: T = end.value
        return result
    steps.close()
    raise RuntimeError("an operation may await only its transaction: it has no effect but through `tx`")
