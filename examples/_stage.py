"""Support for the examples: a client of your server if one is configured, else of a temporary server."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import secrets
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

from penstock import Client

START_SECONDS = 30.0
_BEGAN = time.monotonic()


def tell(line: str) -> None:
    """Print one line with the seconds since the example started."""
    print(f"{time.monotonic() - _BEGAN:5.1f} s  {line}", flush=True)


def fresh(name: str) -> str:
    """Return an id that no earlier run of the example has used."""
    return f"{name}-{secrets.token_hex(3)}"


@contextlib.asynccontextmanager
async def stage() -> AsyncIterator[Client]:
    """Connect to the server in DURABLE_WORKFLOW_SERVER_URL, or to a new one in a temporary directory."""
    logging.basicConfig(level=logging.ERROR)  # `tell` prints the output of the example; workers stay quiet
    with contextlib.ExitStack() as stack:
        if not os.environ.get("DURABLE_WORKFLOW_SERVER_URL"):
            tell("No server is named, so one of our own starts.")
            url, token = stack.enter_context(own_server())
            _point_at(url, token)
        async with await Client.connect() as client:
            yield client


def _point_at(url: str, token: str) -> None:
    """Make clients and apps of this process use this server."""
    for name in [name for name in os.environ if name.startswith(("DURABLE_WORKFLOW_", "PENSTOCK_PROFILE"))]:
        del os.environ[name]
    os.environ |= {
        "DURABLE_WORKFLOW_SERVER_URL": url,
        "DURABLE_WORKFLOW_AUTH_TOKEN": token,
        "PENSTOCK_PROFILES": os.devnull,
    }


@contextlib.contextmanager
def own_server() -> Iterator[tuple[str, str]]:
    """Run `penstock dev` on a free port with an empty database. It is stopped and its data removed at the end."""
    with tempfile.TemporaryDirectory(prefix="penstock-example-") as directory:
        port, log = _free_port(), Path(directory, "server.log")
        command = [sys.executable, "-m", "penstock", "dev", "--data-dir", directory, "--port", str(port)]
        environment = {name: value for name, value in os.environ.items() if not name.startswith("DW_")}
        with log.open("wb") as output:
            server = subprocess.Popen(command, env=environment, stdout=output, stderr=output, cwd=directory)
        try:
            url = f"http://127.0.0.1:{port}"
            _wait_until_serving(server, url, log)
            yield url, Path(directory, "token").read_text().strip()
        finally:
            _stop(server)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _wait_until_serving(server: subprocess.Popen[bytes], url: str, log: Path) -> None:
    ends_at = time.monotonic() + START_SECONDS
    while time.monotonic() < ends_at and server.poll() is None:
        with (
            contextlib.suppress(OSError, ValueError),
            urllib.request.urlopen(f"{url}/api/health", timeout=1) as answer,
        ):
            if json.load(answer)["status"] == "serving":
                return
        time.sleep(0.05)
    raise SystemExit(f"The server did not start. This is what it said:\n{log.read_text(errors='replace')}")


def _stop(server: subprocess.Popen[bytes]) -> None:
    server.terminate()
    try:
        server.wait(15)
    except subprocess.TimeoutExpired:
        server.kill()
        server.wait()
