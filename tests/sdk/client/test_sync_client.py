"""`SyncClient`."""

from __future__ import annotations

import asyncio
import json
import os
import threading
import urllib.request
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest

from penstock.sdk.clients.interceptors import ClientInterceptor, OutboundInterceptor, RunInput
from penstock.sdk.clients.starts import ActivityStart
from penstock.sdk.clients.sync_client import SyncClient
from penstock.sdk.failures import Unreachable, WorkflowFailureError
from tests.acceptance.cluster import Cluster
from tests.sdk.server_fixtures import OPERATOR, WORKER
from tests.support.live import free_port, headers
from tests.support.patience import PATIENCE_S


@pytest.fixture
def connect(scene: Cluster) -> Iterator[Callable[..., SyncClient]]:
    made: list[SyncClient] = []

    def connecting(**options: Any) -> SyncClient:
        options |= {"control_token": OPERATOR, "worker_token": WORKER}
        made.append(SyncClient.connect(scene.first.url, namespace=scene.namespace, **options))
        return made[-1]

    yield connecting
    for each in made:
        each.close()


@pytest.fixture
def client(connect: Callable[..., SyncClient]) -> SyncClient:
    return connect()


class Hand:
    """A worker played by the test, without asyncio."""

    def __init__(self, scene: Cluster) -> None:
        self.url, self.headers = scene.first.url, headers("worker", scene.namespace)
        self.post("/register", {"worker_id": "w1", "task_queue": "q", "runtime": "python"})

    def post(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        request = urllib.request.Request(
            f"{self.url}/api/worker{path}",
            json.dumps(body).encode(),
            self.headers | {"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
            found: dict[str, Any] = json.load(answer)
            return found

    def finish(self, result: Any) -> None:
        poll = {"worker_id": "w1", "task_queue": "q", "timeout_seconds": 30}
        task = self.post("/workflow-tasks/poll", poll)["task"]
        lease = {"lease_owner": "w1", "workflow_task_attempt": task["workflow_task_attempt"]}
        commands = [{"type": "complete_workflow", "result": result}]
        self.post(f"/workflow-tasks/{task['task_id']}/complete", lease | {"commands": commands})


@pytest.fixture
def hand(scene: Cluster) -> Hand:
    return Hand(scene)


def test_a_workflow_is_started_and_waited_for(client: SyncClient, hand: Hand) -> None:
    handle = client.start_workflow("adder", args=[3, 4], id="w", task_queue="q", result_type=int)
    hand.finish(7)
    assert handle.result(timeout=PATIENCE_S) == 7
    assert (handle.id, handle.is_new, handle.run_id) == ("w", True, None)
    assert handle.describe().status == "completed"
    assert handle.fetch_history().events[-1]["event_type"] == "WorkflowCompleted"
    assert [each["sequence"] for each in handle.fetch_history_events()][:2] == [1, 2]
    assert client.get_workflow_handle("w", result_type=int).result() == 7


def test_errors_are_those_of_the_async_client(client: SyncClient) -> None:
    handle = client.start_workflow("greeter", id="w", task_queue="q")
    with pytest.raises(TimeoutError):
        handle.result(timeout=0.01)
    handle.signal("approve", "anna")
    update = handle.start_update("add", 2, id="u1")
    assert (update.id, update.workflow_id) == ("u1", "w")
    handle.terminate("enough")
    with pytest.raises(WorkflowFailureError, match="enough"):
        handle.result()


def test_lists_are_read_page_by_page_and_may_be_left_early(client: SyncClient) -> None:
    for number in range(3):
        client.start_workflow("greeter", id=f"w{number}", task_queue="q")
    assert [each.id for each in client.list_workflows(page_size=2)] == ["w2", "w1", "w0"]
    assert next(client.list_workflows(page_size=1)).id == "w2"
    assert client.count_workflows().count == 3
    assert client.cancel_workflows('WorkflowType = "greeter"').acted == 3


def test_activities_are_started_one_by_one_and_together(client: SyncClient) -> None:
    one = client.start_activity("greet", id="a", task_queue="q")
    some = client.start_activities([ActivityStart("greet", id=f"a{n}", task_queue="q") for n in range(3)])
    assert [one.id, *(each.id for each in some)] == ["a", "a0", "a1", "a2"]
    some[0].cancel()
    assert some[0].describe().status == "cancelled"
    assert client.get_activity_handle("a1").describe().activity_type == "greet"


def test_any_thread_may_use_it(client: SyncClient) -> None:
    def start(number: int) -> str:
        return client.start_workflow("greeter", id=f"w{number}", task_queue="q").id

    with ThreadPoolExecutor(8) as threads:
        started = list(threads.map(start, range(40)))
    assert client.count_workflows().count == len(set(started)) == 40


async def test_it_may_be_used_where_another_loop_runs(client: SyncClient) -> None:
    assert client.count_workflows().count == 0
    assert (await asyncio.to_thread(client.count_workflows)).count == 0


def test_on_its_own_loop_it_refuses_instead_of_waiting_for_itself(connect: Callable[..., SyncClient]) -> None:
    holder: list[SyncClient] = []

    class Asking(ClientInterceptor):
        def intercept_client(self, next: OutboundInterceptor) -> OutboundInterceptor:  # noqa: A002
            class Link(OutboundInterceptor):
                async def describe_workflow(self, input: RunInput) -> Any:  # noqa: A002
                    return holder[0].count_workflows()

            return Link(next)

    holder.append(connect(interceptors=[Asking()]))
    with pytest.raises(RuntimeError, match="called on its own event loop"):
        holder[0].get_workflow_handle("w").describe()


def test_closed_it_leaves_no_thread_and_says_so(connect: Callable[..., SyncClient]) -> None:
    before = set(threading.enumerate())
    with connect() as client:
        assert len(set(threading.enumerate()) - before) == 1
    assert set(threading.enumerate()) <= before
    client.close()
    with pytest.raises(RuntimeError, match="closed"):
        client.count_workflows()


def test_a_call_that_waits_is_given_up_when_the_client_is_closed(connect: Callable[..., SyncClient]) -> None:
    client = connect()
    handle = client.start_workflow("greeter", id="w", task_queue="q")
    waiting = threading.Event()
    inner = handle._inner

    async def result(**options: Any) -> Any:
        waiting.set()
        return await original(**options)

    original: Callable[..., Coroutine[Any, Any, Any]] = inner.result
    inner.result = result  # type: ignore[method-assign]
    with ThreadPoolExecutor(1) as threads:
        asking = threads.submit(handle.result)
        assert waiting.wait(PATIENCE_S)
        client.close()
        with pytest.raises(RuntimeError, match="closed"):
            asking.result(30)


def test_a_server_that_is_away_leaves_no_thread(scene: Cluster) -> None:
    before = set(threading.enumerate())
    with pytest.raises(Unreachable):
        SyncClient.connect(f"http://127.0.0.1:{free_port()}", retry_for=timedelta(0))
    assert set(threading.enumerate()) <= before


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_process_is_told_to_connect_anew(client: SyncClient) -> None:
    child = os.fork()
    if child == 0:
        try:
            client.count_workflows()
        except RuntimeError as error:
            os._exit(0 if "fork" in str(error) else 2)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_it_shows_no_token(client: SyncClient) -> None:
    assert repr(client).startswith("SyncClient(HttpTransport(")
    assert "secret" not in repr(client)
