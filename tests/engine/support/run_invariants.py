"""Invariants of runs, checked against everything that a store holds of them."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from penstock.core.history import lineage, parallel_groups, waits
from penstock.core.history.commands import CancelSelectionOperation
from penstock.core.history.decide import advance
from penstock.core.history.events import CLOSING, ENDED, SUCCEEDED, WAKES_ALWAYS, EventType
from penstock.core.history.payloads import CONDITION_TIMEOUT
from penstock.core.history.structural_limits import StructuralLimits
from penstock.core.history.waits import Waits
from penstock.core.model import (
    Activity,
    ChildRun,
    ChildState,
    NewEvent,
    OutboxKind,
    OutboxMessage,
    RecordedEvent,
    Run,
    RunHost,
    RunId,
    Task,
    TaskKind,
    TaskState,
    Timer,
    Update,
    UpdateStatus,
)
from penstock.ports.store import RunFilter, Store, Tx
from tests.engine.support.programs import History, Step, next_commands

ROOMY = StructuralLimits(10_000, 10_000, 100_000)
ALL = 100_000
_TIMER_ENDS = (EventType.TIMER_FIRED, EventType.TIMER_CANCELLED)


@dataclass(frozen=True, slots=True)
class Sight:
    """All that the store holds of one run."""

    run: Run
    events: Sequence[RecordedEvent]
    waiting: Sequence[NewEvent]
    activities: Sequence[Activity]
    timers: Sequence[Timer]
    children: Sequence[ChildRun]
    live: Sequence[Task]
    updates: Sequence[Update]

    @property
    def deciding(self) -> Task | None:
        """Its live workflow task."""
        found = [task for task in self.live if task.kind is TaskKind.WORKFLOW]
        assert len(found) <= 1, "a run has at most one live workflow task"
        return found[0] if found else None


@dataclass(frozen=True, slots=True)
class World:
    sights: Sequence[Sight]
    letters: Sequence[OutboxMessage]

    @property
    def open(self) -> list[Sight]:
        return [sight for sight in self.sights if sight.run.is_open]


async def look(store: Store) -> World:
    """A snapshot of everything."""

    async def operation(tx: Tx) -> World:
        runs = await tx.runs.page(RunFilter("default", RunHost.WORKFLOW.value), None, ALL)
        found = [await tx.outbox.get(each) for each in await tx.outbox.waiting(ALL)]
        letters = [letter for letter in found if letter is not None]
        return World([await _sight(tx, run.run_id) for run in runs], letters)

    return await store.read(operation, long=True)


async def _sight(tx: Tx, run_id: RunId) -> Sight:
    run = await tx.runs.lock(run_id)
    assert run is not None
    return Sight(
        run,
        await tx.histories.page(run_id, 0, ALL),
        await tx.histories.buffered(run_id),
        await tx.activities.open_of(run_id),
        await tx.timers.open_of(run_id),
        await tx.children.all_of(run_id),
        await tx.tasks.lock_live_of(run_id),
        await tx.updates.all_of(run_id),
    )


def check(world: World) -> None:
    """Check every invariant of every run, and those between runs."""
    for sight in world.sights:
        check_run(sight)
    _only_the_newest_run_of_an_id_is_open(world)
    _a_parent_waits_for_a_child_that_runs_or_whose_message_is_in_flight(world)


def check_run(sight: Sight) -> None:
    _histories_are_dense(sight)
    _one_event_closes_a_run_and_is_its_last(sight)
    _a_timer_ends_once(sight)
    _markers_name_the_event_before_them(sight)
    _a_step_ends_once_and_never_after_it_was_cancelled(sight)
    _what_is_counted_is_what_is_there(sight)
    if not sight.run.is_open:
        _nothing_is_left_of_a_closed_run(sight)
        return
    if waits.parse(sight.run.waits).concurrent:
        _check_concurrent(sight)
        return
    history = History(sight.events)
    _events_wait_only_while_somebody_decides_or_is_to_look_first(sight)
    _a_winner_is_named_by_the_event_that_made_it_one(sight)
    _what_is_open_matches_the_history(sight, history)
    _what_is_waited_for_matches_the_history(sight, history)
    _no_run_sleeps_that_has_work(sight)


def _histories_are_dense(sight: Sight) -> None:
    assert [event.sequence for event in sight.events] == list(range(1, sight.run.last_sequence + 1))


def _one_event_closes_a_run_and_is_its_last(sight: Sight) -> None:
    types = [event.type for event in sight.events]
    endings = [kind for kind in types if kind in CLOSING]
    assert len(endings) == (0 if sight.run.is_open else 1)
    assert sight.run.is_open or types[-1] in CLOSING


def _a_timer_ends_once(sight: Sight) -> None:
    ends = Counter(
        json.loads(event.payload)["timer_id"] for event in sight.events if event.type in _TIMER_ENDS
    )
    assert set(ends.values()) <= {1}


def _what_is_counted_is_what_is_there(sight: Sight) -> None:
    run = sight.run
    assert run.open_activities == len(sight.activities)
    assert run.open_timers == len(sight.timers)
    assert run.open_children == sum(child.state is ChildState.OPEN for child in sight.children)
    assert run.open_updates == sum(each.status is UpdateStatus.ACCEPTED for each in sight.updates)
    assert run.buffered == len(sight.waiting)
    tasks = {task.task_id for task in sight.live if task.kind is TaskKind.ACTIVITY}
    assert tasks == {activity.task_id for activity in sight.activities}


def _nothing_is_left_of_a_closed_run(sight: Sight) -> None:
    assert sight.live == []
    assert (sight.run.waits, sight.run.owed, sight.run.blocked) == ("{}", 0, None)
    assert all(update.outcome for update in sight.updates)


def _events_wait_only_while_somebody_decides_or_is_to_look_first(sight: Sight) -> None:
    task = sight.deciding
    hushed = waits.parse(sight.run.waits).signals_deferred
    assert task is not None or not hushed, "signals wait for somebody who comes"
    assert not sight.waiting or hushed or (task is not None and task.state is TaskState.LEASED)


def _what_is_open_matches_the_history(sight: Sight, history: History) -> None:
    """Steps that are neither closed, nor closed by buffered events, nor cancelled."""
    over = {event.payload["sequence"] for event in sight.waiting if event.type in ENDED}
    pending = {
        number: step
        for number, step in history.steps.items()
        if step.ended is None and number not in over and not _is_cancelled(step, history)
    }
    kinds = {number: step.kind for number, step in pending.items()}
    timed = {
        number
        for number, step in pending.items()
        if step.kind == EventType.CONDITION_WAIT_OPENED and step.said["timeout_seconds"] is not None
    }
    assert {each.step for each in sight.activities} == _of(kinds, EventType.ACTIVITY_SCHEDULED)
    assert {each.step for each in sight.timers} == _of(kinds, EventType.TIMER_SCHEDULED) | timed
    open_children = {each.step for each in sight.children if each.state is ChildState.OPEN}
    assert open_children == _of(kinds, EventType.CHILD_WORKFLOW_SCHEDULED)


def _of(kinds: dict[int, str], kind: EventType) -> set[int]:
    return {number for number, each in kinds.items() if each == kind}


def _is_cancelled(step: Step, history: History) -> bool:
    outer = parallel_groups.outermost(step.said)
    if outer is None or not parallel_groups.is_selection(outer):
        return False
    return (parallel_groups.group_id(outer), outer["selection_member_index"]) in history.given_up


def _what_is_waited_for_matches_the_history(sight: Sight, history: History) -> None:
    kept = waits.parse(sight.run.waits)
    alone = [
        step
        for step in history.steps.values()
        if step.kind == EventType.CONDITION_WAIT_OPENED and not step.path and step.ended is None
    ]
    told = [step.said["condition_wait_id"] for step in alone]
    assert told == ([] if kept.condition is None else [kept.condition.id])
    if kept.condition is not None:
        heard = history.heard() > history.heard(alone[0].at)
        assert kept.condition.heard == heard
        fired = any(
            event.type == EventType.TIMER_FIRED
            and event.payload.get("timer_kind") == CONDITION_TIMEOUT
            and event.payload["condition_wait_id"] == kept.condition.id
            for event in sight.waiting
        )
        assert kept.condition.fired == fired
    assert dict(kept.groups) == _open_groups(history)
    _selections_match_the_history(kept, history)


def _a_winner_is_named_by_the_event_that_made_it_one(sight: Sight) -> None:
    """The first failure of a member, or else its last success: that is what replay takes for its end."""
    ends: dict[tuple[str, int], list[RecordedEvent]] = {}
    for event in sight.events:
        said = json.loads(event.payload)
        outer = parallel_groups.outermost(said)
        if event.type in ENDED and outer is not None and parallel_groups.is_selection(outer):
            ends.setdefault((parallel_groups.group_id(outer), outer["selection_member_index"]), []).append(
                event
            )
    for event in sight.events:
        if event.type == EventType.SELECTION_RESOLVED:
            said = json.loads(event.payload)
            told = ends[said["selection_group_id"], said["member_index"]]
            failed = [each for each in told if each.type not in SUCCEEDED]
            named = failed[0] if said["outcome"] == "failed" else told[-1]
            assert (said["resolution_event_id"], said["resolution_event_type"]) == (named.id, named.type)


def _open_groups(history: History) -> dict[str, int]:
    left: Counter[str] = Counter()
    for step in history.steps.values():
        outer = parallel_groups.outermost(step.said)
        if outer is not None and not parallel_groups.is_selection(outer) and step.ended is None:
            left[parallel_groups.group_id(outer)] += 1
    return dict(left)


def _selections_match_the_history(kept: Waits, history: History) -> None:
    left: dict[str, Counter[int]] = {}
    for step in history.steps.values():
        outer = parallel_groups.outermost(step.said)
        if outer is None or not parallel_groups.is_selection(outer):
            continue
        members = left.setdefault(parallel_groups.group_id(outer), Counter())
        members[outer["selection_member_index"]] += step.ended is None and not _is_cancelled(step, history)
    expected = {group_id: dict(members) for group_id, members in left.items() if any(members.values())}
    found = {
        each.id: {member.index: 0 if member.cancelled else member.left for member in each.members.values()}
        for each in kept.selections
    }
    assert found == expected
    for selection in kept.selections:
        assert selection.resolved == (selection.base in history.winners)


def _no_run_sleeps_that_has_work(sight: Sight) -> None:
    """A run without a workflow task is one whose code would produce no command: no wakeup was lost."""
    assert not sight.run.owed or (sight.deciding is not None and sight.deciding.update_id is not None)
    if sight.deciding is not None:
        return
    assert not sight.run.open_updates, "an update that was accepted is to be applied"
    commands = next_commands(sight.events)
    for command in commands:
        if isinstance(command, CancelSelectionOperation):
            told = [event.type for event in advance(sight.run, [command], ROOMY, 0).events]
            assert EventType.SELECTION_OPERATION_CANCELLED not in told, "somebody is to be cancelled"
    others = [each for each in commands if not isinstance(each, CancelSelectionOperation)]
    ids = tuple(RunId("nobody") for _ in others)
    step = advance(sight.run, others, ROOMY, 0, ids=ids)
    assert step.events == (), f"the code would go on: {others}"


# ── Concurrent runs ─────────────────────────────────────────────────────────────────────────────────────

_OPENS = (
    EventType.ACTIVITY_SCHEDULED,
    EventType.TIMER_SCHEDULED,
    EventType.CHILD_WORKFLOW_SCHEDULED,
    EventType.EXTERNAL_REQUEST_INITIATED,
)
_ANSWERS = (EventType.EXTERNAL_REQUEST_DELIVERED, EventType.EXTERNAL_REQUEST_FAILED)


def _markers_name_the_event_before_them(sight: Sight) -> None:
    """A completed workflow task has seen all events before it, and no others."""
    for event in sight.events:
        if event.type == EventType.WORKFLOW_TASK_COMPLETED:
            assert json.loads(event.payload) == {"seen_through": event.sequence - 1}


def _is_concurrent(sight: Sight) -> bool:
    return any(event.type == EventType.WORKFLOW_TASK_COMPLETED for event in sight.events)


def _a_step_ends_once_and_never_after_it_was_cancelled(sight: Sight) -> None:
    if not _is_concurrent(sight):
        return
    over: set[int] = set()
    given_up: set[int] = set()
    for event in sight.events:
        step = json.loads(event.payload).get("sequence")
        if event.type == EventType.STEP_CANCEL_REQUESTED:
            given_up.add(step)
        elif event.type in ENDED or event.type in _ANSWERS:
            closing = event.type == EventType.ACTIVITY_CANCELLED  # the run was closed over it
            assert step not in over
            assert step not in given_up or closing
            over.add(step)


def _check_concurrent(sight: Sight) -> None:
    kept, open_steps = waits.parse(sight.run.waits), _open_steps(sight)
    assert (kept.condition, dict(kept.groups), kept.selections) == (None, {}, ())
    assert not kept.signals_deferred
    assert {each.step for each in sight.activities} == open_steps[EventType.ACTIVITY_SCHEDULED]
    assert {each.step for each in sight.timers} == open_steps[EventType.TIMER_SCHEDULED]
    children = {each.step for each in sight.children if each.state is ChildState.OPEN}
    assert children == open_steps[EventType.CHILD_WORKFLOW_SCHEDULED]
    waiting = {event.payload["sequence"] for event in sight.waiting if event.type in _ANSWERS}
    assert set(kept.external) - waiting == open_steps[EventType.EXTERNAL_REQUEST_INITIATED]
    types = [*(event.type for event in sight.events), *(event.type for event in sight.waiting)]
    assert types.count(EventType.CANCEL_REQUESTED) == kept.cancelling
    task = sight.deciding
    assert task is None or task.update_id is None
    assert not sight.waiting or (task is not None and task.state is TaskState.LEASED)
    assert task is not None or not _has_unhandled_signal(sight), "what came last must be heard"


def _open_steps(sight: Sight) -> dict[str, set[int]]:
    """What is open by the history, including buffered events."""
    found: dict[str, set[int]] = {kind: set() for kind in _OPENS}
    for kind, said in [
        *((event.type, json.loads(event.payload)) for event in sight.events),
        *((event.type, event.payload) for event in sight.waiting),
    ]:
        if kind in _OPENS:
            found[kind].add(said["sequence"])
        elif kind in ENDED or kind in _ANSWERS or kind == EventType.STEP_CANCEL_REQUESTED:
            for steps in found.values():
                steps.discard(said["sequence"])
    return found


def _has_unhandled_signal(sight: Sight) -> bool:
    """Whether there are events after the last completed task that are not its own."""
    last = max(event.sequence for event in sight.events if event.type == EventType.WORKFLOW_TASK_COMPLETED)
    return any(
        event.type in WAKES_ALWAYS or event.type in ENDED
        for event in sight.events[last:]
        if event.task_id is None
    )


def _only_the_newest_run_of_an_id_is_open(world: World) -> None:
    runs: dict[str, list[Run]] = {}
    for sight in world.sights:
        runs.setdefault(sight.run.workflow_id, []).append(sight.run)
    for chain in runs.values():
        chain.sort(key=lambda run: run.run_number)
        assert [run.run_number for run in chain] == list(range(1, len(chain) + 1))
        assert not any(run.is_open for run in chain[:-1])


def _a_parent_waits_for_a_child_that_runs_or_whose_message_is_in_flight(world: World) -> None:
    running = {
        (origin.parent_run_id, origin.parent_step)
        for origin in (lineage.of(sight.run) for sight in world.open)
    }
    under_way = {
        (letter.run_id, json.loads(letter.payload)["step"])
        for letter in world.letters
        if letter.kind is OutboxKind.CHILD_ENDED
    }
    for sight in world.open:
        for child in sight.children:
            if child.state is ChildState.OPEN:
                assert ((sight.run.run_id, child.step) in running) != (
                    (sight.run.run_id, child.step) in under_way
                )
