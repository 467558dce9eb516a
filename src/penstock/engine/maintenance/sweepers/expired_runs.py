"""Archives and deletes runs past their namespace's retention period, some at a time."""

from __future__ import annotations

from collections.abc import Sequence

import structlog

from penstock.core.model import RunId
from penstock.engine.context import EngineContext
from penstock.engine.maintenance.sweeper import LAZY_TICK_S, Sweeper
from penstock.engine.operations import retention
from penstock.engine.operations.retention import DAY_MS
from penstock.errors import Reason, Unavailable
from penstock.ports.store import Tx

AT_ONCE = 64
EVERY_MS = 60_000
"""The pause between rounds, and before the next attempt to write to an archive that failed."""
log = structlog.get_logger("penstock.sweeper")


def expired_runs(ctx: EngineContext) -> Sweeper[RunId]:
    duty = _ExpiredRuns()
    return Sweeper("expired_runs", ctx, duty.find, duty.prune, pause_s=duty.pause_s)


class _ExpiredRuns:
    """Sweeps without a pause while there is more to do, then pauses for a minute."""

    def __init__(self) -> None:
        self._pauses_until_ms = 0
        self._skipped: set[RunId] = set()
        """Runs that could not be deleted in this round; retried in the next one."""
        self._archive_failed = False
        self._found = False

    async def find(self, ctx: EngineContext, limit: int) -> Sequence[RunId]:
        async def operation(tx: Tx) -> Sequence[RunId]:
            if tx.now_ms < self._pauses_until_ms:
                return ()
            found = await self._due(tx, min(limit, AT_ONCE))
            if self._archive_failed or not found:
                self._pause(tx.now_ms)
                return ()
            return found

        self._found = False
        found = await ctx.store.read(operation, long=True)
        self._found = bool(found)
        return found

    async def prune(self, ctx: EngineContext, run_id: RunId) -> bool:
        try:
            pruned = await retention.prune(ctx, run_id)
        except Unavailable as error:
            self._skipped.add(run_id)
            if error.reason is not Reason.ARCHIVE_UNAVAILABLE:
                raise
            if not self._archive_failed:
                log.error("expired runs are kept because the archive cannot be written", why=error.message)
            self._archive_failed = True
            return False
        if pruned.obstacle not in (None, retention.Obstacle.GONE):
            self._skipped.add(run_id)
        return pruned.obstacle is None

    def pause_s(self) -> float:
        """No pause while there may be more."""
        return 0.0 if self._found else LAZY_TICK_S

    async def _due(self, tx: Tx, most: int) -> Sequence[RunId]:
        found = [*await tx.retention.remains(most)]
        for namespace in await tx.namespaces.list():
            if len(found) >= most:
                break
            cutoff_ms = tx.now_ms - namespace.retention_days * DAY_MS
            room = most - len(found) + len(self._skipped)
            expired = await tx.retention.expired(namespace.name, cutoff_ms, room)
            found += [run_id for run_id in expired if run_id not in self._skipped]
        self._pauses_until_ms = 0
        return found[:most]

    def _pause(self, now_ms: int) -> None:
        self._pauses_until_ms = now_ms + EVERY_MS
        self._skipped.clear()
        self._archive_failed = False
