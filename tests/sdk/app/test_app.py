"""Tasks of an app on a real server with real workers."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from penstock import (
    Penstock,
    Priority,
    RetryPolicy,
    TaskCancelled,
    TaskExpired,
    TaskFailed,
    TaskStatus,
    TaskTimedOut,
    activity,
    workflow,
)
from penstock.sdk.failures import ActivityFailureError, ApplicationError, WorkflowAlreadyStartedError
from penstock.sdk.tasks.queues import UnknownQueueError
from tests.acceptance.cluster import Cluster
from tests.sdk.server_fixtures import OPERATOR, WORKER
from tests.support.patience import PATIENCE, PATIENCE_S

LATER = PATIENCE


@pytest.fixture
async def app(scene: Cluster) -> AsyncIterator[Penstock]:
    async with Penstock(
        "shop",
        scene.first.url,
        namespace=scene.namespace,
        control_token=OPERATOR,
        worker_token=WORKER,
        queues=["bulk"],
    ) as made:
        yield made
        made.close_sync()


@dataclass
class Receipt:
    total: int


async def test_a_task_that_is_sent_is_run_by_a_worker_and_its_result_has_its_type(app: Penstock) -> None:
    @app.task
    async def charge(account: str, amount: int = 3) -> Receipt:
        return Receipt(amount)

    async with app.worker(await app.client()):
        handle = await charge.send("acme", 5)
        assert await handle.result(timeout=LATER) == Receipt(5)
        assert await (await charge.send(account="acme")).result(timeout=LATER) == Receipt(3)
        assert await charge.handle(handle.id).result() == Receipt(5)
        assert await app.handle(handle.id).result() == {"total": 5}
        assert (handle.is_new, await handle.status()) == (True, TaskStatus.COMPLETED)


async def test_a_plain_function_is_run_in_a_thread(app: Penstock) -> None:
    @app.task
    def paint(colour: str) -> str:
        with pytest.raises(RuntimeError):
            asyncio.get_running_loop()
        return f"{colour} all over"

    async with app.worker(await app.client()):
        assert await (await paint.send("red")).result(timeout=LATER) == "red all over"


async def test_a_task_that_is_called_is_the_function_itself(app: Penstock) -> None:
    @app.task
    async def add(first: int, second: int) -> int:
        """Adds."""
        return first + second

    @app.task(queue="bulk")
    def twice(number: int) -> int:
        return 2 * number

    assert (await add(1, 2), twice(4)) == (3, 8)
    assert (add.__name__, add.__doc__, add.name, add.queue) == ("add", "Adds.", "add", "default")
    assert repr(twice) == "Task('twice', queue='bulk')"


async def test_a_task_that_raises_has_failed_with_what_it_raised(app: Penstock) -> None:
    @app.task
    def charge() -> None:
        raise LookupError("no such account")

    async with app.worker(await app.client()):
        handle = await charge.send()
        with pytest.raises(TaskFailed, match="failed: LookupError: no such account") as failed:
            await handle.result(timeout=LATER)
        assert isinstance(failed.value, ActivityFailureError)
        assert isinstance(failed.value.cause, ApplicationError)
        assert (failed.value.cause.type, failed.value.task_id) == ("LookupError", handle.id)
        assert await handle.status() is TaskStatus.FAILED


@pytest.mark.parametrize("retry", [2, RetryPolicy(initial_interval=timedelta(0), maximum_attempts=3)])
async def test_a_task_is_tried_again_as_often_as_it_says(app: Penstock, retry: Any) -> None:
    tried: list[int] = []

    @app.task(retry=retry)
    async def flaky() -> int:
        tried.append(activity.info().attempt)
        if len(tried) < 3:
            raise ValueError("not yet")
        return len(tried)

    async with app.worker(await app.client()):
        assert await (await flaky.send()).result(timeout=LATER) == 3
    assert tried == [1, 2, 3]


async def test_a_task_is_tried_once_if_nobody_says_more(app: Penstock) -> None:
    tried: list[int] = []

    @app.task
    async def flaky() -> None:
        tried.append(1)
        raise ValueError("no")

    async with app.worker(await app.client()):
        with pytest.raises(TaskFailed):
            await (await flaky.send()).result(timeout=LATER)
    assert tried == [1]


async def test_a_task_that_takes_too_long_has_timed_out(app: Penstock) -> None:
    @app.task(timeout=timedelta(milliseconds=200))
    async def dawdle() -> None:
        await asyncio.Event().wait()

    async with app.worker(await app.client()):
        with pytest.raises(TaskTimedOut, match="timed out"):
            await (await dawdle.send()).result(timeout=LATER)


async def test_a_task_that_nobody_began_while_it_was_good_has_expired(app: Penstock) -> None:
    @app.task(good_until=timedelta(milliseconds=50))
    async def greet() -> None: ...

    handle = await greet.send()
    with pytest.raises(TaskExpired, match="has expired"):
        await handle.result(timeout=LATER)
    assert await handle.status() is TaskStatus.EXPIRED
    assert (await handle.describe()).attempt == 0
    past = greet.with_options(good_until=datetime.now(UTC) - timedelta(seconds=1))
    with pytest.raises(TaskExpired):
        await (await past.send()).result(timeout=LATER)


async def test_a_task_that_is_late_when_it_is_sent_expires_though_a_worker_waits_for_it(
    app: Penstock,
) -> None:
    """Scenario 48."""
    ran: list[int] = []

    @app.task
    async def greet() -> None:
        ran.append(1)

    past = greet.with_options(good_until=datetime.now(UTC) - timedelta(hours=1))
    async with app.worker(await app.client()):
        await (await greet.send()).result(timeout=LATER)
        with pytest.raises(TaskExpired):
            await (await past.send()).result(timeout=LATER)
    assert ran == [1]


@pytest.mark.parametrize("delay", [timedelta(0), timedelta(milliseconds=20)])
async def test_what_is_good_for_a_while_is_so_from_the_first_on_and_not_with_each_attempt(
    app: Penstock, delay: timedelta
) -> None:
    """Scenario 52: a retry that would come too late is not made."""
    ran: list[int] = []

    @app.task(good_until=timedelta(minutes=1), retry=RetryPolicy(initial_interval=timedelta(minutes=2)))
    async def fail() -> None:
        ran.append(1)
        raise ValueError("the original error")

    async with app.worker(await app.client()):
        with pytest.raises(TaskFailed, match="the original error"):
            await (await fail.schedule(delay)).result(timeout=LATER)
    assert ran == [1]


async def test_a_task_that_was_cancelled_says_so(app: Penstock) -> None:
    @app.task
    async def greet() -> None: ...

    handle = await greet.send()
    assert await handle.status() is TaskStatus.WAITING
    await handle.cancel("not wanted")
    with pytest.raises(TaskCancelled, match="not wanted"):
        await handle.result(timeout=LATER)
    assert await handle.status() is TaskStatus.CANCELLED


async def test_a_running_task_shows_as_running_and_waiting_for_it_may_end_first(app: Penstock) -> None:
    began, go_on = asyncio.Event(), asyncio.Event()

    @app.task
    async def work() -> str:
        began.set()
        await go_on.wait()
        return "done"

    async with app.worker(await app.client()):
        handle = await work.send()
        await began.wait()
        assert await handle.status() is TaskStatus.RUNNING
        with pytest.raises(TimeoutError, match=r"has not ended within 0\.05 seconds"):
            await handle.result(timeout=0.05)
        go_on.set()
        assert await handle.result(timeout=LATER) == "done"


async def test_a_task_may_be_scheduled_after_a_while_or_at_a_moment(app: Penstock) -> None:
    @app.task
    async def look_at_the_clock() -> datetime:
        return datetime.now(UTC)

    now = datetime.now(UTC)
    soon, later = timedelta(milliseconds=300), timedelta(milliseconds=600)
    async with app.worker(await app.client()):
        at_last = await look_at_the_clock.schedule(later)
        due = await look_at_the_clock.schedule(now + soon)
        past = await look_at_the_clock.schedule(now - timedelta(hours=1))
        assert await past.result(timeout=LATER) >= now
        assert await due.result(timeout=LATER) >= now + soon
        assert await at_last.result(timeout=LATER) >= now + later


async def test_many_are_sent_together_and_each_has_its_handle(app: Penstock) -> None:
    @app.task
    async def add(first: int, second: int) -> int:
        return first + second

    async with app.worker(await app.client()):
        handles = await add.send_many([(number, 1) for number in range(120)])
        results = [await each.result(timeout=LATER) for each in handles]
    assert results == list(range(1, 121))


async def test_what_is_sent_twice_under_one_key_is_one_task(app: Penstock) -> None:
    runs: list[str] = []

    @app.task
    async def charge(account: str) -> int:
        runs.append(account)
        return len(runs)

    @app.task
    async def mail(account: str) -> None: ...

    once = charge.with_options(idempotency_key="order-7")
    async with app.worker(await app.client()):
        first = await once.send("acme")
        assert await first.result(timeout=LATER) == 1
        again = await once.send("acme")
        assert (again.id, await again.result(timeout=LATER)) == (first.id, 1)
        other = await mail.with_options(idempotency_key="order-7").send("acme")
        assert other.id != first.id
    assert runs == ["acme"]


async def test_an_id_of_ones_own_is_taken_once(app: Penstock) -> None:
    @app.task
    async def charge() -> None: ...

    assert (await charge.with_options(id="order-7").send()).id == "order-7"
    with pytest.raises(WorkflowAlreadyStartedError):
        await charge.with_options(id="order-7").send()


async def test_priority_and_queue_may_be_said_for_one_send(app: Penstock) -> None:
    @app.task(priority=4)
    async def charge() -> None: ...

    usual = await (await charge.send()).describe()
    assert (usual.priority_key, usual.task_queue) == (4, "default")
    urgent = charge.with_options(priority=Priority(priority_key=1, fairness_key="acme"), queue="bulk")
    found = await (await urgent.send()).describe()
    assert (found.priority_key, found.fairness_key, found.task_queue) == (1, "acme", "bulk")
    async with app.worker(await app.client(), "bulk"):
        await (await urgent.send()).result(timeout=LATER)


async def test_code_without_async_sends_and_waits_as_well(app: Penstock) -> None:
    @app.task
    async def add(first: int, second: int) -> int:
        return first + second

    @app.task
    def fail() -> None:
        raise ValueError("no")

    def plain() -> list[int]:
        handles = [add.send_sync(1, 2), add.schedule_sync(timedelta(0), 3, 4), *add.send_many_sync([(5, 6)])]
        with pytest.raises(TaskFailed):
            fail.send_sync().result_sync(timeout=LATER)
        results = [each.result_sync(timeout=LATER) for each in handles]
        assert handles[0].status_sync() is TaskStatus.COMPLETED
        waiting = add.schedule_sync(timedelta(hours=1), 1, 2)
        waiting.cancel_sync()
        assert waiting.describe_sync().status == "cancelled"
        return results

    async with app.worker(await app.client()):
        assert await asyncio.to_thread(plain) == [3, 7, 11]


async def test_waiting_in_an_event_loop_is_refused(app: Penstock) -> None:
    @app.task
    async def greet() -> None: ...

    with pytest.raises(RuntimeError, match="await its version without _sync"):
        greet.send_sync()


async def test_a_task_may_send_tasks(app: Penstock) -> None:
    @app.task
    async def leaf(number: int) -> int:
        return number

    @app.task
    async def tree(number: int) -> int:
        return await (await leaf.send(number)).result(timeout=LATER)

    @app.task
    def bush(number: int) -> int:
        return leaf.send_sync(number).result_sync(timeout=LATER)

    async with app.worker(await app.client()):
        assert await (await tree.send(1)).result(timeout=LATER) == 1
        assert await (await bush.send(2)).result(timeout=LATER) == 2


@pytest.mark.parametrize("runs_in", [None, "thread"])
async def test_arguments_may_be_given_by_name_also_those_that_must(app: Penstock, runs_in: Any) -> None:
    tries: list[int] = []

    async def waiting(first: int, second: int = 5, *, model: str, tag: str = "none") -> str:
        return f"{first} {second} {model} {tag}"

    def plain(first: int, second: int = 5, *, model: str, tag: str = "none") -> str:
        tries.append(1)
        if len(tries) == 1:
            raise ValueError("once more")
        return f"{first} {second} {model} {tag}"

    again = RetryPolicy(maximum_attempts=2, initial_interval=timedelta(milliseconds=1))
    if runs_in is None:
        task: Any = app.task(name="named")(waiting)
    else:
        task = app.task(name="named", runs_in=runs_in, retry=again)(plain)

    async with app.worker(await app.client()):
        assert await (await task.send(1, model="m")).result(timeout=LATER) == "1 5 m none"
        assert (
            await (await task.send(second=2, first=1, tag="t", model="m")).result(timeout=LATER) == "1 2 m t"
        )
        assert await (await task.schedule(timedelta(0), 1, model="m")).result(timeout=LATER) == "1 5 m none"
    with pytest.raises(TypeError, match="missing a required"):
        await task.send(1, 2)
    with pytest.raises(TypeError, match="too many positional arguments"):
        await task.send(1, 2, "m")


async def test_a_workflow_of_the_app_calls_a_task_and_does_not_send_it(app: Penstock) -> None:
    @app.task
    async def add(first: int, second: int) -> int:
        return first + second

    @app.workflow
    @workflow.defn
    class Sum:
        @workflow.run
        async def run(self, numbers: list[int]) -> int:
            with pytest.raises(RuntimeError, match=r"workflow\.execute_activity"):
                await add.send(1, 2)
            total = 0
            for each in numbers:
                total = await workflow.execute_activity(add, args=[total, each], start_to_close_timeout=LATER)
            return total

    client = await app.client()
    async with app.worker(client):
        assert await client.execute_workflow(Sum.run, [1, 2, 3], task_queue="default") == 6


async def test_activities_may_be_added_to_an_app(app: Penstock) -> None:
    class Shop:
        @activity.defn
        async def sell(self, what: str) -> str:
            return f"sold {what}"

    app.add(activities=[Shop().sell], queue="till")
    assert app.queues == ["bulk", "till"]
    client = await app.client()
    async with app.worker(client, "till"):
        assert await client.execute_activity("sell", "tea", task_queue="till") == "sold tea"


def test_an_app_connects_to_nothing_before_it_is_used_and_again_in_every_loop(scene_url: str) -> None:
    app = Penstock("shop", scene_url, control_token=OPERATOR, worker_token=WORKER)

    @app.task
    async def greet() -> None: ...

    first = asyncio.run(greet.send())
    second = asyncio.run(greet.send())
    assert asyncio.run(first.status()) is TaskStatus.WAITING
    assert first.id != second.id


@pytest.fixture(scope="module")
def scene_url(cluster: Cluster) -> str:
    return cluster.first.url


def test_a_program_that_only_sends_ends_without_a_word(scene_url: str, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        "import asyncio\n"
        "from penstock import Penstock\n"
        f"app = Penstock('shop', {scene_url!r}, control_token={OPERATOR!r}, worker_token={WORKER!r})\n"
        "@app.task\n"
        "def greet(name: str) -> None: ...\n"
        "async def main() -> None:\n"
        "    await greet.send('ada')\n"
        "asyncio.run(main())\n"
        "greet.send_sync('bob')\n"
    )
    done = subprocess.run(
        [sys.executable, "-W", "always", program],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_a_forked_process_sends_as_well(scene_url: str, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        "import os\n"
        "from penstock import Penstock\n"
        f"app = Penstock('shop', {scene_url!r}, control_token={OPERATOR!r}, worker_token={WORKER!r})\n"
        "@app.task\n"
        "def greet(name: str) -> None: ...\n"
        "greet.send_sync('ada')\n"
        "child = os.fork()\n"
        "print(greet.send_sync('bob').status_sync(), flush=True)\n"
        "if child:\n"
        "    assert os.waitpid(child, 0)[1] == 0\n"
    )
    done = subprocess.run(
        [sys.executable, program], capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )
    assert (done.returncode, done.stdout) == (0, "waiting\nwaiting\n"), done.stderr


def test_annotations_of_a_task_may_name_what_is_defined_below_it() -> None:
    names: dict[str, Any] = {"app": local()}
    exec(
        "from __future__ import annotations\n"
        "@app.task\n"
        "def sell(what: Thing) -> Thing: ...\n"
        "class Thing: ...\n",
        names,
    )
    assert names["sell"].definition.ret_type is names["Thing"]


# Errors that are reported as early as possible


def local(**options: Any) -> Penstock:
    return Penstock("shop", "http://127.0.0.1:1", **options)


def test_two_tasks_of_one_name_are_refused() -> None:
    app = local()

    @app.task
    def greet() -> None: ...

    with pytest.raises(ValueError, match=r'has a task "greet" already.*name=…'):

        @app.task(name="greet")
        def other() -> None: ...


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"retry": -1}, "retry is 0 or more times"),
        ({"retry": "3"}, "retry is a RetryPolicy or the number of times to try again, not str"),
        ({"retry": True}, "retry is a RetryPolicy"),
        ({"timeout": 5}, "timeout is a timedelta, not int"),
        ({"timeout": timedelta(0)}, "timeout must be longer than nothing"),
        ({"priority": 9}, "priority_key must be a whole number from 1"),
        ({"priority": "high"}, "priority is a Priority, not str"),
        ({"good_until": datetime(2030, 1, 1)}, "good_until has no time zone"),  # noqa: DTZ001
        ({"good_until": "soon"}, "good_until is a timedelta or a datetime, not str"),
        ({"on_lost_lease": "resurrect"}, "on_lost_lease is 'fail' or 'redeliver', not 'resurrect'"),
        ({"queue": ""}, "queue is 1 to 255 visible characters"),
        ({"name": ""}, "The name of an activity is 1 to 255"),
    ],
)
def test_an_option_that_makes_no_sense_is_refused_at_the_decorator(options: Any, said: str) -> None:
    with pytest.raises((TypeError, ValueError), match=said):

        @local().task(**options)
        def greet() -> None: ...


def test_what_cannot_be_a_task_is_told_so() -> None:
    app = local()
    with pytest.raises(TypeError, match="is a method, and a worker has no instance"):

        class Shop:
            @app.task
            def sell(self) -> None: ...

    with pytest.raises(TypeError, match="goes above a function"):
        app.task(Cluster)
    with pytest.raises(TypeError, match=r"takes \*names"):

        @app.task
        def greet(*names: str) -> None: ...

    with pytest.raises(ValueError, match="An app has a name"):
        Penstock("")
    with pytest.raises(TypeError, match="queues is a list"):
        Penstock("shop", queues="mail")


async def test_arguments_that_do_not_fit_are_told_before_anything_is_sent() -> None:
    app = local()

    @app.task
    def add(first: int, second: int = 2) -> int:
        return first + second

    with pytest.raises(TypeError, match=r'task "add": missing a required argument: \'first\''):
        await add.send()  # type: ignore[call-arg]
    with pytest.raises(TypeError, match=r'task "add": got an unexpected keyword argument \'third\''):
        await add.send(1, third=3)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="must be int, not str"):
        await add.send("one")  # type: ignore[arg-type]
    with pytest.raises(
        TypeError, match=r"send_many takes a tuple of arguments for each task, such as \[\(1,\)"
    ):
        await add.send_many([1])  # type: ignore[list-item]
    with pytest.raises(TypeError, match="cannot share one id"):
        await add.with_options(id="a").send_many([(1, 2)])
    with pytest.raises(TypeError, match="no option 'prio'; did you mean 'priority'"):
        add.with_options(prio=1)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="scheduled by a timedelta or a datetime"):
        await add.schedule(5, 1)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="cannot be scheduled 1 day"):
        await add.schedule(timedelta(days=-1), 1)
    with pytest.raises(UnknownQueueError, match=r"no queue 'defalt'\. Did you mean 'default'\?"):
        await add.with_options(queue="defalt").send(1)


async def test_a_worker_is_made_for_a_queue_that_the_app_has() -> None:
    app = local()

    @app.task
    def add() -> None: ...

    with pytest.raises(UnknownQueueError, match=r"no queue 'mail'\. It has default"):
        app.worker(await app.client(), "mail")
    await app.close()


def test_tasks_that_need_a_core_run_as_many_at_once_as_there_are_cores() -> None:
    app = local()
    app.task(print_nothing)
    assert app.tasks_at_once == 100
    app.task(name="busy", runs_in="process")(print_nothing)
    assert app.tasks_at_once == os.cpu_count()


def print_nothing() -> None: ...
