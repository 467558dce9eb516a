"""Reuse of workflow ids: at most one open run, under every policy and with concurrent starts."""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import AsyncIterator, Awaitable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
from msgspec.structs import replace

from penstock.core.history.command_effects import closed
from penstock.core.history.events import EventType
from penstock.core.id_policies import IdConflictPolicy, IdReusePolicy
from penstock.core.model import NewEvent, Run, RunHost, RunId, RunStatus
from penstock.engine.context import EngineContext
from penstock.engine.operations import namespaces, retention
from penstock.engine.operations.retention import DAY_MS, Obstacle
from penstock.engine.runs import workflow_ids
from penstock.engine.runs.history_writer import append_last
from penstock.engine.visibility import run_reader
from penstock.engine.workflows import run_close, starts
from penstock.engine.workflows.run_close import EndMode, close_open_work, settle
from penstock.engine.workflows.starts import STANDALONE_TYPE, StartOutcome, StartResult
from penstock.errors import Conflict, Reason, Unavailable
from penstock.ports.store import Store, Tx
from penstock.settings import load
from penstock.stores.postgres.schema import migrate
from penstock.stores.postgres.store import PostgresStore
from penstock.stores.sql.workflows.runs import SqlRuns
from penstock.system_clock import SystemEntropy
from penstock.wakeups.local import LocalWakeups
from tests.engine.support import direct
from tests.engine.support.scene import a_start, charge
from tests.support.builders import a_run, an_instance

REUSE, CONFLICT = IdReusePolicy, IdConflictPolicy
POLICIES = [
    each
    for each in itertools.product(IdReusePolicy, IdConflictPolicy)
    if each != (REUSE.REJECT_DUPLICATE, CONFLICT.TERMINATE_EXISTING)
]
AT_ONCE = 12


def a_house(store: Store) -> EngineContext:
    return EngineContext(store, LocalWakeups(), SystemEntropy(), load({"DW_AUTH_DRIVER": "none"}))


@pytest.fixture
async def ctx(store: Store) -> EngineContext:
    made = a_house(store)
    await namespaces.ensure(made, "default")
    return made


@pytest.fixture
async def servers(postgres_url: str) -> AsyncIterator[list[EngineContext]]:
    """Two servers on one database."""
    await migrate(postgres_url)
    opened = [await PostgresStore.open(postgres_url, LocalWakeups(), node=name) for name in ("one", "two")]
    made = [a_house(each) for each in opened]
    await namespaces.ensure(made[0], "default")
    yield made
    for each in opened:
        await each.close()


async def start(
    ctx: EngineContext,
    reuse: IdReusePolicy | None = REUSE.ALLOW_DUPLICATE,
    conflict: IdConflictPolicy | None = None,
    *,
    workflow_id: str = "order-1",
    key: str | None = None,
    host: RunHost = RunHost.WORKFLOW,
) -> StartResult:
    said = {"id_reuse_policy": reuse, "id_conflict_policy": conflict, "start_key": key}
    if host is RunHost.WORKFLOW:
        return await starts.start_workflow(ctx, a_start(workflow_id, **said))
    request = a_start(workflow_id, workflow_type=STANDALONE_TYPE, **said)
    return await direct.start_activity(ctx, request, charge())


async def close(ctx: EngineContext, run_id: RunId, status: RunStatus = RunStatus.COMPLETED) -> None:
    """Close a run as its own code, or an operator, would."""

    async def operation(tx: Tx) -> None:
        run = await tx.runs.lock(run_id)
        assert run is not None
        around = await close_open_work(tx, run)
        last = NewEvent(EventType.WORKFLOW_COMPLETED, {})
        run = append_last(tx, run, [*around, last])
        run = closed(run, status, status.value, tx.now_ms)
        tx.runs.save(await settle(ctx, tx, run, last))

    await ctx.store.transact(operation, key=run_id)


async def runs_of(ctx: EngineContext, workflow_id: str = "order-1") -> Sequence[Run]:
    page = await run_reader.runs_of(ctx, "default", workflow_id, None, 1000)
    return sorted(page.runs, key=lambda run: run.run_number)


async def newest(ctx: EngineContext, workflow_id: str = "order-1") -> Run:
    async def operation(tx: Tx) -> Run:
        found = await tx.runs.named("default", workflow_id, None)
        assert found is not None
        assert found[1] is not None
        return found[1]

    return await ctx.store.read(operation)


async def age(ctx: EngineContext, run_id: RunId) -> None:
    async def operation(tx: Tx) -> None:
        run = await tx.runs.lock(run_id)
        assert run is not None
        tx.runs.save(replace(run, closed_at_ms=tx.now_ms - 400 * DAY_MS))

    await ctx.store.transact(operation, key=run_id)


@pytest.mark.parametrize("host", RunHost)
async def test_the_id_of_a_closed_run_is_used_again(ctx: EngineContext, host: RunHost):
    first = await start(ctx, host=host)
    await close(ctx, first.run.run_id)
    second = await start(ctx, host=host)
    assert (second.outcome, second.run.run_number) == (StartOutcome.STARTED_NEW, 2)
    assert [run.status for run in await runs_of(ctx)] == [RunStatus.COMPLETED, RunStatus.PENDING]
    assert (await newest(ctx)).run_id == second.run.run_id
    if host is RunHost.ACTIVITY:
        seen = await run_reader.describe_activity(ctx, "default", "order-1")
        before = await run_reader.describe_activity(ctx, "default", "order-1", first.run.run_id)
        assert (seen.run.run_id, before.run.run_id) == (second.run.run_id, first.run.run_id)
        assert seen.activity.activity_id != before.activity.activity_id


async def test_a_start_without_our_fields_is_refused_as_ever(ctx: EngineContext):
    first = await start(ctx, None)
    await close(ctx, first.run.run_id, RunStatus.FAILED)
    with pytest.raises(Conflict) as refused:
        await start(ctx, None)
    assert refused.value.reason is Reason.INSTANCE_ALREADY_STARTED
    assert "id_reuse_policy allow_duplicate" in refused.value.message


@pytest.mark.parametrize("status", [each for each in RunStatus if each.is_terminal])
async def test_only_failed_ones_are_used_again_if_that_is_wanted(ctx: EngineContext, status: RunStatus):
    first = await start(ctx)
    await close(ctx, first.run.run_id, status)
    if status is RunStatus.COMPLETED:
        with pytest.raises(Conflict):
            await start(ctx, REUSE.ALLOW_DUPLICATE_FAILED_ONLY)
    else:
        assert (await start(ctx, REUSE.ALLOW_DUPLICATE_FAILED_ONLY)).run.run_number == 2


@pytest.mark.parametrize("host", RunHost)
async def test_an_open_run_is_terminated_with_the_start_of_the_next(ctx: EngineContext, host: RunHost):
    first = await start(ctx, host=host)
    second = await start(ctx, conflict=CONFLICT.TERMINATE_EXISTING, host=host)
    before, after = await runs_of(ctx)
    assert (before.run_id, before.status) == (first.run.run_id, RunStatus.TERMINATED)
    assert (after.run_id, after.is_open) == (second.run.run_id, True)


async def test_a_workflow_is_not_started_under_the_id_of_an_activity_nor_terminates_it(ctx: EngineContext):
    first = await start(ctx, host=RunHost.ACTIVITY)
    for conflict in CONFLICT:
        with pytest.raises(Conflict):
            await start(ctx, conflict=conflict)
    await close(ctx, first.run.run_id)
    with pytest.raises(Conflict):
        await start(ctx)
    assert len(await runs_of(ctx)) == 1


@pytest.mark.parametrize("host", RunHost)
@pytest.mark.parametrize("was", ["unknown", "open", "closed"])
@pytest.mark.parametrize(("reuse", "conflict"), POLICIES)
async def test_of_many_racing_starts_one_run_is_open(
    ctx: EngineContext, reuse: IdReusePolicy, conflict: IdConflictPolicy, was: str, host: RunHost
):
    await _race([ctx], reuse, conflict, was, host)


@pytest.mark.parametrize("was", ["unknown", "open", "closed"])
@pytest.mark.parametrize(("reuse", "conflict"), POLICIES)
async def test_of_many_starts_that_race_on_two_servers_one_run_is_open(
    servers: list[EngineContext], reuse: IdReusePolicy, conflict: IdConflictPolicy, was: str
):
    await _race(servers, reuse, conflict, was, RunHost.WORKFLOW)


async def _race(
    houses: list[EngineContext], reuse: IdReusePolicy, conflict: IdConflictPolicy, was: str, host: RunHost
) -> None:
    if was != "unknown":
        first = await start(houses[0], host=host)
        if was == "closed":
            await close(houses[0], first.run.run_id, RunStatus.FAILED)
    racing = [start(houses[n % len(houses)], reuse, conflict, host=host) for n in range(AT_ONCE)]
    outcomes = await asyncio.gather(*racing, return_exceptions=True)
    begun = [each.run for each in outcomes if isinstance(each, StartResult) and _is_new(each)]
    used = [each.run for each in outcomes if isinstance(each, StartResult) and not _is_new(each)]
    refused = [each for each in outcomes if not isinstance(each, StartResult)]
    assert all(isinstance(each, Conflict) for each in refused), refused
    runs = await runs_of(houses[0])
    opened = [run for run in runs if run.is_open]
    assert len(opened) == (was != "closed" or reuse is not REUSE.REJECT_DUPLICATE)
    assert [run.run_number for run in runs] == list(range(1, len(runs) + 1)), (
        "each run follows the one before"
    )
    assert len(runs) == len(begun) + (was != "unknown")
    if conflict is CONFLICT.TERMINATE_EXISTING:
        assert not refused
        assert len(begun) == AT_ONCE
    elif opened:
        assert len(begun) == (was != "open")
        assert {run.run_id for run in used} <= {opened[0].run_id}
        assert bool(refused) is (conflict is CONFLICT.FAIL)


async def test_runs_are_listed_in_their_order_though_starts_waited_for_each_other(
    servers: list[EngineContext],
):
    """A start that loses the race too often is refused, and nothing of it is started."""
    racing = [start(servers[n % 2], conflict=CONFLICT.TERMINATE_EXISTING) for n in range(4 * AT_ONCE)]
    ended = await asyncio.gather(*racing, return_exceptions=True)
    assert {type(each) for each in ended} <= {StartResult, Unavailable}, ended
    begun = sum(isinstance(each, StartResult) for each in ended)
    listed = await run_reader.runs_of(servers[0], "default", "order-1", None, 1000)
    assert [run.run_number for run in listed.runs] == list(range(1, begun + 1))


def test_a_run_starts_after_the_one_that_it_replaces_also_if_its_transaction_began_before():
    replaced = a_run(started_at_ms=1_000)
    assert workflow_ids.started_at_ms(replaced, now_ms=990) == 1_001
    assert workflow_ids.started_at_ms(replaced, now_ms=2_000) == 2_000
    assert workflow_ids.started_at_ms(None, now_ms=990) == 990


def _is_new(started: StartResult) -> bool:
    return started.outcome is StartOutcome.STARTED_NEW


# ── Keys ────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("host", RunHost)
@pytest.mark.parametrize("conflict", CONFLICT)
async def test_a_repeated_start_gets_its_own_run_after_the_id_was_used_again(
    ctx: EngineContext, conflict: IdConflictPolicy, host: RunHost
):
    first = await start(ctx, key="k1", host=host)
    await close(ctx, first.run.run_id)
    second = await start(ctx, key="k2", host=host)
    for key, run in (("k1", first.run), ("k2", second.run)):
        again = await start(ctx, conflict=conflict, key=key, host=host)
        assert (again.run.run_id, again.deduplicated) == (run.run_id, True)
        if host is RunHost.ACTIVITY:
            assert again.activity is not None
            assert again.activity.run_id == run.run_id
    assert (await newest(ctx)).run_id == second.run.run_id
    assert (await newest(ctx)).is_open


async def test_a_start_that_got_an_open_run_gets_it_again_after_that_has_ended(ctx: EngineContext):
    first = await start(ctx, key="k1")
    used = await start(ctx, conflict=CONFLICT.USE_EXISTING, key="k2")
    assert used.run.run_id == first.run.run_id
    await close(ctx, first.run.run_id)
    again = await start(ctx, conflict=CONFLICT.USE_EXISTING, key="k2")
    assert (again.run.run_id, again.outcome) == (first.run.run_id, StartOutcome.RETURNED_EXISTING_ACTIVE)
    assert (await start(ctx, conflict=CONFLICT.USE_EXISTING, key="k3")).run.run_number == 2


async def test_starts_that_are_sent_twice_at_once_count_once(servers: list[EngineContext]):
    for number, conflict in enumerate(CONFLICT):
        name = f"order-{number}"
        await start(servers[0], workflow_id=name, key="first")
        if conflict is CONFLICT.FAIL:
            await close(servers[0], (await newest(servers[0], name)).run_id)
        sent = [start(each, conflict=conflict, workflow_id=name, key="k") for each in servers * 4]
        answers = await asyncio.gather(*sent)
        assert len({each.run.run_id for each in answers}) == 1
        assert len(await runs_of(servers[0], name)) == (1 if conflict is CONFLICT.USE_EXISTING else 2)


# ── Retention ───────────────────────────────────────────────────────────────────────────────────────────────


async def test_deleting_an_older_run_neither_frees_the_id_nor_touches_the_newer_run(ctx: EngineContext):
    first = await start(ctx, key="k1")
    await close(ctx, first.run.run_id)
    await age(ctx, first.run.run_id)
    second = await start(ctx, key="k2")
    assert (await retention.prune(ctx, first.run.run_id)).obstacle is None
    assert [run.run_id for run in await runs_of(ctx)] == [second.run.run_id]
    with pytest.raises(Conflict):
        await start(ctx, key="k3")
    again = await start(ctx, key="k2")
    assert (again.run.run_id, again.deduplicated) == (second.run.run_id, True)
    assert (await retention.prune(ctx, second.run.run_id)).obstacle is Obstacle.OPEN


async def test_an_id_that_is_taken_while_its_last_run_is_deleted_has_one_open_run(
    servers: list[EngineContext],
):
    for number in range(8):
        name = f"old-{number}"
        first = await start(servers[0], workflow_id=name)
        await close(servers[0], first.run.run_id)
        await age(servers[0], first.run.run_id)
        pruned, started = await asyncio.gather(
            retention.prune(servers[0], first.run.run_id), start(servers[1], workflow_id=name)
        )
        assert pruned.obstacle in (None, Obstacle.GONE)
        assert (await newest(servers[0], name)).run_id == started.run.run_id
        assert [run.run_id for run in await runs_of(servers[0], name) if run.is_open] == [started.run.run_id]


class DeletedMeanwhile:
    """A session in which the row of a reserved id is deleted before it is read, a given number of times."""

    def __init__(self, times: int) -> None:
        self.times = times

    async def fetch(self, name: str, *given: Any) -> list[tuple[Any, ...]]:
        if name == "reserve_instance" and self.times == 0:
            return [(1, *given)]
        self.times -= name == "get_instance"
        return []

    async def fetch_each(self, name: str, given: Iterable[tuple[Any, ...]]) -> list[list[tuple[Any, ...]]]:
        return [await self.fetch(name, *each) for each in given]


async def test_an_id_that_is_deleted_between_two_statements_of_a_start_is_taken():
    wanted = an_instance()
    session: Any = DeletedMeanwhile(1)
    assert await SqlRuns(session).reserve(wanted) == wanted
    session = DeletedMeanwhile(2)
    assert await SqlRuns(session).reserve_all([wanted]) == [wanted]
    session = DeletedMeanwhile(1000)
    with pytest.raises(Unavailable, match="Try again"):
        await SqlRuns(session).reserve(wanted)


# ── A model ─────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass
class Model:
    """A model of a workflow id."""

    runs: list[RunStatus] = field(default_factory=list)
    keys: dict[str, int] = field(default_factory=dict)

    def start(self, reuse: IdReusePolicy, conflict: IdConflictPolicy, key: str | None) -> int | None:
        """The index of the run that answers the start; None: it is refused."""
        if key in self.keys:
            return self.keys[key]
        if self.runs and not self.runs[-1].is_terminal:
            if conflict is CONFLICT.FAIL:
                return None
            if conflict is CONFLICT.TERMINATE_EXISTING:
                self.runs[-1] = RunStatus.TERMINATED
                self.runs.append(RunStatus.PENDING)
        elif (self.runs and reuse is REUSE.REJECT_DUPLICATE) or (
            self.runs and reuse is REUSE.ALLOW_DUPLICATE_FAILED_ONLY and self.runs[-1] is RunStatus.COMPLETED
        ):
            return None
        else:
            self.runs.append(RunStatus.PENDING)
        if key is not None:
            self.keys[key] = len(self.runs) - 1
        return len(self.runs) - 1


ENDS = [each for each in RunStatus if each.is_terminal]


@pytest.mark.parametrize("seed", range(12))
async def test_any_sequence_of_starts_and_ends_goes_as_in_the_model(ctx: EngineContext, seed: int):
    dice = random.Random(seed)
    models = {f"id-{number}": Model() for number in range(2)}
    ids: dict[str, list[RunId]] = {name: [] for name in models}
    for _ in range(40):
        name = dice.choice(list(models))
        model, known = models[name], ids[name]
        if model.runs and not model.runs[-1].is_terminal and dice.random() < 0.4:
            await _end(ctx, name, known[-1], status := dice.choice(ENDS))
            model.runs[-1] = status
        else:
            reuse, conflict = dice.choice(POLICIES)
            key = dice.choice([None, "a", "b", "c", "d"])
            expected = model.start(reuse, conflict, key)
            answer = await _outcome(start(ctx, reuse, conflict, workflow_id=name, key=key))
            assert (answer is None) is (expected is None), f"seed {seed}"
            if answer is not None and expected == len(known):
                known.append(answer)
            assert answer is None or answer == known[expected or 0], f"seed {seed}"
        if known:
            runs = await runs_of(ctx, name)
            assert [run.run_id for run in runs] == known
            assert [run.status for run in runs] == model.runs
            assert sum(run.is_open for run in runs) <= 1


async def _end(ctx: EngineContext, workflow_id: str, run_id: RunId, status: RunStatus) -> None:
    if status in (RunStatus.CANCELLED, RunStatus.TERMINATED):
        how = EndMode.CANCEL if status is RunStatus.CANCELLED else EndMode.TERMINATE
        await run_close.end_run(ctx, "default", workflow_id, how, None)
    else:
        await close(ctx, run_id, status)


async def _outcome(starting: Awaitable[StartResult]) -> RunId | None:
    """The run that answers a start; None: it was refused because its id is in use."""
    try:
        return (await starting).run.run_id
    except Conflict as refused:
        if refused.reason is not Reason.INSTANCE_ALREADY_STARTED:
            raise
        return None
