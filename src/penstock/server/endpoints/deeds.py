"""Deeds: what a request, or an item of a batch, asks of the store, and how its outcome is told."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Generic, TypeVar

from msgspec import Struct

from penstock.errors import PenstockError
from penstock.ports.store import Keyed, Store
from penstock.server.operation import Answer

T = TypeVar("T")


class Deed(Struct, Generic[T], frozen=True):
    asked: Keyed[T]
    answer: Callable[[T], Answer]
    """Tells of what was done; it may refuse, too."""
    refusal: Callable[[PenstockError], PenstockError] | None = None
    """Adds to a refusal what it is about."""

    def told(self, outcome: T | Exception) -> Answer:
        """The answer to what came of it; what it was refused with is raised."""
        try:
            if isinstance(outcome, Exception):
                raise outcome
            return self.answer(outcome)
        except PenstockError as refusal:
            if self.refusal is None:
                raise
            raise self.refusal(refusal) from refusal


Work = Deed[Any] | Awaitable[Answer]
"""A deed, or the answer itself, where it takes more than one transaction."""


async def do(store: Store, work: Work) -> Answer:
    """Do it by itself."""
    if not isinstance(work, Deed):
        return await work
    try:
        outcome = await store.transact(work.asked.operation, key=work.asked.key)
    except PenstockError as refusal:
        outcome = refusal
    return work.told(outcome)
