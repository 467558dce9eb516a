"""Parallel groups: one workflow task when all members have ended, and no member is started twice."""

from __future__ import annotations

from typing import Any

from tests.acceptance.cluster import Cluster, Json

SIZE = 3


def member(index: int, size: int = SIZE, base: int = 1, **fields: Any) -> Json:
    """One command of a flat group that starts at a step."""
    entry = {
        "parallel_group_id": f"parallel-activities:{base}:{size}",
        "parallel_group_kind": "activity",
        "parallel_group_base_sequence": base,
        "parallel_group_size": size,
        "parallel_group_index": index,
    }
    command = {"type": "schedule_activity", "activity_type": "square", "arguments": [index]}
    return command | entry | {"parallel_group_path": [entry]} | fields


async def test_the_code_is_woken_when_the_last_member_has_ended(scene: Cluster):
    hand = await scene.worker("w1")
    (await scene.start("fan-out")).expect(201)
    (await hand.decide(await hand.take(), *(member(index) for index in range(SIZE)))).expect(200)
    for _ in range(SIZE):
        assert (await hand.poll()).body["poll_status"] == "empty"
        (await hand.finish(await hand.take("activity"), 1)).expect(200)
    task = await hand.take()
    ended = [each for each in task["history_events"] if each["event_type"] == "ActivityCompleted"]
    assert sorted(each["payload"]["parallel_group_index"] for each in ended) == [0, 1, 2]
    assert all(each["payload"]["parallel_group_path"] for each in ended)


async def test_a_member_with_a_number_that_cannot_be_is_refused_and_nothing_is_written(scene: Cluster):
    hand = await scene.worker("w1")
    (await scene.start("fan-out")).expect(201)
    task = await hand.take()
    (await hand.decide(task, member(0, base=7))).expect(409, "invalid_commands")
    (await hand.decide(task, member(5))).expect(422, "validation_failed")
    assert await scene.event_types("fan-out") == ["WorkflowStarted"]
    (await hand.decide(task, *(member(index) for index in range(SIZE)))).expect(200)
