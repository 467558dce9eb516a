"""Child workflows: starting them; and cancelling the steps that the code no longer waits for."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from msgspec import Struct
from msgspec.structs import replace

from penstock.core.history.command_effects import NewChild
from penstock.core.history.events import EventType
from penstock.core.history.payloads import activity_payload, child_payload, started
from penstock.core.id_policies import IdConflictPolicy, IdPolicy, StartDecision, decide_start
from penstock.core.model import (
    Activity,
    ActivityStatus,
    ChildState,
    Instance,
    NewEvent,
    Run,
    RunHost,
    RunId,
    Task,
    TaskId,
    TaskState,
    TimerState,
)
from penstock.core.scheduling.leases import freed
from penstock.engine.context import EngineContext
from penstock.engine.messaging import messages, outbox
from penstock.engine.runs import workflow_ids
from penstock.engine.runs.history_writer import append, enqueue_workflow_task
from penstock.engine.workflows.start_caps import StartCaps, any_caps, first_task_at_ms
from penstock.engine.workflows.successors import pinned
from penstock.ports.store import Tx


async def start_children(
    ctx: EngineContext, tx: Tx, parent: Run, children: Sequence[NewChild]
) -> tuple[Run, StartCaps | None, bool]:
    """Record new children with their first events and tasks; True if one could not be started.

    A child whose workflow id is in use or invalid, or that a cap on runs refuses, fails at once, as an event that the
    parent's code can catch. If the parent closes in the same workflow task, the child's close policy is applied. The
    caller records the caps, if there are any, as its last act.
    """
    if not children:
        return parent, None, False
    state = ChildState.OPEN if parent.is_open else ChildState.CLOSED
    caps, children = await _under_caps(ctx, tx, parent, children)
    refused: list[NewEvent] = []
    for new, begun in zip(children, await _begun(tx, children), strict=True):
        if begun is None:
            tx.children.insert(replace(new.child, state=ChildState.CLOSED))
            refused.append(_refused(new))
            continue
        tx.children.insert(replace(new.child, state=state))
        await _start(tx, parent, begun, tx.now_ms if new.at_ms is None else new.at_ms, caps)
        if not parent.is_open:
            outbox.apply_close_policy(tx, parent, new.child)
    if refused and parent.is_open:
        parent = replace(parent, open_children=parent.open_children - len(refused))
        parent = append(tx, parent, refused)
    return parent, caps, bool(refused)


async def _under_caps(
    ctx: EngineContext, tx: Tx, parent: Run, children: Sequence[NewChild]
) -> tuple[StartCaps | None, Sequence[NewChild]]:
    """The caps on runs that concern the children, if any, and the children, each with what refuses it."""
    if not await any_caps(tx, parent.namespace):
        return None, children
    runs = [new.run for new in children if new.problem is None]
    caps = await StartCaps.locked(ctx, tx, runs, replaces=False)
    return caps, [_checked(caps, new) for new in children]


def _checked(caps: StartCaps, new: NewChild) -> NewChild:
    """A child, with the cap on runs that refuses it as its problem."""
    refusal = None if new.problem is not None else caps.refusal(new.run)
    return new if refusal is None else replace(new, refusal=str(refusal))


class Begun(Struct, frozen=True):
    """A child that has reserved its workflow id."""

    run: Run
    replaced: Run | None = None
    """The closed run that had the id before."""


async def _begun(tx: Tx, children: Sequence[NewChild]) -> Sequence[Begun | None]:
    """Reserve the children's workflow ids. None for a child that is refused.

    Of two children with the same id in one workflow task, the second is refused.
    """
    fit = [new for new in children if new.problem is None and new.refusal is None]
    asked = [Instance(new.run.namespace, new.run.workflow_id, new.run.run_id, 1) for new in fit]
    begun: dict[RunId, Begun] = {}
    ids: set[str] = set()
    for new, standing in zip(fit, await tx.runs.reserve_all(asked), strict=True):
        run = new.run
        if run.workflow_id in ids:
            continue
        made = Begun(run) if standing.run_id == run.run_id else await _reusing(tx, new)
        if made is not None:
            begun[run.run_id] = made
            ids.add(run.workflow_id)
    return [begun.get(new.run.run_id) for new in children]


async def _reusing(tx: Tx, new: NewChild) -> Begun | None:
    """Reserve the id of a closed workflow for a child, if its reuse policy allows that."""
    policy = IdPolicy(new.reuse, IdConflictPolicy.FAIL)
    instance = Instance(new.run.namespace, new.run.workflow_id, new.run.run_id, 1)
    for _ in range(workflow_ids.TRIES):
        existing = await workflow_ids.newest(tx, instance)
        if existing is None:
            return Begun(new.run)
        if existing.host is not RunHost.WORKFLOW or decide_start(existing, policy) is StartDecision.REFUSE:
            return None
        locked = await workflow_ids.lock_newest(tx, existing)
        if locked is not None:
            workflow_ids.replace_newest(tx, locked.run, new.run.run_id, locked.next_number)
            started_at_ms = workflow_ids.started_at_ms(locked.run, new.run.started_at_ms)
            run = replace(new.run, run_number=locked.next_number, started_at_ms=started_at_ms)
            return Begun(run, locked.run)
    raise workflow_ids.busy(new.run.workflow_id)


async def _start(tx: Tx, parent: Run, begun: Begun, at_ms: int, caps: StartCaps | None) -> None:
    run = begun.run
    if run.compatibility is None and run.task_queue != parent.task_queue:
        run = replace(run, compatibility=await pinned(tx, run.namespace, run.task_queue))
    streams = () if begun.replaced is None else await messages.begin_after(tx, begun.replaced, run)
    if caps is not None:
        run = await caps.admit(run, at_ms, replaces=False)
    run = append(tx, run, [started(run), *streams])
    tx.runs.insert(await enqueue_workflow_task(tx, run, at_ms=first_task_at_ms(run, at_ms)))


def _refused(new: NewChild) -> NewEvent:
    if new.problem is not None:
        kind, message = "InvalidWorkflowId", f"The child was not started: {new.problem}"
    elif new.refusal is not None:
        kind, message = "RunCapReached", new.refusal
    else:
        kind, message = "WorkflowAlreadyStarted", f"The workflow id {new.child.workflow_id!r} is in use."
    return NewEvent(
        EventType.CHILD_RUN_FAILED,
        child_payload(new.child)
        | {
            "message": message,
            "exception_type": kind,
            "exception_class": kind,
            "non_retryable": True,
            "failure_category": "child_workflow",
            "failure_id": f"{new.child.run_id}-f1",
        },
    )


async def give_up(tx: Tx, run: Run, ranges: Sequence[range]) -> Run:
    """Cancel the activities, timers and children of steps that the code cancelled. Their events are dropped."""
    steps = steps_in(ranges)
    if not steps:
        return run
    run = await _give_up_activities(tx, run, steps)
    timers = [timer for timer in await tx.timers.open_of(run.run_id) if timer.step in steps]
    for timer in timers:
        tx.timers.save(replace(timer, state=TimerState.CANCELLED))
    children = [child for child in await tx.children.open_of(run.run_id) if child.step in steps]
    for child in children:
        outbox.cancel_child(tx, run, child)
    return replace(
        run,
        open_timers=run.open_timers - len(timers),
        open_children=run.open_children - len(children),
    )


def steps_in(ranges: Sequence[range]) -> set[int]:
    return {step for each in ranges for step in each}


async def ask_to_stop(
    tx: Tx, run: Run, steps: Collection[int], never_begun: Sequence[Activity]
) -> tuple[Run, bool]:
    """Request cancellation of activities whose end the code waits for; True if one was cancelled at once.

    A running activity learns at its next heartbeat, and its report is recorded. One that waits for a worker or for its
    next attempt is cancelled at once, and so are those of `never_begun`.
    """
    asked, live = await _open_activities(tx, run, steps)
    running = [each for each in asked if _is_running(live.get(each.task_id))]
    waiting = [each for each in asked if each not in running]
    if running:
        kept = run.waits
        ending = tuple(dict.fromkeys((*kept.ending, *(each.step for each in running))))
        run = replace(run, waits=replace(kept, ending=ending))
    for activity in waiting:
        cancel_activity(tx, activity, live.get(activity.task_id))
    events = [
        NewEvent(EventType.ACTIVITY_CANCELLED, activity_payload(each) | _BEFORE_IT_RAN)
        for each in (*waiting, *never_begun)
    ]
    run = replace(run, open_activities=run.open_activities - len(waiting))
    return append(tx, run, events) if events else run, bool(events)


async def _open_activities(
    tx: Tx, run: Run, steps: Collection[int]
) -> tuple[list[Activity], dict[TaskId, Task]]:
    """The open activities of some steps, and the run's live tasks, locked."""
    found = [each for each in await tx.activities.open_of(run.run_id) if each.step in steps] if steps else []
    live = await tx.tasks.lock_live_of(run.run_id) if found else ()
    return found, {task.task_id: task for task in live}


def _is_running(task: Task | None) -> bool:
    return task is not None and task.state is TaskState.LEASED and not task.claimed


_BEFORE_IT_RAN = {
    "message": "The workflow cancelled the activity while no attempt was running.",
    "failure_category": "cancelled",
}


def cancel_activity(tx: Tx, activity: Activity, task: Task | None) -> None:
    """Cancel an activity at once; its worker learns at its next heartbeat or report."""
    ended = replace(activity, status=ActivityStatus.CANCELLED, closed_at_ms=tx.now_ms, deadline_at_ms=None)
    tx.activities.save(ended)
    if task is not None:
        tx.tasks.save(freed(task, TaskState.CANCELLED, available_at_ms=task.available_at_ms), task.state)


async def _give_up_activities(tx: Tx, run: Run, steps: set[int]) -> Run:
    """Cancel activities at once; their workers learn at the next heartbeat or report."""
    cancelled, live = await _open_activities(tx, run, steps)
    for activity in cancelled:
        cancel_activity(tx, activity, live.get(activity.task_id))
    return replace(run, open_activities=run.open_activities - len(cancelled))
