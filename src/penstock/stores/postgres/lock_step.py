"""Runs the operations of a group in lock-step, so that equal fetches of all of them are sent as one statement.

In each round the fetches of all operations that wait are executed together, and each operation is advanced to its next
fetches or its end. An operation takes no part in a round while another one holds a scope that it needs, and is deferred
to the next group if it asks for another row that an operation of this transaction has locked.
"""

from __future__ import annotations

from collections.abc import Coroutine, Sequence
from typing import Any

from penstock.stores.group_commit import QueuedOperation
from penstock.stores.postgres.batched_queries import QueryRunner, Waiting, advance, answer_all
from penstock.stores.sql.catalogue import Statement
from penstock.stores.sql.scope_locks import ScopeLocks
from penstock.stores.sql.session import Fetch, Rows, Session
from penstock.stores.sql.transaction import SqlTx


class LockStep:
    """The operations of one transaction.

    Args:
        runner: executes their fetches.
        jobs: the operations.
        sessions: the session of each operation.
        scope_locks: the scopes of the transaction.
    """

    def __init__(
        self,
        runner: QueryRunner,
        jobs: Sequence[QueuedOperation],
        sessions: Sequence[Session],
        scope_locks: ScopeLocks,
    ) -> None:
        self._runner = runner
        self._jobs = jobs
        self._sessions = sessions
        self._scope_locks = scope_locks
        self._locked: dict[tuple[Statement, tuple[Any, ...]], int] = {}
        """Which operation has locked a row."""

    async def run(self) -> list[Session]:
        """Run all operations to their end; returns the sessions of those that succeeded."""
        waiting: list[Waiting] = []
        for index, (job, session) in enumerate(zip(self._jobs, self._sessions, strict=True)):
            tx = SqlTx(session, session.now_ms, session.wake)
            advance(self._jobs, index, job.operation(tx), None, waiting)
        while waiting:
            waiting = await self._round(waiting)
        done = []
        for job, session in zip(self._jobs, self._sessions, strict=True):
            if job.error is None and not job.deferred:
                job.session = session
                done.append(session)
        return done

    async def _round(self, waiting: list[Waiting]) -> list[Waiting]:
        """Advance all operations that can go on; returns those that wait for the next round."""
        going, waiting = self._admit(waiting)
        sent = [fetch for _, _, fetches in going for fetch in self._scope_locks.as_sent(fetches)]
        rows = await answer_all(self._runner, sent)
        place = 0
        for index, coroutine, fetches in going:
            answers = rows[place : place + len(fetches)]
            place += len(fetches)
            self._advance(index, coroutine, fetches, answers, waiting)
        return waiting

    def _admit(self, waiting: list[Waiting]) -> tuple[list[Waiting], list[Waiting]]:
        """The operations that take part in this round, and those that wait for a scope."""
        going: list[Waiting] = []
        later: list[Waiting] = []
        for each in waiting:
            index, coroutine, fetches = each
            if self._meets_lock(index, fetches):
                self._defer(index, coroutine)
            else:
                (going if self._scope_locks.try_acquire(index, fetches) else later).append(each)
        assert going or not later, "the holder of a scope is never blocked"
        return going, later

    def _advance(
        self,
        index: int,
        coroutine: Coroutine[Any, Any, Any],
        fetches: Sequence[Fetch],
        answers: Sequence[Rows],
        waiting: list[Waiting],
    ) -> None:
        job, scope_locks = self._jobs[index], self._scope_locks
        if not scope_locks.all_acquired(fetches, answers):
            self._defer(index, coroutine)
            return
        job.is_dirty |= any(map(_has_changed_rows, fetches, answers))
        before = len(waiting)
        overlaid = [scope_locks.overlay(fetch, rows) for fetch, rows in zip(fetches, answers, strict=True)]
        advance(self._jobs, index, coroutine, overlaid, waiting)
        scope_locks.advanced(index, self._sessions[index], ended=len(waiting) == before)
        if job.error is not None and scope_locks.was_read_by_others(index):
            job.is_dirty = True

    def _meets_lock(self, index: int, fetches: Sequence[Fetch]) -> bool:
        """Whether the operation asks for a row that another one of this transaction has locked."""
        locking = [
            each for each in fetches if each.statement.locks and not self._scope_locks.covers(each.statement)
        ]
        holders = [self._locked.setdefault((each.statement, each.values), index) for each in locking]
        meets = any(holder != index for holder in holders)
        assert not (meets and self._scope_locks.was_read_by_others(index)), (
            "scopes are recorded after all row locks"
        )
        return meets

    def _defer(self, index: int, coroutine: Coroutine[Any, Any, Any]) -> None:
        """Have the operation run again from its beginning, in the next group."""
        coroutine.close()
        self._jobs[index].deferred = True
        self._scope_locks.advanced(index, self._sessions[index], ended=True)


def _has_changed_rows(fetch: Fetch, answer: Rows) -> bool:
    """Whether a fetch has changed rows: one that returns the rows that it changed may have changed none."""
    return fetch.statement.changes_rows and bool(answer or not fetch.statement.returns_rows)
