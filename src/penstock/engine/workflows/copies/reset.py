"""Reset and fork: a new run that begins with a copy of another run's history, up to a decision point.

Theory of operation
-------------------
The new run gets the events before the decision point, with its own ids in place of the source's, at their numbers and
with their times, so that replay takes the code to where it was (`replay-is-deterministic`). The state of its row is
computed from those events (`core/reset/prefix_state.py`), and its first workflow task decides anew. Random numbers of
the copied part stay those of the run that recorded it: the start event names it (`Lineage.copies`).

- Activities that were open at the point are scheduled again, as new activities of the new run.
- Timers that were open keep the time at which they fire; one that is over fires at once.
- Updates that were open are accepted anew; their callers have, or get, the outcome of the source's.
- Signals that came later are delivered behind the new run's first decision, in their order, unless the caller wants
  none.
- Steps that ended before the point stay ended. Children and other things that belong to one run must not be open
  there; then the request is refused with `run_not_copyable`.

A *reset* continues the workflow id: an open source is terminated in the same transaction. A *fork* begins another
workflow id and leaves the source alone. One transaction records everything, so a crash leaves either nothing or all.

The history is read and the state computed before that transaction, page by page: a history only grows, so what was read
stays true, and neither the store nor the event loop is held up by a long one. Under the locks only what came since is
read (`_Copy.later`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from enum import StrEnum
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from penstock.core.history.events import MESSAGE_STREAM_SIGNAL, EventType
from penstock.core.history.payloads import FAIRNESS_WEIGHT, extra
from penstock.core.json_text import read
from penstock.core.model import (
    NO_LINEAGE,
    Activity,
    ActivityId,
    ActivityStatus,
    Blob,
    Instance,
    NewEvent,
    RecordedEvent,
    Run,
    RunId,
    TaskPriority,
    TimerId,
    TimerState,
    UpdateStatus,
)
from penstock.core.model import task_id as numbered
from penstock.core.reset.decision_points import copied, decision_points, nearest, recorded_by
from penstock.core.reset.prefix_state import PrefixFold, PrefixState
from penstock.core.scheduling.retries import waiting_deadline_at_ms
from penstock.engine.context import EngineContext
from penstock.engine.runs import operator_commands, run_places, workflow_ids
from penstock.engine.runs.address import no_run, rejected
from penstock.engine.runs.history_writer import (
    DUE_TOPIC,
    buffer_events,
    enqueue_activity_task,
    schedule_next_task,
)
from penstock.engine.runs.idempotency import IdempotentRequest
from penstock.engine.runs.run_lookup import locate
from penstock.engine.workflows import start_caps
from penstock.engine.workflows.copies import run_copies
from penstock.engine.workflows.copies.run_copies import MadeRun, Source, SourceAddress
from penstock.engine.workflows.run_close import EndMode, close_now
from penstock.errors import Conflict, Reason
from penstock.ports.store import Tx

RESET_OUTCOME: Final = "reset"
FORK_OUTCOME: Final = "forked"
EVENTS_AT_ONCE: Final = 500


class Reapply(StrEnum):
    """Which messages that came after the decision point the new run gets."""

    SIGNALS = "signals"
    NONE = "none"


class ResetRequest(Struct, frozen=True):
    """A request for a new run from a decision point of another one."""

    event: int
    reapply: Reapply
    reason: str | None = None
    request_id: str | None = None


class ForkTarget(Struct, frozen=True):
    """The workflow id of a fork, generated if None, and its input; None: that of the source."""

    workflow_id: str | None = None
    input: Blob | None = None


class _Copy(Struct, frozen=True):
    """What a new run takes over from its source, as read before the transaction that records it."""

    source_run_id: RunId
    history: Sequence[RecordedEvent]
    """The events before the decision point, with the ids of the new run; the first is still that of the source."""
    state: PrefixState
    signals: Sequence[NewEvent]
    """Those from the decision point on."""
    read_through: int

    @property
    def through(self) -> int:
        return len(self.history)


async def reset(ctx: EngineContext, address: SourceAddress, request: ResetRequest) -> MadeRun:
    """Replace a run by one that decides anew at a decision point. An open run is terminated.

    Args:
        ctx: The server.
        address: The run, open or closed; no other run of its workflow id may be open.
        request: The decision point, and what the new run gets.
    """
    name = f"{request.event} {request.reapply.value}"
    retained = IdempotentRequest(
        "reset request", f"{address.run_id or ''} {name}", Blob(""), request.request_id
    )
    new_id = RunId(ctx.entropy.new_id())

    async def make(tx: Tx, source: Source) -> MadeRun:
        run_copies.check_none_open(source)
        await _check_no_parent_waits(tx, source.run)
        part = _of(copy, source.run)
        signals = await _signals(tx, source.run, part, request)
        run = await run_copies.successor(tx, source, new_id)
        caps = None
        if source.run.is_open and not source.run.waits.to_start:
            without_places = replace(source.run, waits=replace(source.run.waits, places=()))
            await close_now(ctx, tx, without_places, EndMode.TERMINATE, _reason(request))
            run = await _begin(ctx, tx, source.run, run, part, signals)
            run = run_places.hand_on(tx, source.run, run)
        else:
            caps = await start_caps.of_start(ctx, tx, run)
            places = () if caps is None else caps.require(run).waits.places
            if source.run.is_open:
                await close_now(ctx, tx, source.run, EndMode.TERMINATE, _reason(request))
            run = await _begin(ctx, tx, source.run, run, part, signals)
            run = replace(run, waits=replace(run.waits, places=places))
        run_copies.take_id(tx, run)
        operator_commands.retain(ctx, tx, source.run, operator_commands.RESET, new_id, request.reason)
        start_caps.record(caps)
        return MadeRun(run, source.run.run_id, part.through)

    before = await run_copies.made_by_earlier_request(ctx, address, retained)
    if before is not None:
        return before
    copy = await _read_copy(ctx, address, request, new_id)
    return await run_copies.make_run(ctx, address, retained, make)


async def fork(
    ctx: EngineContext, address: SourceAddress, request: ResetRequest, target: ForkTarget
) -> MadeRun:
    """Begin a run of another workflow id that decides anew at a decision point of a run, which goes on.

    Args:
        ctx: The server.
        address: The run, open or closed.
        request: The decision point, and what the new run gets.
        target: The new workflow id, and another input.
    """
    name = f"{address.run_id or ''} {request.event} {request.reapply.value} {target.workflow_id or ''}"
    retained = IdempotentRequest("fork request", name, target.input or Blob(""), request.request_id)
    new_id = RunId(ctx.entropy.new_id())
    workflow_id = target.workflow_id or f"{address.workflow_id[:80]}-fork-{new_id}"

    async def make(tx: Tx, source: Source) -> MadeRun:
        part = _of(copy, source.run)
        signals = await _signals(tx, source.run, part, request)
        run = await run_copies.successor(tx, source, new_id)
        run = replace(
            run,
            workflow_id=workflow_id,
            run_number=1,
            started_at_ms=tx.now_ms,
            input=source.run.input if target.input is None else target.input,
            lineage=replace(NO_LINEAGE, concurrency_key=source.run.lineage.concurrency_key),
        )
        caps = await start_caps.of_start(ctx, tx, run)
        places = () if caps is None else caps.require(run).waits.places
        run = await _begin(ctx, tx, source.run, run, part, signals)
        run = replace(run, waits=replace(run.waits, places=places))
        await _take_new_id(tx, run)
        tx.runs.insert(run)
        operator_commands.retain(ctx, tx, source.run, operator_commands.FORK, new_id, request.reason)
        start_caps.record(caps)
        return MadeRun(run, source.run.run_id, part.through)

    before = await run_copies.made_by_earlier_request(ctx, address, retained)
    if before is not None:
        return before
    copy = await _read_copy(ctx, address, request, new_id)
    return await run_copies.make_run(ctx, address, retained, make)


def _reason(request: ResetRequest) -> str:
    return f"reset to event {request.event}" + (f": {request.reason}" if request.reason else "")


async def _check_no_parent_waits(tx: Tx, run: Run) -> None:
    """A parent that still waits for a run would take its termination for the child's outcome."""
    parent_id = run.lineage.parent_run_id
    parent = None if parent_id is None or not run.is_open else await tx.runs.get(parent_id)
    if parent is not None and parent.is_open:
        raise _not_copyable(
            run, f"it is the child of {parent.workflow_id!r}, which waits for it; fork it instead"
        )


async def _take_new_id(tx: Tx, run: Run) -> None:
    instance = Instance(run.namespace, run.workflow_id, run.run_id, 1)
    standing = await tx.runs.reserve(instance)
    if standing.run_id != run.run_id:
        raise Conflict(
            Reason.INSTANCE_ALREADY_STARTED,
            f"{run.workflow_id!r} is in use. Choose another id for the fork.",
            workflow_id=run.workflow_id,
            run_id=standing.run_id,
            outcome="rejected_duplicate",
        )


# ── The copied part ─────────────────────────────────────────────────────────────────────────────────────────


async def _read_copy(
    ctx: EngineContext, address: SourceAddress, request: ResetRequest, new_id: RunId
) -> _Copy:
    """Read the history of the source, and compute the state at the decision point. Raises if it cannot be copied."""
    run = await ctx.store.read(lambda tx: _source(tx, address))
    reader = _CopyReader(run, request, new_id)
    while page := await ctx.store.read(lambda tx: tx.histories.page(run.run_id, reader.read, EVENTS_AT_ONCE)):
        reader.add(page)
        await asyncio.sleep(0)
    return reader.copy()


async def _source(tx: Tx, address: SourceAddress) -> Run:
    return (await locate(tx, address.namespace, address.workflow_id, address.run_id)).run


class _CopyReader:
    """Takes a history page by page."""

    def __init__(self, source: Run, request: ResetRequest, new_id: RunId) -> None:
        self.read = 0
        self._source, self._request, self._new_id = source, request, new_id
        self._history: list[RecordedEvent] = []
        self._later: list[RecordedEvent] = []
        self._points: list[int] = []
        self._fold: PrefixFold | None = None

    def add(self, page: Sequence[RecordedEvent]) -> None:
        """Add the next events."""
        last = [(self._later or self._history)[-1]] if self.read else []
        self._points += decision_points([*last, *page])
        for event in page:
            if event.sequence < self._request.event:
                self._add_copied(event)
            else:
                self._later.append(event)
        self.read = page[-1].sequence

    def _add_copied(self, event: RecordedEvent) -> None:
        if self._fold is None:
            fields = run_copies.start_fields_of(event)
            fresh = run_copies.as_started(self._source, self._new_id, fields)
            self._fold, copied_event = PrefixFold(fresh), event
        else:
            copied_event = run_copies.renamed_event(event, self._source.run_id, self._new_id)
        self._history.append(copied_event)
        self._fold.add(copied_event)

    def copy(self) -> _Copy:
        """All that was read. Raises if the event is no decision point, or the history cannot be copied."""
        if not self.read:
            raise no_run(self._source.workflow_id, self._source.run_id)
        if self._request.event not in self._points or self._fold is None:
            near = nearest(self._points, self._request.event)
            raise _no_point(self._source, self._request.event, self.read, near)
        state = self._fold.state()
        if state.problem is not None:
            raise _not_copyable(self._source, state.problem)
        signals = _signals_in(self._later)
        return _Copy(self._source.run_id, self._history, state, signals, self.read)


def _of(copy: _Copy, source: Run) -> _Copy:
    """The copy, if it is still one of the run that the request names."""
    if copy.source_run_id != source.run_id:
        raise workflow_ids.busy(source.workflow_id)
    return copy


async def _signals(tx: Tx, source: Run, copy: _Copy, request: ResetRequest) -> Sequence[NewEvent]:
    """The signals that the new run gets: those that were read, those that came since, and those in the buffer."""
    if request.reapply is Reapply.NONE:
        return ()
    signals, read_through = [*copy.signals], copy.read_through
    while page := await tx.histories.page(source.run_id, read_through, EVENTS_AT_ONCE):
        signals += _signals_in(page)
        read_through = page[-1].sequence
    buffered = await tx.histories.buffered(source.run_id) if source.buffered else ()
    signals += [event for event in buffered if event.type == EventType.SIGNAL_RECEIVED]
    return [_plain(event) for event in signals if not _is_delivery(event)]


def _signals_in(events: Sequence[RecordedEvent]) -> list[NewEvent]:
    return [
        NewEvent(event.type, read(event.payload))
        for event in events
        if event.type == EventType.SIGNAL_RECEIVED
    ]


def _is_delivery(event: NewEvent) -> bool:
    """Whether a signal delivers a message of a stream, which belongs to its run."""
    return event.payload.get("signal_name") == MESSAGE_STREAM_SIGNAL


def _no_point(run: Run, event: int, length: int, points: Sequence[int]) -> Conflict:
    if not points:
        hint = "It has none: no workflow task of it has completed. Rerun it, or start it under another id."
    else:
        hint = f"The nearest ones are {', '.join(map(str, points))}."
    what = f"Event {event}" if event <= length else f"The history has {length} events; event {event}"
    return Conflict(
        Reason.NOT_A_DECISION_POINT,
        f"{what} is no decision point of the run {run.run_id}: no workflow task recorded its decision there. {hint}",
        workflow_id=run.workflow_id,
        run_id=run.run_id,
        event=event,
        decision_points=list(points),
        **rejected(Reason.NOT_A_DECISION_POINT),
    )


def _not_copyable(run: Run, problem: str) -> Conflict:
    return Conflict(
        Reason.RUN_NOT_COPYABLE,
        f"Another run cannot continue {run.run_id} from this event: {problem}. Choose another decision point.",
        workflow_id=run.workflow_id,
        run_id=run.run_id,
        **rejected(Reason.RUN_NOT_COPYABLE),
    )


# ── The new run ─────────────────────────────────────────────────────────────────────────────────────────────


async def _begin(
    ctx: EngineContext, tx: Tx, source: Run, run: Run, copy: _Copy, signals: Sequence[NewEvent]
) -> Run:
    """Record the history and the open work of a new run, and schedule its first task; the caller inserts it."""
    state = copy.state
    run = replace(
        run,
        memo=state.run.memo,
        search_attributes=state.run.search_attributes,
        lineage=replace(run.lineage, copies=copied(source.lineage.copies, source.run_id, copy.through)),
        last_request=source.last_request,
    )
    tx.histories.append(run_copies.with_start(run, copy.history, ctx.caller))
    run = replace(
        run,
        last_sequence=copy.through,
        last_step=state.run.last_step,
        open_activities=state.run.open_activities,
        open_timers=state.run.open_timers,
        open_updates=state.run.open_updates,
        unseen_signals=state.run.unseen_signals + len(signals),
        waits=replace(state.run.waits, signals_deferred=True),
    )
    run = await _with_activities(tx, run, state, source, copy)
    await _with_timers(tx, run, state, source, copy)
    newest = await _with_updates(tx, run, state, source)
    run = buffer_events(tx, run, signals)
    return await schedule_next_task(tx, run, wakes=True, newest_update=newest)


def _plain(signal: NewEvent) -> NewEvent:
    """A signal without the wait that it ended in the source."""
    payload = {name: value for name, value in signal.payload.items() if name != "signal_wait_id"}
    return NewEvent(signal.type, payload)


def _scheduled_at(part: _Copy, event_type: str) -> dict[int, int]:
    """The number of the event by which each step began."""
    return {
        read(event.payload)["sequence"]: event.sequence for event in part.history if event.type == event_type
    }


def _owners(source: Run, part: _Copy, steps: Sequence[int], event_type: str) -> dict[int, tuple[RunId, ...]]:
    """The runs that may have the row of a step: the source, or the run that recorded it."""
    begun = _scheduled_at(part, event_type) if steps else {}
    copies = source.lineage.copies
    return {step: (source.run_id, recorded_by(copies, source.run_id, begun[step])) for step in steps}


async def _with_activities(tx: Tx, run: Run, state: PrefixState, source: Run, part: _Copy) -> Run:
    """Schedule the open activities again, as activities of the new run."""
    owners = _owners(source, part, state.activities, EventType.ACTIVITY_SCHEDULED)
    for step, owned_by in owners.items():
        activity, priority = await _activity(tx, source, step, owned_by)
        run = replace(run, last_task=run.last_task + 1)
        again = replace(
            activity,
            activity_id=ActivityId(f"{run.run_id}-a{step}"),
            run_id=run.run_id,
            task_id=numbered(run.run_id, run.last_task),
            scheduled_at_ms=tx.now_ms,
            status=ActivityStatus.PENDING,
            attempt=0,
            started_at_ms=None,
            heartbeat_at_ms=None,
            heartbeat_details=None,
            closed_at_ms=None,
            worker_deaths=0,
            quarantined=0,
        )
        again = replace(again, deadline_at_ms=waiting_deadline_at_ms(again, tx.now_ms))
        await enqueue_activity_task(tx, run, again, priority)
    return run


async def _activity(
    tx: Tx, source: Run, step: int, owned_by: Sequence[RunId]
) -> tuple[Activity, TaskPriority]:
    """An activity's row, and the priority of its task."""
    for owner in owned_by:
        activity = await tx.activities.get(ActivityId(f"{owner}-a{step}"))
        task = None if activity is None else await tx.tasks.get(activity.task_id)
        if activity is not None and task is not None:
            weight = extra(activity.extra).get(FAIRNESS_WEIGHT)
            weight_milli = source.weight_milli if weight is None else round(weight * 1000)
            return activity, TaskPriority(task.level, task.key, weight_milli, task.cost)
    raise _not_copyable(
        source, f"the activity of step {step} is open there, and the run that began it is deleted"
    )


async def _with_timers(tx: Tx, run: Run, state: PrefixState, source: Run, part: _Copy) -> None:
    """Open the open timers again; they keep their time."""
    for step, owned_by in _owners(source, part, state.timers, EventType.TIMER_SCHEDULED).items():
        found = [await tx.timers.get(f"{owner}-t{step}") for owner in owned_by]
        timer = next((each for each in found if each is not None), None)
        if timer is None:
            raise _not_copyable(
                source, f"the timer of step {step} is open there, and the run that began it is deleted"
            )
        tx.timers.insert(
            replace(
                timer,
                timer_id=TimerId(f"{run.run_id}-t{step}"),
                run_id=run.run_id,
                extra=run_copies.renamed(timer.extra, timer.run_id, run.run_id),
                state=TimerState.OPEN,
            )
        )
        tx.wake(DUE_TOPIC)


async def _with_updates(tx: Tx, run: Run, state: PrefixState, source: Run) -> str | None:
    """Accept the open updates anew; returns the first of them."""
    for update_id in state.updates:
        if not update_id.startswith(f"{run.run_id}-"):
            raise _not_copyable(source, "an update that an earlier run accepted is open there")
        before = await tx.updates.get(update_id.replace(run.run_id, source.run_id, 1))
        if before is None:
            raise _not_copyable(source, "an update is open there that another run accepted")
        tx.updates.insert(
            replace(
                before,
                update_id=update_id,
                run_id=run.run_id,
                workflow_id=run.workflow_id,
                request_id=None,
                status=UpdateStatus.ACCEPTED,
                outcome=None,
                closed_at_ms=None,
            )
        )
    return next(iter(state.updates), None)
