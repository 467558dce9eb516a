"""A server killed (-9) right before and right after the commit of each kind of request loses nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from penstock.stores.group_commit import CommitPoint
from tests.faults.checker import check
from tests.faults.load import Load, Worker
from tests.faults.observations import Kind, Start, Verdict
from tests.faults.servers import Doomed, serving

pytestmark = pytest.mark.faults

STRIKES = {
    "start": 1,
    "claim": 2,
    "decide": 1,
    "claim_activity": 2,
    "perform": 1,
    "claim_again": 1,
    "close": 1,
    "start_alone": 1,
}
"""At which of its commits each request kills its server. The first poll that a new server gets commits once to
know the queue, and then to claim."""


class Life:
    """A workflow and a standalone activity from start to end, through a server that dies at every step."""

    def __init__(self, load: Load, doomed: Doomed, moment: CommitPoint) -> None:
        self._load = load
        self._worker: Worker = load.workers[0]
        self._doomed = doomed
        self._moment = moment

    async def live(self) -> dict[str, Any]:
        """Do every step; returns what each of them was answered with in the end."""
        told: dict[str, Any] = {}
        workflow, alone = Start(Kind.WORKFLOW, "life"), Start(Kind.ACTIVITY, "alone")
        told["start"] = await self._struck("start", lambda: self._load.start(workflow))
        told["claim"] = task = await self._struck("claim", lambda: self._take(Kind.WORKFLOW))
        told["decide"] = await self._struck("decide", lambda: self._worker.decide(task))
        told["claim_activity"] = work = await self._struck(
            "claim_activity", lambda: self._take(Kind.ACTIVITY)
        )
        told["perform"] = await self._struck("perform", lambda: self._worker.perform(work))
        told["claim_again"] = last = await self._struck("claim_again", lambda: self._take(Kind.WORKFLOW))
        told["close"] = await self._struck("close", lambda: self._worker.decide(last))
        told["start_alone"] = await self._struck("start_alone", lambda: self._load.start(alone))
        await self._worker.perform(await self._take(Kind.ACTIVITY))
        return told

    async def _take(self, kind: Kind) -> dict[str, Any]:
        [task] = await self._worker.poll(kind)
        return task

    async def _struck(self, step: str, request: Callable[[], Awaitable[Any]]) -> Any:
        """Send a request that kills its server; the same bytes are sent again to the next one."""
        self._doomed.die_at(self._moment, STRIKES[step])
        asked = asyncio.ensure_future(request())
        await self._doomed.died()
        await self._doomed.start()
        return await asked


@pytest.mark.parametrize("moment", list(CommitPoint))
async def test_a_server_killed_around_any_commit_has_done_each_acknowledged_thing_once(
    tmp_path: Path, database_url: str, moment: CommitPoint
) -> None:
    doomed = Doomed(tmp_path, database_url, lease_s=60)
    async with serving(doomed), Load([doomed.url], workers=1) as load:
        await load.workers[0].register()
        told = await Life(load, doomed, moment).live()
        await load.start_again(every=1)
        found = await load.finished()
    assert check(load.record, found) == []
    assert doomed.kills == len(STRIKES)
    assert len(found.runs) == 2
    for step, answer in told.items():
        _check_what_was_told(step, answer, known=moment is CommitPoint.AFTER_COMMIT)


def _check_what_was_told(step: str, answer: Any, *, known: bool) -> None:
    """After the commit the same request gets the first one's answer; before it, it is the first."""
    if step in ("start", "start_alone"):
        status, body = answer
        assert (status, body.get("deduplicated", False)) == ((200, True) if known else (201, False)), step
    elif step in ("claim", "claim_again"):
        assert answer["workflow_task_attempt"] == 1, "a claim whose answer was lost is told again"
    elif step == "claim_activity":
        assert answer["attempt_number"] == 1, "a claim whose answer was lost is told again"
    else:
        assert answer.verdict is (Verdict.REPEATED if known else Verdict.ACCEPTED), step
