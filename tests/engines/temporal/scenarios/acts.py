"""The activities of the scenarios."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from penstock import activity
from penstock.failures import ApplicationError, CancelledError
from tests.engines.temporal.scenarios.base import JOURNAL


@dataclass
class Order:
    customer: str
    amount: int = 0
    note: bytes = b""


@activity.defn
async def double(number: int) -> int:
    JOURNAL.note("double", number)
    return 2 * number


@activity.defn
def double_in_thread(number: int) -> int:
    JOURNAL.note("double_in_thread", number)
    return 2 * number


@activity.defn
async def price(order: Order) -> Order:
    JOURNAL.note("price", order.customer)
    return Order(order.customer.upper(), order.amount + 1, order.note)


@activity.defn
async def join(first: str, second: str = "-", third: str = "!") -> str:
    JOURNAL.note("join", first, second, third)
    return first + second + third


class Scaled:
    """An activity that is a class whose instances are called."""

    def __init__(self, by: int) -> None:
        self.by = by

    @activity.defn(name="scaled")
    async def __call__(self, number: int) -> list[Any]:
        JOURNAL.note("scaled", number)
        return [number * self.by, activity.is_paused()]


@activity.defn(name="named otherwise")
async def by_another_name() -> str:
    JOURNAL.note("named otherwise")
    return "found"


@activity.defn
async def broken(kind: str) -> None:
    JOURNAL.note("broken", kind)
    match kind:
        case "plain":
            raise ValueError("a plain error")
        case "caused":
            try:
                raise KeyError("the cause")
            except KeyError as error:
                raise ApplicationError("with a cause", 1, "two", type="Caused", non_retryable=True) from error
        case _:
            raise ApplicationError("on purpose", {"kind": kind}, type="Purpose", non_retryable=True)


@activity.defn
async def at_the_third_attempt(text: str) -> str:
    JOURNAL.note("at_the_third_attempt", text)
    if activity.info().attempt < 3:
        raise RuntimeError(f"attempt {activity.info().attempt}")
    return text


@activity.defn
async def soon(text: str) -> str:
    JOURNAL.note("soon", text)
    if activity.info().attempt == 1:
        raise ApplicationError("not yet", next_retry_delay=timedelta(milliseconds=10))
    return text


@activity.defn
async def until_cancelled(answer: str) -> str:
    """Runs until it is cancelled; `answer` says what it does then."""
    JOURNAL.note("until_cancelled", answer)
    try:
        while True:
            activity.heartbeat("alive")
            await JOURNAL.pause(0.02)
    except asyncio.CancelledError:
        if answer == "returns":
            return "cleaned up"
        raise


@activity.defn
def thread_until_cancelled() -> str:
    JOURNAL.note("thread_until_cancelled")
    try:
        while True:
            activity.heartbeat()
            time.sleep(0.02)
    except CancelledError:
        JOURNAL.note("thread was cancelled")
        raise


@activity.defn
async def progress() -> list[int]:
    """Fails once after a heartbeat; the next attempt returns what it finds."""
    JOURNAL.note("progress")
    if activity.info().attempt == 1:
        activity.heartbeat(1, 2)
        raise RuntimeError("after a heartbeat")
    return list(activity.info().heartbeat_details)


@activity.defn
async def slow() -> None:
    JOURNAL.note("slow")
    await JOURNAL.pause(30)


@activity.defn(start_to_close_timeout=timedelta(seconds=30))
async def about_me() -> dict[str, object]:
    info = activity.info()
    JOURNAL.note("about_me")
    return {
        "type": info.activity_type,
        "attempt": info.attempt,
        "workflow": info.workflow_type,
        "local": info.is_local,
        "timeout": info.start_to_close_timeout,
        "in": activity.in_activity(),
    }


@activity.defn
async def no_result() -> None:
    JOURNAL.note("no_result")


@activity.defn
async def raises_a(kind: str) -> None:
    JOURNAL.note("raises_a", kind)
    match kind:
        case "cancellation":
            raise asyncio.CancelledError
        case "our cancellation":
            raise CancelledError("of its own accord")
        case "group":
            raise ExceptionGroup("several", [ValueError("one"), KeyError("two")])
        case _:
            try:
                try:
                    raise FileNotFoundError(2, "inner")
                except OSError as error:
                    raise ApplicationError("middle", {"a": [1]}, type="Middle") from error
            except ApplicationError as error:
                raise RuntimeError("outer") from error


@activity.defn
async def context() -> list[object]:
    activity.logger.info("asked")
    JOURNAL.note("context")
    found: list[object] = [activity.in_activity(), activity.is_cancelled(), activity.is_worker_shutdown()]
    return [*found, activity.info().workflow_type]


@activity.defn
async def throttled_once() -> str:
    """Is throttled once. Engines number the next attempt differently, so it is noted only then."""
    if JOURNAL.is_first(activity.info().workflow_id or ""):
        raise activity.throttled(timedelta(milliseconds=20))
    return "went through"


ALL: list[Any] = [
    Scaled(10),
    double,
    double_in_thread,
    price,
    join,
    by_another_name,
    broken,
    at_the_third_attempt,
    soon,
    until_cancelled,
    thread_until_cancelled,
    progress,
    slow,
    about_me,
    no_result,
    raises_a,
    context,
    throttled_once,
]
