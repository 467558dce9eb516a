"""Limits shared by several queues: what is in force, what each scope counts, and how queues learn of changes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

import pytest
from msgspec.structs import replace

from penstock.core.limits.admission import (
    Declaration,
    DeclaredScope,
    LimitField,
    cluster_scope,
    namespace_scope,
)
from penstock.core.limits.policies import LimitSetting, Policy, PolicyChange, SettingValue
from penstock.core.limits.windows import Window
from penstock.core.model import Queue, Task, TaskState
from penstock.core.scheduling.gates import ScopeState
from penstock.errors import Conflict, Reason
from penstock.ports.store import Store, TransactionClass, Tx
from penstock.ports.wakeups import queue_topic, scope_topic
from penstock.wakeups.local import LocalWakeups
from tests.stores.store_operations import (
    a_queue,
    claim,
    enqueue,
    ids,
    limit,
    look,
    queue_now,
    record,
    scope_now,
)
from tests.stores.transactions.test_wakeups import Listener
from tests.support.builders import NOW_MS, a_task, released

SHOP, ALL = namespace_scope("default"), cluster_scope()
CAPPED = Policy(
    1, {LimitSetting.LEASE_CAP: SettingValue(3, "ann", NOW_MS, "the bank asked, süß & gentle", NOW_MS + 1)}
)
DECLARED = Declaration(
    defaults={"activity": {LimitField.QUEUE_LEASES: 5, LimitField.GROUP: "bank"}},
    overrides={"default:orders": {"activity": {LimitField.QUEUE_DISPATCHES: 7}}},
    scopes={"group:default/bank": DeclaredScope(leases=2, cost=900, window=Window.SLIDING)},
    rate_max_micro=90_000_000,
)


async def scope_ids(store: Store, *names: str) -> Sequence[int]:
    return await store.transact(lambda tx: tx.scopes.ids(names), key="scopes")


async def locked(store: Store, *numbers: int) -> Sequence[ScopeState]:
    return await store.transact(
        lambda tx: tx.scopes.lock(numbers), key="scopes", tx_class=TransactionClass.CLAIM
    )


async def grant(store: Store, queue: Queue, task_id: str, scopes: str = "", **changes: object) -> Task:
    """A lease of a new task, counted by these scopes or by none."""
    await enqueue(store, a_task(queue, task_id, key=str(changes.get("key", ""))))
    (task,) = await claim(store, queue.queue_id, 1)
    granted = replace(task, scopes=scopes, **changes)
    await record(store, lambda tx: tx.tasks.save(granted, TaskState.LEASED))
    return granted


async def end(store: Store, task: Task, state: TaskState = TaskState.DONE) -> None:
    async def operation(tx: Tx) -> None:
        found = await tx.tasks.lock(task.task_id)
        assert found is not None
        tx.tasks.save(released(found, state), TaskState.LEASED)

    await store.transact(operation, key=task.run_id)


async def declare(store: Store, declaration: Declaration, stamp: str = "stamp") -> None:
    async def operation(tx: Tx) -> None:
        await tx.scopes.lock_admission()
        lines = await tx.scopes.lock_queues(None)
        tx.scopes.declare(declaration, "server-1")
        tx.scopes.stamp(stamp, [line.queue_id for line in lines])

    await store.transact(operation, key="admission", tx_class=TransactionClass.CHANGE)


async def refuse(store: Store, write: Callable[[Tx], Awaitable[object]]) -> None:
    """Run an operation that fails after it has done all its work."""

    async def operation(tx: Tx) -> None:
        await write(tx)
        raise Conflict(Reason.CONFIG_VERSION_CONFLICT, "not now")

    with pytest.raises(Conflict):
        await store.transact(operation, key="refused", tx_class=TransactionClass.CHANGE)


# ── Who a scope is ──────────────────────────────────────────────────────────────────────────────────────


async def test_a_scope_gets_its_id_once_and_keeps_it(store: Store):
    shop, everything = await scope_ids(store, SHOP, ALL)
    assert shop != everything
    assert await scope_ids(store, ALL, SHOP, ALL) == [everything, shop, everything]
    assert [state.name for state in await locked(store, shop, everything)] == [
        name for _, name in sorted([(shop, SHOP), (everything, ALL)])
    ]


async def test_many_who_name_a_scope_at_once_get_the_same_one(store: Store):
    asked = (store.transact(lambda tx: tx.scopes.ids([SHOP, ALL]), key=f"k{n}") for n in range(20))
    found = await asyncio.gather(*asked)
    assert len({tuple(each) for each in found}) == 1


async def test_a_scope_named_by_an_operation_that_was_refused_is_not_remembered(store: Store):
    await refuse(store, lambda tx: tx.scopes.ids([SHOP, ALL]))
    assert await look(store, lambda tx: tx.scopes.find([SHOP, ALL])) == []
    other, shop = await scope_ids(store, "namespace:other", SHOP)
    assert other != shop
    assert [state.scope_id for state in await look(store, lambda tx: tx.scopes.find([SHOP]))] == [shop]


@pytest.mark.parametrize("address", ["sqlite", "postgres"], indirect=True)
async def test_a_scope_keeps_its_id_and_its_counts_over_a_restart(
    store: Store, reopened: Callable[[], Awaitable[Store]]
):
    (shop,) = await scope_ids(store, SHOP)
    counted = ScopeState(shop, SHOP, 4, 0, ((1_790_000_000, 3), (1_790_000_001, 1)), ((1, 20),), NOW_MS, 2)
    await record(store, lambda tx: tx.scopes.settle(counted))
    again = await reopened()
    assert await scope_ids(again, SHOP) == [shop]
    assert await locked(again, shop) == [counted]


async def test_only_scopes_that_were_made_are_found_and_nothing_is_made_by_looking(store: Store):
    (shop,) = await scope_ids(store, SHOP)
    for _ in range(2):
        assert await look(store, lambda tx: tx.scopes.find([ALL, SHOP])) == [ScopeState(shop, SHOP)]


# ── What a scope counts ─────────────────────────────────────────────────────────────────────────────────


async def test_what_was_settled_is_what_the_next_claim_finds(store: Store):
    shop, everything = await scope_ids(store, SHOP, ALL)
    counted = ScopeState(shop, SHOP, 3, 0, ((1_790_000_000, 3),), ((1_790_000_000, 90),), NOW_MS + 5, 1)
    await record(store, lambda tx: tx.scopes.settle(counted))
    assert [*await locked(store, everything, shop)] == sorted(
        [counted, ScopeState(everything, ALL)], key=lambda state: state.scope_id
    )
    await record(store, lambda tx: tx.scopes.settle(ScopeState(shop, SHOP, 3)))
    assert await locked(store, shop) == [ScopeState(shop, SHOP, 3)]


@pytest.mark.parametrize("state", [TaskState.DONE, TaskState.CANCELLED, TaskState.READY, TaskState.DELAYED])
async def test_a_lease_ends_once_in_each_scope_that_counts_it_however_it_ends(
    store: Store, wakeups: LocalWakeups, state: TaskState
):
    queue = await a_queue(store)
    shop, everything, other = await scope_ids(store, SHOP, ALL, "namespace:other")
    task = await grant(store, queue, "r1-1", f" {shop} {everything} ")
    for number in (shop, everything, other):
        counted = (await locked(store, number))[0]
        await record(store, lambda tx, counted=counted: tx.scopes.settle(replace(counted, granted=1)))  # type: ignore[misc]
    topics = [scope_topic(number) for number in (shop, everything, other)]
    listener = Listener(wakeups, *topics, queue_topic(queue.queue_id), "end")
    await end(store, task, state)
    found = await look(store, lambda tx: tx.tasks.get(task.task_id))
    assert found is not None
    assert (found.scopes, found.counted, found.claimed, found.ended_lease) == ("", 0, 0, None)
    states = await locked(store, shop, everything, other)
    assert {each.scope_id: each.running for each in states} == {shop: 0, everything: 0, other: 1}
    assert {each.scope_id: each.ended for each in states} == {shop: 1, everything: 1, other: 0}
    await record(store, lambda tx: tx.wake("end"))
    await listener.until("end")
    assert sorted(set(listener.heard)) == sorted({*topics[:2], "end"}), "the queue counts nothing itself"


async def test_what_changes_on_a_lease_that_goes_on_ends_nothing(store: Store):
    queue = await a_queue(store)
    (shop,) = await scope_ids(store, SHOP)
    task = await grant(store, queue, "r1-1", f" {shop} ")
    longer = replace(task, lease_expires_at_ms=NOW_MS + 120_000)
    await record(store, lambda tx: tx.tasks.save(longer, TaskState.LEASED))
    assert (await locked(store, shop))[0].ended == 0
    found = await look(store, lambda tx: tx.tasks.get(task.task_id))
    assert found is not None
    assert found.scopes == f" {shop} "


async def test_a_claim_that_settles_an_older_count_forgets_no_end(store: Store):
    """Ended leases are counted in rows of their own."""
    queue = await a_queue(store)
    (shop,) = await scope_ids(store, SHOP)
    task = await grant(store, queue, "r1-1", f" {shop} ")
    await record(store, lambda tx: tx.scopes.settle(ScopeState(shop, SHOP, 5)))
    (before,) = await locked(store, shop)
    await end(store, task)
    await record(store, lambda tx: tx.scopes.settle(replace(before, granted=before.granted + 1)))
    (after,) = await locked(store, shop)
    assert (after.granted, after.ended, after.running) == (6, 1, 5)


async def test_ends_of_many_leases_at_once_are_all_counted(store: Store):
    queue = await a_queue(store)
    (shop,) = await scope_ids(store, SHOP)
    tasks = [await grant(store, queue, f"r{n}-1", f" {shop} ") for n in range(20)]
    await record(store, lambda tx: tx.scopes.settle(ScopeState(shop, SHOP, 20)))
    await asyncio.gather(*(end(store, task) for task in tasks))
    assert (await locked(store, shop))[0].running == 0


async def test_an_end_that_was_refused_is_not_counted(store: Store):
    queue = await a_queue(store)
    (shop,) = await scope_ids(store, SHOP)
    task = await grant(store, queue, "r1-1", f" {shop} ")
    await record(store, lambda tx: tx.scopes.settle(ScopeState(shop, SHOP, 1)))

    async def give_up(tx: Tx) -> None:
        tx.tasks.save(released(task, TaskState.DONE), TaskState.LEASED)

    await refuse(store, give_up)
    assert (await locked(store, shop))[0].running == 1
    await end(store, task)
    assert (await locked(store, shop))[0].running == 0


async def test_a_lease_that_only_the_queue_counts_rings_its_bell_and_changes_no_key(
    store: Store, wakeups: LocalWakeups
):
    queue = await a_queue(store)
    task = await grant(store, queue, "r1-1", counted=2, key="tenant")
    await record(store, lambda tx: tx.policies.spend(queue.queue_id, "tenant", None, 4))
    listener = Listener(wakeups, queue_topic(queue.queue_id))
    await end(store, task)
    await listener.until(queue_topic(queue.queue_id))
    keys = await look(store, lambda tx: tx.policies.key_states(queue.queue_id, ["tenant"]))
    assert keys["tenant"].running == 4


async def test_a_lease_handed_out_ahead_of_time_does_not_run(store: Store):
    queue = await a_queue(store)
    ahead = await grant(store, queue, "r1-1", claimed=1)
    await grant(store, queue, "r2-1")
    assert await look(store, lambda tx: tx.queues.running(queue.queue_id, 9)) == 1
    await record(store, lambda tx: tx.tasks.save(replace(ahead, claimed=0), TaskState.LEASED))
    assert await look(store, lambda tx: tx.queues.running(queue.queue_id, 9)) == 2
    assert await look(store, lambda tx: tx.queues.running(queue.queue_id, 1)) == 1


async def test_what_a_task_is_estimated_to_cost_stays_with_it(store: Store):
    queue = await a_queue(store)
    await enqueue(store, a_task(queue, "r1-1", cost=250))
    (task,) = await claim(store, queue.queue_id, 1)
    assert task.cost == 250
    await end(store, task, TaskState.READY)
    (again,) = await claim(store, queue.queue_id, 1)
    assert again.cost == 250


# ── A scope that begins to limit a line counts what the line leases ─────────────────────────────────────


async def test_a_scope_adopts_each_lease_once(store: Store):
    queue, other = await a_queue(store), await a_queue(store, name="refunds")
    shop, everything = await scope_ids(store, SHOP, ALL)
    await grant(store, queue, "r1-1", f" {everything} ")
    await grant(store, queue, "r2-1")
    await grant(store, queue, "r3-1", claimed=1)
    await grant(store, other, "r4-1")
    await enqueue(store, a_task(queue, "r5-1"))

    async def adopt(number: int, *lines: Queue) -> int:
        numbers = [line.queue_id for line in lines]
        return await store.transact(
            lambda tx: tx.scopes.adopt(number, numbers), key="admission", tx_class=TransactionClass.CHANGE
        )

    assert await adopt(shop, queue) == 2
    assert await adopt(shop, queue, other) == 1
    assert await adopt(shop, queue, other) == 0
    assert await adopt(everything, queue) == 1, "one of them it counts already"
    scopes = {
        task.task_id: set(task.scopes.split())
        for task in await look(store, lambda tx: tx.tasks.leases_on(queue.queue_id, 9))
    }
    both = {str(shop), str(everything)}
    assert scopes == {"r1-1": both, "r2-1": both, "r3-1": set()}


async def test_adopted_leases_are_counted_held_and_listed_those_that_end_first_at_the_front(store: Store):
    queue, other = await a_queue(store), await a_queue(store, name="refunds")
    (shop,) = await scope_ids(store, SHOP)
    lines = [queue.queue_id, other.queue_id]
    await grant(store, queue, "r1-1", f" {shop} ", lease_expires_at_ms=NOW_MS + 9_000)
    await grant(store, queue, "r2-1", f" {shop} 77777 ", lease_expires_at_ms=NOW_MS + 1_000)
    await grant(store, queue, "r3-1", f" {shop}{shop} ")
    await grant(store, other, "r4-1", f" 77777 {shop} ")
    assert await look(store, lambda tx: tx.scopes.counted(shop, lines)) == 3
    assert await look(store, lambda tx: tx.scopes.counted(shop, lines[:1])) == 2
    held = await store.transact(
        lambda tx: tx.scopes.hold(shop, lines), key="check", tx_class=TransactionClass.CHANGE
    )
    assert held == 3
    holders = await look(store, lambda tx: tx.scopes.holders(shop, [queue.queue_id], 9))
    assert ids(holders) == ["r2-1", "r1-1"]
    assert ids(await look(store, lambda tx: tx.scopes.holders(shop, [queue.queue_id], 1))) == ["r2-1"]


async def test_an_adopted_lease_ends_in_the_scope_that_adopted_it(store: Store):
    queue = await a_queue(store)
    tasks = [await grant(store, queue, f"r{n}-1") for n in range(3)]
    await limit(store, SHOP, max_running=2)
    assert (await scope_now(store, SHOP)).running == 3
    await enqueue(store, a_task(queue, "r9-1"))
    assert await claim(store, queue.queue_id, 1) == [], "more run than the new limit allows"
    await end(store, tasks[0])
    assert await claim(store, queue.queue_id, 1) == []
    await end(store, tasks[1], TaskState.CANCELLED)
    assert ids(await claim(store, queue.queue_id, 5)) == ["r9-1"]
    assert (await scope_now(store, SHOP)).running == 2


async def test_an_adoption_that_was_refused_counts_nothing(store: Store):
    queue = await a_queue(store)
    task = await grant(store, queue, "r1-1")
    (shop,) = await scope_ids(store, SHOP)
    await refuse(store, lambda tx: tx.scopes.adopt(shop, [queue.queue_id]))
    assert await look(store, lambda tx: tx.scopes.counted(shop, [queue.queue_id])) == 0
    await end(store, task)
    assert (await locked(store, shop))[0].ended == 0


async def test_queues_of_one_scope_share_its_limit(store: Store):
    orders, refunds = await a_queue(store), await a_queue(store, name="refunds")
    await limit(store, SHOP, max_running=3)
    await enqueue(store, *(a_task(orders, f"r{n}-1") for n in range(5)))
    await enqueue(store, *(a_task(refunds, f"s{n}-1") for n in range(5)))
    first = await claim(store, orders.queue_id, 2)
    second = await claim(store, refunds.queue_id, 5)
    assert (len(first), len(second)) == (2, 1)
    assert await claim(store, orders.queue_id, 1) == []
    await end(store, second[0])
    assert len(await claim(store, orders.queue_id, 5)) == 1
    assert (await scope_now(store, SHOP)).running == 3


# ── Costs and cool-downs ────────────────────────────────────────────────────────────────────────────────


async def test_what_tasks_cost_more_or_less_is_taken_once(store: Store):
    shop, everything = await scope_ids(store, SHOP, ALL)
    await record(store, lambda tx: tx.scopes.settle(ScopeState(shop, SHOP, 2, costs=((1_790_000_000, 50),))))

    def cost(tx: Tx) -> None:
        tx.scopes.settle_cost(shop, NOW_MS, -20)
        tx.scopes.settle_cost(shop, NOW_MS + 1, 5)
        tx.scopes.settle_cost(everything, NOW_MS, 5)

    async def take(number: int) -> list[tuple[int, int]]:
        found = await store.transact(
            lambda tx: tx.scopes.settlements(number), key="claim", tx_class=TransactionClass.CLAIM
        )
        return sorted(found)

    await record(store, cost)
    await refuse(store, lambda tx: tx.scopes.settlements(shop))
    assert await take(shop) == [(NOW_MS, -20), (NOW_MS + 1, 5)]
    assert await take(shop) == []
    assert await take(everything) == [], "it counts no cost"


async def test_a_scope_stays_closed_until_the_later_moment(store: Store):
    shop, everything = await scope_ids(store, SHOP, ALL)
    await record(store, lambda tx: tx.scopes.cool(shop, NOW_MS + 500))
    await record(
        store,
        lambda tx: tx.scopes.settle(ScopeState(shop, SHOP, 3, cool_until_ms=NOW_MS + 500, cool_given=3)),
    )
    await record(store, lambda tx: tx.scopes.cool(shop, NOW_MS + 100))
    assert await locked(store, shop) == [ScopeState(shop, SHOP, 3, cool_until_ms=NOW_MS + 500)]
    await record(store, lambda tx: tx.scopes.cool(shop, NOW_MS + 900))
    assert (await locked(store, shop))[0].cool_until_ms == NOW_MS + 900
    assert (await locked(store, everything))[0].cool_until_ms is None


async def test_of_many_refusals_upstream_at_once_the_latest_moment_holds(store: Store):
    (shop,) = await scope_ids(store, SHOP)
    await asyncio.gather(
        *(record(store, lambda tx, n=n: tx.scopes.cool(shop, NOW_MS + n), key=f"r{n}") for n in range(9))  # type: ignore[misc]
    )
    assert (await locked(store, shop))[0].cool_until_ms == NOW_MS + 8


# ── What is in force ────────────────────────────────────────────────────────────────────────────────────


async def test_nothing_is_limited_until_somebody_says_so(store: Store):
    queue = await a_queue(store)
    admission = await look(store, lambda tx: tx.scopes.admission())
    assert admission.is_empty
    assert admission.declared_by is None
    assert not queue.limits.scopes


async def test_what_operators_set_is_kept_whole_beside_what_is_declared(store: Store):
    await a_queue(store)
    (shop,) = await scope_ids(store, SHOP)
    await scope_ids(store, ALL)
    await declare(store, DECLARED)
    await record(store, lambda tx: tx.scopes.save_policy(shop, CAPPED))
    admission = await look(store, lambda tx: tx.scopes.admission())
    assert admission.declaration == DECLARED
    assert admission.declared_by == "server-1"
    assert admission.declared_at_ms is not None
    assert [(row.scope_id, row.name, row.policy) for row in admission.rows] == [(shop, SHOP, CAPPED)]
    assert await store.transact(lambda tx: tx.scopes.lock_admission(), key="admission") == admission


async def test_every_stamp_makes_a_new_version_of_what_is_in_force(store: Store):
    async def version() -> int:
        return (await look(store, lambda tx: tx.scopes.admission())).version

    before = await version()
    await declare(store, DECLARED, "first")
    assert await version() == before + 1
    await limit(store, SHOP, max_running=1)
    assert await version() == before + 2


@pytest.mark.parametrize("address", ["sqlite", "postgres"], indirect=True)
async def test_limits_survive_a_restart(store: Store, reopened: Callable[[], Awaitable[Store]]):
    queue = await a_queue(store)
    await declare(store, DECLARED)
    await limit(store, SHOP, max_running=4)
    before = await queue_now(store, queue.queue_id)
    again = await reopened()
    assert (await queue_now(again, queue.queue_id)).limits == before.limits
    assert (await a_queue(again)).limits == before.limits


async def test_the_log_of_a_scope_tells_the_newest_change_first_and_forgets_the_oldest(store: Store):
    changes = [
        PolicyChange(version, NOW_MS, "ann", setting_name, None, None, "3", "süß")
        for version in (1, 2, 3)
        for setting_name in ("max_running", "dispatch_window")
    ]
    for version in range(3):
        written = changes[2 * version : 2 * version + 2]
        await record(store, lambda tx, written=written: tx.scopes.log(SHOP, written))  # type: ignore[misc]
    await record(store, lambda tx: tx.scopes.log(ALL, changes[:1]))
    expected = [*changes[4:], *changes[2:4], *changes[:2]]
    assert await look(store, lambda tx: tx.scopes.changes(SHOP, 99)) == expected
    assert await look(store, lambda tx: tx.scopes.changes(SHOP, 3)) == expected[:3]
    await record(store, lambda tx: tx.scopes.forget_changes(SHOP, 2))
    assert await look(store, lambda tx: tx.scopes.changes(SHOP, 99)) == expected[:2]
    assert await look(store, lambda tx: tx.scopes.changes(ALL, 99)) == changes[:1]


# ── How lines come to know ──────────────────────────────────────────────────────────────────────────────


async def test_a_declaration_holds_for_lines_that_are_there_and_for_those_to_come(store: Store):
    orders = await a_queue(store)
    assert (await queue_now(store, orders.queue_id)).limits.leases is None
    await declare(store, DECLARED)
    later = await a_queue(store, name="refunds")
    for queue, dispatches in ((orders, 7), (later, None)):
        (found,) = await look(store, lambda tx, queue=queue: tx.queues.find("default", queue.name))  # type: ignore[misc]
        for limits in (found.limits, (await queue_now(store, queue.queue_id)).limits):
            assert (limits.leases, limits.dispatches, limits.group) == (5, dispatches, "bank")
            (bank,) = limits.scopes
            assert (bank.name, bank.leases, bank.cost, bank.window) == (
                "group:default/bank",
                2,
                900,
                Window.SLIDING,
            )
    assert later.limits.leases == 5


async def test_a_later_declaration_takes_the_place_of_the_one_before(store: Store):
    queue = await a_queue(store)
    await declare(store, DECLARED, "first")
    assert (await queue_now(store, queue.queue_id)).limits.leases == 5
    await declare(store, Declaration(defaults={"activity": {LimitField.QUEUE_LEASES: 6}}), "second")
    limits = (await queue_now(store, queue.queue_id)).limits
    assert (limits.leases, limits.group, limits.scopes) == (6, None, ())
    await declare(store, Declaration(), "third")
    assert (await queue_now(store, queue.queue_id)).limits.leases is None


async def test_limits_of_one_namespace_leave_the_lines_of_another_as_they_are(store: Store):
    mine, theirs = await a_queue(store), await a_queue(store, namespace="other")
    await limit(store, "namespace:other", "other", max_running=9)
    before = (await queue_now(store, theirs.queue_id)).limits
    await limit(store, SHOP, max_running=1)
    await limit(store, SHOP, max_running=2)
    assert (await queue_now(store, theirs.queue_id)).limits == before
    assert [(each.name, each.leases) for each in before.scopes] == [("namespace:other", 9)]
    scopes = (await queue_now(store, mine.queue_id)).limits.scopes
    assert [(each.name, each.leases) for each in scopes] == [(SHOP, 2)]


async def test_the_lines_of_a_namespace_or_of_all_are_held_in_one_order(store: Store):
    queues = [await a_queue(store, name=name) for name in ("zebra", "apple")]
    theirs = await a_queue(store, namespace="other")

    async def lines(namespace: str | None) -> list[int]:
        found = await store.transact(
            lambda tx: tx.scopes.lock_queues(namespace), key="admission", tx_class=TransactionClass.CHANGE
        )
        return [line.queue_id for line in found]

    assert await lines("default") == sorted(queue.queue_id for queue in queues)
    assert await lines(None) == sorted(queue.queue_id for queue in (*queues, theirs))
    assert await lines("nobody") == []


async def test_a_change_that_was_refused_leaves_no_trace_in_what_is_in_force(store: Store):
    queue = await a_queue(store)
    await limit(store, SHOP, max_running=4)
    before = await look(store, lambda tx: tx.scopes.admission())

    async def change(tx: Tx) -> None:
        await tx.scopes.lock_admission()
        lines = await tx.scopes.lock_queues(None)
        (everything,) = await tx.scopes.ids([ALL])
        tx.scopes.declare(DECLARED, "server-1")
        tx.scopes.save_policy(everything, CAPPED)
        tx.scopes.log(ALL, [PolicyChange(1, NOW_MS, "ann", "max_running", None, None, "3", None)])
        tx.scopes.stamp("again", [line.queue_id for line in lines])

    await refuse(store, change)
    assert await look(store, lambda tx: tx.scopes.admission()) == before
    assert await look(store, lambda tx: tx.scopes.changes(ALL, 9)) == []
    limits = (await queue_now(store, queue.queue_id)).limits
    assert (limits.leases, [each.name for each in limits.scopes]) == (None, [SHOP])
    await declare(store, Declaration(defaults={"activity": {LimitField.QUEUE_LEASES: 8}}), "again")
    assert (await queue_now(store, queue.queue_id)).limits.leases == 8


async def test_a_setting_that_ends_by_itself_stops_to_hold_without_a_change(store: Store):
    queue = await a_queue(store)
    (shop,) = await scope_ids(store, SHOP)

    async def set_until(tx: Tx) -> None:
        ended = SettingValue(1, "ann", NOW_MS, None, tx.now_ms)
        lasting = SettingValue(30, "ann", NOW_MS, None, tx.now_ms + 3_600_000)
        tx.scopes.save_policy(
            shop, Policy(1, {LimitSetting.LEASE_CAP: ended, LimitSetting.DISPATCHES: lasting})
        )
        tx.scopes.stamp("until", [queue.queue_id])

    await store.transact(set_until, key="admission", tx_class=TransactionClass.CHANGE)
    (rules,) = (await queue_now(store, queue.queue_id)).limits.scopes
    assert (rules.leases, rules.dispatches) == (None, 30)


# ── Windows ─────────────────────────────────────────────────────────────────────────────────────────────


async def test_what_a_line_gave_in_the_last_minute_is_kept_with_it(store: Store):
    queue = await a_queue(store)
    window = ((1_790_000_000, 2), (1_790_000_007, 1))
    await record(store, lambda tx: tx.policies.settle(queue.queue_id, 0, 0, window))
    assert (await queue_now(store, queue.queue_id)).window == window
    await record(store, lambda tx: tx.policies.settle(queue.queue_id, 0, 0, ()))
    assert (await queue_now(store, queue.queue_id)).window == ()


@pytest.mark.parametrize("address", ["sqlite", "postgres"], indirect=True)
@pytest.mark.parametrize("window", ["minute", "sliding"])
async def test_what_went_in_the_last_minute_is_not_forgotten_over_a_restart(
    store: Store, reopened: Callable[[], Awaitable[Store]], window: str
):
    queue = await a_queue(store)
    await limit(store, SHOP, max_dispatches_per_minute=3, dispatch_window=window)
    await enqueue(store, *(a_task(queue, f"r{n}-1") for n in range(6)))
    minute = NOW_MS - NOW_MS % 60_000
    assert len(await claim(store, queue.queue_id, 2, now_ms=minute)) == 2
    again = await reopened()
    assert len(await claim(again, queue.queue_id, 5, now_ms=minute + 59_999)) == 1
    left = 3 if window == "minute" else 0
    assert len(await claim(again, queue.queue_id, 5, now_ms=minute + 60_000)) == left
