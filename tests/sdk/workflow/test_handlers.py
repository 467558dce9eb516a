"""Handlers that come, go, match any name and are still running, and what code knows of its run."""

from __future__ import annotations

import asyncio
import logging
import uuid
import warnings
from collections.abc import Sequence
from typing import Any

import pytest

from penstock import Client, Replayer, Worker, activity, workflow
from penstock.activity import RawValue
from penstock.client import WorkflowUpdateStage
from penstock.failures import ApplicationError, ApplicationErrorCategory, QueryRejected, UpdateFailedError
from tests.acceptance.cluster import Cluster
from tests.sdk.server_fixtures import connected, new_namespace


@workflow.defn
class AnyName:
    """Dynamic handlers with raw payloads, and handlers that code looks up and replaces."""

    def __init__(self) -> None:
        self.seen: list[Any] = []
        self.is_done = False

    @workflow.run
    async def run(self) -> list[Any]:
        await workflow.wait_condition(lambda: self.is_done)
        return self.seen

    @workflow.signal(dynamic=True)
    def any_signal(self, name: str, args: Sequence[RawValue]) -> None:
        number = workflow.payload_converter().from_payload(args[0].payload, int)
        self.seen.append([name, number, args[1].to(tuple[int, ...])[0]])

    @workflow.query(dynamic=True)
    def any_query(self, name: str, args: Sequence[RawValue]) -> str:
        return f"{name} {[each.value for each in args]}"

    @workflow.update(dynamic=True)
    async def any_update(self, name: str, args: Sequence[RawValue]) -> str:
        if name == "replace":
            assert workflow.get_signal_handler("note") is None
            assert workflow.get_dynamic_signal_handler() == self.any_signal
            assert workflow.get_dynamic_query_handler() == self.any_query
            assert workflow.get_dynamic_update_handler() == self.any_update

            def note(text: str) -> None:
                self.seen.append(["noted", text])

            workflow.set_signal_handler("note", note)
            assert workflow.get_signal_handler("note") is note
            workflow.set_dynamic_query_handler(None)
            assert workflow.get_dynamic_query_handler() is None
        elif name == "end":
            self.is_done = True
        return f"{name} done"


@workflow.defn(dynamic=True)
class AnyType:
    @workflow.run
    async def run(self, args: Sequence[RawValue]) -> Any:
        return [workflow.info().workflow_type, *(each.to(None) for each in args)]


@pytest.mark.parametrize("time", ["first", "second"])
async def test_dynamic_handlers_get_the_name_and_raw_values(cluster: Cluster, time: str) -> None:
    scene = await new_namespace(cluster)
    async with (
        await connected(scene) as client,
        Worker(client, task_queue="q", workflows=[AnyName, AnyType], max_cached_workflows=0),
    ):
        handle = await client.start_workflow(AnyName.run, id="any", task_queue="q")
        await handle.signal("first", args=[1, [2, 3]])
        assert await handle.query("how", args=["a", 1]) == "how ['a', 1]"
        assert await handle.execute_update("replace") == "replace done"
        await handle.signal("note", "x")
        with pytest.raises(QueryRejected):
            await handle.query("how")
        assert await handle.execute_update("end") == "end done"
        assert await handle.result() == [["first", 1, 2], ["noted", "x"]]
        found = await client.execute_workflow("Whatever", args=[1, "b"], id="t", task_queue="q")
        assert found == ["Whatever", 1, "b"]
        history = await handle.fetch_history()
    assert Replayer(workflows=[AnyName]).replay(history).failure is None


@workflow.defn
class Updated:
    """Its update starts tasks, and describes what it does."""

    def __init__(self) -> None:
        self.ids: list[str | None] = []

    @workflow.run
    async def run(self) -> list[str | None]:
        assert workflow.current_update_info() is None
        workflow.set_current_details("waits for **two** updates")
        await workflow.wait_condition(lambda: len(self.ids) == 4)
        workflow.set_current_details("")
        return self.ids

    @workflow.update
    async def twice(self, fails: bool = False) -> str:
        if fails:
            raise ApplicationError("no", type="No", category=ApplicationErrorCategory.BENIGN)

        async def note() -> None:
            await asyncio.sleep(0.01)
            info = workflow.current_update_info()
            self.ids.append(None if info is None else info.id)

        done, late = await workflow.wait([note(), note()])
        assert (len(done), late) == (2, [])
        return "noted"


@pytest.mark.parametrize("time", ["first", "second"])
async def test_tasks_of_an_update_know_their_update_and_it_can_be_looked_up(
    cluster: Cluster, time: str
) -> None:
    scene = await new_namespace(cluster)
    async with await connected(scene) as client, Worker(client, task_queue="q", workflows=[Updated]):
        handle = await client.start_workflow(Updated.run, id="updated", task_queue="q")
        assert handle.result_run_id == handle.first_execution_run_id
        sent = await handle.start_update(
            Updated.twice, id="a", args=[], wait_for_stage=WorkflowUpdateStage.ACCEPTED
        )
        assert await handle.current_details() == "waits for **two** updates"
        found = client.get_workflow_handle("updated").get_update_handle_for(Updated.twice, "a")
        assert await found.result() == await sent.result() == "noted"
        assert found.workflow_run_id == handle.first_execution_run_id
        with pytest.raises(ValueError, match="wait_for_stage is ACCEPTED or COMPLETED"):
            await handle.start_update(
                Updated.twice, id="x", args=[], wait_for_stage=WorkflowUpdateStage.ADMITTED
            )
        with pytest.raises(UpdateFailedError):
            await handle.execute_update(Updated.twice, True, id="b")
        with pytest.raises(UpdateFailedError) as failed:
            await handle.get_update_handle("b").result()
        assert isinstance(failed.value.__cause__, ApplicationError)
        assert failed.value.__cause__.category is ApplicationErrorCategory.BENIGN
        await handle.execute_update(Updated.twice, id="c")
        first, again, *later = await handle.result()
        assert first == again is not None
        assert set(later).isdisjoint({first, None})
        assert await handle.current_details() == ""


@workflow.defn
class Hasty:
    """Closes while handlers run."""

    def __init__(self) -> None:
        self.is_over = False

    @workflow.run
    async def run(self) -> bool:
        await workflow.wait_condition(lambda: self.is_over)
        return workflow.all_handlers_finished()

    @workflow.signal
    async def slow(self) -> None:
        await asyncio.sleep(1000)

    @workflow.signal(unfinished_policy=workflow.HandlerUnfinishedPolicy.ABANDON)
    async def abandoned(self) -> None:
        await asyncio.sleep(1000)

    @workflow.update
    async def slow_update(self) -> None:
        await asyncio.sleep(1000)

    @workflow.signal
    def over(self) -> None:
        self.is_over = True


async def test_a_run_that_closes_while_handlers_run_warns_of_those_that_are_not_to_be_abandoned(
    scene: Cluster, client: Client
) -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        async with Worker(client, task_queue="q", workflows=[Hasty]):
            handle = await client.start_workflow(Hasty.run, id="hasty", task_queue="q")
            await handle.signal(Hasty.slow)
            await handle.signal(Hasty.abandoned)
            await handle.start_update(Hasty.slow_update, id="u")
            await handle.signal(Hasty.over)
            assert await handle.result() is False
    found = {each.category: str(each.message) for each in caught if "handlers run" in str(each.message)}
    assert found.keys() == {
        workflow.UnfinishedSignalHandlersWarning,
        workflow.UnfinishedUpdateHandlersWarning,
    }
    assert "signal handlers run: slow." in found[workflow.UnfinishedSignalHandlersWarning]
    assert "update handlers run: slow_update (" in found[workflow.UnfinishedUpdateHandlersWarning]


def test_an_async_handler_of_queries_is_refused_where_it_is_written() -> None:
    with pytest.raises(ValueError, match="write `def`, not `async def`"):

        @workflow.query
        async def ask(self: Any) -> None: ...

    with pytest.raises(TypeError, match="unfinished_policy is a HandlerUnfinishedPolicy"):
        workflow.signal(unfinished_policy="warn")(lambda self: None)  # type: ignore[call-overload]


class Scaled:
    """A callable class as an activity."""

    def __init__(self, by: int) -> None:
        self.by = by

    @activity.defn(name="scaled_by")
    async def __call__(self, number: int) -> int:
        return number * self.by


@workflow.defn
class Drawing:
    """Random numbers, ids, and an activity that is a class."""

    @workflow.run
    async def run(self) -> list[Any]:
        own = workflow.new_random()
        ids = [workflow.uuid7(), workflow.uuid7()]
        number = await workflow.execute_activity_class(Scaled, 2)
        local = await workflow.execute_local_activity_class(Scaled, 3)
        return [
            number,
            local,
            own.random() != workflow.random().random(),
            [str(each) for each in ids],
            workflow.is_failure_exception(ApplicationError("x")),
            workflow.is_failure_exception(ValueError("x")),
            workflow.cancellation_reason(),
        ]


async def test_random_numbers_and_ids_are_the_same_in_a_replay(scene: Cluster, client: Client) -> None:
    async with Worker(client, task_queue="q", workflows=[Drawing], activities=[Scaled(10)]):
        handle = await client.start_workflow(Drawing.run, id="draw", task_queue="q")
        number, local, differ, ids, fails, is_bug, reason = await handle.result()
        history = await handle.fetch_history()
    assert (number, local, differ, fails, is_bug, reason) == (20, 30, True, True, False, None)
    assert [uuid.UUID(each).version for each in ids] == [7, 7]
    assert ids[0][:13] == ids[1][:13], "the same moment"
    assert ids[0] != ids[1]
    assert Replayer(workflows=[Drawing]).replay(history).failure is None


@workflow.defn
class Stopped:
    @workflow.run
    async def run(self) -> str | None:
        try:
            await asyncio.sleep(1000)
        except asyncio.CancelledError:
            return workflow.cancellation_reason()
        return "not cancelled"


async def test_code_reads_why_its_run_is_cancelled(scene: Cluster, client: Client) -> None:
    async with Worker(client, task_queue="q", workflows=[Stopped]):
        handle = await client.start_workflow(Stopped.run, id="stop", task_queue="q")
        await handle.cancel("enough")
        assert await handle.result() == "enough"


@activity.defn
async def expected_failure() -> None:
    raise ApplicationError("as always", non_retryable=True, category=ApplicationErrorCategory.BENIGN)


async def test_a_benign_failure_is_logged_at_debug_level(
    scene: Cluster, client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG, "penstock"):
        async with Worker(client, task_queue="q", activities=[expected_failure]):
            handle = await client.start_activity(expected_failure, id="b", task_queue="q")
            with pytest.raises(Exception, match="as always"):
                await handle.result()
    levels = [each.levelname for each in caplog.records if "as always" in each.getMessage()]
    assert set(levels) == {"DEBUG"}
