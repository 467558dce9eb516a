"""Successor runs: continue-as-new, and the next attempt of a child workflow."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from msgspec import Struct
from msgspec.structs import replace

from penstock.core.history import cancellation
from penstock.core.history.events import EventType
from penstock.core.history.lineage import Successor
from penstock.core.history.payloads import started, update_accepted
from penstock.core.messaging.messages import Cursor, is_delivery
from penstock.core.model import Instance, NewEvent, Run, Update, UpdateStatus
from penstock.engine.messaging import messages, outbox
from penstock.engine.runs.history_writer import (
    append,
    buffer_events,
    enqueue_workflow_task,
    is_concurrent,
    to_json,
)
from penstock.ports.store import Tx


class CarriedOver(Struct, frozen=True):
    """What a successor takes over from the run before it."""

    events: Sequence[NewEvent] = ()
    """Events at the beginning of its history, after the start."""
    signals: Sequence[NewEvent] = ()
    """Signals that are buffered until its first workflow task ends."""
    updates: int = 0


async def begin(tx: Tx, before: Run, successor: Successor, along: CarriedOver) -> Run:
    """Record the successor with its first task, and point the workflow id at it."""
    run = successor.run
    if run.compatibility is None and run.task_queue != before.task_queue:
        run = replace(run, compatibility=await pinned(tx, run.namespace, run.task_queue))
    run = replace(
        run,
        unseen_signals=len(along.signals),
        open_updates=along.updates,
        last_request=before.last_request,
    )
    asked = run.waits.cancellation
    cancelling = [] if asked is None else [cancellation.requested(run, asked)]
    run = append(tx, run, [started(run), *cancelling, *along.events])
    run = buffer_events(tx, run, along.signals)
    run = await enqueue_workflow_task(tx, run, at_ms=successor.at_ms)
    tx.runs.insert(run)
    tx.runs.succeed(Instance(run.namespace, run.workflow_id, run.run_id, run.run_number))
    if run.lineage.retried_from is not None:
        outbox.notify_parent_of_attempt(tx, run)
    return run


async def carry_over(
    tx: Tx, run: Run, successor: Run, cursors: Sequence[Cursor], answered: Collection[str] = ()
) -> CarriedOver:
    """Buffered signals, accepted updates and stream positions, moved to the successor.

    `answered` are updates that the last workflow task has answered. An update that concurrent code has begun is failed
    rather than moved: it must not be applied twice.
    """
    buffered = await tx.histories.buffered(run.run_id) if run.buffered else ()
    signals = [each for each in buffered if each.type == EventType.SIGNAL_RECEIVED and not is_delivery(each)]
    updates = await _move_updates(tx, run, successor, buffered, answered)
    of_streams = await messages.carried_over(tx, run, successor, cursors)
    accepted = [update_accepted(update) for update in updates]
    return CarriedOver([*of_streams, *accepted], signals, len(accepted))


async def _move_updates(
    tx: Tx, run: Run, successor: Run, buffered: Sequence[NewEvent], answered: Collection[str]
) -> Sequence[Update]:
    """Move the open updates that the code has not begun, and fail the others; returns the moved ones."""
    accepted = await tx.updates.accepted_of(run.run_id) if run.open_updates else ()
    open_updates = [update for update in accepted if update.update_id not in answered]
    moved = _not_begun(run, open_updates, buffered)
    for update in open_updates:
        tx.updates.save(
            replace(update, run_id=successor.run_id)
            if update in moved
            else _fail_interrupted(update, tx.now_ms)
        )
    return moved


def _not_begun(run: Run, updates: Sequence[Update], waiting: Sequence[NewEvent]) -> Sequence[Update]:
    """The open updates whose handlers have not started."""
    if not is_concurrent(run):
        return updates
    buffered = {each.payload["update_id"] for each in waiting if each.type == EventType.UPDATE_ACCEPTED}
    return [update for update in updates if update.update_id in buffered]


def _fail_interrupted(update: Update, now_ms: int) -> Update:
    outcome = to_json({"message": "The run was succeeded by another before it had carried out the update."})
    return replace(update, status=UpdateStatus.FAILED, outcome=outcome, closed_at_ms=now_ms)


async def pinned(tx: Tx, namespace: str, task_queue: str) -> str | None:
    """The build id that new runs of a queue are pinned to: the promoted cohort's, if there is one."""
    promoted = await tx.cohorts.promoted(namespace, task_queue)
    return (promoted.build_id or None) if promoted else None
