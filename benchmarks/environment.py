"""Where the figures were measured: cores, memory, versions, and the disk under the stores."""

from __future__ import annotations

import datetime
import os
import platform
from importlib.metadata import version
from pathlib import Path

from benchmarks.processes import load_average
from penstock.stores.sqlite.connections import library_version

PACKAGES = ("penstock", "uvicorn", "uvloop", "httptools", "msgspec", "asyncpg", "aiohttp")


def facts(folder: Path, postgres: str | None) -> dict[str, str | int | float | None]:
    """What a reader must know before comparing a figure with another one."""
    found: dict[str, str | int | float | None] = {
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "sqlite": library_version(),
        "postgres": postgres,
        "file_system": _file_system(folder),
        "load_before": load_average(),
    }
    return found | {name: version(name) for name in PACKAGES}


def _file_system(folder: Path) -> str:
    """The type of the file system that holds `folder`: on tmpfs a commit costs nothing and says nothing."""
    best, kind = "", "unknown"
    for line in Path("/proc/mounts").read_text().splitlines():
        _, mount, found, *_ = line.split()
        inside = mount == "/" or folder.is_relative_to(mount)
        if inside and len(mount) >= len(best):
            best, kind = mount, found
    return kind
