"""Behaviours: patches, memo, search attributes, info and logs."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from itertools import groupby
from typing import Any

from penstock import Priority, workflow
from penstock.sdk.failures import QueryRejected
from tests.sdk.behaviours import acts
from tests.sdk.behaviours.scene import Scene, behaviour


@workflow.defn
class Patched:
    @workflow.run
    async def run(self) -> list[Any]:
        told: list[Any] = []
        if workflow.patched("new-way"):
            told.append(await workflow.execute_activity(acts.echo, "new"))
        else:
            told.append(await workflow.execute_activity(acts.echo, "old"))
        workflow.deprecate_patch("older-way")
        await asyncio.sleep(0.02)
        told.append(workflow.patched("new-way"))
        return told


@behaviour("a patch is decided once in a run and marked in its history")
async def _(scene: Scene) -> None:
    handle = await scene.start(Patched.run)
    assert await handle.result() == ["new", True]
    assert (await scene.event_types(handle)).count("VersionMarkerRecorded") == 2


@workflow.defn
class Remembers:
    @workflow.run
    async def run(self) -> list[Any]:
        before = workflow.memo_value("given")
        workflow.upsert_memo({"added": {"deep": [1, 2]}, "given": None})
        await workflow.execute_activity(acts.echo, None)
        return [before, dict(workflow.memo()), workflow.memo_value("given", "gone")]


@behaviour("the memo is read and changed by the code, and shown to clients")
async def _(scene: Scene) -> None:
    handle = await scene.start(Remembers.run, memo={"given": "at start"})
    assert await handle.result() == ["at start", {"added": {"deep": [1, 2]}}, "gone"]
    assert (await handle.describe()).memo == {"added": {"deep": [1, 2]}}


@workflow.defn
class Findable:
    @workflow.run
    async def run(self) -> None:
        workflow.upsert_search_attributes({"Stage": "one"})
        await workflow.execute_activity(acts.echo, None)
        workflow.upsert_search_attributes({"Stage": "two"})


@behaviour("search attributes are changed by the code, and the run is found by them")
async def _(scene: Scene) -> None:
    for name in ("Stage", "Team"):
        await scene.client.register_search_attribute(name, "keyword")
    handle = await scene.start(Findable.run, search_attributes={"Team": scene.queue})
    await handle.result()
    assert (await handle.describe()).search_attributes == {"Stage": "two", "Team": scene.queue}


@workflow.defn
class KnowsItself:
    @workflow.run
    async def run(self) -> dict[str, Any]:
        length = workflow.info().get_current_history_length()
        await asyncio.sleep(0.02)
        info = workflow.info()
        return {
            "workflow_id": info.workflow_id,
            "workflow_type": info.workflow_type,
            "task_queue": info.task_queue,
            "namespace": info.namespace,
            "run_timeout": info.run_timeout.total_seconds() if info.run_timeout else None,
            "execution_timeout": info.execution_timeout.total_seconds() if info.execution_timeout else None,
            "priority_key": info.priority.priority_key,
            "attempt": info.attempt,
            "parent": info.parent,
            "grew": info.get_current_history_length() > length,
            "has_begun": info.start_time <= workflow.now(),
            "suggested": info.is_continue_as_new_suggested(),
        }


@behaviour("a run knows its ids, its clocks and its length")
async def _(scene: Scene) -> None:
    handle = await scene.start(
        KnowsItself.run,
        run_timeout=timedelta(minutes=5),
        execution_timeout=timedelta(minutes=10),
        priority=Priority(priority_key=4),
    )
    assert await handle.result() == {
        "workflow_id": handle.id,
        "workflow_type": "KnowsItself",
        "task_queue": scene.queue,
        "namespace": scene.client.namespace,
        "run_timeout": 300,
        "execution_timeout": 600,
        "priority_key": 4,
        "attempt": 1,
        "parent": None,
        "grew": True,
        "has_begun": True,
        "suggested": False,
    }


@workflow.defn
class Logs:
    @workflow.run
    async def run(self) -> bool:
        for number in range(4):
            workflow.logger.warning("step %d", number)
            await workflow.execute_activity(acts.echo, number)
        return workflow.unsafe.is_replaying()


class _Listener(logging.Handler):
    def __init__(self, heard: list[logging.LogRecord]) -> None:
        super().__init__()
        self._heard = heard

    def emit(self, record: logging.LogRecord) -> None:
        self._heard.append(record)


@contextmanager
def _heard() -> Iterator[list[logging.LogRecord]]:
    heard: list[logging.LogRecord] = []
    handler = _Listener(heard)
    logger = logging.getLogger("penstock.workflow")
    logger.addHandler(handler)
    try:
        yield heard
    finally:
        logger.removeHandler(handler)


@behaviour("the logger of a workflow is silent in replay")
async def _(scene: Scene) -> None:
    with _heard() as heard:  # a task whose lease expired is decided again, and logged again
        handle = await scene.start(Logs.run)
        assert await handle.result() is False
    mine = [record for record in heard if getattr(record, "workflow_id", None) == handle.id]
    lines = [line for line, _ in groupby(record.getMessage().partition(" (")[0] for record in mine)]
    assert lines == ([] if scene.is_killed else [f"step {number}" for number in range(4)])


@workflow.defn
class TakesInput:
    @workflow.init
    def __init__(self, name: str, count: int = 2) -> None:
        self.greeting = f"{name} x {count}"

    @workflow.run
    async def run(self, name: str, count: int = 2) -> str:
        return self.greeting


@behaviour("__init__ may take the arguments of the run, with their defaults")
async def _(scene: Scene) -> None:
    assert await scene.run(TakesInput.run, "anna") == "anna x 2"
    assert await scene.run(TakesInput.run, "anna", 3) == "anna x 3"


@workflow.defn
class LateEars:
    @workflow.run
    async def run(self) -> list[Any]:
        heard: list[Any] = []
        await workflow.execute_activity(acts.pause, args=[0.15, None])
        workflow.set_signal_handler("news", heard.append)
        workflow.set_query_handler("how_many", lambda: len(heard))
        workflow.set_update_handler("count", lambda start: start + len(heard))
        await workflow.wait_condition(lambda: len(heard) == 3)
        return heard


@behaviour(
    "a signal without a handler waits until one is set, and handlers of all kinds may be set while a run goes on"
)
async def _(scene: Scene) -> None:
    handle = await scene.start("LateEars")
    await handle.signal("news", "early")
    await scene.until_recorded(handle, "ActivityCompleted")
    await handle.signal("news", "late")
    while True:
        with suppress(QueryRejected):
            if await scene.ask(handle, "how_many") == 2:
                break
        await asyncio.sleep(0.03)
    assert await scene.update(handle, "count", 40) == 42
    await handle.signal("news", "last")
    assert await handle.result() == ["early", "late", "last"]


@workflow.defn(dynamic=True)
class AnyType:
    @workflow.run
    async def run(self, args: list[Any]) -> list[Any]:
        return [workflow.info().workflow_type, args]


@behaviour("a dynamic workflow runs for every type that no other class has")
async def _(scene: Scene) -> None:
    assert await scene.run("SomethingElse", 1, "two") == ["SomethingElse", [1, "two"]]


@workflow.defn
class FansOut:
    @workflow.run
    async def run(self, count: int) -> int:
        limit = asyncio.Semaphore(20)

        async def one(number: int) -> int:
            async with limit:
                return await workflow.execute_activity(acts.add, args=[number, 1])

        return sum(await asyncio.gather(*(one(number) for number in range(count))))


@behaviour("a wide fan-out, so many at a time, brings every result home")
async def _(scene: Scene) -> None:
    assert await scene.run(FansOut.run, 60) == sum(range(1, 61))
