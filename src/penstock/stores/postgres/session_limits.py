"""Time limits of PostgreSQL sessions: how long a session may hold locks, whatever its client does.

A transaction that reads, decides in Python and writes holds row locks across client round trips. A client that is
frozen (SIGSTOP, a suspended virtual machine) or cut off in that span cannot release them, and the operating system
keeps its connection open. Only the database can end such a session, so every limit here is set on the server side:

- `lock_timeout`: a statement that was sent before the freeze waits this long for one lock, then releases all others.
- `idle_in_transaction_session_timeout`: after its last statement an open transaction lives this long. A client that
  resumes and finds its session ended has committed nothing, and may run the operations again.
- `statement_timeout`: bounds a statement that waits for many locks in a row.
- `transaction_timeout`: bounds all of it together, from PostgreSQL 17 on. Before, the sum of the others holds.
- `tcp_user_timeout` and keepalives: end a session whose client does not read its response. Statement timeouts do not
  interrupt a session that is sending.

Invariant: a session whose client stops at any moment releases its locks within `lock_ms + idle_ms`, which is the hold
time of the policy, as long as its last statement waits for one lock; within `statement_ms + idle_ms`, a quarter more,
in any case.

A statement that is cancelled has changed nothing, and that is known. A session that `transaction_timeout` ends while
it commits leaves that open. So a client does not send its COMMIT later than `decide_ms` after it began, and the
statement that carries it is cancelled before the transaction is: `decide_ms + statement_ms <= transaction_ms`.

Rejected: one long limit for all sessions (30 s without progress were observed), and advisory locks with a lease of
our own (every row lock would need one, and a client that wakes up late would have to be fenced off at each write).
"""

from __future__ import annotations

from msgspec import Struct

from penstock.stores.postgres.pipeline import PipelinedConnection

TRANSACTION_TIMEOUT_SINCE = 17
"""The first major version of PostgreSQL that has `transaction_timeout`."""
READ_IDLE_MS = 30_000
"""Reads hold no row locks, and may process many rows between two statements."""
READ_LOCK_MS = 5_000
REPLY_S = 2.0
"""How long after the database's own limit a response is awaited, for sessions that hold locks."""
READ_REPLY_S = 5.0


class SessionLimits(Struct, frozen=True):
    """Limits of one session, in milliseconds."""

    statement_ms: int
    lock_ms: int
    idle_ms: int
    decide_ms: int = 0
    """How long after its BEGIN a transaction may still send COMMIT."""
    transaction_ms: int = 0
    """0: no limit."""
    reply_s: float = READ_REPLY_S
    """How long after `statement_ms` this side closes the connection."""

    @property
    def reply_timeout_s(self) -> float:
        """How long this side waits for a response."""
        return self.statement_ms / 1000 + self.reply_s


def read_limits(statement_ms: int) -> SessionLimits:
    """For reads: lists, statistics, exports and verification."""
    return SessionLimits(statement_ms, READ_LOCK_MS, READ_IDLE_MS)


def short_write_limits(statement_ms: int, hold_ms: int) -> SessionLimits:
    """For starts, claims, reports and sweeps: locks are held for at most `hold_ms` if the client is suspended."""
    most_ms = min(statement_ms, hold_ms * 3 // 4)
    return _of_writes(most_ms, hold_ms, REPLY_S)


def long_write_limits(statement_ms: int, hold_ms: int) -> SessionLimits:
    """For changes of many rows, and operations that were too slow for a short write.

    The database may work on them for as long as on any statement; waiting for the client or for a lock is limited as
    for short writes.
    """
    return _of_writes(statement_ms, hold_ms, READ_REPLY_S)


def _of_writes(statement_ms: int, hold_ms: int, reply_s: float) -> SessionLimits:
    decide_ms = max(statement_ms, hold_ms * 3 // 4)
    return SessionLimits(
        statement_ms,
        lock_ms=hold_ms // 2,
        idle_ms=hold_ms // 2,
        decide_ms=decide_ms,
        transaction_ms=decide_ms + statement_ms,
        reply_s=reply_s,
    )


def server_settings(limits: SessionLimits) -> dict[str, str]:
    """The settings of a session, for every version of PostgreSQL."""
    unsent_ms = limits.transaction_ms or limits.statement_ms
    return {
        "application_name": "penstock",
        "statement_timeout": str(limits.statement_ms),
        "lock_timeout": str(limits.lock_ms),
        "idle_in_transaction_session_timeout": str(limits.idle_ms),
        "tcp_user_timeout": str(unsent_ms),
        "tcp_keepalives_idle": "5",
        "tcp_keepalives_interval": "2",
        "tcp_keepalives_count": "3",
        # Every statement is a short index scan: JIT compilation never pays, and outdated statistics must not cause a
        # sequential scan.
        "jit": "off",
        "enable_seqscan": "off",
        "random_page_cost": "1.1",
    }


UNLIMITED = {
    "application_name": "penstock-migrate",
    "statement_timeout": "0",
    "lock_timeout": "0",
    "idle_in_transaction_session_timeout": "0",
}
"""For migrations, which must not be cut off by limits of the role or the database."""


async def limit_transactions(connection: PipelinedConnection, limits: SessionLimits) -> None:
    """Set `transaction_timeout` where PostgreSQL has it; an older version refuses sessions that name it."""
    if limits.transaction_ms and connection.get_server_version().major >= TRANSACTION_TIMEOUT_SINCE:
        await connection.execute(f"SET transaction_timeout = {limits.transaction_ms:d}")
