"""Behaviours: ordinary asyncio, on an event loop whose time is that of the history."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

from penstock import workflow
from penstock.sdk.failures import ApplicationError
from tests.sdk.behaviours import acts
from tests.sdk.behaviours.scene import Scene, behaviour

TICK = 0.03


@workflow.defn
class Sleeps:
    @workflow.run
    async def run(self) -> list[bool]:
        began = workflow.now()
        await asyncio.sleep(0.1)
        middle = workflow.now()
        await workflow.sleep(timedelta(milliseconds=100))
        await asyncio.sleep(0)
        return [
            middle - began >= timedelta(milliseconds=100),
            workflow.now() - middle >= timedelta(milliseconds=100),
        ]


@behaviour("sleep is durable, and the time of the run moves on with it")
async def _(scene: Scene) -> None:
    assert await scene.run(Sleeps.run) == [True, True]


@workflow.defn
class Waits:
    @workflow.run
    async def run(self) -> list[Any]:
        quick = asyncio.create_task(workflow.sleep(TICK), name="quick")
        slow = asyncio.create_task(workflow.sleep(3600), name="slow")
        done, pending = await asyncio.wait({quick, slow}, return_when=asyncio.FIRST_COMPLETED)
        for task in pending:
            task.cancel()
        return [[task.get_name() for task in done], [task.get_name() for task in pending]]


@behaviour("asyncio.wait gives the first that is done, and the other is given up")
async def _(scene: Scene) -> None:
    handle = await scene.start(Waits.run)
    assert await handle.result() == [["quick"], ["slow"]]
    assert "StepCancelRequested" in await scene.event_types(handle)


@workflow.defn
class AsCompleted:
    @workflow.run
    async def run(self) -> list[int]:
        async def late(number: int) -> int:
            await asyncio.sleep(number * 0.15)
            return number

        tasks = [asyncio.create_task(late(number)) for number in (3, 1, 2)]
        told = [await each for each in asyncio.as_completed(tasks)]
        return told + [await each for each in workflow.as_completed([late(3), late(1), late(2)])]


@behaviour("as_completed gives results in the order in which they came")
async def _(scene: Scene) -> None:
    assert await scene.run(AsCompleted.run) == [1, 2, 3, 1, 2, 3]


@workflow.defn
class Groups:
    @workflow.run
    async def run(self, breaks: bool) -> list[int]:
        async def part(number: int) -> int:
            if breaks and number == 1:
                raise ApplicationError("part of a group", type="Part")
            await asyncio.sleep(TICK)
            return number

        try:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(part(number)) for number in range(3)]
        except* ApplicationError as errors:
            raise errors.exceptions[0] from None
        return [task.result() for task in tasks]


@behaviour("a TaskGroup waits for all, and one that fails ends the others")
async def _(scene: Scene) -> None:
    assert await scene.run(Groups.run, False) == [0, 1, 2]
    failure = await scene.failure(Groups.run, True)
    assert isinstance(failure, ApplicationError)
    assert failure.type == "Part"


@workflow.defn
class Timeouts:
    @workflow.run
    async def run(self) -> list[str]:
        told = []
        try:
            async with asyncio.timeout(TICK):
                await workflow.execute_activity(acts.echo, "never taken", task_queue="nobody")
        except TimeoutError:
            told.append("timeout")
        try:
            await asyncio.wait_for(asyncio.sleep(3600), TICK)
        except TimeoutError:
            told.append("wait_for")
        try:
            nobody = workflow.start_activity(acts.echo, "never taken", task_queue="nobody")
            await asyncio.wait_for(nobody, TICK)
        except TimeoutError:
            told.append("wait_for a handle")
        async with asyncio.timeout(3600):
            told.append(await workflow.execute_activity(acts.echo, "in time"))
        return told


@behaviour("asyncio.timeout and wait_for give up what takes too long, and nothing else")
async def _(scene: Scene) -> None:
    assert await scene.run(Timeouts.run) == ["timeout", "wait_for", "wait_for a handle", "in time"]


@workflow.defn
class Queues:
    @workflow.run
    async def run(self) -> list[int]:
        queue: asyncio.Queue[int | None] = asyncio.Queue(maxsize=2)
        taken: list[int] = []

        async def produce() -> None:
            for number in range(5):
                await queue.put(await workflow.execute_activity(acts.echo, number))
            await queue.put(None)

        async def consume() -> None:
            while (number := await queue.get()) is not None:
                await asyncio.sleep(0.01)
                taken.append(number)

        await asyncio.gather(produce(), consume())
        return taken


@behaviour("a Queue carries work from one task of a workflow to another")
async def _(scene: Scene) -> None:
    assert await scene.run(Queues.run) == [0, 1, 2, 3, 4]


@workflow.defn
class Locks:
    @workflow.run
    async def run(self) -> list[str]:
        lock, told = asyncio.Lock(), []
        limit = asyncio.Semaphore(2)

        async def enter(name: str) -> None:
            async with limit, lock:
                told.append(f"{name} in")
                await workflow.execute_activity(acts.echo, name)
                told.append(f"{name} out")

        await asyncio.gather(*(enter(name) for name in "abc"))
        return told


@behaviour("a Lock and a Semaphore let tasks in one after the other, in the order in which they came")
async def _(scene: Scene) -> None:
    assert await scene.run(Locks.run) == ["a in", "a out", "b in", "b out", "c in", "c out"]


@workflow.defn
class Events:
    @workflow.run
    async def run(self) -> list[str]:
        ready, told = asyncio.Event(), []
        condition = asyncio.Condition()

        async def wait(name: str) -> None:
            await ready.wait()
            told.append(name)
            async with condition:
                condition.notify_all()

        waiting = [asyncio.create_task(wait(name)) for name in "xyz"]
        await asyncio.sleep(TICK)
        ready.set()
        async with condition:
            await condition.wait_for(lambda: len(told) == 3)
        await asyncio.gather(*waiting)
        return told


@behaviour("an Event and a Condition wake all who wait, in the order in which they came")
async def _(scene: Scene) -> None:
    assert await scene.run(Events.run) == ["x", "y", "z"]


@workflow.defn
class Shields:
    @workflow.run
    async def run(self) -> list[str]:
        work = asyncio.ensure_future(workflow.execute_activity(acts.pause, args=[0.2, "kept"]))
        try:
            async with asyncio.timeout(TICK):
                await asyncio.shield(work)
        except TimeoutError:
            return ["too long", await work]
        return ["in time", await work]


@behaviour("what is shielded goes on when the one who waits for it gives up")
async def _(scene: Scene) -> None:
    told = await scene.run(Shields.run)
    assert told[1] == "kept"


@workflow.defn
class Conditions:
    def __init__(self) -> None:
        self.count = 0

    @workflow.run
    async def run(self) -> list[Any]:
        async def count() -> None:
            for _ in range(3):
                await asyncio.sleep(0.02)
                self.count += 1

        counting = asyncio.create_task(count())
        await workflow.wait_condition(lambda: self.count == 2)
        seen = self.count
        await counting
        try:
            await workflow.wait_condition(lambda: self.count > 99, timeout=TICK)
        except TimeoutError:
            return [seen, "timed out", self.count]
        return []


@behaviour("wait_condition goes on when it holds, and raises when its time is over")
async def _(scene: Scene) -> None:
    assert await scene.run(Conditions.run) == [2, "timed out", 3]


@workflow.defn
class ConditionInTime:
    def __init__(self) -> None:
        self.go = False

    @workflow.run
    async def run(self) -> str:
        await workflow.wait_condition(lambda: self.go, timeout=timedelta(hours=1))
        return "in time"

    @workflow.signal
    def proceed(self) -> None:
        self.go = True


@behaviour("a condition that is met in time gives its timer up")
async def _(scene: Scene) -> None:
    handle = await scene.start(ConditionInTime.run)
    await scene.until_recorded(handle, "TimerScheduled")
    await handle.signal(ConditionInTime.proceed)
    assert await handle.result() == "in time"
    assert (await scene.event_types(handle)).count("StepCancelRequested") == 1


@workflow.defn
class Chance:
    def __init__(self) -> None:
        self.told: list[Any] = []
        self.done = self.go = False

    @workflow.run
    async def run(self) -> list[Any]:
        for _ in range(3):
            self.told.append(workflow.random().randrange(10**9))
            self.told.append(str(workflow.uuid4()))
            self.told.append(workflow.now().isoformat())
            await workflow.execute_activity(acts.echo, None)
        self.done = True
        await workflow.wait_condition(lambda: self.go)
        return self.told

    @workflow.signal
    def end(self) -> None:
        self.go = True

    @workflow.query
    def seen(self) -> list[Any]:
        return self.told

    @workflow.query
    def is_done(self) -> bool:
        return self.done


@behaviour("time, dice and uuids are the same however often the code is replayed")
async def _(scene: Scene) -> None:
    handle = await scene.start(Chance.run)
    await scene.until(handle, Chance.is_done, True)
    seen = await scene.ask(handle, Chance.seen)
    assert seen == await scene.ask(handle, Chance.seen)
    await handle.signal(Chance.end)
    assert await handle.result() == seen
    assert len(set(map(str, seen))) == 9
