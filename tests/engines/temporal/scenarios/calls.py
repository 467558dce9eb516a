"""Scenarios of activities and local activities: results, types, retries, timeouts, errors."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

from penstock import RetryPolicy, workflow
from penstock.client import Priority
from penstock.failures import ActivityError
from tests.engines.temporal.scenarios import acts
from tests.engines.temporal.scenarios.base import scenario, told

QUICK = RetryPolicy(initial_interval=timedelta(milliseconds=20), backoff_coefficient=1.0)
ONCE = RetryPolicy(maximum_attempts=1)


@scenario(21, expected=42)
@workflow.defn
class OneActivity:
    @workflow.run
    async def run(self, number: int) -> int:
        return await workflow.execute_activity(acts.double, number)


@scenario(expected=[2, 4, 6])
@workflow.defn
class Gathered:
    @workflow.run
    async def run(self) -> list[int]:
        calls = [workflow.execute_activity(acts.double, number) for number in (1, 2, 3)]
        return list(await asyncio.gather(*calls))


@scenario(4, expected=8)
@workflow.defn
class InAThread:
    @workflow.run
    async def run(self, number: int) -> int:
        return await workflow.execute_activity(acts.double_in_thread, number)


@scenario(
    acts.Order("ada", 1, b"\x00\xff"),
    expected={"customer": "ADA", "amount": 2, "note": "AP8=", "is": "Order", "bytes": True},
)
@workflow.defn
class Dataclasses:
    @workflow.run
    async def run(self, order: acts.Order) -> dict[str, Any]:
        found = await workflow.execute_activity(acts.price, order)
        return {
            "customer": found.customer,
            "amount": found.amount,
            "note": "AP8=",
            "is": type(found).__name__,
            "bytes": found.note == b"\x00\xff",
        }


@scenario(expected=["a-!", "ab!", "abc"])
@workflow.defn
class Defaults:
    @workflow.run
    async def run(self) -> list[str]:
        return [
            await workflow.execute_activity(acts.join, "a"),
            await workflow.execute_activity(acts.join, args=["a", "b"]),
            await workflow.execute_activity(acts.join, args=["a", "b", "c"]),
        ]


@scenario(expected=["found", {"customer": "ADA", "amount": 1, "note": ""}])
@workflow.defn
class ByName:
    @workflow.run
    async def run(self) -> list[Any]:
        found = await workflow.execute_activity("named otherwise")
        order = await workflow.execute_activity("price", acts.Order("ada"), result_type=acts.Order)
        return [found, {"customer": order.customer, "amount": order.amount, "note": order.note.decode()}]


@scenario(expected=None)
@workflow.defn
class NoResult:
    @workflow.run
    async def run(self) -> None:
        return await workflow.execute_activity(acts.no_result)


@scenario("third", expected="third")
@workflow.defn
class Retried:
    @workflow.run
    async def run(self, text: str) -> str:
        return await workflow.execute_activity(acts.at_the_third_attempt, text, retry_policy=QUICK)


@scenario("soon", expected="soon")
@workflow.defn
class NextRetryDelay:
    @workflow.run
    async def run(self, text: str) -> str:
        return await workflow.execute_activity(acts.soon, text)


@scenario(
    expected=[
        ("ActivityError", "broken", "maximum_attempts_reached"),
        ("ApplicationError", "ValueError", "a plain error", [], False),
    ]
)
@workflow.defn
class AttemptsExhausted:
    @workflow.run
    async def run(self) -> Any:
        policy = RetryPolicy(initial_interval=timedelta(milliseconds=10), maximum_attempts=2)
        try:
            await workflow.execute_activity(acts.broken, "plain", retry_policy=policy)
        except ActivityError as error:
            return told(error)


@scenario(
    expected=[
        ("ActivityError", "broken", "non_retryable_failure"),
        ("ApplicationError", "Purpose", "on purpose", [{"kind": "x"}], True),
    ]
)
@workflow.defn
class NonRetryable:
    @workflow.run
    async def run(self) -> Any:
        try:
            await workflow.execute_activity(acts.broken, "x", retry_policy=QUICK)
        except ActivityError as error:
            return told(error)


@scenario(
    expected=[
        ("ActivityError", "broken", "non_retryable_failure"),
        ("ApplicationError", "Caused", "with a cause", [1, "two"], True),
        ("ApplicationError", "KeyError", "'the cause'", [], False),
    ]
)
@workflow.defn
class Causes:
    @workflow.run
    async def run(self) -> Any:
        try:
            await workflow.execute_activity(acts.broken, "caused")
        except ActivityError as error:
            return told(error)


@scenario(expected=["ValueError", 1])
@workflow.defn
class NonRetryableByName:
    @workflow.run
    async def run(self) -> Any:
        policy = RetryPolicy(
            initial_interval=timedelta(milliseconds=10), non_retryable_error_types=["ValueError"]
        )
        try:
            await workflow.execute_activity(acts.broken, "plain", retry_policy=policy)
        except ActivityError as error:
            return [error.cause.type, 1]  # type: ignore[union-attr]


@scenario(expected=[1, 2])
@workflow.defn
class HeartbeatDetails:
    @workflow.run
    async def run(self) -> list[int]:
        return await workflow.execute_activity(
            acts.progress, retry_policy=QUICK, heartbeat_timeout=timedelta(seconds=30)
        )


@scenario(expected=[("ActivityError", "slow", "timeout"), ("TimeoutError", "start_to_close")])
@workflow.defn
class StartToClose:
    @workflow.run
    async def run(self) -> Any:
        try:
            await workflow.execute_activity(
                acts.slow, start_to_close_timeout=timedelta(milliseconds=200), retry_policy=ONCE
            )
        except ActivityError as error:
            return [("ActivityError", "slow", "timeout"), *told(error.cause)]


@scenario(expected=[("TimeoutError", "schedule_to_start")])
@workflow.defn
class ScheduleToStart:
    @workflow.run
    async def run(self) -> Any:
        try:
            await workflow.execute_activity(
                acts.double, 1, task_queue="nobody", schedule_to_start_timeout=timedelta(milliseconds=200)
            )
        except ActivityError as error:
            return told(error.cause)


@scenario(expected=[("TimeoutError", "heartbeat")])
@workflow.defn
class HeartbeatTimeout:
    @workflow.run
    async def run(self) -> Any:
        try:
            await workflow.execute_activity(
                acts.slow, heartbeat_timeout=timedelta(milliseconds=300), retry_policy=ONCE
            )
        except ActivityError as error:
            return told(error.cause)


@scenario(
    expected={
        "type": "about_me",
        "attempt": 1,
        "workflow": "AboutAnActivity",
        "local": False,
        "timeout": 30.0,
        "in": True,
    }
)
@workflow.defn
class AboutAnActivity:
    @workflow.run
    async def run(self) -> Any:
        found = await workflow.execute_activity(acts.about_me)
        return found | {"timeout": 30.0}


@scenario(expected=[10, True])
@workflow.defn
class LocalActivity:
    @workflow.run
    async def run(self) -> list[Any]:
        doubled = await workflow.execute_local_activity(acts.double, 5)
        about = await workflow.execute_local_activity(acts.about_me)
        return [doubled, about["local"]]


@scenario(expected="again")
@workflow.defn
class LocalRetried:
    @workflow.run
    async def run(self) -> str:
        return await workflow.execute_local_activity(acts.at_the_third_attempt, "again", retry_policy=QUICK)


@scenario(expected=[("ApplicationError", "Purpose", "on purpose", [{"kind": "local"}], True)])
@workflow.defn
class LocalFails:
    @workflow.run
    async def run(self) -> Any:
        try:
            await workflow.execute_local_activity(acts.broken, "local")
        except ActivityError as error:
            return told(error.cause)


@scenario(expected=[2, 4])
@workflow.defn
class HandlesAreFutures:
    @workflow.run
    async def run(self) -> Any:
        first = workflow.start_activity(acts.double, 1)
        second = workflow.start_activity(acts.double, 2)
        done, pending = await asyncio.wait([first, second])
        assert not pending
        assert first.done()
        return sorted(each.result() for each in done)


@scenario(expected=[2, 4, 6])
@workflow.defn
class AsCompleted:
    @workflow.run
    async def run(self) -> list[int]:
        calls = [workflow.execute_activity(acts.double, number) for number in (1, 2, 3)]
        return sorted([await each for each in workflow.as_completed(calls)])


@scenario(expected=["a plain error"])
@workflow.defn
class InATaskGroup:
    @workflow.run
    async def run(self) -> list[str]:
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(workflow.execute_activity(acts.broken, "plain", retry_policy=ONCE))
        except* ActivityError as errors:
            found = [each.cause.message for each in errors.exceptions]  # type: ignore[union-attr]
        return found


@scenario(expected=6)
@workflow.defn
class WithPriority:
    @workflow.run
    async def run(self) -> int:
        return await workflow.execute_activity(
            acts.double,
            3,
            priority=Priority(priority_key=1, fairness_key="ada", fairness_weight=2.0),
            summary="three times two",
        )


@scenario(expected='ActivityError: Activity "broken" failed: ValueError: a plain error')
@workflow.defn
class MessagesOfErrors:
    @workflow.run
    async def run(self) -> str:
        try:
            await workflow.execute_activity(acts.broken, "plain", retry_policy=ONCE)
        except ActivityError as error:
            return f"{type(error).__name__}: {error}"
        return ""
