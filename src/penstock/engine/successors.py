"""The run that goes on where another ended: it continues as new, or is a child's next attempt."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from penstock.core.history import lineage
from penstock.core.history.events import EventType
from penstock.core.history.lineage import Successor
from penstock.core.history.payloads import started, update_accepted
from penstock.core.messages import Cursor, is_delivery
from penstock.core.model import Event, Instance, Run
from penstock.engine import letters, messages
from penstock.engine.recording import append, hold_back, line_up
from penstock.ports.store import Tx


@dataclass(frozen=True, slots=True)
class TakenAlong:
    """What a run hands on to its successor."""

    events: Sequence[Event] = ()
    """What stands at the beginning of its history."""
    signals: Sequence[Event] = ()
    """What its code is told once it has looked."""
    updates: int = 0


async def begin(tx: Tx, before: Run, successor: Successor, along: TakenAlong) -> Run:
    """Record the successor, and let the workflow id name it. It takes along what the one before had not seen."""
    run = successor.run
    if run.compatibility is None and run.task_queue != before.task_queue:
        run = replace(run, compatibility=await pinned(tx, run.namespace, run.task_queue))
    run = replace(
        run,
        unseen_signals=len(along.signals),
        open_updates=along.updates,
        last_request=before.last_request,
    )
    run = append(tx, run, [started(run), *along.events])
    run = hold_back(tx, run, along.signals)
    run = await line_up(tx, run, at_ms=successor.at_ms)
    tx.runs.insert(run)
    tx.runs.succeed(Instance(run.namespace, run.workflow_id, run.run_id, run.run_number))
    if lineage.of(run).retried_from is not None:
        letters.tell_parent_of_attempt(tx, run)
    return run


async def taken_along(
    tx: Tx, run: Run, successor: Run, cursors: Sequence[Cursor], answered: Collection[str] = ()
) -> TakenAlong:
    """Signals and updates that came while the last workflow task was decided, and updates that are not applied."""
    waiting = await tx.histories.buffered(run.run_id) if run.buffered else ()
    signals = [each for each in waiting if each.type == EventType.SIGNAL_RECEIVED and not is_delivery(each)]
    accepted_ones = await tx.updates.accepted_of(run.run_id) if run.open_updates else ()
    updates = [update for update in accepted_ones if update.update_id not in answered]
    for update in updates:
        tx.updates.save(replace(update, run_id=successor.run_id))
    of_streams = await messages.carried_over(tx, run, successor, cursors)
    accepted = [update_accepted(update) for update in updates]
    return TakenAlong([*of_streams, *accepted], signals, len(accepted))


async def pinned(tx: Tx, namespace: str, task_queue: str) -> str | None:
    """The build that new runs of a queue belong to: the promoted cohort's, if there is one."""
    promoted = await tx.cohorts.promoted(namespace, task_queue)
    return (promoted.build_id or None) if promoted else None
