"""Workers of real servers: what they run, how much at a time, and what happens in failures."""

from __future__ import annotations

import asyncio
import itertools
from datetime import timedelta
from typing import Any

import pytest

from penstock.dispatch import dispatch_from
from penstock.sdk import activity, workflow
from penstock.sdk.clients.client import Client
from penstock.sdk.failures import ActivityError, ApplicationError, ServerRefused, WorkflowFailureError
from penstock.sdk.retry import RetryPolicy
from penstock.sdk.worker import Worker
from tests.acceptance.cluster import Cluster
from tests.support.patience import PATIENCE
from tests.support.sdk import Numbers, Watched

SHORT = PATIENCE
QUEUE = "q"
_ids = itertools.count(1)


def new_id() -> str:
    return f"w-{next(_ids)}"


@activity.defn
async def greet(name: str) -> str:
    return f"Hello {name}"


@activity.defn
def greet_in_a_thread(name: str) -> str:
    return f"Hello {name}"


@workflow.defn
class Greeter:
    @workflow.run
    async def run(self, name: str) -> str:
        first = await workflow.execute_activity(greet, name, start_to_close_timeout=SHORT)
        second = await workflow.execute_activity(greet_in_a_thread, name, start_to_close_timeout=SHORT)
        return f"{first}, {second}"


@workflow.defn
class Counting:
    """Sums its signals until it is asked to stop."""

    def __init__(self) -> None:
        self.total = 0
        self.stopped = False

    @workflow.run
    async def run(self) -> int:
        await workflow.wait_condition(lambda: self.stopped)
        return self.total

    @workflow.signal
    def add(self, number: int) -> None:
        self.total += number

    @workflow.signal
    def stop(self) -> None:
        self.stopped = True

    @workflow.query
    def total_now(self) -> int:
        return self.total

    @workflow.query
    def meddle(self) -> int:
        self.total += 1
        raise ApplicationError("this query fails")

    @workflow.update
    async def set_to(self, number: int) -> int:
        before, self.total = self.total, number
        await workflow.execute_activity(greet, "update", start_to_close_timeout=SHORT)
        return before

    @set_to.validator  # type: ignore[attr-defined,unused-ignore]
    def check(self, number: int) -> None:
        if number < 0:
            raise ValueError("no negative totals")


EVERYTHING: dict[str, Any] = {
    "workflows": [Greeter, Counting],
    "activities": [greet, greet_in_a_thread],
}


class TestWhatItRuns:
    async def test_a_workflow_with_activities_runs_to_its_end(self, client: Client) -> None:
        async with Worker(client, task_queue=QUEUE, **EVERYTHING):
            found = await client.execute_workflow(Greeter.run, "you", id=new_id(), task_queue=QUEUE)
        assert found == "Hello you, Hello you"

    async def test_a_standalone_activity_runs_on_a_worker_without_workflows(self, client: Client) -> None:
        async with Worker(client, task_queue=QUEUE, activities=[greet]):
            found = await client.execute_activity(
                greet, "you", id=new_id(), task_queue=QUEUE, start_to_close_timeout=SHORT
            )
        assert found == "Hello you"

    async def test_a_hundred_workflows_run_side_by_side(self, client: Client) -> None:
        numbers = Numbers()
        async with Worker(client, task_queue=QUEUE, metrics=numbers, **EVERYTHING):
            found = await asyncio.gather(
                *(
                    client.execute_workflow(Greeter.run, str(n), id=new_id(), task_queue=QUEUE)
                    for n in range(100)
                )
            )
        assert found == [f"Hello {n}, Hello {n}" for n in range(100)]
        reports = numbers.counts["penstock_worker_reports", "activity"]
        assert reports < numbers.counts["penstock_worker_report_items", "activity"], "reports share requests"

    async def test_two_workers_in_one_process_serve_two_queues(self, client: Client) -> None:
        @workflow.defn(name="Elsewhere")
        class Elsewhere:
            @workflow.run
            async def run(self) -> str:
                return str(
                    await workflow.execute_activity(
                        greet, "there", task_queue="other", start_to_close_timeout=SHORT
                    )
                )

        async with (
            Worker(client, task_queue=QUEUE, workflows=[Elsewhere]),
            Worker(client, task_queue="other", activities=[greet]),
        ):
            assert (
                await client.execute_workflow(Elsewhere.run, id=new_id(), task_queue=QUEUE) == "Hello there"
            )

    async def test_signals_queries_and_updates_reach_the_code(self, client: Client) -> None:
        async with Worker(client, task_queue=QUEUE, **EVERYTHING):
            handle = await client.start_workflow(Counting.run, id=new_id(), task_queue=QUEUE)
            await handle.signal(Counting.add, 3)
            while await handle.query(Counting.total_now) != 3:  # it handles signals once it has started
                await asyncio.sleep(0)
            assert await handle.execute_update(Counting.set_to, 10) == 3
            await handle.signal(Counting.stop)
            assert await handle.result() == 10
            assert await handle.query(Counting.total_now) == 10, "a run that has ended can be asked, too"

    async def test_an_update_that_the_validator_does_not_want_is_rejected_and_leaves_no_trace(
        self, client: Client
    ) -> None:
        async with Worker(client, task_queue=QUEUE, **EVERYTHING):
            handle = await client.start_workflow(Counting.run, id=new_id(), task_queue=QUEUE)
            with pytest.raises(Exception, match="no negative totals"):
                await handle.execute_update(Counting.set_to, -1)
            await handle.signal(Counting.stop)
            assert await handle.result() == 0
            types = [event["event_type"] async for event in handle.fetch_history_events()]
        assert "UpdateAccepted" not in types

    async def test_an_unknown_query_is_refused_by_name(self, client: Client) -> None:
        async with Worker(client, task_queue=QUEUE, **EVERYTHING):
            handle = await client.start_workflow(Counting.run, id=new_id(), task_queue=QUEUE)
            with pytest.raises(ServerRefused) as raised:
                await handle.query("unheard_of")
        assert raised.value.reason == "rejected_unknown_query"

    async def test_an_unknown_signal_is_refused_by_the_server_which_knows_the_contract(
        self, client: Client
    ) -> None:
        async with Worker(client, task_queue=QUEUE, **EVERYTHING):
            handle = await client.start_workflow(Counting.run, id=new_id(), task_queue=QUEUE)
            with pytest.raises(ServerRefused) as raised:
                await handle.signal("unheard_of")
            assert raised.value.reason == "unknown_signal"
            with pytest.raises(ServerRefused) as raised:
                await handle.signal("add", "three")
            assert raised.value.reason == "invalid_signal_arguments"


class TestTheCache:
    async def test_a_run_that_is_kept_receives_only_what_is_new(self, scene: Cluster, client: Client) -> None:
        numbers, watched = Numbers(), Watched(client.transport)
        own = Client(watched, namespace=client.namespace)
        async with Worker(own, task_queue=QUEUE, metrics=numbers, **EVERYTHING):
            await client.execute_workflow(Greeter.run, "you", id=new_id(), task_queue=QUEUE)
        looks = {
            key[1]: count for key, count in numbers.counts.items() if key[0] == "penstock_worker_cache_looks"
        }
        assert looks == {"replayed": 1, "kept": 2}
        assert not watched.of("/history"), "nothing had to be fetched"

    async def test_without_a_cache_every_task_is_replayed(self, client: Client) -> None:
        numbers = Numbers()
        async with Worker(client, task_queue=QUEUE, metrics=numbers, max_cached_workflows=0, **EVERYTHING):
            found = await client.execute_workflow(Greeter.run, "you", id=new_id(), task_queue=QUEUE)
        assert found == "Hello you, Hello you"
        assert numbers.counts["penstock_worker_cache_looks", "kept"] == 0

    async def test_a_run_that_had_to_leave_the_cache_is_fetched_and_replayed(self, client: Client) -> None:
        watched = Watched(client.transport)
        own = Client(watched, namespace=client.namespace)
        async with Worker(own, task_queue=QUEUE, max_cached_workflows=1, **EVERYTHING):
            handles = [
                await client.start_workflow(Counting.run, id=new_id(), task_queue=QUEUE) for _ in range(3)
            ]
            for number in (1, 2):
                for handle in handles:
                    await handle.signal(Counting.add, number)
                    await handle.query(Counting.total_now)
            for handle in handles:
                await handle.signal(Counting.stop)
            assert [await handle.result() for handle in handles] == [3, 3, 3]
        assert watched.of("/history"), "what left the cache was fetched"

    async def test_a_query_changes_nothing_though_it_meddles(self, client: Client) -> None:
        async with Worker(client, task_queue=QUEUE, max_cached_workflows=0, **EVERYTHING):
            handle = await client.start_workflow(Counting.run, id=new_id(), task_queue=QUEUE)
            await handle.signal(Counting.add, 1)
            with pytest.raises(ServerRefused, match="this query fails"):
                await handle.query(Counting.meddle)
            await handle.signal(Counting.stop)
            assert await handle.result() == 1

    async def test_runs_that_go_from_worker_to_worker_end_as_with_one(self, client: Client) -> None:
        async with (
            Worker(client, task_queue=QUEUE, **EVERYTHING),
            Worker(client, task_queue=QUEUE, **EVERYTHING),
            Worker(client, task_queue=QUEUE, max_cached_workflows=2, **EVERYTHING),
        ):
            handles = [
                await client.start_workflow(Counting.run, id=new_id(), task_queue=QUEUE) for _ in range(5)
            ]
            for number in range(6):
                for handle in handles:
                    await handle.signal(Counting.add, number)
            for handle in handles:
                await handle.execute_update(Counting.set_to, 7)
                await handle.signal(Counting.stop)
            assert [await handle.result() for handle in handles] == [7] * 5


class TestRoom:
    async def test_no_more_activities_run_at_once_than_there_are_slots(self, client: Client) -> None:
        at_once, most = 0, 0

        @activity.defn(name="crowd")
        async def crowd() -> None:
            nonlocal at_once, most
            at_once += 1
            most = max(most, at_once)
            for _ in range(20):
                await asyncio.sleep(0)
            at_once -= 1

        async with Worker(
            client, task_queue=QUEUE, activities=[crowd], max_concurrent_activity_tasks=3
        ) as worker:
            handles = [
                await client.start_activity(
                    crowd, id=new_id(), task_queue=QUEUE, start_to_close_timeout=SHORT
                )
                for _ in range(20)
            ]
            for handle in handles:
                await handle.result()
            assert worker.is_running
        assert most <= 3

    async def test_a_worker_without_activities_offers_no_slots_for_them(
        self, scene: Cluster, client: Client
    ) -> None:
        async with Worker(client, task_queue=QUEUE, workflows=[Counting]) as worker:
            told = (await scene.get(f"/api/workers/{worker.identity}")).ok().body
        assert (told["max_concurrent_workflow_tasks"], told["max_concurrent_activity_tasks"]) == (100, 0)

    async def test_a_worker_says_who_it_is_and_what_it_can(self, scene: Cluster, client: Client) -> None:
        async with Worker(client, task_queue=QUEUE, build_id="b1", identity="me", **EVERYTHING) as worker:
            told = (await scene.get("/api/workers/me")).ok().body
        assert worker.identity == "me"
        assert told["sdk_version"].startswith("penstock-python/")
        assert told["build_id"] == "b1"
        assert told["supported_workflow_types"] == ["Counting", "Greeter"]
        assert told["supported_activity_types"] == ["greet", "greet_in_a_thread"]
        assert (await scene.get("/api/workers/me")).status == 404, "it has left"

    async def test_a_worker_conveys_how_fast_its_queue_may_go(self, scene: Cluster, client: Client) -> None:
        async with Worker(
            client,
            task_queue=QUEUE,
            activities=[greet],
            max_activities_per_second=3,
            max_task_queue_activities_per_second=7,
            queue_rate_burst_seconds=0.25,
        ):
            rate = (await scene.line(QUEUE))["rate"]
        assert (rate["limit"], rate["source"], rate["burst_seconds"]) == (7, "worker", 0.25)
        assert (rate["worker_caps"]["limit"], rate["worker_caps"]["tighter"]) == (3, "workers")

    async def test_a_worker_of_several_queues_conveys_to_each_the_cap_that_is_configured_for_it(
        self, scene: Cluster, client: Client
    ) -> None:
        config = dispatch_from(
            {
                "worker_config": {"default_task_queue": "elsewhere"},
                "queue_options": {
                    "narrow": {"max_task_queue_activities_per_second": 5},
                    "wide": {"max_task_queue_activities_per_second": 50},
                    "open": {},
                },
                "queue_rate_burst_seconds": 0.5,
            }
        )
        queues = ["narrow", "wide", "open"]
        async with Worker(client, task_queues=queues, activities=[greet], dispatch=config):
            rates = [(await scene.line(queue))["rate"] for queue in queues]
        assert [(rate["limit"], rate["burst_seconds"]) for rate in rates] == [
            (5, 0.5),
            (50, 0.5),
            (None, None),
        ]


class TestLocalActivities:
    async def test_a_local_activity_is_tried_again_within_the_workflow_task(self, client: Client) -> None:
        tries = 0

        @activity.defn(name="third_time_lucky")
        async def third_time_lucky() -> int:
            nonlocal tries
            tries += 1
            assert activity.info().attempt == tries
            assert activity.info().is_local
            if tries < 3:
                raise RuntimeError("not yet")
            return tries

        @workflow.defn(name="Local")
        class Local:
            @workflow.run
            async def run(self) -> int:
                found: int = await workflow.execute_local_activity(
                    third_time_lucky,
                    start_to_close_timeout=SHORT,
                    retry_policy=RetryPolicy(initial_interval=timedelta(milliseconds=1)),
                )
                await asyncio.sleep(0.01)
                return found

        async with Worker(
            client, task_queue=QUEUE, workflows=[Local], activities=[third_time_lucky], max_cached_workflows=0
        ):
            handle = await client.start_workflow(Local.run, id=new_id(), task_queue=QUEUE)
            assert await handle.result() == 3
            events = [event async for event in handle.fetch_history_events()]
        assert tries == 3, "a replay does not run it again"
        done = next(event for event in events if event["event_type"] == "ActivityCompleted")
        assert len(done["payload"]["attempts"]) == 3

    async def test_a_local_activity_that_fails_for_good_fails_in_the_code(self, client: Client) -> None:
        @activity.defn(name="hopeless")
        async def hopeless() -> None:
            raise ApplicationError("no use", type="Hopeless", non_retryable=True)

        @workflow.defn(name="Tries")
        class Tries:
            @workflow.run
            async def run(self) -> str:
                try:
                    await workflow.execute_local_activity(hopeless, start_to_close_timeout=SHORT)
                except ActivityError as error:
                    await asyncio.sleep(0.01)
                    return f"{getattr(error.cause, 'type', None)}: {getattr(error.cause, 'message', None)}"
                return "?"

        for cached in (0, 10):
            async with Worker(
                client,
                task_queue=QUEUE,
                workflows=[Tries],
                activities=[hopeless],
                max_cached_workflows=cached,
            ):
                found = await client.execute_workflow(Tries.run, id=new_id(), task_queue=QUEUE)
            assert found == "Hopeless: no use"

    async def test_several_local_activities_run_side_by_side(self, client: Client) -> None:
        together = asyncio.Barrier(3)

        @activity.defn(name="meet")
        async def meet(number: int) -> int:
            await together.wait()
            return number

        @workflow.defn(name="Meeting")
        class Meeting:
            @workflow.run
            async def run(self) -> list[int]:
                found = await asyncio.gather(
                    *(
                        workflow.execute_local_activity(meet, n, start_to_close_timeout=SHORT)
                        for n in range(3)
                    )
                )
                await asyncio.sleep(0.01)
                return list(found)

        async with Worker(
            client, task_queue=QUEUE, workflows=[Meeting], activities=[meet], max_cached_workflows=0
        ):
            assert await client.execute_workflow(Meeting.run, id=new_id(), task_queue=QUEUE) == [0, 1, 2]


class TestFailures:
    async def test_an_error_that_was_meant_fails_the_run(self, client: Client) -> None:
        @workflow.defn(name="Refuses")
        class Refuses:
            @workflow.run
            async def run(self) -> None:
                raise ApplicationError("no", type="No")

        async with Worker(client, task_queue=QUEUE, workflows=[Refuses]):
            with pytest.raises(WorkflowFailureError) as raised:
                await client.execute_workflow(Refuses.run, id=new_id(), task_queue=QUEUE)
        assert isinstance(raised.value.cause, ApplicationError)
        assert raised.value.cause.type == "No"

    async def test_a_mistake_in_the_code_leaves_the_run_open_until_other_code_comes(
        self, client: Client
    ) -> None:
        @workflow.defn(name="Mended")
        class Broken:
            @workflow.run
            async def run(self) -> int:
                return 1 // 0

        @workflow.defn(name="Mended")
        class Mended:
            @workflow.run
            async def run(self) -> int:
                return 1

        watched = Watched(client.transport)
        own = Client(watched, namespace=client.namespace)
        async with Worker(own, task_queue=QUEUE, workflows=[Broken]):
            handle = await client.start_workflow(Mended.run, id=new_id(), task_queue=QUEUE)
            await watched.until("/fail")
        failure = watched.of("/fail")[0]["failure"]
        assert failure["type"] == "ZeroDivisionError"
        assert "1 // 0" in failure["stack_trace"]
        async with Worker(client, task_queue=QUEUE, workflows=[Mended]):
            assert await handle.result() == 1

    async def test_code_that_parts_from_its_history_blocks_the_run_and_says_where(
        self, scene: Cluster, client: Client
    ) -> None:
        @workflow.defn(name="Changed")
        class Before:
            @workflow.run
            async def run(self) -> str:
                await workflow.wait_condition(lambda: False, timeout=timedelta(days=1))
                return "before"

        @workflow.defn(name="Changed")
        class After:
            def __init__(self) -> None:
                self.over = False

            @workflow.run
            async def run(self) -> str:
                return str(await workflow.execute_activity(greet, "x", start_to_close_timeout=SHORT))

            @workflow.signal
            def wake(self) -> None: ...

        first, second = Watched(client.transport), Watched(client.transport)
        async with Worker(Client(first, namespace=client.namespace), task_queue=QUEUE, workflows=[Before]):
            handle = await client.start_workflow("Changed", id=new_id(), task_queue=QUEUE)
            await first.until("/complete")
        async with Worker(
            Client(second, namespace=client.namespace),
            task_queue=QUEUE,
            workflows=[After],
            activities=[greet],
        ):
            await handle.signal("wake")
            await second.until("/fail")
        failure = second.of("/fail")[0]["failure"]
        assert failure["type"] == "NonDeterminismError"
        assert "TimerScheduled" in failure["message"] or "timer" in failure["message"]

    async def test_code_that_does_not_give_way_fails_its_task_and_others_go_on(self, client: Client) -> None:
        @workflow.defn(name="Stuck")
        class Stuck:
            @workflow.run
            async def run(self) -> None:
                while True:
                    pass

        watched = Watched(client.transport)
        own = Client(watched, namespace=client.namespace)
        async with Worker(
            own,
            task_queue=QUEUE,
            workflows=[Stuck, Greeter],
            activities=[greet, greet_in_a_thread],
            task_timeout=timedelta(milliseconds=200),
        ):
            await client.start_workflow(Stuck.run, id=new_id(), task_queue=QUEUE)
            await watched.until("/fail")
            found = await client.execute_workflow(Greeter.run, "you", id=new_id(), task_queue=QUEUE)
        assert found == "Hello you, Hello you"
        failure = watched.of("/fail")[0]["failure"]
        assert failure["type"] == "TaskStuckError"
        assert "while True" in failure["message"] or "pass" in failure["message"]

    async def test_a_completion_whose_answer_is_lost_is_sent_again_and_counts_once(
        self, client: Client
    ) -> None:
        watched = Watched(client.transport)
        lost: set[str] = set()

        def loses(path: str) -> bool:
            """The first response to each completion is lost."""
            fresh = path.endswith("/complete") and path not in lost
            lost.add(path)
            return fresh

        watched.loses = loses
        own = Client(watched, namespace=client.namespace)
        async with Worker(own, task_queue=QUEUE, **EVERYTHING):
            handle = await client.start_workflow(Greeter.run, "you", id=new_id(), task_queue=QUEUE)
            assert await handle.result() == "Hello you, Hello you"
            types = [event["event_type"] async for event in handle.fetch_history_events()]
        assert types.count("ActivityCompleted") == 2
