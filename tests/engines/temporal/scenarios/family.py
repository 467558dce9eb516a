"""Scenarios of other workflows: children, external ones, continue-as-new."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from penstock import RetryPolicy, workflow
from penstock.failures import ApplicationError, ChildWorkflowError, FailureError, WorkflowAlreadyStartedError
from tests.engines.temporal.scenarios import acts
from tests.engines.temporal.scenarios.base import World, scenario, told
from tests.support.patience import PATIENCE_S


@workflow.defn
class Doubler:
    @workflow.run
    async def run(self, number: int) -> int:
        return await workflow.execute_activity(acts.double, number)


@workflow.defn
class Failing:
    @workflow.run
    async def run(self, text: str) -> None:
        raise ApplicationError(text, 7, type="Child", non_retryable=True)


@workflow.defn
class Listener:
    def __init__(self) -> None:
        self.heard: list[str] = []

    @workflow.run
    async def run(self, count: int) -> list[str]:
        await workflow.wait_condition(lambda: len(self.heard) >= count)
        return self.heard

    @workflow.signal
    def hear(self, word: str) -> None:
        self.heard.append(word)


@workflow.defn
class SecondTry:
    @workflow.run
    async def run(self) -> int:
        if workflow.info().attempt < 2:
            raise ApplicationError("the first attempt")
        return workflow.info().attempt


def child_id(name: str = "child") -> str:
    return f"{workflow.info().workflow_id}/{name}"


@scenario(4, expected=8)
@workflow.defn
class AChild:
    @workflow.run
    async def run(self, number: int) -> int:
        return await workflow.execute_child_workflow(Doubler, number, id=child_id())


@scenario(expected=[2, 4])
@workflow.defn
class TwoChildren:
    @workflow.run
    async def run(self) -> list[int]:
        first = await workflow.start_child_workflow(Doubler, 1, id=child_id("1"))
        second = await workflow.start_child_workflow("Doubler", 2, id=child_id("2"))
        return [await first, await second]


@scenario(
    expected=[
        ("ChildWorkflowError", "Failing", "None"),
        ("ApplicationError", "Child", "no", [7], True),
    ]
)
@workflow.defn
class AChildFails:
    @workflow.run
    async def run(self) -> Any:
        try:
            await workflow.execute_child_workflow(Failing, "no", id=child_id())
        except ChildWorkflowError as error:
            return [("ChildWorkflowError", error.workflow_type, "None"), *told(error.cause)]


@scenario(expected=["a", "b"])
@workflow.defn
class SignalsAChild:
    @workflow.run
    async def run(self) -> list[str]:
        child = await workflow.start_child_workflow(Listener, 2, id=child_id())
        await child.signal(Listener.hear, "a")
        await child.signal("hear", "b")
        return await child


@scenario(expected=["from outside"])
@workflow.defn
class SignalsAnExternal:
    @workflow.run
    async def run(self) -> list[str]:
        child = await workflow.start_child_workflow(Listener, 1, id=child_id())
        await workflow.sleep(0.05)
        await workflow.get_external_workflow_handle(child.id).signal(Listener.hear, "from outside")
        return await child


@scenario(expected=[True])
@workflow.defn
class SignalsNobody:
    @workflow.run
    async def run(self) -> list[bool]:
        try:
            await workflow.get_external_workflow_handle("there is nobody").signal("hear", "x")
        except FailureError as error:
            return [isinstance(error, ApplicationError)]
        return []


@scenario(expected=["ChildWorkflowError", "CancelledError"])
@workflow.defn
class CancelsAnExternal:
    @workflow.run
    async def run(self) -> Any:
        child = await workflow.start_child_workflow(Listener, 1, id=child_id())
        await workflow.sleep(0.05)
        await workflow.get_external_workflow_handle_for(Listener, child.id).cancel()
        try:
            await child
        except ChildWorkflowError as error:
            return [type(error).__name__, type(error.cause).__name__]


@scenario(expected="in use")
@workflow.defn
class AnIdInUse:
    @workflow.run
    async def run(self) -> str:
        await workflow.start_child_workflow(Listener, 1, id=child_id())
        await workflow.sleep(0.05)
        try:
            await workflow.execute_child_workflow(Listener, 1, id=child_id())
        except WorkflowAlreadyStartedError:
            return "in use"
        return "not"


@scenario(expected=2)
@workflow.defn
class ARetriedChild:
    @workflow.run
    async def run(self) -> int:
        policy = RetryPolicy(initial_interval=timedelta(milliseconds=50))
        return await workflow.execute_child_workflow(SecondTry, id=child_id(), retry_policy=policy)


@scenario(expected=("ChildWorkflowError", "TimeoutError"))
@workflow.defn
class AChildTimesOut:
    @workflow.run
    async def run(self) -> Any:
        try:
            await workflow.execute_child_workflow(
                Listener, 1, id=child_id(), run_timeout=timedelta(seconds=1)
            )
        except ChildWorkflowError as error:
            return (type(error).__name__, type(error.cause).__name__)


@scenario(expected=[True, True])
@workflow.defn
class KnowsItsParent:
    @workflow.run
    async def run(self) -> list[bool]:
        return await workflow.execute_child_workflow(Kin, workflow.info().run_id, id=child_id())


@workflow.defn
class Kin:
    @workflow.run
    async def run(self, run_id: str) -> list[bool]:
        parent = workflow.info().parent
        assert parent is not None
        return [parent.run_id == run_id, workflow.info().workflow_id == f"{parent.workflow_id}/child"]


async def outlives(world: World) -> Any:
    left = await world.handle.result(timeout=PATIENCE_S)
    child = world.client.get_workflow_handle(f"{world.id}/child")
    await child.signal("hear", "still there")
    return [left, await child.result(timeout=PATIENCE_S)]


@scenario(expected=["left", ["still there"]], drive=outlives)
@workflow.defn
class AnAbandonedChild:
    @workflow.run
    async def run(self) -> str:
        await workflow.start_child_workflow(
            Listener, 1, id=child_id(), parent_close_policy=workflow.ParentClosePolicy.ABANDON
        )
        await workflow.sleep(0.05)
        return "left"


@scenario(1, expected=["round", 3])
@workflow.defn
class ContinuesAsNew:
    @workflow.run
    async def run(self, round_number: int) -> list[Any]:
        await workflow.execute_activity(acts.double, round_number)
        if round_number < 3:
            workflow.continue_as_new(round_number + 1)
        return ["round", round_number]


@scenario(expected=10)
@workflow.defn
class ContinuesAsAnother:
    @workflow.run
    async def run(self) -> int:
        workflow.continue_as_new(5, workflow=Doubler)


@scenario(0, expected=[True, {"kept": 1}])
@workflow.defn
class ContinuesWithAMemo:
    @workflow.run
    async def run(self, rounds: int) -> list[Any]:
        if not rounds:
            workflow.continue_as_new(1, memo={"kept": 1})
        return [workflow.info().continued_run_id is not None, dict(workflow.memo())]


HELPERS = [Doubler, Failing, Listener, SecondTry, Kin]
