"""Reading the audit trail of a run: the events that `core.audit.trail` derives, for a page or a whole history."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.core.audit.trail import (
    CHILD_ENDS,
    AuditTrail,
    DerivedEvent,
    close_policies,
    is_close,
    needs_context,
    operator_events,
)
from penstock.core.history.events import EventType
from penstock.core.model import ClosePolicy, RecordedEvent, Run
from penstock.engine.runs.operator_commands import commands_of
from penstock.ports.store import Tx

CONTEXT_AT_ONCE = 100
EVENTS_AT_ONCE = 1_000


async def of_page(tx: Tx, run: Run, events: Sequence[RecordedEvent]) -> Sequence[DerivedEvent]:
    """The derived events of a page, which is given in ascending order."""
    if not events:
        return ()
    context = await _context(tx, run, events[0].sequence)
    has_signals = any(each.type == EventType.SIGNAL_RECEIVED for each in (*context, *events))
    trail = AuditTrail(run, context, takes_signals=has_signals and await takes_signals(tx, run))
    derived = [each for event in events for each in trail.add(event)]
    closing = next((event for event in events if is_close(event)), None)
    return [*derived, *await behind(tx, run, events[0].sequence, events[-1].sequence, closing)]


async def takes_signals(tx: Tx, run: Run) -> bool:
    """Whether the code of a run waits for signals by name."""
    return await tx.histories.last_of_type(run.run_id, [EventType.SIGNAL_WAIT_OPENED]) is not None


async def behind(
    tx: Tx, run: Run, first: int, last: int, closing: RecordedEvent | None
) -> Sequence[DerivedEvent]:
    """The derived events that stand behind the events `first` to `last`, of which one may close the run."""
    policies = () if closing is None else await _close_policies(tx, run, closing)
    commands = [each for each in await commands_of(tx, run) if first <= each.after <= last]
    return [*policies, *operator_events(run, commands, 1 + len(policies))]


async def _context(tx: Tx, run: Run, before: int) -> Sequence[RecordedEvent]:
    """The events before one that decide what follows from it, in ascending order."""
    found: list[RecordedEvent] = []
    while before > 1:
        events = await tx.histories.page_back(run.run_id, before, CONTEXT_AT_ONCE)
        for event in events:
            found.append(event)
            if not needs_context(event):
                return found[::-1]
        before = events[-1].sequence if events else 0
    return found[::-1]


async def _close_policies(tx: Tx, run: Run, closing: RecordedEvent) -> Sequence[DerivedEvent]:
    children = await tx.children.all_of(run.run_id)
    if all(each.policy is ClosePolicy.ABANDON for each in children):
        return ()
    ended: list[int] = []
    after = 0
    while events := await tx.histories.timeline(run.run_id, after, EVENTS_AT_ONCE):
        ended += [each.step for each in events if each.type in CHILD_ENDS and each.step is not None]
        after = events[-1].sequence
    return close_policies(closing, run, children, ended)
