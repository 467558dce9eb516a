"""Scenarios of a run itself: its end, time, information, memo, patches, conditions."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

from penstock import RetryPolicy, workflow
from penstock.client import Priority
from penstock.failures import ActivityError, ApplicationError, WorkflowFailureError
from tests.engines.temporal.scenarios import acts
from tests.engines.temporal.scenarios.base import World, scenario, told
from tests.support.patience import PATIENCE_S


async def failure(world: World) -> Any:
    try:
        return await world.handle.result(timeout=PATIENCE_S)
    except WorkflowFailureError as error:
        return told(error.cause)


@scenario(expected=[("ApplicationError", "Fatal", "it ends", [1, {"a": 2}], True)], drive=failure)
@workflow.defn
class Fails:
    @workflow.run
    async def run(self) -> None:
        raise ApplicationError("it ends", 1, {"a": 2}, type="Fatal", non_retryable=True)


@scenario(
    expected=[
        ("ActivityError", "broken", "maximum_attempts_reached"),
        ("ApplicationError", "ValueError", "a plain error", [], False),
    ],
    drive=failure,
)
@workflow.defn
class FailsByAnActivity:
    @workflow.run
    async def run(self) -> None:
        policy = RetryPolicy(initial_interval=timedelta(milliseconds=10), maximum_attempts=2)
        await workflow.execute_activity(acts.broken, "plain", retry_policy=policy)


class Bankrupt(Exception):
    pass


@scenario(expected=[("ApplicationError", "Bankrupt", "no money", [], False)], drive=failure)
@workflow.defn(failure_exception_types=[Bankrupt])
class FailsByItsOwnType:
    @workflow.run
    async def run(self) -> None:
        raise Bankrupt("no money")


@scenario(
    expected=[
        ("ApplicationError", "Outer", "outer", [], False),
        ("ActivityError", "broken", "non_retryable_failure"),
        ("ApplicationError", "Purpose", "on purpose", [{"kind": "x"}], True),
    ],
    drive=failure,
)
@workflow.defn
class FailsWithACause:
    @workflow.run
    async def run(self) -> None:
        try:
            await workflow.execute_activity(acts.broken, "x")
        except ActivityError as error:
            raise ApplicationError("outer", type="Outer") from error


async def terminated(world: World) -> Any:
    await world.until("waits", True)
    await world.handle.terminate("enough")
    return await failure(world)


@scenario(expected=[("TerminatedError",)], drive=terminated)
@workflow.defn
class Terminated:
    @workflow.run
    async def run(self) -> None:
        await workflow.sleep(3600)

    @workflow.query
    def waits(self) -> bool:
        return True


@scenario(expected=["TimeoutError"], drive=lambda world: timed_out(world), run_timeout=timedelta(seconds=1))
@workflow.defn
class TimesOut:
    @workflow.run
    async def run(self) -> None:
        await workflow.sleep(3600)


async def timed_out(world: World) -> Any:
    try:
        await world.handle.result(timeout=PATIENCE_S)
    except WorkflowFailureError as error:
        return [type(error.cause).__name__]


@scenario(
    expected=[("ApplicationError", "TimeoutError", "TimeoutError", [], False), ("CancelledError",)],
    drive=failure,
)
@workflow.defn
class FailsByATimeout:
    @workflow.run
    async def run(self) -> None:
        await workflow.wait_condition(lambda: False, timeout=0.05)


@scenario(expected=["one", "two", "three"])
@workflow.defn
class Conditions:
    @workflow.run
    async def run(self) -> list[str]:
        seen: list[str] = []

        async def add(count: int, text: str) -> None:
            await workflow.wait_condition(lambda: len(seen) == count)
            seen.append(text)

        await asyncio.gather(add(2, "three"), add(1, "two"), add(0, "one"))
        return seen


@scenario(expected=[True, True, True])
@workflow.defn
class Times:
    @workflow.run
    async def run(self) -> list[bool]:
        before = workflow.now()
        await workflow.sleep(timedelta(milliseconds=100))
        lasted = workflow.now() - before
        return [
            lasted >= timedelta(milliseconds=99),
            before.tzinfo is UTC or before.utcoffset() == timedelta(0),
            abs(workflow.time() - workflow.now().timestamp()) < 0.01
            and abs(workflow.time_ns() / 1e9 - workflow.time()) < 0.01,
        ]


@scenario(expected=[True, True, 4])
@workflow.defn
class Dice:
    @workflow.run
    async def run(self) -> list[Any]:
        rolled = workflow.random().random()
        one, two = workflow.uuid4(), workflow.uuid4()
        return [0 <= rolled < 1, one != two, one.version]


@scenario(
    expected={
        "type": "Information",
        "attempt": 1,
        "namespace": "default",
        "parent": None,
        "continued": None,
        "run_timeout": 60.0,
        "priority": [1, "ada", 2.0],
        "memo": {"who": "ada"},
        "long": False,
        "instance": True,
        "in": True,
        "started": True,
    },
    run_timeout=timedelta(seconds=60),
    priority=Priority(priority_key=1, fairness_key="ada", fairness_weight=2.0),
    memo={"who": "ada"},
)
@workflow.defn
class Information:
    @workflow.run
    async def run(self) -> dict[str, Any]:
        info = workflow.info()
        assert info.run_timeout is not None
        return {
            "type": info.workflow_type,
            "attempt": info.attempt,
            "namespace": info.namespace,
            "parent": info.parent,
            "continued": info.continued_run_id,
            "run_timeout": info.run_timeout.total_seconds(),
            "priority": [
                info.priority.priority_key,
                info.priority.fairness_key,
                info.priority.fairness_weight,
            ],
            "memo": dict(info.memo),
            "long": info.is_continue_as_new_suggested() or info.get_current_history_length() < 1,
            "instance": workflow.instance() is self,
            "in": workflow.in_workflow() and workflow.unsafe.in_sandbox(),
            "started": isinstance(info.start_time, datetime) and info.start_time.tzinfo is not None,
        }


async def with_memo(world: World) -> Any:
    found = await world.handle.result(timeout=PATIENCE_S)
    return [found, dict((await world.handle.describe()).memo)]


@scenario(expected=[[1, "none", {"b": 2}], {"b": 2}], drive=with_memo, memo={"a": 1})
@workflow.defn
class Memo:
    @workflow.run
    async def run(self) -> list[Any]:
        first = workflow.memo_value("a")
        workflow.upsert_memo({"a": None, "b": 2})
        return [first, workflow.memo_value("a", "none"), dict(workflow.memo())]


@scenario(expected=[True, "new"])
@workflow.defn
class Patched:
    @workflow.run
    async def run(self) -> list[Any]:
        taken = workflow.patched("a change")
        workflow.deprecate_patch("an older change")
        await workflow.execute_activity(acts.double, 1)
        return [taken and workflow.patched("a change"), "new" if taken else "old"]


@scenario("x", 2, expected=["x", 2, "x2"])
@workflow.defn
class InitTakesArguments:
    @workflow.init
    def __init__(self, text: str, number: int) -> None:
        self.both = f"{text}{number}"

    @workflow.run
    async def run(self, text: str, number: int) -> list[Any]:
        return [text, number, self.both]


@scenario(acts.Order("ada", 2), expected=["Order", "ada", 2, "tail"])
@workflow.defn
class TypedArguments:
    @workflow.run
    async def run(self, order: acts.Order, text: str = "tail") -> list[Any]:
        return [type(order).__name__, order.customer, order.amount, text]


@scenario({"when": datetime(2026, 1, 2, tzinfo=UTC)}, expected=["2026-01-02T00:00:00+00:00"])
@workflow.defn
class DatesInArguments:
    @workflow.run
    async def run(self, found: dict[str, datetime]) -> list[str]:
        return [found["when"].isoformat()]


@scenario(expected=["a", "b", "c"])
@workflow.defn
class QueuesAndEvents:
    @workflow.run
    async def run(self) -> list[str]:
        queue: asyncio.Queue[str] = asyncio.Queue()
        ended = asyncio.Event()
        seen: list[str] = []

        async def consume() -> None:
            while len(seen) < 3:
                seen.append(await queue.get())
            ended.set()

        task = asyncio.create_task(consume())
        for each in "abc":
            await queue.put(each)
            await asyncio.sleep(0)
        await ended.wait()
        await task
        return seen


@scenario(expected=["first", "first"])
@workflow.defn
class FirstOfTwo:
    @workflow.run
    async def run(self) -> list[str]:
        fast = asyncio.create_task(_after(0.05, "first"))
        slow = asyncio.create_task(_after(3600, "second"))
        done, pending = await asyncio.wait([fast, slow], return_when=asyncio.FIRST_COMPLETED)
        for each in pending:
            each.cancel()
        return [each.result() for each in done] * 2


async def _after(seconds: float, text: str) -> str:
    await workflow.sleep(seconds)
    return text


async def delayed(world: World) -> Any:
    return await world.handle.result(timeout=PATIENCE_S)


@scenario(expected=True, drive=delayed, start_delay=timedelta(milliseconds=200))
@workflow.defn
class Delayed:
    @workflow.run
    async def run(self) -> bool:
        return True


@scenario(expected={"Customer": "ada", "Amount": 3}, drive=lambda world: attributes(world))
@workflow.defn
class SearchAttributes:
    @workflow.run
    async def run(self) -> None:
        workflow.upsert_search_attributes({"Customer": "ada", "Amount": 3})


async def attributes(world: World) -> Any:
    await world.handle.result(timeout=PATIENCE_S)
    found = (await world.handle.describe()).search_attributes
    return {name: found.get(name) for name in ("Customer", "Amount")}
