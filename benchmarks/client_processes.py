"""Client processes that take one order after the other, as many as are needed at once."""

from __future__ import annotations

import contextlib
import select
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from benchmarks.work import Order, Outcome

ORDER_SECONDS_MAX = 180.0
ROOT = Path(__file__).parent.parent


class ClientFailed(RuntimeError):
    """A client process ended or fell silent; what it had to say stands on stderr."""


@dataclass(eq=False, slots=True)
class Running:
    """An order that a client process carries out."""

    client: subprocess.Popen[bytes]
    order: Order
    idle: list[subprocess.Popen[bytes]]

    def finish(self) -> Outcome:
        """Wait for the outcome; the client is then free for the next order."""
        out = self.client.stdout
        assert out is not None
        ready, _, _ = select.select([out], [], [], ORDER_SECONDS_MAX)
        line = out.readline() if ready else b""
        if not line:
            raise ClientFailed(f"no outcome for {self.order}")
        self.idle.append(self.client)
        return msgspec.json.decode(line, type=Outcome)


@dataclass(eq=False, slots=True)
class Crew:
    """The client processes of one run."""

    clients: list[subprocess.Popen[bytes]] = field(default_factory=list)
    idle: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def begin(self, order: Order) -> Running:
        """Hand the order to a client that is free, or to a new one."""
        client = self.idle.pop() if self.idle else self._hire()
        assert client.stdin is not None
        client.stdin.write(msgspec.json.encode(order) + b"\n")
        client.stdin.flush()
        return Running(client, order, self.idle)

    def _hire(self) -> subprocess.Popen[bytes]:
        client = subprocess.Popen(
            (sys.executable, "-m", "benchmarks.client"),
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        self.clients.append(client)
        return client


@contextlib.contextmanager
def crew() -> Iterator[Crew]:
    """Client processes that end with the block."""
    hired = Crew()
    try:
        yield hired
    finally:
        for client in hired.clients:
            client.kill()
            client.communicate()
