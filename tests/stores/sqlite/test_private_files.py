"""Database files, logs, copies and archives are readable only by their owner, whatever the umask."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest
import structlog
from structlog.testing import capture_logs

from penstock.errors import StoreRefused
from penstock.stores import archive, private_files
from penstock.stores.sqlite import schema
from penstock.stores.sqlite.store import SqliteStore
from penstock.wakeups.local import LocalWakeups
from tests.support.builders import NOW_MS
from tests.support.clock import ManualClock


@pytest.fixture(autouse=True)
def lax_umask() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


@pytest.fixture
def logs(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[structlog.typing.EventDict]]:
    monkeypatch.setattr(private_files, "log", structlog.get_logger("tests.private_files"))
    with capture_logs() as captured:
        yield captured


def modes(folder: Path) -> dict[str, str]:
    return {each.name: f"{stat.S_IMODE(each.stat().st_mode):04o}" for each in folder.iterdir()}


async def test_a_new_database_and_its_log_are_closed_to_other_users(tmp_path: Path) -> None:
    path = tmp_path / "penstock.db"
    store = await SqliteStore.open(path, ManualClock(NOW_MS), LocalWakeups())

    async def operation(tx):
        return await tx.namespaces.list()

    try:
        await store.transact(operation, key="look")
        schema.backup(path, tmp_path / "copy.db")
        found = modes(tmp_path)
    finally:
        await store.close()
    assert {"penstock.db", "penstock.db-wal", "penstock.db-shm", "copy.db"} <= found.keys()
    assert {name: mode for name, mode in found.items() if mode != "0600" and not name.endswith(".lock")} == {}


async def test_an_existing_database_that_others_can_read_is_closed_to_them_and_that_is_logged(
    tmp_path: Path, logs: list[structlog.typing.EventDict]
) -> None:
    path = tmp_path / "penstock.db"
    schema.prepare(path)
    copy = tmp_path / "penstock.db.before-0007"
    copy.write_bytes(b"")
    for each in (path, copy):
        each.chmod(0o644)
    schema.prepare(path)
    assert modes(tmp_path) == {"penstock.db": "0600", "penstock.db.before-0007": "0600"}
    told = [(line["file"], line["mode_before"], line["log_level"]) for line in logs]
    assert sorted(told) == [(str(path), "0644", "warning"), (str(copy), "0644", "warning")]


def test_a_database_behind_a_link_that_leads_to_no_file_yet_is_closed_to_other_users(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    link = tmp_path / "penstock.db"
    link.symlink_to("real/data.db")
    schema.prepare(link)
    assert modes(tmp_path / "real")["data.db"] == "0600"


def test_the_log_of_a_database_behind_a_link_is_closed_to_other_users(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    real, link = tmp_path / "real" / "data.db", tmp_path / "penstock.db"
    schema.prepare(real)
    log = tmp_path / "real" / "data.db-wal"
    log.touch()
    log.chmod(0o644)
    link.symlink_to(real)
    schema._keep_private(link)
    assert modes(tmp_path / "real")["data.db-wal"] == "0600"


def test_a_link_into_a_directory_that_does_not_exist_yet_can_be_locked_and_used(tmp_path: Path) -> None:
    link = tmp_path / "penstock.db"
    link.symlink_to(tmp_path / "new" / "data.db")
    with contextlib.closing(schema.exclusive(link)):
        schema.prepare(link)
    assert modes(tmp_path / "new")["data.db"] == "0600"


def test_what_is_no_regular_file_keeps_its_mode(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    pipe.chmod(0o666)
    private_files.create(pipe)
    assert modes(tmp_path) == {"pipe": "0666"}


def test_two_names_of_one_database_are_one_to_the_servers_that_want_it(tmp_path: Path) -> None:
    path, link = tmp_path / "penstock.db", tmp_path / "link.db"
    link.symlink_to(path)
    held = schema.exclusive(path)
    with contextlib.closing(held), pytest.raises(StoreRefused, match="in use by"):
        schema.exclusive(link)


def test_a_mode_that_is_narrower_stays_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"")
    path.chmod(0o400)
    private_files.restrict(path)
    assert modes(tmp_path) == {"file": "0400"}


def test_a_file_of_another_program_keeps_its_mode(tmp_path: Path) -> None:
    path = tmp_path / "other.db"
    with contextlib.closing(sqlite3.connect(str(path))) as connection:
        connection.execute("CREATE TABLE theirs (a)")
    path.chmod(0o644)
    with pytest.raises(StoreRefused):
        schema.prepare(path)
    assert modes(tmp_path)["other.db"] == "0644"


def test_a_copy_over_a_file_that_others_can_read_is_closed_to_them(tmp_path: Path) -> None:
    path, target = tmp_path / "penstock.db", tmp_path / "copy.db"
    schema.prepare(path)
    target.touch(0o666)
    schema.backup(path, target)
    assert modes(tmp_path)["copy.db"] == "0600"


def test_an_archived_run_is_closed_to_other_users(tmp_path: Path) -> None:
    path = tmp_path / "default" / "2026-01-01" / "run.part"
    archive._begin(path).close()
    assert modes(path.parent) == {"run.part": "0600"}
    archive.check(tmp_path / "new")
    assert modes(tmp_path)["new"] == "0700"
