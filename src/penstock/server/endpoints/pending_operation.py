"""Operations that are one transaction: run alone, or many of a batch in one commit."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Generic, TypeVar

from msgspec import Struct

from penstock.errors import PenstockError
from penstock.ports.store import Store, Transaction
from penstock.server.operation import Response

T = TypeVar("T")


class PendingOperation(Struct, Generic[T], frozen=True):
    """A transaction that has not run yet, and how its outcome is rendered."""

    transaction: Transaction[T]
    render: Callable[[T], Response]
    """Renders the result; may raise as well."""
    add_details: Callable[[PenstockError], PenstockError] | None = None
    """Adds to an error what it is about."""

    def to_response(self, outcome: T | Exception) -> Response:
        """The response to the outcome of the transaction; raises if it failed."""
        try:
            if isinstance(outcome, Exception):
                raise outcome
            return self.render(outcome)
        except PenstockError as error:
            if self.add_details is None:
                raise
            raise self.add_details(error) from error


PendingWork = PendingOperation[Any] | Awaitable[Response]
"""A pending operation, or a coroutine where it takes more than one transaction."""


async def run_operation(store: Store, pending: PendingWork) -> Response:
    """Run it in a transaction of its own."""
    if not isinstance(pending, PendingOperation):
        return await pending
    try:
        outcome = await store.transact(pending.transaction.operation, key=pending.transaction.key)
    except PenstockError as error:
        outcome = error
    return pending.to_response(outcome)
