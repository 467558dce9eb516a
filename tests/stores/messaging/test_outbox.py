"""The outbox: a message is inserted with its cause and deleted with its effect."""

from __future__ import annotations

import pytest

from penstock.core.model import OutboxKind, OutboxMessage, RunId
from penstock.ports.store import Store, Tx
from tests.stores.store_operations import look, record
from tests.support.builders import NOW_MS, a_letter, a_run


async def insert(store: Store, *letters: OutboxMessage) -> None:
    def write(tx: Tx) -> None:
        for letter in letters:
            tx.outbox.insert(letter)

    await record(store, write)


async def waiting(store: Store, limit: int = 100) -> list[str]:
    return [*await look(store, lambda tx: tx.outbox.waiting(limit))]


@pytest.mark.parametrize("kind", list(OutboxKind))
async def test_a_letter_is_found_as_it_was_written(store: Store, kind: OutboxKind):
    letter = a_letter(kind=kind, namespace="other", payload='{"step":3,"result":"ü"}')
    await insert(store, letter)
    assert await look(store, lambda tx: tx.outbox.get("letter-1")) == letter
    assert await look(store, lambda tx: tx.outbox.get("nobody")) is None


async def test_a_letter_may_name_no_run_and_go_to_whichever_is_current(store: Store):
    letter = a_letter(run_id="")
    await insert(store, letter)
    assert await look(store, lambda tx: tx.outbox.get("letter-1")) == letter


async def test_the_oldest_letters_are_delivered_first_and_by_id_within_a_millisecond(store: Store):
    written = {"d": 2, "a": 3, "c": 1, "B": 2, "b": 2}
    await insert(store, *(a_letter(name, created_at_ms=NOW_MS + at) for name, at in written.items()))
    assert await waiting(store) == ["c", "B", "b", "d", "a"]
    assert await waiting(store, limit=2) == ["c", "B"]


async def test_a_delivered_letter_does_not_wait_any_more(store: Store):
    await insert(store, a_letter("one"), a_letter("two"), a_letter("three"))

    def write(tx: Tx) -> None:
        tx.outbox.delete("one")
        tx.outbox.delete("three")

    await record(store, write)
    assert await waiting(store) == ["two"]
    assert await look(store, lambda tx: tx.outbox.get("one")) is None


async def test_a_letter_that_is_gone_can_be_deleted_again(store: Store):
    await record(store, lambda tx: tx.outbox.delete("gone"))
    assert await waiting(store) == []


async def test_a_letter_is_written_only_if_its_cause_is_recorded(store: Store):
    async def fails(tx: Tx) -> None:
        tx.runs.insert(a_run())
        tx.outbox.insert(a_letter())
        await tx.runs.get(RunId("r1"))
        raise LookupError("the sender thinks better of it")

    with pytest.raises(LookupError):
        await store.transact(fails, key="r1")
    assert await waiting(store) == []


async def test_a_letter_waits_on_when_its_delivery_fails(store: Store):
    await insert(store, a_letter())

    async def fails(tx: Tx) -> None:
        assert await tx.outbox.get("letter-1") is not None
        tx.outbox.delete("letter-1")
        raise LookupError("the receiver cannot be reached")

    with pytest.raises(LookupError):
        await store.transact(fails, key="r1")
    assert await waiting(store) == ["letter-1"]
