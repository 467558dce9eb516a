"""What a type checker infers for workflow code: results have the types of the functions that they name.

Nothing here runs; mypy checks it with the tests, and `test_types_under_pyright.py` has pyright check it.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any, assert_type

from penstock import Priority, RetryPolicy, SearchAttributeKey, WorkflowHandle, activity, workflow
from penstock.dispatch import DispatchConfig

VISITS = SearchAttributeKey.for_int("Visits")


@activity.defn
async def charge(cents: int) -> str:
    return f"charged {cents}"


@activity.defn
def render(page: str) -> bytes:
    return page.encode()


@activity.defn(
    routing_key="model",
    tags={"gpu"},
    pack="images",
    start_to_close_timeout=timedelta(minutes=1),
    schedule_to_close_timeout=timedelta(hours=1),
    schedule_to_start_timeout=timedelta(minutes=5),
    heartbeat_timeout=timedelta(seconds=10),
    retry_policy=RetryPolicy(maximum_attempts=3),
)
async def draw(job: dict[str, str]) -> bytes:
    return b""


@activity.defn(routing_key=activity.arg("model"))
async def write(prompt: str, model: str) -> str:
    return prompt


@activity.defn(routing_key=lambda prompt, model: model)
def say(prompt: str, model: str) -> str:
    return prompt


@activity.defn(routing_key=3)  # type: ignore[call-overload]
def wrong(prompt: str) -> str:
    return prompt


class Desk:
    @activity.defn
    async def stamp(self, number: int) -> str:
        return str(number)


@workflow.defn(pack="families")
class Child:
    @workflow.run
    async def run(self, number: int) -> list[int]:
        return [number]


@workflow.defn
class Parent:
    @workflow.run
    async def run(self, name: str) -> str:
        assert_type(await workflow.execute_activity(charge, 1), str)
        assert_type(await workflow.execute_activity(render, "page", priority=Priority(priority_key=1)), bytes)
        assert_type(await workflow.execute_activity("by name", 1), Any)
        handle = workflow.start_activity(charge, 1, start_to_close_timeout=timedelta(seconds=5))
        assert_type(handle, workflow.ActivityHandle[str])
        assert_type(await handle, str)
        assert_type(await workflow.execute_child_workflow(Child.run, 1), list[int])
        child = await workflow.start_child_workflow(Child.run, 1, id="child")
        assert_type(child, workflow.ChildWorkflowHandle[list[int]])
        assert_type(await child, list[int])
        assert_type(await workflow.execute_activity(draw, {"model": "x"}), bytes)
        assert_type(await workflow.execute_activity(write, args=["a", "b"], routing_key="eu"), str)
        assert_type(await workflow.execute_activity(charge, 1, routing_key=None, dispatch=None), str)
        assert_type(await workflow.execute_activity(charge, 1, dispatch=DispatchConfig()), str)
        workflow.start_activity(charge, 1, routing_key=5)  # type: ignore[call-overload]
        workflow.start_activity(charge, 1, dispatch="file.toml")  # type: ignore[call-overload]
        workflow.start_activity(charge, 1, start_to_close=timedelta(seconds=5))  # type: ignore[call-overload]
        workflow.start_activity(charge)  # type: ignore[arg-type]
        workflow.start_activity(charge, "1")  # type: ignore[arg-type]
        workflow.start_activity(charge, 1, 2)  # type: ignore[call-overload]
        await workflow.execute_activity(write, "a")  # type: ignore[arg-type]
        assert_type(await workflow.execute_activity_method(Desk.stamp, 1), str)
        await workflow.execute_activity_method(Desk.stamp)  # type: ignore[arg-type]
        assert_type(await workflow.execute_local_activity(charge, 1), str)
        assert_type(await workflow.execute_local_activity(render, "page", summary="s"), bytes)
        await workflow.execute_local_activity(charge)  # type: ignore[arg-type]
        await workflow.execute_local_activity(charge, "1")  # type: ignore[arg-type]
        await workflow.execute_activity(charge, "1")  # type: ignore[arg-type]
        await workflow.execute_activity(charge, 1, 2)  # type: ignore[call-overload]
        assert_type(await workflow.execute_activity("by name", 1, result_type=int), Any)
        workflow.upsert_search_attributes([VISITS.value_set(1), VISITS.value_unset()])
        VISITS.value_set("one")  # type: ignore[arg-type]
        assert_type(workflow.info().typed_search_attributes.get(VISITS), int | None)
        assert_type(workflow.info().typed_search_attributes[VISITS], int)
        await workflow.execute_local_activity(charge, 1, task_queue="q")  # type: ignore[call-overload]
        await workflow.execute_child_workflow(Child.run)  # type: ignore[arg-type]
        await workflow.execute_child_workflow(Child.run, "1")  # type: ignore[arg-type]
        assert_type(await workflow.execute_child_workflow(Child.run, args=[1]), list[int])
        assert_type(await workflow.execute_child_workflow(Child, 1), list[int])
        assert_type(await workflow.execute_child_workflow("Child", 1), Any)
        return name

    @workflow.update
    async def add(self, number: int) -> int:
        return number

    @add.validator
    def check(self, number: int) -> None:
        if number < 0:
            raise ValueError("must not be negative")


async def ask(handle: WorkflowHandle[str]) -> None:
    assert_type(await handle.execute_update(Parent.add, 1), int)
