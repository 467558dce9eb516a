"""Cohorts: rollout settings of the workers of one build."""

from __future__ import annotations

from msgspec.structs import replace

from penstock.ports.store import Store, Tx
from tests.stores.store_operations import look, record
from tests.support.builders import NOW_MS, a_cohort


async def test_a_cohort_is_found_as_it_was_last_saved(store: Store):
    drained = replace(
        a_cohort(), drain_intent="draining", drained_at_ms=NOW_MS, promoted_at_ms=1, new_start_selected=1
    )
    await record(store, lambda tx: tx.cohorts.save(a_cohort()))
    await record(store, lambda tx: tx.cohorts.save(drained))
    assert await look(store, lambda tx: tx.cohorts.get("default", "orders", "build-1")) == drained
    assert await look(store, lambda tx: tx.cohorts.get("default", "orders", "build-2")) is None


async def test_the_promoted_cohort_is_the_one_that_new_starts_select(store: Store):
    assert await look(store, lambda tx: tx.cohorts.promoted("default", "orders")) is None
    chosen = a_cohort("b2", new_start_selected=1)

    def write(tx: Tx) -> None:
        tx.cohorts.save(a_cohort("b1"))
        tx.cohorts.save(chosen)
        tx.cohorts.save(a_cohort("b1", task_queue="refunds", new_start_selected=1))

    await record(store, write)
    assert await look(store, lambda tx: tx.cohorts.promoted("default", "orders")) == chosen


async def test_the_cohorts_of_a_queue_come_by_build_and_the_unnamed_build_is_one_of_them(store: Store):
    def write(tx: Tx) -> None:
        for build_id in ("b2", "", "b1"):
            tx.cohorts.save(a_cohort(build_id))
        tx.cohorts.save(a_cohort("b3", task_queue="refunds"))

    await record(store, write)
    found = await look(store, lambda tx: tx.cohorts.list("default", "orders"))
    assert [cohort.build_id for cohort in found] == ["", "b1", "b2"]
