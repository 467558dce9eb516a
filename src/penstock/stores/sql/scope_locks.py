"""Operations of one transaction that want one scope have it one after the other, each as the last one left it.

A row's lock does not part operations that share a transaction, and what they record is written at its end. So
whoever asks for a scope that another one has waits until that one has recorded what the scope counts now (or has
ended), and is then shown the row as it will be written. All scopes of an operation are asked for at once, so that
nobody waits in a circle.

Between transactions, rows are locked in the order of their ids. Where operations come to theirs at different times
that order cannot be kept; then a row is locked only if that needs no waiting, else the operation stands back.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from penstock.stores.sql.catalogue import Statement
from penstock.stores.sql.session import Fetch, Row, Rows, Session

Written = tuple[Any, ...]


class ScopeLocks:
    """Whose turn it is at each scope, in one transaction. Operations go by their number."""

    def __init__(self, statements: Mapping[str, Statement]) -> None:
        self._lock = statements["lock_scope"]
        self._try = statements["try_lock_scope"]
        self._settle = statements["settle_scope"]
        self._having: dict[int, int] = {}
        self._left: dict[int, Written] = {}
        self._shown: set[int] = set()
        self._locked: set[int] = set()
        """Scopes that this transaction has locked in earlier rounds."""

    def covers(self, statement: Statement) -> bool:
        """Whether a statement's rows are had in turn."""
        return statement is self._lock

    def try_acquire(self, operation: int, fetches: Sequence[Fetch]) -> bool:
        """Whether nobody else has a scope that is asked for; then the operation has it."""
        wanted = [fetch.values[0] for fetch in fetches if fetch.statement is self._lock]
        if any(self._having.get(scope_id, operation) != operation for scope_id in wanted):
            return False
        self._having |= dict.fromkeys(wanted, operation)
        return True

    def as_sent(self, fetches: Sequence[Fetch]) -> Sequence[Fetch]:
        """The questions as they are put: rows that are out of order are not waited for."""
        highest = max(self._locked, default=0)
        early = any(
            self._is_lock(fetch) and self._is_new(fetch) and fetch.values[0] < highest for fetch in fetches
        )
        return [
            Fetch(self._try, fetch.values) if early and self._is_new(fetch) else fetch for fetch in fetches
        ]

    def _is_lock(self, fetch: Fetch) -> bool:
        return fetch.statement is self._lock

    def _is_new(self, fetch: Fetch) -> bool:
        return self._is_lock(fetch) and fetch.values[0] not in self._locked

    def all_acquired(self, fetches: Sequence[Fetch], answers: Sequence[Rows]) -> bool:
        """Whether every row was locked; what was is remembered."""
        wanted = [(fetch, rows) for fetch, rows in zip(fetches, answers, strict=True) if self._is_lock(fetch)]
        self._locked |= {fetch.values[0] for fetch, rows in wanted if rows}
        return all(rows for _, rows in wanted)

    def advanced(self, operation: int, session: Session, *, ended: bool) -> None:
        """An operation went on: scopes that it has recorded, or all of them if it has ended, are for the next one."""
        mine = [scope_id for scope_id, having in self._having.items() if having == operation]
        recorded = {row[0]: row for row in session.writes.get(self._settle, ())}
        for scope_id in mine:
            if scope_id in recorded:
                self._left[scope_id] = recorded[scope_id]
                self._shown.add(operation)
            if scope_id in recorded or ended:
                del self._having[scope_id]

    def was_read_by_others(self, operation: int) -> bool:
        """Whether others may have gone by what the operation recorded: then it cannot be left out any more."""
        return operation in self._shown

    def overlay(self, fetch: Fetch, rows: Rows) -> Rows:
        """The answer as the one before left it."""
        left = self._left.get(fetch.values[0]) if fetch.statement is self._lock else None
        return rows if left is None else [_as_left(row, left) for row in rows]

    def final_rows(self, statement: Statement, rows: list[Written]) -> list[Written]:
        """What is written of each scope: what was recorded last."""
        if statement is not self._settle:
            return rows
        return list(({row[0]: row for row in rows} | self._left).values())


def _as_left(row: Row, left: Written) -> Row:
    number, scope_id, name = row[0], row[1], row[2]
    return (number, scope_id, name, *left[1:], row[-1])
