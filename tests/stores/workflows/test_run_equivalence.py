"""All stores keep the same messages, signals and updates of runs as a model."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from penstock.core.history.events import EventType
from penstock.core.model import (
    ChildState,
    ClosePolicy,
    Instance,
    Lineage,
    OutboxKind,
    ReplayBlock,
    Run,
    RunId,
    RunStatus,
    UpdateStatus,
)
from penstock.core.waits import NEW_RUN, NO_WAITS, Waits
from penstock.ports.store import Store, Tx
from tests.stores.store_operations import look
from tests.support.builders import (
    NOW_MS,
    a_child,
    a_letter,
    a_request,
    a_run,
    an_event,
    an_event_in_waiting,
    an_update,
)
from tests.support.run_model import RunModel

WORKFLOWS = ("a", "B", "ä", "order-1", "order-10")
QUEUES = ("orders", "refunds")
TEXTS = ("{}", '{"ü":1}', '{"note":"\\n"}')
WAITS = (NO_WAITS, NEW_RUN, Waits(concurrent=True, cached=("w1", 3, 500)))
STEPS = 150

Move = Callable[[Tx], Awaitable[RunId | None]]
"""What happens, and to which run; None: to no run."""
View = Mapping[str, Any]


class Correspondence:
    """Runs a random program of workflow runs from a seed: children, signals, updates and ends."""

    def __init__(self, store: Store, seed: int) -> None:
        self._store = store
        self._dice = random.Random(seed)
        self._runs: list[RunId] = []
        self._numbers = 0
        self.played: Counter[str] = Counter()

    async def step(self) -> View:
        """Make one step, and return all that is visible of the run concerned."""
        moves: Sequence[Move] = (
            self._start,
            self._start_child,
            self._go_on,
            self._go_on,
            self._describe,
            self._block,
            self._tell,
            self._tell,
            self._update,
            self._update,
            self._answer,
            self._end,
            self._end,
            self._deliver,
            self._deliver,
        )
        move = self._dice.choice(moves)
        about = await self._store.transact(move, key="move")
        if about is not None:
            self.played[move.__name__] += 1
        return await look(self._store, lambda tx: _view(tx, about))

    # what may happen

    async def _start(self, tx: Tx) -> RunId | None:
        return await self._begin(tx, self._dice.choice(WORKFLOWS))

    async def _start_child(self, tx: Tx) -> RunId | None:
        parent = await self._open_run(tx)
        policy = self._dice.choice(list(ClosePolicy))
        if parent is None:
            return None
        step = parent.last_step + 1
        workflow_id = f"{parent.workflow_id}-{step}"
        run_id = await self._begin(tx, workflow_id, lineage=Lineage(parent_run_id=parent.run_id))
        if run_id is None:
            return None
        child = a_child(parent.run_id, step, workflow_id=workflow_id, run_id=run_id, policy=policy)
        tx.children.insert(child)
        tx.histories.append([an_event(parent.run_id, parent.last_sequence + 1, "ChildWorkflowScheduled")])
        tx.runs.save(
            replace(
                parent,
                last_step=step,
                last_sequence=parent.last_sequence + 1,
                open_children=parent.open_children + 1,
            )
        )
        return parent.run_id

    async def _go_on(self, tx: Tx) -> RunId | None:
        """Append what was buffered, and some more."""
        run, more, waits = await self._open_run(tx), self._dice.randint(1, 4), self._dice.choice(WAITS)
        if run is None:
            return None
        types = [event.type for event in await tx.histories.buffered(run.run_id)] + ["TimerFired"] * more
        tx.histories.append(
            [an_event(run.run_id, run.last_sequence + n, each) for n, each in enumerate(types, 1)]
        )
        tx.histories.clear_buffer(run.run_id)
        last = run.last_sequence + len(types)
        tx.runs.save(
            replace(run, last_sequence=last, unseen_signals=0, buffered=0, blocked=None, waits=waits)
        )
        return run.run_id

    async def _describe(self, tx: Tx) -> RunId | None:
        run, memo, attributes = (
            await self._open_run(tx),
            self._dice.choice(TEXTS),
            self._dice.choice(TEXTS),
        )
        if run is None:
            return None
        tx.runs.save_attributes(replace(run, memo=memo, search_attributes=attributes))
        return run.run_id

    async def _block(self, tx: Tx) -> RunId | None:
        run = await self._open_run(tx)
        if run is None:
            return None
        tx.runs.save(replace(run, blocked=ReplayBlock(sequence=run.last_sequence), memo="not saved here"))
        return run.run_id

    async def _tell(self, tx: Tx) -> RunId | None:
        """Signal a run; a repeated request has no effect."""
        run, request_id = await self._open_run(tx), f"request-{self._dice.randint(1, 9)}"
        if run is None or await tx.requests.get("default", run.workflow_id, "signal", request_id) is not None:
            return None
        number = run.last_request + 1
        tx.requests.insert(
            a_request(request_id, workflow_id=run.workflow_id, run_id=run.run_id, number=number)
        )
        tx.histories.buffer(run.run_id, number, an_event_in_waiting(name=request_id))
        tx.runs.save(
            replace(
                run, last_request=number, unseen_signals=run.unseen_signals + 1, buffered=run.buffered + 1
            )
        )
        return run.run_id

    async def _update(self, tx: Tx) -> RunId | None:
        run = await self._open_run(tx)
        if run is None:
            return None
        number = run.last_request + 1
        tx.updates.insert(
            an_update(f"{run.run_id}-u{number}", run.run_id, number=number, workflow_id=run.workflow_id)
        )
        tx.runs.save(replace(run, last_request=number, open_updates=run.open_updates + 1, owed=1))
        return run.run_id

    async def _answer(self, tx: Tx) -> RunId | None:
        run, status = (
            await self._open_run(tx),
            self._dice.choice((UpdateStatus.COMPLETED, UpdateStatus.FAILED)),
        )
        update = None if run is None else await tx.updates.next_accepted(run.run_id)
        if run is None or update is None:
            return None
        tx.updates.save(replace(update, status=status, outcome="{}", closed_at_ms=NOW_MS + run.last_sequence))
        tx.runs.save(replace(run, open_updates=run.open_updates - 1, owed=0))
        return run.run_id

    async def _end(self, tx: Tx) -> RunId | None:
        """Close a run; it continues as new, or its parent is notified."""
        run, goes_on = await self._open_run(tx), self._dice.random() < 0.5
        if run is None or self._dice.random() < 0.5:
            return None
        end = EventType.WORKFLOW_COMPLETED
        tx.histories.append([an_event(run.run_id, run.last_sequence + 1, end)])
        tx.histories.clear_buffer(run.run_id)
        closed = replace(
            run, status=RunStatus.COMPLETED, closed_at_ms=NOW_MS, last_sequence=run.last_sequence + 1
        )
        tx.runs.save(replace(closed, blocked=None, buffered=0, closed_reason="completed"))
        self._numbers += 1
        tx.outbox.insert(
            a_letter(
                f"letter-{self._numbers}",
                workflow_id=run.workflow_id,
                run_id=run.run_id,
                kind=OutboxKind.CHILD_ENDED,
                created_at_ms=NOW_MS + self._dice.randint(0, 3),
            )
        )
        if goes_on:
            await self._succeed(tx, run)
        return run.run_id

    async def _succeed(self, tx: Tx, run: Run) -> None:
        """Continue a run as new; the new run takes over its updates."""
        following, updates = self._new_id(), await tx.updates.accepted_of(run.run_id)
        count = run.run_number + 1
        tx.runs.succeed(Instance("default", run.workflow_id, following, count))
        tx.runs.insert(
            a_run(
                following,
                workflow_id=run.workflow_id,
                run_number=count,
                lineage=run.lineage,
                last_request=run.last_request,
                open_updates=len(updates),
            )
        )
        for update in updates:
            tx.updates.save(replace(update, run_id=following))

    async def _deliver(self, tx: Tx) -> RunId | None:
        """Deliver the oldest outbox message to the parent of its sender."""
        for message_id in await tx.outbox.waiting(1):
            letter = await tx.outbox.get(message_id)
            assert letter is not None
            tx.outbox.delete(message_id)
            told = RunId(letter.run_id)
            for run in await tx.runs.get_many(self._runs):
                for child in [] if run is None else await tx.children.open_of(run.run_id):
                    if child.run_id == letter.run_id:
                        state = self._dice.choice((ChildState.CLOSED, ChildState.CANCELLED))
                        tx.children.save(replace(child, state=state))
                        told = child.parent_run_id
            return told
        return None

    # who it is about

    async def _begin(self, tx: Tx, workflow_id: str, **changes: Any) -> RunId | None:
        run_id, queue = self._new_id(), self._dice.choice(QUEUES)
        standing = await tx.runs.reserve(Instance("default", workflow_id, run_id, 1))
        if standing.run_id != run_id:
            return None
        tx.runs.insert(a_run(run_id, workflow_id=workflow_id, task_queue=queue, last_sequence=1, **changes))
        tx.histories.append([an_event(run_id, 1, EventType.WORKFLOW_STARTED)])
        return run_id

    def _new_id(self) -> RunId:
        self._runs.append(RunId(f"r{len(self._runs) + 1}"))
        return self._runs[-1]

    async def _open_run(self, tx: Tx) -> Run | None:
        candidates = [run for run in await tx.runs.get_many(self._runs) if run is not None and run.is_open]
        return self._dice.choice(candidates) if candidates else None


async def _view(tx: Tx, about: RunId | None) -> View:
    letters = await tx.outbox.waiting(7)
    seen: dict[str, Any] = {
        "letters": [await tx.outbox.get(message_id) for message_id in letters],
        "blocked": [await tx.runs.blocked("default", queue, 3) for queue in QUEUES],
    }
    run = None if about is None else await tx.runs.get(about)
    if run is not None:
        seen |= await _view_of(tx, run)
    return seen


async def _view_of(tx: Tx, run: Run) -> View:
    run_id = run.run_id
    return {
        "run": run,
        "instance": await tx.runs.instance("default", run.workflow_id),
        "runs": await tx.runs.of_instance("default", run.workflow_id, None, 100),
        "history": await tx.histories.page(run_id, 0, 1_000),
        "history back": await tx.histories.page_back(run_id, run.last_sequence + 1, 5),
        "buffered": await tx.histories.buffered(run_id),
        "children": await tx.children.all_of(run_id),
        "open children": await tx.children.open_of(run_id),
        "child": await tx.children.get(run_id, run.last_step),
        "updates": await tx.updates.all_of(run_id),
        "accepted": await tx.updates.accepted_of(run_id),
        "next": await tx.updates.next_accepted(run_id),
        "requests": await tx.requests.all_of(run_id),
    }


@pytest.mark.parametrize("seed", range(6))
async def test_the_same_moves_leave_the_same_runs_as_in_the_model_after_every_step(store: Store, seed: int):
    model, candidate = Correspondence(RunModel.store(), seed), Correspondence(store, seed)
    for number in range(STEPS):
        expected, seen = await model.step(), await candidate.step()
        for what, value in expected.items():
            assert seen[what] == value, f"{what} after step {number}"
        assert seen.keys() == expected.keys()
    assert candidate.played == model.played
    assert len(model.played) == 10, "every kind of move was made"
