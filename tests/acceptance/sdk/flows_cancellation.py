"""Workflows that receive a cancellation at every kind of call, and clean up with an activity."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

from durable_workflow import Client, Worker, activity, workflow
from durable_workflow.errors import ActivityCancelled, WorkflowCancelled

from tests.acceptance.sdk.sdk_worker import note

QUEUE = "careful"
ACTIVITIES = "chores"
"""The queue of the activities. Its worker has no capability, so that activities need no processes of their own."""
NOBODY = "nobody"
CAPABLE = ("cooperative_cancellation",)
LONG_S = 3600
Steps = Generator[Any, Any, Any]
Call = Callable[[Any, "Careful"], Any]


@activity.defn(name="clean")
async def clean(what: str) -> str:
    note(f"clean-{what}")
    return f"cleaned {what}"


@activity.defn(name="work")
async def work() -> str:
    """Runs until it is cancelled."""
    note("work")
    try:
        while True:
            await activity.context().heartbeat({})
            await asyncio.sleep(0.05)
    except ActivityCancelled:
        note("stopped")
        raise


@workflow.defn(name="careful")
class Careful:
    """Waits in one of many ways. When it is cancelled it cleans up, and returns or lets the cancellation through."""

    def __init__(self) -> None:
        self.ready = False

    @workflow.signal("ready")
    def on_ready(self) -> None:
        self.ready = True

    @workflow.update("nudge")
    def nudge(self) -> str:
        return "nudged"

    @workflow.query("is_ready")
    def is_ready(self) -> bool:
        return self.ready

    def run(self, ctx: Any, how: str, then: str = "through") -> Steps:
        try:
            yield from WAYS[how](ctx, self)
        except WorkflowCancelled as cancelled:
            if then == "hang":
                yield ctx.sleep(LONG_S)
            said = None if cancelled.context is None else cancelled.context.reason
            cleaned = yield ctx.schedule_activity("clean", [how], queue=ACTIVITIES)
            if then == "through":
                raise
            return [cleaned, said]
        return "not cancelled"


def activity_of(queue: str, **how: Any) -> Call:
    return lambda ctx, _: ctx.schedule_activity("work", [], queue=queue, **how)


def child(**how: Any) -> Call:
    return lambda ctx, _: ctx.start_child_workflow("careful", ["timer"], **how)


def one(call: Call) -> Callable[[Any, Careful], Steps]:
    def steps(ctx: Any, flow: Careful) -> Steps:
        yield call(ctx, flow)

    return steps


def handle(ctx: Any, flow: Careful) -> Steps:
    first = yield ctx.select({"fast": ctx.sleep(0), "work": activity_of(NOBODY)(ctx, flow)})
    yield first.handles["work"]


def steps_before(ctx: Any, flow: Careful) -> Steps:
    yield ctx.side_effect(lambda: 7)
    yield activity_of(NOBODY)(ctx, flow)


def shield(ctx: Any, flow: Careful) -> Steps:
    with ctx.cancellation_shield():
        yield ctx.wait_condition(lambda: flow.ready, key="ready", timeout=LONG_S)
    yield ctx.sleep(LONG_S)


def shielded_selection(ctx: Any, flow: Careful) -> Steps:
    with ctx.cancellation_shield():
        yield ctx.select({"brief": ctx.sleep(2), "work": activity_of(NOBODY)(ctx, flow)})
    yield ctx.sleep(LONG_S)


def again(ctx: Any, flow: Careful) -> Steps:
    with ctx.cancellation_shield():
        yield ctx.wait_condition(lambda: flow.ready, key="ready")
    yield ctx.continue_as_new("timer", "return")


def orphan(ctx: Any, flow: Careful) -> Steps:
    """A child that is still open when the parent ends."""
    child = ctx.start_child_workflow("careful", ["timer"], parent_close_policy="request_cancellation")
    yield ctx.select({"child": child, "fast": ctx.sleep(1)})


def group(ctx: Any, flow: Careful) -> list[Any]:
    cleaned = ctx.schedule_activity("clean", ["a member"], queue=ACTIVITIES)
    return [activity_of(NOBODY)(ctx, flow), ctx.sleep(LONG_S), [ctx.sleep(LONG_S), cleaned]]


WAYS: dict[str, Callable[[Any, Careful], Steps]] = {
    "activity": one(activity_of(ACTIVITIES, heartbeat_timeout=LONG_S)),
    "waiting activity": one(activity_of(NOBODY)),
    "ending activity": one(activity_of(ACTIVITIES, cancellation_policy="wait_cancellation_completed")),
    "timer": one(lambda ctx, _: ctx.sleep(LONG_S)),
    "condition": one(lambda ctx, flow: ctx.wait_condition(lambda: flow.ready, key="ready", timeout=LONG_S)),
    "child": one(child(cancellation_policy="try_cancel")),
    "ending child": one(child(cancellation_policy="wait_cancellation_completed")),
    "abandoned child": one(child()),
    "orphan": orphan,
    "group": one(group),
    "selection": one(
        lambda ctx, flow: ctx.select({"slow": ctx.sleep(LONG_S), "work": activity_of(NOBODY)(ctx, flow)})
    ),
    "brief selection": one(
        lambda ctx, flow: ctx.select({"brief": ctx.sleep(2), "work": activity_of(NOBODY)(ctx, flow)})
    ),
    "shielded selection": shielded_selection,
    "handle": handle,
    "steps before": steps_before,
    "shield": shield,
    "again": again,
}


def capable_worker(client: Client, **how: Any) -> Worker:
    """A worker for the workflows that can deliver cancellations."""
    return Worker(
        client,
        task_queue=QUEUE,
        workflows=[Careful],
        capabilities=CAPABLE,
        shutdown_timeout=5.0,
        **how,
    )


@activity.defn(name="add")
def add(one: int, other: int) -> int:
    return one + other


@activity.defn(name="linger")
async def linger(marker: str) -> None:
    """Never returns; the marker is a file that shows that it has begun."""
    Path(marker).touch()
    await asyncio.Event().wait()


@workflow.defn(name="lingering")
class Lingering:
    """Waits for an activity in the process of its worker."""

    def run(self, ctx: Any, marker: str) -> Steps:
        try:
            yield ctx.local_activity("linger", [marker])
        except WorkflowCancelled:
            return "cleaned"


@workflow.defn(name="adding")
class Adding:
    def run(self, ctx: Any) -> Steps:
        return (yield ctx.schedule_activity("add", [1, 2]))


def adding_worker(client: Client) -> Worker:
    """A worker with the capability that runs activities too: each in a process of its own."""
    return Worker(
        client,
        task_queue=QUEUE,
        workflows=[Adding, Lingering],
        activities=[add, linger],
        capabilities=CAPABLE,
        shutdown_timeout=5.0,
    )


def default_worker(client: Client) -> Worker:
    """A worker for the same workflows as it was before."""
    return Worker(client, task_queue=QUEUE, workflows=[Careful], shutdown_timeout=5.0)


def chores_worker(client: Client) -> Worker:
    return Worker(client, task_queue=ACTIVITIES, activities=[clean, work], shutdown_timeout=5.0)
