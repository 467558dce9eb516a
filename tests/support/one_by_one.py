"""`transact_all` of stores that gain nothing from submitting operations together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from penstock.ports.store import Store, Transaction

T = TypeVar("T")


async def one_by_one(store: Store, transactions: Sequence[Transaction[T]]) -> Sequence[T | Exception]:
    """Run transactions one after the other; returns the result or the error of each."""
    outcomes: list[T | Exception] = []
    for each in transactions:
        try:
            outcomes.append(await store.transact(each.operation, key=each.key))
        except Exception as error:
            outcomes.append(error)
    return outcomes
