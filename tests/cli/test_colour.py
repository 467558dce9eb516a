"""Colour is for terminals, and only for those who want it."""

from __future__ import annotations

import os
import pty
import subprocess
import sys

from tests.cli import bodies
from tests.cli.recorded_server import RecordedServer, Run


def on_a_terminal(server: RecordedServer, *args: str, **environ: str) -> str:
    """What the program writes when stdout and stderr are a terminal of 200 columns."""
    server.answer("GET", "/workflows", {"workflows": [bodies.completed("x")], "next_page_token": None})
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
    process.wait(60)
    os.close(primary)
    return output.decode()


def test_a_terminal_gets_colour(server: RecordedServer) -> None:
    assert "\x1b[32mcompleted" in on_a_terminal(server, "workflow", "list")


def test_no_color_is_respected(server: RecordedServer) -> None:
    output = on_a_terminal(server, "workflow", "list", NO_COLOR="1")
    assert "completed" in output
    assert "\x1b[32m" not in output


def test_no_color_is_respected_by_errors(server: RecordedServer) -> None:
    assert "\x1b[" in on_a_terminal(server, "worker", "list")
    assert "\x1b[" not in on_a_terminal(server, "worker", "list", NO_COLOR="1")


def test_a_pipe_gets_neither_colour_nor_cut_lines(ask: Run, server: RecordedServer) -> None:
    long = "order-" + "x" * 300
    server.answer("GET", "/workflows", {"workflows": [bodies.workflow(workflow_id=long)]})
    output = ask("workflow", "list").stdout
    assert long in output
    assert "\x1b" not in output
