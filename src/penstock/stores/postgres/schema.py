"""The schema of a PostgreSQL database: applying migrations, and refusing a database that lacks some."""

from __future__ import annotations

import zlib
from collections.abc import Sequence

import asyncpg

from penstock.stores.migrations.registry import Migration, migrations, outdated, pending
from penstock.stores.postgres import session_limits
from penstock.stores.postgres.batched_queries import Connection
from penstock.stores.postgres.errors import (
    DISCONNECTED,
    unavailable,
)
from penstock.stores.sql.catalogue import Dialect

MIGRATION_LOCK = zlib.crc32(b"penstock migrations")
"""Advisory lock that one migrating process holds at a time."""


async def migrate(url: str) -> list[int]:
    """Apply the missing migrations and return their numbers; concurrent callers wait for each other."""
    connection = await _connect_once(url)
    try:
        await connection.execute("SELECT pg_advisory_lock($1)", MIGRATION_LOCK)
        await connection.execute(
            "CREATE TABLE IF NOT EXISTS migrations "
            "(number BIGINT PRIMARY KEY, name TEXT NOT NULL, checksum TEXT NOT NULL)"
        )
        missing = await _missing(connection)
        for migration in missing:
            async with connection.transaction():
                await connection.execute(migration.sql)
                await connection.execute(
                    "INSERT INTO migrations VALUES ($1, $2, $3)",
                    migration.number,
                    migration.name,
                    migration.checksum,
                )
        return [migration.number for migration in missing]
    finally:
        await connection.close()


async def missing_migrations(url: str) -> Sequence[Migration]:
    connection = await _connect_once(url)
    try:
        if await connection.fetchval("SELECT to_regclass('migrations')") is None:
            return migrations(Dialect.POSTGRES)
        return await _missing(connection)
    finally:
        await connection.close()


async def require_current_schema(url: str) -> None:
    missing = await missing_migrations(url)
    if missing:
        raise outdated(missing)


async def _missing(connection: Connection) -> Sequence[Migration]:
    rows = await connection.fetch("SELECT number, checksum FROM migrations")
    return pending(migrations(Dialect.POSTGRES), {row[0]: row[1] for row in rows})


async def _connect_once(url: str) -> Connection:
    try:
        return await asyncpg.connect(url, timeout=10, server_settings=session_limits.UNLIMITED)
    except (*DISCONNECTED, asyncpg.PostgresError) as error:
        raise unavailable(error) from error
