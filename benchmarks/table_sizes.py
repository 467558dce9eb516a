"""How much room the tables of the newest database take, with their indexes."""

from __future__ import annotations

import asyncio
from pathlib import Path

import asyncpg

from benchmarks.stands import Ground, StoreName

LARGEST = 6
_SIZES = """
SELECT relname, pg_total_relation_size(oid) FROM pg_class
 WHERE relnamespace = 'public'::regnamespace AND relkind = 'r' ORDER BY 2 DESC LIMIT $1
"""
_NEWEST = "SELECT datname FROM pg_database WHERE NOT datistemplate ORDER BY oid DESC LIMIT 1"


def bytes_of(ground: Ground, store: StoreName) -> dict[str, int]:
    """SQLite says it of its file, its log included; PostgreSQL of each of its largest tables, too."""
    if store is StoreName.SQLITE:
        newest = max(ground.folder.glob("*.sqlite"), key=lambda path: path.stat().st_ctime_ns)
        return {"database": newest.stat().st_size, "its log": _size(Path(f"{newest}-wal"))}
    assert ground.postgres is not None, "a PostgreSQL store needs a PostgreSQL"
    return asyncio.run(_tables(ground.postgres.url()))


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


async def _tables(url: str) -> dict[str, int]:
    admin = await asyncpg.connect(url)
    try:
        name = await admin.fetchval(_NEWEST)
        whole = await admin.fetchval("SELECT pg_database_size($1::name)", name)
    finally:
        await admin.close()
    connection = await asyncpg.connect(f"{url.rpartition('/')[0]}/{name}")
    try:
        rows = await connection.fetch(_SIZES, LARGEST)
    finally:
        await connection.close()
    return {"database": whole} | {f"table {row[0]}": row[1] for row in rows}
