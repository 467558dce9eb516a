"""The workflows whose histories are kept beside this file. Neither is ever changed: runs of this code are out there.

A history is `(await handle.fetch_history()).to_json()`, of a run of a real server. New code comes under new names.
"""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

from penstock import RetryPolicy, activity, workflow
from penstock.sdk.failures import ActivityError, ApplicationError, ChildWorkflowError, FailureError

QUICK = RetryPolicy(initial_interval=timedelta(milliseconds=10), maximum_attempts=2)


@activity.defn
async def recorded_echo(value: Any) -> Any:
    return value


@activity.defn
async def recorded_failure(message: str) -> None:
    raise ApplicationError(message, 1, type="Recorded")


@workflow.defn
class RecordedChild:
    def __init__(self) -> None:
        self.told: Any = None

    @workflow.run
    async def run(self, how: str) -> Any:
        if how == "fail":
            raise ApplicationError("a child fails", type="RecordedChildFailure")
        await workflow.wait_condition(lambda: self.told is not None)
        return self.told

    @workflow.signal
    def tell(self, what: Any) -> None:
        self.told = what


@workflow.defn
class EveryCommand:
    """Asks for each thing that can be asked for."""

    def __init__(self) -> None:
        self.signals: list[Any] = []
        self.updates: list[Any] = []

    @workflow.run
    async def run(self, own_id: str) -> dict[str, Any]:
        told: dict[str, Any] = {}
        workflow.upsert_memo({"stage": 1, "gone": True})
        workflow.upsert_search_attributes({"Stage": "one"})
        told["patched"] = workflow.patched("first-change")
        workflow.deprecate_patch("older-change")
        told["activities"] = await asyncio.gather(
            workflow.execute_activity(recorded_echo, "a"),
            workflow.execute_activity(recorded_failure, "b", retry_policy=QUICK),
            workflow.execute_local_activity(recorded_echo, "c"),
            workflow.execute_local_activity(recorded_failure, "d", retry_policy=QUICK),
            return_exceptions=True,
        )
        told["activities"] = [_shown(each) for each in told["activities"]]
        told["dice"] = [workflow.random().randrange(1000), str(workflow.uuid4())]
        await asyncio.sleep(0.05)
        told["timed out"] = await self._times_out()
        told["children"] = await self._children(own_id)
        told["strangers"] = await self._strangers(own_id)
        workflow.upsert_memo({"stage": 2, "gone": None})
        await workflow.wait_condition(lambda: len(self.signals) == 2 and len(self.updates) == 2)
        await workflow.wait_condition(workflow.all_handlers_finished)
        return told | {"signals": self.signals, "updates": self.updates, "memo": dict(workflow.memo())}

    async def _times_out(self) -> bool:
        try:
            async with asyncio.timeout(0.05):
                await workflow.execute_activity(recorded_echo, "never taken", task_queue="nobody")
        except TimeoutError:
            return True
        return False

    async def _children(self, own_id: str) -> list[Any]:
        child = await workflow.start_child_workflow(RecordedChild.run, "wait", id=f"{own_id}-child")
        await child.signal(RecordedChild.tell, "hello")
        told = [await child]
        try:
            await workflow.execute_child_workflow(RecordedChild.run, "fail", id=f"{own_id}-failing")
        except ChildWorkflowError as error:
            told.append(str(error.cause))
        given_up = await workflow.start_child_workflow(RecordedChild.run, "wait", id=f"{own_id}-given-up")
        await asyncio.sleep(0.05)
        given_up.cancel()
        return told

    async def _strangers(self, own_id: str) -> list[str]:
        told = []
        stranger = workflow.get_external_workflow_handle(f"{own_id}-not-there")
        for asked in (stranger.signal("tell", 1), stranger.cancel("why not")):
            try:
                await asked
            except FailureError as error:
                told.append(type(error).__name__)
        return told

    @workflow.signal
    async def hear(self, what: Any) -> None:
        self.signals.append(await workflow.execute_activity(recorded_echo, what))

    @workflow.update
    async def change(self, what: int) -> int:
        await asyncio.sleep(0.02)
        self.updates.append(what)
        if what < 0:
            raise ApplicationError("no", what, type="Negative")
        return what * 2

    @change.validator
    def check(self, what: int) -> None:
        if what == 0:
            raise ValueError("nothing to change")


def _shown(outcome: Any) -> Any:
    return str(outcome.cause) if isinstance(outcome, ActivityError) else outcome


@workflow.defn
class EndsCancelled:
    @workflow.run
    async def run(self) -> None:
        try:
            await workflow.sleep(timedelta(days=1))
        finally:
            await asyncio.shield(workflow.execute_activity(recorded_echo, "cleaned"))


@workflow.defn
class EndsFailed:
    @workflow.run
    async def run(self) -> None:
        await workflow.execute_activity(recorded_failure, "for good", retry_policy=QUICK)


@workflow.defn
class EndsTerminated:
    @workflow.run
    async def run(self) -> None:
        await asyncio.gather(workflow.sleep(timedelta(days=1)), workflow.wait_condition(lambda: False))


@workflow.defn
class EndsContinued:
    @workflow.run
    async def run(self, left: int) -> int:
        await asyncio.sleep(0.01)
        if left:
            workflow.continue_as_new(left - 1)
        return left


WORKFLOWS = [EveryCommand, RecordedChild, EndsCancelled, EndsFailed, EndsTerminated, EndsContinued]
ACTIVITIES = [recorded_echo, recorded_failure]
