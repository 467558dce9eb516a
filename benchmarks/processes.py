"""What processes cost: CPU seconds as the kernel counts them, read from `/proc`."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from pathlib import Path

TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")


def cpu_seconds(pid: int) -> float:
    """User and system time of a process and of all its children, those that have ended included."""
    return sum(_seconds(each) for each in (pid, *_children(pid)))


def own_cpu_seconds() -> float:
    return time.process_time()


def cpu_of(pids: Mapping[str, int]) -> dict[str, float]:
    """CPU seconds of each named process until now."""
    return {name: cpu_seconds(pid) for name, pid in pids.items()}


def load_average() -> float:
    """The load of the last minute: what else ran beside a measurement shows here."""
    return round(os.getloadavg()[0], 2)


def _seconds(pid: int) -> float:
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return 0.0
    # The command's name stands in parentheses and may hold spaces: count the fields after it.
    fields = text.rpartition(")")[2].split()
    user, system, user_of_ended, system_of_ended = (int(field) for field in fields[11:15])
    return (user + system + user_of_ended + system_of_ended) / TICKS_PER_SECOND


def _children(pid: int) -> list[int]:
    try:
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


def busy_seconds() -> float:
    """CPU seconds that everything on this machine has used, time that other guests took included."""
    fields = [int(field) for field in Path("/proc/stat").read_text().partition("\n")[0].split()[1:9]]
    user, nice, system, _idle, _waiting, *interrupts = fields
    return (user + nice + system + sum(interrupts)) / TICKS_PER_SECOND
