"""`no-begin-after-the-lease`: a worker runs a task only while its lease is valid, however late responses are."""

from __future__ import annotations

import asyncio
import itertools
import random
import time
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import pytest

from penstock.sdk import activity, workflow
from penstock.sdk.clients.client import Client
from penstock.sdk.lease import MARGIN_MOST_S, Lease, LeaseExpired, lease_clock, lease_of, leased
from penstock.sdk.retry import RetryPolicy
from penstock.sdk.worker import Worker
from penstock.sdk.worker import metrics as names
from penstock.sdk.worker.claim_options import Claiming
from tests.acceptance.cluster import Cluster
from tests.faults.deadlines import until
from tests.sdk.server_fixtures import OPERATOR, WORKER, connected, new_namespace, serving
from tests.support.delaying_proxy import LateProxy, late_proxy
from tests.support.patience import PATIENCE_S
from tests.support.sdk import Numbers

LEASE_S = 1
QUEUE = "q"
LONG = timedelta(seconds=60)
_ids = itertools.count(1)


@pytest.fixture(scope="module")
async def cluster(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Cluster]:
    """A server whose leases last a second."""
    seconds = str(LEASE_S)
    settings = {
        "DW_ACTIVITY_TASK_TIMEOUT": seconds,
        "DW_WORKFLOW_TASK_TIMEOUT": seconds,
        "DW_QUERY_TASK_LEASE_TIMEOUT": seconds,
        "DW_QUARANTINE_AFTER": "0",
    }
    async with serving(tmp_path_factory.mktemp("leases"), **settings) as made:
        yield made


@pytest.fixture
async def scene(cluster: Cluster) -> Cluster:
    return await new_namespace(cluster)


@pytest.fixture
async def client(scene: Cluster) -> AsyncIterator[Client]:
    async with asyncio.timeout(PATIENCE_S), await connected(scene) as made:
        yield made


@pytest.fixture
async def proxy(scene: Cluster) -> AsyncIterator[LateProxy]:
    async with late_proxy(scene.first.url) as made:
        yield made


@pytest.fixture
async def behind(scene: Cluster, proxy: LateProxy) -> AsyncIterator[Client]:
    """A client whose responses pass through the proxy."""
    async with await through(scene, proxy) as made:
        yield made


async def through(scene: Cluster, proxy: LateProxy) -> Client:
    return await Client.connect(
        proxy.url, namespace=scene.namespace, control_token=OPERATOR, worker_token=WORKER
    )


@dataclass
class Evidence:
    """What workers run, recorded by the code itself: who began and ended which attempt, and when."""

    begun: list[tuple[str, int, str]] = field(default_factory=list)
    ended: list[tuple[str, int, str]] = field(default_factory=list)
    running: int = 0
    peak: int = 0
    open: asyncio.Event = field(default_factory=asyncio.Event)
    seconds: float | None = None
    """How long an attempt takes; None until released."""

    def of(self, who: str) -> Any:
        """The activity as one worker runs it."""

        @activity.defn(name="step")
        async def step(name: str) -> str:
            attempt = (name, activity.info().attempt, who)
            self.begun.append(attempt)
            self.running += 1
            self.peak = max(self.peak, self.running)
            try:
                await (self.open.wait() if self.seconds is None else asyncio.sleep(self.seconds))
            finally:
                self.running -= 1
                self.ended.append(attempt)
            return who

        return step

    def begun_by(self, who: str) -> list[tuple[str, int, str]]:
        return [each for each in self.begun if each[2] == who]


async def send(client: Client, count: int = 1, **options: Any) -> list[Any]:
    return [
        await client.start_activity(
            "step",
            f"t{next(_ids)}",
            id=f"s-{next(_ids)}",
            task_queue=QUEUE,
            start_to_close_timeout=LONG,
            retry_policy=RetryPolicy(initial_interval=timedelta(milliseconds=1)),
            **options,
        )
        for _ in range(count)
    ]


async def cap(client: Client, most: int) -> None:
    await client.transport.control(
        "PATCH",
        f"/task-queues/{QUEUE}/limits",
        {"max_active_leases_per_queue": most, "task_queue_type": "activity"},
        idempotent=True,
    )


def worker(client: Client, evidence: Evidence, who: str, numbers: Numbers, **options: Any) -> Worker:
    return Worker(
        client,
        task_queue=QUEUE,
        identity=who,
        activities=[evidence.of(who)],
        metrics=numbers,
        **({"max_concurrent_activity_tasks": 5} | options),
    )


def dropped(numbers: Numbers, kind: str, when: str = "before_start") -> int:
    return numbers.counts[names.LEASES_ENDED, kind, when]


# What the user observed


async def test_an_attempt_does_not_begin_after_the_next_one_has_completed(
    client: Client, behind: Client, proxy: LateProxy, caplog: pytest.LogCaptureFixture
) -> None:
    evidence, late, prompt = Evidence(), Numbers(), Numbers()
    evidence.open.set()
    async with worker(behind, evidence, "late", late):
        proxy.hold()
        [handle] = await send(client)
        await until("the answer is on its way", lambda: b'"step"' in proxy.held)
        async with worker(client, evidence, "prompt", prompt):
            assert await handle.result() == "prompt"
            proxy.release()
            await until("the late answer was dropped", lambda: dropped(late, "activity"))
    [(_, attempt, who)] = evidence.begun
    assert who == "prompt"
    assert attempt > 1
    assert late.counts[names.TASKS_ENDED, "activity", "lease_ended"] >= 1
    told = [each.getMessage() for each in caplog.records if "its lease had ended" in each.getMessage()]
    assert len(told) == 1


async def test_workers_run_no_more_than_the_cap_while_one_is_cut_off(
    client: Client, behind: Client, proxy: LateProxy
) -> None:
    """Leases that cannot be renewed expire, their permits go to others, and the code that held them has stopped by
    then.
    """
    evidence, cut_off, there = Evidence(), Numbers(), Numbers()
    await cap(client, 2)
    async with worker(behind, evidence, "cut off", cut_off):
        handles = await send(client, 4)
        await until("the cap is full", lambda: evidence.running == 2)
        async with worker(client, evidence, "there", there):
            proxy.hold()
            await until("others run in their place", lambda: len(evidence.begun_by("there")) == 2)
            assert dropped(cut_off, "activity", "running") == 2
            assert evidence.peak == 2
            evidence.open.set()
            for handle in handles:
                await handle.result()
            proxy.release()
    assert evidence.peak == 2


@pytest.mark.parametrize("claiming", [None, Claiming(prefetch=4, lease_ms=600)], ids=["hard", "prefetch"])
async def test_workers_run_no_more_than_the_cap_whatever_delays_answers(
    scene: Cluster, client: Client, claiming: Claiming | None
) -> None:
    """Half of the responses are late, some of them long after their leases; every task ends, once for each caller."""
    dice = random.Random(17)
    evidence, numbers = Evidence(seconds=0.05), Numbers()
    await cap(client, 3)

    def delay_s() -> float:
        return dice.choice((0.0, 0.0, 0.0, 0.3 * LEASE_S, 1.3 * LEASE_S))

    async with AsyncExitStack() as stack:
        for number in range(3):
            proxy = await stack.enter_async_context(late_proxy(scene.first.url, delay_s))
            connection = await stack.enter_async_context(await through(scene, proxy))
            options = {} if claiming is None else {"claiming": claiming}
            made = worker(connection, evidence, f"w{number}", numbers, **options)
            await stack.enter_async_context(made)
        handles = await send(client, 30)
        for handle in handles:
            await handle.result()
    assert evidence.peak <= 3
    attempts = [each[:2] for each in evidence.begun]
    assert len(attempts) == len(set(attempts)), "an attempt began twice"


async def test_code_whose_lease_cannot_be_renewed_is_stopped_before_another_attempt_begins(
    client: Client, behind: Client, proxy: LateProxy
) -> None:
    evidence, cut_off, there = Evidence(), Numbers(), Numbers()
    async with worker(behind, evidence, "cut off", cut_off):
        [handle] = await send(client)
        await until("it runs", lambda: evidence.running == 1)
        proxy.hold()
        await until("it was stopped", lambda: dropped(cut_off, "activity", "running"))
        assert evidence.ended == evidence.begun
        evidence.open.set()
        async with worker(client, evidence, "there", there):
            assert await handle.result() == "there"
        proxy.release()
    assert evidence.peak == 1


async def test_a_task_that_waited_too_long_for_a_thread_is_not_begun(
    client: Client, behind: Client, proxy: LateProxy
) -> None:
    ran: list[str] = []
    hold = asyncio.Event()
    loop = asyncio.get_running_loop()

    @activity.defn(name="step")
    def step(name: str) -> str:
        ran.append(name)
        asyncio.run_coroutine_threadsafe(hold.wait(), loop).result()
        return name

    numbers, threads = Numbers(), ThreadPoolExecutor(1)
    one_thread = Worker(
        behind,
        task_queue=QUEUE,
        activities=[step],
        metrics=numbers,
        max_concurrent_activity_tasks=2,
        activity_executor=threads,
    )
    async with one_thread:
        await send(client, 2)
        await until("one runs, one waits", lambda: len(ran) == 1)
        await until("both came", lambda: numbers.counts[names.TASKS_STARTED, "activity"] == 2)
        proxy.hold()
        await until("both leases ended", lambda: sum(_dropped_in_all(numbers)) == 2)
        hold.set()
    threads.shutdown(wait=True)
    assert len(ran) == 1


def _dropped_in_all(numbers: Numbers) -> list[int]:
    return [count for name, count in numbers.counts.items() if name[0] == names.LEASES_ENDED]


@workflow.defn(name="Local")
class Local:
    @workflow.run
    async def run(self) -> str:
        return await workflow.execute_local_activity(
            "flaky",
            start_to_close_timeout=LONG,
            retry_policy=RetryPolicy(initial_interval=timedelta(milliseconds=200)),
        )


async def test_a_local_activity_is_not_tried_again_after_the_lease_of_its_workflow_task(
    client: Client, behind: Client, proxy: LateProxy
) -> None:
    tries: list[float] = []
    numbers = Numbers()

    @activity.defn(name="flaky")
    async def flaky() -> str:
        tries.append(time.monotonic())
        if len(tries) == 1:
            proxy.hold()
        raise RuntimeError("not yet")

    async with Worker(behind, task_queue=QUEUE, workflows=[Local], activities=[flaky], metrics=numbers):
        handle = await client.start_workflow("Local", id="local", task_queue=QUEUE)
        await until("the task was dropped", lambda: dropped(numbers, "workflow", "running"))
        seen = len(tries)
        assert tries[-1] - tries[0] < LEASE_S + 0.1
        await handle.terminate()
        proxy.release()
    assert seen >= 2


@workflow.defn(name="Asked")
class Asked:
    looked = 0

    @workflow.run
    async def run(self) -> None:
        await workflow.wait_condition(lambda: False)

    @workflow.query
    def state(self) -> str:
        Asked.looked += 1
        return "asked"


async def test_late_workflow_and_query_tasks_are_not_begun(
    client: Client, behind: Client, proxy: LateProxy
) -> None:
    numbers = Numbers()
    async with Worker(behind, task_queue=QUEUE, workflows=[Asked], metrics=numbers):
        handle = await client.start_workflow("Asked", id="asked", task_queue=QUEUE)
        assert await handle.query("state") == "asked"
        seen = Asked.looked
        proxy.hold()
        asking = asyncio.ensure_future(handle.query("state"))
        await until("the question is on its way", lambda: b'"query_name":"state"' in proxy.held)
        other = await client.start_workflow("Asked", id="another", task_queue=QUEUE)
        await until("the workflow task is on its way", lambda: b'"another"' in proxy.held)
        began = time.monotonic()
        await until("the leases are over", lambda: time.monotonic() - began > LEASE_S)
        assert Asked.looked == seen
        proxy.release()
        await until("the late question was dropped", lambda: dropped(numbers, "query"))
        await until("the late workflow task was dropped", lambda: dropped(numbers, "workflow"))
        assert await asking == "asked", "it is asked anew when the late lease has ended"
        await handle.terminate()
        await other.terminate()


# The rule


def test_a_lease_lasts_from_the_moment_the_poll_was_sent_less_a_margin() -> None:
    now = lease_clock()
    fresh = lease_of(leased({"lease_ends_after_ms": 60_000}, now))
    left_s = fresh.left_s
    assert left_s is not None
    assert 60 - MARGIN_MOST_S - 1 < left_s <= 60 - MARGIN_MOST_S
    late = lease_of(leased({"lease_ends_after_ms": 60_000}, now - 59.99))
    assert late.is_over
    with pytest.raises(LeaseExpired):
        late.check()


def test_a_poll_that_waited_long_is_not_late() -> None:
    """The server counts from the arrival of the poll: its wait is included."""
    waited = lease_of(leased({"lease_ends_after_ms": 30_000 + 1_000}, lease_clock() - 30))
    assert not waited.is_over


def test_a_lease_only_grows_and_renewals_extend_it() -> None:
    lease = Lease()
    seen = []
    for sent_at, span_ms in ((lease_clock() - 10, 9_000), (lease_clock(), 5_000)):
        lease.extend(sent_at, {"lease_ends_after_ms": span_ms})
        seen.append(lease.is_over)
    assert seen == [True, False]
    ends_at = lease.ends_at
    lease.extend(lease_clock() - 10, {"lease_ends_after_ms": 5_000})
    assert lease.ends_at == ends_at


@pytest.mark.parametrize("answer", [{}, {"lease_ends_after_ms": None}, {"lease_ends_after_ms": "soon"}])
def test_a_server_that_does_not_say_how_long_a_lease_lasts_is_believed(answer: dict[str, Any]) -> None:
    lease = lease_of(leased(dict(answer), lease_clock() - 3600))
    assert not lease.is_over
    assert lease.left_s is None


def test_the_shortest_claims_can_be_started() -> None:
    """A prefetch lease may last 100 ms; the margin is a small part of that."""
    lease = Lease()
    lease.extend(lease_clock(), {"lease_ends_after_ms": 100})
    assert not lease.is_over
