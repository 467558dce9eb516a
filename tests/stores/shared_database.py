"""One migrated database for many tests, emptied after each: creating one takes too long."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import asyncpg

from penstock.stores.postgres.schema import migrate
from tests.support.servers import Server, create_database

TABLES = "SELECT tablename FROM pg_tables WHERE schemaname = 'public' ORDER BY tablename"
SEQUENCES = "SELECT setval(format('%I.%I', schemaname, sequencename)::regclass, 1, false) FROM pg_sequences"


@dataclass(frozen=True, slots=True)
class SharedDatabase:
    """A database with the current schema, and the rows that its migrations inserted."""

    url: str
    first_rows: Mapping[str, Sequence[asyncpg.Record]]

    @classmethod
    async def made_on(cls, server: Server) -> SharedDatabase:
        url = await create_database(server)
        await migrate(url)
        connection = await asyncpg.connect(url)
        try:
            names = [row["tablename"] for row in await connection.fetch(TABLES)]
            return cls(url, {name: await connection.fetch(f'SELECT * FROM "{name}"') for name in names})
        finally:
            await connection.close()

    async def empty(self) -> None:
        """Delete the rows of a test, and restore those of the migrations."""
        connection = await asyncpg.connect(self.url, server_settings={"lock_timeout": "10s"})
        try:
            async with connection.transaction():
                await connection.execute("; ".join(f'DELETE FROM "{name}"' for name in self.first_rows))
                for name, rows in self.first_rows.items():
                    if rows:
                        await connection.copy_records_to_table(name, records=[tuple(row) for row in rows])
                await connection.execute(SEQUENCES)
        finally:
            await connection.close()
