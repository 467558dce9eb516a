"""The lifecycle of a worker: start, failures, and shutdown."""

from __future__ import annotations

import asyncio
import itertools
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from penstock.sdk import activity, workflow
from penstock.sdk.clients.client import Client
from penstock.sdk.failures import ServerRefused
from penstock.sdk.retry import RetryPolicy
from penstock.sdk.worker import Worker, run_until_signalled
from tests.acceptance.cluster import Cluster
from tests.sdk.server_fixtures import connected, serving
from tests.support.patience import PATIENCE, PATIENCE_S
from tests.support.sdk import Watched

SHORT = PATIENCE
QUEUE = "q"
ONCE = RetryPolicy(maximum_attempts=1)
_ids = itertools.count(1)


@pytest.fixture(scope="module")
async def cluster(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Cluster]:
    async with serving(
        tmp_path_factory.mktemp("lives"), DW_ACTIVITY_TASK_TIMEOUT="2", DW_WORKFLOW_TASK_TIMEOUT="2"
    ) as made:
        yield made


def new_id() -> str:
    return f"l-{next(_ids)}"


@activity.defn
async def greet(name: str) -> str:
    return f"Hello {name}"


@workflow.defn
class Greeter:
    @workflow.run
    async def run(self, name: str) -> str:
        return str(await workflow.execute_activity(greet, name, start_to_close_timeout=SHORT))


class Gate:
    """An activity that signals its start, and ends when released."""

    def __init__(self) -> None:
        self.entered = asyncio.Event()
        self.open = asyncio.Event()
        self.attempts: list[int] = []
        self.was_cancelled = False
        self.told_of_shutdown = asyncio.Event()

    @activity.defn(name="gate")
    async def gate(self) -> str:
        self.attempts.append(activity.info().attempt)
        self.entered.set()
        telling = asyncio.ensure_future(self._tell())
        try:
            await self.open.wait()
        except asyncio.CancelledError:
            self.was_cancelled = True
            raise
        finally:
            telling.cancel()
        return "through"

    async def _tell(self) -> None:
        await activity.wait_for_worker_shutdown()
        self.told_of_shutdown.set()


async def start_gate(client: Client, **options: Any) -> Any:
    return await client.start_activity(
        "gate", id=new_id(), task_queue=QUEUE, start_to_close_timeout=SHORT, **options
    )


class TestBeginning:
    async def test_the_block_begins_when_the_worker_is_registered(
        self, scene: Cluster, client: Client
    ) -> None:
        async with Worker(client, task_queue=QUEUE, activities=[greet]) as worker:
            before = worker.is_running
            (await scene.get(f"/api/workers/{worker.identity}")).expect(200)
        assert (before, worker.is_running, worker.is_shutdown) == (True, False, True)

    async def test_a_wrong_token_is_raised_at_once(self, scene: Cluster) -> None:
        told: list[BaseException] = []

        async def hear(error: BaseException) -> None:
            told.append(error)

        async with await connected(scene, worker_token="wrong") as client:
            worker = Worker(client, task_queue=QUEUE, activities=[greet], on_fatal_error=hear)
            with pytest.raises(ServerRefused) as raised:
                await worker.run()
        assert raised.value.reason in ("unauthorized", "forbidden")
        assert told == [raised.value]

    async def test_a_namespace_that_is_not_there_is_raised_at_once(self, scene: Cluster) -> None:
        async with await connected(scene.at("nowhere"), lazy=True) as client:
            with pytest.raises(ServerRefused) as raised:
                async with Worker(client, task_queue=QUEUE, activities=[greet]):
                    pass
        assert raised.value.reason == "namespace_not_found"

    async def test_a_worker_that_breaks_ends_the_block_with_what_broke_it(self, client: Client) -> None:
        watched = Watched(client.transport)
        own = Client(watched, namespace=client.namespace)
        refusal = ServerRefused("unauthorized", "the token was withdrawn", 401)
        async with asyncio.timeout(PATIENCE_S):
            with pytest.raises(ServerRefused, match="the token was withdrawn"):
                async with Worker(own, task_queue=QUEUE, workflows=[Greeter], activities=[greet]):
                    watched.refuses = lambda path: refusal if path.endswith("/poll") else None
                    handle = await client.start_workflow(Greeter.run, "you", id=new_id(), task_queue=QUEUE)
                    await handle.result()
                    await asyncio.Event().wait()
        await asyncio.sleep(0)

    async def test_a_worker_runs_once(self, client: Client) -> None:
        worker = Worker(client, task_queue=QUEUE, activities=[greet])
        async with worker:
            pass
        with pytest.raises(RuntimeError, match="A worker runs once"):
            await worker.run()

    async def test_a_worker_that_is_shut_down_before_it_ran_does_not_run(self, client: Client) -> None:
        worker = Worker(client, task_queue=QUEUE, activities=[greet])
        await worker.shutdown()
        await worker.run()
        assert worker.is_shutdown


class TestSurviving:
    async def test_a_worker_that_the_server_has_forgotten_registers_again(
        self, scene: Cluster, client: Client
    ) -> None:
        watched = Watched(client.transport)
        own = Client(watched, namespace=client.namespace)
        async with Worker(own, task_queue=QUEUE, workflows=[Greeter], activities=[greet]) as worker:
            path = f"/api/worker/registrations/{worker.identity}"
            (await scene.ask("DELETE", path, role="worker")).expect(200)
            found = await client.execute_workflow(Greeter.run, "you", id=new_id(), task_queue=QUEUE)
        assert found == "Hello you"
        assert len(watched.of("/register")) >= 2

    async def test_work_goes_on_after_the_server_was_killed_and_came_back(self, tmp_path: Path) -> None:
        gate = Gate()
        async with (
            serving(tmp_path) as scene,
            await connected(scene) as client,
            Worker(client, task_queue=QUEUE, workflows=[Greeter], activities=[greet, gate.gate]),
        ):
            handle = await start_gate(client)
            await gate.entered.wait()
            scene.first.kill()
            gate.open.set()
            scene.first.start()
            assert await handle.result() == "through"
            found = await client.execute_workflow(Greeter.run, "you", id=new_id(), task_queue=QUEUE)
        assert found == "Hello you"
        assert gate.attempts == [1], "its result was kept until the server was there to take it"

    async def test_an_activity_without_heartbeats_keeps_its_lease_however_long_it_takes(
        self, client: Client
    ) -> None:
        gate, watched = Gate(), Watched(client.transport)
        own = Client(watched, namespace=client.namespace)
        async with Worker(own, task_queue=QUEUE, activities=[gate.gate]):
            handle = await start_gate(client)
            await watched.until("/heartbeat", times=6)
            gate.open.set()
            assert await handle.result() == "through"
        assert gate.attempts == [1]

    async def test_a_long_local_activity_keeps_the_lease_of_its_workflow_task(self, client: Client) -> None:
        gate, watched = Gate(), Watched(client.transport)

        @workflow.defn(name="Patient")
        class Patient:
            @workflow.run
            async def run(self) -> str:
                return str(await workflow.execute_local_activity("gate", start_to_close_timeout=SHORT))

        own = Client(watched, namespace=client.namespace)
        async with Worker(own, task_queue=QUEUE, workflows=[Patient], activities=[gate.gate]):
            handle = await client.start_workflow(Patient.run, id=new_id(), task_queue=QUEUE)
            await watched.until("/heartbeat", times=6)
            gate.open.set()
            assert await handle.result() == "through"
        assert gate.attempts == [1]

    async def test_an_answer_to_a_poll_that_was_lost_is_given_again(self, client: Client) -> None:
        watched = Watched(client.transport)
        lost = iter([True])
        watched.loses = lambda path: path.endswith("activity-tasks/poll") and next(lost, False)
        own = Client(watched, namespace=client.namespace)
        handle = await client.start_activity(
            greet, "you", id=new_id(), task_queue=QUEUE, start_to_close_timeout=SHORT
        )
        async with Worker(own, task_queue=QUEUE, activities=[greet], max_concurrent_activity_task_polls=1):
            assert await handle.result() == "Hello you"
        first, again, *_ = watched.of("activity-tasks/poll")
        assert first["poll_request_id"] == again["poll_request_id"]
        assert (await handle.describe()).attempt == 1


class TestEnding:
    async def test_what_runs_may_end_within_the_grace_and_is_told_of_the_shutdown(
        self, client: Client
    ) -> None:
        gate = Gate()
        worker = Worker(
            client, task_queue=QUEUE, activities=[gate.gate], graceful_shutdown_timeout=timedelta(minutes=1)
        )
        running = asyncio.ensure_future(worker.run())
        handle = await start_gate(client)
        await gate.entered.wait()
        ending = asyncio.ensure_future(worker.shutdown())
        await gate.told_of_shutdown.wait()
        assert not ending.done()
        gate.open.set()
        await ending
        await running
        assert await handle.result() == "through"
        assert not gate.was_cancelled

    async def test_what_does_not_end_in_time_is_stopped_and_another_worker_has_it_at_once(
        self, client: Client
    ) -> None:
        gate = Gate()
        handle = await start_gate(client)
        async with Worker(client, task_queue=QUEUE, activities=[gate.gate]):
            await gate.entered.wait()
        assert gate.was_cancelled
        gate.open.set()
        async with Worker(client, task_queue=QUEUE, activities=[gate.gate]):
            assert await handle.result() == "through"

    async def test_a_worker_that_has_left_takes_nothing(self, scene: Cluster, client: Client) -> None:
        async with Worker(client, task_queue=QUEUE, activities=[greet]):
            pass
        await client.start_activity(greet, "you", id=new_id(), task_queue=QUEUE, start_to_close_timeout=SHORT)
        line = await scene.line(QUEUE)
        assert (line["ready_count"], line["leased_count"]) == (1, 0), line

    async def test_cancelling_run_shuts_the_worker_down(self, scene: Cluster, client: Client) -> None:
        worker = Worker(client, task_queue=QUEUE, activities=[greet])
        running = asyncio.ensure_future(worker.run())
        handle = await client.start_activity(
            greet, "you", id=new_id(), task_queue=QUEUE, start_to_close_timeout=SHORT
        )
        await handle.result()
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        assert worker.is_shutdown
        assert (await scene.get(f"/api/workers/{worker.identity}")).status == 404

    async def test_an_error_in_the_block_shuts_the_worker_down_and_comes_out(self, client: Client) -> None:
        with pytest.raises(ZeroDivisionError):
            async with Worker(client, task_queue=QUEUE, activities=[greet]) as worker:
                raise ZeroDivisionError
        assert worker.is_shutdown

    async def test_a_signal_shuts_down_all_workers_of_a_program(self, client: Client) -> None:
        workers = [Worker(client, task_queue=queue, activities=[greet]) for queue in ("one", "two")]
        running = asyncio.ensure_future(run_until_signalled(*workers))
        for queue in ("one", "two"):
            handle = await client.start_activity(
                greet, "you", id=new_id(), task_queue=queue, start_to_close_timeout=SHORT
            )
            await handle.result()
        os.kill(os.getpid(), signal.SIGTERM)
        await running
        assert all(worker.is_shutdown for worker in workers)

    async def test_a_program_that_runs_a_worker_ends_in_peace_when_asked_to(
        self, scene: Cluster, client: Client, tmp_path: Path
    ) -> None:
        program = tmp_path / "program.py"
        program.write_text(PROGRAM)
        with subprocess.Popen(
            [sys.executable, str(program)], env=surroundings(scene), stderr=subprocess.PIPE, text=True
        ) as process:
            handle = await client.start_activity(
                "who", id=new_id(), task_queue=QUEUE, start_to_close_timeout=SHORT
            )
            assert await handle.result() == process.pid
            process.send_signal(signal.SIGTERM)
            _, told = await asyncio.to_thread(process.communicate)
        assert process.returncode == 0, told
        workers = (await scene.get("/api/workers")).ok()["workers"]
        assert workers == []


async def test_the_program_of_the_guide_does_what_it_shows(scene: Cluster, tmp_path: Path) -> None:
    guide = Path(__file__).parents[3] / "docs" / "guides" / "workers.md"
    program = tmp_path / "guide.py"
    program.write_text(guide.read_text().split("```python\n")[1].split("```")[0])
    ran = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, str(program)],
        env=surroundings(scene),
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert (ran.returncode, ran.stdout) == (0, "Hello you\n"), ran.stderr


def surroundings(scene: Cluster) -> dict[str, str]:
    """The environment of a program that connects to the scene."""
    return os.environ | {
        "DURABLE_WORKFLOW_SERVER_URL": scene.first.url,
        "DURABLE_WORKFLOW_NAMESPACE": scene.namespace or "",
        "DURABLE_WORKFLOW_CONTROL_TOKEN": "operator-secret",
        "DURABLE_WORKFLOW_WORKER_TOKEN": "worker-secret",
    }


PROGRAM = """
import os

from penstock.sdk import activity
from penstock.sdk.clients.client import Client
from penstock.sdk.worker import Worker, run_worker


@activity.defn
async def who() -> int:
    return os.getpid()


async def worker() -> Worker:
    return Worker(await Client.connect(), task_queue="q", activities=[who])


run_worker(worker)
"""


def make(**options: Any) -> Worker:
    return Worker(Client(None, namespace="default"), **({"task_queue": QUEUE} | options))  # type: ignore[arg-type]


@activity.defn(name="greet")
def other_greet() -> None: ...


@workflow.defn(name="Greeter")
class OtherGreeter:
    @workflow.run
    async def run(self) -> None: ...


class Plain:
    pass


def undecorated() -> None: ...


class TestMistakesAreFoundWhenTheWorkerIsMade:
    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({}, "nothing to run"),
            ({"activities": [greet, greet]}, 'activity "greet" is registered twice'),
            (
                {"activities": [greet, other_greet]},
                'activity "greet" is both .*greet and .*other_greet: rename one',
            ),
            ({"workflows": [Greeter, OtherGreeter]}, 'workflow "Greeter" is both'),
            ({"workflows": [Plain]}, "Plain is not a workflow: put @workflow.defn above the class"),
            ({"workflows": ["Greeter"]}, "'Greeter' is a name: pass the class"),
            ({"workflows": [greet]}, "greet is not a class"),
            (
                {"activities": [undecorated]},
                "undecorated is not an activity: decorate it with @activity.defn",
            ),
            ({"activities": ["greet"]}, "'greet' is a name"),
            ({"activities": [Gate.gate]}, "is a method without its object"),
            ({"activities": greet}, r"activities is a list: activities=\[…\]"),
            ({"workflows": [Greeter], "max_concurrent_workflow_tasks": 0}, "none would ever run"),
            ({"activities": [greet], "max_concurrent_activity_tasks": 0}, "none would ever run"),
            ({"activities": [greet], "max_concurrent_activity_tasks": -1}, "is 0 to 1000000, not -1"),
            (
                {"activities": [greet], "max_concurrent_activity_tasks": 1, "max_concurrent_activities": 1},
                "another name of max_concurrent_activity_tasks",
            ),
            ({"activities": [greet], "max_concurrent_activties": 1}, "unexpected keyword argument"),
            ({"activities": [greet], "task_queue": ""}, "task_queue is 1 to 255 visible characters"),
            ({"activities": [greet], "identity": "a\nb"}, "identity is 1 to 255 visible characters"),
            ({"activities": [greet], "build_id": 7}, "build_id is text, not int"),
        ],
    )
    def test_each_names_the_thing_and_the_way_out(self, options: dict[str, Any], message: str) -> None:
        with pytest.raises((TypeError, ValueError), match=message):
            make(**options)

    def test_both_names_of_the_slots_for_activities_are_understood(self) -> None:
        assert "q" in repr(make(activities=[greet], max_concurrent_activities=3))
