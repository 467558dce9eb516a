"""Damaged database files: rejected with a reason, and not modified."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.faults.load import Load
from tests.faults.observations import Kind, Start
from tests.faults.servers import Doomed, serving
from tests.support.live import running, server

pytestmark = pytest.mark.faults


def flip_the_header(path: Path) -> None:
    raw = bytearray(path.read_bytes())
    raw[3] ^= 0xFF
    path.write_bytes(raw)


def scramble_a_page(path: Path) -> None:
    raw = bytearray(path.read_bytes())
    raw[4096:8192] = bytes(byte ^ 0x5A for byte in raw[4096:8192])
    path.write_bytes(raw)


def cut_off_the_end(path: Path) -> None:
    raw = path.read_bytes()
    path.write_bytes(raw[: len(raw) // 2])


def replace_by_a_letter(path: Path) -> None:
    path.write_text("Dear server,\nthis is not a database.\n" * 100)


def replace_by_somebody_elses_database(path: Path) -> None:
    path.unlink()
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE photos (name TEXT)")
        connection.execute("INSERT INTO photos VALUES ('summer')")
        connection.commit()


@pytest.fixture(scope="module")
async def served_file(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A database that was served and closed in order."""
    folder = tmp_path_factory.mktemp("served")
    doomed = Doomed(folder, f"sqlite:///{folder}/penstock.db")
    async with serving(doomed), Load([doomed.url], workers=1) as load:
        await load.start(Start(Kind.WORKFLOW, "w1"))
        assert await doomed.stop() == 0
    assert not (folder / "penstock.db-wal").exists()
    return (folder / "penstock.db").read_bytes()


@pytest.mark.parametrize(
    "damage",
    [
        flip_the_header,
        scramble_a_page,
        cut_off_the_end,
        replace_by_a_letter,
        replace_by_somebody_elses_database,
    ],
)
def test_a_server_refuses_a_file_that_is_not_a_sound_database_of_its_own(
    tmp_path: Path, served_file: bytes, damage: Callable[[Path], None]
) -> None:
    path = tmp_path / "penstock.db"
    path.write_bytes(served_file)
    damage(path)
    before = path.read_bytes()
    refused = server(tmp_path, f"sqlite:///{path}")
    with pytest.raises(RuntimeError, match="the server ended with 1"), running(refused):
        pass
    assert "store_damaged" in refused.log.read_text()
    assert path.read_bytes() == before
    assert sorted(each.name for each in tmp_path.iterdir()) == [
        "penstock.db",
        "penstock.db.lock",
        "server.log",
    ]
