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
    asyncpg.InternalClientError,  # raised by asyncpg when the connection breaks in the middle of an exchange
    asyncpg.AdminShutdownError,
    asyncpg.CrashShutdownError,
    asyncpg.CannotConnectNowError,
    asyncpg.TooManyConnectionsError,
    OSError,
)


_OUTAGES = frozenset({"08", "25", "28", "3D", "53", "55", "57", "58"})
"""SQLSTATE classes that concern the state of the server, not the statement: retry later, on another connection."""


def is_outage(error: asyncpg.PostgresError) -> bool:
    return str(getattr(error, "sqlstate", None) or "")[:2] in _OUTAGES


def _causes(error: BaseException) -> Iterator[BaseException]:
    """An error and its causes: asyncpg chains the last message of the server to a broken connection."""
    cause: BaseException | None = error
    while cause is not None:
        yield cause
        cause = cause.__cause__


def was_ended_idle(error: BaseException) -> bool:
    """Whether the database ended the session while it was idle, so that nothing sent afterwards was executed."""
    ended_idle = (asyncpg.IdleInTransactionSessionTimeoutError, asyncpg.IdleSessionTimeoutError)
    return any(isinstance(each, ended_idle) for each in _causes(error))


def is_timeout(error: BaseException) -> bool:
    """Whether the database ended a statement or a transaction at its time limit."""
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
    """The refusal for a connection that the database will keep refusing: a wrong password, no such database."""
    return Unavailable(
        Reason.STORE_UNAVAILABLE,
        f"PostgreSQL refused the connection: {error}. Check the user, password and database in DW_DATABASE_URL.",
        outcome="none",
    )


def too_slow(error: BaseException) -> Unavailable:
    """The refusal for an operation that exceeded even the limits of long writes."""
    refusal = Unavailable(
        Reason.STORE_UNAVAILABLE,
        "PostgreSQL took longer over this than DW_STATEMENT_TIMEOUT_MS allows. Nothing was changed; try again when it "
        "is less busy, or raise the setting.",
        outcome="none",
        retryable=True,
    )
    refusal.__cause__ = error
    return refusal
