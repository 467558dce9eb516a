"""Priority, fairness key and weight in workflow code: the same in every replay."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.sdk import activity, workflow
from penstock.sdk.clients.client import Client
from penstock.sdk.priority import Priority
from penstock.sdk.replay.events import HistoryEvent
from penstock.sdk.replay.info import PolledRun, info_of
from penstock.sdk.replay.replayer import Replayer
from penstock.sdk.worker import Worker
from tests.support.patience import PATIENCE

SHORT = PATIENCE
MINE = Priority(priority_key=2, fairness_key="acme", fairness_weight=2.5)
USUAL = Priority(priority_key=3, fairness_weight=1.0)


def told(priority: Priority) -> list[Any]:
    return [priority.priority_key, priority.fairness_key, priority.fairness_weight]


@activity.defn
async def of_activity() -> list[Any]:
    return told(activity.info().priority)


@workflow.defn
class OfAll:
    @workflow.run
    async def run(self) -> list[list[Any]]:
        own = workflow.info().priority
        inherited = await workflow.execute_activity(of_activity, start_to_close_timeout=SHORT)
        lighter = await workflow.execute_activity(
            of_activity, start_to_close_timeout=SHORT, priority=Priority(fairness_weight=0.5)
        )
        if told(own) != told(USUAL):  # other commands if a replay saw a different value
            await workflow.execute_activity(of_activity, start_to_close_timeout=SHORT)
        return [told(own), inherited, lighter]


@pytest.mark.parametrize("priority", [MINE, Priority()])
async def test_code_is_told_its_standing_and_a_replay_of_the_events_alone_tells_it_the_same(
    client: Client, priority: Priority
) -> None:
    async with Worker(client, task_queue="q", workflows=[OfAll], activities=[of_activity]):
        handle = await client.start_workflow(
            OfAll.run, id=f"p-{priority.priority_key}", task_queue="q", priority=priority
        )
        known = told(MINE if priority is MINE else USUAL)
        assert await handle.result() == [known, known, [*known[:2], 0.5]]
    history = await handle.fetch_history()
    result = Replayer(workflows=[OfAll]).replay({"events": list(history.events)})
    assert result.failure is None


@pytest.mark.parametrize(
    ("said", "beside", "expected"),
    [
        ({}, Priority(), USUAL),
        ({}, Priority(priority_key=4, fairness_key="old"), Priority(4, "old", 1.0)),
        ({"priority": 2, "fairness_key": "acme", "fairness_weight": 2.5}, Priority(priority_key=5), MINE),
        (
            {"priority": 3, "priority_key": 2, "fairness_key": "acme", "fairness_weight": 2.5},
            Priority(priority_key=5),
            MINE,
        ),
        ({"priority": 4, "priority_key": None}, Priority(), Priority(None, None, 1.0)),
        ({"priority": 0}, Priority(), Priority(None, None, 1.0)),
    ],
)
def test_the_start_of_a_history_goes_before_what_a_task_says(
    said: dict[str, Any], beside: Priority, expected: Priority
) -> None:
    started = HistoryEvent.read(
        {
            "sequence": 1,
            "event_type": "WorkflowStarted",
            "recorded_at": "2026-11-15T12:00:00Z",
            "payload": said,
        }
    )
    place = PolledRun("default", "q", "order-1", "r1", "Order", priority=beside)
    assert info_of(place, started).priority == expected
