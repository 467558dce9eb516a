"""Scenarios of cancellation: of handles, of tasks, and of the workflow at each kind of await."""

from __future__ import annotations

import asyncio
from typing import Any

from penstock import RetryPolicy, workflow
from penstock.failures import ActivityError, ChildWorkflowError, WorkflowFailureError
from tests.engines.temporal.scenarios import acts
from tests.engines.temporal.scenarios.base import World, result, scenario, told
from tests.support.patience import PATIENCE, PATIENCE_S

BEAT = PATIENCE


async def cancel_when_it_runs(world: World) -> Any:
    """Cancel once the activity runs, and return the outcome."""
    await world.began()
    return await cancel(world)


async def cancel_when_it_waits(world: World) -> Any:
    await world.until("waits", True)
    return await cancel(world)


async def cancel(world: World) -> Any:
    await world.handle.cancel()
    try:
        return await world.handle.result(timeout=PATIENCE_S)
    except WorkflowFailureError as error:
        return told(error.cause)


class Waits:
    """Answers whether the code has come to its await."""

    def __init__(self) -> None:
        self.now = False

    @workflow.query
    def waits(self) -> bool:
        return self.now


@scenario(expected=["ActivityError", "CancelledError"])
@workflow.defn
class CancelAHandle:
    @workflow.run
    async def run(self) -> Any:
        handle = workflow.start_activity(acts.until_cancelled, "raises", heartbeat_timeout=BEAT)
        await workflow.sleep(0.1)
        handle.cancel()
        try:
            await handle
        except ActivityError as error:
            return [type(error).__name__, type(error.cause).__name__]


@scenario(expected="cleaned up")
@workflow.defn
class CancelAndWait:
    @workflow.run
    async def run(self) -> Any:
        handle = workflow.start_activity(
            acts.until_cancelled,
            "returns",
            heartbeat_timeout=BEAT,
            cancellation_type=workflow.ActivityCancellationType.WAIT_CANCELLATION_COMPLETED,
        )
        await workflow.sleep(0.2)
        handle.cancel()
        return await handle


@scenario(expected=["ActivityError", "CancelledError"])
@workflow.defn
class CancelAndWaitForTheEnd:
    @workflow.run
    async def run(self) -> Any:
        handle = workflow.start_activity(
            acts.until_cancelled,
            "raises",
            heartbeat_timeout=BEAT,
            cancellation_type=workflow.ActivityCancellationType.WAIT_CANCELLATION_COMPLETED,
        )
        await workflow.sleep(0.2)
        handle.cancel()
        try:
            await handle
        except ActivityError as error:
            return [type(error).__name__, type(error.cause).__name__]


@scenario(expected=["ActivityError", "CancelledError"])
@workflow.defn
class CancelAndAbandon:
    @workflow.run
    async def run(self) -> Any:
        handle = workflow.start_activity(
            acts.until_cancelled,
            "raises",
            heartbeat_timeout=BEAT,
            retry_policy=RetryPolicy(maximum_attempts=1),
            cancellation_type=workflow.ActivityCancellationType.ABANDON,
        )
        await workflow.sleep(0.1)
        handle.cancel()
        try:
            await handle
        except ActivityError as error:
            return [type(error).__name__, type(error.cause).__name__]


@scenario(expected="timed out")
@workflow.defn
class TimeoutAroundAnActivity:
    @workflow.run
    async def run(self) -> str:
        try:
            async with asyncio.timeout(0.1):
                await workflow.execute_activity(acts.until_cancelled, "raises", heartbeat_timeout=BEAT)
        except TimeoutError:
            return "timed out"
        return "not"


@scenario(expected="timed out")
@workflow.defn
class WaitForAnActivity:
    @workflow.run
    async def run(self) -> str:
        call = workflow.execute_activity(acts.until_cancelled, "raises", heartbeat_timeout=BEAT)
        try:
            await asyncio.wait_for(call, 0.1)
        except TimeoutError:
            return "timed out"
        return "not"


@scenario(expected=["CancelledError", True])
@workflow.defn
class CancelATask:
    @workflow.run
    async def run(self) -> Any:
        task = asyncio.create_task(
            workflow.execute_activity(acts.until_cancelled, "raises", heartbeat_timeout=BEAT)
        )
        await workflow.sleep(0.1)
        task.cancel()
        try:
            await task
        except asyncio.CancelledError:
            return ["CancelledError", task.cancelled()]


@scenario(expected=["shielded", 4])
@workflow.defn
class Shielded:
    @workflow.run
    async def run(self) -> Any:
        handle = workflow.start_activity(acts.double, 2)
        waiting = asyncio.create_task(_shielded(handle))
        await asyncio.sleep(0)
        waiting.cancel()
        try:
            await waiting
        except asyncio.CancelledError:
            return ["shielded", await handle]


async def _shielded(handle: Any) -> Any:
    return await asyncio.shield(handle)


@scenario(expected=[("CancelledError",)], drive=cancel_when_it_runs)
@workflow.defn
class CancelledAtAnActivity:
    @workflow.run
    async def run(self) -> Any:
        return await workflow.execute_activity(acts.until_cancelled, "raises", heartbeat_timeout=BEAT)


@scenario(expected="cleaned up", drive=cancel_when_it_runs)
@workflow.defn
class CleansUp:
    @workflow.run
    async def run(self) -> Any:
        try:
            await workflow.execute_activity(acts.until_cancelled, "raises", heartbeat_timeout=BEAT)
        except asyncio.CancelledError:
            doubled = await workflow.execute_activity(acts.double, 1)
            return "cleaned up" if doubled == 2 else "not"


@scenario(expected=[("CancelledError",)], drive=cancel_when_it_waits)
@workflow.defn
class CancelledAtASleep(Waits):
    @workflow.run
    async def run(self) -> Any:
        self.now = True
        await workflow.sleep(3600)


@scenario(expected=[("CancelledError",)], drive=cancel_when_it_waits)
@workflow.defn
class CancelledAtACondition(Waits):
    @workflow.run
    async def run(self) -> Any:
        self.now = True
        await workflow.wait_condition(lambda: False)


@scenario(expected=[("CancelledError",)], drive=cancel_when_it_waits)
@workflow.defn
class CancelledAtATimedCondition(Waits):
    @workflow.run
    async def run(self) -> Any:
        self.now = True
        await workflow.wait_condition(lambda: False, timeout=3600)


@scenario(expected=[("CancelledError",)], drive=cancel_when_it_runs)
@workflow.defn
class CancelledAtAGather:
    @workflow.run
    async def run(self) -> Any:
        return await asyncio.gather(
            workflow.execute_activity(acts.until_cancelled, "raises", heartbeat_timeout=BEAT),
            workflow.sleep(3600),
        )


@scenario(expected=[("CancelledError",)], drive=cancel_when_it_runs)
@workflow.defn
class CancelledAtATaskGroup:
    @workflow.run
    async def run(self) -> Any:
        async with asyncio.TaskGroup() as group:
            group.create_task(
                workflow.execute_activity(acts.until_cancelled, "raises", heartbeat_timeout=BEAT)
            )
            group.create_task(workflow.sleep(3600))


@scenario(expected=[("CancelledError",)], drive=cancel_when_it_waits)
@workflow.defn
class CancelledAtAFuture(Waits):
    @workflow.run
    async def run(self) -> Any:
        self.now = True
        await asyncio.get_running_loop().create_future()


@scenario(expected=[("CancelledError",)], drive=cancel_when_it_waits)
@workflow.defn
class CancelledAtALock(Waits):
    @workflow.run
    async def run(self) -> Any:
        lock = asyncio.Lock()
        await lock.acquire()
        self.now = True
        await lock.acquire()


@workflow.defn
class Sleeper:
    @workflow.run
    async def run(self) -> str:
        await workflow.sleep(3600)
        return "slept"


@scenario(expected=[("CancelledError",)], drive=cancel_when_it_waits)
@workflow.defn
class CancelledAtAChild(Waits):
    @workflow.run
    async def run(self) -> Any:
        child = await workflow.start_child_workflow(Sleeper, id=f"{workflow.info().workflow_id}/child")
        await workflow.sleep(0.1)
        self.now = True
        return await child


@scenario(expected=["ChildWorkflowError", "CancelledError"])
@workflow.defn
class CancelAChild:
    @workflow.run
    async def run(self) -> Any:
        child = await workflow.start_child_workflow(Sleeper, id=f"{workflow.info().workflow_id}/child")
        await workflow.sleep(0.1)
        child.cancel()
        try:
            await child
        except ChildWorkflowError as error:
            return [type(error).__name__, type(error.cause).__name__]


@scenario(expected=["ChildWorkflowError", "CancelledError"])
@workflow.defn
class CancelAChildAndWait:
    @workflow.run
    async def run(self) -> Any:
        child = await workflow.start_child_workflow(
            Sleeper,
            id=f"{workflow.info().workflow_id}/child",
            cancellation_type=workflow.ChildWorkflowCancellationType.WAIT_CANCELLATION_COMPLETED,
        )
        await workflow.sleep(0.1)
        child.cancel()
        try:
            await child
        except ChildWorkflowError as error:
            return [type(error).__name__, type(error.cause).__name__]


@scenario(expected="went on", drive=cancel_when_it_waits)
@workflow.defn
class IgnoresTheRequest(Waits):
    @workflow.run
    async def run(self) -> str:
        self.now = True
        try:
            await workflow.sleep(3600)
        except asyncio.CancelledError:
            await workflow.sleep(0.05)
        return "went on"


async def cancel_a_thread(world: World) -> Any:
    return await cancel_when_it_runs(world)


@scenario(expected=[("CancelledError",)], drive=cancel_a_thread)
@workflow.defn
class CancelledAtAThread:
    @workflow.run
    async def run(self) -> Any:
        return await workflow.execute_activity(
            acts.thread_until_cancelled,
            heartbeat_timeout=BEAT,
            cancellation_type=workflow.ActivityCancellationType.WAIT_CANCELLATION_COMPLETED,
        )


@scenario(expected="inner")
@workflow.defn
class CancelledTimer:
    @workflow.run
    async def run(self) -> str:
        timer = asyncio.create_task(workflow.sleep(3600))
        await workflow.sleep(0.05)
        timer.cancel()
        try:
            await timer
        except asyncio.CancelledError:
            return "inner"
        return "not"


HELPERS = [Sleeper]
__all__ = ["HELPERS", "result"]
