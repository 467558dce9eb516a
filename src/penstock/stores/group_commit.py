"""What every store does alike with an operation: a job, its outcome, and the moments around a commit."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, TypeVar, cast

from penstock.errors import PenstockError, Reason
from penstock.ports.store import Operation, Transaction, Tx
from penstock.ports.wakeups import Topic
from penstock.stores.sql.catalogue import Statement
from penstock.stores.sql.immutable_cache import ImmutableCache
from penstock.stores.sql.session import Session

T = TypeVar("T")
_NOTHING = ImmutableCache()
"""What an operation has learned before it has ended."""


class CommitPoint(StrEnum):
    """Where a crash test may strike."""

    BEFORE_COMMIT = "before_commit"
    AFTER_COMMIT = "after_commit"


CommitHook = Callable[[CommitPoint], None]


def no_hook(_: CommitPoint) -> None:
    """What production does around a commit: nothing."""


REFUSES_FOR_S = 10.0
"""How long after the last write that was refused for want of room a store counts as one that takes no writes."""


class WriteHealth:
    """Remembers whether writes were refused a moment ago because the disk is full, or fails.

    A small write may still find room where a large one does not, so one that succeeds proves nothing. The store counts
    as refusing until a while after the last refusal; then requests are taken again, and the next refusal renews it.
    """

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._reason: Reason | None = None
        self._refused_at = 0.0

    def refused(self, reason: Reason) -> None:
        """A write was refused."""
        self._reason, self._refused_at = reason, self._monotonic()

    @property
    def refusal(self) -> Reason | None:
        """Why writes are refused now, as far as it is known."""
        return self._reason if self._monotonic() - self._refused_at < REFUSES_FOR_S else None


@dataclass(slots=True)
class QueuedOperation:
    """One operation on its way through the store, and the future of the caller who waits for it."""

    operation: Callable[[Tx], Coroutine[Any, Any, Any]]
    key: str
    future: asyncio.Future[Any]
    result: Any = None
    error: BaseException | None = None
    topics: Mapping[Topic, None] = field(default_factory=dict)
    cacheable: ImmutableCache = _NOTHING
    acted: bool = False
    """Whether it has reserved something before its end."""
    deferred: bool = False
    """Whether it met another operation's lock and must run in a later group."""

    def begin_again(self) -> None:
        self.result, self.error, self.topics, self.cacheable = None, None, {}, _NOTHING
        self.acted = self.deferred = False

    def ended(self, session: Session) -> None:
        """The operation has ended well: keep what is to be told once it is committed."""
        self.topics, self.cacheable = session.topics, session.cacheable

    def answer(self) -> None:
        """Tell the caller; one who has gone away is not told."""
        if self.future.done():
            return
        if self.error is not None:
            self.future.set_exception(_for_one_caller(self.error))
        else:
            self.future.set_result(self.result)


class BatchResult:
    """The outcomes of several operations of one caller, who is told of all when the last of them is there."""

    def __init__(self, future: asyncio.Future[list[Any]], size: int) -> None:
        self.future = future
        self._outcomes: list[Any] = [_NOT_YET] * size
        self._open = size
        if not size:
            future.set_result([])

    def note(self, place: int, outcome: object) -> None:
        if self._outcomes[place] is not _NOT_YET:
            return
        self._outcomes[place] = outcome
        self._open -= 1
        if not self._open and not self.future.done():
            self.future.set_result(self._outcomes)


_NOT_YET = object()


@dataclass(slots=True, kw_only=True)
class BatchedOperation(QueuedOperation):
    """One of several operations of one caller."""

    batch: BatchResult
    place: int

    def answer(self) -> None:
        """Note the outcome; the caller is told with the last one."""
        self.batch.note(self.place, self.result if self.error is None else _for_one_caller(self.error))


def queued_operation(operation: Operation[T], key: str, future: asyncio.Future[T]) -> QueuedOperation:
    return QueuedOperation(cast("Callable[[Tx], Coroutine[Any, Any, T]]", operation), key, future)


def queued_operations(
    asked: Sequence[Transaction[T]], future: asyncio.Future[list[T | Exception]]
) -> list[QueuedOperation]:
    """A job for each operation; the future holds the outcomes of all, once they are there."""
    batch = BatchResult(future, len(asked))
    return [
        BatchedOperation(
            cast("Callable[[Tx], Coroutine[Any, Any, T]]", each.operation),
            each.key,
            future,
            batch=batch,
            place=place,
        )
        for place, each in enumerate(asked)
    ]


def _for_one_caller(error: BaseException) -> BaseException:
    """Several may be refused for one cause; what is added for one of them must not reach the others."""
    return error.with_details() if isinstance(error, PenstockError) else error


class ReadOnlySession(Session):
    """A session whose operation may ask but not record."""

    def record(self, name: str, *values: Any) -> None:
        raise RuntimeError(f"a read tried to record {name!r}: use transact")


def ordered_writes(sessions: list[Session]) -> list[tuple[Statement, list[tuple[Any, ...]]]]:
    """All writes of some sessions, equal statements together, in the one order that every node keeps."""
    merged: dict[Statement, list[tuple[Any, ...]]] = {}
    for session in sessions:
        for statement, rows in session.writes.items():
            merged.setdefault(statement, []).extend(rows)
    return sorted(merged.items(), key=lambda each: each[0].rank)
