"""Programs about messages: signals, queries and updates."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

import pytest

from penstock import WithStartWorkflowOperation, WorkflowIDConflictPolicy, activity, workflow
from penstock.client import WorkflowUpdateStage
from penstock.failures import ApplicationError, QueryRejected, UpdateFailedError, WorkflowFailureError
from tests.sdk.programs.program import LONG, Home, program


@workflow.defn
class Greeter:
    """Queries and a validated update, and a signal that ends it."""

    def __init__(self) -> None:
        self.greetings = {"en": "Hello", "de": "Hallo"}
        self.language = "en"
        self.is_approved = False

    @workflow.run
    async def run(self) -> str:
        await workflow.wait_condition(lambda: self.is_approved)
        return self.greetings[self.language]

    @workflow.query
    def languages(self) -> list[str]:
        return sorted(self.greetings)

    @workflow.query(name="language")
    def current(self) -> str:
        return self.language

    @workflow.update
    def set_language(self, language: str) -> str:
        before, self.language = self.language, language
        return before

    @set_language.validator
    def known(self, language: str) -> None:
        if language not in self.greetings:
            raise ValueError(f"{language} is not supported")

    @workflow.signal
    def approve(self) -> None:
        self.is_approved = True


@program(workflows=[Greeter])
async def queries_updates_and_signals(home: Home) -> None:
    handle = await home.client.start_workflow(Greeter.run, **home.how())
    assert await handle.query(Greeter.languages) == ["de", "en"]
    assert await handle.execute_update(Greeter.set_language, "de") == "en"
    with pytest.raises(UpdateFailedError, match="xx is not supported"):
        await handle.execute_update(Greeter.set_language, "xx")
    assert await handle.query("language", result_type=str) == "de"
    await handle.signal(Greeter.approve)
    assert await handle.result() == "Hallo"
    assert await handle.query(Greeter.current) == "de", "a closed run answers"


@activity.defn
async def allocate(node: str, job: str) -> str:
    return f"{job} on {node}"


@workflow.defn
class ClusterManager:
    """Handlers that await, and exclude each other."""

    def __init__(self) -> None:
        self.nodes: dict[str, str | None] = {"a": None, "b": None}
        self.lock = asyncio.Lock()
        self.is_over = False

    @workflow.run
    async def run(self) -> dict[str, str | None]:
        await workflow.wait_condition(lambda: self.is_over and workflow.all_handlers_finished())
        return self.nodes

    @workflow.update
    async def assign(self, job: str) -> str:
        async with self.lock:
            free = [name for name, taken in self.nodes.items() if taken is None]
            if not free:
                raise ApplicationError("no node is free", type="Full")
            found = await workflow.execute_activity(
                allocate, args=[free[0], job], start_to_close_timeout=LONG
            )
            self.nodes[free[0]] = job
            return found

    @workflow.signal
    async def shut_down(self) -> None:
        self.is_over = True


@program(workflows=[ClusterManager], activities=[allocate])
async def handlers_that_exclude_each_other(home: Home) -> None:
    handle = await home.client.start_workflow(ClusterManager.run, **home.how())
    run = handle.result_run_id
    first, second = await asyncio.gather(
        handle.execute_update(ClusterManager.assign, "x", id=f"x {run}"),
        handle.execute_update(ClusterManager.assign, "y", id=f"y {run}"),
    )
    assert {first[-1], second[-1]} == {"a", "b"}
    third = await handle.start_update(ClusterManager.assign, "z", wait_for_stage=WorkflowUpdateStage.ACCEPTED)
    await handle.signal(ClusterManager.shut_down)
    with pytest.raises(UpdateFailedError) as failed:
        await third.result()
    assert isinstance(failed.value.__cause__, ApplicationError)
    assert failed.value.__cause__.type == "Full"
    assert sorted(str(job) for job in (await handle.result()).values()) == ["x", "y"]


@dataclass
class Cart:
    items: list[str]
    total: int


@activity.defn
async def price(item: str) -> int:
    return len(item)


@workflow.defn
class ShoppingCart:
    """Is begun by its first update."""

    def __init__(self) -> None:
        self.cart = Cart([], 0)
        self.is_paid = False

    @workflow.run
    async def run(self) -> Cart:
        await workflow.wait_condition(lambda: self.is_paid and workflow.all_handlers_finished())
        return self.cart

    @workflow.update
    async def add(self, item: str) -> int:
        cost = await workflow.execute_activity(price, item, start_to_close_timeout=LONG)
        self.cart.items.append(item)
        self.cart.total += cost
        return self.cart.total

    @workflow.signal
    def pay(self) -> None:
        self.is_paid = True


@program(workflows=[ShoppingCart], activities=[price])
async def lazy_initialisation_by_an_update(home: Home) -> None:
    totals = []
    for item in ("pen", "paper"):
        start = WithStartWorkflowOperation(
            ShoppingCart.run, id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING, **home.how()
        )
        totals.append(
            await home.client.execute_update_with_start_workflow(
                ShoppingCart.add, item, start_workflow_operation=start
            )
        )
        handle = await start.workflow_handle()
    assert totals == [3, 8]
    await handle.signal(ShoppingCart.pay)
    assert await handle.result() == Cart(["pen", "paper"], 8)


@workflow.defn
class Payment:
    """Answers the caller early, and completes afterwards."""

    def __init__(self) -> None:
        self.confirmation: str | None = None
        self.error: str | None = None
        self.is_answered = False

    @workflow.run
    async def run(self, amount: int) -> str:
        try:
            self.confirmation = await workflow.execute_local_activity(
                authorise, amount, start_to_close_timeout=LONG
            )
        except Exception as error:
            self.error = str(error)
            await workflow.wait_condition(lambda: self.is_answered and workflow.all_handlers_finished())
            return "declined"
        await workflow.execute_activity(settle, amount, start_to_close_timeout=LONG)
        return "settled"

    @workflow.update
    async def confirmed(self) -> str:
        await workflow.wait_condition(lambda: bool(self.confirmation or self.error))
        self.is_answered = True
        if self.confirmation is None:
            raise ApplicationError("declined", type="Declined")
        return self.confirmation


@activity.defn
async def authorise(amount: int) -> str:
    if amount < 0:
        raise ApplicationError("a negative amount", non_retryable=True)
    return f"authorised {amount}"


@activity.defn
async def settle(amount: int) -> None:
    activity.logger.info("settled %s", amount)


@program(workflows=[Payment], activities=[authorise, settle])
async def an_early_answer_by_update_with_start(home: Home) -> None:
    for amount, expected in ((5, "settled"), (-1, "declined")):
        start = WithStartWorkflowOperation(
            Payment.run,
            amount,
            id_conflict_policy=WorkflowIDConflictPolicy.FAIL,
            **home.how(f"-{expected}"),
        )
        call = home.client.execute_update_with_start_workflow(
            Payment.confirmed, start_workflow_operation=start
        )
        if amount > 0:
            assert await call == "authorised 5"
        else:
            with pytest.raises(UpdateFailedError, match="declined"):
                await call
        assert await (await start.workflow_handle()).result() == expected


@workflow.defn
class Mailbox:
    """Takes every message by dynamic handlers, and one by a handler that it sets itself."""

    def __init__(self) -> None:
        self.seen: list[str] = []
        self.is_closed = False

    @workflow.run
    async def run(self) -> list[str]:
        def close() -> None:
            self.is_closed = True

        workflow.set_signal_handler("close", close)
        workflow.set_query_handler("size", lambda: len(self.seen))
        assert workflow.get_signal_handler("close") is not None
        await workflow.wait_condition(lambda: self.is_closed)
        return self.seen

    @workflow.signal(dynamic=True)
    def any_signal(self, name: str, args: Sequence[activity.RawValue]) -> None:
        read = workflow.payload_converter().from_payload
        self.seen.append(f"signal {name} {[read(each.payload) for each in args]}")

    @workflow.update(dynamic=True)
    def any_update(self, name: str, args: Sequence[activity.RawValue]) -> str:
        self.seen.append(f"update {name}")
        return f"{name} with {len(args)}"

    @workflow.query(dynamic=True)
    def any_query(self, name: str, args: Sequence[activity.RawValue]) -> str:
        return f"{name} of {len(self.seen)}"


@program(workflows=[Mailbox])
async def dynamic_handlers(home: Home) -> None:
    handle = await home.client.start_workflow(Mailbox.run, **home.how())
    await handle.signal("hello", args=["a", 1])
    assert await handle.execute_update("change", 7, result_type=str) == "change with 1"
    assert await handle.query("anything", result_type=str) == "anything of 2"
    assert await handle.query("size", result_type=int) == 2
    await handle.signal("close")
    assert await handle.result() == ["signal hello ['a', 1]", "update change"]


@workflow.defn
class Ledger:
    """Applies each update once, however often it is sent."""

    def __init__(self) -> None:
        self.entries: list[str] = []
        self.is_over = False

    @workflow.run
    async def run(self) -> list[str]:
        await workflow.wait_condition(lambda: self.is_over)
        return self.entries

    @workflow.update
    async def enter(self, amount: int) -> str:
        info = workflow.current_update_info()
        assert info is not None
        task = asyncio.create_task(self.name_of(amount))
        self.entries.append(await task)
        return self.entries[-1]

    async def name_of(self, amount: int) -> str:
        info = workflow.current_update_info()
        assert info is not None, "tasks that an update starts know it"
        await workflow.sleep(0.01)
        return f"{info.name} {amount}"

    @workflow.signal
    def end(self) -> None:
        self.is_over = True


@program(workflows=[Ledger])
async def an_update_that_is_sent_twice(home: Home) -> None:
    handle = await home.client.start_workflow(Ledger.run, **home.how())
    chosen = f"entry {handle.result_run_id}"
    first = await handle.start_update(Ledger.enter, 5, id=chosen, wait_for_stage=WorkflowUpdateStage.ACCEPTED)
    again = handle.get_update_handle_for(Ledger.enter, chosen)
    assert await again.result() == await first.result() == "enter 5"
    assert await handle.execute_update(Ledger.enter, 5, id=chosen) == "enter 5"
    await handle.signal(Ledger.end)
    assert await handle.result() == ["enter 5"]


@workflow.defn
class Compensating:
    """Waits for its handlers before it fails, so that they can undo what they did."""

    def __init__(self) -> None:
        self.failed = False
        self.undone: list[str] = []

    @workflow.run
    async def run(self) -> None:
        try:
            await workflow.wait_condition(lambda: self.failed)
            raise ApplicationError("the order was withdrawn", type="Withdrawn")
        finally:
            await workflow.wait_condition(workflow.all_handlers_finished)

    @workflow.update
    async def reserve(self, seat: str) -> str:
        await workflow.wait_condition(lambda: self.failed)
        self.undone.append(seat)
        return f"{seat} was given back"

    @workflow.signal
    def withdraw(self) -> None:
        self.failed = True


@program(workflows=[Compensating])
async def handlers_that_finish_before_the_run_fails(home: Home) -> None:
    handle = await home.client.start_workflow(Compensating.run, **home.how())
    update = await handle.start_update(
        Compensating.reserve, "1A", wait_for_stage=WorkflowUpdateStage.ACCEPTED
    )
    await handle.signal(Compensating.withdraw)
    assert await update.result() == "1A was given back"
    with pytest.raises(WorkflowFailureError, match="withdrawn"):
        await handle.result()


@workflow.defn
class Accumulator:
    """Collects names that are sent with its start, and ends when none has come for a while."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.is_over = self.is_new = False

    @workflow.run
    async def run(self) -> str:
        while not self.is_over:
            self.is_new = False
            try:
                await workflow.wait_condition(
                    lambda: self.is_over or self.is_new, timeout=timedelta(minutes=1)
                )
            except TimeoutError:
                break
        return " and ".join(sorted(set(self.names)))

    @workflow.signal(unfinished_policy=workflow.HandlerUnfinishedPolicy.ABANDON)
    async def greet(self, name: str) -> None:
        self.names.append(name)
        self.is_new = True

    @workflow.signal
    def end(self) -> None:
        self.is_over = True


@program(workflows=[Accumulator])
async def signals_with_start(home: Home) -> None:
    for name in ("Bo", "Al", "Bo"):
        handle = await home.client.start_workflow(
            Accumulator.run,
            start_signal="greet",
            start_signal_args=[name],
            id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING,
            **home.how(),
        )
    await handle.signal(Accumulator.end)
    assert await handle.result() == "Al and Bo"


@workflow.defn
class Counter:
    def __init__(self) -> None:
        self.count = 0

    @workflow.run
    async def run(self) -> int:
        await workflow.wait_condition(lambda: self.count > 2)
        return self.count

    @workflow.signal
    def add(self, by: int) -> None:
        self.count += by

    @workflow.query
    def twice(self, offset: int) -> int:
        return 2 * self.count + offset

    @workflow.query
    def broken(self) -> int:
        raise RuntimeError("a bug in a query")


@program(workflows=[Counter])
async def a_query_that_fails_harms_nothing(home: Home) -> None:
    handle = await home.client.start_workflow(Counter.run, **home.how())
    await handle.signal(Counter.add, 1)
    with pytest.raises(QueryRejected, match="a bug in a query"):
        await handle.query(Counter.broken)
    with pytest.raises(QueryRejected):
        await handle.query("missing")
    assert await handle.query(Counter.twice, 5) == 7
    assert "wait_condition" in await handle.query("__stack_trace", result_type=str)
    await handle.signal(Counter.add, 2)
    assert await handle.result() == 3
