"""`python -m benchmarks.counted_server server start`: a server that counts what it asks of SQLite, in a file.

The file holds the number of statements and of commits, each as eight bytes; whoever wants to know reads it.
"""

from __future__ import annotations

import mmap
import os
import struct
import threading
from pathlib import Path
from typing import Any

from penstock.cli import main
from penstock.stores import sqlite

FILE = "BENCH_STATEMENTS"
NUMBERS = struct.Struct("<qq")
FRAMES = ("BEGIN", "COMMIT", "ROLLBACK", "SAVEPOINT", "RELEASE", "PRAGMA", "--")
"""What makes a transaction, or is done by a trigger, is no statement of an operation."""


class Counted:
    """Statements and commits so far, kept where others can read them."""

    def __init__(self, path: Path) -> None:
        with path.open("w+b") as file:
            file.write(NUMBERS.pack(0, 0))
            file.flush()
            self._kept = mmap.mmap(file.fileno(), NUMBERS.size)
        self._lock = threading.Lock()
        self._statements = self._commits = 0

    def hear(self, sql: str) -> None:
        """Called by the writer and by readers, each in a thread of its own."""
        with self._lock:
            if sql.startswith("COMMIT"):
                self._commits += 1
            elif not sql.lstrip().startswith(FRAMES):
                self._statements += 1
            self._kept[:] = NUMBERS.pack(self._statements, self._commits)


def counted(path: Path) -> tuple[int, int]:
    """Statements and commits until now."""
    statements, commits = NUMBERS.unpack(path.read_bytes())
    return statements, commits


def _count(heard: Counted) -> None:
    connect = sqlite._connect

    def connected(path: Path, synchronous: str) -> Any:
        connection = connect(path, synchronous)
        connection.set_trace_callback(heard.hear)
        return connection

    sqlite._connect = connected


if __name__ == "__main__":
    _count(Counted(Path(os.environ[FILE])))
    main()
