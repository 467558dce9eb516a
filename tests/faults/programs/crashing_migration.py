"""`penstock db migrate` on a SQLite file; the process kills itself (-9) before its n-th statement.

    python crashing_migration.py N

Prints the number of statements and ends well when there are fewer than N.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
from typing import Any

from penstock import assembly, settings
from penstock.stores.sqlite import connections


def main() -> None:
    last = int(sys.argv[1])
    driver: Any = vars(connections)["sqlite3"]
    connect, seen = driver.connect, 0

    class Counting(driver.Connection):  # type: ignore[misc]  # the driver is chosen when it is imported
        def execute(self, *arguments: Any) -> Any:
            nonlocal seen
            seen += 1
            if seen == last:
                os.kill(os.getpid(), signal.SIGKILL)
            return super().execute(*arguments)

    driver.connect = lambda *args, **options: connect(*args, **options, factory=Counting)
    assembly.migrate(settings.load(os.environ, None, server_id_default=socket.gethostname()))
    print(seen)


if __name__ == "__main__":
    main()
