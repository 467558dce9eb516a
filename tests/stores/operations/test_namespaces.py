"""Namespaces are reserved once, changed and deleted."""

from __future__ import annotations

from msgspec.structs import replace

from penstock.core.model import Namespace
from penstock.ports.store import Store, Tx
from tests.stores.store_operations import a_queue, look, record
from tests.support.builders import a_namespace, a_run, a_worker


async def reserve(store: Store, namespace: Namespace) -> bool:
    async def operation(tx: Tx) -> bool:
        return await tx.namespaces.reserve(namespace)

    return await store.transact(operation, key=f"namespace:{namespace.name}")


async def test_a_reserved_namespace_is_found_as_it_was_given(store: Store):
    shop = a_namespace("shop", description="Orders", external_storage='{"driver":"s3"}')
    assert await reserve(store, shop)
    assert await look(store, lambda tx: tx.namespaces.get("shop")) == shop


async def test_a_name_can_be_taken_only_once(store: Store):
    await reserve(store, a_namespace("shop", description="first"))
    assert not await reserve(store, a_namespace("shop", description="second"))
    found = await look(store, lambda tx: tx.namespaces.get("shop"))
    assert found is not None
    assert found.description == "first"


async def test_namespaces_are_listed_by_name(store: Store):
    for name in ("zoo", "Bar", "shop"):
        await reserve(store, a_namespace(name))
    listed = await look(store, lambda tx: tx.namespaces.list())
    assert [each.name for each in listed] == ["Bar", "shop", "zoo"]


async def test_a_saved_namespace_shows_the_change(store: Store):
    shop = a_namespace("shop")
    await reserve(store, shop)
    changed = replace(shop, description="new", retention_days=7, updated_at_ms=shop.updated_at_ms + 1)
    await record(store, lambda tx: tx.namespaces.save(changed))
    assert await look(store, lambda tx: tx.namespaces.get("shop")) == changed


async def test_a_deleted_namespace_is_gone_and_its_name_is_free(store: Store):
    await reserve(store, a_namespace("shop"))
    await record(store, lambda tx: tx.namespaces.delete("shop"))
    assert await look(store, lambda tx: tx.namespaces.get("shop")) is None
    assert await reserve(store, a_namespace("shop"))


async def test_a_namespace_with_a_run_is_not_empty(store: Store):
    await record(store, lambda tx: tx.runs.insert(a_run()))
    assert not await look(store, lambda tx: tx.namespaces.is_empty("default"))
    assert await look(store, lambda tx: tx.namespaces.is_empty("other"))


async def test_a_namespace_with_a_worker_is_not_empty(store: Store):
    await record(store, lambda tx: tx.workers.save(a_worker()))
    assert not await look(store, lambda tx: tx.namespaces.is_empty("default"))


async def test_a_namespace_with_a_task_queue_is_not_empty(store: Store):
    await a_queue(store)
    assert not await look(store, lambda tx: tx.namespaces.is_empty("default"))
