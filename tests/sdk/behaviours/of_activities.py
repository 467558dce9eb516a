"""Behaviours: activities."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

from penstock import Priority, RetryPolicy, workflow
from penstock.sdk.failures import ActivityError, ApplicationError, CancelledError, TimeoutError  # noqa: A004
from tests.sdk.behaviours import acts
from tests.sdk.behaviours.scene import Scene, behaviour

SHORT = timedelta(milliseconds=200)
QUICK = RetryPolicy(initial_interval=timedelta(milliseconds=20), backoff_coefficient=1)
ONCE = RetryPolicy(maximum_attempts=1)


def _application(error: ActivityError) -> ApplicationError:
    assert isinstance(error.cause, ApplicationError)
    return error.cause


@workflow.defn
class Sequence:
    @workflow.run
    async def run(self, first: int) -> int:
        total = first
        for number in range(3):
            total = await workflow.execute_activity(acts.add, args=[total, number])
        return total


@behaviour("activities in sequence hand their results on")
async def _(scene: Scene) -> None:
    assert await scene.run(Sequence.run, 10) == 13


@workflow.defn
class Parallel:
    @workflow.run
    async def run(self, count: int) -> list[int]:
        started = [workflow.execute_activity(acts.pause, args=[0.05, n]) for n in range(count)]
        return await asyncio.gather(*started)


@behaviour("activities in parallel give their results in the order of the calls")
async def _(scene: Scene) -> None:
    assert await scene.run(Parallel.run, 8) == list(range(8))


@workflow.defn
class OneMemberFails:
    @workflow.run
    async def run(self) -> list[str]:
        found = await asyncio.gather(
            workflow.execute_activity(acts.echo, "a"),
            workflow.execute_activity(acts.fail, "b"),
            workflow.execute_activity(acts.echo, "c"),
            return_exceptions=True,
        )
        return [str(each.cause) if isinstance(each, ActivityError) else str(each) for each in found]


@behaviour("a member that fails leaves the other members of a gather alone")
async def _(scene: Scene) -> None:
    assert await scene.run(OneMemberFails.run) == ["a", "Broken: b", "c"]


@workflow.defn
class Retried:
    @workflow.run
    async def run(self) -> int:
        return await workflow.execute_activity(acts.fail_until, 3, retry_policy=QUICK)


@behaviour("an activity that fails is tried again until it succeeds")
async def _(scene: Scene) -> None:
    assert await scene.run(Retried.run) == 3


@workflow.defn
class TriedTwice:
    @workflow.run
    async def run(self) -> list[Any]:
        policy = RetryPolicy(
            initial_interval=timedelta(milliseconds=20), backoff_coefficient=1, maximum_attempts=2
        )
        try:
            await workflow.execute_activity(acts.fail_always, "never", retry_policy=policy)
        except ActivityError as error:
            return [error.activity_type, error.attempt, error.retry_state]
        return []


@behaviour("an activity fails for good when its attempts are used up")
async def _(scene: Scene) -> None:
    assert await scene.run(TriedTwice.run) == ["fail_always", 2, "maximum_attempts_reached"]


@workflow.defn
class NonRetryable:
    @workflow.run
    async def run(self) -> list[Any]:
        told = []
        by_type = RetryPolicy(non_retryable_error_types=["RuntimeError"])
        calls = [
            workflow.start_activity(acts.fail, "no"),
            workflow.start_activity(acts.fail_always, "no", retry_policy=by_type),
        ]
        for call in calls:
            try:
                await call
            except ActivityError as error:
                cause = _application(error)
                told.append([cause.type, cause.message, list(cause.details)])
        return told


@behaviour("an error that is not retryable, by itself or by its type, fails an activity at once")
async def _(scene: Scene) -> None:
    assert await scene.run(NonRetryable.run) == [
        ["Broken", "no", ["details", 7]],
        ["RuntimeError", "no", []],
    ]


@workflow.defn
class Causes:
    @workflow.run
    async def run(self) -> list[str]:
        try:
            await workflow.execute_activity(
                acts.fail_with_cause, retry_policy=RetryPolicy(non_retryable_error_types=["ValueError"])
            )
        except ActivityError as error:
            told, at = [], error.cause
            while isinstance(at, ApplicationError):
                told.append(f"{at.type} {at.message}")
                at = at.cause
            return told
        return []


@behaviour("an error of an activity arrives with its causes")
async def _(scene: Scene) -> None:
    assert await scene.run(Causes.run) == ["ValueError shallow", "KeyError 'deep'"]


async def _clock_that_ran_out(call: Any) -> str | None:
    try:
        await call
    except ActivityError as error:
        return error.cause.kind if isinstance(error.cause, TimeoutError) else str(error.cause)
    return "none"


@workflow.defn
class Clocks:
    @workflow.run
    async def run(self) -> list[str | None]:
        hang = acts.hang
        told = await asyncio.gather(
            _clock_that_ran_out(
                workflow.execute_activity(hang, start_to_close_timeout=SHORT, retry_policy=ONCE)
            ),
            _clock_that_ran_out(
                workflow.execute_activity(hang, schedule_to_start_timeout=SHORT, task_queue="nobody")
            ),
            _clock_that_ran_out(workflow.execute_activity(hang, schedule_to_close_timeout=SHORT)),
            _clock_that_ran_out(workflow.execute_activity(hang, heartbeat_timeout=SHORT, retry_policy=ONCE)),
        )
        return list(told)


@behaviour("each clock of an activity ends it and says which one it was")
async def _(scene: Scene) -> None:
    told = await scene.run(Clocks.run)
    assert told == ["start_to_close", "schedule_to_start", "schedule_to_close", "heartbeat"]


@workflow.defn
class Resumed:
    @workflow.run
    async def run(self) -> list[Any]:
        return await workflow.execute_activity(
            acts.beat_then_resume, 5, heartbeat_timeout=timedelta(seconds=5), retry_policy=QUICK
        )


@behaviour("an activity goes on from the details that its last attempt beat with")
async def _(scene: Scene) -> None:
    assert await scene.run(Resumed.run) == [5]


@workflow.defn
class CancelsActivity:
    def __init__(self) -> None:
        self.enough = False

    @workflow.run
    async def run(self, note: str) -> str:
        work = workflow.start_activity(
            acts.work_until_cancelled, note, heartbeat_timeout=timedelta(seconds=2), retry_policy=QUICK
        )
        await workflow.wait_condition(lambda: self.enough)
        work.cancel()
        try:
            await work
        except ActivityError as error:
            return type(error.cause).__name__
        return "not cancelled"

    @workflow.signal
    def stop(self) -> None:
        self.enough = True


@behaviour("an activity that is cancelled in the middle learns of it by its heartbeats")
async def _(scene: Scene) -> None:
    note = scene.note()
    handle = await scene.start(CancelsActivity.run, note)
    await scene.until_written(note)
    await handle.signal(CancelsActivity.stop)
    assert await handle.result() == "CancelledError"
    if not scene.is_killed:
        while await scene.until_written(note) != "cancelled":
            await asyncio.sleep(0.03)


@workflow.defn
class StopsActivity:
    def __init__(self) -> None:
        self.enough = False

    @workflow.run
    async def run(self, note: str) -> str:
        work = workflow.start_activity(
            acts.work_until_cancelled,
            note,
            heartbeat_timeout=timedelta(seconds=2),
            retry_policy=QUICK,
            cancellation_type=workflow.ActivityCancellationType.WAIT_CANCELLATION_COMPLETED,
        )
        await workflow.wait_condition(lambda: self.enough)
        work.cancel()
        await work
        return "not cancelled"

    @workflow.signal
    def stop(self) -> None:
        self.enough = True


@behaviour("an activity whose cancellation is waited for has stopped before its workflow fails with it")
async def _(scene: Scene) -> None:
    note = scene.note()
    handle = await scene.start(StopsActivity.run, note)
    await scene.until_written(note)
    await handle.signal(StopsActivity.stop)
    failure = await scene.failure_of(handle)
    assert isinstance(failure, ActivityError)
    assert isinstance(failure.cause, CancelledError)
    assert (await scene.event_types(handle)).count("ActivityCancelled") == 1
    if not scene.is_killed:
        assert await scene.until_written(note) == "cancelled"


@workflow.defn
class CancelsBeforeStart:
    @workflow.run
    async def run(self) -> str:
        unasked = workflow.start_activity(acts.echo, "never asked for")
        unasked.cancel()
        waiting = workflow.start_activity(acts.echo, "never taken", task_queue="nobody")
        await asyncio.sleep(0.05)
        waiting.cancel()
        return await workflow.execute_activity(acts.echo, "done")


@behaviour("an activity that is given up before anybody took it never runs")
async def _(scene: Scene) -> None:
    handle = await scene.start(CancelsBeforeStart.run)
    assert await handle.result() == "done"
    types = await scene.event_types(handle)
    assert types.count("ActivityScheduled") == 2
    assert types.count("StepCancelRequested") == 1


@workflow.defn
class Abandons:
    @workflow.run
    async def run(self, note: str) -> str:
        work = workflow.start_activity(
            acts.jot, args=[note, "written"], cancellation_type=workflow.ActivityCancellationType.ABANDON
        )
        await asyncio.sleep(0.01)
        work.cancel()
        return "gone on"


@behaviour("an activity that is abandoned goes on unheeded")
async def _(scene: Scene) -> None:
    note = scene.note()
    handle = await scene.start(Abandons.run, note)
    assert await handle.result() == "gone on"
    types = await scene.event_types(handle)
    assert "StepCancelRequested" not in types
    # A lease that ended before its worker could begin is a failed attempt, and a closed run has no further ones.
    if not scene.is_killed and "ActivityRetryScheduled" not in types:
        await scene.until_written(note)


@workflow.defn
class Saga:
    @workflow.run
    async def run(self, note: str, breaks: bool) -> str:
        undo: list[str] = []
        try:
            for step in ("flight", "hotel", "car"):
                await workflow.execute_activity(acts.jot, args=[note, f"book-{step}"])
                undo.append(step)
            if breaks:
                await workflow.execute_activity(acts.fail, "card refused")
        except ActivityError:
            for step in reversed(undo):
                await workflow.execute_activity(acts.jot, args=[note, f"cancel-{step}"])
            raise
        return "booked"


@behaviour("a saga undoes what was done, in reverse, and fails with what broke it")
async def _(scene: Scene) -> None:
    note = scene.note()
    failure = await scene.failure(Saga.run, note, True)
    assert isinstance(failure, ActivityError)
    assert isinstance(failure.cause, ApplicationError)
    assert failure.cause.message == "card refused"
    written = (await scene.until_written(note)).split()
    assert written == [
        "book-flight",
        "book-hotel",
        "book-car",
        "cancel-car",
        "cancel-hotel",
        "cancel-flight",
    ]


@workflow.defn
class Local:
    @workflow.run
    async def run(self) -> list[Any]:
        first = await workflow.execute_local_activity(acts.add, args=[1, 2])
        second = await workflow.execute_local_activity(acts.fail_until, 3, retry_policy=QUICK)
        both = await asyncio.gather(
            workflow.execute_local_activity(acts.echo, "x"),
            workflow.execute_activity(acts.echo, "y"),
            workflow.execute_local_activity(acts.pause, args=[0.02, "z"]),
        )
        try:
            await workflow.execute_local_activity(acts.fail, "local")
        except ActivityError as error:
            cause = _application(error)
            return [first, second, both, cause.type, cause.message]
        return []


@behaviour("local activities succeed, are tried again, and fail within the workflow task")
async def _(scene: Scene) -> None:
    assert await scene.run(Local.run) == [3, 3, ["x", "y", "z"], "Broken", "local"]


@workflow.defn
class LocalAndTimers:
    @workflow.run
    async def run(self) -> list[Any]:
        async def count(name: str) -> list[str]:
            told = []
            for number in range(3):
                told.append(await workflow.execute_local_activity(acts.echo, f"{name}{number}"))
                await asyncio.sleep(0.02)
            return told

        return list(await asyncio.gather(count("a"), count("b")))


@behaviour("local activities of tasks side by side are recorded in the order in which they ended")
async def _(scene: Scene) -> None:
    assert await scene.run(LocalAndTimers.run) == [["a0", "a1", "a2"], ["b0", "b1", "b2"]]


@workflow.defn
class Inherits:
    @workflow.run
    async def run(self) -> list[Any]:
        told = await asyncio.gather(
            workflow.execute_activity(acts.about_me),
            workflow.execute_activity(acts.about_me, priority=Priority(priority_key=5)),
            workflow.execute_child_workflow(InheritsToo.run),
        )
        return list(told)


@workflow.defn
class InheritsToo:
    @workflow.run
    async def run(self) -> Any:
        return await workflow.execute_activity(acts.about_me)


@behaviour("priority and fairness are inherited by activities and children, field by field")
async def _(scene: Scene) -> None:
    mine = Priority(priority_key=2, fairness_key="tenant", fairness_weight=2.5)
    told = {"priority_key": 2, "fairness_key": "tenant"}
    assert await scene.run(Inherits.run, priority=mine) == [told, told | {"priority_key": 5}, told]


@workflow.defn
class CancelledWhileWorking:
    @workflow.run
    async def run(self, note: str) -> str:
        try:
            await workflow.execute_activity(
                acts.work_until_cancelled, note, heartbeat_timeout=timedelta(seconds=2), retry_policy=QUICK
            )
        except (asyncio.CancelledError, CancelledError):
            await asyncio.shield(workflow.execute_activity(acts.jot, args=[note + "-after", "cleaned"]))
            raise
        return "never"


@behaviour("a cancel of the run reaches its activity, and clean-up runs activities after it")
async def _(scene: Scene) -> None:
    note = scene.note()
    handle = await scene.start(CancelledWhileWorking.run, note)
    await scene.until_written(note)
    await handle.cancel("enough")
    assert isinstance(await scene.failure_of(handle), CancelledError)
    assert await scene.until_written(note + "-after") == "cleaned"
