"""The writes of one operation, and their rollback.

Recorded writes are applied after the operation has returned, as in the SQL stores. Every change of a table goes through
`Changes`, which keeps an undo log, so that a failure at any point leaves the tables as they were.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum
from typing import Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")
G = TypeVar("G")
_Step = Callable[[], object]


class Phase(IntEnum):
    """The order in which recorded writes are applied."""

    ROWS = 0
    UNCOUNT_KEYS = 1
    KEYS = 2
    JOIN_LANES = 3
    REJOIN_LANES = 4
    LEAVE_LANES = 5
    SETTLE_LANES = 6
    """After the keys: whether a lane is blocked depends on the leases of its key."""
    TOUCH_LANES = 7
    SETTLE_SCOPES = 8
    FORGET = 9


class Index(Generic[G, K, V]):
    """Rows by group; empty groups are removed."""

    def __init__(self) -> None:
        self.groups: dict[G, dict[K, V]] = {}

    def of(self, group: G) -> dict[K, V]:
        """The rows of a group, which must not be modified."""
        return self.groups.get(group, {})


class Changes:
    """The recorded writes, the undo log and the invariants to check of one operation."""

    def __init__(self, *, writable: bool) -> None:
        self._writable = writable
        self._records: list[tuple[Phase, _Step]] = []
        self._invariants: list[_Step] = []
        self._undo_steps: list[_Step] = []
        self._saved: set[tuple[str, object]] = set()

    def allow(self) -> None:
        """Raise if this is a read."""
        if not self._writable:
            raise RuntimeError("an operation handed to `read` must record nothing: use `transact`")

    def record(self, write: _Step, phase: Phase = Phase.ROWS) -> None:
        """Record a write, to be applied after the operation has returned."""
        self.allow()
        self._records.append((phase, write))

    def save(self, what: str, key: object, write: _Step) -> None:
        """Record the write of a row, once per operation: of two, PostgreSQL keeps the first and SQLite the last."""
        assert (what, key) not in self._saved, f"{what} {key} is written twice in one operation"
        self._saved.add((what, key))
        self.record(write)

    def check_invariant(self, law: _Step) -> None:
        """Check an invariant after all writes of the operation were applied."""
        self._invariants.append(law)

    def apply(self) -> None:
        for _, write in sorted(self._records, key=lambda record: record[0]):
            write()
        for law in self._invariants:
            law()

    def undo(self) -> None:
        while self._undo_steps:
            self._undo_steps.pop()()

    def put(self, table: dict[K, V], key: K, value: V) -> None:
        if key in table:
            before = table[key]
            self._undo_steps.append(lambda: table.__setitem__(key, before))
        else:
            self._undo_steps.append(lambda: table.pop(key))
        table[key] = value

    def drop(self, table: dict[K, V], key: K) -> None:
        before = table.pop(key)
        self._undo_steps.append(lambda: table.__setitem__(key, before))

    def add(self, index: Index[G, K, V], group: G, key: K, value: V) -> None:
        if group not in index.groups:
            self.put(index.groups, group, {})
        self.put(index.groups[group], key, value)

    def remove(self, index: Index[G, K, V], group: G, key: K) -> None:
        self.drop(index.groups[group], key)
        if not index.groups[group]:
            self.drop(index.groups, group)
