"""Worker programs as a user starts them: real processes, what they say, and somebody who sends them tasks by name."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from penstock import Penstock, TaskHandle
from tests.support.live import TOKENS, LiveServer
from tests.support.patience import PATIENCE_S

PENSTOCK_WORKER = (sys.executable, "-m", "penstock", "worker")
END_SECONDS = PATIENCE_S


class Program:
    """A worker in the background; what it says goes to a file, what its tasks print to a pipe."""

    def __init__(self, process: subprocess.Popen[str], log: Path) -> None:
        self.process, self._log = process, log

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def said(self) -> str:
        return self._log.read_text()

    def printed(self) -> str:
        """The next line that a task prints."""
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def send_signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def told_to_end(self, number: signal.Signals = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        return self.process.wait(END_SECONDS)


@contextmanager
def program(folder: Path, environment: Mapping[str, str], *args: str) -> Iterator[Program]:
    """`penstock worker` with these words; gone after the block, whatever happens."""
    handle, name = tempfile.mkstemp(suffix=".log", dir=folder)
    with os.fdopen(handle, "w") as talk:
        process = subprocess.Popen(
            [*PENSTOCK_WORKER, *args],
            cwd=folder,
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=talk,
            text=True,
        )
    try:
        yield Program(process, Path(name))
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()


def environment_of(live: LiveServer, **more: str) -> dict[str, str]:
    """What a program needs to reach this server."""
    around = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("DW_", "DURABLE_", "PENSTOCK"))
    }
    return around | {
        "DURABLE_WORKFLOW_SERVER_URL": live.url,
        "DURABLE_WORKFLOW_CONTROL_TOKEN": TOKENS["DW_OPERATOR_TOKEN"],
        "DURABLE_WORKFLOW_WORKER_TOKEN": TOKENS["DW_WORKER_TOKEN"],
        "PYTHONUNBUFFERED": "1",
        **more,
    }


def sender_to(live: LiveServer, **options: Any) -> Penstock:
    """Somebody who sends tasks by their names."""
    return Penstock(
        "sender",
        live.url,
        control_token=TOKENS["DW_OPERATOR_TOKEN"],
        worker_token=TOKENS["DW_WORKER_TOKEN"],
        **options,
    )


def sent(app: Penstock, queue: str, name: str, *args: Any, **options: Any) -> TaskHandle[Any]:
    async def start() -> TaskHandle[Any]:
        client = await app.client()
        made: Any = await client.start_activity(name, args=list(args), task_queue=queue, **options)
        return TaskHandle(app.clients, made.id)

    return app.clients.wait(start())


def told(app: Penstock, *path: str, **query: str) -> dict[str, Any]:
    """What the server answers to a question."""

    async def asked() -> dict[str, Any]:
        transport = (await app.client()).transport
        return await transport.control("GET", "/" + "/".join(path), idempotent=True, query=query)

    return app.clients.wait(asked())
