"""Updates: applied one after the other, each with one outcome."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from penstock.core.model import Blob, RunId, Update, UpdateStatus
from penstock.ports.store import Store, Tx
from tests.stores.store_operations import look, record
from tests.support.builders import NOW_MS, an_update

R1 = RunId("r1")


async def insert(store: Store, *updates: Update) -> None:
    def write(tx: Tx) -> None:
        for update in updates:
            tx.updates.insert(update)

    await record(store, write)


def closed(update: Update, status: UpdateStatus = UpdateStatus.COMPLETED) -> Update:
    return replace(update, status=status, outcome='{"result":"ü"}', closed_at_ms=NOW_MS + 5)


async def test_an_update_is_found_as_it_was_accepted(store: Store):
    update = an_update(namespace="other", name="ändern", arguments=Blob("wwE="), request_id="request-1")
    await insert(store, update)
    assert await look(store, lambda tx: tx.updates.get("u1")) == update
    assert await look(store, lambda tx: tx.updates.get("nobody")) is None


async def test_the_updates_of_a_run_come_in_the_order_of_acceptance(store: Store):
    third, first, tenth = an_update("a", number=3), an_update("c", number=1), an_update("b", number=10)
    await insert(store, third, first, tenth, an_update("other", run_id="r2"))
    assert await look(store, lambda tx: tx.updates.all_of(R1)) == [first, third, tenth]
    assert await look(store, lambda tx: tx.updates.accepted_of(R1)) == [first, third, tenth]
    assert await look(store, lambda tx: tx.updates.all_of(RunId("nobody"))) == []


async def test_the_next_update_is_the_first_accepted_one_that_has_no_outcome(store: Store):
    first, second = an_update("u1", number=1), an_update("u2", number=2)
    await insert(store, second, first, an_update("other", run_id="r2"))
    assert await look(store, lambda tx: tx.updates.next_accepted(R1)) == first
    await record(store, lambda tx: tx.updates.save(closed(first)))
    assert await look(store, lambda tx: tx.updates.next_accepted(R1)) == second
    await record(store, lambda tx: tx.updates.save(closed(second)))
    assert await look(store, lambda tx: tx.updates.next_accepted(R1)) is None


@pytest.mark.parametrize("status", [UpdateStatus.COMPLETED, UpdateStatus.FAILED])
async def test_a_closed_update_keeps_its_outcome_and_is_not_applied_again(store: Store, status: UpdateStatus):
    update, other = an_update("u1", number=1), an_update("u2", number=2)
    await insert(store, update, other)
    done = closed(update, status)
    await record(store, lambda tx: tx.updates.save(done))
    assert await look(store, lambda tx: tx.updates.get("u1")) == done
    assert await look(store, lambda tx: tx.updates.accepted_of(R1)) == [other]
    assert await look(store, lambda tx: tx.updates.all_of(R1)) == [done, other]


async def test_an_accepted_update_goes_on_to_the_run_that_continues_its_own(store: Store):
    done, waiting = an_update("u1", number=1), an_update("u2", number=2)
    await insert(store, done, waiting, an_update("u3", run_id="r2", number=3))
    await record(store, lambda tx: tx.updates.save(closed(done)))
    moved = replace(waiting, run_id=RunId("r2"))
    await record(store, lambda tx: tx.updates.save(moved))
    assert await look(store, lambda tx: tx.updates.get("u2")) == moved
    assert await look(store, lambda tx: tx.updates.all_of(R1)) == [closed(done)]
    assert await look(store, lambda tx: tx.updates.next_accepted(R1)) is None
    following = await look(store, lambda tx: tx.updates.accepted_of(RunId("r2")))
    assert [update.update_id for update in following] == ["u2", "u3"]
    await record(store, lambda tx: tx.updates.save(closed(moved)))
    assert await look(store, lambda tx: tx.updates.all_of(RunId("r2"))) == [closed(moved), following[1]]


async def test_an_update_id_is_used_once(store: Store):
    await insert(store, an_update())
    with pytest.raises(Exception, match=r"(?i)unique|duplicate|exists"):
        await insert(store, an_update(number=2, name="other"))
    assert await look(store, lambda tx: tx.updates.all_of(R1)) == [an_update()]
