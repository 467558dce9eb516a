"""Runs and the workflow ids that name them."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from msgspec.structs import replace

from penstock.core.model import Blob, Instance, Lineage, ReplayBlock, Run, RunHost, RunId, RunStatus
from penstock.core.waits import ConditionWait, Waits
from penstock.ports.store import Store, Tx
from penstock.ports.tables.runs import RunFilter
from penstock.ports.tables.visibility import PageStart
from tests.stores.store_operations import look, record
from tests.support.builders import NOW_MS, a_run, an_instance

EVERY = RunFilter(namespace="default", host=RunHost.WORKFLOW)


async def insert(store: Store, *runs: Run) -> None:
    def write(tx: Tx) -> None:
        for run in runs:
            tx.runs.insert(run)

    await record(store, write)


async def page(
    store: Store, narrow: RunFilter, after: PageStart | None = None, limit: int = 100
) -> list[str]:
    found = await look(store, lambda tx: tx.runs.page(narrow, after, limit))
    return [run.run_id for run in found]


async def reserve(store: Store, instance: Instance) -> Instance:
    async def operation(tx: Tx) -> Instance:
        return await tx.runs.reserve(instance)

    return await store.transact(operation, key=f"start:{instance.run_id}")


async def test_a_workflow_id_is_found_with_its_last_run_or_the_one_that_is_named(store: Store):
    await reserve(store, an_instance(run_id="r2"))
    await insert(store, a_run("r1"), a_run("r2"))

    async def named(run_id: str | None, workflow_id: str = "order-1") -> tuple[str, str | None] | None:
        wanted = None if run_id is None else RunId(run_id)
        found = await look(store, lambda tx: tx.runs.named("default", workflow_id, wanted))
        return None if found is None else (found[0].run_id, found[1].run_id if found[1] else None)

    assert await named(None) == ("r2", "r2")
    assert await named("r1") == ("r2", "r1")
    assert await named("r9") == ("r2", None)
    assert await named(None, "order-9") is None


async def test_a_workflow_id_belongs_to_whoever_reserved_it_first(store: Store):
    first, second = an_instance(run_id="r1"), an_instance(run_id="r2")
    assert await reserve(store, first) == first
    assert await reserve(store, second) == first
    assert await look(store, lambda tx: tx.runs.instance("default", "order-1")) == first


async def test_many_starts_racing_for_one_workflow_id_agree_on_one_run(store: Store):
    answers = await asyncio.gather(*(reserve(store, an_instance(run_id=f"r{n}")) for n in range(20)))
    assert len(set(answers)) == 1
    assert answers[0] == await look(store, lambda tx: tx.runs.instance("default", "order-1"))


async def test_one_workflow_id_in_two_namespaces_is_two_workflows(store: Store):
    here, there = an_instance(namespace="a", run_id="r1"), an_instance(namespace="b", run_id="r2")
    assert await reserve(store, here) == here
    assert await reserve(store, there) == there


async def test_a_run_is_found_with_every_field_it_was_started_with(store: Store):
    run = a_run(
        business_key="customer-7",
        level=0,
        key="tenant-ü",
        weight_milli=1,
        compatibility="build-1",
        input=Blob("wwE="),
        memo='{"note":"ä"}',
        search_attributes='{"Region":"ö"}',
        execution_timeout_s=5,
        run_timeout_s=4,
        execution_deadline_at_ms=NOW_MS + 5000,
        run_deadline_at_ms=NOW_MS + 4000,
        deadline_at_ms=NOW_MS + 4000,
        start_key="idempotent",
        lineage=Lineage(parent_run_id=RunId("r0"), parent_step=3),
        waits=Waits(old=True),
    )
    await insert(store, run)
    assert await look(store, lambda tx: tx.runs.get(RunId("r1"))) == run
    assert await look(store, lambda tx: tx.runs.get(RunId("nobody"))) is None


async def test_several_runs_are_found_in_the_order_asked(store: Store):
    await insert(store, a_run("r1"), a_run("r2"))
    asked = [RunId(name) for name in ("r2", "nobody", "r1", "r2")]
    found = await look(store, lambda tx: tx.runs.get_many(asked))
    assert found == [a_run("r2"), None, a_run("r1"), a_run("r2")]
    assert await look(store, lambda tx: tx.runs.get_many([])) == []


async def test_a_saved_run_shows_what_changed(store: Store):
    run = a_run(deadline_at_ms=NOW_MS)
    await insert(store, run)
    changed = replace(
        run,
        status=RunStatus.FAILED,
        closed_reason="failed",
        output=Blob("wwE="),
        closed_at_ms=NOW_MS + 9,
        last_progress_at_ms=NOW_MS + 8,
        deadline_at_ms=None,
        last_sequence=7,
        last_step=6,
        last_task=5,
        open_activities=4,
        open_timers=3,
        buffered=2,
        task_failures=1,
        task_error="boom",
        open_children=2,
        open_updates=3,
        unseen_signals=4,
        last_request=5,
        owed=1,
        waits=Waits(condition=ConditionWait("w1", step=6)),
        archived_at_ms=NOW_MS + 10,
    )

    async def operation(tx: Tx) -> None:
        assert await tx.runs.lock(RunId("r1")) == run
        tx.runs.save(changed)

    await store.transact(operation, key="r1")
    assert await look(store, lambda tx: tx.runs.get(RunId("r1"))) == changed


async def find(store: Store, run_id: str = "r1") -> Run:
    run = await look(store, lambda tx: tx.runs.get(RunId(run_id)))
    assert run is not None
    return run


async def test_saving_a_run_leaves_its_memo_and_search_attributes_as_they_are(store: Store):
    run = a_run(memo='{"note":"old"}', search_attributes='{"Region":"eu"}')
    await insert(store, run)
    await record(store, lambda tx: tx.runs.save(replace(run, last_step=3, memo="{}", search_attributes="{}")))
    assert await find(store) == replace(run, last_step=3)


async def test_memo_and_search_attributes_are_saved_without_anything_else(store: Store):
    run = a_run(memo='{"note":"old"}')
    await insert(store, run, a_run("r2"))
    changed = replace(run, memo='{"note":"ü"}', search_attributes='{"Region":"eu"}')
    await record(store, lambda tx: tx.runs.save_attributes(replace(changed, last_step=9)))
    assert await find(store) == changed
    assert await find(store, "r2") == a_run("r2")


async def test_a_run_and_its_attributes_are_saved_in_one_operation_in_either_order(store: Store):
    run, other = a_run("r1"), a_run("r2")
    await insert(store, run, other)

    def write(tx: Tx) -> None:
        tx.runs.save_attributes(replace(run, memo='{"n":1}'))
        tx.runs.save(replace(run, last_step=1))
        tx.runs.save(replace(other, last_step=2))
        tx.runs.save_attributes(replace(other, memo='{"n":2}'))

    await record(store, write)
    assert await find(store, "r1") == replace(run, last_step=1, memo='{"n":1}')
    assert await find(store, "r2") == replace(other, last_step=2, memo='{"n":2}')


async def test_a_workflow_id_names_its_next_run_and_no_other_id_does(store: Store):
    here, there = an_instance("order-1", "r1"), an_instance("order-1", "r9", namespace="other")
    await reserve(store, here)
    await reserve(store, there)
    following = replace(here, run_id=RunId("r2"), run_count=2)
    await record(store, lambda tx: tx.runs.succeed(following))
    assert await look(store, lambda tx: tx.runs.instance("default", "order-1")) == following
    assert await look(store, lambda tx: tx.runs.instance("other", "order-1")) == there
    assert await reserve(store, an_instance("order-1", "r3")) == following


async def test_blocked_runs_are_found_by_queue_in_the_order_of_their_ids(store: Store):
    block = ReplayBlock(sequence=5, recorded=("ActivityScheduled",), yielded="TimerScheduled")
    await insert(
        store,
        a_run("r3", blocked=block),
        a_run("r1", blocked=block),
        a_run("r2", blocked=block),
        a_run("going"),
        a_run("elsewhere", blocked=block, namespace="other"),
        a_run("refund", blocked=block, task_queue="refunds"),
    )
    assert await look(store, lambda tx: tx.runs.blocked("default", "orders", 10)) == ["r1", "r2", "r3"]
    assert await look(store, lambda tx: tx.runs.blocked("default", "orders", 2)) == ["r1", "r2"]
    assert await look(store, lambda tx: tx.runs.blocked("other", "orders", 10)) == ["elsewhere"]
    assert await look(store, lambda tx: tx.runs.blocked("default", "nobody", 10)) == []


async def test_a_run_is_blocked_from_one_save_to_another(store: Store):
    run = a_run()
    await insert(store, run)
    await record(store, lambda tx: tx.runs.save(replace(run, blocked=ReplayBlock(sequence=5))))
    assert await look(store, lambda tx: tx.runs.blocked("default", "orders", 10)) == ["r1"]
    assert (await find(store)).blocked == ReplayBlock(sequence=5)
    await record(store, lambda tx: tx.runs.save(run))
    assert await look(store, lambda tx: tx.runs.blocked("default", "orders", 10)) == []
    assert await find(store) == run


@pytest.mark.parametrize(
    "count",
    ["open_activities", "open_timers", "open_children", "open_updates", "unseen_signals", "buffered"],
)
async def test_no_more_can_end_than_is_open(store: Store, count: str):
    await insert(store, a_run())
    too_few: dict[str, Any] = {count: -1}
    with pytest.raises(Exception, match=r"(?i)check constraint|more ended"):
        await record(store, lambda tx: tx.runs.save(a_run(**too_few)))
    assert await find(store) == a_run()


async def test_the_runs_of_a_workflow_id_come_from_the_oldest_on_page_by_page(store: Store):
    runs = [a_run(f"r{n}", run_number=n, started_at_ms=NOW_MS + n) for n in (2, 10, 1)]
    await insert(store, *runs, a_run("other", workflow_id="order-2"))
    found = await look(store, lambda tx: tx.runs.of_instance("default", "order-1", None, 2))
    assert [run.run_id for run in found] == ["r1", "r2"]
    after = PageStart(found[-1].started_at_ms, found[-1].run_id)
    found = await look(store, lambda tx: tx.runs.of_instance("default", "order-1", after, 2))
    assert [run.run_id for run in found] == ["r10"]


async def test_runs_are_listed_newest_first_and_by_id_within_a_millisecond(store: Store):
    starts = {"a": 1, "b": 3, "c": 2, "d": 2}
    await insert(store, *(a_run(run_id, started_at_ms=NOW_MS + at) for run_id, at in starts.items()))
    assert await page(store, EVERY) == ["b", "d", "c", "a"]


async def test_a_page_goes_on_strictly_below_the_last_row_seen(store: Store):
    await insert(store, *(a_run(f"r{n}", started_at_ms=NOW_MS + n // 2) for n in range(7)))
    seen: list[str] = []
    after: PageStart | None = None
    for _ in range(4):
        found = await page(store, EVERY, after, limit=2)
        seen += found
        after = PageStart(NOW_MS + int(found[-1][1:]) // 2, found[-1])
    assert seen == ["r6", "r5", "r4", "r3", "r2", "r1", "r0"]
    assert await page(store, EVERY, after) == []


async def test_a_list_shows_one_namespace_and_one_kind_of_host(store: Store):
    other = a_run("r3", host=RunHost.ACTIVITY)
    await insert(store, a_run("r1"), a_run("r2", namespace="other"), other)
    assert await page(store, EVERY) == ["r1"]
    assert await page(store, replace(EVERY, host=RunHost.ACTIVITY)) == ["r3"]


@pytest.mark.parametrize("status", list(RunStatus))
async def test_a_run_is_listed_in_the_bucket_of_its_status_only(store: Store, status: RunStatus):
    await insert(store, a_run(status=status))
    found = [
        bucket
        for bucket in ("running", "completed", "failed")
        if await page(store, replace(EVERY, bucket=bucket))
    ]
    assert found == [status.bucket]


async def test_a_list_is_narrowed_by_type_and_by_part_of_an_id_or_business_key(store: Store):
    await insert(
        store,
        a_run("r1", workflow_type="Order", workflow_id="order-100%", business_key=None),
        a_run("r2", workflow_type="Refund", workflow_id="refund-1", business_key="Order-100%"),
        a_run("r3", workflow_type="Refund", workflow_id="refund-2", business_key="x_y"),
    )
    assert await page(store, replace(EVERY, type="Refund")) == ["r3", "r2"]
    assert await page(store, replace(EVERY, text="rder-100")) == ["r2", "r1"]
    assert await page(store, replace(EVERY, text="order-100%")) == ["r1"]
    assert await page(store, replace(EVERY, text="_")) == ["r3"]
    assert await page(store, replace(EVERY, text="%-")) == []


async def test_overdue_runs_are_the_open_ones_whose_deadline_has_come_earliest_first(store: Store):
    await insert(
        store,
        a_run("late", deadline_at_ms=NOW_MS - 1),
        a_run("now", deadline_at_ms=NOW_MS),
        a_run("later", deadline_at_ms=NOW_MS - 5),
        a_run("soon", deadline_at_ms=NOW_MS + 1),
        a_run("never"),
    )
    assert await look(store, lambda tx: tx.runs.overdue(NOW_MS, 10)) == ["later", "late", "now"]
    assert await look(store, lambda tx: tx.runs.overdue(NOW_MS, 1)) == ["later"]


async def test_a_run_that_closed_is_no_longer_overdue(store: Store):
    run = a_run(deadline_at_ms=NOW_MS)
    await insert(store, run)
    closed = replace(run, status=RunStatus.COMPLETED, closed_at_ms=NOW_MS, deadline_at_ms=None)
    await record(store, lambda tx: tx.runs.save(closed))
    assert await look(store, lambda tx: tx.runs.overdue(NOW_MS, 10)) == []


async def test_each_of_many_runs_is_found_where_it_was_asked_for(store: Store):
    """Twice if it was asked for twice; some are not there; names have whatever texts have."""
    names = ["r1", 'r"2', "r\\3", "rü-4", "r😀5", "[6]", "", "null"]

    def insert(tx: Tx) -> None:
        for each in names:
            tx.runs.insert(a_run(each, workflow_id=f"w-{each}"))

    await record(store, insert)
    asked = [*reversed(names), "nobody", "r1", 'r"2', "r", "R1"]
    found = await look(store, lambda tx: tx.runs.get_many([RunId(each) for each in asked]))
    expected = [each if each in names else None for each in asked]
    assert [None if run is None else run.run_id for run in found] == expected
