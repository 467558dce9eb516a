"""A server ends when the tests end, even if they were killed and could not stop it."""

from __future__ import annotations

import subprocess
from pathlib import Path

# The shell waits on a pipe whose other end only the tests hold: it closes when they are gone.
WATCH = 'read -r _; kill -9 "$1" 2>/dev/null; sleep 1; rm -rf "$2"'


class ProcessGuard:
    """Watches over one server process and its folder until it is dismissed."""

    def __init__(self, pid: int, folder: Path) -> None:
        self._shell = subprocess.Popen(
            ["/bin/sh", "-c", WATCH, "guardian", str(pid), str(folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            cwd="/",
        )

    def release(self) -> None:
        """End the watch and leave server and folder alone."""
        self._shell.kill()
        self._shell.communicate()
