"""Replay event by event: the code issues the same commands and observes the same values, cached or replayed."""

from __future__ import annotations

import asyncio
import sys
import threading
import time
import zoneinfo
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from decimal import Decimal, getcontext
from pathlib import Path

import pytest

from penstock.sdk import workflow
from penstock.sdk.activities.thread_interrupt import ThreadInterrupt
from penstock.sdk.failures import ActivityError, CancelledError
from penstock.sdk.replay.errors import (
    DeterminismViolationError,
    NonDeterminismError,
    ReadOnlyError,
    TaskStuckError,
    WorkflowTaskError,
)
from tests.sdk.replay.histories_by_hand import (
    Story,
    a_run,
    arguments,
    kept_and_replayed,
    result,
    types,
    value,
)


@workflow.defn
class TwoLocal:
    @workflow.run
    async def run(self) -> list[str]:
        first = workflow.start_local_activity("charge", "alice", result_type=str)
        second = workflow.start_local_activity("charge", "bob", result_type=str)
        return [await first, await second]


def test_local_activities_of_one_type_keep_their_own_results_whoever_ends_first():
    run = a_run(TwoLocal)
    asked = run.activate(Story().events)
    alice, bob = (each.request_id for each in asked.local)
    run.resolve_local(bob, {"outcome": "completed", "result": value("for bob")})
    ended = run.resolve_local(alice, {"outcome": "completed", "result": value("for alice")})
    assert result(ended) == ["for alice", "for bob"]
    numbers = [each["local_number"] for each in ended.commands[:2]]
    assert numbers == [2, 1]
    local = {"activity_type": "charge", "execution_mode": "local"}
    story = Story().decided(
        ("ActivityScheduled", local | {"sequence": 1, "local_number": 2}),
        ("ActivityCompleted", local | {"sequence": 1, "local_number": 2, "result": value("for bob")}),
        ("ActivityScheduled", local | {"sequence": 2, "local_number": 1}),
        ("ActivityCompleted", local | {"sequence": 2, "local_number": 1, "result": value("for alice")}),
        ("WorkflowCompleted", {"output": value(["for alice", "for bob"])}),
    )
    a_run(TwoLocal).replay(story.events)


@workflow.defn
class TriesLocal:
    @workflow.run
    async def run(self) -> list[str | None]:
        try:
            return [await workflow.execute_local_activity("charge")]
        except ActivityError as error:
            return [type(error.cause).__name__, str(error), error.activity_id]


@pytest.mark.parametrize(
    ("outcome", "event"),
    [("failed", "ActivityFailed"), ("timed_out", "ActivityTimedOut"), ("cancelled", "ActivityCancelled")],
)
def test_the_error_of_a_local_activity_is_the_same_when_it_is_replayed(outcome, event):
    told = {"message": "no", "exception_type": "Refused", "non_retryable": True}
    told |= {"timeout_kind": "start_to_close"} if outcome == "timed_out" else {}
    run = a_run(TriesLocal)
    asked = run.activate(Story().events)
    live = run.resolve_local(asked.local[0].request_id, {"outcome": outcome} | told)
    local = {"activity_type": "charge", "execution_mode": "local", "sequence": 1, "local_number": 1}
    story = Story().decided(
        ("ActivityScheduled", local),
        (event, local | told | {"activity_execution_id": "r-1-a1", "failure_category": "activity"}),
        ("TimerScheduled", {"sequence": 2}),
    )
    with pytest.raises(NonDeterminismError, match="complete_workflow"):
        a_run(TriesLocal).replay(story.events)
    story.events[-1] |= {"event_type": "WorkflowCompleted", "payload": {"output": value(result(live))}}
    a_run(TriesLocal).replay(story.events)


@workflow.defn
class Lengths:
    @workflow.run
    async def run(self) -> list[int]:
        seen = [workflow.info().get_current_history_length()]
        for _ in range(2):
            await workflow.execute_activity("act")
            seen.append(workflow.info().get_current_history_length())
        return seen


def test_the_length_of_the_history_is_the_same_in_every_replay():
    story = Story()
    act = {"activity_type": "act"}
    story.decided(("ActivityScheduled", act | {"sequence": 1})).then("ActivityCompleted", **act, sequence=1)
    story.decided(("ActivityScheduled", act | {"sequence": 2})).then("ActivityCompleted", **act, sequence=2)
    kept, replayed = kept_and_replayed(Lengths, (1, 4), story)
    assert result(kept) == result(replayed) == [1, 4, 7]


@workflow.defn
class Adds:
    def __init__(self) -> None:
        self.sum = 0

    @workflow.run
    async def run(self) -> int:
        await workflow.wait_condition(lambda: self.sum >= 5)
        return self.sum

    @workflow.signal
    def add(self, number: int) -> None:
        self.sum += number

    @workflow.update
    def odd(self) -> object:
        return object()

    @workflow.query
    def dice(self) -> str:
        return str(workflow.uuid4())

    @workflow.query
    def task(self) -> None:
        self.sum = len([asyncio.ensure_future(asyncio.sleep(1))])


def test_a_signal_that_the_handler_cannot_take_is_dropped_and_the_run_goes_on():
    story = Story().decided()
    story.then("SignalReceived", signal_name="add", arguments=arguments("many"))
    story.then("SignalReceived", signal_name="add", arguments=arguments(1, 2, 3))
    story.then("SignalReceived", signal_name="add", arguments=arguments(5))
    assert result(a_run(Adds).activate(story.events)) == 5


def test_an_update_whose_result_cannot_be_sent_is_answered_with_that():
    story = Story().decided()
    story.then("UpdateAccepted", update_id="u-1", update_name="odd", arguments=arguments())
    answered = a_run(Adds).activate(story.events)
    assert types(answered) == ["fail_update"]
    assert "cannot be sent" in answered.commands[0]["message"]


@workflow.defn
class LateEar:
    @workflow.run
    async def run(self) -> None:
        await workflow.execute_activity("act", start_to_close_timeout=timedelta(seconds=9))
        workflow.set_update_handler("double", lambda number: 2 * number)
        await workflow.wait_condition(lambda: False)


@pytest.mark.parametrize(("name", "answer"), [("double", "complete_update"), ("halve", "fail_update")])
def test_an_update_that_comes_with_what_lets_the_code_set_its_handler_is_told_to_it(name, answer):
    act = {"activity_type": "act", "sequence": 1}
    story = Story().decided(("ActivityScheduled", act)).then("ActivityCompleted", **act)
    story.then("UpdateAccepted", update_id="u-1", update_name=name, arguments=arguments(21))
    kept, replayed = kept_and_replayed(LateEar, (1,), story)
    assert types(kept) == types(replayed) == [answer]


@pytest.mark.parametrize("name", ["dice", "task"])
def test_a_query_changes_nothing_not_even_the_dice(name):
    run = a_run(Adds)
    run.activate(Story().events)
    with pytest.raises(ReadOnlyError):
        run.query(name, arguments())


@workflow.defn
class Leaves:
    @workflow.run
    async def run(self, how: str) -> None:
        if how == "exit":
            sys.exit(3)
        async with asyncio.TaskGroup() as group:
            group.create_task(self.again())

    async def again(self) -> None:
        workflow.continue_as_new("exit")


def test_code_that_ends_its_process_ends_only_its_task():
    with pytest.raises(WorkflowTaskError, match="SystemExit"):
        a_run(Leaves).activate(Story("exit").events)


def test_continuing_as_new_inside_a_group_of_tasks_continues():
    assert types(a_run(Leaves).activate(Story("group").events)) == ["continue_as_new"]


@workflow.defn
class Reads:
    @workflow.run
    async def run(self) -> list[bool]:
        self.ends: list[bool] = []
        async for _ in self.numbers():
            break
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        await workflow.execute_activity("act")
        return self.ends

    async def numbers(self):
        try:
            yield 1
            yield 2
        finally:
            self.ends.append(workflow.in_workflow())


def test_a_generator_that_is_left_ends_within_the_workflow():
    story = Story().decided(("ActivityScheduled", {"sequence": 1, "activity_type": "act"}))
    story.then("ActivityCompleted", sequence=1, activity_type="act")
    kept, replayed = kept_and_replayed(Reads, (1,), story)
    assert result(kept) == result(replayed) == [True]


@workflow.defn
class Free:
    @workflow.run
    async def run(self) -> None:
        with workflow.unsafe.sandbox_unrestricted():
            time.time()
            await asyncio.sleep(60)


def test_a_run_that_is_forgotten_in_the_middle_of_unguarded_lines_leaves_its_worker_alone(tmp_path):
    run = a_run(Free)
    run.activate(Story().events)
    run.close()
    (tmp_path / "file").write_text("the guard is not on out here")


@workflow.defn
class Zones:
    @workflow.run
    async def run(self) -> str:
        import logging
        import statistics

        logging.getLogger("zones").info("what logs looks at a clock")
        moment = workflow.now().astimezone(zoneinfo.ZoneInfo("Asia/Kathmandu"))
        return f"{moment.utcoffset()} {statistics.mean([1, 3])}"


def test_time_zones_logs_and_imports_are_no_violation():
    assert result(a_run(Zones).activate(Story().events)) == "5:45:00 2"


@workflow.defn
class Bad:
    @workflow.run
    async def run(self, how: str) -> None:
        match how:
            case "clock":
                datetime.now(UTC)
            case "swallowed":
                try:
                    time.time()
                except Exception:
                    return
            case "file":
                Path("x").read_text()
            case "stuck":
                while True:
                    pass


@pytest.mark.parametrize(
    ("how", "told"), [("clock", "workflow.now"), ("swallowed", "workflow.time"), ("file", "an activity")]
)
def test_what_differs_from_one_replay_to_the_next_fails_and_names_the_way_out(how, told):
    with pytest.raises(DeterminismViolationError, match=told):
        a_run(Bad).activate(Story(how).events)


def test_code_that_does_not_give_way_is_ended_and_others_run_on():
    with pytest.raises(TaskStuckError, match=r"while True|pass"):
        a_run(Bad, stuck_after_s=0.2).activate(Story("stuck").events)
    assert result(a_run(Adds).activate(_with_five().events)) == 5


def _with_five() -> Story:
    story = Story().decided()
    return story.then("SignalReceived", signal_name="add", arguments=arguments(5))


@workflow.defn
class Late:
    @workflow.run
    async def run(self) -> str:
        try:
            async with asyncio.timeout(5):
                await workflow.execute_activity("slow", start_to_close_timeout=timedelta(seconds=60))
        except TimeoutError:
            return "late"
        return "in time"


def test_a_timer_that_fires_gives_up_what_it_limits():
    story = Story().decided(
        ("TimerScheduled", {"sequence": 1}), ("ActivityScheduled", {"sequence": 2, "activity_type": "slow"})
    )
    story.then("TimerFired", sequence=1)
    kept, replayed = kept_and_replayed(Late, (1,), story)
    assert types(kept) == types(replayed) == ["cancel_step", "complete_workflow"]
    assert kept.commands[0]["step_sequence"] == 2


def test_what_was_asked_and_given_up_in_one_breath_is_not_sent():
    story = Story().decided(
        ("TimerScheduled", {"sequence": 1}), ("ActivityScheduled", {"sequence": 2, "activity_type": "slow"})
    )
    story.then("ActivityCompleted", sequence=2, activity_type="slow", result=value(None))
    kept, replayed = kept_and_replayed(Late, (1,), story)
    assert types(kept) == types(replayed) == ["cancel_step", "complete_workflow"]


def test_code_that_asks_for_something_else_is_told_the_event_and_its_own_line():
    story = Story().decided(("ActivityScheduled", {"sequence": 1, "activity_type": "slow"}))
    with pytest.raises(
        NonDeterminismError, match=r"event 3 .*ActivityScheduled 'slow'.*start_timer.*Late.run"
    ):
        a_run(Late).activate(story.events)


@workflow.defn
class Mutex:
    def __init__(self) -> None:
        self.busy = False
        self.most = self.inside = 0

    @workflow.run
    async def run(self) -> int:
        await asyncio.gather(*(self.enter() for _ in range(3)))
        return self.most

    async def enter(self) -> None:
        await workflow.wait_condition(lambda: not self.busy)
        self.busy = True
        self.inside += 1
        self.most = max(self.most, self.inside)
        await asyncio.sleep(0)
        self.inside -= 1
        self.busy = False


def test_of_several_that_wait_for_a_condition_each_finds_it_as_the_one_before_left_it():
    assert result(a_run(Mutex).activate(Story().events)) == 1


@workflow.defn
class Stubborn:
    @workflow.run
    async def run(self) -> None:
        while True:
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                workflow.logger.info("not yet")


def test_code_that_does_not_let_itself_be_cancelled_is_forgotten_all_the_same():
    run = a_run(Stubborn, stuck_after_s=None)
    run.activate(Story().events)
    run.close()


def test_a_thread_that_was_interrupted_leaves_workflow_code_alone():
    interruption, inside = ThreadInterrupt(), threading.Event()

    def work() -> None:
        with interruption.shield():
            inside.set()
            interrupted.wait()

    interrupted = threading.Event()
    with ThreadPoolExecutor(1) as pool:
        done = pool.submit(interruption.run, work)
        inside.wait()
        interruption.interrupt()
        interrupted.set()
        with pytest.raises(CancelledError):
            done.result()
    assert result(a_run(Adds).activate(_with_five().events)) == 5


@workflow.defn
class Amounts:
    @workflow.run
    async def run(self, precision: int) -> str:
        if precision:
            getcontext().prec = precision
        return str(Decimal("12345.678") * Decimal("1.19"))


def test_what_one_run_sets_for_its_amounts_changes_no_other_run_and_not_its_worker():
    before = Decimal("12345.678") * Decimal("1.19")
    assert result(a_run(Amounts).activate(Story(4).events)) == "1.469E+4"
    assert result(a_run(Amounts).activate(Story(0).events)) == str(before) == "14691.35682"
    assert Decimal("12345.678") * Decimal("1.19") == before
