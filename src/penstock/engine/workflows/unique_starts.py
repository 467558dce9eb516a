"""Starts with a unique key: who holds it, and what a start does that finds it held.

`core.starts.unique_starts` decides. All starts of a key, on all servers, lock its row first, so they run one after the
other. They lock nothing of the run that the row names, except to replace its input: a run that was found holding the
key may end or be started right after, as it may after any answer.
"""

from __future__ import annotations

from msgspec import Struct
from msgspec.structs import replace

from penstock.core.model import ActivityId, Blob, Run, RunHost, RunId, Task, TaskState, task_id
from penstock.core.scheduling.retries import waiting_deadline_at_ms
from penstock.core.starts.unique_starts import (
    Debounce,
    UniqueConflict,
    UniqueStart,
    UniqueUntil,
    decide_conflict,
    is_held_by,
    is_unstarted,
    postponed,
)
from penstock.core.timestamps import earliest
from penstock.engine.runs.workflow_ids import TRIES, busy
from penstock.errors import Conflict, Reason
from penstock.ports.store import Tx
from penstock.ports.tables.runs import UniqueKeyName, UniqueKeyRow


class UniqueHolder(Struct, frozen=True):
    """The run that holds the key of a start, which therefore begins none."""

    run: Run
    is_debounced: bool = False
    """Whether it has taken the input of the start."""


class KeyedStart(Struct, frozen=True):
    """A start with its unique key.

    Args:
        name: the key in its namespace and scope.
        unique: what the start says about it.
        run_id: the run that the start would begin.
        input: its input.
        replaced: the run of its workflow id that it would replace.
    """

    name: UniqueKeyName
    unique: UniqueStart
    run_id: RunId
    input: Blob
    replaced: Run | None = None


async def take_key(tx: Tx, start: KeyedStart) -> UniqueHolder | None:
    """Take the unique key of a start for its run; returns the run that holds it, if one does.

    Raises `Conflict` if the start is refused for that.
    """
    latest_at_ms = None
    if start.unique.debounce is not None:
        latest_at_ms = tx.now_ms + start.unique.debounce.longest_ms
    own = UniqueKeyRow(start.run_id, start.unique.until, 1, latest_at_ms)
    for _ in range(TRIES):
        row = await tx.unique_keys.lock(start.name)
        if row is not None:
            held = await _meet(tx, start, row)
            if held is None:
                tx.unique_keys.save(start.name, own)
            return held
        if await tx.unique_keys.reserve(start.name, own):
            return None
    raise busy(start.name.unique_key)


async def _meet(tx: Tx, start: KeyedStart, row: UniqueKeyRow) -> UniqueHolder | None:
    """What a start does with the run that a locked row names; None if that holds the key no more."""
    run = await tx.runs.get(row.run_id)
    if run is None or (start.replaced is not None and start.replaced.run_id == run.run_id):
        return None
    task = await tx.tasks.get(task_id(run.run_id, 1))
    if not is_held_by(run, task, row.until):
        return None
    match decide_conflict(start.unique, _first_task(run, task)):
        case UniqueConflict.REFUSE:
            raise _refused(run, start)
        case UniqueConflict.REPLACE_INPUT:
            return await _replace_input(tx, start, row)
        case UniqueConflict.USE_EXISTING:
            return UniqueHolder(run)


def _first_task(run: Run, task: Task | None) -> Task | None:
    """The task that begins what the start asked for: that of a run which continues another does not."""
    return task if run.lineage.continued_from is None else None


async def _replace_input(tx: Tx, start: KeyedStart, row: UniqueKeyRow) -> UniqueHolder | None:
    """Give a run the input of a later start and delay it again, unless a worker has started it by now."""
    debounce = start.unique.debounce
    assert debounce is not None, "only a debounced start replaces an input"
    run = await tx.runs.lock(row.run_id)
    task = await tx.tasks.lock(task_id(row.run_id, 1))
    if run is None or task is None or not is_held_by(run, task, row.until):
        return None
    if not is_unstarted(task):
        return UniqueHolder(run)
    due_at_ms = debounce.due_at_ms(run.started_at_ms, tx.now_ms)
    moved = postponed(task, due_at_ms)
    if moved is not task:
        tx.tasks.save(moved, TaskState.DELAYED)
        if run.waits.to_start:
            tx.run_places.postpone(run.run_id, due_at_ms)
    run = _with_input(run, start.input, due_at_ms if moved is not task else None)
    tx.runs.save(run)
    tx.runs.replace_input(run)
    if run.host is RunHost.ACTIVITY:
        await _replace_arguments(tx, run, task, moved, due_at_ms)
    tx.unique_keys.save(start.name, _joined(row, run, debounce))
    return UniqueHolder(run, is_debounced=True)


def _joined(row: UniqueKeyRow, run: Run, debounce: Debounce) -> UniqueKeyRow:
    return replace(row, starts=row.starts + 1, latest_at_ms=run.started_at_ms + debounce.longest_ms)


def _with_input(run: Run, value: Blob, due_at_ms: int | None) -> Run:
    """A run with another input and, if it is delayed again, timeouts that count from then."""
    run = replace(run, input=value)
    if due_at_ms is None or run.host is RunHost.ACTIVITY:
        return run
    execution, single = (
        None if timeout_s is None else due_at_ms + timeout_s * 1000
        for timeout_s in (run.execution_timeout_s, run.run_timeout_s)
    )
    return replace(
        run,
        execution_deadline_at_ms=execution,
        run_deadline_at_ms=single,
        deadline_at_ms=earliest(execution, single),
    )


async def _replace_arguments(tx: Tx, run: Run, before: Task, task: Task, due_at_ms: int) -> None:
    activity = await tx.activities.get(ActivityId(f"{run.run_id}-a1"))
    assert activity is not None, "a standalone activity has its step"
    activity = replace(activity, arguments=run.input)
    if task is not before:
        activity = replace(activity, scheduled_at_ms=due_at_ms)
        activity = replace(activity, deadline_at_ms=waiting_deadline_at_ms(activity, task.available_at_ms))
    tx.activities.save(activity)
    tx.activities.replace_arguments(activity)


def hand_on(tx: Tx, run: Run, successor: Run) -> None:
    """Have the next run of a chain hold the unique key of the run before it: a chain is one run.

    A key that is held until the start is free by then.
    """
    if run.lineage.unique_key is not None and run.lineage.unique_until == UniqueUntil.DONE:
        tx.unique_keys.hand_on(run.run_id, successor.run_id)


def _refused(run: Run, start: KeyedStart) -> Conflict:
    until = "it is done" if run.lineage.unique_until == UniqueUntil.DONE else "a worker has started it"
    return Conflict(
        Reason.UNIQUE_KEY_HELD,
        f"Nothing was started: {run.workflow_id!r} holds the unique key {start.unique.key!r} until {until}. Start "
        "with unique_conflict_policy use_existing to get that run.",
        workflow_id=run.workflow_id,
        run_id=run.run_id,
        unique_key=start.unique.key,
        outcome="rejected_duplicate",
    )
