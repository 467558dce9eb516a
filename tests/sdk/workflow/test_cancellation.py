"""Cancellation in workflow code: of activities and children by their handles, of tasks, and of the run itself."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from penstock.sdk import workflow
from penstock.sdk.failures import ActivityError, ApplicationError, CancelledError, ChildWorkflowError
from penstock.sdk.replay.errors import NonDeterminismError
from tests.sdk.replay.histories_by_hand import Json, Story, a_run, kept_and_replayed, result, types, value

SLOW = ("ActivityScheduled", {"sequence": 1, "activity_type": "slow"})
CHILD = ("ChildWorkflowScheduled", {"sequence": 1, "child_workflow_type": "Child"})
CLOCK = ("TimerScheduled", {"sequence": 2, "delay_ms": 1000})


def named(error: BaseException) -> list[Any]:
    """An error and its causes as a list."""
    return [type(error).__module__.split(".")[0], type(error).__name__, type(error.__cause__).__name__]


ACTIVITY_CANCELLED = ["penstock", "ActivityError", "CancelledError"]
CHILD_CANCELLED = ["penstock", "ChildWorkflowError", "CancelledError", "Child", "c"]
BY_ASYNCIO = ["asyncio", "CancelledError", "NoneType"]


def start(how: str) -> Any:
    if how == "local":
        return workflow.start_local_activity("slow")
    return workflow.start_activity("slow", cancellation_type=workflow.ActivityCancellationType(how))


@workflow.defn
class CancelsItsActivity:
    """Starts an activity and cancels it by its handle when a timer fires."""

    @workflow.run
    async def run(self, how: str, catches: bool) -> list[Any]:
        work = start(how)
        await asyncio.sleep(1)
        assert work.cancel() is True
        try:
            await work
        except BaseException as error:
            if not catches:
                raise
            return named(error)
        return ["completed"]


def _timer_fired(how: str = "try_cancel", catches: bool = True) -> Story:
    return Story(how, catches).decided(SLOW, CLOCK).then("TimerFired", sequence=2)


@pytest.mark.parametrize(("how", "asked"), [("try_cancel", ["cancel_step"]), ("abandon", [])])
def test_an_activity_that_is_cancelled_by_its_handle_raises_an_activity_error(
    how: str, asked: list[str]
) -> None:
    for activation in kept_and_replayed(CancelsItsActivity, (1,), _timer_fired(how)):
        assert types(activation) == [*asked, "complete_workflow"]
        assert result(activation) == ACTIVITY_CANCELLED


def test_an_activity_that_is_cancelled_and_not_caught_fails_the_run_and_is_no_loop() -> None:
    for activation in kept_and_replayed(CancelsItsActivity, (1,), _timer_fired(catches=False)):
        assert types(activation) == ["cancel_step", "fail_workflow"]
        failure = activation.commands[-1]["exception"]
        assert (failure["kind"], failure["cause"]["kind"]) == ("activity", "cancelled")
        assert failure["activity_id"] == "r-1-a1"


@pytest.mark.parametrize(
    ("ended", "told"),
    [
        ("ActivityCancelled", ACTIVITY_CANCELLED),
        ("ActivityFailed", ["penstock", "ActivityError", "ApplicationError"]),
        ("ActivityCompleted", ["completed"]),
    ],
)
def test_an_activity_whose_cancellation_is_waited_for_tells_how_it_ended(ended: str, told: list[str]) -> None:
    story = _timer_fired("wait_cancellation_completed")
    kept = a_run(CancelsItsActivity)
    kept.activate(story.events[:1])
    asked = kept.activate(story.events[1:])
    assert types(asked) == ["cancel_step"]
    assert (asked.commands[0]["step_sequence"], asked.commands[0]["wait"]) == (1, True)
    story.decided(("StepCancelRequested", {"sequence": 1, "step_sequence": 1, "wait": True}))
    story.then(ended, sequence=1, activity_type="slow", result=value(1), message="no")
    for activation in (kept.activate(story.events[5:]), a_run(CancelsItsActivity).activate(story.events)):
        assert result(activation) == told


def test_code_that_waits_for_a_cancellation_that_its_history_did_not_wait_for_is_found_out() -> None:
    story = _timer_fired("wait_cancellation_completed")
    story.decided(("StepCancelRequested", {"sequence": 1, "step_sequence": 1}))
    with pytest.raises(NonDeterminismError, match="StepCancelRequested"):
        a_run(CancelsItsActivity).activate(story.events)


@workflow.defn
class CancelsLocal:
    @workflow.run
    async def run(self) -> list[Any]:
        work = workflow.start_local_activity("slow")
        work.cancel()
        try:
            await work
        except BaseException as error:
            return named(error)
        return []


def test_a_local_activity_that_is_cancelled_by_its_handle_raises_an_activity_error() -> None:
    assert result(a_run(CancelsLocal).activate(Story().events)) == ACTIVITY_CANCELLED


@workflow.defn
class CancelsItsChild:
    @workflow.run
    async def run(self, how: str) -> list[Any]:
        child = await workflow.start_child_workflow(
            "Child", id="c", cancellation_type=workflow.ChildWorkflowCancellationType(how)
        )
        await asyncio.sleep(1)
        child.cancel()
        try:
            await child
        except ChildWorkflowError as error:
            return [*named(error), error.workflow_type, error.workflow_id]
        return []


@pytest.mark.parametrize(("how", "asked"), [("try_cancel", ["cancel_step"]), ("abandon", [])])
def test_a_child_that_is_cancelled_by_its_handle_raises_a_child_workflow_error(
    how: str, asked: list[str]
) -> None:
    story = Story(how).decided(CHILD, CLOCK).then("TimerFired", sequence=2)
    for activation in kept_and_replayed(CancelsItsChild, (1,), story):
        assert types(activation) == [*asked, "complete_workflow"]
        assert result(activation) == CHILD_CANCELLED


REQUEST = ("ExternalRequestInitiated", {"sequence": 3, "kind": "cancel", "workflow_id": "c"})
ENDED: Json = {"sequence": 1, "child_workflow_type": "Child", "child_workflow_instance_id": "c"}


@pytest.mark.parametrize(
    ("how", "goes_on_with"),
    [
        ("wait_cancellation_requested", ("ExternalRequestDelivered", {"sequence": 3})),
        ("wait_cancellation_completed", ("ChildRunCancelled", ENDED)),
    ],
)
def test_code_that_waits_for_the_cancellation_of_a_child_goes_on_with_that_event(
    how: str, goes_on_with: tuple[str, Json]
) -> None:
    story = Story(how).decided(CHILD, CLOCK).then("TimerFired", sequence=2)
    assert types(a_run(CancelsItsChild).activate(story.events)) == ["cancel_external_workflow"]
    story.decided(REQUEST)
    if how == "wait_cancellation_completed":
        story.then("ExternalRequestDelivered", sequence=3)
        assert types(a_run(CancelsItsChild).activate(story.events)) == []
    event_type, payload = goes_on_with
    story.then(event_type, **payload)
    assert result(a_run(CancelsItsChild).activate(story.events)) == CHILD_CANCELLED


# ── tasks ───────────────────────────────────────────────────────────────────────────────────────────────────


@workflow.defn
class Around:
    """Lets asyncio cancel an activity in one of several ways."""

    @workflow.run
    async def run(self, how: str) -> Any:
        return await getattr(self, how)()

    async def wait_for_a_coroutine(self) -> str:
        try:
            await asyncio.wait_for(workflow.execute_activity("slow"), 1)
        except TimeoutError:
            return "timed out"
        return "in time"

    async def wait_for_a_handle(self) -> str:
        try:
            await asyncio.wait_for(workflow.start_activity("slow"), 1)
        except TimeoutError:
            return "timed out"
        return "in time"

    async def timeout(self) -> str:
        try:
            async with asyncio.timeout(1):
                await workflow.start_activity("slow")
        except TimeoutError:
            return "timed out"
        return "in time"

    async def task(self) -> list[Any]:
        work = asyncio.create_task(workflow.execute_activity("slow"))
        await asyncio.sleep(1)
        work.cancel()
        try:
            await work
        except BaseException as error:
            return named(error)
        return []

    async def gather(self) -> list[Any]:
        group = asyncio.gather(workflow.start_activity("slow"), return_exceptions=False)
        await asyncio.sleep(1)
        group.cancel()
        try:
            await group
        except BaseException as error:
            return named(error)
        return []

    async def group(self) -> str:
        async def fail() -> None:
            await asyncio.sleep(1)
            raise ApplicationError("enough", type="Enough")

        try:
            async with asyncio.TaskGroup() as group:
                work = group.create_task(workflow.execute_activity("slow"))
                group.create_task(fail())
        except* ApplicationError:
            pass
        return "cancelled" if work.cancelled() else "not cancelled"


@pytest.mark.parametrize(
    ("how", "told"),
    [
        ("wait_for_a_coroutine", "timed out"),
        ("wait_for_a_handle", "timed out"),
        ("timeout", "timed out"),
        ("task", BY_ASYNCIO),
        ("gather", BY_ASYNCIO),
        ("group", "cancelled"),
    ],
)
def test_what_asyncio_cancels_ends_as_asyncio_says(how: str, told: Any) -> None:
    story, kept = Story(how), a_run(Around)
    asked = kept.activate(story.events)
    kinds = [(command["type"], command.get("activity_type")) for command in asked.commands]
    assert sorted(kinds, key=str) == [("schedule_activity", "slow"), ("start_timer", None)]
    slow = kinds.index(("schedule_activity", "slow")) + 1
    events = {slow: ("ActivityScheduled", {"sequence": slow, "activity_type": "slow"})}
    events[3 - slow] = ("TimerScheduled", {"sequence": 3 - slow, "delay_ms": 1000})
    story.decided(events[1], events[2]).then("TimerFired", sequence=3 - slow)
    for activation in (kept.activate(story.events[1:]), a_run(Around).activate(story.events)):
        assert types(activation) == ["cancel_step", "complete_workflow"]
        assert activation.commands[0]["step_sequence"] == slow
        assert result(activation) == told


# ── the run ─────────────────────────────────────────────────────────────────────────────────────────────────


@workflow.defn
class Cancelled:
    """Is cancelled while it awaits an activity, in one of several ways, and cleans up."""

    @workflow.run
    async def run(self, how: str) -> Any:
        try:
            return await getattr(self, how)()
        except asyncio.CancelledError:
            await workflow.execute_activity("clean")
            raise

    async def plain(self) -> None:
        await workflow.execute_activity("slow")

    async def handle(self) -> None:
        await workflow.start_activity("slow")

    async def gathered(self) -> None:
        await asyncio.gather(workflow.start_activity("slow"))

    async def grouped(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(workflow.execute_activity("slow"))

    async def limited(self) -> None:
        async with asyncio.timeout(None):
            await workflow.execute_activity("slow")

    async def shielded(self) -> None:
        await asyncio.shield(workflow.start_activity("slow"))


@pytest.mark.parametrize("how", ["plain", "handle", "gathered", "grouped", "limited", "shielded"])
def test_cancelling_the_workflow_raises_asyncios_error_where_it_awaits(how: str) -> None:
    story = Story(how).decided(SLOW).then("CancelRequested", reason="enough")
    asked = [] if how == "shielded" else ["cancel_step"]
    for activation in kept_and_replayed(Cancelled, (1,), story):
        assert types(activation) == [*asked, "schedule_activity"]
    given_up = [("StepCancelRequested", {"sequence": 1, "step_sequence": 1})] if asked else []
    story.decided(*given_up, ("ActivityScheduled", {"sequence": 2, "activity_type": "clean"}))
    story.then("ActivityCompleted", sequence=2, activity_type="clean", result=value(None))
    for activation in kept_and_replayed(Cancelled, (1, 4), story):
        assert activation.commands == [{"type": "cancel_workflow", "reason": "enough"}]


@workflow.defn
class WaitsForItsActivity:
    @workflow.run
    async def run(self) -> str:
        how = workflow.ActivityCancellationType.WAIT_CANCELLATION_COMPLETED
        await workflow.execute_activity("slow", cancellation_type=how)
        return "completed"


def test_a_cancelled_workflow_waits_for_an_activity_whose_cancellation_is_to_be_completed() -> None:
    story = Story().decided(SLOW).then("CancelRequested", reason="enough")
    for activation in kept_and_replayed(WaitsForItsActivity, (1,), story):
        assert [(each["type"], each["wait"]) for each in activation.commands] == [("cancel_step", True)]
    story.decided(("StepCancelRequested", {"sequence": 1, "step_sequence": 1, "wait": True}))
    story.then("ActivityCancelled", sequence=1, activity_type="slow")
    for activation in kept_and_replayed(WaitsForItsActivity, (1, 4), story):
        assert types(activation) == ["cancel_workflow"]


@workflow.defn
class CancelsInItsClear:
    """Cancels its activities itself when it is cancelled, and does not catch their errors."""

    @workflow.run
    async def run(self, grouped: bool) -> None:
        work = workflow.start_activity("slow")
        try:
            await workflow.wait_condition(lambda: False)
        finally:
            work.cancel()
            if grouped:
                async with asyncio.TaskGroup() as group:
                    group.create_task(self._awaited(work))
            await work

    async def _awaited(self, work: Any) -> None:
        await work


@pytest.mark.parametrize("grouped", [False, True])
def test_the_error_of_a_cancelled_activity_that_leaves_a_cancelled_run_ends_it_as_cancelled(
    grouped: bool,
) -> None:
    story = Story(grouped).decided(SLOW).then("CancelRequested", reason="enough")
    for activation in kept_and_replayed(CancelsInItsClear, (1,), story):
        assert types(activation) == ["cancel_step", "cancel_workflow"]


@workflow.defn
class EndsItself:
    @workflow.run
    async def run(self, how: str) -> None:
        if how == "raises":
            raise asyncio.CancelledError
        if how == "task":
            task = asyncio.current_task()
            assert task is not None
            task.cancel()
            await asyncio.sleep(1)
        work = asyncio.create_task(workflow.execute_activity("slow"))
        await asyncio.sleep(0)
        work.cancel()
        await work


@pytest.mark.parametrize("how", ["raises", "task", "awaits"])
def test_a_run_that_cancels_itself_ends_as_cancelled_and_is_no_loop(how: str) -> None:
    ended = a_run(EndsItself).activate(Story(how).events)
    assert ended.commands == [{"type": "cancel_workflow", "reason": "cancelled by its own code"}]


@workflow.defn
class CleansUp:
    @workflow.run
    async def run(self, swallows: bool) -> str:
        try:
            await workflow.execute_activity("slow")
        except asyncio.CancelledError:
            if not swallows:
                raise
        finally:
            await workflow.execute_activity("clean")
        return "went on"


@pytest.mark.parametrize("swallows", [False, True])
def test_a_cancel_that_comes_with_the_start_is_raised_at_the_first_await(swallows: bool) -> None:
    story = Story(swallows).then("CancelRequested", reason="too late")
    asked = a_run(CleansUp).activate(story.events)
    assert [command["activity_type"] for command in asked.commands] == ["clean"]
    story.decided(("ActivityScheduled", {"sequence": 1, "activity_type": "clean"}))
    story.then("ActivityCompleted", sequence=1, activity_type="clean", result=value(None))
    for activation in kept_and_replayed(CleansUp, (2,), story):
        assert types(activation) == ["complete_workflow" if swallows else "cancel_workflow"]


# ── groups of errors ────────────────────────────────────────────────────────────────────────────────────────


@workflow.defn
class Groups:
    @workflow.run
    async def run(self, how: str) -> None:
        try:
            async with asyncio.TaskGroup() as group:
                for each in how.split():
                    group.create_task(self._fail(each))
        except* KeyError:
            if how == "rewrapped":
                raise ApplicationError("rewrapped", type="rewrapped") from None
            raise

    async def _fail(self, how: str) -> None:
        if how in ("rewrapped", "bug"):
            raise KeyError(how)
        if how == "nested":
            async with asyncio.TaskGroup() as group:
                group.create_task(self._fail("inner"))
        raise ApplicationError(how, type=how)


@pytest.mark.parametrize(
    ("how", "kind"),
    [("one", "one"), ("nested", "inner"), ("rewrapped", "rewrapped"), ("one two", "ExceptionGroup")],
)
def test_a_task_group_that_fails_with_failures_fails_the_run_with_them(how: str, kind: str) -> None:
    ended = a_run(Groups).activate(Story(how).events)
    assert types(ended) == ["fail_workflow"]
    assert ended.commands[0]["exception_type"] == kind


@pytest.mark.parametrize("how", ["bug", "one bug"])
def test_a_task_group_in_which_a_bug_shows_fails_the_workflow_task(how: str) -> None:
    with pytest.raises(ExceptionGroup):
        a_run(Groups).activate(Story(how).events)


def test_the_errors_of_cancellation_are_ours() -> None:
    assert issubclass(CancelledError, Exception)
    assert not issubclass(ActivityError, asyncio.CancelledError)
