"""Scope locks: operations of one PostgreSQL transaction use a scope one after the other.

Theory of operation
-------------------
A scope (namespace, budget group, cluster) counts the leases and dispatches of many queues in one row, and a claim
reads that row, decides, and writes it back. Between transactions the row lock (`SELECT ... FOR UPDATE`) serializes
this. Inside a group commit it does not: all operations of the group share the transaction, and their writes are sent
at its end, so two claims would both read the row as it was before the group.

`ScopeLocks` serializes them in memory. An operation that asks for a scope which another one of its group holds waits
(its coroutine is not advanced) until that one has recorded the new state of the scope, or has ended. Then it is given
the row as it will be written (`overlay`), and at the end only the last state of each scope is written (`final_rows`).
This is strict two-phase locking with early release: a scope is released when its new state is recorded, not at the
commit. The price is a dependency: once others have read what an operation recorded, it can no longer be left out of
the group (`was_read_by_others`), so a failure after that point is a `DirtyFailure`.

No deadlock inside a transaction: an operation asks for all its scopes in one round, and gets all or none.

No deadlock between transactions: rows are locked in ascending order of their ids. Operations reach their scopes in
different rounds, so a later round may need a lower id than this transaction has locked already. Such rows are locked
only if that needs no waiting (`try_lock_scope`, SKIP LOCKED); otherwise the operation is deferred to the next group.

Rejected: deferring the second operation to the next group, as for other rows. Nearly all claims of a cluster with
shared limits need the same scope, so groups would have one claim each.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from penstock.stores.sql.catalogue import Statement
from penstock.stores.sql.session import Fetch, Row, Rows, Session

Recorded = tuple[Any, ...]


class ScopeLocks:
    """The scopes of one transaction and the operations that hold them, by their place in the group."""

    def __init__(self, statements: Mapping[str, Statement]) -> None:
        self._lock = statements["lock_scope"]
        self._try = statements["try_lock_scope"]
        self._settle = statements["settle_scope"]
        self._holders: dict[int, int] = {}
        self._recorded: dict[int, Recorded] = {}
        """The last recorded state by scope."""
        self._published: set[int] = set()
        """Operations whose recorded scopes others may have read."""
        self._locked: set[int] = set()
        """Scopes whose rows this transaction has locked in earlier rounds."""

    def covers(self, statement: Statement) -> bool:
        """Whether the rows of a statement are locked here."""
        return statement is self._lock

    def try_acquire(self, operation: int, fetches: Sequence[Fetch]) -> bool:
        """Acquire all scopes that an operation asks for, or none if another operation holds one of them."""
        wanted = [fetch.values[0] for fetch in fetches if fetch.statement is self._lock]
        if any(self._holders.get(scope_id, operation) != operation for scope_id in wanted):
            return False
        self._holders |= dict.fromkeys(wanted, operation)
        return True

    def as_sent(self, fetches: Sequence[Fetch]) -> Sequence[Fetch]:
        """The fetches as they are sent: rows that are out of order are locked without waiting."""
        highest = max(self._locked, default=0)
        out_of_order = any(self._is_new(fetch) and fetch.values[0] < highest for fetch in fetches)
        return [
            Fetch(self._try, fetch.values) if out_of_order and self._is_new(fetch) else fetch
            for fetch in fetches
        ]

    def _is_new(self, fetch: Fetch) -> bool:
        """Whether a fetch locks a row that this transaction has not locked yet."""
        return fetch.statement is self._lock and fetch.values[0] not in self._locked

    def all_acquired(self, fetches: Sequence[Fetch], answers: Sequence[Rows]) -> bool:
        """Whether the database locked every row that was asked for; remembers those that it did."""
        answered = zip(fetches, answers, strict=True)
        wanted = [(fetch.values[0], rows) for fetch, rows in answered if fetch.statement is self._lock]
        self._locked |= {scope_id for scope_id, rows in wanted if rows}
        return all(rows for _, rows in wanted)

    def advanced(self, operation: int, session: Session, *, ended: bool) -> None:
        """Release the scopes that an operation has recorded; all that it holds if it has ended."""
        mine = [scope_id for scope_id, holder in self._holders.items() if holder == operation]
        recorded = {row[0]: row for row in session.writes.get(self._settle, ())}
        for scope_id in mine:
            if scope_id in recorded:
                self._recorded[scope_id] = recorded[scope_id]
                self._published.add(operation)
            if scope_id in recorded or ended:
                del self._holders[scope_id]

    def was_read_by_others(self, operation: int) -> bool:
        """Whether others may have read what the operation recorded, so that it cannot be left out of the group."""
        return operation in self._published

    def overlay(self, fetch: Fetch, rows: Rows) -> Rows:
        """The rows of a fetch as the previous holder of the scope recorded them."""
        recorded = self._recorded.get(fetch.values[0]) if fetch.statement is self._lock else None
        return rows if recorded is None else [_with_recorded(row, recorded) for row in rows]

    def final_rows(self, statement: Statement, rows: list[Recorded]) -> list[Recorded]:
        """The rows to be written: of each scope only the state that was recorded last."""
        if statement is not self._settle:
            return rows
        return list(({row[0]: row for row in rows} | self._recorded).values())


def _with_recorded(row: Row, recorded: Recorded) -> Row:
    number, scope_id, name = row[0], row[1], row[2]
    return (number, scope_id, name, *recorded[1:], row[-1])
