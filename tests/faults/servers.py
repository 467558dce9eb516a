"""Servers for fault tests: short leases, and a file that makes each of them die at a commit."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from signal import Signals

from penstock.stores.group_commit import CommitPoint
from tests.faults.deadlines import until
from tests.support.live import LiveServer, server
from tests.support.patience import PATIENCE_S

LEASE_S = 2
LAUNCHER = Path(__file__).parent / "programs/crashing_server.py"


class Doomed:
    """A server that can be made to die, and restarted on the same data and port."""

    def __init__(
        self,
        folder: Path,
        database_url: str,
        *,
        name: str = "server",
        lease_s: int = LEASE_S,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        self.order = folder / f"{name}.order"
        command = (sys.executable, str(LAUNCHER), str(self.order))
        leases = {"DW_WORKFLOW_TASK_TIMEOUT": str(lease_s), "DW_ACTIVITY_TASK_TIMEOUT": str(lease_s)}
        # workers lose leases on purpose, as often as it comes
        chosen = leases | {"DW_QUARANTINE_AFTER": "0"} | dict(settings or {})
        self.live: LiveServer = server(folder, database_url, name=name, settings=chosen, command=command)
        self.kills = 0

    @property
    def url(self) -> str:
        return self.live.url

    async def start(self) -> None:
        self.order.unlink(missing_ok=True)
        await asyncio.to_thread(self.live.start)

    def die_at(self, moment: CommitPoint, number: int = 1) -> None:
        """Kill itself at the n-th such moment from now on."""
        self._order(moment, number, signal.SIGKILL)

    def freeze_at(self, moment: CommitPoint, number: int = 1) -> None:
        """Stop at the n-th such moment from now on, until SIGCONT."""
        self._order(moment, number, signal.SIGSTOP)

    def _order(self, moment: CommitPoint, number: int, what: Signals) -> None:
        written = self.order.with_suffix(".written")
        written.write_text(f"{moment} {number} {what.name}")
        written.replace(self.order)

    async def frozen(self, within_s: float = PATIENCE_S) -> None:
        """Wait until the process is stopped."""
        await until("the server stands still", self._stands_still, within_s=within_s)

    def thaw(self) -> None:
        self.order.unlink(missing_ok=True)
        self.send(signal.SIGCONT)

    def _stands_still(self) -> bool:
        status = Path(f"/proc/{self.live.pid}/stat").read_text()
        return status.rpartition(")")[2].split()[0] == "T"

    async def died(self, within_s: float = PATIENCE_S) -> None:
        """Wait until it has killed itself."""
        await until("the server dies", lambda: self._dead(), within_s=within_s)
        assert self.live.process is not None
        assert self.live.process.returncode == -9
        self.kills += 1

    async def kill(self) -> None:
        await asyncio.to_thread(self.live.kill)
        self.kills += 1

    def send(self, number: Signals) -> None:
        os.kill(self.live.pid, number)

    async def stop(self) -> int:
        return await asyncio.to_thread(self.live.stop)

    def last_words(self) -> str:
        return self.live.log.read_text(errors="replace")

    def _dead(self) -> bool:
        return self.live.process is not None and self.live.process.poll() is not None


@contextlib.asynccontextmanager
async def serving(*servers: Doomed) -> AsyncIterator[tuple[Doomed, ...]]:
    """Servers that are started before the block and stopped after it."""
    try:
        await asyncio.gather(*(each.start() for each in servers))
        yield servers
    finally:
        for each in servers:
            process = each.live.process
            if process is not None and process.poll() is None:
                process.kill()
                await asyncio.to_thread(process.wait, 10)
