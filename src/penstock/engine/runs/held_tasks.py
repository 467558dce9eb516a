"""Holding back the tasks of paused runs and activities, and releasing them (`core/pauses.py`)."""

from __future__ import annotations

from msgspec.structs import replace

from penstock.core import pauses
from penstock.core.model import Run, Task
from penstock.core.scheduling.retries import waiting_deadline_at_ms
from penstock.core.waits import Pause
from penstock.engine.context import EngineContext
from penstock.engine.runs.history_writer import requeue_due
from penstock.ports.store import Tx


def pause_by(ctx: EngineContext, tx: Tx, reason: str | None) -> Pause:
    """A pause that begins now, asked for by the caller."""
    caller = ctx.caller
    return Pause(tx.now_ms, reason, None if caller is None else (caller.type, caller.id))


async def apply_pauses(tx: Tx, run: Run) -> None:
    """Hold back or release the tasks of a locked run that wait, as its pauses say now."""
    for task in await tx.tasks.lock_live_of(run.run_id):
        changed = pauses.held_back(run, task)
        if pauses.is_held(task) and pauses.pause_of(run, task) is None:
            changed = pauses.released(task, tx.now_ms)
        if changed is not task:
            requeue_due(tx, changed, task.state)
            await move_deadline(tx, changed)


async def move_deadline(tx: Tx, task: Task) -> None:
    """Count the schedule-to-start timeout of a waiting activity from the time at which its task is available."""
    activity = None if task.activity_id is None else await tx.activities.get(task.activity_id)
    if activity is not None:
        deadline_at_ms = waiting_deadline_at_ms(activity, task.available_at_ms)
        tx.activities.save(replace(activity, deadline_at_ms=deadline_at_ms))
