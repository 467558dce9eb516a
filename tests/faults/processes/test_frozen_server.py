"""A server that was frozen does not expire the leases of workers that it could not hear from."""

from __future__ import annotations

import asyncio
import json
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.faults.checker import check
from tests.faults.deadlines import until
from tests.faults.load import Caller, Load, lease_of, now_ms
from tests.faults.observations import Kind, Start, Verdict
from tests.faults.servers import Doomed, serving

pytestmark = pytest.mark.faults

TASKS = 20
STALL_S = 6


async def test_leases_that_ended_while_the_server_stood_still_are_kept_by_the_next_heartbeat(
    tmp_path: Path, database_url: str
) -> None:
    doomed = Doomed(tmp_path, database_url)
    async with serving(doomed), Load([doomed.url], workers=1) as load:
        [worker] = load.workers
        await worker.register()
        for number in range(TASKS):
            await load.start(Start(Kind.ACTIVITY, f"a{number}"))
        tasks: list[dict[str, Any]] = []
        while len(tasks) < TASKS:
            tasks += await worker.poll(Kind.ACTIVITY)
        caller = Caller([doomed.url], load.record)
        doomed.send(signal.SIGSTOP)
        beats = [asyncio.create_task(_heartbeat(caller, task)) for task in tasks]
        ends = max(lease_of(Kind.ACTIVITY, task).expires_at_ms for task in tasks)
        wakes_at_ms = max(ends, now_ms() + STALL_S * 1000)
        await until("every lease has ended", lambda: now_ms() > wakes_at_ms)
        doomed.send(signal.SIGCONT)
        told = await asyncio.gather(*beats)
        await caller.close()
        assert [beat["heartbeat_recorded"] for beat in told] == [True] * TASKS, told[0]
        reports = [await worker.perform(task) for task in tasks]
        assert {report.verdict for report in reports} == {Verdict.ACCEPTED}
        assert {report.attempt for report in reports} == {1}
        found = await load.finished()
    assert check(load.record, found) == []


async def _heartbeat(caller: Caller, task: dict[str, Any]) -> dict[str, Any]:
    body = {"lease_owner": task["lease_owner"], "activity_attempt_id": task["activity_attempt_id"]}
    path = f"/api/worker/activity-tasks/{task['task_id']}/heartbeat"
    _, answer = await caller.insist("POST", path, json.dumps(body).encode())
    return answer
