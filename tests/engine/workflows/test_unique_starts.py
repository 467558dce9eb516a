"""Starts with a unique key: one run holds it, the others join it, are refused, or give it their input."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from penstock.core.history.commands import Command, ContinueAsNew
from penstock.core.id_policies import IdConflictPolicy, IdReusePolicy
from penstock.core.model import ActivityTimeouts, Blob, Run, RunHost, RunId, TaskState
from penstock.core.starts.unique_starts import Debounce, UniqueConflictPolicy, UniqueStart, UniqueUntil
from penstock.engine.operations import run_deletion
from penstock.engine.runs.address import Address
from penstock.engine.visibility import explanations
from penstock.engine.workflows import run_close, run_pause, starts
from penstock.engine.workflows.run_close import EndMode
from penstock.engine.workflows.starts import STANDALONE_TYPE, StartOutcome, StartResult
from penstock.errors import Conflict, PenstockError, Reason
from penstock.ports.tables.runs import RunFilter, UniqueKeyName
from tests.engine.support import direct
from tests.engine.support.scene import (
    ACTIVITY,
    DONE,
    NOTHING,
    WORKFLOW,
    Scene,
    a_scene,
    a_start,
    charge,
)

DECISIONS: Sequence[Sequence[Command]] = ([DONE], [ContinueAsNew(NOTHING)])
FIRST, LATER, LAST = Blob("AQ=="), Blob("Ag=="), Blob("Aw==")
STARTED = UniqueStart("k", UniqueUntil.STARTED)
DEBOUNCED = UniqueStart("k", UniqueUntil.STARTED, debounce=Debounce(1_000, 2_500))


async def start(scene: Scene, workflow_id: str | None = None, **changes: Any) -> StartResult:
    request = a_start(workflow_id, **{"unique": UniqueStart("k")} | changes)
    return await starts.start_workflow(scene.ctx, request)


async def debounced(scene: Scene, value: Blob = NOTHING, **changes: Any) -> StartResult:
    assert DEBOUNCED.debounce is not None
    return await start(scene, unique=DEBOUNCED, delay_ms=DEBOUNCED.debounce.delay_ms, input=value, **changes)


async def test_a_second_start_returns_the_run_that_holds_the_key(scene: Scene):
    first, second = await start(scene, "a"), await start(scene, "b")
    assert second.outcome is StartOutcome.RETURNED_EXISTING_ACTIVE
    assert second.run == first.run
    assert await scene.read(lambda tx: tx.runs.instance("default", "b")) is None
    await scene.decide(DONE)
    assert (await start(scene, "b")).outcome is StartOutcome.STARTED_NEW


async def test_a_start_that_must_be_alone_is_refused_and_leaves_its_id_free(scene: Scene):
    holder = (await start(scene, "a")).run
    alone = UniqueStart("k", conflict=UniqueConflictPolicy.FAIL)
    with pytest.raises(Conflict) as refused:
        await start(scene, "b", unique=alone)
    assert refused.value.reason is Reason.UNIQUE_KEY_HELD
    assert refused.value.details["run_id"] == holder.run_id
    assert (await start(scene, "b", unique=None)).outcome is StartOutcome.STARTED_NEW


async def test_a_key_is_unique_among_the_starts_of_a_type(scene: Scene):
    await start(scene, "a")
    assert (await start(scene, "b", workflow_type="Other")).outcome is StartOutcome.STARTED_NEW
    request = a_start("c", workflow_type=STANDALONE_TYPE, unique=UniqueStart("k"))
    alone = await direct.start_activity(scene.ctx, request, charge(activity_type="Order"))
    assert alone.outcome is StartOutcome.STARTED_NEW
    again = await direct.start_activity(
        scene.ctx,
        a_start("d", workflow_type=STANDALONE_TYPE, unique=UniqueStart("k")),
        charge(activity_type="Order"),
    )
    assert (again.run.run_id, again.activity) == (alone.run.run_id, alone.activity)


async def test_a_key_that_is_held_until_the_start_is_free_once_a_worker_has_the_task(scene: Scene):
    first = await start(scene, "a", unique=STARTED)
    assert (await start(scene, "b", unique=STARTED)).run == first.run
    await scene.take(WORKFLOW)
    second = await start(scene, "b", unique=STARTED)
    assert second.outcome is StartOutcome.STARTED_NEW
    assert (await start(scene, "c", unique=STARTED)).run == second.run


async def test_a_chain_holds_the_key_until_its_last_run_is_done(scene: Scene):
    await start(scene, "a")
    await scene.decide(ContinueAsNew(NOTHING))
    held = await start(scene, "b")
    assert held.outcome is StartOutcome.RETURNED_EXISTING_ACTIVE
    assert held.run.run_number == 2
    await scene.decide(DONE)
    assert (await start(scene, "b")).outcome is StartOutcome.STARTED_NEW


async def test_a_start_that_terminates_the_holder_of_its_own_id_takes_the_key(scene: Scene):
    first = (await start(scene, "a")).run
    policies = {
        "id_reuse_policy": IdReusePolicy.ALLOW_DUPLICATE,
        "id_conflict_policy": IdConflictPolicy.TERMINATE_EXISTING,
    }
    second = await start(scene, "a", **policies)
    assert second.outcome is StartOutcome.STARTED_NEW
    assert not scene.run(first.run_id).is_open
    assert (await start(scene, "b")).run.run_id == second.run.run_id


async def test_a_start_sent_again_gets_the_same_answer_though_the_holder_is_done(scene: Scene):
    first = (await start(scene, "a")).run
    before = await start(scene, "b", start_key="request-1")
    await scene.decide(DONE)
    again = await start(scene, "b", start_key="request-1")
    assert (again.run.run_id, again.outcome, again.deduplicated) == (first.run_id, before.outcome, True)
    assert (await start(scene, "b", start_key="request-2")).outcome is StartOutcome.STARTED_NEW


async def test_a_deleted_run_leaves_no_key(scene: Scene):
    run = (await start(scene, "a")).run
    await scene.decide(DONE)
    await run_deletion.delete_run(scene.ctx, "default", "a", run.run_id, None)
    name = UniqueKeyName("default", "workflow/Order", "k")
    assert await scene.read(lambda tx: tx.unique_keys.get(name)) is None


class TestDebounce:
    async def test_the_latest_input_wins_and_the_wait_begins_anew(self, scene: Scene):
        first = await debounced(scene, FIRST, run_timeout_s=60)
        await scene.advance(600)
        second = await debounced(scene, LATER)
        assert (second.outcome, second.run.run_id) == (StartOutcome.DEBOUNCED, first.run.run_id)
        await scene.advance(600)
        assert await scene.claim(WORKFLOW) is None
        await scene.advance(400)
        leased = await scene.take(WORKFLOW)
        assert leased.task.run_id == first.run.run_id
        run = scene.run(first.run.run_id)
        assert run.input == LATER
        assert run.deadline_at_ms == first.run.started_at_ms + 600 + 1_000 + 60_000

    async def test_it_begins_after_the_longest_delay_however_many_starts_come(self, scene: Scene):
        first = (await debounced(scene)).run
        for _ in range(3):
            await scene.advance(800)
            last = await debounced(scene, LAST)
        await scene.advance(100)
        assert (await scene.take(WORKFLOW)).task.run_id == first.run_id == last.run.run_id
        assert scene.run(first.run_id).input == LAST

    async def test_a_run_that_is_due_takes_the_input_and_is_not_delayed_again(self, scene: Scene):
        first = (await debounced(scene)).run
        await scene.advance(1_000)
        assert (await debounced(scene, LATER)).outcome is StartOutcome.DEBOUNCED
        assert [task.state for task in scene.live(first.run_id)] == [TaskState.READY]
        assert scene.run(first.run_id).input == LATER

    async def test_a_start_that_comes_while_the_run_works_begins_another(self, scene: Scene):
        first = (await debounced(scene, FIRST)).run
        await scene.advance(1_000)
        await scene.take(WORKFLOW)
        second = await debounced(scene, LATER)
        assert second.outcome is StartOutcome.STARTED_NEW
        assert scene.run(first.run_id).input == FIRST

    async def test_a_paused_run_takes_the_input_and_goes_on_when_it_is_due(self, scene: Scene):
        first = (await debounced(scene, workflow_id="a")).run
        await run_pause.pause(scene.ctx, Address("default", "a"), None)
        await scene.advance(500)
        assert (await debounced(scene, LATER)).run.run_id == first.run_id
        await run_pause.resume(scene.ctx, Address("default", "a"), None)
        await scene.advance(999)
        assert await scene.claim(WORKFLOW) is None
        await scene.advance(1)
        await scene.take(WORKFLOW)
        assert scene.run(first.run_id).input == LATER

    async def test_a_standalone_activity_gets_the_latest_arguments_and_its_timeouts_count_from_then(
        self, scene: Scene
    ):
        command = charge(schedule_to_close_ms=5_000)

        async def send(value: Blob) -> StartResult:
            request = a_start(None, workflow_type=STANDALONE_TYPE, unique=DEBOUNCED, input=value)
            sent = replace(command, arguments=value, delay_ms=1_000)
            return await direct.start_activity(scene.ctx, request, sent)

        first = await send(FIRST)
        await scene.advance(600)
        second = await send(LATER)
        assert (second.outcome, second.run.run_id) == (StartOutcome.DEBOUNCED, first.run.run_id)
        await scene.advance(1_000)
        leased = await scene.take(ACTIVITY)
        activity = scene.activity(leased)
        assert activity.arguments == LATER
        assert activity.timeouts == ActivityTimeouts(schedule_to_close_ms=5_000)
        assert activity.deadline_at_ms == first.run.started_at_ms + 600 + 1_000 + 5_000

    async def test_why_says_how_many_starts_it_stands_for_and_when_it_begins(self, scene: Scene):
        await debounced(scene, workflow_id="a")
        await debounced(scene, LATER)
        found = await explanations.workflow(scene.ctx, "default", "a")
        assert "2 starts of the unique key k" in found.explanation.sentence
        assert found.explanation.binding is not None
        assert found.explanation.binding.kind == "debounced"


async def all_runs(scene: Scene) -> list[Run]:
    return [*await scene.read(lambda tx: tx.runs.page(RunFilter("default", RunHost.WORKFLOW), None, 10_000))]


def holds(scene: Scene, run: Run) -> bool:
    """Whether a run holds its key by what the store says of its tasks, as an observer would judge."""
    if not run.is_open or run.lineage.unique_until is None:
        return False
    if run.lineage.unique_until == UniqueUntil.DONE:
        return True
    tasks = scene.live(run.run_id)
    return run.lineage.continued_from is None and [each.attempt for each in tasks] == [0]


class Program:
    """Random starts, tasks and ends, with what workers got and what starts sent last."""

    def __init__(self, scene: Scene, chance: random.Random) -> None:
        self._scene, self._chance = scene, chance
        self.taken: dict[RunId, Blob] = {}
        self.latest: dict[RunId, Blob] = {}
        self._number = 0

    def _value(self) -> Blob:
        self._number += 1
        return Blob(f"input-{self._number}")

    async def start(self) -> None:
        await start(
            self._scene,
            self._chance.choice(["a", "b", None]),
            unique=UniqueStart("done", conflict=self._chance.choice([*UniqueConflictPolicy])),
            id_reuse_policy=IdReusePolicy.ALLOW_DUPLICATE,
            id_conflict_policy=self._chance.choice([*IdConflictPolicy]),
            input=self._value(),
        )

    async def debounced(self) -> None:
        value = self._value()
        sent = await debounced(self._scene, value)
        self.latest[sent.run.run_id] = value

    async def take(self) -> None:
        leased = await self._scene.claim(WORKFLOW)
        if leased is not None:
            self.taken[leased.task.run_id] = self._scene.run(leased.task.run_id).input
            if self._chance.random() < 0.6:
                await self._scene.complete(leased, *self._chance.choice(DECISIONS))

    async def end(self) -> None:
        await run_close.end_run(self._scene.ctx, "default", "a", EndMode.TERMINATE, None)

    async def time(self) -> None:
        await self._scene.advance(self._chance.choice([300, 1_000, 3_000]))


@settings(max_examples=10, deadline=None)
@given(seed=st.integers(0, 2**32))
async def test_no_key_has_two_holders_and_no_debounced_input_is_lost(seed: int):
    scene, chance = a_scene(), random.Random(seed)
    program = Program(scene, chance)
    acts = [program.start, program.debounced, program.debounced, program.take, program.end, program.time]
    for _ in range(60):
        try:
            await chance.choice(acts)()
        except PenstockError:
            pass  # what is refused changes nothing, as the checks show
        holders = [run.lineage.unique_key for run in await all_runs(scene) if holds(scene, run)]
        assert len(holders) == len(set(holders)), "one-holder"
    for run_id in program.taken.keys() & program.latest.keys():
        assert program.taken[run_id] == program.latest[run_id], "its input was replaced before"
