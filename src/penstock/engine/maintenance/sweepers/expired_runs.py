"""Runs that their namespace keeps no longer: archived where there is an archive, then deleted, some at a time."""

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
"""How often to look, and how long to leave an archive alone that could not be written."""
log = structlog.get_logger("penstock.sweeper")


def expired_runs(ctx: EngineContext) -> Sweeper[RunId]:
    duty = _Duty()
    return Sweeper("expired_runs", ctx, duty.find, duty.mend, pause_s=duty.pause_s)


class _Duty:
    """Goes on without a rest while there is more to do, then rests for a minute."""

    def __init__(self) -> None:
        self._rests_until_ms = 0
        self._stuck: set[RunId] = set()
        """Runs that could not go in this round: they are stepped over until the next one."""
        self._archive_failed = False
        self._found = False

    async def find(self, ctx: EngineContext, limit: int) -> Sequence[RunId]:
        async def operation(tx: Tx) -> Sequence[RunId]:
            if tx.now_ms < self._rests_until_ms:
                return ()
            found = await self._due(tx, min(limit, AT_ONCE))
            if self._archive_failed or not found:
                self._rest(tx.now_ms)
                return ()
            return found

        self._found = False
        found = await ctx.store.read(operation, long=True)
        self._found = bool(found)
        return found

    async def mend(self, ctx: EngineContext, run_id: RunId) -> bool:
        try:
            pruned = await retention.prune(ctx, run_id)
        except Unavailable as error:
            self._stuck.add(run_id)
            if error.reason is not Reason.ARCHIVE_UNAVAILABLE:
                raise
            if not self._archive_failed:
                log.error(
                    "runs are kept beyond their time, for the archive cannot be written", why=error.message
                )
            self._archive_failed = True
            return False
        if pruned.obstacle not in (None, retention.Obstacle.GONE):
            self._stuck.add(run_id)
        return pruned.obstacle is None

    def pause_s(self) -> float:
        """Goes on at once while there may be more."""
        return 0.0 if self._found else LAZY_TICK_S

    async def _due(self, tx: Tx, most: int) -> Sequence[RunId]:
        found = [*await tx.retention.remains(most)]
        for namespace in await tx.namespaces.list():
            if len(found) >= most:
                break
            cutoff_ms = tx.now_ms - namespace.retention_days * DAY_MS
            room = most - len(found) + len(self._stuck)
            expired = await tx.retention.expired(namespace.name, cutoff_ms, room)
            found += [run_id for run_id in expired if run_id not in self._stuck]
        self._rests_until_ms = 0
        return found[:most]

    def _rest(self, now_ms: int) -> None:
        self._rests_until_ms = now_ms + EVERY_MS
        self._stuck.clear()
        self._archive_failed = False
