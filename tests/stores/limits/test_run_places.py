"""Caps on runs, on every store: who starts, who waits, who is refused, and who is admitted when a place is free."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from penstock.core.history.commands import Command, ContinueAsNew, StartChild
from penstock.core.history.events import EventType
from penstock.core.id_policies import IdConflictPolicy
from penstock.core.limits.policies import LimitSetting
from penstock.core.limits.run_caps import RunScope, RunScopeKind, Surplus
from penstock.core.model import Blob, Queue, Run, RunStatus, TaskKind, TaskPriority, TaskState, task_id
from penstock.core.scheduling.leases import Report
from penstock.core.scheduling.polls import Granted, Poll
from penstock.core.verify.check import check
from penstock.core.verify.findings import Law
from penstock.engine.context import EngineContext
from penstock.engine.limits import run_caps
from penstock.engine.limits.admission import ScopeUpdate
from penstock.engine.limits.policies import UNSET, SettingChange
from penstock.engine.maintenance.run_cap_sweepers import uncounted_runs, waiting_runs
from penstock.engine.maintenance.sweepers import scope_counts
from penstock.engine.matching.claim import claim
from penstock.engine.workers import worker_registry
from penstock.engine.workers.worker_registry import Registration
from penstock.engine.workflows import run_close, start_caps, starts
from penstock.engine.workflows.run_close import EndMode
from penstock.engine.workflows.starts import Start
from penstock.errors import Conflict, Reason
from penstock.ports.store import Store, Tx
from penstock.ports.tables.next_due import Due
from penstock.settings import load
from penstock.wakeups.local import LocalWakeups
from penstock.wire.operations.journal import read_journal
from tests.engine.support import direct
from tests.stores.conftest import open_store
from tests.support.clock import ManualClock
from tests.support.entropy import CountingEntropy

TYPE = RunScope("default", RunScopeKind.TYPE, "Order")
QUEUE = RunScope("default", RunScopeKind.QUEUE, "orders")
NAMESPACE = RunScope("default")
KEY = RunScope("default", RunScopeKind.KEY, "tenant-1")
EACH_KEY = RunScope("default", RunScopeKind.EACH_KEY)


@pytest.fixture
def ctx(store: Store) -> EngineContext:
    return EngineContext(store, LocalWakeups(), CountingEntropy(), load({"DW_AUTH_DRIVER": "none"}))


async def cap(ctx: EngineContext, scope: RunScope, most: int | None, surplus: Surplus | None = None) -> None:
    settings: dict[LimitSetting, SettingChange] = {
        LimitSetting.OPEN_RUNS: SettingChange(UNSET if most is None else most)
    }
    if surplus is not None:
        settings[LimitSetting.SURPLUS] = SettingChange(surplus.value)
    await run_caps.configure(ctx, scope, ScopeUpdate(settings=settings, reason="test"), "ann")


async def start(ctx: EngineContext, workflow_id: str, **changes: Any) -> Run:
    payload: dict[str, Any] = {
        "namespace": "default",
        "workflow_type": "Order",
        "task_queue": "orders",
        "input": Blob(""),
    } | changes
    return (await starts.start_workflow(ctx, Start(workflow_id=workflow_id, **payload))).run


async def close(ctx: EngineContext, workflow_id: str, end: EndMode = EndMode.TERMINATE) -> None:
    await run_close.end_run(ctx, "default", workflow_id, end, "done")
    await admit(ctx)


async def admit(ctx: EngineContext) -> None:
    await waiting_runs(ctx).sweep()


async def newest(ctx: EngineContext, workflow_id: str) -> Run:
    async def operation(tx: Tx) -> Run:
        found = await tx.runs.named("default", workflow_id, None)
        assert found is not None
        assert found[1] is not None
        return found[1]

    return await ctx.store.read(operation)


async def waiting(ctx: EngineContext, *workflow_ids: str) -> list[str]:
    """Those of some runs that wait to start; each has a delayed workflow task, and the others a ready one."""
    found = []
    for workflow_id in workflow_ids:
        run = await newest(ctx, workflow_id)
        if not run.is_open:
            continue

        async def operation(tx: Tx, run: Run = run) -> TaskState:
            (task,) = [
                task
                for task in [
                    await tx.tasks.get(task_id(run.run_id, number)) for number in range(1, run.last_task + 1)
                ]
                if task is not None and task.is_live and task.kind is TaskKind.WORKFLOW
            ]
            return task.state

        state = await ctx.store.read(operation)
        assert state is (TaskState.DELAYED if run.waits.to_start else TaskState.READY), workflow_id
        if run.waits.to_start:
            found.append(workflow_id)
    return found


async def test_a_run_beyond_the_cap_waits_and_starts_when_one_has_closed(ctx: EngineContext):
    await cap(ctx, TYPE, 2)
    for each in ("a", "b", "c", "d"):
        await start(ctx, each)
    assert await waiting(ctx, "a", "b", "c", "d") == ["c", "d"]
    await close(ctx, "a")
    assert await waiting(ctx, "b", "c", "d") == ["d"]
    await close(ctx, "b")
    assert await waiting(ctx, "c", "d") == []


@pytest.mark.parametrize("scope", [TYPE, QUEUE, NAMESPACE, KEY, EACH_KEY], ids=lambda each: each.kind.value)
async def test_each_kind_of_scope_counts_its_own_runs_only(ctx: EngineContext, scope: RunScope):
    await cap(ctx, scope, 1)
    inside = {"concurrency_key": "tenant-1"}
    outside: dict[str, Any] = {
        "workflow_type": {"workflow_type": "Refund"},
        "task_queue": {"task_queue": "refunds"},
        "namespace": {"namespace": "other"},
        "concurrency_key": {"concurrency_key": "tenant-2"},
        "each_concurrency_key": {"concurrency_key": "tenant-2"},
    }[scope.kind.value]
    await start(ctx, "a", **inside)
    await start(ctx, "b", **inside | outside)
    if scope.kind is not RunScopeKind.NAMESPACE:
        assert await waiting(ctx, "b") == []
    await start(ctx, "c", **inside)
    assert await waiting(ctx, "c") == ["c"]
    await close(ctx, "a")
    assert await waiting(ctx, "c") == []


async def test_a_refused_start_names_the_cap_and_leaves_nothing(ctx: EngineContext):
    await cap(ctx, QUEUE, 1, Surplus.REFUSE)
    await start(ctx, "a")
    with pytest.raises(Conflict, match=r"of the task queue orders, 1 of at most 1 runs are open") as refused:
        await start(ctx, "b")
    assert refused.value.reason is Reason.RUN_CAP_REACHED
    assert await ctx.store.read(lambda tx: tx.runs.instance("default", "b")) is None
    await close(ctx, "a")
    assert (await start(ctx, "b")).is_open


async def test_a_run_that_waits_starts_by_priority_and_then_in_order(ctx: EngineContext):
    await cap(ctx, TYPE, 1)
    await start(ctx, "a")
    for each, level in (("late", 7), ("first", 5), ("second", 5), ("urgent", 1)):
        await start(ctx, each, priority=TaskPriority(level=level))
    order = []
    before = "a"
    names = ["late", "first", "second", "urgent"]
    while names:
        await close(ctx, before)
        still = await waiting(ctx, *names)
        (before,) = set(names) - set(still)
        order.append(before)
        names = still
    assert order == ["urgent", "first", "second", "late"]


async def test_a_run_needs_a_place_under_every_cap_and_moves_to_the_line_that_holds_it_back(
    ctx: EngineContext,
):
    await cap(ctx, NAMESPACE, 2)
    await cap(ctx, EACH_KEY, 1)
    await start(ctx, "a", concurrency_key="k")
    await start(ctx, "b")
    await start(ctx, "c", concurrency_key="k")
    await start(ctx, "d")
    assert await waiting(ctx, "c", "d") == ["c", "d"]
    await close(ctx, "b")
    assert await waiting(ctx, "c", "d") == ["c"], "c still lacks its key, and d does not wait for it"
    await close(ctx, "a")
    assert await waiting(ctx, "c") == []


async def test_a_new_cap_counts_the_runs_that_are_open_and_ends_none(ctx: EngineContext):
    for each in ("a", "b", "c"):
        await start(ctx, each)
    await cap(ctx, TYPE, 2)
    view = await run_caps.read(ctx, TYPE)
    assert (view.open, view.waiting) == (3, 0)
    assert sorted(run.workflow_id for run in view.holders) == ["a", "b", "c"]
    await start(ctx, "d")
    await close(ctx, "a")
    assert await waiting(ctx, "d") == ["d"], "two are still open"
    await close(ctx, "b")
    assert await waiting(ctx, "d") == []


async def test_many_open_runs_are_counted_and_many_waiting_ones_admitted(ctx: EngineContext):
    many = 2 * start_caps.TURN_MAX + 3
    await asyncio.gather(*(start(ctx, f"early{number}") for number in range(many)))
    await cap(ctx, TYPE, many)
    assert (await run_caps.read(ctx, TYPE)).open == many
    await asyncio.gather(*(start(ctx, f"late{number}") for number in range(many)))
    view = await run_caps.read(ctx, TYPE)
    assert (view.open, view.waiting) == (many, many)
    await cap(ctx, TYPE, 2 * many - 1)
    await admit(ctx)
    view = await run_caps.read(ctx, TYPE)
    assert (view.open, view.waiting) == (2 * many - 1, 1)


async def test_a_raised_or_unset_cap_admits_who_waits_and_zero_is_closed(ctx: EngineContext):
    await cap(ctx, TYPE, 0)
    for each in ("a", "b", "c"):
        await start(ctx, each)
    assert await waiting(ctx, "a", "b", "c") == ["a", "b", "c"]
    await cap(ctx, TYPE, 1)
    await admit(ctx)
    assert await waiting(ctx, "a", "b", "c") == ["b", "c"]
    await cap(ctx, TYPE, None)
    await admit(ctx)
    assert await waiting(ctx, "a", "b", "c") == []
    await cap(ctx, TYPE, 4)
    assert (await run_caps.read(ctx, TYPE)).open == 3, (
        "those admitted while there was no cap are counted, too"
    )


async def test_a_surplus_without_a_cap_is_refused(ctx: EngineContext):
    update = ScopeUpdate(settings={LimitSetting.SURPLUS: SettingChange("refuse")})
    with pytest.raises(Conflict, match="has no cap on runs") as refused:
        await run_caps.configure(ctx, TYPE, update, "ann")
    assert refused.value.reason is Reason.RUN_CAP_CONTRADICTION


@pytest.mark.parametrize("end", EndMode)
async def test_a_run_that_is_ended_while_it_waits_leaves_the_line(ctx: EngineContext, end: EndMode):
    await cap(ctx, TYPE, 1)
    await start(ctx, "a")
    await start(ctx, "b", delivers_cancel=True)
    await start(ctx, "c")
    await close(ctx, "b", end)
    assert not (await newest(ctx, "b")).is_open, "its code has not run, so there is nothing to clean up"
    assert (await run_caps.read(ctx, TYPE)).waiting == 1
    await close(ctx, "a")
    assert await waiting(ctx, "c") == []


async def test_many_concurrent_starts_and_ends_never_exceed_the_cap(ctx: EngineContext):
    await cap(ctx, TYPE, 3)
    names = [f"w{number}" for number in range(24)]
    await asyncio.gather(*(start(ctx, each) for each in names))
    ended: set[str] = set()
    while len(ended) < len(names):
        open_ = [each for each in names if each not in ended and not (await newest(ctx, each)).waits.to_start]
        assert 0 < len(open_) <= 3
        await asyncio.gather(
            *(run_close.end_run(ctx, "default", each, EndMode.TERMINATE, "done") for each in open_)
        )
        ended |= set(open_)
        await admit(ctx)
    assert (await run_caps.read(ctx, TYPE)).open == 0


async def test_a_wrong_counter_is_corrected(ctx: EngineContext):
    await cap(ctx, TYPE, 1)
    await start(ctx, "a")

    async def spoil(tx: Tx) -> None:
        (state,) = await tx.scopes.lock(await tx.scopes.ids([TYPE.name]))
        tx.scopes.settle(replace(state, granted=state.granted + 4))

    await ctx.store.transact(spoil, key="spoil")
    assert await scope_counts.correct(ctx, TYPE.name)
    assert (await run_caps.read(ctx, TYPE)).open == 1
    assert not await scope_counts.correct(ctx, TYPE.name)


async def test_the_oldest_running_run_is_cancelled_for_a_newer_one(ctx: EngineContext):
    await cap(ctx, TYPE, 2, Surplus.CANCEL_RUNNING)
    for each in ("a", "b", "c", "d"):
        await start(ctx, each)
        await admit(ctx)
    statuses = [(await newest(ctx, each)).status for each in ("a", "b", "c", "d")]
    assert statuses == [RunStatus.CANCELLED, RunStatus.CANCELLED, RunStatus.PENDING, RunStatus.PENDING]
    assert await waiting(ctx, "c", "d") == []


async def test_the_newest_waiting_run_replaces_the_one_that_waits(ctx: EngineContext):
    await cap(ctx, TYPE, 1, Surplus.KEEP_NEWEST)
    for each in ("a", "b", "c", "d"):
        await start(ctx, each)
    assert await waiting(ctx, "a", "d") == ["d"]
    statuses = [(await newest(ctx, each)).status for each in ("b", "c")]
    assert statuses == [RunStatus.CANCELLED, RunStatus.CANCELLED]
    await asyncio.gather(*(start(ctx, f"e{number}") for number in range(5)))
    assert (await run_caps.read(ctx, TYPE)).waiting == 1, "also where starts are committed together"
    await close(ctx, "a")
    assert (await run_caps.read(ctx, TYPE)).open == 1


# ── Chains, children and evidence ───────────────────────────────────────────────────────────────────────────


async def decide(ctx: EngineContext, workflow_id: str, *commands: Command) -> None:
    """Claim the first task of a run and complete it; there must be no other ready task."""
    await worker_registry.register(
        ctx, Registration("default", "w1", task_queue="orders", runtime="python", workflow_slots=10)
    )

    async def queue(tx: Tx) -> Queue:
        return await tx.queues.ensure("default", "orders", TaskKind.WORKFLOW)

    found = await ctx.store.transact(queue, key="queue")
    poll = Poll(namespace="default", task_queue="orders", worker_id="w1", kind=TaskKind.WORKFLOW)
    for _ in range(8):
        [granted] = await claim(ctx, found.queue_id, [poll], None)
        assert isinstance(granted, Granted), f"no task waits, though {workflow_id} should have one"
        (leased,) = granted.leased
        if leased.run.workflow_id == workflow_id:
            report = Report("w1", str(leased.task.attempt), "digest")
            await direct.complete_workflow_task(ctx, "default", leased.task.task_id, report, commands)
            return
    raise AssertionError(f"{workflow_id} has no task")


def child(workflow_id: str) -> StartChild:
    return StartChild("Order", "orders", Blob(""), workflow_id=workflow_id)


async def test_a_chain_is_one_run_that_keeps_its_place(ctx: EngineContext):
    await cap(ctx, TYPE, 1)
    first = await start(ctx, "a")
    await start(ctx, "b")
    await decide(ctx, "a", ContinueAsNew(Blob("")))
    await admit(ctx)
    second = await newest(ctx, "a")
    assert second.run_id != first.run_id
    assert await waiting(ctx, "a", "b") == ["b"]
    assert [run.run_id for run in (await run_caps.read(ctx, TYPE)).holders] == [second.run_id]
    await close(ctx, "a")
    assert await waiting(ctx, "b") == []


async def test_children_count_and_wait_or_fail_as_the_cap_says(ctx: EngineContext):
    await cap(ctx, TYPE, 2)
    await start(ctx, "parent")
    await decide(ctx, "parent", child("one"), child("two"))
    assert await waiting(ctx, "one", "two") == ["two"]
    await close(ctx, "one")
    assert await waiting(ctx, "two") == []
    await close(ctx, "two")
    await close(ctx, "parent")

    await cap(ctx, TYPE, 2, Surplus.REFUSE)
    await start(ctx, "again")
    await decide(ctx, "again", child("three"), child("four"))
    assert await ctx.store.read(lambda tx: tx.runs.instance("default", "four")) is None
    run = await newest(ctx, "again")
    failed = await ctx.store.read(
        lambda tx: tx.histories.last_of_type(run.run_id, [EventType.CHILD_RUN_FAILED])
    )
    assert failed is not None
    assert "RunCapReached" in failed.payload
    assert (await run_caps.read(ctx, TYPE)).open == 2


async def test_a_child_cancels_nobody_though_the_cap_says_so(ctx: EngineContext):
    await cap(ctx, TYPE, 1, Surplus.CANCEL_RUNNING)
    await start(ctx, "parent")
    await decide(ctx, "parent", child("one"))
    assert (await newest(ctx, "parent")).is_open
    assert (await run_caps.read(ctx, TYPE)).waiting == 1


async def test_a_start_that_was_recorded_while_its_cap_was_set_is_counted_soon(ctx: EngineContext):
    await cap(ctx, TYPE, 1)
    await start(ctx, "a")
    run = await newest(ctx, "a")

    async def forget(tx: Tx) -> None:
        """As if the start had read that there is no cap."""
        locked = await tx.runs.lock(run.run_id)
        assert locked is not None
        tx.runs.save(replace(locked, waits=replace(locked.waits, places=())))
        tx.run_places.drop(run.run_id)
        tx.run_places.end(locked.waits.places)

    await ctx.store.transact(forget, key=run.run_id)
    assert (await run_caps.read(ctx, TYPE)).open == 0
    await uncounted_runs(ctx).sweep()
    assert (await run_caps.read(ctx, TYPE)).open == 1
    await start(ctx, "b")
    assert await waiting(ctx, "b") == ["b"]


async def test_a_start_cancels_one_run_though_two_scopes_of_it_are_full(ctx: EngineContext):
    await cap(ctx, NAMESPACE, 2, Surplus.CANCEL_RUNNING)
    await cap(ctx, TYPE, 2, Surplus.CANCEL_RUNNING)
    for each in ("a", "b", "c"):
        await start(ctx, each)
    assert (await newest(ctx, "a")).status is RunStatus.CANCELLED
    assert (await newest(ctx, "b")).is_open
    await admit(ctx)
    assert await waiting(ctx, "b", "c") == []


@pytest.mark.parametrize(
    ("surplus", "most"), [(Surplus.CANCEL_RUNNING, 2), (Surplus.KEEP_NEWEST, 1)], ids=lambda each: str(each)
)
async def test_a_start_that_terminates_the_run_of_its_id_ends_no_other_run(
    ctx: EngineContext, surplus: Surplus, most: int
):
    await cap(ctx, TYPE, most, surplus)
    for each in ("a", "b"):
        await start(ctx, each)
    again = await start(ctx, "b", id_conflict_policy=IdConflictPolicy.TERMINATE_EXISTING)
    assert again.waits.to_start
    assert (await newest(ctx, "a")).is_open
    await admit(ctx)
    assert await waiting(ctx, "a", "b") == (["b"] if surplus is Surplus.KEEP_NEWEST else [])


async def test_the_places_of_a_run_survive_a_restart(
    ctx: EngineContext, reopened: Callable[[], Awaitable[Store]]
):
    await cap(ctx, TYPE, 1)
    await start(ctx, "a")
    await start(ctx, "b")
    await run_close.end_run(ctx, "default", "a", EndMode.TERMINATE, "the server dies before its turn")
    again = EngineContext(await reopened(), LocalWakeups(), ctx.entropy, ctx.settings)
    assert await waiting(again, "b") == ["b"]
    due = await again.store.read(lambda tx: tx.next_due.until(tx.now_ms))
    assert Due.RUN_PLACE in due, "what waits is due, though nobody was notified"
    await admit(again)
    assert await waiting(again, "b") == []


@pytest.fixture
async def journaling(
    address: str | Path, clock: ManualClock, wakeups: LocalWakeups
) -> AsyncIterator[EngineContext]:
    store = await open_store(address, clock, wakeups, journals=True)
    yield EngineContext(store, wakeups, CountingEntropy(), load({"DW_AUTH_DRIVER": "none"}))
    await store.close()


async def test_the_journal_shows_that_no_cap_on_runs_was_exceeded(journaling: EngineContext):
    ctx = journaling
    await start(ctx, "early")
    await cap(ctx, TYPE, 2)
    await cap(ctx, EACH_KEY, 1)
    names = [f"w{number}" for number in range(8)]
    await asyncio.gather(*(start(ctx, each, concurrency_key=each[-1]) for each in names))
    await close(ctx, "early")
    while names:
        still = await waiting(ctx, *names)
        for each in set(names) - set(still):
            await close(ctx, each)
        names = still
    lines = await ctx.store.read(lambda tx: tx.journal.page(0, 1_000))
    raw = [msgspec.json.encode(msgspec.json.decode(line) | {"seq": seq}) for seq, line in lines]
    book, _ = check(read_journal(raw, "journal"))
    assert book.findings == []
    assert book.checked[Law.RUN_CAP] == 2 * 8, "each of eight runs was admitted under two caps"
    broken = [line for line in raw if b"run_closed" not in line]
    book, _ = check(read_journal(broken, "journal"))
    assert book.found[Law.RUN_CAP], "without the ends, the same admissions exceed the caps"
