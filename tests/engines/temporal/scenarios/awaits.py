"""Scenarios of cancellation at every other kind of await: asyncio's primitives, and calls that have not begun."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

from penstock import workflow
from penstock.workflow import ActivityCancellationType, ChildWorkflowCancellationType
from tests.engines.temporal.scenarios import acts
from tests.engines.temporal.scenarios.base import scenario
from tests.engines.temporal.scenarios.cancelling import Sleeper, Waits, cancel_when_it_waits
from tests.engines.temporal.scenarios.family import child_id

NOBODY = "nobody"
"""A queue that no worker polls."""
SOON = timedelta(seconds=30)


async def queue() -> None:
    await asyncio.Queue[int]().get()


async def event() -> None:
    await asyncio.Event().wait()


async def semaphore() -> None:
    await asyncio.Semaphore(0).acquire()


async def condition() -> None:
    changed = asyncio.Condition()
    async with changed:
        await changed.wait()


async def barrier() -> None:
    await asyncio.Barrier(2).wait()


async def a_task() -> None:
    await asyncio.create_task(event())


async def wait() -> None:
    await asyncio.wait([asyncio.create_task(workflow.sleep(3600))])


async def wait_for() -> None:
    await asyncio.wait_for(workflow.sleep(3600), 7200)


async def shield() -> None:
    await asyncio.shield(workflow.sleep(3600))


async def timeout() -> None:
    async with asyncio.timeout(3600):
        await event()


async def as_completed() -> None:
    for each in workflow.as_completed([workflow.sleep(3600)]):
        await each


async def unserved_activity() -> None:
    await workflow.execute_activity(acts.double, 1, task_queue=NOBODY)


async def unserved_activity_to_its_end() -> None:
    how = ActivityCancellationType.WAIT_CANCELLATION_COMPLETED
    await workflow.execute_activity(acts.double, 1, task_queue=NOBODY, cancellation_type=how)


async def abandoned_activity() -> None:
    how = ActivityCancellationType.ABANDON
    await workflow.execute_activity(
        acts.double, 1, task_queue=NOBODY, cancellation_type=how, schedule_to_close_timeout=SOON
    )


async def unserved_child() -> None:
    await workflow.execute_child_workflow(Sleeper, id=child_id(), task_queue=NOBODY)


async def abandoned_child() -> None:
    how = ChildWorkflowCancellationType.ABANDON
    await workflow.execute_child_workflow(Sleeper, id=child_id(), task_queue=NOBODY, cancellation_type=how)


async def child_until_requested() -> None:
    how = ChildWorkflowCancellationType.WAIT_CANCELLATION_REQUESTED
    await workflow.execute_child_workflow(Sleeper, id=child_id(), cancellation_type=how)


async def child_to_its_end() -> None:
    how = ChildWorkflowCancellationType.WAIT_CANCELLATION_COMPLETED
    await workflow.execute_child_workflow(Sleeper, id=child_id(), cancellation_type=how)


def _cancelled_at(work: Callable[[], Awaitable[None]]) -> type:
    """Make a workflow that is cancelled while it awaits `work`."""

    async def run(self: Any) -> None:
        self.now = True
        await work()

    name = "CancelledAt" + "".join(each.title() for each in work.__name__.split("_"))
    run.__qualname__ = f"{name}.run"
    cls = type(name, (Waits,), {"run": workflow.run(run), "__module__": __name__})
    return scenario(expected=[("CancelledError",)], drive=cancel_when_it_waits)(workflow.defn(cls))


AWAITS = (
    queue,
    event,
    semaphore,
    condition,
    barrier,
    a_task,
    wait,
    wait_for,
    shield,
    timeout,
    as_completed,
    unserved_activity,
    unserved_activity_to_its_end,
    abandoned_activity,
    unserved_child,
    abandoned_child,
    child_until_requested,
    child_to_its_end,
)
MADE = [_cancelled_at(each) for each in AWAITS]


@scenario(expected=[("CancelledError",)], drive=cancel_when_it_waits)
@workflow.defn
class ShieldedCleanup(Waits):
    """What is shielded in a cleanup completes."""

    @workflow.run
    async def run(self) -> None:
        self.now = True
        try:
            await workflow.sleep(3600)
        finally:
            calls = (workflow.execute_activity(acts.double, number) for number in (1, 2))
            await asyncio.shield(asyncio.gather(*calls))


@workflow.defn
class CleansUpAndEnds:
    @workflow.run
    async def run(self) -> None:
        try:
            await workflow.sleep(3600)
        finally:
            await workflow.execute_activity(acts.double, 3)


@workflow.defn
class CleansUpAfterItsChild(Waits):
    @workflow.run
    async def run(self) -> None:
        child = await workflow.start_child_workflow(
            CleansUpAndEnds,
            id=child_id(),
            cancellation_type=ChildWorkflowCancellationType.WAIT_CANCELLATION_COMPLETED,
        )
        await workflow.execute_activity(acts.double, 0)
        parent = workflow.info().parent
        assert parent is not None
        await workflow.get_external_workflow_handle(parent.workflow_id).signal("below_waits")
        try:
            await child
        except asyncio.CancelledError:
            await workflow.execute_activity(acts.double, 2)
            raise


@scenario(expected=["CancelledError", 2], drive=cancel_when_it_waits)
@workflow.defn
class CancelledWithGrandchildren(Waits):
    """Each level cleans up, the innermost first."""

    def __init__(self) -> None:
        super().__init__()
        self.below = False

    @workflow.signal
    def below_waits(self) -> None:
        self.below = True

    @workflow.run
    async def run(self) -> Any:
        child = await workflow.start_child_workflow(
            CleansUpAfterItsChild,
            id=child_id(),
            cancellation_type=ChildWorkflowCancellationType.WAIT_CANCELLATION_COMPLETED,
        )
        await workflow.wait_condition(lambda: self.below)
        self.now = True
        try:
            await child
        except asyncio.CancelledError as error:
            return [type(error).__name__, await workflow.execute_activity(acts.double, 1)]


@scenario(expected=[["child", "sleep", "condition", "gather", "future", "queue"], "CancelledError"])
@workflow.defn
class TimeoutsAroundEachAwait:
    @workflow.run
    async def run(self) -> Any:
        child = await workflow.start_child_workflow(Sleeper, id=child_id())
        sleeps = (workflow.sleep(3600), workflow.sleep(3600))
        work: dict[str, Awaitable[Any]] = {
            "child": child,
            "sleep": workflow.sleep(3600),
            "condition": workflow.wait_condition(lambda: False),
            "gather": asyncio.gather(*sleeps),
            "future": asyncio.get_running_loop().create_future(),
            "queue": asyncio.Queue[int]().get(),
        }
        expired = []
        for name, each in work.items():
            try:
                async with asyncio.timeout(0.05):
                    await each
            except TimeoutError:
                expired.append(name)
        try:
            await child
        except Exception as error:
            return [expired, type(error.__cause__).__name__]
        except asyncio.CancelledError as error:
            return [expired, type(error).__name__]


HELPERS = [CleansUpAndEnds, CleansUpAfterItsChild]
