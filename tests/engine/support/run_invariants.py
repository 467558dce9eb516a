"""Invariants of runs, checked against everything that a store holds of them."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from penstock.core.history import parallel_groups
from penstock.core.history.commands import CancelSelectionOperation
from penstock.core.history.decide import advance
from penstock.core.history.events import CLOSING, ENDED, SUCCEEDED, WAKES_ALWAYS, EventType
from penstock.core.history.payloads import CONDITION_TIMEOUT
from penstock.core.history.structural_limits import StructuralLimits
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
from penstock.core.waits import NO_WAITS, Waits
from penstock.ports.store import Store, Tx
from penstock.ports.tables.runs import RunFilter
from tests.engine.support.programs import History, Step, next_commands

ROOMY = StructuralLimits(10_000, 10_000, 100_000)
ALL = 100_000
_TIMER_ENDS = (EventType.TIMER_FIRED, EventType.TIMER_CANCELLED)


@dataclass(frozen=True, slots=True)
class RunSnapshot:
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
class StoreSnapshot:
    sights: Sequence[RunSnapshot]
    outbox: Sequence[OutboxMessage]

    @property
    def open(self) -> list[RunSnapshot]:
        return [snapshot for snapshot in self.sights if snapshot.run.is_open]


async def load(store: Store) -> StoreSnapshot:
    """A snapshot of everything."""

    async def operation(tx: Tx) -> StoreSnapshot:
        runs = await tx.runs.page(RunFilter("default", RunHost.WORKFLOW.value), None, ALL)
        found = [await tx.outbox.get(each) for each in await tx.outbox.waiting(ALL)]
        outbox = [message for message in found if message is not None]
        return StoreSnapshot([await _load_run(tx, run.run_id) for run in runs], outbox)

    return await store.read(operation, long=True)


async def _load_run(tx: Tx, run_id: RunId) -> RunSnapshot:
    run = await tx.runs.lock(run_id)
    assert run is not None
    return RunSnapshot(
        run,
        await tx.histories.page(run_id, 0, ALL),
        await tx.histories.buffered(run_id),
        await tx.activities.open_of(run_id),
        await tx.timers.open_of(run_id),
        await tx.children.all_of(run_id),
        await tx.tasks.lock_live_of(run_id),
        await tx.updates.all_of(run_id),
    )


def check(state: StoreSnapshot) -> None:
    """Check every invariant of every run, and those between runs."""
    for snapshot in state.sights:
        check_run(snapshot)
    _only_the_newest_run_of_an_id_is_open(state)
    _a_parent_waits_for_a_child_that_runs_or_whose_message_is_in_flight(state)


def check_run(snapshot: RunSnapshot) -> None:
    _histories_are_dense(snapshot)
    _one_event_closes_a_run_and_is_its_last(snapshot)
    _a_timer_ends_once(snapshot)
    _markers_name_the_event_before_them(snapshot)
    _a_step_ends_once_and_never_after_it_was_cancelled(snapshot)
    _what_is_counted_is_what_is_there(snapshot)
    if not snapshot.run.is_open:
        _nothing_is_left_of_a_closed_run(snapshot)
        return
    if snapshot.run.waits.concurrent:
        _check_concurrent(snapshot)
        return
    history = History(snapshot.events)
    _events_wait_only_while_somebody_decides_or_is_to_look_first(snapshot)
    _a_winner_is_named_by_the_event_that_made_it_one(snapshot)
    _what_is_open_matches_the_history(snapshot, history)
    _what_is_waited_for_matches_the_history(snapshot, history)
    _no_run_sleeps_that_has_work(snapshot)


def _histories_are_dense(snapshot: RunSnapshot) -> None:
    assert [event.sequence for event in snapshot.events] == list(range(1, snapshot.run.last_sequence + 1))


def _one_event_closes_a_run_and_is_its_last(snapshot: RunSnapshot) -> None:
    types = [event.type for event in snapshot.events]
    endings = [kind for kind in types if kind in CLOSING]
    assert len(endings) == (0 if snapshot.run.is_open else 1)
    assert snapshot.run.is_open or types[-1] in CLOSING


def _a_timer_ends_once(snapshot: RunSnapshot) -> None:
    ends = Counter(
        json.loads(event.payload)["timer_id"] for event in snapshot.events if event.type in _TIMER_ENDS
    )
    assert set(ends.values()) <= {1}


def _what_is_counted_is_what_is_there(snapshot: RunSnapshot) -> None:
    run = snapshot.run
    assert run.open_activities == len(snapshot.activities)
    assert run.open_timers == len(snapshot.timers)
    assert run.open_children == sum(child.state is ChildState.OPEN for child in snapshot.children)
    assert run.open_updates == sum(each.status is UpdateStatus.ACCEPTED for each in snapshot.updates)
    assert run.buffered == len(snapshot.waiting)
    tasks = {task.task_id for task in snapshot.live if task.kind is TaskKind.ACTIVITY}
    assert tasks == {activity.task_id for activity in snapshot.activities}


def _nothing_is_left_of_a_closed_run(snapshot: RunSnapshot) -> None:
    assert snapshot.live == []
    assert (snapshot.run.waits, snapshot.run.owed, snapshot.run.blocked) == (NO_WAITS, 0, None)
    assert all(update.outcome for update in snapshot.updates)


def _events_wait_only_while_somebody_decides_or_is_to_look_first(snapshot: RunSnapshot) -> None:
    task = snapshot.deciding
    hushed = snapshot.run.waits.signals_deferred
    assert task is not None or not hushed, "deferred signals have a task that will process them"
    assert not snapshot.waiting or hushed or (task is not None and task.state is TaskState.LEASED)


def _what_is_open_matches_the_history(snapshot: RunSnapshot, history: History) -> None:
    """Steps that are neither closed, nor closed by buffered events, nor cancelled."""
    over = {event.payload["sequence"] for event in snapshot.waiting if event.type in ENDED}
    pending = {
        number: step
        for number, step in history.steps.items()
        if step.ended is None and number not in over and not _is_cancelled(step, history)
    }
    kinds = {number: step.kind for number, step in pending.items()}
    timed = {
        number
        for number, step in pending.items()
        if step.kind == EventType.CONDITION_WAIT_OPENED and step.payload["timeout_seconds"] is not None
    }
    assert {each.step for each in snapshot.activities} == _of(kinds, EventType.ACTIVITY_SCHEDULED)
    assert {each.step for each in snapshot.timers} == _of(kinds, EventType.TIMER_SCHEDULED) | timed
    open_children = {each.step for each in snapshot.children if each.state is ChildState.OPEN}
    assert open_children == _of(kinds, EventType.CHILD_WORKFLOW_SCHEDULED)


def _of(kinds: dict[int, str], kind: EventType) -> set[int]:
    return {number for number, each in kinds.items() if each == kind}


def _is_cancelled(step: Step, history: History) -> bool:
    outer = parallel_groups.outermost(step.payload)
    if outer is None or not parallel_groups.is_selection(outer):
        return False
    return (parallel_groups.group_id(outer), outer["selection_member_index"]) in history.cancelled_members


def _what_is_waited_for_matches_the_history(snapshot: RunSnapshot, history: History) -> None:
    kept = snapshot.run.waits
    alone = [
        step
        for step in history.steps.values()
        if step.kind == EventType.CONDITION_WAIT_OPENED and not step.path and step.ended is None
    ]
    reported = [step.payload["condition_wait_id"] for step in alone]
    assert reported == ([] if kept.condition is None else [kept.condition.id])
    if kept.condition is not None:
        received = history.received() > history.received(alone[0].at)
        assert kept.condition.heard == received
        fired = any(
            event.type == EventType.TIMER_FIRED
            and event.payload.get("timer_kind") == CONDITION_TIMEOUT
            and event.payload["condition_wait_id"] == kept.condition.id
            for event in snapshot.waiting
        )
        assert kept.condition.fired == fired
    assert dict(kept.groups) == _open_groups(history)
    _selections_match_the_history(kept, history)


def _a_winner_is_named_by_the_event_that_made_it_one(snapshot: RunSnapshot) -> None:
    """The first failure of a member, or else its last success: that is what replay takes for its end."""
    ends: dict[tuple[str, int], list[RecordedEvent]] = {}
    for event in snapshot.events:
        payload = json.loads(event.payload)
        outer = parallel_groups.outermost(payload)
        if event.type in ENDED and outer is not None and parallel_groups.is_selection(outer):
            ends.setdefault((parallel_groups.group_id(outer), outer["selection_member_index"]), []).append(
                event
            )
    for event in snapshot.events:
        if event.type == EventType.SELECTION_RESOLVED:
            payload = json.loads(event.payload)
            reported = ends[payload["selection_group_id"], payload["member_index"]]
            failed = [each for each in reported if each.type not in SUCCEEDED]
            named = failed[0] if payload["outcome"] == "failed" else reported[-1]
            assert (payload["resolution_event_id"], payload["resolution_event_type"]) == (
                named.id,
                named.type,
            )


def _open_groups(history: History) -> dict[str, int]:
    left: Counter[str] = Counter()
    for step in history.steps.values():
        outer = parallel_groups.outermost(step.payload)
        if outer is not None and not parallel_groups.is_selection(outer) and step.ended is None:
            left[parallel_groups.group_id(outer)] += 1
    return dict(left)


def _selections_match_the_history(kept: Waits, history: History) -> None:
    left: dict[str, Counter[int]] = {}
    for step in history.steps.values():
        outer = parallel_groups.outermost(step.payload)
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


def _no_run_sleeps_that_has_work(snapshot: RunSnapshot) -> None:
    """A run without a workflow task is one whose code would produce no command: no wakeup was lost."""
    assert not snapshot.run.owed or (
        snapshot.deciding is not None and snapshot.deciding.update_id is not None
    )
    if snapshot.deciding is not None:
        return
    assert not snapshot.run.open_updates, "an update that was accepted is to be applied"
    commands = next_commands(snapshot.events)
    for command in commands:
        if isinstance(command, CancelSelectionOperation):
            reported = [event.type for event in advance(snapshot.run, [command], ROOMY, 0).events]
            assert EventType.SELECTION_OPERATION_CANCELLED not in reported, "a member must still be cancelled"
    others = [each for each in commands if not isinstance(each, CancelSelectionOperation)]
    ids = tuple(RunId("nobody") for _ in others)
    step = advance(snapshot.run, others, ROOMY, 0, ids=ids)
    assert step.events == (), f"the code would go on: {others}"


# ── Concurrent runs ─────────────────────────────────────────────────────────────────────────────────────

_OPENS = (
    EventType.ACTIVITY_SCHEDULED,
    EventType.TIMER_SCHEDULED,
    EventType.CHILD_WORKFLOW_SCHEDULED,
    EventType.EXTERNAL_REQUEST_INITIATED,
)
_ANSWERS = (EventType.EXTERNAL_REQUEST_DELIVERED, EventType.EXTERNAL_REQUEST_FAILED)


def _markers_name_the_event_before_them(snapshot: RunSnapshot) -> None:
    """A completed workflow task has seen all events before it, and no others."""
    for event in snapshot.events:
        if event.type == EventType.WORKFLOW_TASK_COMPLETED:
            assert json.loads(event.payload) == {"seen_through": event.sequence - 1}


def _is_concurrent(snapshot: RunSnapshot) -> bool:
    return any(event.type == EventType.WORKFLOW_TASK_COMPLETED for event in snapshot.events)


def _a_step_ends_once_and_never_after_it_was_cancelled(snapshot: RunSnapshot) -> None:
    if not _is_concurrent(snapshot):
        return
    over: set[int] = set()
    cancelled_members: set[int] = set()
    for event in snapshot.events:
        step = json.loads(event.payload).get("sequence")
        if event.type == EventType.STEP_CANCEL_REQUESTED:
            cancelled_members.add(step)
        elif event.type in ENDED or event.type in _ANSWERS:
            closing = event.type == EventType.ACTIVITY_CANCELLED  # the run was closed over it
            assert step not in over
            assert step not in cancelled_members or closing
            over.add(step)


def _check_concurrent(snapshot: RunSnapshot) -> None:
    kept, open_steps = snapshot.run.waits, _open_steps(snapshot)
    assert (kept.condition, dict(kept.groups), kept.selections) == (None, {}, ())
    assert not kept.signals_deferred
    assert {each.step for each in snapshot.activities} == open_steps[EventType.ACTIVITY_SCHEDULED]
    assert {each.step for each in snapshot.timers} == open_steps[EventType.TIMER_SCHEDULED]
    children = {each.step for each in snapshot.children if each.state is ChildState.OPEN}
    assert children == open_steps[EventType.CHILD_WORKFLOW_SCHEDULED]
    waiting = {event.payload["sequence"] for event in snapshot.waiting if event.type in _ANSWERS}
    assert set(kept.external) - waiting == open_steps[EventType.EXTERNAL_REQUEST_INITIATED]
    types = [*(event.type for event in snapshot.events), *(event.type for event in snapshot.waiting)]
    assert types.count(EventType.CANCEL_REQUESTED) == kept.cancelling
    task = snapshot.deciding
    assert task is None or task.update_id is None
    assert not snapshot.waiting or (task is not None and task.state is TaskState.LEASED)
    assert task is not None or not _has_unhandled_signal(snapshot), "the last event must be processed"


def _open_steps(snapshot: RunSnapshot) -> dict[str, set[int]]:
    """What is open by the history, including buffered events."""
    found: dict[str, set[int]] = {kind: set() for kind in _OPENS}
    for kind, payload in [
        *((event.type, json.loads(event.payload)) for event in snapshot.events),
        *((event.type, event.payload) for event in snapshot.waiting),
    ]:
        if kind in _OPENS:
            found[kind].add(payload["sequence"])
        elif kind in ENDED or kind in _ANSWERS or kind == EventType.STEP_CANCEL_REQUESTED:
            for steps in found.values():
                steps.discard(payload["sequence"])
    return found


def _has_unhandled_signal(snapshot: RunSnapshot) -> bool:
    """Whether there are events after the last completed task that are not its own."""
    last = max(event.sequence for event in snapshot.events if event.type == EventType.WORKFLOW_TASK_COMPLETED)
    return any(
        event.type in WAKES_ALWAYS or event.type in ENDED
        for event in snapshot.events[last:]
        if event.task_id is None
    )


def _only_the_newest_run_of_an_id_is_open(state: StoreSnapshot) -> None:
    runs: dict[str, list[Run]] = {}
    for snapshot in state.sights:
        runs.setdefault(snapshot.run.workflow_id, []).append(snapshot.run)
    for chain in runs.values():
        chain.sort(key=lambda run: run.run_number)
        assert [run.run_number for run in chain] == list(range(1, len(chain) + 1))
        assert not any(run.is_open for run in chain[:-1])


def _a_parent_waits_for_a_child_that_runs_or_whose_message_is_in_flight(state: StoreSnapshot) -> None:
    running = {
        (origin.parent_run_id, origin.parent_step)
        for origin in (snapshot.run.lineage for snapshot in state.open)
    }
    under_way = {
        (message.run_id, json.loads(message.payload)["step"])
        for message in state.outbox
        if message.kind is OutboxKind.CHILD_ENDED
    }
    for snapshot in state.open:
        for child in snapshot.children:
            if child.state is ChildState.OPEN:
                assert ((snapshot.run.run_id, child.step) in running) != (
                    (snapshot.run.run_id, child.step) in under_way
                )
