"""Programs about runs: children, other workflows, time, versions, and what a run knows of itself."""

# ruff: noqa: PT017 - workflow code has no pytest

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import pytest

from penstock import (
    RetryPolicy,
    SearchAttributeKey,
    SearchAttributePair,
    TypedSearchAttributes,
    WorkflowIDReusePolicy,
    activity,
    workflow,
)
from penstock.client import WorkflowExecutionStatus
from penstock.failures import (
    ApplicationError,
    CancelledError,
    ChildWorkflowError,
    TerminatedError,
    WorkflowAlreadyStartedError,
    WorkflowContinuedAsNewError,
    WorkflowFailureError,
)
from penstock.worker import Replayer
from tests.sdk.programs.program import LONG, SOON, Home, program


@workflow.defn
class Echo:
    @workflow.run
    async def run(self, word: str) -> str:
        parent = workflow.info().parent
        assert parent is not None
        assert parent.namespace == workflow.info().namespace
        if word == "fail":
            raise ApplicationError("the child failed", type="Sad")
        if word == "wait":
            await asyncio.Event().wait()
        return f"{word} from {parent.workflow_id}"


@workflow.defn
class Parent:
    @workflow.run
    async def run(self) -> list[str]:
        own = workflow.info().workflow_id
        by_class = await workflow.execute_child_workflow(Echo.run, "a", id=f"{own}-a")
        handle = await workflow.start_child_workflow("Echo", "b", id=f"{own}-b", result_type=str)
        found = [by_class, await handle]
        try:
            await workflow.execute_child_workflow(
                Echo.run, "fail", retry_policy=RetryPolicy(initial_interval=SOON, maximum_attempts=2)
            )
        except ChildWorkflowError as error:
            assert isinstance(error.cause, ApplicationError)
            found.append(f"{error.workflow_type} {error.cause.type}")
        waiting = await workflow.start_child_workflow(Echo.run, "wait")
        waiting.cancel()
        try:
            await waiting
        except ChildWorkflowError as error:
            assert isinstance(error.cause, CancelledError)
            found.append("cancelled")
        return found


@program(workflows=[Echo, Parent])
async def children(home: Home) -> None:
    found = await home.client.execute_workflow(Parent.run, **home.how())
    assert found == [f"a from {home.name}", f"b from {home.name}", "Echo Sad", "cancelled"]


@workflow.defn
class Waiter:
    def __init__(self) -> None:
        self.word = ""

    @workflow.run
    async def run(self) -> str:
        await workflow.wait_condition(lambda: bool(self.word))
        return self.word

    @workflow.signal
    def say(self, word: str) -> None:
        self.word = word


@workflow.defn
class Neighbour:
    """Signals one workflow and cancels another, which it did not start."""

    @workflow.run
    async def run(self, other: str, victim: str) -> None:
        await workflow.get_external_workflow_handle_for(Waiter.run, other).signal(Waiter.say, "hi")
        await workflow.get_external_workflow_handle(victim).cancel()


@program(workflows=[Waiter, Neighbour])
async def other_workflows_are_signalled_and_cancelled(home: Home) -> None:
    other = await home.client.start_workflow(Waiter.run, **home.how("-other"))
    victim = await home.client.start_workflow(Waiter.run, **home.how("-victim"))
    await home.client.execute_workflow(Neighbour.run, args=[other.id, victim.id], **home.how())
    assert await other.result() == "hi"
    with pytest.raises(WorkflowFailureError) as failed:
        await victim.result()
    assert isinstance(failed.value.cause, CancelledError)


@workflow.defn
class Launcher:
    @workflow.run
    async def run(self) -> str:
        child = await workflow.start_child_workflow(
            Waiter.run,
            id=f"{workflow.info().workflow_id}-survivor",
            parent_close_policy=workflow.ParentClosePolicy.ABANDON,
        )
        return child.id


@program(workflows=[Launcher])
async def a_child_that_outlives_its_parent(home: Home) -> None:
    child = await home.client.execute_workflow(Launcher.run, **home.how())
    handle = home.client.get_workflow_handle_for(Waiter.run, child)
    await handle.signal(Waiter.say, "still here")
    assert await handle.result() == "still here"


@workflow.defn
class Loop:
    @workflow.run
    async def run(self, left: int) -> tuple[int, bool]:
        info = workflow.info()
        if left:
            await workflow.sleep(0.01)
            workflow.continue_as_new(left - 1)
        assert info.continued_run_id
        assert not info.is_continue_as_new_suggested()
        return info.get_current_history_length(), info.first_execution_run_id != info.run_id


@program(workflows=[Loop])
async def a_run_that_continues_as_new(home: Home) -> None:
    handle = await home.client.start_workflow(Loop.run, 3, **home.how())
    length, has_changed = await handle.result()
    assert length < 10
    assert has_changed
    with pytest.raises(WorkflowContinuedAsNewError) as continued:
        await handle.result(follow_runs=False)
    assert continued.value.new_execution_run_id not in (None, handle.result_run_id)


@workflow.defn
class Clocks:
    @workflow.run
    async def run(self) -> dict[str, bool]:
        began, before = workflow.now(), workflow.time_ns()
        await asyncio.sleep(0.02)
        winner, losers = await workflow.wait(
            [asyncio.create_task(workflow.sleep(0.02)), asyncio.create_task(asyncio.sleep(3600))],
            return_when=asyncio.FIRST_COMPLETED,
        )
        for each in losers:
            each.cancel()
        timed_out = False
        try:
            async with asyncio.timeout(0.02):
                await asyncio.Event().wait()
        except TimeoutError:
            timed_out = True
        return {
            "advanced": workflow.now() >= began + timedelta(milliseconds=60),
            "in nanoseconds": workflow.time_ns() > before,
            "one won": len(winner) == 1,
            "timed out": timed_out,
        }


@program(workflows=[Clocks])
async def timers_and_their_races(home: Home) -> None:
    found = await home.client.execute_workflow(Clocks.run, **home.how())
    assert all(found.values()), found


@activity.defn
async def work(number: int) -> int:
    return number * number


@workflow.defn
class Asyncio:
    """What asyncio has: task groups, queues, semaphores, and results in the order in which they come."""

    @workflow.run
    async def run(self) -> dict[str, list[int]]:
        gate, queue = asyncio.Semaphore(2), asyncio.Queue[int]()

        async def one(number: int) -> None:
            async with gate:
                result = await workflow.execute_activity(work, number, start_to_close_timeout=LONG)
                await queue.put(result)

        async with asyncio.TaskGroup() as group:
            for number in range(4):
                group.create_task(one(number))
        calls = [workflow.start_activity(work, n, start_to_close_timeout=LONG) for n in (5, 6)]
        first = [await each for each in workflow.as_completed(calls)]
        return {"queue": sorted(queue.get_nowait() for _ in range(4)), "first": sorted(first)}


@program(workflows=[Asyncio], activities=[work])
async def asyncio_in_workflow_code(home: Home) -> None:
    found = await home.client.execute_workflow(Asyncio.run, **home.how())
    assert found == {"queue": [0, 1, 4, 9], "first": [25, 36]}


@workflow.defn
class Chance:
    def __init__(self) -> None:
        self.is_over = False

    @workflow.run
    async def run(self) -> list[str]:
        drawn = [str(workflow.random().random()), str(workflow.uuid4()), str(workflow.uuid7())]
        drawn += [str(workflow.new_random(name).randint(0, 9**9)) for name in ("a", "b")]
        await workflow.wait_condition(lambda: self.is_over)
        await workflow.sleep(0.01)
        return drawn

    @workflow.signal
    def end(self) -> None:
        self.is_over = True


@program(workflows=[Chance])
async def chance_is_the_same_in_a_replay(home: Home) -> None:
    handle = await home.client.start_workflow(Chance.run, **home.how())
    await handle.signal(Chance.end)
    drawn = await handle.result()
    assert len(set(drawn)) == 5
    replayed = Replayer(workflows=[Chance]).replay(await handle.fetch_history())
    assert replayed.failure is None


@workflow.defn
class Patched:
    @workflow.run
    async def run(self) -> list[bool]:
        workflow.deprecate_patch("an old change")
        first = workflow.patched("a change")
        await workflow.sleep(0.01)
        return [first, workflow.patched("a change")]


@program(workflows=[Patched])
async def a_patched_workflow(home: Home) -> None:
    assert await home.client.execute_workflow(Patched.run, **home.how()) == [True, True]


@workflow.defn
class Sleeper:
    """Sends a reminder every thirty days until it is told that all is done."""

    def __init__(self) -> None:
        self.is_complete = False

    @workflow.run
    async def run(self) -> int:
        reminders = 0
        while not self.is_complete:
            await workflow.execute_activity(work, reminders, start_to_close_timeout=LONG)
            reminders += 1
            rest = asyncio.create_task(asyncio.sleep(timedelta(days=30).total_seconds()))
            done = asyncio.create_task(workflow.wait_condition(lambda: self.is_complete))
            await workflow.wait([rest, done], return_when=asyncio.FIRST_COMPLETED)
        return reminders

    @workflow.signal
    def complete(self) -> None:
        self.is_complete = True


@program(workflows=[Sleeper])
async def sleeping_for_days(home: Home) -> None:
    handle = await home.client.start_workflow(Sleeper.run, **home.how())
    await handle.signal(Sleeper.complete)
    assert await handle.result() == 1


CITY, VISITS = SearchAttributeKey.for_keyword("City"), SearchAttributeKey.for_int("Visits")
SEEN, TAGS = SearchAttributeKey.for_datetime("SeenAt"), SearchAttributeKey.for_keyword_list("Tags")
ATTRIBUTES = {"City": "keyword", "Visits": "int", "SeenAt": "datetime", "Tags": "keyword_list"}


@workflow.defn
class Searchable:
    @workflow.run
    async def run(self) -> list[str]:
        info = workflow.info()
        before = info.typed_search_attributes[CITY]
        workflow.upsert_search_attributes(
            [CITY.value_set("Graz"), SEEN.value_set(datetime(2026, 1, 2, tzinfo=UTC)), TAGS.value_unset()]
        )
        after = info.typed_search_attributes
        assert after.get(TAGS) is None
        assert after.get(SEEN) == datetime(2026, 1, 2, tzinfo=UTC)
        with pytest.raises(TypeError, match="no int"):
            after.get(SearchAttributeKey.for_int("City"))
        return [before, after[CITY], str(after[VISITS])]


@program(workflows=[Searchable])
async def search_attributes_with_types(home: Home) -> None:
    for name, kind in ATTRIBUTES.items():
        await home.client.register_search_attribute(name, kind)
    given = TypedSearchAttributes([SearchAttributePair(CITY, "Wien"), SearchAttributePair(VISITS, 1)])
    given = given.updated(SearchAttributePair(TAGS, ["a", "b"]), SearchAttributePair(VISITS, 2))
    handle = await home.client.start_workflow(Searchable.run, search_attributes=given, **home.how())
    assert await handle.result() == ["Wien", "Graz", "2"]
    query = (
        f"City = 'Graz' AND WorkflowId = '{home.name}' AND Visits = 2 AND RunId = '{handle.result_run_id}'"
    )
    found = [each async for each in home.client.list_workflows(query)]
    assert [each.typed_search_attributes.get(VISITS) for each in found] == [2]
    assert (await home.client.count_workflows(query)).count == 1


@workflow.defn
class Memorable:
    @workflow.run
    async def run(self) -> dict[str, object]:
        first = workflow.memo_value("colour", type_hint=str)
        workflow.upsert_memo({"colour": "blue", "size": 3})
        workflow.set_current_details("**painting**")
        assert workflow.get_current_details() == "**painting**"
        return {"first": first, **workflow.memo(), "none": workflow.memo_value("none", "default")}


@program(workflows=[Memorable])
async def a_memo_and_details(home: Home) -> None:
    handle = await home.client.start_workflow(Memorable.run, memo={"colour": "red"}, **home.how())
    assert await handle.result() == {"first": "red", "colour": "blue", "size": 3, "none": "default"}
    assert (await handle.describe()).memo == {"colour": "blue", "size": 3}
    assert await handle.current_details() == "**painting**"


@workflow.defn
class KnowsItself:
    @workflow.run
    async def run(self) -> list[object]:
        info = workflow.info()
        assert workflow.in_workflow()
        assert workflow.instance() is self
        assert info.first_execution_run_id == info.original_execution_run_id == info.run_id
        assert info.workflow_start_time <= workflow.now()
        return [info.workflow_id, info.workflow_type, info.attempt, info.parent, info.continued_run_id]


@program(workflows=[KnowsItself])
async def what_a_run_knows_of_itself(home: Home) -> None:
    found = await home.client.execute_workflow(KnowsItself.run, **home.how())
    assert found == [home.name, "KnowsItself", 1, None, None]


@workflow.defn(dynamic=True)
class AnyWorkflow:
    @workflow.run
    async def run(self, args: Sequence[activity.RawValue]) -> str:
        name = workflow.payload_converter().from_payload(args[0].payload, str)
        return f"{workflow.info().workflow_type} of {name}"


@program(workflows=[AnyWorkflow])
async def a_dynamic_workflow(home: Home) -> None:
    found = await home.client.execute_workflow("Unheard", "me", result_type=str, **home.how())
    assert found == "Unheard of me"


@workflow.defn(failure_exception_types=[ValueError])
class Strict:
    @workflow.run
    async def run(self, how: str) -> None:
        error = ValueError("a wrong value")
        assert workflow.is_failure_exception(error)
        if how == "value":
            raise error
        if how == "application":
            raise ApplicationError("refused", 1, 2, type="Refused") from error
        await asyncio.Event().wait()


@program(workflows=[Strict])
async def how_runs_fail_and_end(home: Home) -> None:
    client = home.client
    for how, name in (("value", "ValueError"), ("application", "Refused")):
        with pytest.raises(WorkflowFailureError) as failed:
            await client.execute_workflow(Strict.run, how, **home.how(f"-{how}"))
        assert isinstance(failed.value.cause, ApplicationError)
        assert failed.value.cause.type == name
    handle = await client.start_workflow(Strict.run, "wait", **home.how("-wait"))
    with pytest.raises(WorkflowAlreadyStartedError):
        await client.start_workflow(Strict.run, "wait", **home.how("-wait"))
    await handle.terminate("enough")
    with pytest.raises(WorkflowFailureError) as failed:
        await handle.result()
    assert isinstance(failed.value.cause, TerminatedError)
    assert (await handle.describe()).status is WorkflowExecutionStatus.TERMINATED
    with pytest.raises(WorkflowAlreadyStartedError):
        await client.start_workflow(
            Strict.run, "wait", id_reuse_policy=WorkflowIDReusePolicy.REJECT_DUPLICATE, **home.how("-wait")
        )


@workflow.defn
class Impatient:
    @workflow.run
    async def run(self) -> str:
        workflow.logger.warning("attempts: %s", workflow.info().attempt)
        await workflow.sleep(0.01)
        return "woken"


@program(workflows=[Impatient])
async def a_delayed_start(home: Home) -> None:
    handle = await home.client.start_workflow(Impatient.run, start_delay=SOON, **home.how())
    assert await handle.result() == "woken"
    history = await handle.fetch_history()
    assert history.events[0]["event_type"] == "WorkflowStarted"
    assert [each["event_type"] async for each in handle.fetch_history_events()][-1] == "WorkflowCompleted"
