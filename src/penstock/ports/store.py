"""The store as the engine sees it: operations that read, decide and record in one transaction.

An operation is a coroutine function of a `Tx`. It *awaits* reads (`await tx.runs.lock(…)`), calls the core for the
decision, and *records* writes (`tx.runs.save(…)`, no await). The store guarantees:

1. All writes of an operation are committed together before its caller gets the result, or none is.
2. An operation that raises writes nothing.
3. On one node, operations with the same `key` run one after the other in the order of submission; across nodes the
   row locks that they take (`lock`) serialize them.
4. `tx.now_ms` is constant inside a transaction, and is the database's clock where nodes share a database.

An operation writes each row at most once and does not read its own writes. It may be retried from the beginning after
a serialization failure, so it must have no side effect except through `tx`.
Locks are taken in one order everywhere: schedule, change set, admission, queue, scope, run, task, key, lane. Ended
leases are counted in rows of their own, which are locked only while a transaction commits.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from enum import StrEnum
from typing import Generic, Protocol, TypeVar

from msgspec import Struct

from penstock.errors import Reason
from penstock.ports.tables.external_payloads import ExternalPayloads
from penstock.ports.tables.limits import ChangeSets, Journal, Policies, Scopes, Simulations
from penstock.ports.tables.namespace_stats import NamespaceStats
from penstock.ports.tables.next_due import NextDue
from penstock.ports.tables.retention import Retention
from penstock.ports.tables.retry_budgets import RetryBudgets
from penstock.ports.tables.run_places import RunPlaces
from penstock.ports.tables.runs import (
    Activities,
    Children,
    Histories,
    Outbox,
    Requests,
    Runs,
    Timers,
    UniqueKeys,
    Updates,
)
from penstock.ports.tables.schedules import Schedules
from penstock.ports.tables.series import Series
from penstock.ports.tables.streams import Messages, Streams
from penstock.ports.tables.tasks import Queries, Queues, Tasks
from penstock.ports.tables.ui_sessions import UiSessions
from penstock.ports.tables.visibility import Visibility
from penstock.ports.tables.workers import Cohorts, Namespaces, Nonces, Workers
from penstock.ports.wakeups import Topic

T = TypeVar("T")


class TransactionClass(StrEnum):
    """Which group of transactions an operation is committed with; claims must not wait behind bulk starts."""

    WORK = "work"
    CLAIM = "claim"
    PERMIT = "permit"
    """Starts of prefetched tasks: they lock the same rows as claims, in another order."""
    CHANGE = "change"
    """Changes that count the effects of other operations: never in one transaction with them."""


class StoreHealth(Struct, frozen=True):
    """Whether a store's writes go through."""

    stalled_ms: int = 0
    """The age of the oldest commit in progress; 0 if there is none."""
    refusal: Reason | None = None
    """Why a recent write failed: the disk is full or broken."""
    committed: int = 0
    """Operations that this server has committed since it started."""


class Tx(Protocol):
    """The transaction of one operation: all access to the store goes through its tables."""

    @property
    def now_ms(self) -> int: ...
    @property
    def namespaces(self) -> Namespaces: ...
    @property
    def runs(self) -> Runs: ...
    @property
    def histories(self) -> Histories: ...
    @property
    def activities(self) -> Activities: ...
    @property
    def timers(self) -> Timers: ...
    @property
    def children(self) -> Children: ...
    @property
    def outbox(self) -> Outbox: ...
    @property
    def updates(self) -> Updates: ...
    @property
    def requests(self) -> Requests: ...
    @property
    def messages(self) -> Messages: ...
    @property
    def streams(self) -> Streams: ...
    @property
    def tasks(self) -> Tasks: ...
    @property
    def queues(self) -> Queues: ...
    @property
    def policies(self) -> Policies: ...
    @property
    def scopes(self) -> Scopes: ...
    @property
    def change_sets(self) -> ChangeSets: ...
    @property
    def simulations(self) -> Simulations: ...
    @property
    def run_places(self) -> RunPlaces: ...
    @property
    def unique_keys(self) -> UniqueKeys: ...
    @property
    def journal(self) -> Journal: ...
    @property
    def retry_budgets(self) -> RetryBudgets: ...
    @property
    def series(self) -> Series: ...
    @property
    def ui_sessions(self) -> UiSessions: ...
    @property
    def workers(self) -> Workers: ...
    @property
    def cohorts(self) -> Cohorts: ...
    @property
    def queries(self) -> Queries: ...
    @property
    def nonces(self) -> Nonces: ...
    @property
    def visibility(self) -> Visibility: ...
    @property
    def retention(self) -> Retention: ...
    @property
    def namespace_stats(self) -> NamespaceStats: ...
    @property
    def schedules(self) -> Schedules: ...
    @property
    def next_due(self) -> NextDue: ...
    @property
    def external_payloads(self) -> ExternalPayloads: ...

    def wake(self, topic: Topic) -> None:
        """Notify a topic after the commit, on every node that shares the store."""
        ...


Operation = Callable[[Tx], Awaitable[T]]


class Transaction(Struct, Generic[T], frozen=True):
    """An operation and the key that serializes it."""

    operation: Operation[T]
    key: str


class Store(Protocol):
    @property
    def journals(self) -> bool:
        """Whether the journal is on: ended leases are written to it, so grants must be, too."""
        ...

    async def transact(
        self, operation: Operation[T], *, key: str, tx_class: TransactionClass = TransactionClass.WORK
    ) -> T:
        """Run an operation and return its result after the commit."""
        ...

    async def transact_all(self, transactions: Sequence[Transaction[T]]) -> Sequence[T | Exception]:
        """Run several operations of one caller, and return after the commit of the last.

        The outcomes are in order: the result of each operation, or the exception that it raised. Raises if none of
        them was accepted.
        """
        ...

    async def read(self, operation: Operation[T], *, long: bool = False) -> T:
        """Run an operation that writes nothing, in one snapshot of committed data.

        `long`: it may read much, and must not delay short reads.
        """
        ...

    async def check(self) -> None:
        """Raise `Unavailable` if the database does not respond."""
        ...

    def health(self) -> StoreHealth:
        """What this process knows about its writes; no I/O."""
        ...

    async def close(self) -> None: ...
