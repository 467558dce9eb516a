"""What a process and all of its descendants cost: CPU seconds and memory, read from `/proc`."""

from __future__ import annotations

import contextlib
import os
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from benchmarks.processes import TICKS_PER_SECOND

PAGE = os.sysconf("SC_PAGE_SIZE")
MIB = 2**20
CLOCK_OF_PROCESS = 2
"""How Linux makes the id of a process's CPU clock from its number, as `clock_getcpuclockid` does."""


@dataclass(frozen=True, slots=True)
class Memory:
    """Of a tree, in MiB."""

    pss: float
    """What several processes share counts once, in parts."""
    rss: float
    """What several processes share counts for each of them."""


def tree(pid: int) -> list[int]:
    """The process and its descendants now; none if it has ended."""
    children = defaultdict(list)
    for child, parent in _parents():
        children[parent].append(child)
    found = [pid] if Path(f"/proc/{pid}").exists() else []
    for each in found:
        found += children[each]
    return found


def cpu_seconds_of_trees(pids: Iterable[int]) -> float:
    """User and system time, also of descendants that have ended and were waited for."""
    return sum(_own_seconds(each) + _ended_seconds(each) for pid in pids for each in tree(pid))


def memory(pid: int) -> Memory:
    pids = tree(pid)
    return Memory(sum(map(_pss, pids)) / MIB, sum(map(_rss, pids)) / MIB)


@contextlib.contextmanager
def kernel_shares(pids: Mapping[str, int]) -> Iterator[dict[str, float]]:
    """How much of the CPU of each tree the kernel had inside the block, by its own count; known after it."""
    before, found = {name: _ticks(pid) for name, pid in pids.items()}, dict[str, float]()
    yield found
    for name, pid in pids.items():
        user, kernel = (late - early for late, early in zip(_ticks(pid), before[name], strict=True))
        found[name] = kernel / (user + kernel) if user + kernel else 0.0


def _ticks(pid: int) -> tuple[int, int]:
    """Of the user and of the kernel."""
    user = kernel = 0
    for each in tree(pid):
        with contextlib.suppress(OSError):
            fields = _fields(each)
            user, kernel = user + int(fields[11]), kernel + int(fields[12])
    return user, kernel


def mapped(pid: int) -> dict[str, float]:
    """Memory of a tree in MiB: values of its own, and code that it maps; what is shared counts in parts."""
    found = dict.fromkeys(("Anon", "File"), 0.0)
    for each in tree(pid):
        with contextlib.suppress(OSError):
            for line in Path(f"/proc/{each}/smaps_rollup").read_text().splitlines():
                name, _, rest = line.partition(":")
                if (kind := name.removeprefix("Pss_")) in found:
                    found[kind] += int(rest.split()[0]) / 1024
    return {"values": round(found["Anon"], 1), "code": round(found["File"], 1)}


def _parents() -> Iterator[tuple[int, int]]:
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                yield int(entry.name), int(_fields(int(entry.name))[1])


def _own_seconds(pid: int) -> float:
    """Of all threads, to the nanosecond: an idle process uses less than a tick of the kernel's clock."""
    with contextlib.suppress(OSError):
        return time.clock_gettime((~pid << 3) | CLOCK_OF_PROCESS)
    return 0.0


def _ended_seconds(pid: int) -> float:
    """Of children that have ended, in ticks."""
    with contextlib.suppress(OSError):
        return sum(int(field) for field in _fields(pid)[13:15]) / TICKS_PER_SECOND
    return 0.0


def _fields(pid: int) -> list[str]:
    """What stands after the command's name, which is in parentheses and may hold spaces."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()


def _pss(pid: int) -> int:
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) * 1024
    return 0


def _rss(pid: int) -> int:
    with contextlib.suppress(OSError):
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * PAGE
    return 0
