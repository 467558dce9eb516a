"""What all clients do alike: take a question as a line of JSON, do it, and write the answer as a line.

Only the standard library: the Python of a peer runs this.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import struct
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Protocol, cast

Json = dict[str, Any]
PAUSE_SECONDS = 0.01
"""Between two tasks of an idle system."""
LOOK_SECONDS = 0.005
DONE_SECONDS_MAX = 240.0
FILLED_AT_ONCE = 1000
"""Tasks in one call where a backlog is made, if a system can send many."""
MOMENT = struct.Struct("<d")


class Client(Protocol):
    """What every system can do. A task returns when its first line ran, on the clock of the machine."""

    sends_at_once: int

    async def send(self) -> None:
        """Start a task, and do not wait for it."""

    async def ask(self) -> float:
        """One task from its start to its result."""


class WorkflowClient(Client, Protocol):
    """What a system can do that has workflows."""

    workflows_at_once: int

    async def workflow(self, steps: int) -> None:
        """A workflow of so many activities one after the other, to its result."""


class FanOutClient(Client, Protocol):
    """What a system can do whose workflows may do several things at once."""

    async def fan_out(self, width: int) -> None:
        """A workflow of so many activities side by side, to its result."""


class Ticks:
    """Which tasks have run, and when: each appends its moment to a file that all processes share."""

    def __init__(self) -> None:
        self._file = os.open(os.environ["BENCH_TICKS"], os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o600)

    def tick(self) -> float:
        now = time.monotonic()
        os.write(self._file, MOMENT.pack(now))
        return now

    def count(self) -> int:
        return os.fstat(self._file).st_size // MOMENT.size

    def since(self, number: int) -> list[float]:
        """The moments of all after so many, in order of time."""
        found = os.pread(self._file, (self.count() - number) * MOMENT.size, number * MOMENT.size)
        return sorted(moment for (moment,) in MOMENT.iter_unpack(found))


class Questions:
    """The measurements that are the same for every system."""

    def __init__(self, client: Client, ticks: Ticks) -> None:
        self._client = client
        self._ticks = ticks

    async def first(self) -> Json:
        """One task, whenever a worker comes up: when its first line ran."""
        before = self._ticks.count()
        await self._client.send()
        return {"at": (await self._ran(before, 1))[0]}

    async def tasks(self, count: int) -> Json:
        """Tasks from the first start until the last one has run."""
        before, began = self._ticks.count(), time.monotonic()
        took = await in_flight(count, self._client.sends_at_once, self._client.send)
        return await self._rate(before, count, began, took["seconds"])

    async def batches(self, count: int, size: int) -> Json:
        """The same, so many tasks in one call."""
        send_many = getattr(self._client, "send_many", None)
        if send_many is None:
            return {"unable": True}
        at_once = getattr(self._client, "batches_at_once", 1)
        before, began = self._ticks.count(), time.monotonic()
        took = await in_flight(max(1, count // size), at_once, lambda: send_many(size))
        return await self._rate(before, max(1, count // size) * size, began, took["seconds"])

    async def fill(self, count: int) -> Json:
        """Tasks that wait, sent the quickest way; no worker is there."""
        send_many, before = getattr(self._client, "send_many", None), self._ticks.count()
        if send_many is None:
            await in_flight(count, self._client.sends_at_once, self._client.send)
        else:
            for start in range(0, count, FILLED_AT_ONCE):
                await send_many(min(FILLED_AT_ONCE, count - start))
        return {"before": before}

    async def drained(self, before: int, count: int) -> Json:
        """How long the backlog took, from its first task to its last."""
        ran = await self._ran(before, count)
        counted = self._counted(count)
        return {"count": counted - 1, "seconds": ran[counted - 1] - ran[0]}

    async def _rate(self, before: int, count: int, began: float, sent_seconds: float) -> Json:
        ran, counted = await self._ran(before, count), self._counted(count)
        return {"count": counted, "seconds": ran[counted - 1] - began, "sent_seconds": sent_seconds}

    def _counted(self, count: int) -> int:
        """All tasks, but for systems that are known to deliver the last few late."""
        return max(1, int(count * getattr(self._client, "counted", 1.0)))

    async def _ran(self, before: int, count: int) -> list[float]:
        """Wait until so many tasks have run; when they did."""
        ends_at = time.monotonic() + DONE_SECONDS_MAX
        while (ran := self._ticks.count() - before) < count:
            if time.monotonic() > ends_at:
                raise RuntimeError(f"only {ran} of {count} tasks have run")
            await asyncio.sleep(LOOK_SECONDS)
        return self._ticks.since(before)

    async def latency(self, count: int) -> Json:
        """Tasks one after the other on an idle system: to the first line and to the result."""
        starts, results = [], []
        async with getattr(self._client, "asking", contextlib.nullcontext)():
            for _ in range(count):
                await asyncio.sleep(PAUSE_SECONDS)
                began = time.monotonic()
                starts.append(await self._client.ask() - began)
                results.append(time.monotonic() - began)
        return {"count": count, "start": _milliseconds(starts), "result": _milliseconds(results)}

    async def workflows(self, count: int, steps: int) -> Json:
        client = cast(WorkflowClient, self._client)
        return await in_flight(count, client.workflows_at_once, lambda: client.workflow(steps))

    async def fan_out(self, width: int) -> Json:
        began = time.perf_counter()
        await cast(FanOutClient, self._client).fan_out(width)
        return {"count": width, "seconds": time.perf_counter() - began}

    async def answer(self, verb: str, values: list[Any]) -> Json:
        """What is asked for: one of these, or something that only some systems can."""
        ask: Callable[..., Awaitable[Json]] | None = getattr(self, verb, None) or getattr(
            self._client, verb, None
        )
        return {"unable": True} if ask is None else await ask(*values)


async def in_flight(count: int, at_once: int, one: Callable[[], Awaitable[object]]) -> Json:
    """So many of one kind, some at a time: how long all took, and each."""
    left, each_took = iter(range(count)), []

    async def line() -> None:
        for _ in left:
            began = time.perf_counter()
            await one()
            each_took.append(time.perf_counter() - began)

    began = time.perf_counter()
    async with asyncio.TaskGroup() as group:
        for _ in range(min(at_once, count)):
            group.create_task(line())
    return {"count": count, "seconds": time.perf_counter() - began, "each": _milliseconds(each_took)}


def _milliseconds(seconds: list[float]) -> dict[str, float]:
    """Median and 99th percentile."""
    ordered = sorted(seconds)
    return {
        name: round(ordered[min(len(ordered) - 1, int(share * len(ordered)))] * 1000, 3)
        for name, share in (("p50", 0.5), ("p99", 0.99))
    }


async def answer_questions(client: Client, ticks: Ticks) -> None:
    """Say that the client is there, then answer one question after the other."""
    questions = Questions(client, ticks)
    _write({"ready": True})
    while line := await asyncio.to_thread(sys.stdin.readline):
        verb, *values = json.loads(line)
        _write(await questions.answer(verb, values))


def _write(answer: Json) -> None:
    print(json.dumps(answer), flush=True)


async def timed(count: int, one: Callable[[], Awaitable[object]]) -> Json:
    """The same thing so many times, one after the other."""
    return await in_flight(count, 1, one)


def save(path: str, document: str) -> None:
    Path(path).write_text(document)


def saved(path: str) -> str:
    return Path(path).read_text()
