"""Environments side by side, one after the other, and on real servers."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from penstock.sdk.failures import ServerRefused
from penstock.testing import WorkflowEnvironment, mocked
from tests.support.patience import PATIENCE_S
from tests.testing.flows import DAY, QUEUE, Approval, Forever, Payment, Sleeper, a_worker, charge


async def test_several_environments_have_each_its_own_time_and_runs() -> None:
    async def one(days: int) -> datetime:
        start = datetime(2030 + days, 1, 1, tzinfo=UTC)
        async with await WorkflowEnvironment.start_time_skipping(start_time=start) as env:
            async with a_worker(env):
                woke = await env.client.execute_workflow(Sleeper.run, days, id="same", task_queue=QUEUE)
            assert env.now() == woke
            return woke

    woke = await asyncio.gather(*(one(days) for days in (1, 2, 3)))
    assert woke == [datetime(2030 + days, 1, 1, tzinfo=UTC) + days * DAY for days in (1, 2, 3)]


async def test_an_environment_knows_nothing_of_the_one_before() -> None:
    async with await WorkflowEnvironment.start_time_skipping() as first:
        await first.client.start_workflow(Forever.run, id="f", task_queue=QUEUE)
        assert (await first.client.get_workflow_handle("f").describe()).id == "f"
    async with await WorkflowEnvironment.start_time_skipping() as second:
        with pytest.raises(ServerRefused, match="f"):
            await second.client.get_workflow_handle("f").describe()


async def test_nothing_of_an_environment_goes_on_after_it() -> None:
    threads = _threads()
    with _tasks_made_here() as made:
        async with await WorkflowEnvironment.start_time_skipping() as env, a_worker(env):
            await env.client.execute_workflow(Sleeper.run, 1, id="s", task_queue=QUEUE)
            await env.client.start_workflow(Forever.run, id="f", task_queue=QUEUE)
    for _ in range(10):
        await asyncio.sleep(0)
    assert made, "an environment works in tasks of its own"
    assert [task for task in made if not task.done()] == []
    assert _threads() <= threads


_HERE: ContextVar[bool] = ContextVar("here", default=False)


@contextmanager
def _tasks_made_here() -> Iterator[list[asyncio.Task[Any]]]:
    """The tasks that this test starts: servers of other tests live in the same loop."""
    loop, made = asyncio.get_running_loop(), list[asyncio.Task[Any]]()
    others = loop.get_task_factory()

    def start(
        loop: asyncio.AbstractEventLoop, coro: Coroutine[Any, Any, Any], **options: Any
    ) -> asyncio.Task[Any]:
        task = asyncio.Task(coro, loop=loop, **options)
        if _HERE.get():
            made.append(task)
        return task

    token = _HERE.set(True)
    loop.set_task_factory(start)  # type: ignore[arg-type]  # Its type differs between the versions of Python.
    try:
        yield made
    finally:
        loop.set_task_factory(others)
        _HERE.reset(token)


def _threads() -> set[threading.Thread]:
    """All threads but the deadlock detector's, of which a process has one."""
    return {each for each in threading.enumerate() if each.name != "penstock-watchman"}


async def test_an_environment_that_is_shut_down_says_so() -> None:
    env = await WorkflowEnvironment.start_time_skipping()
    await env.shutdown()
    with pytest.raises(RuntimeError, match="shut down"):
        await env.client.start_workflow(Forever.run, id="f", task_queue=QUEUE)


async def test_an_environment_cannot_be_used_from_another_loop(env: WorkflowEnvironment) -> None:
    def elsewhere() -> None:
        with pytest.raises(RuntimeError, match="same loop scope"):
            asyncio.run(env.client.get_workflow_handle("f").describe())

    await asyncio.to_thread(elsewhere)


async def test_the_namespace_is_the_one_that_is_named() -> None:
    async with await WorkflowEnvironment.start_time_skipping(namespace="shop") as env, a_worker(env):
        assert env.client.namespace == "shop"
        await env.client.execute_workflow(Sleeper.run, 1, id="s", task_queue=QUEUE)


async def test_the_same_test_goes_the_same_way_every_time() -> None:
    """Events and their times are equal, even with much concurrency."""

    async def history() -> list[tuple[str, str]]:
        start = datetime(2030, 1, 1, tzinfo=UTC)
        skipping = await WorkflowEnvironment.start_time_skipping(start_time=start)
        async with skipping as env, a_worker(env, mocked(charge, returns="ok")):
            handles = [
                await env.client.start_workflow(Approval.run, id=f"a-{n}", task_queue=QUEUE) for n in range(5)
            ]
            payments = [
                env.client.execute_workflow(Payment.run, "o", id=f"p-{n}", task_queue=QUEUE) for n in range(5)
            ]
            await asyncio.gather(*payments, *(handle.result() for handle in handles))
            events = [event for each in handles for event in (await each.fetch_history()).events]
            return [(event["event_type"], event["timestamp"]) for event in events]

    first = await history()
    for _ in range(3):
        assert await history() == first


async def test_a_local_server_runs_workflows_in_real_time() -> None:
    before = datetime.now(UTC)
    async with await WorkflowEnvironment.start_local() as env:
        assert not env.supports_time_skipping
        async with a_worker(env):
            assert await env.client.execute_workflow(Payment.run, "o", id="p", task_queue=QUEUE) == "o paid 5"
        await env.sleep(timedelta(milliseconds=1))
        assert before <= env.now() <= datetime.now(UTC)
        with env.auto_time_skipping_disabled():
            borrowed = WorkflowEnvironment.from_client(env.client)
        async with borrowed:
            assert borrowed.client is env.client
        assert (await env.client.get_workflow_handle("p").describe()).id == "p"


async def test_a_local_server_that_cannot_start_says_why() -> None:
    with pytest.raises(RuntimeError, match="DW_WORKER_POLL_TIMEOUT"):
        await WorkflowEnvironment.start_local(settings={"DW_WORKER_POLL_TIMEOUT": "soon"})


def test_the_front_door_loads_nothing_until_it_is_used() -> None:
    program = (
        "import sys, penstock.testing\n"
        "heavy = [name for name in sys.modules if name.startswith(('penstock.server', 'penstock.sdk', 'aiohttp'))]\n"
        "assert not heavy, heavy\n"
        "assert set(penstock.testing.__all__) <= set(dir(penstock.testing))\n"
        "from penstock.testing import WorkflowEnvironment, mocked\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=PATIENCE_S)
