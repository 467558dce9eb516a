"""A server like `penstock server start`, which kills or stops itself at a commit that a file names.

    python crashing_server.py ORDER_FILE

Nothing happens until ORDER_FILE exists. It holds a moment, a number and the name of a signal, `after_commit 3 SIGKILL`:
the process sends itself the signal at the third such moment from then on. Commits of duties that run by the clock,
whatever is asked of the server, do not count: a test would not know which commit it interrupts.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

from penstock import assembly, settings
from penstock.stores.group_commit import CommitPoint

BY_THE_CLOCK = ("series", "old records", "lane:", "keys:", "remains:")
"""How the keys of operations begin that no request and no due work of a test has caused."""


class CrashTrigger:
    """Counts the moments since the order file was written, and sends the signal at the right one."""

    def __init__(self, order: Path) -> None:
        self._order = order
        self._seen = 0
        self._given_at = 0
        self._counting = threading.Lock()

    def __call__(self, moment: CommitPoint, keys: Sequence[str]) -> None:
        if all(key.startswith(BY_THE_CLOCK) for key in keys):
            return
        try:
            wanted, number, name = self._order.read_text().split()
            given_at = self._order.stat().st_mtime_ns
        except (OSError, ValueError):
            return
        if moment is not CommitPoint(wanted):
            return
        with self._counting:
            if given_at != self._given_at:
                self._given_at, self._seen = given_at, 0
            self._seen += 1
            if self._seen == int(number):
                os.kill(os.getpid(), signal.Signals[name])


def main() -> None:
    loaded = settings.load(os.environ, None, server_id_default=f"{socket.gethostname()}-{os.getpid()}")
    assembly.serve(loaded, on_commit=CrashTrigger(Path(sys.argv[1])))


if __name__ == "__main__":
    main()
