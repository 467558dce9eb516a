"""`python -m benchmarks.counted_server server start`: a server that tells what it asks of SQLite, in a file.

Each statement is a line of the file, without the values that were bound to it.
"""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path
from typing import Any

from benchmarks.statements import named, without_values
from penstock.cli import main
from penstock.stores.sqlite import connections

FILE = "BENCH_STATEMENTS"


class Teller:
    """Writes down every statement as it is sent; threads may do so at once."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    def hear(self, sql: str) -> None:
        if not sql.startswith("--"):  # what a trigger does
            os.write(self._file, f"{named(without_values(sql))}\n".encode())


def told(path: Path, since: int = 0) -> Counter[str]:
    """How often each statement was sent since the file was so long."""
    with path.open("rb") as file:
        file.seek(since)
        return Counter(file.read().decode().splitlines())


def _tell(teller: Teller) -> None:
    connect = connections.connect

    def connected(path: Path, synchronous: str) -> Any:
        connection = connect(path, synchronous)
        connection.set_trace_callback(teller.hear)
        return connection

    connections.connect = connected


if __name__ == "__main__":
    _tell(Teller(Path(os.environ[FILE])))
    main()
