"""Files that hold payloads are readable by their owner alone, whatever the umask.

Inputs, results and memos are stored as the caller sent them, so a database file is as confidential as the most
confidential of them. SQLite creates files with 0644 less the umask, and gives `-wal` and `-shm` the mode of the main
file. Creating that file first, with 0600, therefore covers all three; a rollback journal or a copy is the same case.
"""

from __future__ import annotations

import contextlib
import os
import stat
from pathlib import Path
from typing import Final

import structlog

MODE: Final = 0o600
_OTHERS: Final = stat.S_IRWXG | stat.S_IRWXO
log = structlog.get_logger("penstock.store")


def create(path: Path) -> None:
    """Create an empty file with mode 0600 if there is none; restrict an existing one to its owner.

    A symbolic link that leads to no file yet is followed, as SQLite follows it. Where no file can be created, the
    program that opens it next reports why.
    """
    with contextlib.suppress(OSError):
        os.close(os.open(path.resolve(), os.O_WRONLY | os.O_CREAT | os.O_EXCL, MODE))
    restrict(path)


def restrict(path: Path) -> None:
    """Remove the permissions of group and others from a regular file, and log that."""
    try:
        found = path.stat()
        mode = stat.S_IMODE(found.st_mode)
        if not mode & _OTHERS or not stat.S_ISREG(found.st_mode):
            return
        path.chmod(mode & ~_OTHERS)
    except FileNotFoundError:
        return
    except OSError:  # not its owner, or a file system that is mounted read-only
        log.warning(
            "a file with payloads is open to other users and cannot be restricted: its owner should run chmod 600",
            file=str(path),
        )
    else:
        log.warning(
            "a file with payloads was open to other users: its mode was changed to that of its owner alone",
            file=str(path),
            mode_before=f"{mode:04o}",
            mode_now=f"{mode & ~_OTHERS:04o}",
        )
