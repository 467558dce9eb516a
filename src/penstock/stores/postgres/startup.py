"""Whether PostgreSQL takes connections and writes, and waiting for it while a server starts."""

from __future__ import annotations

import asyncio
import time

import asyncpg
import structlog

from penstock.errors import Reason, Unavailable
from penstock.stores.postgres.batched_queries import Connection
from penstock.stores.postgres.errors import (
    DISCONNECTED,
    refused,
)

CONNECT_S_MAX = 5.0
RETRY_S = 0.5
REMIND_S = 10.0
"""How often a starting server retries its database, and how often it logs that it is waiting."""
log = structlog.get_logger("penstock.store")


async def is_writable(connection: Connection) -> bool:
    writable = "SELECT NOT pg_is_in_recovery() AND current_setting('transaction_read_only') = 'off'"
    try:
        return bool(await connection.fetchval(writable, timeout=3))
    except TimeoutError:
        connection.terminate()
        raise


async def wait_until_writable(url: str, wait_s: float) -> None:
    """Return once the database takes connections and writes.

    Retries a database that starts up, recovers or is promoted for `wait_s`. Raises `Unavailable` then, and at once
    where waiting does not help (a wrong password, no such database).
    """
    ends_at = time.monotonic() + wait_s
    reminded_at: float | None = None
    while (obstacle := await _obstacle(url)) is not None:
        now = time.monotonic()
        if now >= ends_at:
            raise Unavailable(
                Reason.STORE_UNAVAILABLE,
                f"PostgreSQL {obstacle}; a starting server waited {wait_s:g} s for it (DW_DATABASE_WAIT_SECONDS). "
                "Start the database, or name another one in DW_DATABASE_URL.",
                outcome="none",
                retryable=True,
            )
        if reminded_at is None or now - reminded_at >= REMIND_S:
            reminded_at = now
            log.warning("waiting for PostgreSQL", obstacle=obstacle, seconds_left=round(ends_at - now))
        await asyncio.sleep(min(RETRY_S, max(0.0, ends_at - now)))


async def _obstacle(url: str) -> str | None:
    """Why the database cannot be used yet; None if it can."""
    try:
        connection = await asyncpg.connect(url, timeout=CONNECT_S_MAX)
    except (asyncpg.CannotConnectNowError, asyncpg.TooManyConnectionsError) as error:
        return f"takes no connections yet ({error})"
    except (*DISCONNECTED, asyncpg.PostgresError) as error:
        if isinstance(error, asyncpg.PostgresError) and not isinstance(
            error, asyncpg.PostgresConnectionError
        ):
            raise refused(error) from error
        return f"cannot be reached ({type(error).__name__})"
    try:
        return None if await is_writable(connection) else "takes no writes: a standby, or read-only"
    except (*DISCONNECTED, asyncpg.PostgresError) as error:
        return f"does not answer ({type(error).__name__})"
    finally:
        connection.terminate()
