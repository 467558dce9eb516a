"""The store behind `memory://`: a SQLite database of its own, which is gone when the store is closed."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import textwrap
import threading
from pathlib import Path

import pytest

from penstock.core.model import RunId
from penstock.ports.store import Tx
from penstock.stores.sqlite import ephemeral
from penstock.stores.sqlite.ephemeral import EphemeralStore
from penstock.wakeups.local import LocalWakeups
from tests.stores.store_operations import look, record
from tests.support.builders import a_run
from tests.support.clock import ManualClock


@pytest.fixture
def parent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The directory in which stores are created."""
    monkeypatch.setattr(ephemeral, "_parent", lambda: tmp_path)
    return tmp_path


async def test_two_stores_share_nothing(clock: ManualClock, wakeups: LocalWakeups):
    one, other = EphemeralStore.create(clock, wakeups), EphemeralStore.create(clock, wakeups)
    await record(one, lambda tx: tx.runs.insert(a_run()))
    assert await look(one, lambda tx: tx.runs.get(RunId("r1"))) == a_run()
    assert await look(other, lambda tx: tx.runs.get(RunId("r1"))) is None
    await one.close()
    await other.close()


async def test_its_directory_is_private_and_removed_when_it_is_closed(
    parent: Path, clock: ManualClock, wakeups: LocalWakeups
):
    store = EphemeralStore.create(clock, wakeups)
    await record(store, lambda tx: tx.runs.insert(a_run()))
    [directory] = parent.iterdir()
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    await store.close()
    assert list(parent.iterdir()) == []


async def test_it_needs_no_thread(parent: Path, clock: ManualClock, wakeups: LocalWakeups):
    before = threading.active_count()
    store = EphemeralStore.create(clock, wakeups)
    await record(store, lambda tx: tx.runs.insert(a_run()))

    async def operation(tx: Tx) -> int:
        return threading.get_ident()

    assert await store.read(operation, long=True) == threading.get_ident()
    assert threading.active_count() == before
    await store.close()


def test_a_store_of_a_killed_process_is_removed_and_one_in_use_is_not(tmp_path: Path):
    program = textwrap.dedent(f"""
        import asyncio, os, sys
        from pathlib import Path
        from penstock.stores.sqlite import ephemeral
        from penstock.wakeups.local import LocalWakeups
        ephemeral._parent = lambda: Path({str(tmp_path)!r})
        async def main():
            store = ephemeral.EphemeralStore.create(None, LocalWakeups())
            print(store._path.parent, flush=True)
            sys.stdin.read()
        asyncio.run(main())
    """)
    running = subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with running:
        assert running.stdout is not None
        directory = Path(running.stdout.readline().strip())
        long_ago = directory.stat().st_mtime - 2 * ephemeral.ABANDONED_AFTER_S
        os.utime(directory, (long_ago, long_ago))
        ephemeral._remove_abandoned(tmp_path)
        assert directory.exists()
        running.kill()
        running.wait()
    assert directory.exists()
    os.utime(directory, (long_ago, long_ago))
    ephemeral._remove_abandoned(tmp_path)
    assert not directory.exists()


def test_a_small_shared_memory_is_not_used(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(ephemeral, "ROOM_MIN", 1 << 62)
    assert ephemeral._parent.__wrapped__() != ephemeral.SHARED_MEMORY


def test_a_directory_that_another_user_planted_is_left_alone(tmp_path: Path):
    """`/dev/shm` is writable by everybody: a link there must not lead us to write elsewhere."""
    victim, planted = tmp_path / "victim", tmp_path / f"{ephemeral.PREFIX}planted"
    victim.mkdir()
    planted.mkdir(mode=0o755)
    planted.chmod(0o755)
    (planted / ephemeral.DATABASE).symlink_to(victim / "data")
    (tmp_path / f"{ephemeral.PREFIX}link").symlink_to(victim)
    os.utime(planted, (0, 0))
    ephemeral._remove_abandoned(tmp_path)
    assert list(victim.iterdir()) == []
    assert planted.exists()


async def test_a_forked_child_that_exits_leaves_the_database_of_its_parent(
    parent: Path, clock: ManualClock, wakeups: LocalWakeups
):
    store = EphemeralStore.create(clock, wakeups)
    await record(store, lambda tx: tx.runs.insert(a_run()))
    [directory] = parent.iterdir()
    ephemeral._remove_own(directory, os.getpid() + 1)
    assert await look(store, lambda tx: tx.runs.get(RunId("r1"))) == a_run()
    await store.close()
    assert not directory.exists()
