"""Programs about activities: how they are called, retried, cancelled, timed out, and where they run."""

# ruff: noqa: PT017 - workflow code has no pytest

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

import pytest

from penstock import RetryPolicy, activity, workflow
from penstock.failures import (
    ActivityError,
    ApplicationError,
    ApplicationErrorCategory,
    CancelledError,
    TimeoutError,  # noqa: A004
    TimeoutType,
    WorkflowFailureError,
)
from tests.sdk.programs.program import LONG, SOON, Home, activity_types, program


@dataclass
class Letter:
    greeting: str
    name: str


@activity.defn
async def compose(letter: Letter) -> str:
    activity.logger.info("composing")
    return f"{letter.greeting}, {letter.name}!"


@workflow.defn
class OneActivity:
    @workflow.run
    async def run(self, name: str) -> str:
        return await workflow.execute_activity(
            compose, Letter("Hello", name), start_to_close_timeout=LONG, summary="the only step"
        )


@program(workflows=[OneActivity], activities=[compose])
async def an_activity(home: Home) -> None:
    assert await home.client.execute_workflow(OneActivity.run, "Ada", **home.how()) == "Hello, Ada!"


@workflow.defn
class Parallel:
    @workflow.run
    async def run(self, names: list[str]) -> list[str]:
        calls = (
            workflow.execute_activity(compose, Letter("Hi", name), start_to_close_timeout=LONG)
            for name in names
        )
        return sorted(await asyncio.gather(*calls))


@program(workflows=[Parallel])
async def activities_side_by_side(home: Home) -> None:
    found = await home.client.execute_workflow(Parallel.run, ["b", "a", "c"], **home.how())
    assert found == ["Hi, a!", "Hi, b!", "Hi, c!"]


@workflow.defn
class Locals:
    @workflow.run
    async def run(self, name: str) -> str:
        return await workflow.execute_local_activity(
            compose, Letter("Servus", name), start_to_close_timeout=LONG
        )


@program(workflows=[Locals])
async def a_local_activity(home: Home) -> None:
    assert await home.client.execute_workflow(Locals.run, "Leo", **home.how()) == "Servus, Leo!"


@activity.defn
async def order_apples(count: int) -> str:
    return f"{count} apples"


@activity.defn
async def order_pears(count: int) -> str:
    return f"{count} pears"


@workflow.defn
class Choice:
    @workflow.run
    async def run(self, orders: list[tuple[str, int]]) -> list[str]:
        kinds = {"apple": order_apples, "pear": order_pears}
        return [
            await workflow.execute_activity(kinds[kind], count, start_to_close_timeout=LONG)
            for kind, count in orders
        ]


@program(workflows=[Choice], activities=[order_apples, order_pears])
async def a_choice_of_activities(home: Home) -> None:
    orders = [("pear", 2), ("apple", 3)]
    assert await home.client.execute_workflow(Choice.run, orders, **home.how()) == ["2 pears", "3 apples"]


class Bank:
    def __init__(self, fee: int) -> None:
        self.fee = fee

    @activity.defn
    async def withdraw(self, account: str, amount: int) -> int:
        return amount + self.fee

    @activity.defn(name="deposit money")
    def deposit(self, account: str, amount: int) -> str:
        return f"{account}: {amount}"


class Converter:
    @activity.defn(name="convert currency")
    async def __call__(self, amount: int, rate: float) -> float:
        return amount * rate


@workflow.defn
class Transfer:
    @workflow.run
    async def run(self, amount: int) -> str:
        taken = await workflow.execute_activity_method(
            Bank.withdraw, args=["a", amount], start_to_close_timeout=LONG
        )
        euros = await workflow.execute_activity_class(
            Converter, args=[taken, 0.5], start_to_close_timeout=LONG
        )
        return await workflow.execute_activity_method(
            Bank.deposit, args=["b", round(euros)], start_to_close_timeout=LONG
        )


BANK = Bank(fee=2)


@program(workflows=[Transfer], activities=[BANK.withdraw, BANK.deposit, Converter()])
async def activities_that_are_methods_and_objects(home: Home) -> None:
    assert await home.client.execute_workflow(Transfer.run, 10, **home.how()) == "b: 6"


@activity.defn
def in_thread(word: str) -> tuple[str, bool]:
    return word.upper(), threading.current_thread() is not threading.main_thread()


@activity.defn(runs_in="process")
def in_process(parent: int) -> bool:
    return os.getpid() != parent


@workflow.defn
class Elsewhere:
    @workflow.run
    async def run(self, worker: int) -> tuple[str, bool, bool]:
        word, is_thread = await workflow.execute_activity(in_thread, "shout", start_to_close_timeout=LONG)
        is_process = await workflow.execute_activity(in_process, worker, start_to_close_timeout=LONG)
        return word, is_thread, is_process


@program(workflows=[Elsewhere], activities=[in_thread, in_process])
async def threads_and_processes(home: Home) -> None:
    found = await home.client.execute_workflow(Elsewhere.run, os.getpid(), **home.how())
    assert found == ("SHOUT", True, True)


@activity.defn
async def third_time_lucky() -> int:
    attempt = activity.info().attempt
    if attempt < 3:
        raise ApplicationError("not yet", type="NotYet", category=ApplicationErrorCategory.BENIGN)
    return attempt


@activity.defn
async def asks_for_a_pause() -> int:
    if activity.info().attempt == 1:
        raise ApplicationError("later", type="NotYet", next_retry_delay=SOON)
    return activity.info().attempt


@workflow.defn
class Stubborn:
    @workflow.run
    async def run(self) -> tuple[int, int]:
        policy = RetryPolicy(initial_interval=SOON, backoff_coefficient=1.0, maximum_attempts=5)
        third = await workflow.execute_activity(
            third_time_lucky, start_to_close_timeout=LONG, retry_policy=policy
        )
        slow = RetryPolicy(initial_interval=timedelta(hours=1))
        second = await workflow.execute_activity(
            asks_for_a_pause, start_to_close_timeout=LONG, retry_policy=slow
        )
        return third, second


@program(workflows=[Stubborn], activities=[third_time_lucky, asks_for_a_pause])
async def retries_with_a_policy_and_a_delay_of_the_error(home: Home) -> None:
    assert await home.client.execute_workflow(Stubborn.run, **home.how()) == (3, 2)


@activity.defn
async def refuses(kind: str) -> None:
    if kind == "bug":
        raise ValueError("a plain error")
    raise ApplicationError("no", {"reason": kind}, type="Refused", non_retryable=kind == "final")


@workflow.defn
class Failing:
    @workflow.run
    async def run(self, kind: str) -> None:
        policy = RetryPolicy(
            initial_interval=SOON, maximum_attempts=2, non_retryable_error_types=["ValueError"]
        )
        await workflow.execute_activity(refuses, kind, start_to_close_timeout=LONG, retry_policy=policy)


@program(workflows=[Failing], activities=[refuses])
async def errors_with_their_causes(home: Home) -> None:
    kinds = {"bug": ("ValueError", ()), "final": ("Refused", ({"reason": "final"},))}
    kinds["often"] = ("Refused", ({"reason": "often"},))
    for kind, (name, details) in kinds.items():
        with pytest.raises(WorkflowFailureError) as failed:
            await home.client.execute_workflow(Failing.run, kind, **home.how(f"-{kind}"))
        middle = failed.value.cause
        assert isinstance(middle, ActivityError)
        assert middle.activity_type == "refuses"
        assert isinstance(middle.cause, ApplicationError)
        assert (middle.cause.type, middle.cause.details) == (name, details)


@activity.defn
async def counts_with_heartbeats(end: int) -> list[int]:
    done: list[int] = list(activity.info().heartbeat_details[0]) if activity.info().heartbeat_details else []
    for number in range(len(done), end):
        done.append(number)
        activity.heartbeat(done)
        if number == 1 and activity.info().attempt == 1:
            raise RuntimeError("the process was restarted")
    return [activity.info().attempt, *done]


@workflow.defn
class Resuming:
    @workflow.run
    async def run(self) -> list[int]:
        return await workflow.execute_activity(
            counts_with_heartbeats,
            4,
            start_to_close_timeout=LONG,
            heartbeat_timeout=timedelta(seconds=30),
            retry_policy=RetryPolicy(initial_interval=SOON),
        )


@program(workflows=[Resuming], activities=[counts_with_heartbeats])
async def an_activity_that_resumes_from_its_heartbeat(home: Home) -> None:
    assert await home.client.execute_workflow(Resuming.run, **home.how()) == [2, 0, 1, 2, 3]


@activity.defn
async def waits_for_cancellation() -> str:
    try:
        while True:
            activity.heartbeat()
            await asyncio.sleep(0.02)
    except asyncio.CancelledError:
        details = activity.cancellation_details()
        assert details is not None
        return f"cleaned up, requested: {details.cancel_requested}"


@activity.defn
async def clean_up() -> str:
    return "cleaned up"


@workflow.defn
class Cancellable:
    def __init__(self) -> None:
        self.has_begun = False

    @workflow.run
    async def run(self) -> str:
        handle = workflow.start_activity(
            waits_for_cancellation,
            start_to_close_timeout=LONG,
            heartbeat_timeout=timedelta(milliseconds=500),
            cancellation_type=workflow.ActivityCancellationType.WAIT_CANCELLATION_COMPLETED,
        )
        self.has_begun = True
        try:
            return await handle
        except asyncio.CancelledError:
            await workflow.execute_activity(clean_up, start_to_close_timeout=LONG)
            raise

    @workflow.query
    def begun(self) -> bool:
        return self.has_begun


@program(workflows=[Cancellable], activities=[waits_for_cancellation, clean_up])
async def a_cancelled_workflow_cleans_up(home: Home) -> None:
    handle = await home.client.start_workflow(Cancellable.run, **home.how())
    assert await handle.query(Cancellable.begun)
    await handle.cancel()
    with pytest.raises(WorkflowFailureError) as failed:
        await handle.result()
    assert isinstance(failed.value.cause, CancelledError)
    assert activity_types(await handle.fetch_history()) == ["waits_for_cancellation", "clean_up"]


@activity.defn
async def hangs() -> None:
    await asyncio.Event().wait()


@workflow.defn
class TimingOut:
    @workflow.run
    async def run(self) -> str:
        try:
            await workflow.execute_activity(
                hangs,
                start_to_close_timeout=timedelta(milliseconds=100),
                retry_policy=RetryPolicy(maximum_attempts=1),
            )
        except ActivityError as error:
            assert isinstance(error.cause, TimeoutError)
            return str(error.cause.type)
        return "no timeout"


@program(workflows=[TimingOut], activities=[hangs])
async def an_activity_that_times_out(home: Home) -> None:
    found = await home.client.execute_workflow(TimingOut.run, **home.how())
    assert found == TimeoutType.START_TO_CLOSE


@program(activities=[compose])
async def an_activity_without_a_workflow(home: Home) -> None:
    handle = await home.client.start_activity(
        compose, Letter("Hello", "you"), start_to_close_timeout=LONG, **home.how()
    )
    assert await handle.result() == "Hello, you!"
    assert (await handle.describe()).activity_id == home.name


@activity.defn(dynamic=True)
async def any_activity(args: Sequence[activity.RawValue]) -> str:
    words = [activity.payload_converter().from_payload(each.payload, str) for each in args]
    return f"{activity.info().activity_type}({', '.join(words)})"


@workflow.defn
class CallsUnknown:
    @workflow.run
    async def run(self) -> str:
        found: str = await workflow.execute_activity("whatever", args=["a", "b"], start_to_close_timeout=LONG)
        return found


@program(workflows=[CallsUnknown], activities=[any_activity])
async def a_dynamic_activity(home: Home) -> None:
    assert await home.client.execute_workflow(CallsUnknown.run, **home.how()) == "whatever(a, b)"


@activity.defn
async def tells_its_workflow(word: str) -> None:
    info = activity.info()
    assert info.in_workflow
    assert info.workflow_id is not None
    assert info.workflow_namespace is not None
    handle = activity.client().get_workflow_handle_for(Told.run, info.workflow_id)
    await handle.signal(Told.tell, word)


@workflow.defn
class Told:
    def __init__(self) -> None:
        self.words: list[str] = []

    @workflow.run
    async def run(self) -> list[str]:
        await workflow.execute_activity(tells_its_workflow, "psst", start_to_close_timeout=LONG)
        await workflow.wait_condition(lambda: bool(self.words))
        return self.words

    @workflow.signal
    def tell(self, word: str) -> None:
        self.words.append(word)


@program(workflows=[Told], activities=[tells_its_workflow])
async def an_activity_that_signals_its_workflow(home: Home) -> None:
    assert await home.client.execute_workflow(Told.run, **home.how()) == ["psst"]
