"""One read transaction in the place of the store: every operation that a page reads with sees one snapshot.

A page is a coroutine that the store drives, as it drives the operations of the engine. The engine's functions ask
`ctx.store` for reads; given this store, those run in the page's own transaction. A page therefore awaits nothing but
reads, changes nothing, and may be started again by the store.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from penstock.ports.store import Operation, Store, StoreHealth, Transaction, TransactionClass, Tx

T = TypeVar("T")


class SnapshotStore:
    """A store whose reads all happen in one transaction.

    Args:
        store: The store that drives the transaction.
        tx: The transaction.
    """

    def __init__(self, store: Store, tx: Tx) -> None:
        self._store, self._tx = store, tx

    @property
    def journals(self) -> bool:
        return self._store.journals

    async def read(self, operation: Operation[T], *, long: bool = False) -> T:
        return await operation(self._tx)

    async def transact(
        self, operation: Operation[T], *, key: str, tx_class: TransactionClass = TransactionClass.WORK
    ) -> T:
        raise RuntimeError("a page of the dashboard only reads")

    async def transact_all(self, transactions: Sequence[Transaction[T]]) -> Sequence[T | Exception]:
        raise RuntimeError("a page of the dashboard only reads")

    async def check(self) -> None:
        """The transaction is open, so the database responds."""

    def health(self) -> StoreHealth:
        return self._store.health()

    async def close(self) -> None:
        """The store belongs to the server."""
