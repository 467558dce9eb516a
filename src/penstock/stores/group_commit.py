"""Group commit: what both databases share about running many operations in one transaction.

Theory of operation
-------------------
A commit costs an fsync (SQLite) or a round trip with a WAL flush (PostgreSQL), whatever it contains. Operations that
arrive while a commit is under way are therefore queued, and the next transaction runs all of them: throughput grows
with load while the latency of a single caller stays at about two commits. This is group commit as databases do it for
their own log (DeWitt et al. 1984; `commit_delay` in PostgreSQL), one level higher: the members of a group also share
statements, because equal statements of many operations are sent as one.

An operation is a coroutine over `Tx`. It never performs I/O itself. It yields `Fetch` values, which the store that
drives it answers, and records writes in its `Session`; the store applies them after the coroutine has returned. So an
operation that raises has usually changed nothing, and is simply left out of its group. The exceptions are statements
that change rows when they are fetched (reservations, sequences). A failure after one of them is a `DirtyFailure`: the
group is rolled back and runs again, without that operation (PostgreSQL) or with a savepoint per operation (SQLite).

Invariants:
- A caller is answered only after the commit of its group, and with its own result or error.
- Operations with the same key take effect in the order in which they were submitted. SQLite runs operations one by
  one; PostgreSQL admits one operation per key to a group.
- Topics are notified after the commit, and only for operations that succeeded.
- A group that fails as a whole reports the outcome to every caller: `none` if nothing can have been committed,
  `unknown` if the connection broke after COMMIT was sent.
- Writes are applied in one order on every server (`ordered_writes`), so that row locks cannot deadlock.

An operation may be run several times before it commits. It must not have side effects outside its `Tx`, and
`QueuedOperation.begin_again` discards the results of an earlier run.

Rejected:
- One transaction per operation: the fsync or the round trip of each commit then bounds the throughput of the store.
- Savepoints around every operation: two statements more for each, for failures that are rare.
- A background flush with acknowledgement before the commit: callers would be answered for work that a crash loses.
- Groups that span connections on PostgreSQL (two-phase commit): operations are assigned to connections by key instead.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, TypeVar, cast

from penstock.errors import PenstockError, Reason
from penstock.ports.store import Transaction, Tx
from penstock.ports.wakeups import Topic
from penstock.stores.sql.catalogue import Statement
from penstock.stores.sql.row_cache import ImmutableCache
from penstock.stores.sql.session import Session

T = TypeVar("T")


class CommitPoint(StrEnum):
    """The points around a commit at which fault tests interrupt the process."""

    BEFORE_COMMIT = "before_commit"
    AFTER_COMMIT = "after_commit"


CommitHook = Callable[[CommitPoint, Sequence[str]], None]
"""Receives the point, and the keys of the group's operations."""


def no_hook(_point: CommitPoint, _keys: Sequence[str]) -> None:
    """The hook of production: does nothing."""


class DirtyFailure(Exception):
    """An operation failed after it had changed rows, so its group must be rolled back and run again."""


REFUSES_FOR_S = 10.0
"""How long after a write was refused for lack of space the store reports that it refuses writes."""


class WriteHealth:
    """Counts committed operations, and remembers whether writes were refused because the disk is full or failing.

    A small write may still succeed where a large one does not, so a success proves nothing. The store counts as
    refusing until `REFUSES_FOR_S` after the last refusal; then requests are accepted again, and the next refusal
    renews it.
    """

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._reason: Reason | None = None
        self._refused_at = 0.0
        self.committed = 0

    def refused(self, reason: Reason) -> None:
        self._reason, self._refused_at = reason, self._monotonic()

    @property
    def refusal(self) -> Reason | None:
        """The reason of a recent refusal; None if there was none."""
        return self._reason if self._monotonic() - self._refused_at < REFUSES_FOR_S else None


@dataclass(slots=True)
class QueuedOperation:
    """An operation that waits for its group, and the future of its caller."""

    operation: Callable[[Tx], Coroutine[Any, Any, Any]]
    key: str
    future: asyncio.Future[Any]
    result: Any = None
    error: BaseException | None = None
    session: Session | None = None
    """Its session, once it has succeeded: what takes effect after the commit."""
    is_dirty: bool = False
    """Whether it has changed rows before its end, so that a failure is a `DirtyFailure`."""
    deferred: bool = False
    """Whether it met a lock of another operation of its group and must run in a later group."""

    @property
    def must_run_again(self) -> bool:
        """Whether it was deferred, and has not failed since."""
        return self.deferred and self.error is None

    def begin_again(self) -> None:
        """Discard the outcome of an earlier run."""
        self.result = self.error = self.session = None
        self.is_dirty = self.deferred = False

    def answer(self) -> None:
        """Resolve the caller's future, unless the caller has cancelled it."""
        if self.future.done():
            return
        if self.error is not None:
            self.future.set_exception(_for_one_caller(self.error))
        else:
            self.future.set_result(self.result)


class SubmissionResults:
    """Collects the outcomes of the operations of one caller; its future resolves with the last of them."""

    def __init__(self, future: asyncio.Future[list[Any]], size: int) -> None:
        self.future = future
        self._outcomes: list[Any] = [_PENDING] * size
        self._open = size
        if not size:
            future.set_result([])

    def note(self, place: int, outcome: object) -> None:
        if self._outcomes[place] is not _PENDING:
            return
        self._outcomes[place] = outcome
        self._open -= 1
        if not self._open and not self.future.done():
            self.future.set_result(self._outcomes)


_PENDING = object()


@dataclass(slots=True, kw_only=True)
class BatchedOperation(QueuedOperation):
    """One of several operations that a caller submitted together."""

    batch: SubmissionResults
    place: int

    def answer(self) -> None:
        self.batch.note(self.place, self.result if self.error is None else _for_one_caller(self.error))


def queued_operations(
    transactions: Sequence[Transaction[T]], future: asyncio.Future[list[T | Exception]]
) -> list[QueuedOperation]:
    """The operations of one batch; the future resolves with the outcomes of all, in their order."""
    batch = SubmissionResults(future, len(transactions))
    return [
        BatchedOperation(
            cast("Callable[[Tx], Coroutine[Any, Any, T]]", each.operation),
            each.key,
            future,
            batch=batch,
            place=place,
        )
        for place, each in enumerate(transactions)
    ]


def _for_one_caller(error: BaseException) -> BaseException:
    """A copy of an error that several callers share, so that details added for one do not reach the others."""
    return error.with_details() if isinstance(error, PenstockError) else error


def deliver(jobs: Sequence[QueuedOperation], immutable: ImmutableCache) -> dict[Topic, None]:
    """Answer the callers of a committed group and cache what is immutable; returns the topics to be notified."""
    topics: dict[Topic, None] = {}
    for job in jobs:
        job.answer()
        if job.error is None and job.session is not None:
            immutable.remember(job.session.cacheable)
            topics |= job.session.topics
    return topics


def ordered_writes(sessions: list[Session]) -> list[tuple[Statement, list[tuple[Any, ...]]]]:
    """All writes of some sessions, grouped by statement, in the order that every server keeps."""
    merged: dict[Statement, list[tuple[Any, ...]]] = {}
    for session in sessions:
        for statement, rows in session.writes.items():
            merged.setdefault(statement, []).extend(rows)
    return sorted(merged.items(), key=lambda each: each[0].rank)
