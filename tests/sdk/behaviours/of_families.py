"""Behaviours: child workflows, and signals to other workflows."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

from penstock import WorkflowIDReusePolicy, workflow
from penstock.sdk.failures import (
    ApplicationError,
    CancelledError,
    ChildWorkflowError,
    FailureError,
    TerminatedError,
    WorkflowAlreadyStartedError,
)
from tests.sdk.behaviours import acts
from tests.sdk.behaviours.scene import Scene, behaviour


@workflow.defn
class Child:
    """Ends as requested: immediately, with an error, or after a signal."""

    def __init__(self) -> None:
        self.told: Any = None

    @workflow.run
    async def run(self, how: str) -> Any:
        if how == "fail":
            raise ApplicationError("the child has failed", how, type="ChildBroke")
        if how == "wait":
            await workflow.wait_condition(lambda: self.told is not None)
            return self.told
        return await workflow.execute_activity(acts.echo, how)

    @workflow.signal
    def tell(self, what: Any) -> None:
        self.told = what


@workflow.defn
class Parent:
    @workflow.run
    async def run(self, children: list[str]) -> list[Any]:
        return await asyncio.gather(
            *(workflow.execute_child_workflow(Child.run, how) for how in children), return_exceptions=False
        )


@behaviour("children in parallel give their results to the parent")
async def _(scene: Scene) -> None:
    assert await scene.run(Parent.run, ["a", "b", "c"]) == ["a", "b", "c"]


@behaviour("a child that fails fails the parent with its own cause")
async def _(scene: Scene) -> None:
    failure = await scene.failure(Parent.run, ["fail"])
    assert isinstance(failure, ChildWorkflowError)
    assert failure.workflow_type == "Child"
    assert isinstance(failure.cause, ApplicationError)
    assert (failure.cause.type, failure.cause.details) == ("ChildBroke", ("fail",))


@workflow.defn
class TalksToChild:
    @workflow.run
    async def run(self, child_id: str) -> Any:
        handle = await workflow.start_child_workflow(Child.run, "wait", id=child_id)
        await handle.signal(Child.tell, "hello child")
        return [handle.id, await handle]


@behaviour("a parent signals its child and awaits it")
async def _(scene: Scene) -> None:
    child_id = scene.new_id()
    assert await scene.run(TalksToChild.run, child_id) == [child_id, "hello child"]
    scene.find(child_id)


@workflow.defn
class CancelsChild:
    @workflow.run
    async def run(self, child_id: str, how: str) -> str:
        handle = await workflow.start_child_workflow(
            Child.run,
            "wait",
            id=child_id,
            cancellation_type=workflow.ChildWorkflowCancellationType(how),
            parent_close_policy=workflow.ParentClosePolicy.ABANDON,
        )
        await asyncio.sleep(0.05)
        handle.cancel()
        try:
            await handle
        except ChildWorkflowError as error:
            return type(error.cause).__name__
        return "never"


@behaviour("a child that is cancelled by its parent ends as cancelled, whether it is waited for or not")
async def _(scene: Scene) -> None:
    for how in ("try_cancel", "wait_cancellation_requested", "wait_cancellation_completed"):
        child_id = scene.new_id()
        assert await scene.run(CancelsChild.run, child_id, how) == "CancelledError"
        assert isinstance(await scene.failure_of(scene.find(child_id)), CancelledError)


@behaviour("a child that is given up as abandoned goes on")
async def _(scene: Scene) -> None:
    child_id = scene.new_id()
    assert await scene.run(CancelsChild.run, child_id, "abandon") == "CancelledError"
    child = scene.find(child_id)
    await child.signal(Child.tell, "still here")
    assert await child.result() == "still here"


@workflow.defn
class Leaves:
    @workflow.run
    async def run(self, child_id: str, policy: str) -> None:
        await workflow.start_child_workflow(
            Child.run, "wait", id=child_id, parent_close_policy=workflow.ParentClosePolicy(policy)
        )
        await asyncio.sleep(0.05)


@behaviour("when a parent closes, its child is terminated, cancelled or left alone, as its policy says")
async def _(scene: Scene) -> None:
    children = {policy: scene.new_id() for policy in ("terminate", "request_cancel", "abandon")}
    await asyncio.gather(*(scene.run(Leaves.run, child_id, policy) for policy, child_id in children.items()))
    found = {policy: scene.find(child_id) for policy, child_id in children.items()}
    assert isinstance(await scene.failure_of(found["terminate"]), TerminatedError)
    assert isinstance(await scene.failure_of(found["request_cancel"]), CancelledError)
    await found["abandon"].signal(Child.tell, "alone")
    assert await found["abandon"].result() == "alone"


@workflow.defn
class IdInUse:
    @workflow.run
    async def run(self, taken: str) -> str:
        try:
            await workflow.execute_child_workflow(Child.run, "x", id=taken)
        except WorkflowAlreadyStartedError as error:
            return f"{error.workflow_id} is taken"
        return "started"


@behaviour("a child under an id that is in use is not started, and the parent may go on")
async def _(scene: Scene) -> None:
    other = await scene.start(Child.run, "wait")
    assert await scene.run(IdInUse.run, other.id) == f"{other.id} is taken"
    await other.signal(Child.tell, "end")
    assert await other.result() == "end"


@behaviour("a child takes the id of a workflow that has ended, unless it is told not to")
async def _(scene: Scene) -> None:
    taken = await scene.start(Child.run, "over")
    await taken.result()
    assert await scene.run(IdInUse.run, taken.id) == "started"
    assert await scene.run(KeepsOff.run, taken.id) == f"{taken.id} is taken"


@workflow.defn
class KeepsOff:
    @workflow.run
    async def run(self, taken: str) -> str:
        try:
            await workflow.execute_child_workflow(
                Child.run, "x", id=taken, id_reuse_policy=WorkflowIDReusePolicy.REJECT_DUPLICATE
            )
        except WorkflowAlreadyStartedError as error:
            return f"{error.workflow_id} is taken"
        return "started"


@workflow.defn
class OddIds:
    @workflow.run
    async def run(self, prefix: str) -> list[Any]:
        told: list[Any] = [await workflow.execute_child_workflow(Child.run, "x", id=f"{prefix}/a b%~")]
        for impossible in ("a\tb", "..", "a\0b", "x" * 200):
            try:
                await workflow.execute_child_workflow(Child.run, "x", id=impossible)
            except ChildWorkflowError as error:
                told.append(getattr(error.cause, "type", None))
            try:
                await workflow.get_external_workflow_handle(impossible).signal("hi")
            except FailureError as error:
                told.append(type(error).__name__)
        return told


@behaviour(
    "a child under an impossible id fails as an error that the code can catch, and never its workflow task"
)
async def _(scene: Scene) -> None:
    told = await scene.run(OddIds.run, scene.new_id())
    assert told == ["x", *["InvalidWorkflowId", "ApplicationError"] * 4]


@workflow.defn
class Neighbour:
    @workflow.run
    async def run(self, other: str, absent: str) -> list[Any]:
        handle = workflow.get_external_workflow_handle(other)
        await handle.signal(Child.tell, "from the neighbour")
        told: list[Any] = ["signalled"]
        for ask in ("signal", "cancel"):
            nobody = workflow.get_external_workflow_handle(absent)
            try:
                await (nobody.signal("tell", 1) if ask == "signal" else nobody.cancel())
            except FailureError as error:
                told.append(getattr(error, "type", type(error).__name__))
        return told


@behaviour("a workflow signals another one, and learns that a third is not there")
async def _(scene: Scene) -> None:
    other = await scene.start(Child.run, "wait")
    told = await scene.run(Neighbour.run, other.id, scene.new_id())
    assert told == ["signalled", "WorkflowNotFound", "WorkflowNotFound"]
    assert await other.result() == "from the neighbour"


@workflow.defn
class CancelsNeighbour:
    @workflow.run
    async def run(self, other: str) -> str:
        await workflow.get_external_workflow_handle_for(Child.run, other).cancel("make room")
        return "asked"


@behaviour("a workflow cancels another one")
async def _(scene: Scene) -> None:
    other = await scene.start(Child.run, "wait")
    await scene.until_recorded(other, "WorkflowTaskCompleted")
    assert await scene.run(CancelsNeighbour.run, other.id) == "asked"
    assert isinstance(await scene.failure_of(other), CancelledError)


@workflow.defn
class Generations:
    @workflow.run
    async def run(self, depth: int) -> list[Any]:
        parent = workflow.info().parent
        mine = [parent.workflow_id if parent else None]
        if depth == 0:
            return mine
        below = await workflow.execute_child_workflow(
            Generations.run,
            depth - 1,
            id=f"{workflow.info().workflow_id}-below",
            run_timeout=timedelta(minutes=5),
        )
        return mine + below


@behaviour("children of children know their parents")
async def _(scene: Scene) -> None:
    handle = await scene.start(Generations.run, 2)
    assert await handle.result() == [None, handle.id, f"{handle.id}-below"]
    scene.find(f"{handle.id}-below")
