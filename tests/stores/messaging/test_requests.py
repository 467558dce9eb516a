"""Accepted requests by the caller's request id."""

from __future__ import annotations

import asyncio

import pytest

from penstock.core.model import RetainedRequest, RunId
from penstock.ports.store import Store, Tx
from tests.stores.store_operations import look, record
from tests.support.builders import a_request


async def insert(store: Store, *requests: RetainedRequest) -> None:
    def write(tx: Tx) -> None:
        for request in requests:
            tx.requests.insert(request)

    await record(store, write)


async def find(
    store: Store,
    request_id: str,
    namespace: str = "default",
    workflow_id: str = "order-1",
    kind: str = "signal",
) -> RetainedRequest | None:
    return await look(store, lambda tx: tx.requests.get(namespace, workflow_id, kind, request_id))


async def test_a_request_is_found_with_the_receipt_that_its_sender_got(store: Store):
    request = a_request(number=12, name="zahlen", digest="d1", receipt='{"command_id":"r1-s12","ü":1}')
    await insert(store, request)
    assert await find(store, "request-1") == request
    assert await find(store, "request-2") is None


async def test_one_id_means_another_request_in_another_namespace_workflow_or_kind(store: Store):
    here = a_request()
    others = [
        a_request(namespace="other", run_id="r2"),
        a_request(workflow_id="order-2", run_id="r3"),
        a_request(kind="update", number=2),
    ]
    await insert(store, here, *others)
    assert await find(store, "request-1") == here
    assert await find(store, "request-1", namespace="other") == others[0]
    assert await find(store, "request-1", workflow_id="order-2") == others[1]
    assert await find(store, "request-1", kind="update") == others[2]
    assert await find(store, "request-1", kind="cancel") is None


async def test_the_requests_of_a_run_come_in_the_order_of_acceptance(store: Store):
    tenth, second = a_request("a", number=10), a_request("b", number=2, kind="update")
    await insert(store, tenth, second, a_request("c", run_id="r2"))
    assert await look(store, lambda tx: tx.requests.all_of(RunId("r1"))) == [second, tenth]
    assert await look(store, lambda tx: tx.requests.all_of(RunId("nobody"))) == []


async def test_of_many_equal_requests_at_once_one_is_kept(store: Store):
    async def accept(number: int) -> RetainedRequest | BaseException:
        request = a_request(number=number)
        try:
            await record(store, lambda tx: tx.requests.insert(request), key=f"sender-{number}")
        except Exception as refusal:
            return refusal
        return request

    answers = await asyncio.gather(*(accept(number) for number in range(8)))
    stored = [answer for answer in answers if isinstance(answer, RetainedRequest)]
    assert len(stored) == 1
    assert await look(store, lambda tx: tx.requests.all_of(RunId("r1"))) == stored


async def test_a_request_is_accepted_once(store: Store):
    await insert(store, a_request())
    with pytest.raises(Exception, match=r"(?i)unique|duplicate|was accepted"):
        await insert(store, a_request(number=2))
    assert await find(store, "request-1") == a_request()
