"""Memory usage of the current process."""

from __future__ import annotations

import contextlib
import os
import sys
from pathlib import Path

_STATM = Path("/proc/self/statm")


def memory_bytes() -> int | None:
    """Return the resident set size, or its peak where the platform reports only that; None if unknown."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        return int(_STATM.read_text("ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")
    try:
        import resource
    except ImportError:
        return None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
