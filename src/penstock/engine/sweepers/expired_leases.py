"""Leases that nobody renewed: the task waits again, at most one beat after its lease has ended."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.core.model import TaskId
from penstock.engine import activity_reports, workflow_reports
from penstock.engine.house import House
from penstock.engine.sweepers.sweeper import Sweeper
from penstock.ports.outlook import Due
from penstock.ports.store import Tx


def expired_leases(house: House) -> Sweeper[TaskId]:
    return Sweeper("expired_leases", house, _find, _mend, awaits=Due.LEASE, patient=True)


async def _find(house: House, limit: int) -> Sequence[TaskId]:
    async def operation(tx: Tx) -> Sequence[TaskId]:
        return await tx.tasks.expired(tx.now_ms, limit)

    return await house.store.read(operation)


async def _mend(house: House, task_id: TaskId) -> bool:
    return await workflow_reports.reclaim(house, task_id) or await activity_reports.reclaim(house, task_id)
