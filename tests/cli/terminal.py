"""The program on a terminal, as a person sees it."""

from __future__ import annotations

import os
import pty
import subprocess
import sys

from tests.cli.recorded_server import RecordedServer
from tests.support.patience import PATIENCE_S


def on_a_terminal(server: RecordedServer, *args: str, **environ: str) -> str:
    """What the program writes when stdout and stderr are a terminal of 200 columns."""
    primary, secondary = pty.openpty()
    inherited = {key: value for key, value in os.environ.items() if key not in ("NO_COLOR", "FORCE_COLOR")}
    process = subprocess.Popen(
        [sys.executable, "-c", "from penstock.cli import main; main()", "--server", server.url, *args],
        env=inherited | {"TERM": "xterm-256color", "COLUMNS": "200"} | environ,
        stdout=secondary,
        stderr=secondary,
    )
    os.close(secondary)
    output = b""
    while True:
        try:
            chunk = os.read(primary, 65536)
        except OSError:
            break
        if not chunk:
            break
        output += chunk
    process.wait(PATIENCE_S)
    os.close(primary)
    return output.decode()
