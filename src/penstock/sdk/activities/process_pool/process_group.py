"""Process groups: whatever an activity forks dies with the process that ran it.

A process that leaves the group, as daemons do, is not affected.
"""

from __future__ import annotations

import contextlib
import os
import signal
from typing import NoReturn


def lead_group() -> None:
    """Make this process the leader of its own group, separate from the worker and its other children."""
    if hasattr(os, "setpgid"):
        with contextlib.suppress(OSError):
            os.setpgid(0, 0)


def end_group() -> NoReturn:
    """Kill this process and everything it has forked."""
    if hasattr(os, "getpgrp") and os.getpgrp() == os.getpid():
        os.killpg(0, signal.SIGKILL)
    os._exit(0)


def end_group_of(pid: int | None) -> None:
    """Kill what a child process leaves behind. It may be dead already and may have left nothing."""
    if pid is not None and hasattr(os, "killpg"):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(pid, signal.SIGKILL)
