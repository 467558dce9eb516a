"""When the first line of a task ran. Only the standard library: the Python of a peer runs this."""

from __future__ import annotations

import os
import time
from pathlib import Path

VARIABLE = "BENCH_MARKS"


def mark() -> None:
    """Note the time on the clock that all processes of a machine share."""
    now = time.monotonic()
    with Path(os.environ[VARIABLE]).open("a") as file:
        file.write(f"{now}\n")


def marks(file: Path) -> list[float]:
    """All that were noted completely."""
    text = file.read_text() if file.exists() else ""
    return [float(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]
