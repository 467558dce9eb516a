"""Numbered migrations: loading them, and comparing them with what a database has applied."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from importlib.resources import files

from msgspec import Struct

from penstock.errors import Reason, StoreRefused
from penstock.stores.sql.catalogue import Dialect


class Migration(Struct, frozen=True):
    number: int
    name: str
    sql: str

    @property
    def checksum(self) -> str:
        return hashlib.sha256(self.sql.encode()).hexdigest()


def migrations(dialect: Dialect) -> Sequence[Migration]:
    """All migrations of a dialect, in order. Numbers may be left out, never used twice."""
    folder = files("penstock.stores.migrations").joinpath(dialect.value)
    found = []
    for entry in folder.iterdir():
        match = re.fullmatch(r"(\d{4})_(\w+)\.sql", entry.name)
        if match:
            found.append(Migration(int(match[1]), match[2], entry.read_text("utf-8")))
    found.sort(key=lambda each: each.number)
    assert len({each.number for each in found}) == len(found), "a migration number is used twice"
    return found


def pending(known: Sequence[Migration], applied: Mapping[int, str]) -> Sequence[Migration]:
    """The migrations to apply; raises `StoreRefused` if the database is newer, or was migrated differently."""
    newest = known[-1].number
    beyond = [number for number in applied if number > newest]
    if beyond:
        raise StoreRefused(
            Reason.SCHEMA_TOO_NEW,
            f"The database has schema {max(beyond)}, this program knows {newest}. "
            "Start the newer Penstock that wrote it, or restore the backup taken before the upgrade.",
            schema=max(beyond),
            supported=newest,
        )
    for migration in known:
        written = applied.get(migration.number)
        if written is not None and written != migration.checksum:
            raise StoreRefused(
                Reason.STORE_DAMAGED,
                f"Migration {migration.number:04d}_{migration.name} was applied with other content than this "
                "program has. Install the release that the database was created with.",
            )
    return [migration for migration in known if migration.number not in applied]


def outdated(missing: Sequence[Migration]) -> StoreRefused:
    names = ", ".join(f"{each.number:04d}_{each.name}" for each in missing)
    return StoreRefused(
        Reason.SCHEMA_OUTDATED,
        f"The database lacks {names}. Run `penstock db migrate`, then start again.",
        missing=[each.number for each in missing],
    )
