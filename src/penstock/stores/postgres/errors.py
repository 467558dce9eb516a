"""Classifies errors of asyncpg and PostgreSQL, and turns them into refusals that callers understand."""

from __future__ import annotations

from collections.abc import Iterator

import asyncpg

from penstock.errors import Reason, Unavailable

RETRYABLE = (
    asyncpg.SerializationError,
    asyncpg.DeadlockDetectedError,
    asyncpg.LockNotAvailableError,
)
DISCONNECTED = (
    asyncpg.PostgresConnectionError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,  # what asyncpg says when the connection breaks in the middle of an exchange
    asyncpg.AdminShutdownError,
    asyncpg.CrashShutdownError,
    asyncpg.CannotConnectNowError,
    asyncpg.TooManyConnectionsError,
    OSError,
)


_OUTAGES = frozenset({"08", "25", "28", "3D", "53", "55", "57", "58"})
"""Classes of SQLSTATE that speak of the server's state, not of our statement: try later, on another connection."""


def is_outage(error: asyncpg.PostgresError) -> bool:
    return str(getattr(error, "sqlstate", None) or "")[:2] in _OUTAGES


def _causes(error: BaseException) -> Iterator[BaseException]:
    """An error and what led to it: asyncpg names the server's last message as the cause of a broken connection."""
    cause: BaseException | None = error
    while cause is not None:
        yield cause
        cause = cause.__cause__


def was_ended_idle(error: BaseException) -> bool:
    """Whether the database ended the session while it waited for us: what was sent afterwards was never read."""
    ended_idle = (asyncpg.IdleInTransactionSessionTimeoutError, asyncpg.IdleSessionTimeoutError)
    return any(isinstance(each, ended_idle) for each in _causes(error))


def is_timeout(error: BaseException) -> bool:
    """Whether the database ended a statement or a transaction that took longer than it may."""
    timeouts = (asyncpg.QueryCanceledError, asyncpg.TransactionTimeoutError)
    return any(isinstance(each, timeouts) for each in _causes(error))


def unavailable(error: BaseException) -> Unavailable:
    if isinstance(error, asyncpg.DiskFullError):
        return Unavailable(
            Reason.STORAGE_FULL, "PostgreSQL's disk is full; nothing was changed.", outcome="none"
        )
    return Unavailable(
        Reason.STORE_UNAVAILABLE,
        f"PostgreSQL cannot be used now ({type(error).__name__}). Nothing was changed; try again shortly.",
        outcome="none",
        retryable=True,
    )


def refused(error: asyncpg.PostgresError) -> Unavailable:
    """A connection that the database refuses for a reason that does not pass by itself."""
    return Unavailable(
        Reason.STORE_UNAVAILABLE,
        f"PostgreSQL refused the connection: {error}. Check the user, password and database in DW_DATABASE_URL.",
        outcome="none",
    )


def too_slow(error: BaseException) -> Unavailable:
    """An operation that was given more time, and took longer still."""
    refusal = Unavailable(
        Reason.STORE_UNAVAILABLE,
        "PostgreSQL took longer over this than DW_STATEMENT_TIMEOUT_MS allows. Nothing was changed; try again when it "
        "has less to do, or raise the setting.",
        outcome="none",
        retryable=True,
    )
    refusal.__cause__ = error
    return refusal
