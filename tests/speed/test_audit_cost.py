"""What it costs to record who caused an event: no row, no statement, at most 3 % of the work of a workflow.

Compared is the same engine with and without a caller. Standalone tasks do nothing more, and none of their statements
names the caller. Work is counted in calls of functions that Penstock makes, those of Python and those of C, on the
thread of the event loop: the machine's load does not change them.
"""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from msgspec.structs import replace

import penstock
from penstock.core.attribution import Caller
from tests.speed.engine_work import EngineWork, engine_work
from tests.speed.statement_log import StatementLog, log_postgres, log_sqlite

PACKAGE = str(Path(penstock.__file__).parent)
TIMES, WARM_UP = 7, 3
WORKFLOW_PERCENT_MAX = 3
CALLER = Caller("auth:token", "operator")

Work = Callable[[], Awaitable[object]]


async def calls(work: Work) -> int:
    """How many functions one round of some work calls, at its fewest."""
    found = []
    for _ in range(TIMES):
        count = 0

        def note(frame: FrameType, event: str, _: Any) -> None:
            nonlocal count
            count += event in ("call", "c_call") and frame.f_code.co_filename.startswith(PACKAGE)

        sys.setprofile(note)
        try:
            await work()
        finally:
            sys.setprofile(None)
        found.append(count)
    return min(found)


def call(work: EngineWork, caller: Caller | None) -> None:
    """From here on, `work` is done for a caller, or for nobody."""
    work.ctx = replace(work.ctx, caller=caller)


async def test_principals_add_no_statement_little_work_to_workflows_and_nothing_to_standalone_tasks(
    address: Path | str,
) -> None:
    log = StatementLog()
    with pytest.MonkeyPatch.context() as patch:
        (log_sqlite if isinstance(address, Path) else log_postgres)(log, patch)
        async with engine_work(address) as work:

            async def task() -> None:
                await work.tasks(1, 1)

            for done, percent_max in ((work.workflow, WORKFLOW_PERCENT_MAX), (task, 0)):
                statements, functions = {}, {}
                for caller in (None, CALLER):
                    call(work, caller)
                    for _ in range(WARM_UP):
                        await done()
                    statements[caller] = len(await log.fewest(TIMES, done))
                    functions[caller] = await calls(done)
                assert statements[CALLER] <= statements[None]
                most = functions[None] * (1 + percent_max / 100)
                assert functions[CALLER] <= most, functions
            async with log.during() as seen:
                await task()
            assert seen
            assert not [each for each in seen if CALLER.id in each]
