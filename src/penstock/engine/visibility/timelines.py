"""The timeline of a run, read in one snapshot and computed by `core/timeline`."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct, field, structs

from penstock.core.model import Run, RunHost
from penstock.core.timeline.folded_lanes import LANES_MAX, fold
from penstock.core.timeline.steps import RunTimes, lanes
from penstock.core.timeline.time_spent import TimeSpent, time_spent
from penstock.core.timeline.values import CAUSES, TimelineEvent, TimelineLane, WaitCause
from penstock.engine.context import EngineContext
from penstock.engine.runs.address import Address
from penstock.engine.visibility import explanations
from penstock.engine.visibility.run_reader import find_run
from penstock.ports.gather import gather
from penstock.ports.store import Tx

EVENTS_MAX = 60_000
"""Events that are read of one run; a longer history is shown up to there."""
EVENTS_AT_ONCE = 10_000

DRAWN_MAX = 8
"""Selections of one long run whose drawing is kept with it."""


class LaneSelection(Struct, frozen=True):
    """Which lanes to show: those of one type, after a step. A folded lane is opened with it."""

    label: str | None = None
    after_step: int = 0
    width: int = 1_200


class RunTimeline(Struct, frozen=True):
    """The lanes of a run and where its time went, as of `now_ms`."""

    run: Run
    times: RunTimes
    lanes: Sequence[TimelineLane]
    lane_count: int
    """How many lanes were selected, before folding."""
    spent: TimeSpent
    is_complete: bool
    """Whether the whole history was read."""
    next_step: int | None = None
    """The `after_step` of the next lanes of the selected type; None: there are none."""


async def read(ctx: EngineContext, address: Address, selection: LaneSelection) -> RunTimeline:
    """The timeline of the addressed run, which may be closed; of a long run one that was made a moment before.

    Raises `NotFound`.
    """

    async def operation(tx: Tx) -> RunTimeline:
        _, run = await find_run(
            tx, address.namespace, address.workflow_id, address.run_id, RunHost.WORKFLOW, address.chain
        )
        kept: _EveryLane | None = ctx.timelines.find(run.run_id, run.closed_at_ms, tx.now_ms)
        if kept is None:
            earlier: _EveryLane | None = ctx.timelines.latest(run.run_id)
            known = () if earlier is None else earlier.events
            kept = _every_lane(run, *await _times(ctx, tx, run, known))
            ctx.timelines.keep(run.run_id, run.last_sequence, run.closed_at_ms, tx.now_ms, kept)
        return _folded(kept, selection)

    return await ctx.store.read(operation, long=True)


async def _times(
    ctx: EngineContext, tx: Tx, run: Run, known: Sequence[TimelineEvent]
) -> tuple[RunTimes, Sequence[TimelineEvent]]:
    events, bound, tasks = await gather(
        _events(tx, run, known),
        explanations.constraints(ctx, tx, run),
        tx.tasks.times_of(run.run_id, EVENTS_MAX),
    )
    causes = {name: CAUSES.get(kind, WaitCause.UNKNOWN) for name, kind in bound.items()}
    closed_at_ms = run.closed_at_ms
    if events and events[-1].sequence < run.last_sequence:
        closed_at_ms = events[-1].at_ms
    return RunTimes(run.started_at_ms, closed_at_ms, tx.now_ms, tasks, causes), events


async def _events(tx: Tx, run: Run, known: Sequence[TimelineEvent]) -> Sequence[TimelineEvent]:
    """The events of a run: the first ones as they are known, because a history only grows, and the others as stored.

    They are read some thousand at a time, because a driver decodes an answer without a pause.
    """
    events = list(known)
    while len(events) < EVENTS_MAX:
        page = await tx.histories.timeline(run.run_id, events[-1].sequence if events else 0, EVENTS_AT_ONCE)
        events += page
        if len(page) < EVENTS_AT_ONCE:
            break
    return events


class _EveryLane(Struct):
    """All lanes of a run, and how they were drawn for those who asked last."""

    run: Run
    times: RunTimes
    lanes: Sequence[TimelineLane]
    spent: TimeSpent
    is_complete: bool
    events: Sequence[TimelineEvent]
    """Of an open run those that it was made of, so that the next time only newer ones are read."""
    drawn: dict[LaneSelection, RunTimeline] = field(default_factory=dict)


def _every_lane(run: Run, times: RunTimes, events: Sequence[TimelineEvent]) -> _EveryLane:
    every = lanes(events, times)
    spent = time_spent(every, times.started_at_ms, times.end_ms)
    is_complete = not events or events[-1].sequence >= run.last_sequence
    kept_events = events if run.closed_at_ms is None else ()
    return _EveryLane(run, structs.replace(times, tasks=()), every, spent, is_complete, kept_events)


def _folded(kept: _EveryLane, selection: LaneSelection) -> RunTimeline:
    known = kept.drawn.get(selection)
    if known is not None:
        return known
    chosen, next_step = _selected(kept.lanes, selection)
    found = RunTimeline(
        kept.run,
        kept.times,
        fold(chosen, selection.width),
        len(chosen),
        kept.spent,
        kept.is_complete,
        next_step,
    )
    if len(kept.drawn) >= DRAWN_MAX:
        kept.drawn.clear()
    kept.drawn[selection] = found
    return found


def _selected(
    every: Sequence[TimelineLane], selection: LaneSelection
) -> tuple[Sequence[TimelineLane], int | None]:
    if selection.label is None:
        return every, None
    found = sorted(
        (lane for lane in every if lane.label == selection.label and (lane.step or 0) > selection.after_step),
        key=lambda lane: lane.step or 0,
    )
    page = found[:LANES_MAX]
    return page, page[-1].step if len(found) > LANES_MAX else None
