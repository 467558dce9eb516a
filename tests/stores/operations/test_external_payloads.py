"""Objects of external storage and their uses, on every store."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from msgspec.structs import replace

from penstock.core.external_payloads import ExternalPayload, PayloadState, reference_id
from penstock.core.model import Blob, RunId
from penstock.ports.store import Store, Tx
from penstock.ports.tables.external_payloads import StoredTotals
from tests.stores.store_operations import look, record
from tests.support.builders import NOW_MS, a_run

FIRST = ExternalPayload(
    reference_id(1), "default", '{"driver":"local"}', "a" * 64, 100, PayloadState.AVAILABLE, NOW_MS, 5
)
SECOND = replace(FIRST, reference_id=reference_id(2), size_bytes=50, check_at_ms=7)


async def hold(store: Store) -> None:
    for each in (FIRST, SECOND):
        await record(store, partial(_insert, payload=each))


def _insert(tx: Tx, payload: ExternalPayload) -> None:
    tx.external_payloads.insert(payload)


async def _due(tx: Tx, now_ms: int) -> Sequence[str]:
    return await tx.external_payloads.due(now_ms, 10)


async def release(store: Store, owner: str, most: int = 10) -> int:
    async def operation(tx: Tx) -> int:
        return await tx.external_payloads.release(owner, most, 99)

    return await store.transact(operation, key=owner)


async def test_an_object_is_found_as_it_was_recorded(store: Store):
    await hold(store)
    assert await look(store, lambda tx: tx.external_payloads.get(FIRST.reference_id)) == FIRST
    assert await look(store, lambda tx: tx.external_payloads.totals("default")) == StoredTotals(2, 150)
    assert await look(store, lambda tx: tx.external_payloads.totals("other")) == StoredTotals(0, 0)


async def test_objects_come_up_when_they_are_due_and_oldest_first(store: Store):
    await hold(store)
    for now_ms, due in ((4, []), (5, [FIRST]), (7, [FIRST, SECOND])):
        names = [each.reference_id for each in due]
        assert await look(store, partial(_due, now_ms=now_ms)) == names


async def test_a_run_uses_what_its_input_names_until_it_is_released(store: Store):
    await hold(store)
    run = replace(a_run(), input=Blob(FIRST.reference.blob))

    async def start(tx: Tx) -> None:
        tx.runs.insert(run)
        tx.external_payloads.settle(FIRST.reference_id, PayloadState.AVAILABLE, None)

    await store.transact(start, key=run.run_id)
    assert await look(store, lambda tx: tx.external_payloads.is_used(FIRST.reference_id))
    assert not await look(store, lambda tx: tx.external_payloads.is_used(SECOND.reference_id))
    assert await release(store, RunId("another")) == 0
    assert await release(store, run.run_id) == 1
    assert not await look(store, lambda tx: tx.external_payloads.is_used(FIRST.reference_id))
    found = await look(store, lambda tx: tx.external_payloads.get(FIRST.reference_id))
    assert found == replace(FIRST, check_at_ms=99)


async def test_a_text_that_only_looks_like_a_reference_is_no_use(store: Store):
    run = replace(a_run(), input=Blob(FIRST.reference.blob))
    await record(store, lambda tx: tx.runs.insert(run))
    assert await release(store, run.run_id) == 0
