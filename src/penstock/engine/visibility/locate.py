"""What an id or a name may mean: the workflows, runs, activities, tasks, workers, queues and schedules that have it."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

from msgspec import Struct

from penstock.core.model import ActivityId, Run, RunHost, RunId, TaskId
from penstock.engine.context import EngineContext
from penstock.ports.gather import gather
from penstock.ports.store import Tx

QUEUES_NAMED_MAX = 10


class LocatedKind(StrEnum):
    """The values are API."""

    WORKFLOW = "workflow"
    RUN = "run"
    ACTIVITY = "activity"
    TASK = "task"
    WORKER = "worker"
    TASK_QUEUE = "task_queue"
    SCHEDULE = "schedule"


class LocatedItem(Struct, frozen=True):
    """One thing that has an id or a name."""

    kind: LocatedKind
    name: str
    run: Run | None = None
    """The run that it is, or belongs to."""


async def everything(ctx: EngineContext, namespace: str, text: str) -> Sequence[LocatedItem]:
    """All things of a namespace whose id is the text, and task queues whose name contains it."""

    async def operation(tx: Tx) -> Sequence[LocatedItem]:
        found = await gather(
            _runs(tx, namespace, text), _tasks(tx, namespace, text), _others(tx, namespace, text)
        )
        return [item for items in found for item in items]

    return await ctx.store.read(operation, long=True)


async def _runs(tx: Tx, namespace: str, text: str) -> Sequence[LocatedItem]:
    found: list[LocatedItem] = []
    named, run = await gather(tx.runs.named(namespace, text, None), tx.runs.get(RunId(text)))
    if named is not None and named[1] is not None:
        is_workflow = named[1].host is RunHost.WORKFLOW
        kind = LocatedKind.WORKFLOW if is_workflow else LocatedKind.ACTIVITY
        found.append(LocatedItem(kind, text, named[1]))
    if run is not None and run.namespace == namespace:
        found.append(LocatedItem(LocatedKind.RUN, text, run))
    return found


async def _tasks(tx: Tx, namespace: str, text: str) -> Sequence[LocatedItem]:
    found: list[LocatedItem] = []
    activity, task = await gather(tx.activities.get(ActivityId(text)), tx.tasks.get(TaskId(text)))
    if activity is not None:
        run = await tx.runs.get(activity.run_id)
        if run is not None and run.namespace == namespace:
            found.append(LocatedItem(LocatedKind.ACTIVITY, text, run))
    if task is not None and task.namespace == namespace:
        found.append(LocatedItem(LocatedKind.TASK, text, await tx.runs.get(task.run_id)))
    return found


async def _others(tx: Tx, namespace: str, text: str) -> Sequence[LocatedItem]:
    found: list[LocatedItem] = []
    worker, schedule, queues = await gather(
        tx.workers.get(namespace, text), tx.schedules.by_id(namespace, text), tx.queues.list(namespace)
    )
    if worker is not None:
        found.append(LocatedItem(LocatedKind.WORKER, text))
    if schedule is not None:
        found.append(LocatedItem(LocatedKind.SCHEDULE, text))
    names = sorted({queue.name for queue in queues if text.lower() in queue.name.lower()})
    found += [LocatedItem(LocatedKind.TASK_QUEUE, name) for name in names[:QUEUES_NAMED_MAX]]
    return found
