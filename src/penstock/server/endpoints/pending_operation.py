"""Deeds: what a request, or an item of a batch, asks of the store, and how its outcome is told."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Generic, TypeVar

from msgspec import Struct

from penstock.errors import PenstockError
from penstock.ports.store import Store, Transaction
from penstock.server.operation import Response

T = TypeVar("T")


class PendingOperation(Struct, Generic[T], frozen=True):
    transaction: Transaction[T]
    render: Callable[[T], Response]
    """Tells of what was done; it may refuse, too."""
    refusal: Callable[[PenstockError], PenstockError] | None = None
    """Adds to a refusal what it is about."""

    def to_response(self, outcome: T | Exception) -> Response:
        """The answer to what came of it; what it was refused with is raised."""
        try:
            if isinstance(outcome, Exception):
                raise outcome
            return self.render(outcome)
        except PenstockError as refusal:
            if self.refusal is None:
                raise
            raise self.refusal(refusal) from refusal


PendingWork = PendingOperation[Any] | Awaitable[Response]
"""A deed, or the answer itself, where it takes more than one transaction."""


async def run_operation(store: Store, pending: PendingWork) -> Response:
    """Do it by itself."""
    if not isinstance(pending, PendingOperation):
        return await pending
    try:
        outcome = await store.transact(pending.transaction.operation, key=pending.transaction.key)
    except PenstockError as refusal:
        outcome = refusal
    return pending.to_response(outcome)
