"""Killed (-9) right before and right after the commit of each kind of request, a server loses nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from penstock.stores.driving import Moment
from tests.faults.checker import check
from tests.faults.load import Load, Worker
from tests.faults.record import Kind, Start, Verdict
from tests.faults.servers import Doomed, serving

pytestmark = pytest.mark.faults

STEPS = ("start", "claim", "decide", "claim_activity", "perform", "claim_again", "close")
POINTS = [(step, 1) for step in STEPS] + [("claim", 2), ("claim_activity", 2), ("start_activity", 1)]
"""Which request is struck, and at which of its commits: a new server's poll commits once to know its queue, then
to claim."""


class Life:
    """One workflow from start to end, through a server that dies once on the way."""

    def __init__(self, load: Load, doomed: Doomed, point: tuple[str, int], moment: Moment) -> None:
        self._load = load
        self._worker: Worker = load.workers[0]
        self._doomed = doomed
        self._point = point
        self._moment = moment
        self.name = f"{point[0]}-{point[1]}-{moment.value.replace('_', '-')}x"

    async def live(self) -> dict[str, Any]:
        """Do every step; returns what each of them was answered with."""
        if self._point[0] == "start_activity":
            start = Start(Kind.ACTIVITY, self.name)
            told = {"start_activity": await self._step("start_activity", lambda: self._load.start(start))}
            [task] = await self._worker.poll(Kind.ACTIVITY)
            await self._worker.perform(task)
            return told
        start = Start(Kind.WORKFLOW, self.name)
        told = {"start": await self._step("start", lambda: self._load.start(start))}
        told["claim"] = task = await self._step("claim", lambda: self._take(Kind.WORKFLOW))
        told["decide"] = await self._step("decide", lambda: self._worker.decide(task))
        told["claim_activity"] = work = await self._step("claim_activity", lambda: self._take(Kind.ACTIVITY))
        told["perform"] = await self._step("perform", lambda: self._worker.perform(work))
        told["claim_again"] = last = await self._step("claim_again", lambda: self._take(Kind.WORKFLOW))
        told["close"] = await self._step("close", lambda: self._worker.decide(last))
        return told

    async def _take(self, kind: Kind) -> dict[str, Any]:
        [task] = await self._worker.poll(kind)
        return task

    async def _step(self, name: str, request: Callable[[], Awaitable[Any]]) -> Any:
        if name != self._point[0]:
            return await request()
        if self._point[1] == 2:
            await self._doomed.kill()
            await self._doomed.start()
        self._doomed.die_at(self._moment, self._point[1])
        asked = asyncio.ensure_future(request())
        await self._doomed.died()
        await self._doomed.start()
        return await asked


@pytest.mark.parametrize("moment", list(Moment))
async def test_a_server_killed_around_any_commit_has_done_each_acknowledged_thing_once(
    tmp_path: Path, database_url: str, moment: Moment
) -> None:
    doomed = Doomed(tmp_path, database_url)
    async with serving(doomed), Load([doomed.url], workers=1) as load:
        await load.workers[0].register()
        for point in POINTS:
            told = await Life(load, doomed, point, moment).live()
            _check_what_was_told(point, moment, told)
        await load.start_again(every=1)
        found = await load.finished()
    assert check(load.record, found) == []
    assert len(found.runs) == len(POINTS)
    print(f"{doomed.kills} kills at {moment}, {load.record.acknowledged} starts acknowledged")


def _check_what_was_told(point: tuple[str, int], moment: Moment, told: dict[str, Any]) -> None:
    """After the commit the same request gets the first one's answer; before it, it is the first."""
    step = point[0]
    answer = told[step]
    known = moment is Moment.AFTER_COMMIT
    if step in ("start", "start_activity"):
        status, body = answer
        assert (status, body.get("deduplicated", False)) == ((200, True) if known else (201, False))
    elif step in ("claim", "claim_again"):
        assert answer["workflow_task_attempt"] == 1, (
            "a claim whose answer was lost is told again, not repeated"
        )
    elif step == "claim_activity":
        assert answer["attempt_number"] == 1, "a claim whose answer was lost is told again, not repeated"
    else:
        assert answer.verdict is (Verdict.REPEATED if known else Verdict.ACCEPTED)
