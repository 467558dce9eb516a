"""The process group of a child process: what a function forks or starts dies with the process that ran it.

A process that leaves the group by itself, as daemons do, is no part of it any more.
"""

from __future__ import annotations

import contextlib
import os
import signal
from typing import NoReturn


def lead_group() -> None:
    """Have what is forked from this process be in a group of its own, apart from the worker and its other children."""
    if hasattr(os, "setpgid"):
        with contextlib.suppress(OSError):
            os.setpgid(0, 0)


def end_group() -> NoReturn:
    """End this process at once, with all that it forked."""
    if hasattr(os, "getpgrp") and os.getpgrp() == os.getpid():
        os.killpg(0, signal.SIGKILL)
    os._exit(0)


def end_group_of(pid: int | None) -> None:
    """End what a child process leaves behind; it may be dead already, and may have left nothing."""
    if pid is not None and hasattr(os, "killpg"):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(pid, signal.SIGKILL)
