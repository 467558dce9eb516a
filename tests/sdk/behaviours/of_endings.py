"""Behaviours: completion, cancellation, termination, timeouts, and continue-as-new."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

from penstock import workflow
from penstock.sdk.failures import (
    ApplicationError,
    CancelledError,
    TerminatedError,
    TimeoutError,  # noqa: A004
    WorkflowClosedError,
)
from tests.sdk.behaviours import acts
from tests.sdk.behaviours.scene import Scene, behaviour, read, write


@workflow.defn
class CleansUp:
    def __init__(self) -> None:
        self.waiting = False

    @workflow.run
    async def run(self, note: str, swallows: bool) -> str:
        try:
            self.waiting = True
            await workflow.sleep(timedelta(days=1))
        except asyncio.CancelledError:
            if not swallows:
                raise
        finally:
            await workflow.execute_activity(acts.jot, args=[note, "cleaned"])
        return "went on"

    @workflow.query
    def is_waiting(self) -> bool:
        return self.waiting


@behaviour("a cancel lets the code clean up, and the run ends as cancelled")
async def _(scene: Scene) -> None:
    note = scene.note()
    handle = await scene.start(CleansUp.run, note, False)
    await scene.until(handle, CleansUp.is_waiting, True)
    await scene.until_recorded(handle, "TimerScheduled")
    await handle.cancel("not needed")
    failure = await scene.failure_of(handle)
    assert isinstance(failure, CancelledError)
    assert "not needed" in str(failure)
    assert await scene.until_written(note) == "cleaned"


@behaviour(
    "a cancel that comes right after the start lets the code clean up, whether a worker came before or not"
)
async def _(scene: Scene) -> None:
    note = scene.note()
    handle = await scene.start(CleansUp.run, note, False)
    await handle.cancel("at once")
    assert isinstance(await scene.failure_of(handle), CancelledError)
    assert await scene.until_written(note) == "cleaned"


@workflow.defn
class CancelsItself:
    @workflow.run
    async def run(self) -> None:
        work = asyncio.create_task(workflow.sleep(timedelta(days=1)))
        await asyncio.sleep(0.01)
        work.cancel()
        await work


@behaviour("a run that lets a cancellation of its own pass ends as cancelled")
async def _(scene: Scene) -> None:
    assert isinstance(await scene.failure(CancelsItself.run), CancelledError)


@behaviour("code that does not heed a cancel completes")
async def _(scene: Scene) -> None:
    handle = await scene.start(CleansUp.run, scene.note(), True)
    await scene.until_recorded(handle, "TimerScheduled")
    await handle.cancel()
    assert await handle.result() == "went on"


@workflow.defn
class Shielded:
    @workflow.run
    async def run(self) -> list[Any]:
        work = asyncio.ensure_future(workflow.execute_activity(acts.pause, args=[0.2, "done"]))
        try:
            await asyncio.shield(work)
        except asyncio.CancelledError:
            return ["cancelled", await work]
        return ["not cancelled", await work]


@behaviour("a cancel stops before what is shielded")
async def _(scene: Scene) -> None:
    handle = await scene.start(Shielded.run)
    await scene.until_recorded(handle, "ActivityScheduled")
    await handle.cancel()
    assert (await handle.result())[1] == "done"


@behaviour("a run that is terminated ends at once, without a word from its code")
async def _(scene: Scene) -> None:
    note = scene.note()
    handle = await scene.start(CleansUp.run, note, False)
    await scene.until_recorded(handle, "TimerScheduled")
    await handle.terminate("stop it")
    failure = await scene.failure_of(handle)
    assert isinstance(failure, TerminatedError)
    assert "stop it" in str(failure)
    assert read(note) == ""


@workflow.defn
class Chain:
    def __init__(self) -> None:
        self.heard = 0

    @workflow.run
    async def run(self, left: int, heard: int) -> list[Any]:
        self.heard += heard
        await workflow.execute_activity(acts.echo, left)
        if left:
            workflow.continue_as_new(args=[left - 1, self.heard])
        info = workflow.info()
        return [self.heard, info.continued_run_id is not None, dict(workflow.memo())]

    @workflow.signal
    def hear(self) -> None:
        self.heard += 1


@behaviour("a chain of runs that continue as new ones ends with the result of the last, and keeps its memo")
async def _(scene: Scene) -> None:
    handle = await scene.start(Chain.run, 3, 0, memo={"for": "all"})
    assert await handle.result() == [0, True, {"for": "all"}]


@behaviour("a signal that races with a continue-as-new is heard by one of the runs")
async def _(scene: Scene) -> None:
    handle = await scene.start(Chain.run, 4, 0)
    taken = 0
    for _ in range(9):
        try:
            await handle.signal(Chain.hear)
        except WorkflowClosedError:
            break
        taken += 1
        await asyncio.sleep(0.02)
    heard = (await handle.result())[0]
    assert heard == taken


@workflow.defn
class BecomesAnother:
    @workflow.run
    async def run(self) -> str:
        workflow.continue_as_new("as another", workflow=AnotherType.run)


@workflow.defn
class AnotherType:
    @workflow.run
    async def run(self, how: str) -> str:
        return f"{workflow.info().workflow_type} {how}"


@behaviour("a run may go on as a workflow of another type")
async def _(scene: Scene) -> None:
    assert await scene.run(BecomesAnother.run) == "AnotherType as another"


@workflow.defn
class Never:
    @workflow.run
    async def run(self) -> None:
        await asyncio.Event().wait()


@behaviour("a run ends by its clocks, and says which one it was")
async def _(scene: Scene) -> None:
    second = timedelta(seconds=1)
    of_run, of_all = await asyncio.gather(
        scene.failure(Never.run, run_timeout=second), scene.failure(Never.run, execution_timeout=second)
    )
    assert isinstance(of_run, TimeoutError)
    assert isinstance(of_all, TimeoutError)
    assert "run" in str(of_run.kind)
    assert "execution" in str(of_all.kind)


@workflow.defn
class Fails:
    @workflow.run
    async def run(self) -> None:
        try:
            raise ValueError("the root")
        except ValueError as error:
            raise ApplicationError(
                "no way", {"order": 7}, [1, 2], type="Refused", non_retryable=True
            ) from error


@behaviour("a failure of the code arrives with type, details and causes")
async def _(scene: Scene) -> None:
    failure = await scene.failure(Fails.run)
    assert isinstance(failure, ApplicationError)
    assert (failure.message, failure.type, failure.non_retryable) == ("no way", "Refused", True)
    assert failure.details == ({"order": 7}, [1, 2])
    assert isinstance(failure.cause, ApplicationError)
    assert (failure.cause.type, failure.cause.message) == ("ValueError", "the root")


class Meant(Exception):
    pass


@workflow.defn(failure_exception_types=[Meant])
class FailsOnPurpose:
    @workflow.run
    async def run(self) -> None:
        raise Meant("as declared")


@behaviour("an exception that was declared as a failure fails the run")
async def _(scene: Scene) -> None:
    failure = await scene.failure(FailsOnPurpose.run)
    assert (failure.type, failure.message) == ("Meant", "as declared")


@workflow.defn
class HasAMistake:
    @workflow.run
    async def run(self, note: str) -> str:
        before = await workflow.execute_activity(acts.echo, "kept")
        with workflow.unsafe.sandbox_unrestricted():
            is_fixed = read(note) == "fixed"
        if not is_fixed:
            raise KeyError("a mistake")
        return f"{before}, and gone on"


@behaviour("a mistake in the code fails the task only: the run goes on when the code is mended")
async def _(scene: Scene) -> None:
    note = scene.note()
    handle = await scene.start(HasAMistake.run, note)
    await scene.until_recorded(handle, "ActivityCompleted")
    await asyncio.sleep(0.1)
    assert (await handle.describe()).status == "running"
    write(note, "fixed")
    assert await handle.result() == "kept, and gone on"
