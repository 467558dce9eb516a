"""Children under every policy and continue-as-new on the public SDK; every history is replayed."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator
from typing import Any

import pytest
from durable_workflow.errors import WorkflowCancelled, WorkflowFailed, WorkflowTerminated, WorkflowTimedOut

from tests.acceptance.cluster import Cluster
from tests.acceptance.sdk.flow_gates import next_task_held
from tests.acceptance.sdk.flow_runner import Flows, both_stores, flowing

FATES = {"abandon": None, "request_cancel": "cancelled", "terminate": "terminated"}
policies = pytest.mark.parametrize("policy", list(FATES))


pytestmark = both_stores


@pytest.fixture(scope="module")
async def flows(cluster: Cluster) -> AsyncIterator[Flows]:
    async with flowing(cluster) as made:
        yield made


async def left_to_its_fate(flows: Flows, child: Any, policy: str) -> None:
    """A child survives its parent or not, depending on the policy."""
    fate = FATES[policy]
    if fate is None:
        await child.signal("word", ["alone"])
        assert await flows.result(child) == "alone"
    else:
        assert await flows.closed(child.workflow_id) == fate


async def test_a_parent_gets_the_result_of_its_child(flows: Flows) -> None:
    result, past = await flows.run("parent", "echo_child", [{"deep": [1, 2]}], {})
    assert result == {"deep": [1, 2]}
    kinds = [kind for kind in past.types if kind.startswith("Child")]
    assert kinds == ["ChildWorkflowScheduled", "ChildRunStarted", "ChildRunCompleted"]


async def test_a_parent_is_told_how_its_child_failed(flows: Flows) -> None:
    result, _ = await flows.run("parent", "failing_child", ["broken"], {})
    assert result == ["ChildWorkflowFailed", "broken", "failing_child", "after"]


@pytest.mark.parametrize(("action", "name"), [("cancel", "Cancelled"), ("terminate", "Terminated")])
async def test_a_parent_is_told_that_its_child_was_stopped(flows: Flows, action: str, name: str) -> None:
    handle = await flows.start("parent", "listening_child", [], {})
    child = await flows.child_of(handle)
    await getattr(child, action)(reason="enough")
    kind, message, child_type, last = await flows.result(handle)
    assert (kind, child_type, last) == (f"ChildWorkflow{name}", "listening_child", "after")
    assert "enough" in message
    await flows.replayed(handle)


@pytest.mark.parametrize("clock", ["run_timeout_seconds", "execution_timeout_seconds"])
async def test_a_child_that_is_out_of_time_failed(flows: Flows, clock: str) -> None:
    clocks = {"execution_timeout_seconds": 1} | (
        {} if clock.startswith("exec") else {"run_timeout_seconds": 1}
    )
    handle = await flows.start("parent", "listening_child", [], clocks)
    kind, _, child_type, last = await flows.result(handle)
    assert (kind, child_type, last) == ("ChildWorkflowFailed", "listening_child", "after")
    child = await flows.child_of(handle)
    assert await flows.closed(child.workflow_id) == "timed_out"
    await flows.replayed(handle)


async def test_a_child_is_tried_again_until_it_succeeds(flows: Flows) -> None:
    result, past = await flows.run("parent", "flaky_child", [flows.name("tag"), 3], {"tries": 5})
    assert result == 3
    assert past.types.count("ChildRunCompleted") == 1
    assert past.types.count("ChildRunFailed") == 0


async def test_a_child_is_not_tried_more_often_than_its_policy_says(flows: Flows) -> None:
    handle = await flows.start("parent", "flaky_child", [flows.name("tag"), 9], {"tries": 2})
    assert await flows.result(handle) == ["ChildWorkflowFailed", "try 2", "flaky_child", "after"]
    child = await flows.child_of(handle)
    assert len(await flows.runs(child.workflow_id)) == 2
    await flows.replayed(handle)


async def test_a_child_is_not_tried_again_after_an_error_that_its_policy_excludes(flows: Flows) -> None:
    how = {"tries": 5, "unless": ["ValueError"]}
    result, _ = await flows.run("parent", "flaky_child", [flows.name("tag"), 9], how)
    assert result == ["ChildWorkflowFailed", "try 1", "flaky_child", "after"]


@policies
@pytest.mark.parametrize("end", ["return", "fail", "continue"])
async def test_a_parent_that_ends_first_leaves_its_child_to_the_policy(
    flows: Flows, policy: str, end: str
) -> None:
    handle = await flows.start("hasty_parent", policy, end)
    first = (await flows.runs(handle.workflow_id))[0]
    if end == "fail":
        with pytest.raises(WorkflowFailed, match="in a hurry"):
            await flows.result(handle)
    else:
        assert await flows.result(handle) == (end if end == "return" else [policy, "last"])
    past = await flows.past(handle.workflow_id, first)
    (started, *_) = past.of("ChildWorkflowScheduled")
    child = flows.client.get_workflow_handle(started["child_workflow_instance_id"])
    await left_to_its_fate(flows, child, policy)
    await flows.replayed(handle)


@policies
@pytest.mark.parametrize("action", ["cancel", "terminate"])
async def test_a_parent_that_is_stopped_leaves_its_child_to_the_policy(
    flows: Flows, policy: str, action: str
) -> None:
    handle = await flows.start("parent", "listening_child", [], {"parent_close_policy": policy})
    child = await flows.child_of(handle)
    await getattr(handle, action)(reason="enough")
    with pytest.raises((WorkflowCancelled, WorkflowTerminated), match="enough"):
        await flows.result(handle)
    await left_to_its_fate(flows, child, policy)
    await flows.replayed(handle)


@policies
async def test_a_parent_that_is_out_of_time_leaves_its_child_to_the_policy(flows: Flows, policy: str) -> None:
    how = {"parent_close_policy": policy}
    clocks: dict[str, Any] = {"execution_timeout_seconds": 1, "run_timeout_seconds": 1}
    handle = await flows.start("parent", "listening_child", [], how, **clocks)
    child = await flows.child_of(handle)
    with pytest.raises(WorkflowTimedOut):
        await flows.result(handle)
    await left_to_its_fate(flows, child, policy)
    await flows.replayed(handle)


async def test_a_policy_reaches_the_children_of_children(flows: Flows) -> None:
    below = {"parent_close_policy": "request_cancel"}
    handle = await flows.start("parent", "parent", ["listening_child", [], below], below)
    child = await flows.child_of(handle)
    grandchild = await flows.child_of(child)
    await handle.cancel(reason="enough")
    assert await flows.closed(grandchild.workflow_id) == "cancelled"
    assert await flows.closed(child.workflow_id) == "cancelled"
    await flows.replayed(handle)


async def test_children_in_groups_come_back_in_their_shape_and_fail_as_a_group_does(flows: Flows) -> None:
    result, past = await flows.run("large_family")
    assert result == [["a", ["b", None], "c"], "first"]
    assert past.types.count("ChildRunStarted") == 5


async def test_a_chain_of_runs_hands_on_what_it_knows(flows: Flows) -> None:
    handle = await flows.start("chain", 3, [])
    assert await flows.result(handle) == [3, 2, 1, 0]
    pasts = await flows.replayed(handle)
    assert len(pasts) == 4
    assert [past.types[-1] for past in pasts] == [*["WorkflowContinuedAsNew"] * 3, "WorkflowCompleted"]
    for before, after in itertools.pairwise(pasts):
        assert after.of("WorkflowStarted")[0]["continued_from_run_id"] == before.run_id


async def test_a_chain_may_end_as_another_type(flows: Flows) -> None:
    handle = await flows.start("yielding_chain", 3)
    assert await flows.result(handle) == ["the", "end"]
    assert len(await flows.replayed(handle)) == 5


async def test_a_chain_keeps_its_memo_and_its_attributes(flows: Flows) -> None:
    await flows.register_attributes(Team="keyword")
    handle = await flows.start("chain", 2, [], memo={"for": "you"}, search_attributes={"Team": "blue"})
    assert await flows.result(handle) == [2, 1, 0]
    shown = await flows.scene.describe(handle.workflow_id)
    assert (shown["memo"], shown["search_attributes"]) == ({"for": "you"}, {"Team": "blue"})


async def test_a_parent_sees_the_end_of_the_chain_that_its_child_became(flows: Flows) -> None:
    result, past = await flows.run("parent", "chain", [3, []], {"parent_close_policy": "terminate"})
    assert result == [3, 2, 1, 0]
    assert past.types.count("ChildRunCompleted") == 1


@policies
async def test_a_policy_reaches_the_newest_run_of_a_chain(flows: Flows, policy: str) -> None:
    how = {"parent_close_policy": policy}
    handle = await flows.start("parent", "collecting_chain", [6, []], how)
    child = await flows.child_of(handle)
    for number in range(3):
        await child.signal("add", [number])
    await flows.continued(child.workflow_id, 2)
    await handle.cancel(reason="enough")
    if FATES[policy] is None:
        for number in range(3, 6):
            await child.signal("add", [number])
        assert await flows.result(child) == list(range(6))
    else:
        assert await flows.closed(child.workflow_id) == FATES[policy]
    await flows.replayed(handle)


async def test_a_signal_to_the_last_task_of_a_run_is_heard_by_the_next_run(flows: Flows) -> None:
    workflow_id = flows.name("collecting_chain")
    async with next_task_held(workflow_id) as first:
        handle = await flows.start("collecting_chain", 5, [], workflow_id=workflow_id)
        await first.reached()
        for number in range(3):
            await handle.signal("add", [number])
        async with next_task_held(workflow_id) as last:
            first.open()
            await last.reached()
            for number in (3, 4):
                await handle.signal("add", [number])
    assert await flows.result(handle) == [0, 1, 2, 3, 4]
    pasts = await flows.replayed(handle)
    assert [past.types.count("SignalReceived") for past in pasts] == [3, 2]


async def test_signals_in_flight_between_runs_are_each_heard_once(flows: Flows) -> None:
    handle = await flows.start("collecting_chain", 24, [])
    await asyncio.gather(*(handle.signal("add", [number]) for number in range(24)))
    assert sorted(await flows.result(handle)) == list(range(24))
    pasts = await flows.replayed(handle)
    assert sum(past.types.count("SignalReceived") for past in pasts) == 24


async def test_the_clock_of_an_execution_runs_on_through_its_chain(flows: Flows) -> None:
    handle = await flows.start("lingering_chain", 2, execution_timeout_seconds=3, run_timeout_seconds=3)
    with pytest.raises(WorkflowTimedOut):
        await flows.result(handle)
    pasts = await flows.replayed(handle)
    assert len(pasts) == 3
    assert pasts[-1].of("WorkflowTimedOut")[0]["timeout_kind"] == "execution_timeout"
    deadlines = {past.of("WorkflowStarted")[0]["execution_deadline_at"] for past in pasts}
    assert len(deadlines) == 1
