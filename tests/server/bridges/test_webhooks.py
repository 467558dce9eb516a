"""Signed webhooks of declared adapters: what they do, and every way in which one is refused with nothing written."""

from __future__ import annotations

import asyncio
import json
import time
from typing import Any

import pytest

from tests.server.bridges.webhook import (
    SECRETS,
    deliver,
    fresh,
    github,
    send_order,
    standard,
    stripe,
)
from tests.server.client import Client, Reply

HOUR = 3600
START = {"action": "start_workflow", "idempotency_key": "k", "target": {"workflow_type": "t"}}


async def runs_in(client: Client, namespace: str = "default") -> int:
    listed = (await client.get("/api/workflows?page_size=200", namespace=namespace)).expect(200).json
    return len(listed["workflows"])


def unauthorized(reply: Reply, rejection_reason: str) -> None:
    body = reply.expect(401, "auth_failed").json
    assert (body["accepted"], body["outcome"]) == (False, "unauthorized")
    assert body["rejection_reason"] == rejection_reason
    assert body["message"]
    for secret in SECRETS.values():
        assert secret not in reply.raw.decode()


async def test_a_signed_webhook_starts_signals_and_updates_by_its_mapping(
    penstock_with_adapters: Client,
) -> None:
    client, order = penstock_with_adapters, int(time.time_ns())
    event = fresh("evt")
    placed = {"id": order, "customer": "acme", "lines": [1, 2]}
    first = (await send_order(client, "order.placed", event, **placed)).expect(202).json
    assert (first["workflow_id"], first["workflow_type"]) == (f"order-{order}", "fulfil")
    assert first["idempotency_key"] == event
    described = (await client.get(f"/api/workflows/order-{order}", namespace="shop")).expect(200).json
    assert described["business_key"] == "acme"
    assert described["task_queue"] == "orders"
    assert described["input"] == [placed, {"source": "shop order.placed"}]

    again = (await send_order(client, "order.placed", event, **placed)).expect(200, "duplicate_start").json
    assert again["run_id"] == first["run_id"]

    paid = fresh("evt")
    reply = (await send_order(client, "order.paid", paid, id=order, amount=7)).expect(202).json
    assert reply["target"] == {"workflow_id": f"order-{order}", "signal_name": "order.paid"}
    (await send_order(client, "order.paid", paid, id=order, amount=7)).expect(200)
    changed = (await send_order(client, "order.changed", fresh("evt"), id=order, lines=[3])).expect(202)
    assert changed.json["action"] == "update_workflow"


async def test_equal_webhooks_at_the_same_time_start_one_run(penstock_with_adapters: Client) -> None:
    raw = json.dumps({"id": fresh("evt"), "amount": 12}).encode()
    headers = stripe(raw)
    replies = await asyncio.gather(*(deliver(penstock_with_adapters, "pay", raw, headers) for _ in range(10)))
    assert sorted(each.status for each in replies) == [200] * 9 + [202]
    assert len({each.json["run_id"] for each in replies}) == 1


async def test_a_body_without_an_id_is_its_own_idempotency_key(penstock_with_adapters: Client) -> None:
    raw = json.dumps({"commit": fresh("c")}).encode()
    first = (await deliver(penstock_with_adapters, "code", raw, github(raw))).expect(202).json
    assert first["idempotency_key"].startswith("sha256:")
    moved = github(raw) | {"x-github-delivery": fresh("delivery")}
    (await deliver(penstock_with_adapters, "code", raw, moved)).expect(200, "duplicate_start")


async def test_any_secret_in_force_may_have_signed(penstock_with_adapters: Client) -> None:
    for name in ("SHOP_SECRET", "SHOP_SECRET_NEXT"):
        raw = json.dumps({"type": "order.placed", "data": {"id": fresh("o"), "customer": "c"}}).encode()
        headers = standard(raw, fresh("evt"), secret=SECRETS[name])
        (await deliver(penstock_with_adapters, "shop", raw, headers)).expect(202)


async def test_a_webhook_that_is_not_authentic_is_refused_and_writes_nothing(
    penstock_with_adapters: Client,
) -> None:
    client, before = penstock_with_adapters, await runs_in(penstock_with_adapters, "shop")
    raw = json.dumps({"type": "order.placed", "data": {"id": fresh("o"), "customer": "c"}}).encode()
    event = fresh("evt")
    good = standard(raw, event)

    async def refused(headers: dict[str, str], reason: str, body: bytes = raw) -> None:
        unauthorized(await deliver(client, "shop", body, headers), reason)

    await refused({}, "signature_missing")
    await refused(standard(raw, event, secret="another-secret-of-20-chars"), "signature_invalid")
    await refused(good, "signature_invalid", raw.replace(b"customer", b"customeR"))
    await refused(good | {"webhook-id": fresh("evt")}, "signature_invalid")
    await refused(good | {"webhook-timestamp": str(int(time.time()) + 1)}, "signature_invalid")
    await refused(good | {"webhook-signature": "v1,not base64"}, "signature_invalid")
    await refused(good | {"webhook-signature": "v2," + good["webhook-signature"][3:]}, "signature_invalid")
    await refused(
        good | {"webhook-signature": " ".join([good["webhook-signature"]] * 9)}, "signature_invalid"
    )
    await refused(standard(raw, event, at=time.time() - HOUR), "signature_stale")
    await refused(standard(raw, event, at=time.time() + HOUR), "signature_stale")
    assert await runs_in(client, "shop") == before
    (await deliver(client, "shop", raw, good)).expect(202)


async def test_a_captured_webhook_is_a_duplicate_and_later_too_old(penstock_with_adapters: Client) -> None:
    """The old delivery is authentic and its run exists, and still it is refused by its time."""
    event = fresh("evt")
    raw = json.dumps({"id": event}).encode()
    (await deliver(penstock_with_adapters, "pay", raw, stripe(raw))).expect(202)
    (await deliver(penstock_with_adapters, "pay", raw, stripe(raw))).expect(200, "duplicate_start")
    old = stripe(raw, at=time.time() - HOUR)
    unauthorized(await deliver(penstock_with_adapters, "pay", raw, old), "signature_stale")


async def test_a_body_that_does_not_fit_the_mapping_is_refused_by_name(
    penstock_with_adapters: Client,
) -> None:
    client, before = penstock_with_adapters, await runs_in(penstock_with_adapters, "shop")

    async def refused(event: Any, reason: str, rejection_reason: str) -> dict[str, Any]:
        raw = event if isinstance(event, bytes) else json.dumps(event).encode()
        reply = await deliver(client, "shop", raw, standard(raw, fresh("evt")))
        body: dict[str, Any] = reply.expect(422, reason).json
        assert (body["outcome"], body["rejection_reason"]) == ("rejected", rejection_reason)
        return body

    placed = {"type": "order.placed"}
    body = await refused(placed, "malformed_payload", "mapping_value_missing")
    assert "{data.id}" in body["message"]
    not_text: tuple[Any, ...] = (None, True, 1.5, {}, [], "")
    for unusable in not_text:
        data = {"id": unusable, "customer": "c"}
        await refused(placed | {"data": data}, "malformed_payload", "mapping_value_missing")
    too_long = {"id": "x" * 200, "customer": "c"}
    body = await refused(placed | {"data": too_long}, "malformed_payload", "validation_failed")
    assert body["errors"].keys() == {"workflow_id"}
    await refused({"type": "order.lost"}, "unsupported_routing", "unsupported_routing")
    await refused([1, 2], "unsupported_routing", "unsupported_routing")
    await refused(b"not json", "malformed_payload", "malformed_json")
    await refused({"type": "order.placed", "pad": "x" * 5000}, "payload_too_large", "payload_too_large")
    await refused(
        {"type": "order.paid", "data": {"id": "no", "amount": 1}}, "unknown_target", "instance_not_found"
    )
    assert await runs_in(client, "shop") == before


async def test_an_address_that_fails_too_often_must_wait(penstock_with_adapters: Client) -> None:
    """Only its failures are: an authentic webhook from the same address is still accepted."""
    statuses = [
        (await deliver(penstock_with_adapters, "shop", b"{}", {}, "192.0.2.7")).status for _ in range(12)
    ]
    assert (statuses[0], statuses[-1]) == (401, 429)
    raw = json.dumps({"id": fresh("evt")}).encode()
    (await deliver(penstock_with_adapters, "pay", raw, stripe(raw), "192.0.2.7")).expect(202)


async def test_an_adapter_that_is_not_declared_needs_a_credential(penstock_with_adapters: Client) -> None:
    raw = json.dumps(START).encode()
    reply = await deliver(penstock_with_adapters, "unknown", raw, standard(raw, fresh("evt")))
    reply.refused(401, "unauthorized")


async def test_an_adapter_of_a_missing_namespace_is_unavailable(penstock_with_adapters: Client) -> None:
    raw = b"{}"
    reply = await deliver(penstock_with_adapters, "lost", raw, github(raw))
    assert reply.expect(422, "adapter_unavailable").json["outcome"] == "rejected"


async def test_an_operator_may_use_the_contract_through_a_declared_adapter(
    penstock_with_adapters: Client,
) -> None:
    event = START | {"idempotency_key": fresh("evt")}
    reply = (await penstock_with_adapters.post("/api/bridge-adapters/webhook/shop", event)).expect(202)
    assert reply.json["adapter"] == "shop"


@pytest.mark.parametrize("namespace", ["shop", "default"])
async def test_declared_adapters_are_listed_without_secrets(
    penstock_with_adapters: Client, namespace: str
) -> None:
    reply = (await penstock_with_adapters.get("/api/bridge-adapters", namespace=namespace)).expect(200)
    names = [each["adapter"] for each in reply.json["adapters"]]
    assert names == (["shop"] if namespace == "shop" else ["pay", "code"])
    assert not any(secret in reply.raw.decode() for secret in SECRETS.values())
    shop = reply.json["adapters"][0]
    assert shop["secrets"][0] in ("env:SHOP_SECRET", "env:PAY_SECRET")


async def test_outcomes_are_counted(penstock_with_adapters: Client) -> None:
    unauthorized(await deliver(penstock_with_adapters, "shop", b"{}", {}), "signature_missing")
    exposed = (await penstock_with_adapters.get("/metrics", role="admin")).raw.decode()
    assert 'penstock_bridge_events_total{outcome="unauthorized",reason="auth_failed"}' in exposed
