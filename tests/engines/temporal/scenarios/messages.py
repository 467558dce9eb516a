"""Scenarios of signals, queries and updates."""

from __future__ import annotations

import asyncio
from typing import Any

from penstock import workflow
from penstock.failures import (
    ApplicationError,
    QueryFailed,
    QueryRejected,
    UpdateFailedError,
    UpdateRejectedError,
    WorkflowFailureError,
)
from tests.engines.temporal.scenarios import acts
from tests.engines.temporal.scenarios.base import World, scenario, told
from tests.support.patience import PATIENCE_S


class Notebook:
    """Collects what handlers saw, until it is told to end."""

    def __init__(self) -> None:
        self.seen: list[Any] = []
        self.ended = False

    async def until_the_end(self) -> list[Any]:
        await workflow.wait_condition(lambda: self.ended and workflow.all_handlers_finished())
        return self.seen

    @workflow.signal
    def end(self) -> None:
        self.ended = True

    @workflow.query
    def pages(self) -> list[Any]:
        return self.seen


async def ended(world: World) -> Any:
    await world.handle.signal("end")
    return await world.handle.result(timeout=PATIENCE_S)


async def three_signals(world: World) -> Any:
    for number in range(3):
        await world.handle.signal(Signals.add, number)
    return await ended(world)


@scenario(expected=[0, 1, 2], drive=three_signals)
@workflow.defn
class Signals(Notebook):
    @workflow.run
    async def run(self) -> list[Any]:
        return await self.until_the_end()

    @workflow.signal
    def add(self, number: int) -> None:
        self.seen.append(number)


async def an_order(world: World) -> Any:
    await world.handle.signal(TypedSignal.order, acts.Order("ada", 3))
    await world.handle.signal("order", "no order")
    await world.handle.signal("order")
    return await ended(world)


@scenario(expected=["Order", "ada", 3], drive=an_order)
@workflow.defn
class TypedSignal(Notebook):
    """A signal that does not fit is dropped, on every engine."""

    @workflow.run
    async def run(self) -> list[Any]:
        return await self.until_the_end()

    @workflow.signal
    async def order(self, order: acts.Order) -> None:
        self.seen += [type(order).__name__, order.customer, order.amount]


async def any_signals(world: World) -> Any:
    await world.handle.signal("one", 1)
    await world.handle.signal("two", args=[1, 2])
    return await ended(world)


@scenario(expected=[["one", 1], ["two", 1, 2]], drive=any_signals)
@workflow.defn
class DynamicSignal(Notebook):
    @workflow.run
    async def run(self) -> list[Any]:
        return await self.until_the_end()

    @workflow.signal(dynamic=True)
    def any(self, name: str, *args: Any) -> None:
        self.seen.append([name, *args])


async def before_the_handler(world: World) -> Any:
    await world.handle.signal("later", "early")
    await world.until("pages", ["early"])
    return await ended(world)


@scenario(expected=["early"], drive=before_the_handler)
@workflow.defn
class HandlerSetLater(Notebook):
    @workflow.run
    async def run(self) -> list[Any]:
        await workflow.sleep(0.1)
        workflow.set_signal_handler("later", self.seen.append)
        return await self.until_the_end()


@scenario(
    expected=[("ApplicationError", "Handler", "the handler failed", [], False)],
    drive=lambda world: failing_signal(world),
)
@workflow.defn
class SignalFails(Notebook):
    @workflow.run
    async def run(self) -> list[Any]:
        return await self.until_the_end()

    @workflow.signal
    async def fail(self) -> None:
        raise ApplicationError("the handler failed", type="Handler")


async def failing_signal(world: World) -> Any:
    await world.handle.signal(SignalFails.fail)
    try:
        return await world.handle.result(timeout=PATIENCE_S)
    except WorkflowFailureError as error:
        return told(error.cause)


async def queries(world: World) -> Any:
    found = [
        await world.handle.query(Queries.pages),
        await world.handle.query(Queries.plus, 4),
        await world.handle.query("plus", 5),
        await world.handle.query("whatever", args=[1, 2]),
    ]
    try:
        await world.handle.query("fails")
    except QueryRejected as error:
        found.append("QueryRejected" if "no answer" in str(error) else str(error))
    return [*found, await ended(world)]


@scenario(expected=[[], 5, 6, ["whatever", 1, 2], "QueryRejected", []], drive=queries)
@workflow.defn
class Queries(Notebook):
    @workflow.run
    async def run(self) -> list[Any]:
        return await self.until_the_end()

    @workflow.query
    def plus(self, number: int) -> int:
        return number + 1

    @workflow.query
    def fails(self) -> int:
        raise ValueError("no answer")

    @workflow.query(dynamic=True)
    def any(self, name: str, *args: Any) -> list[Any]:
        return [name, *args]


async def changing_query(world: World) -> Any:
    try:
        await world.handle.query(QueryMustNotChange.change)
    except QueryFailed:
        return ["rejected", await ended(world)]


@scenario(expected=["rejected", []], drive=changing_query)
@workflow.defn
class QueryMustNotChange(Notebook):
    @workflow.run
    async def run(self) -> list[Any]:
        return await self.until_the_end()

    @workflow.query
    def change(self) -> str:
        return str(workflow.uuid4())


async def closed_query(world: World) -> Any:
    await ended(world)
    return await world.handle.query(Signals.pages)


@scenario(expected=[], drive=closed_query)
@workflow.defn
class QueryAfterTheEnd(Notebook):
    @workflow.run
    async def run(self) -> list[Any]:
        return await self.until_the_end()


async def updates(world: World) -> Any:
    found: list[Any] = [
        await world.handle.execute_update(Updates.add, 1),
        await world.handle.execute_update("add", 2),
        await world.handle.execute_update(Updates.slowly, 3),
    ]
    handle = await world.handle.start_update(Updates.slowly, 4, id="the-fourth")
    found += [handle.id, await handle.result()]
    return [*found, await ended(world)]


@scenario(expected=[1, 2, 6, "the-fourth", 8, [1, 2, 6, 8]], drive=updates)
@workflow.defn
class Updates(Notebook):
    @workflow.run
    async def run(self) -> list[Any]:
        return await self.until_the_end()

    @workflow.update
    def add(self, number: int) -> int:
        self.seen.append(number)
        return len(self.seen)

    @workflow.update
    async def slowly(self, number: int) -> int:
        doubled = await workflow.execute_activity(acts.double, number)
        self.seen.append(doubled)
        return doubled


async def rejected_update(world: World) -> Any:
    try:
        await world.handle.execute_update(ValidatedUpdate.set_to, -1)
    except UpdateRejectedError as error:
        rejection = str(error.cause.message)  # type: ignore[union-attr]
    return [rejection, await world.handle.execute_update(ValidatedUpdate.set_to, 5), await ended(world)]


@scenario(expected=["not below zero", 5, [5]], drive=rejected_update)
@workflow.defn
class ValidatedUpdate(Notebook):
    @workflow.run
    async def run(self) -> list[Any]:
        return await self.until_the_end()

    @workflow.update
    async def set_to(self, number: int) -> int:
        self.seen.append(number)
        return number

    @set_to.validator
    def check(self, number: int) -> None:
        if number < 0:
            raise ValueError("not below zero")


async def failed_update(world: World) -> Any:
    try:
        await world.handle.execute_update(FailingUpdate.fail)
    except UpdateFailedError as error:
        failed = [isinstance(error, UpdateRejectedError), *told(error.cause)]
    return [failed, await ended(world)]


@scenario(
    expected=[[False, ("ApplicationError", "Update", "it failed", [3], False)], []], drive=failed_update
)
@workflow.defn
class FailingUpdate(Notebook):
    @workflow.run
    async def run(self) -> list[Any]:
        return await self.until_the_end()

    @workflow.update
    async def fail(self) -> None:
        raise ApplicationError("it failed", 3, type="Update")


async def unknown_update(world: World) -> Any:
    try:
        await world.handle.execute_update("nothing")
    except UpdateFailedError:
        return ["refused", await ended(world)]


@scenario(expected=["refused", []], drive=unknown_update)
@workflow.defn
class UnknownUpdate(Notebook):
    @workflow.run
    async def run(self) -> list[Any]:
        return await self.until_the_end()


async def named_update(world: World) -> Any:
    return [await world.handle.execute_update("about", id="u-7"), await ended(world)]


@scenario(expected=[[True, "about"], []], drive=named_update)
@workflow.defn
class UpdateInfo(Notebook):
    @workflow.run
    async def run(self) -> list[Any]:
        assert workflow.current_update_info() is None
        return await self.until_the_end()

    @workflow.update
    async def about(self) -> list[Any]:
        info = workflow.current_update_info()
        return [bool(info.id), info.name]


async def late_update(world: World) -> Any:
    await world.until("pages", ["ready"])
    return [await world.handle.execute_update("late", 2), await ended(world)]


@scenario(expected=[4, ["ready"]], drive=late_update)
@workflow.defn
class UpdateHandlerSetLater(Notebook):
    @workflow.run
    async def run(self) -> list[Any]:
        workflow.set_update_handler("late", lambda number: 2 * number)
        self.seen.append("ready")
        return await self.until_the_end()


async def late_query(world: World) -> Any:
    await world.until("pages", ["ready"])
    return [await world.handle.query("late", 2), await ended(world)]


@scenario(expected=[3, ["ready"]], drive=late_query)
@workflow.defn
class QueryHandlerSetLater(Notebook):
    @workflow.run
    async def run(self) -> list[Any]:
        workflow.set_query_handler("late", lambda number: 1 + number)
        self.seen.append("ready")
        return await self.until_the_end()


async def start_with_signal(world: World) -> Any:
    return await ended(world)


@scenario(expected=["first"], drive=start_with_signal, start_signal="add", start_signal_args=["first"])
@workflow.defn
class StartSignal(Notebook):
    @workflow.run
    async def run(self) -> list[Any]:
        return await self.until_the_end()

    @workflow.signal
    def add(self, text: str) -> None:
        self.seen.append(text)


async def handlers_that_wait(world: World) -> Any:
    await asyncio.gather(*(world.handle.execute_update(UpdatesInOrder.add, each) for each in "ab"))
    found = await ended(world)
    return sorted(found)


@scenario(expected=["a", "b"], drive=handlers_that_wait)
@workflow.defn
class UpdatesInOrder(Notebook):
    def __init__(self) -> None:
        super().__init__()
        self.lock = asyncio.Lock()

    @workflow.run
    async def run(self) -> list[Any]:
        return await self.until_the_end()

    @workflow.update
    async def add(self, text: str) -> None:
        async with self.lock:
            await workflow.sleep(0.05)
            self.seen.append(text)
