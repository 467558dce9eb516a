"""Child runs by parent."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from penstock.core.model import ChildRun, ChildState, ClosePolicy, RunId
from penstock.ports.store import Store, Tx
from tests.stores.store_operations import look, record
from tests.support.builders import a_child

R1 = RunId("r1")


async def insert(store: Store, *children: ChildRun) -> None:
    def write(tx: Tx) -> None:
        for child in children:
            tx.children.insert(child)

    await record(store, write)


@pytest.mark.parametrize("policy", list(ClosePolicy))
async def test_a_child_is_found_as_it_was_started(store: Store, policy: ClosePolicy):
    child = a_child(step=7, namespace="other", policy=policy, extra='{"retry":{"max_attempts":3},"ü":null}')
    await insert(store, child, a_child("r2", step=7))
    assert await look(store, lambda tx: tx.children.get(R1, 7)) == child
    assert await look(store, lambda tx: tx.children.get(R1, 8)) is None
    assert await look(store, lambda tx: tx.children.get(RunId("nobody"), 7)) is None


async def test_the_children_of_a_run_come_in_the_order_of_their_steps(store: Store):
    ten, two, one = (a_child(step=step) for step in (10, 2, 1))
    await insert(store, ten, two, one, a_child("r2", step=3))
    assert await look(store, lambda tx: tx.children.all_of(R1)) == [one, two, ten]
    assert await look(store, lambda tx: tx.children.open_of(R1)) == [one, two, ten]
    assert await look(store, lambda tx: tx.children.all_of(RunId("nobody"))) == []


@pytest.mark.parametrize("state", [ChildState.CLOSED, ChildState.CANCELLED])
async def test_a_child_that_is_not_waited_for_any_more_is_not_open_but_kept(store: Store, state: ChildState):
    child, other = a_child(step=1), a_child(step=2)
    await insert(store, child, other)
    ended = replace(child, state=state)
    await record(store, lambda tx: tx.children.save(ended))
    assert await look(store, lambda tx: tx.children.open_of(R1)) == [other]
    assert await look(store, lambda tx: tx.children.all_of(R1)) == [ended, other]
    assert await look(store, lambda tx: tx.children.get(R1, 1)) == ended


async def test_many_children_start_and_end_in_one_operation(store: Store):
    children = [a_child(step=step) for step in range(1, 201)]
    await insert(store, *children)
    ended = [replace(child, state=ChildState.CLOSED) for child in children]

    def write(tx: Tx) -> None:
        for child in ended[1:]:
            tx.children.save(child)

    await record(store, write)
    assert await look(store, lambda tx: tx.children.open_of(R1)) == children[:1]
    assert await look(store, lambda tx: tx.children.all_of(R1)) == [*children[:1], *ended[1:]]


async def test_a_step_starts_one_child(store: Store):
    await insert(store, a_child())
    with pytest.raises(Exception, match=r"(?i)unique|duplicate|has a child"):
        await insert(store, a_child(workflow_id="another"))
    assert await look(store, lambda tx: tx.children.all_of(R1)) == [a_child()]
