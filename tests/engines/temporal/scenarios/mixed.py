"""Scenarios that mix features: several failures at once, messages to runs that continue, handlers set at run time."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

from penstock import RetryPolicy, workflow
from penstock.client import Priority, WorkflowHandle, WorkflowIDReusePolicy
from penstock.failures import (
    ActivityError,
    ApplicationError,
    CancelledError,
    ChildWorkflowError,
    ConversionError,
    FailureError,
    QueryRejected,
    UpdateFailedError,
    UpdateRejectedError,
    WorkflowAlreadyStartedError,
    WorkflowClosedError,
    WorkflowNotFoundError,
)
from tests.engines.temporal.scenarios import acts
from tests.engines.temporal.scenarios.base import JOURNAL, World, scenario, told
from tests.engines.temporal.scenarios.cancelling import BEAT, Waits
from tests.engines.temporal.scenarios.family import Doubler, Failing, Listener, child_id
from tests.engines.temporal.scenarios.messages import Notebook, ended
from tests.engines.temporal.scenarios.runs import failure
from tests.support.patience import PATIENCE_S

ONCE = RetryPolicy(maximum_attempts=1)


# Failures


@scenario(
    expected=[
        4,
        [
            ("ActivityError", "broken", "maximum_attempts_reached"),
            ("ApplicationError", "ValueError", "a plain error", [], False),
        ],
        [("ActivityError", "slow", "maximum_attempts_reached"), ("TimeoutError", "start_to_close")],
        [("ApplicationError", "Child", "no", [7], True)],
        [
            ("ActivityError", "broken", "non_retryable_failure"),
            ("ApplicationError", "Purpose", "on purpose", [{"kind": "x"}], True),
        ],
    ]
)
@workflow.defn
class GatheredFailures:
    @workflow.run
    async def run(self) -> Any:
        late = timedelta(milliseconds=200)
        found = await asyncio.gather(
            workflow.execute_activity(acts.double, 2),
            workflow.execute_activity(acts.broken, "plain", retry_policy=ONCE),
            workflow.execute_activity(acts.slow, start_to_close_timeout=late, retry_policy=ONCE),
            workflow.execute_child_workflow(Failing, "no", id=child_id()),
            workflow.execute_local_activity(acts.broken, "x"),
            return_exceptions=True,
        )
        return [told(_known(each)) if isinstance(each, BaseException) else each for each in found]


def _known(error: BaseException) -> BaseException | None:
    """The part of an error that every engine knows: for a child, its cause."""
    return error.cause if isinstance(error, ChildWorkflowError) else error


@scenario(
    expected=[
        ("ApplicationError", "Wrapped", "wrapped", [{"k": 1}, 2], False),
        ("ActivityError", "raises_a", "maximum_attempts_reached"),
        ("ApplicationError", "RuntimeError", "outer", [], False),
        ("ApplicationError", "Middle", "middle", [{"a": [1]}], False),
        ("ApplicationError", "FileNotFoundError", "[Errno 2] inner", [], False),
    ]
)
@workflow.defn
class CausesOfAChild:
    @workflow.run
    async def run(self) -> Any:
        try:
            await workflow.execute_child_workflow(WrapsAnError, id=child_id())
        except ChildWorkflowError as error:
            return told(error.cause)


@workflow.defn
class WrapsAnError:
    @workflow.run
    async def run(self) -> None:
        try:
            await workflow.execute_activity(acts.raises_a, "chain", retry_policy=ONCE)
        except ActivityError as error:
            raise ApplicationError("wrapped", {"k": 1}, 2, type="Wrapped") from error


@scenario(
    expected=[
        ["CancelledError"],
        ["CancelledError"],
        [
            (
                "ApplicationError",
                "ExceptionGroup",
                "several (2 sub-exceptions): ValueError: one; KeyError: 'two'",
                [],
                False,
            ),
            ("ApplicationError", "ValueError", "one", [], False),
        ],
    ]
)
@workflow.defn
class UnusualErrorsOfActivities:
    """An activity that raises a cancellation of its own is cancelled, not failed."""

    @workflow.run
    async def run(self) -> Any:
        found: list[Any] = []
        for kind in ("cancellation", "our cancellation", "group"):
            try:
                await workflow.execute_activity(acts.raises_a, kind, retry_policy=ONCE)
            except ActivityError as error:
                is_cancelled = isinstance(error.cause, CancelledError)
                found.append([type(error.cause).__name__] if is_cancelled else told(error.cause))
        return found


@scenario(expected=[("TypeError", True), ("TypeError", True), ("ConversionError", True)])
@workflow.defn
class ArgumentsThatDoNotFit:
    @workflow.run
    async def run(self) -> Any:
        found: list[Any] = []
        for args in ([], [1, 2, 3], ["text"]):
            try:
                await workflow.execute_activity("double", args=args)
            except ActivityError as error:
                found += [(each[1], each[4]) for each in told(error.cause)[:1]]
        return found


@scenario(expected=["ValueError", "TypeError", "ConversionError", "ValueError"])
@workflow.defn
class CallsThatAreRefused:
    @workflow.run
    async def run(self) -> list[str]:
        backwards: Any = {"start_to_close_timeout": timedelta(seconds=-1)}
        misspelt: Any = {"task_queu": "x"}
        unreadable: Any = object()
        found = []
        for options, arg in ((backwards, 1), (misspelt, 1), ({}, unreadable)):
            try:
                await workflow.execute_activity(acts.double, arg, **options)
            except (ValueError, TypeError, ConversionError) as error:
                found.append(type(error).__name__)
        try:
            await workflow.sleep(-1)
        except ValueError as error:
            found.append(type(error).__name__)
        return found


@scenario(expected=[("CancelledError",)], drive=failure)
@workflow.defn
class CancelsItself:
    @workflow.run
    async def run(self) -> None:
        raise CancelledError("of its own accord")


@scenario(
    expected=[
        ("ActivityError", "broken", "non_retryable_failure"),
        ("ApplicationError", "Purpose", "on purpose", [{"kind": "x"}], True),
    ],
    drive=failure,
)
@workflow.defn
class FailsWithAGroup:
    """A group of one error is that error."""

    @workflow.run
    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(workflow.execute_activity(acts.broken, "x"))


@scenario(expected=["broken", 1])
@workflow.defn
class FirstException:
    @workflow.run
    async def run(self) -> Any:
        slow: asyncio.Future[Any] = workflow.start_activity(
            acts.until_cancelled, "raises", heartbeat_timeout=BEAT
        )
        fails: asyncio.Future[Any] = workflow.start_activity(acts.broken, "x")
        done, pending = await asyncio.wait([slow, fails], return_when=asyncio.FIRST_EXCEPTION)
        slow.cancel()
        [error] = (each.exception() for each in done)
        assert isinstance(error, ActivityError)
        return [error.activity_type, len(pending)]


# Activities


@scenario(expected=[True, False, False, "AsksItsContext"])
@workflow.defn
class AsksItsContext:
    @workflow.run
    async def run(self) -> Any:
        return await workflow.execute_activity(acts.context)


@scenario(expected="went through")
@workflow.defn
class Throttled:
    @workflow.run
    async def run(self) -> str:
        return await workflow.execute_activity(acts.throttled_once)


@scenario(expected=["ActivityError", "cancel_requested", True, False])
@workflow.defn
class CancelALocalActivity:
    @workflow.run
    async def run(self) -> Any:
        handle = workflow.start_local_activity(acts.slow)
        await workflow.execute_local_activity(acts.double, 4)
        handle.cancel()
        try:
            await handle
        except ActivityError as error:
            return [type(error).__name__, str(error.retry_state), handle.done(), handle.cancelled()]


@scenario(expected=[4, 6, [0, 2, 4, 6, 8]])
@workflow.defn
class MethodsAndManyLocals:
    @workflow.run
    async def run(self) -> Any:
        function: Any = acts.double
        first = await workflow.execute_activity_method(function, 2)
        second = await workflow.start_activity_method(function, 3)
        calls = (workflow.execute_local_activity(acts.double, number) for number in range(5))
        return [first, second, list(await asyncio.gather(*calls))]


# Other workflows


@scenario(expected=[4, "in use", "in use"])
@workflow.defn
class ChildrenWithTheIdOfAClosedOne:
    @workflow.run
    async def run(self) -> Any:
        await workflow.execute_child_workflow(Doubler, 1, id=child_id())
        found: list[Any] = [await workflow.execute_child_workflow(Doubler, 2, id=child_id())]
        for policy in (
            WorkflowIDReusePolicy.REJECT_DUPLICATE,
            WorkflowIDReusePolicy.ALLOW_DUPLICATE_FAILED_ONLY,
        ):
            try:
                await workflow.execute_child_workflow(Doubler, 3, id=child_id(), id_reuse_policy=policy)
            except WorkflowAlreadyStartedError:
                found.append("in use")
        return found


@scenario(expected=["closed", "closed", "missing"])
@workflow.defn
class MessagesToClosedWorkflows:
    @workflow.run
    async def run(self) -> list[str]:
        child = await workflow.start_child_workflow(Doubler, 1, id=child_id())
        await child
        closed, missing = (workflow.get_external_workflow_handle(each) for each in (child.id, child_id("no")))
        found = []
        for what, work in (
            ("closed", child.signal("x")),
            ("closed", closed.signal("x")),
            ("missing", missing.cancel()),
        ):
            try:
                await work
            except FailureError:
                found.append(what)
        return found


async def terminate_the_child(world: World) -> Any:
    await world.until("waits", True)
    child = world.client.get_workflow_handle(f"{world.id}/child")
    async with asyncio.timeout(PATIENCE_S):
        while not await _is_terminated(child):
            await JOURNAL.clocks.get(world.engine, asyncio.sleep)(0.02)
    return await world.handle.result(timeout=PATIENCE_S)


async def _is_terminated(handle: WorkflowHandle[Any]) -> bool:
    """Terminate a workflow. It may not have been started yet."""
    try:
        await handle.terminate("enough")
    except WorkflowNotFoundError:
        return False
    return True


@scenario(expected=["ChildWorkflowError", "TerminatedError"], drive=terminate_the_child)
@workflow.defn
class AChildIsTerminated(Waits):
    @workflow.run
    async def run(self) -> Any:
        child = await workflow.start_child_workflow(Listener, 1, id=child_id())
        self.now = True
        try:
            await child
        except ChildWorkflowError as error:
            return [type(error).__name__, type(error.cause).__name__]


@scenario(
    expected=[{}, {"m": {"x": [1, None]}}, [{"Customer": "kid"}, {"c": 1}, 2, "k"]],
    search_attributes={"Customer": "bob"},
    memo={"m": {"x": [1, None]}},
)
@workflow.defn
class AttributesOfAChild:
    @workflow.run
    async def run(self) -> Any:
        of_child = await workflow.execute_child_workflow(
            TellsItsAttributes,
            id=child_id(),
            memo={"c": 1},
            search_attributes={"Customer": "kid"},
            priority=Priority(priority_key=2, fairness_key="k"),
        )
        workflow.upsert_search_attributes({"Customer": None})
        workflow.upsert_memo({"m": None})
        info = workflow.info()  # the memo as it was at the start, the search attributes as they are now
        return [dict(info.search_attributes), dict(info.memo), of_child]


@workflow.defn
class TellsItsAttributes:
    @workflow.run
    async def run(self) -> Any:
        info = workflow.info()
        return [
            dict(info.search_attributes),
            dict(info.memo),
            info.priority.priority_key,
            info.priority.fairness_key,
        ]


async def six_signals(world: World) -> Any:
    for number in range(6):
        await world.handle.signal("add", number)
    return await world.handle.result(timeout=PATIENCE_S)


@scenario([], expected=[0, 1, 2, 3, 4, 5], drive=six_signals)
@workflow.defn
class ContinuesWithSignals:
    """Signals that arrive while a run continues as new reach one of its runs, in order."""

    @workflow.init
    def __init__(self, seen: list[int]) -> None:
        self.seen = seen
        self.before = len(seen)  # signals of the first task are handled before `run` begins, or after it

    @workflow.run
    async def run(self, seen: list[int]) -> list[int]:
        await workflow.wait_condition(lambda: len(self.seen) > self.before)
        if len(self.seen) < 6:
            workflow.continue_as_new(self.seen)
        return self.seen

    @workflow.signal
    def add(self, number: int) -> None:
        self.seen.append(number)


async def signal_that_continues(world: World) -> Any:
    await world.handle.signal("go")
    return await world.handle.result(timeout=PATIENCE_S)


@scenario(0, expected=1, drive=signal_that_continues)
@workflow.defn
class ContinuesInAHandler:
    @workflow.run
    async def run(self, rounds: int) -> int:
        await workflow.wait_condition(lambda: rounds > 0)
        return rounds

    @workflow.signal
    def go(self) -> None:
        workflow.continue_as_new(1)


# Messages


async def messages_of_any_name(world: World) -> Any:
    await world.until("ready", True)
    await world.handle.signal("s", args=[1, "x"])
    found = [await world.handle.query("q", args=[1]), await world.handle.execute_update("u", args=[2, 3])]
    try:
        await world.handle.execute_update("bad")
    except UpdateRejectedError as error:
        found.append(type(error).__name__)
    return [*found, await ended(world)]


@scenario(
    expected=[
        ["q", 1, 1],
        5,
        "UpdateRejectedError",
        [["s", 1, "x"], ["u", 2, 3]],
    ],
    drive=messages_of_any_name,
)
@workflow.defn
class DynamicHandlersSetLater(Notebook):
    def __init__(self) -> None:
        super().__init__()
        self.is_ready = False

    @workflow.query
    def ready(self) -> bool:
        return self.is_ready

    @workflow.run
    async def run(self) -> Any:
        workflow.set_signal_handler(None, self._signal)
        workflow.set_query_handler(None, lambda name, *args: [name, *args, len(self.seen)])
        workflow.set_update_handler(None, self._update, validator=self._check)
        self.is_ready = True
        seen = await self.until_the_end()
        workflow.set_signal_handler(None, None)
        return seen

    def _signal(self, name: str, *args: Any) -> None:
        self.seen.append([name, *args])

    async def _update(self, name: str, *args: Any) -> int:
        await asyncio.sleep(0)
        self.seen.append([name, *args])
        return sum(args)

    def _check(self, name: str, *_: Any) -> None:
        if name == "bad":
            raise ApplicationError("not this one", 5, type="Bad")


async def update_while_cancelled(world: World) -> Any:
    update = await world.handle.start_update("slowly", id="u-1")
    await world.handle.cancel("enough")
    found = await update.result(timeout=PATIENCE_S)
    return [found, await failure(world)]


@scenario(expected=[7, [("CancelledError",)]], drive=update_while_cancelled)
@workflow.defn
class UpdateWhileCancelled:
    """A cancelled run lets its handlers end."""

    @workflow.run
    async def run(self) -> None:
        try:
            await workflow.wait_condition(lambda: False)
        except asyncio.CancelledError:
            await workflow.wait_condition(workflow.all_handlers_finished)
            raise

    @workflow.update
    async def slowly(self) -> int:
        return await workflow.execute_activity(acts.double, 3) + 1


async def end_during_an_update(world: World) -> Any:
    update = await world.handle.start_update("never", id="u-1")
    found = await ended(world)
    try:
        await update.result(timeout=PATIENCE_S)
    except UpdateFailedError as error:
        return [type(error).__name__, found]


@scenario(expected=["UpdateFailedError", "over"], drive=end_during_an_update)
@workflow.defn
class EndsDuringAnUpdate(Notebook):
    @workflow.run
    async def run(self) -> str:
        await workflow.wait_condition(lambda: self.ended)
        return "over"

    @workflow.update
    async def never(self) -> None:
        await workflow.wait_condition(lambda: False)


async def messages_that_do_not_fit(world: World) -> Any:
    handle = world.handle
    await world.until("waits", True)
    found: list[Any] = []
    unfit: list[tuple[str, list[Any]]] = [("missing", []), ("waits", [1, 2]), ("unreadable", [])]
    for name, args in unfit:
        try:
            await handle.query(name, args=args)
        except QueryRejected as error:
            found.append(error.reason)
    unfit = [("missing", []), ("plain", []), ("plain", ["text"]), ("checked", ["text"])]
    for name, args in unfit:
        try:
            await handle.execute_update(name, args=args)
        except UpdateFailedError as error:
            found.append([type(error).__name__, error.reason])
    await handle.terminate()
    for work in (handle.signal("x"), handle.execute_update("plain", 1), handle.terminate()):
        try:
            await work
        except WorkflowClosedError as error:
            found.append(error.reason)
    return found


@scenario(
    expected=[
        "rejected_unknown_query",
        "query_rejected",
        "query_rejected",
        ["UpdateFailedError", "update_failed"],
        ["UpdateFailedError", "update_failed"],
        ["UpdateFailedError", "update_failed"],
        ["UpdateRejectedError", "update_validator_rejected"],
        "run_not_active",
        "run_not_active",
        "run_not_active",
    ],
    drive=messages_that_do_not_fit,
)
@workflow.defn
class MessagesThatDoNotFit(Waits):
    @workflow.run
    async def run(self) -> None:
        self.now = True
        await workflow.wait_condition(lambda: False)

    @workflow.query
    def unreadable(self) -> Any:
        return object()

    @workflow.update
    async def plain(self, number: int) -> int:
        return number

    @workflow.update
    async def checked(self, number: int) -> int:
        return number

    @checked.validator
    def check(self, number: int) -> None:
        assert number


async def resent(world: World) -> Any:
    await world.handle.signal("add", 1, request_id="once")
    await world.handle.signal("add", 1, request_id="once")
    await world.handle.signal("add", 2)
    again = await world.client.start_workflow(
        world.scenario.workflow, id=world.id, task_queue=world.queue, request_id="the-start", memo={"n": 1}
    )
    described = await world.handle.describe()
    return [again.first_execution_run_id == described.run_id, await ended(world)]


@scenario(expected=[True, [1, 2]], drive=resent, request_id="the-start", memo={"n": 1})
@workflow.defn
class RequestsThatAreResent(Notebook):
    """A request with the id of an earlier one is that request."""

    @workflow.run
    async def run(self) -> Any:
        return await self.until_the_end()

    @workflow.signal
    def add(self, number: int) -> None:
        self.seen.append(number)


# The rest of the API


@scenario(expected=[True, True, True, True, True, "default", "KeyError", True])
@workflow.defn
class SmallFunctions:
    @workflow.run
    async def run(self) -> list[Any]:
        workflow.logger.info("shown once")
        with workflow.unsafe.imports_passed_through():
            import json
        with workflow.unsafe.sandbox_unrestricted():
            import time

            found: list[Any] = [time.time() > 0]
        found += [json.loads("true"), workflow.unsafe.in_sandbox(), workflow.in_workflow()]
        found += [workflow.unsafe.is_replaying() in (True, False), workflow.memo_value("none", "default")]
        try:
            workflow.memo_value("none")
        except KeyError as error:
            found.append(type(error).__name__)
        return [*found, workflow.current_update_info() is None]


@scenario(expected=[[20, False], [30, False], [40, False], [50, False], 12, 14])
@workflow.defn
class ActivitiesOfClasses:
    @workflow.run
    async def run(self) -> list[Any]:
        function: Any = acts.double
        return [
            await workflow.execute_activity_class(acts.Scaled, 2),
            await workflow.start_activity_class(acts.Scaled, 3),
            await workflow.execute_local_activity_class(acts.Scaled, 4),
            await workflow.start_local_activity_class(acts.Scaled, 5),
            await workflow.execute_local_activity_method(function, 6),
            await workflow.start_local_activity_method(function, 7),
        ]


@scenario(expected=[1, 1, 7, True, True, True, False, None, "", "packing", "x"])
@workflow.defn
class ValuesOfARun:
    @workflow.run
    async def run(self) -> list[Any]:
        quick, slow = workflow.sleep(0.01), workflow.sleep(3600)
        done, pending = await workflow.wait([quick, slow], return_when=asyncio.FIRST_COMPLETED)
        for each in pending:
            each.cancel()
        ids = [workflow.uuid7(), workflow.uuid7()]
        found: list[Any] = [len(done), len(pending), ids[0].version, ids[0] != ids[1]]
        found.append(workflow.new_random().random() != workflow.new_random().random())
        for error in (ApplicationError("x"), ValueError("x")):
            found.append(workflow.is_failure_exception(error))
        found += [workflow.cancellation_reason(), workflow.get_current_details()]
        workflow.set_current_details("packing")
        converter = workflow.payload_converter()
        return [
            *found,
            workflow.get_current_details(),
            converter.from_payload(converter.to_payload("x"), str),
        ]


async def talk_to_handlers(world: World) -> Any:
    """Signal, query and update what has no handler of its own, and what has one."""
    await world.until("ready", expected=True)
    await world.handle.signal("anything", 1)
    asked = await world.handle.query("whatever", 2)
    updated = await world.handle.execute_update("something", 3, result_type=list[Any])
    await world.handle.signal("named", 4)
    return [asked, updated, await world.handle.result(timeout=PATIENCE_S)]


@scenario(
    expected=[
        ["query", "whatever", 2],
        ["update", "something", 3],
        [
            [True, True, True, False, False, False],
            [["signal", "anything", 1], ["named", 4]],
            [True, True, True],
        ],
    ],
    drive=talk_to_handlers,
)
@workflow.defn
class DynamicHandlersSetAtRunTime:
    def __init__(self) -> None:
        self.seen: list[Any] = []
        self.is_ready = False

    @workflow.query
    def ready(self) -> bool:
        return self.is_ready

    @workflow.signal
    def named(self, number: int) -> None:
        self.seen.append(["named", number])

    @workflow.run
    async def run(self) -> list[Any]:
        def heard(name: str, *args: Any) -> None:
            self.seen.append(["signal", name, *args])

        before = [
            workflow.get_signal_handler("named") is not None,
            workflow.get_query_handler("ready") is not None,
            workflow.get_update_handler("ready") is None,
            workflow.get_dynamic_signal_handler() is not None,
            workflow.get_dynamic_query_handler() is not None,
            workflow.get_dynamic_update_handler() is not None,
        ]
        workflow.set_dynamic_signal_handler(heard)
        workflow.set_dynamic_query_handler(lambda name, *args: ["query", name, *args])
        workflow.set_dynamic_update_handler(lambda name, *args: ["update", name, *args])
        after = [
            workflow.get_dynamic_signal_handler() is heard,
            workflow.get_dynamic_query_handler() is not None,
            workflow.get_dynamic_update_handler() is not None,
        ]
        self.is_ready = True
        await workflow.wait_condition(lambda: len(self.seen) == 2)
        return [before, self.seen, after]


HELPERS = [WrapsAnError, TellsItsAttributes]
