"""What schedules cost that are not due: nothing. The sweeper sends the same statements however many there are."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import pytest

from penstock.core.model import Blob
from penstock.core.schedules.record import (
    SchedulePolicies,
    ScheduleProgress,
    ScheduleRecord,
    ScheduleStatus,
)
from penstock.engine.maintenance.sweepers.due_timers import due_schedules, outdated_schedules
from penstock.engine.schedules import actions
from penstock.engine.schedules.actions import StoredAction
from penstock.engine.workflows.starts import Start
from penstock.ports.store import Tx
from tests.speed.engine_work import TYPE, EngineWork, engine_work
from tests.speed.statement_log import Seen, StatementLog, log_postgres, log_sqlite

TIMES = 3
MANY = 500
DAY_MS = 86_400_000


def a_schedule(number: int, now_ms: int) -> ScheduleRecord:
    """A schedule that is due tomorrow."""
    action = StoredAction(Start("default", TYPE, "bench", input=Blob("")), {})
    return ScheduleRecord(
        schedule_key=f"key-{number}",
        namespace="default",
        schedule_id=f"id-{number}",
        action_type=TYPE,
        status=ScheduleStatus.ACTIVE,
        note=None,
        spec='{"intervals": [{"every": "P1D"}]}',
        action=actions.encode(action),
        policies=SchedulePolicies(),
        progress=ScheduleProgress(),
        memo="{}",
        search_attributes="{}",
        cursor_at_ms=now_ms,
        nominal_at_ms=now_ms + DAY_MS,
        due_at_ms=now_ms + DAY_MS,
        zone_version="",
        created_at_ms=now_ms,
        updated_at_ms=now_ms,
    )


async def create(work: EngineWork, count: int) -> None:
    async def creation(number: int) -> bool:
        async def operation(tx: Tx) -> bool:
            return await tx.schedules.create(a_schedule(number, tx.now_ms))

        return await work.ctx.store.transact(operation, key=f"create-{number}")

    made = await asyncio.gather(*(creation(number) for number in range(count)))
    assert all(made)


async def test_a_sweep_takes_as_many_statements_however_many_schedules_are_not_due(
    address: Path | str,
) -> None:
    log = StatementLog()
    with pytest.MonkeyPatch.context() as patch:
        (log_sqlite if isinstance(address, Path) else log_postgres)(log, patch)
        async with engine_work(address) as work:

            async def sweep() -> None:
                assert await due_schedules(work.ctx).sweep() == 0
                assert await outdated_schedules(work.ctx).sweep() == 0
                await work.ctx.store.read(lambda tx: tx.next_due.until(tx.now_ms))

            await sweep()
            with_none = await log.fewest(TIMES, sweep)
            await create(work, MANY)
            with_many = await log.fewest(TIMES, sweep)
            assert without_times(with_many) == without_times(with_none)


def without_times(statements: Seen) -> list[str]:
    return [re.sub(r"\d{13}", "TIME", each) for each in statements]
