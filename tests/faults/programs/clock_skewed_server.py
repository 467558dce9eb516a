"""A server like `penstock server start`, with a clock that is off by the milliseconds in a file.

python shifted_server.py OFFSET_FILE
"""

from __future__ import annotations

import os
import socket
import sys
from pathlib import Path

from penstock import assembly, settings
from penstock.system_clock import SystemClock


class ShiftedClock(SystemClock):
    def now_ms(self) -> int:
        try:
            return super().now_ms() + int(Path(sys.argv[1]).read_text())
        except (OSError, ValueError):
            return super().now_ms()


def main() -> None:
    assembly.SystemClock = ShiftedClock  # type: ignore[attr-defined]
    loaded = settings.load(os.environ, None, server_id_default=f"{socket.gethostname()}-{os.getpid()}")
    assembly.serve(loaded)


if __name__ == "__main__":
    main()
