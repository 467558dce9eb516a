"""Worker registrations and heartbeats."""

from __future__ import annotations

from msgspec.structs import replace

from penstock.core.model import WorkerStatus
from penstock.core.scheduling.cohorts import is_known_dead, status_now
from penstock.ports.store import Store, Tx
from tests.stores.store_operations import look, record
from tests.support.builders import NOW_MS, a_worker


async def test_a_worker_is_found_as_it_registered(store: Store):
    worker = a_worker(
        build_id="build-1",
        task_slots={"activity": {"available": 3}},
        process_metrics={"rss": 1.5, "threads": [1, 2]},
    )
    await record(store, lambda tx: tx.workers.save(worker))
    assert await look(store, lambda tx: tx.workers.get("default", "worker-1")) == worker
    assert await look(store, lambda tx: tx.workers.get("other", "worker-1")) is None


async def test_several_workers_are_found_in_the_order_asked(store: Store):
    await record(store, lambda tx: tx.workers.save(a_worker("w1")))
    await record(store, lambda tx: tx.workers.save(a_worker("w2")))
    found = await look(store, lambda tx: tx.workers.get_many("default", ["w2", "nobody", "w1"]))
    assert found == [a_worker("w2"), None, a_worker("w1")]
    assert await look(store, lambda tx: tx.workers.get_many("other", ["w1"])) == [None]


async def test_a_worker_that_registers_again_replaces_what_it_said_before(store: Store):
    again = a_worker(task_queue="refunds", workflow_types=(), status=WorkerStatus.DRAINING, sdk_version=None)
    await record(store, lambda tx: tx.workers.save(a_worker()))
    await record(store, lambda tx: tx.workers.save(again))
    assert await look(store, lambda tx: tx.workers.list("default", None)) == [again]


async def test_workers_are_listed_by_queue_or_all_the_freshest_first(store: Store):
    def write(tx: Tx) -> None:
        tx.workers.save(a_worker("w1"))
        tx.workers.save(a_worker("w2", heartbeat_at_ms=NOW_MS + 1))
        tx.workers.save(a_worker("w0", task_queue="refunds"))
        tx.workers.save(a_worker("w4", namespace="other"))

    await record(store, write)
    everyone = await look(store, lambda tx: tx.workers.list("default", None))
    assert [worker.worker_id for worker in everyone] == ["w2", "w0", "w1"]
    orders = await look(store, lambda tx: tx.workers.list("default", "orders"))
    assert [worker.worker_id for worker in orders] == ["w2", "w1"]


async def test_a_touch_moves_the_heartbeat_forwards_and_never_back(store: Store):
    await record(store, lambda tx: tx.workers.save(a_worker()))
    await record(store, lambda tx: tx.workers.touch("default", "worker-1", NOW_MS + 9))
    await record(store, lambda tx: tx.workers.touch("default", "worker-1", NOW_MS + 5))
    expected = replace(a_worker(), heartbeat_at_ms=NOW_MS + 9)
    assert await look(store, lambda tx: tx.workers.get("default", "worker-1")) == expected


async def test_a_worker_that_is_marked_as_dead_is_alive_once_it_is_heard_again(store: Store):
    await record(store, lambda tx: tx.workers.save(a_worker(heartbeat_at_ms=NOW_MS - 1)))
    await record(store, lambda tx: tx.workers.mark(a_worker(), WorkerStatus.STALE))
    dead = await look(store, lambda tx: tx.workers.get("default", "worker-1"))
    assert dead is not None
    assert is_known_dead(dead)
    heard_at_ms = dead.updated_at_ms + 1
    await record(store, lambda tx: tx.workers.touch("default", "worker-1", heard_at_ms))
    heard = await look(store, lambda tx: tx.workers.get("default", "worker-1"))
    assert heard is not None
    assert not is_known_dead(heard)
    assert status_now(heard, heard_at_ms, 1_000) is WorkerStatus.ACTIVE


async def test_touching_a_worker_that_is_gone_brings_nothing_back(store: Store):
    await record(store, lambda tx: tx.workers.save(a_worker()))
    await record(store, lambda tx: tx.workers.delete("default", "worker-1"))
    await record(store, lambda tx: tx.workers.touch("default", "worker-1", NOW_MS + 9))
    assert await look(store, lambda tx: tx.workers.list("default", None)) == []
