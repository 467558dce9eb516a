"""What a worker tells of the process that it runs in."""

from __future__ import annotations

import contextlib
import os
import socket
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

_STARTED_AT = time.time()
_STATM = Path("/proc/self/statm")


def metrics() -> dict[str, Any]:
    """Numbers of this process. Host, process id and start tell it from every other one."""
    return {
        "process_uptime_seconds": round(time.time() - _STARTED_AT, 3),
        "process_id": os.getpid(),
        "process_started_at": datetime.fromtimestamp(_STARTED_AT, UTC).isoformat(),
        "memory_bytes": _memory_bytes(),
        "host": socket.gethostname(),
    }


def identity() -> str:
    return f"{os.getpid()}@{socket.gethostname()}"


def _memory_bytes() -> int | None:
    """What is resident now where the system says so; else the most that ever was, if that is known."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        return int(_STATM.read_text("ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")
    try:
        import resource
    except ImportError:
        return None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
