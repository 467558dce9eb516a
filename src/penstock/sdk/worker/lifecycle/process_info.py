"""Identity and metrics of the process in which a worker runs."""

from __future__ import annotations

import os
import socket
import time
from datetime import UTC, datetime
from typing import Any

from penstock.sdk.activities.process_pool.memory_usage import memory_bytes

_STARTED_AT = time.time()


def metrics() -> dict[str, Any]:
    """Return metrics of this process. Host, process id and start time identify it."""
    return {
        "process_uptime_seconds": round(time.time() - _STARTED_AT, 3),
        "process_id": os.getpid(),
        "process_started_at": datetime.fromtimestamp(_STARTED_AT, UTC).isoformat(),
        "memory_bytes": memory_bytes(),
        "host": socket.gethostname(),
    }


def identity() -> str:
    return f"{os.getpid()}@{socket.gethostname()}"
