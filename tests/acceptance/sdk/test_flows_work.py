"""Groups, sagas, selections, local activities and markers on the public SDK; every history is replayed."""

from __future__ import annotations

import dataclasses
from collections.abc import AsyncIterator, Generator
from typing import Any

import pytest
from durable_workflow import Replayer, workflow
from durable_workflow.errors import WorkflowCancelled, WorkflowFailed, WorkflowTerminated, WorkflowTimedOut

from tests.acceptance.cluster import Cluster, until, value
from tests.acceptance.sdk import flow_runner, sdk_worker
from tests.acceptance.sdk.flow_gates import GATES, NOTES
from tests.acceptance.sdk.flow_replay import check
from tests.acceptance.sdk.flow_runner import Flows, both_stores, flowing, on_a_queue_of_its_own, working
from tests.support.patience import PATIENCE_S

HOUR = 3600


pytestmark = both_stores


@pytest.fixture(scope="module")
async def flows(cluster: Cluster) -> AsyncIterator[Flows]:
    async with flowing(cluster) as made:
        yield made


async def test_nested_groups_come_back_in_their_shape_whoever_was_done_first(flows: Flows) -> None:
    one, two, three = (flows.name("gate") for _ in range(3))
    handle = await flows.start("nested_groups", one, two, three)
    for number, gate in enumerate((three, two, one), start=1):
        await GATES[gate].reached()
        GATES[gate].open()
        await flows.saw(handle.workflow_id, "ActivityCompleted", number + 1)
    assert await flows.result(handle) == [[1, [2, None], [[3], 4]], "after"]
    (past,) = await flows.replayed(handle)
    assert past.types.count("ActivityScheduled") == 5


async def test_of_two_failed_members_the_first_in_the_code_is_told_when_all_are_done(flows: Flows) -> None:
    one, two, three = (flows.name("gate") for _ in range(3))
    handle = await flows.start("broken_group", one, two, three)
    for number, gate in enumerate((three, two), start=1):
        await GATES[gate].reached()
        GATES[gate].open()
        await flows.saw(handle.workflow_id, "ActivityFailed", number)
    GATES[one].open()
    assert await flows.result(handle) == ["second", "after"]
    (past,) = await flows.replayed(handle)
    assert past.types.count("ActivityCompleted") == 2, "the brother of those that failed was not cancelled"


async def test_a_group_with_a_failed_member_fails_the_workflow_that_does_not_catch_it(flows: Flows) -> None:
    handle = await flows.start("doomed_group")
    with pytest.raises(WorkflowFailed, match="no"):
        await flows.result(handle)
    await flows.replayed(handle)


@pytest.mark.parametrize("size", [0, 1, 90])
async def test_a_group_of_any_size_is_done(flows: Flows, size: int) -> None:
    result, past = await flows.run("wide_group", size)
    assert result == sum(range(1, size + 1))
    assert past.types.count("ActivityCompleted") == 2 * size


async def test_a_history_that_tells_of_another_workflow_does_not_replay(flows: Flows) -> None:
    """The harness sees what it shall see."""
    _, past = await flows.run("trip", flows.name("trip"), "", "")
    (index, *_) = [number for number, kind in enumerate(past.types) if kind == "ActivityScheduled"]
    events = list(past.events)
    payload = events[index]["payload"] | {"activity_type": "echo"}
    events[index] = events[index] | {"payload": payload}
    replayer = Replayer(workflows=flows.workflows)
    check(replayer, past)
    with pytest.raises(AssertionError, match=f"cut after event {index + 1}: "):
        check(replayer, dataclasses.replace(past, events=events))


async def test_members_that_are_retried_keep_their_place(flows: Flows) -> None:
    result, past = await flows.run("persistent", flows.name("tag"))
    assert result == [[1, 3, 2], 3]
    assert past.types.count("ActivityRetryScheduled") == 4


async def test_a_saga_gives_back_in_reverse_order_what_it_booked(flows: Flows) -> None:
    tag = flows.name("trip")
    handle = await flows.start("trip", tag, "flight", "")
    with pytest.raises(WorkflowFailed, match="no flight"):
        await flows.result(handle)
    assert NOTES[tag] == ["book hotel", "book car", "return car", "return hotel"]
    await flows.replayed(handle)


async def test_a_saga_whose_compensation_fails_stops_there_and_says_so(flows: Flows) -> None:
    tag = flows.name("trip")
    handle = await flows.start("trip", tag, "flight", "hotel")
    with pytest.raises(WorkflowFailed, match="saga compensation"):
        await flows.result(handle)
    assert NOTES[tag] == ["book hotel", "book car", "return car"]
    await flows.replayed(handle)


async def test_a_saga_without_failures_gives_nothing_back(flows: Flows) -> None:
    result, past = await flows.run("trip", flows.name("trip"), "", "")
    assert result == "booked"
    assert past.types.count("ActivityCompleted") == 3


async def test_a_group_that_failed_is_undone_by_a_group(flows: Flows) -> None:
    result, _ = await flows.run("careful_trip", flows.name("trip"))
    assert result == ["full", ["undo book hotel", "undo book car"]]


async def test_what_was_drawn_once_stays_as_it_was_drawn(flows: Flows) -> None:
    result, past = await flows.run("fixed")
    drawn, again, echoed, later, *_ = result
    assert drawn == echoed != again
    assert [value({"blob": payload["result"]}) for payload in past.of("SideEffectRecorded")] == [
        drawn,
        again,
        later,
    ]


async def test_a_version_is_chosen_once_for_a_run(flows: Flows) -> None:
    result, past = await flows.run("versioned")
    assert result == [3, 3, True, 7]
    assert [payload["change_id"] for payload in past.of("VersionMarkerRecorded")] == [
        "layout",
        "colours",
        "ending",
    ]


class _Evolving:
    def __init__(self) -> None:
        self.told = 0

    @workflow.signal("go_on")
    def go_on(self) -> None:
        self.told += 1

    def was_told(self) -> bool:
        return self.told > 0


@workflow.defn(name="evolving")
class Before(_Evolving):
    def run(self, ctx: Any) -> Generator[Any, Any, Any]:
        first = yield ctx.schedule_activity("echo", ["old"])
        yield ctx.wait_condition(self.was_told, key="told")
        return [first]


@workflow.defn(name="evolving")
class After(_Evolving):
    def run(self, ctx: Any) -> Generator[Any, Any, Any]:
        changed = yield ctx.patched("first-step")
        first = yield ctx.schedule_activity("echo", ["new" if changed else "old"])
        yield ctx.wait_condition(self.was_told, key="told")
        added = yield ctx.get_version("second-step", -1, 2)
        return [changed, first, added]


async def test_a_run_goes_on_with_new_code_that_knows_where_it_changed(flows: Flows) -> None:
    own = on_a_queue_of_its_own(flows)
    async with working(own.scene, own.task_queue, [Before]):
        old = await own.start("evolving")
        await own.saw(old.workflow_id, "ConditionWaitOpened")
    async with working(own.scene, own.task_queue, [After]):
        new = await own.start("evolving")
        for handle in (old, new):
            await handle.signal("go_on")
        assert await own.result(old) == [False, "old", 2]
        assert await own.result(new) == [True, "new", 2]
    patched = flow_runner.Flows(own.scene, own.client, [After], own.task_queue)
    await patched.replayed(old)
    await patched.replayed(new)


@workflow.defn(name="paying")
class PaysWithNoCard:
    def run(self, ctx: Any, tag: str) -> Generator[Any, Any, Any]:
        first = yield ctx.schedule_activity("note", [tag, "reserved"])
        yield ctx.schedule_activity("fail", ["no card"])
        return [first]


@workflow.defn(name="paying")
class Pays:
    def run(self, ctx: Any, tag: str) -> Generator[Any, Any, Any]:
        first = yield ctx.schedule_activity("note", [tag, "reserved"])
        second = yield ctx.schedule_activity("echo", ["paid"])
        return [first, second]


async def test_a_failed_workflow_is_redriven_and_repeats_only_what_had_failed(flows: Flows) -> None:
    own, tag = on_a_queue_of_its_own(flows), flows.name("redrive")
    async with working(own.scene, own.task_queue, [PaysWithNoCard]):
        handle = await own.start("paying", tag)
        assert await own.closed(handle.workflow_id) == "failed"
    failed = (await own.scene.describe(handle.workflow_id))["run_id"]
    async with working(own.scene, own.task_queue, [Pays]):
        redriven = await own.client.redrive_workflow(handle.workflow_id, failed, request_id="again")
        assert (redriven.outcome, redriven.command_status) == ("redriven", "accepted")
        assert redriven.run_id != failed
        assert await own.result(handle) == ["reserved", "paid"]
        repeated = await own.client.redrive_workflow(handle.workflow_id, failed, request_id="again")
        assert repeated.run_id == redriven.run_id
    assert NOTES[tag] == ["reserved"]
    assert await own.runs(handle.workflow_id) == [failed, redriven.run_id]


async def test_memo_and_search_attributes_change_while_a_run_goes_on(flows: Flows) -> None:
    await flows.register_attributes(Team="keyword", Stage="keyword", Count="int")
    handle = await flows.start("labelled", memo={"given": 1, "kept": 2}, search_attributes={"Team": "blue"})
    await flows.saw(handle.workflow_id, "ConditionWaitOpened")
    shown = await flows.scene.describe(handle.workflow_id)
    assert shown["memo"] == {"kept": 2, "stage": "two", "nested": {"a": True, "b": [1, {"x": None}]}}
    assert shown["search_attributes"] == {"Team": "blue", "Stage": "two"}
    await handle.signal("go_on")
    assert await flows.result(handle) == "labelled"
    assert (await flows.scene.describe(handle.workflow_id))["memo"]["last"] == 3
    await flows.replayed(handle)


async def test_local_activities_are_recorded_with_the_task_that_ran_them(flows: Flows) -> None:
    result, past = await flows.run("at_home", flows.name("tag"))
    assert result == [1, 3, "at home", 4, 4]
    assert [payload.get("local_activity") for payload in past.of("ActivityScheduled")] == [
        True,
        True,
        True,
        None,
        True,
    ]


@pytest.mark.parametrize("then", ["leave", "await", "cancel"])
async def test_an_activity_that_beats_the_clock_wins(flows: Flows, then: str) -> None:
    seconds = 1 if then == "await" else HOUR
    result, past = await flows.run("first_of", ["echo", "quick"], seconds, then)
    late = {"leave": None, "await": None, "cancel": "cancelled clock"}[then]
    assert result == ["work", "quick", None, "clock", late, "after"]
    assert past.types.count("SelectionResolved") == 1
    assert past.types.count("TimerFired") == (then == "await")


async def test_an_activity_that_fails_before_the_clock_wins_with_its_failure(flows: Flows) -> None:
    result, _ = await flows.run("first_of", ["fail", "broken"], HOUR, "leave")
    assert result == ["work", None, "broken", "clock", None, "after"]


@pytest.mark.parametrize("then", ["await", "step first"])
@pytest.mark.parametrize("ends", ["gated", "gated_failure"])
async def test_who_lost_against_the_clock_goes_on_and_can_be_awaited(
    flows: Flows, then: str, ends: str
) -> None:
    gate = flows.name("gate")
    handle = await flows.start("first_of", [ends, gate, "late"], 0, then)
    await flows.saw(handle.workflow_id, "SelectionResolved")
    if then == "step first":
        await flows.saw(handle.workflow_id, "ActivityCompleted")
    GATES[gate].open()
    late = "late" if ends == "gated" else "failed late"
    assert await flows.result(handle) == ["clock", None, None, "work", late, "after"]
    await flows.replayed(handle)


async def test_who_lost_against_the_clock_is_told_when_it_is_cancelled(flows: Flows) -> None:
    gate = flows.name("gate")
    handle = await flows.start("first_of", ["beating", gate], 1, "cancel")
    assert await flows.result(handle) == ["clock", None, None, "work", "cancelled work", "after"]
    await GATES[f"{gate}-cancelled"].reached()
    (past,) = await flows.replayed(handle)
    assert past.types.count("SelectionOperationCancelled") == 1


async def test_a_group_in_a_selection_wins_when_all_of_it_is_done(flows: Flows) -> None:
    result, _ = await flows.run("first_group", ["echo", 1], ["echo", 2], "wait")
    assert result == ["both", [1, 2], None, None, [1, 2]]


async def test_a_group_in_a_selection_wins_with_its_first_failure(flows: Flows) -> None:
    gate = flows.name("gate")
    result, past = await flows.run("first_group", ["gated", gate, 1], ["fail", "half"], "wait")
    assert result == ["both", None, "half", None, [1, 2]]
    assert past.of("SelectionResolved")[0]["outcome"] == "failed"
    GATES[gate].open()


async def test_a_group_that_lost_is_cancelled_as_a_whole(flows: Flows) -> None:
    gate = flows.name("gate")
    result, _ = await flows.run("first_group", ["echo", 1], ["beating", gate], "cancel")
    assert result == ["clock", None, None, "cancelled", [1, 2]]
    await GATES[f"{gate}-cancelled"].reached()


async def test_a_child_in_a_selection_wins_or_is_cancelled(flows: Flows) -> None:
    assert (await flows.run("first_child", "echo_child", ["hello"], HOUR, 1))[0] == [0, "hello", None, None]
    assert (await flows.run("first_child", "failing_child", ["broken"], HOUR, 1))[0] == [
        0,
        None,
        "broken",
        None,
    ]
    handle = await flows.start("first_child", "listening_child", [], 1, 1)
    assert await flows.result(handle) == [1, None, None, "cancelled"]
    child = await flows.child_of(handle)
    assert await flows.closed(child.workflow_id) == "cancelled"
    await flows.replayed(handle)


async def test_a_child_in_a_selection_may_take_several_runs(flows: Flows) -> None:
    chain, _ = await flows.run("first_child", "chain", [2, []], HOUR, 1)
    assert chain == [0, [2, 1, 0], None, None]
    tried, _ = await flows.run("first_child", "flaky_child", [flows.name("tag"), 3], HOUR, 5)
    assert tried == [0, 3, None, None]


async def test_a_condition_in_a_selection_wins_with_its_timeout(flows: Flows) -> None:
    result, _ = await flows.run("first_condition")
    assert result == ["never", False, "after"]


async def test_selections_groups_and_steps_follow_one_another(flows: Flows) -> None:
    gate = flows.name("gate")
    handle = await flows.start("races", gate)
    await flows.saw(handle.workflow_id, "SelectionResolved", 2)
    GATES[gate].open()
    assert await flows.result(handle) == ["start", "one", [1, [None, 2]], [3, None], "late", "plain", [4]]
    await flows.replayed(handle)


@pytest.mark.parametrize(
    "clocks",
    [{"start_to_close_timeout": 1}, {"heartbeat_timeout": 1}, {"schedule_to_close_timeout": 1}],
    ids=lambda clocks: next(iter(clocks)),
)
async def test_an_activity_that_is_out_of_time_fails_in_the_workflow(
    flows: Flows, clocks: dict[str, int]
) -> None:
    gate = flows.name("gate")
    result, past = await flows.run("watched", ["gated", gate, None], clocks)
    assert result == ["timeout", "after"]
    assert past.types.count("ActivityTimedOut") == 1
    GATES[gate].open()


@pytest.mark.parametrize("action", ["cancel", "terminate"])
async def test_an_activity_learns_in_its_middle_that_its_run_was_stopped(flows: Flows, action: str) -> None:
    gate = flows.name("gate")
    handle = await flows.start("watched", ["beating", gate], {"heartbeat_timeout": 20})
    await GATES[gate].reached()
    await getattr(handle, action)(reason="enough")
    await GATES[f"{gate}-cancelled"].reached()
    with pytest.raises((WorkflowCancelled, WorkflowTerminated), match="enough"):
        await flows.result(handle)
    (past,) = await flows.replayed(handle)
    assert past.types.count("ActivityCancelled") == 1


@pytest.mark.parametrize("action", ["cancel", "terminate"])
async def test_a_selection_with_open_members_is_stopped_as_a_whole(flows: Flows, action: str) -> None:
    gate = flows.name("gate")
    handle = await flows.start("first_of", ["gated", gate, None], HOUR, "leave")
    await GATES[gate].reached()
    await getattr(handle, action)(reason="enough")
    GATES[gate].open()
    with pytest.raises((WorkflowCancelled, WorkflowTerminated), match="enough"):
        await flows.result(handle)
    await flows.replayed(handle)


@pytest.mark.parametrize("clock", ["run_timeout_seconds", "execution_timeout_seconds"])
async def test_a_run_that_is_out_of_time_is_closed(flows: Flows, clock: str) -> None:
    gate = flows.name("gate")
    clocks: dict[str, Any] = {"run_timeout_seconds": 1, "execution_timeout_seconds": 1} | (
        {"execution_timeout_seconds": 600} if clock == "run_timeout_seconds" else {}
    )
    handle = await flows.start("first_of", ["gated", gate, None], HOUR, "leave", **clocks)
    with pytest.raises(WorkflowTimedOut):
        await flows.result(handle)
    GATES[gate].open()
    await flows.replayed(handle)


@pytest.mark.parametrize(
    ("workflow_type", "arguments", "result"),
    [
        ("persistent", ["until"], [[1, 3, 2], 3]),
        ("wide_group", [2], 3),
        ("large_family", [], [["a", ["b", None], "c"], "first"]),
        ("first_of", [["echo", "quick"], HOUR, "leave"], ["work", "quick", None, "clock", None, "after"]),
        ("yielding_chain", [2], ["the", "end"]),
    ],
    ids=lambda given: given if isinstance(given, str) else "",
)
async def test_run_until_does_not_sit_out_its_polls(
    flows: Flows, workflow_type: str, arguments: list[Any], result: Any
) -> None:
    """Its polls last 35 seconds each, and it has one at a time; the whole of it must take less than one of them."""
    own = on_a_queue_of_its_own(flows)
    given = [own.name("until") if argument == "until" else argument for argument in arguments]
    handle = await own.start(workflow_type, *given)
    async with sdk_worker.client_of(own.scene.last.url, str(own.scene.namespace)) as client:
        done = await flow_runner.worker(client, own.task_queue).run_until(
            workflow_id=handle.workflow_id, timeout=PATIENCE_S, poll_interval=0.05
        )
    assert done.status == "completed"
    assert await own.result(handle) == result
    await own.replayed(handle)


async def test_what_was_held_when_its_run_ended_leaves_nothing_open(flows: Flows) -> None:
    gate = flows.name("gate")
    handle = await flows.start("first_of", ["gated", gate, None], 0, "leave")
    assert (await flows.result(handle))[0] == "clock"
    GATES[gate].open()

    async def idle() -> bool:
        shown = (await flows.scene.get(f"/api/task-queues/{flows.task_queue}")).ok()["stats"]
        return all(shown[f"{kind}_tasks"]["leased_count"] == 0 for kind in ("workflow", "activity"))

    await until(idle)
    await flows.replayed(handle)
