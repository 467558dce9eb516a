"""Workers that die or freeze with a leased task: the task is retried, and nothing is recorded twice."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.faults.checker import check
from tests.faults.deadlines import until
from tests.faults.load import QUEUE, Load, lease_of
from tests.faults.observations import Kind, Start, Verdict
from tests.faults.servers import LEASE_S, Doomed, serving
from tests.support.lag import Lag
from tests.support.patience import PATIENCE_S

pytestmark = pytest.mark.faults

SCRIPT = Path(__file__).parents[1] / "programs/single_task_worker.py"
BACK_WITHIN_S = 2


class LoneWorker:
    """A worker process in mid-activity."""

    def __init__(self, process: asyncio.subprocess.Process, task: dict[str, Any]) -> None:
        self.process = process
        self.task = task

    async def report(self) -> dict[str, Any]:
        assert self.process.stdin is not None
        self.process.stdin.write(b"report\n")
        return await _line(self.process)


@contextlib.asynccontextmanager
async def lone_worker(url: str) -> AsyncIterator[LoneWorker]:
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        sys.executable, str(SCRIPT), url, QUEUE, "lone-worker", stdin=pipe, stdout=pipe
    )
    try:
        yield LoneWorker(process, await _line(process))
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def _line(process: asyncio.subprocess.Process) -> dict[str, Any]:
    assert process.stdout is not None
    found: dict[str, Any] = json.loads(await asyncio.wait_for(process.stdout.readline(), PATIENCE_S))
    return found


async def _taken_over(load: Load) -> dict[str, Any]:
    """The task as the next worker gets it."""
    [task] = await until("the task is leased again", lambda: load.workers[0].poll(Kind.ACTIVITY))
    return task


async def test_the_task_of_a_killed_worker_is_leased_again_soon_after_its_lease_ended(
    tmp_path: Path, database_url: str
) -> None:
    doomed = Doomed(tmp_path, database_url)
    async with serving(doomed), Load([doomed.url], workers=1) as load:
        await load.workers[0].register()
        await load.start(Start(Kind.ACTIVITY, "orphan"))
        async with lone_worker(doomed.url) as dying:
            dying.process.kill()
            with Lag() as lag:
                task = await _taken_over(load)
        first, second = lease_of(Kind.ACTIVITY, dying.task), lease_of(Kind.ACTIVITY, task)
        granted_again_at_ms = second.expires_at_ms - LEASE_S * 1000
        late_ms = BACK_WITHIN_S * 1000 + lag.so_far.total_seconds() * 1000
        assert first.expires_at_ms <= granted_again_at_ms <= first.expires_at_ms + late_ms
        assert (second.task_id, second.attempt) == (first.task_id, first.attempt + 1)
        assert task["idempotency_key"] == dying.task["idempotency_key"]
        await load.workers[0].perform(task)
        found = await load.finished()
    assert check(load.record, found) == []


@pytest.mark.parametrize("done", [True, False], ids=["after the next is done", "while the next works"])
async def test_the_report_of_a_worker_that_froze_past_its_lease_is_refused_and_changes_nothing(
    tmp_path: Path, sqlite_database: str, done: bool
) -> None:
    doomed = Doomed(tmp_path, sqlite_database)
    async with serving(doomed), Load([doomed.url], workers=1) as load:
        await load.workers[0].register()
        await load.start(Start(Kind.ACTIVITY, "frozen"))
        async with lone_worker(doomed.url) as frozen:
            frozen.process.send_signal(signal.SIGSTOP)
            task = await _taken_over(load)
            report = await load.workers[0].perform(task) if done else None
            frozen.process.send_signal(signal.SIGCONT)
            told = await frozen.report()
        assert (told["status"], told["recorded"]) == (409, False)
        assert told["reason"] in ("stale_attempt", "run_closed")
        report = report or await load.workers[0].perform(task)
        assert report.verdict is Verdict.ACCEPTED
        found = await load.finished()
    assert check(load.record, found) == [], "the history shows the second worker's attempt, once"
