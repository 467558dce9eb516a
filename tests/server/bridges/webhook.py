"""Webhooks as other systems send them: declared adapters, their secrets, and signatures."""

from __future__ import annotations

import base64
import hashlib
import hmac
import itertools
import json
import time
from typing import Any

from tests.server.client import Client, Reply

SECRETS = {
    "SHOP_SECRET": "whsec_" + base64.b64encode(b"shop-secret-of-32-bytes-xxxxxxxx").decode(),
    "SHOP_SECRET_NEXT": "next-secret-of-the-shop-adapter",
    "PAY_SECRET": "secret-of-the-payment-provider",
    "CODE_SECRET": "secret-of-the-code-host-xxxxxx",
}
ADAPTERS: dict[str, Any] = {
    "shop": {
        "scheme": "standard",
        "secrets": ["env:SHOP_SECRET", "env:SHOP_SECRET_NEXT"],
        "namespace": "shop",
        "max_bytes": 4096,
        "routes": [
            {
                "when": {"type": "order.placed"},
                "action": "start_workflow",
                "target": {
                    "workflow_type": "fulfil",
                    "workflow_id": "order-{data.id}",
                    "task_queue": "orders",
                    "business_key": "{data.customer}",
                },
                "input": ["{data}", {"source": "shop {type}"}],
            },
            {
                "when": {"type": ["order.paid", "order.refunded"]},
                "action": "signal_workflow",
                "target": {"workflow_id": "order-{data.id}", "signal_name": "{type}"},
                "input": ["{data.amount}"],
            },
            {
                "when": {"type": "order.changed"},
                "action": "update_workflow",
                "target": {"workflow_id": "order-{data.id}", "update_name": "change"},
                "input": "{data.lines}",
            },
        ],
    },
    "pay": {
        "scheme": "stripe",
        "secrets": ["env:PAY_SECRET"],
        "idempotency_key": "{id}",
        "routes": [{"action": "start_workflow", "target": {"workflow_type": "capture"}, "input": ["{}"]}],
    },
    "code": {
        "scheme": "github",
        "secrets": ["env:CODE_SECRET"],
        "routes": [
            {
                "action": "start_workflow",
                "target": {"workflow_type": "build", "duplicate_policy": "reject_duplicate"},
            }
        ],
    },
    "lost": {
        "scheme": "github",
        "secrets": ["env:CODE_SECRET"],
        "namespace": "no-such-namespace",
        "routes": [{"action": "start_workflow", "target": {"workflow_type": "build"}}],
    },
}
_numbers = itertools.count(1)


def fresh(prefix: str) -> str:
    return f"{prefix}-{next(_numbers)}"


def _key(secret: str) -> bytes:
    return base64.b64decode(secret.removeprefix("whsec_")) if secret.startswith("whsec_") else secret.encode()


def standard(
    raw: bytes, event_id: str, *, secret: str = SECRETS["SHOP_SECRET"], at: float | None = None
) -> dict[str, str]:
    """The headers of a delivery signed by the Standard Webhooks scheme."""
    timestamp = str(int(time.time() if at is None else at))
    proof = hmac.digest(_key(secret), f"{event_id}.{timestamp}.".encode() + raw, "sha256")
    signature = f"v1,{base64.b64encode(proof).decode()}"
    return {"webhook-id": event_id, "webhook-timestamp": timestamp, "webhook-signature": signature}


def stripe(raw: bytes, *, secret: str = SECRETS["PAY_SECRET"], at: float | None = None) -> dict[str, str]:
    timestamp = str(int(time.time() if at is None else at))
    proof = hmac.new(secret.encode(), f"{timestamp}.".encode() + raw, hashlib.sha256).hexdigest()
    return {"stripe-signature": f"t={timestamp},v1={proof}"}


def github(raw: bytes, *, secret: str = SECRETS["CODE_SECRET"]) -> dict[str, str]:
    return {"x-hub-signature-256": f"sha256={hmac.new(secret.encode(), raw, hashlib.sha256).hexdigest()}"}


async def deliver(
    client: Client, adapter: str, raw: bytes, headers: dict[str, str], address: str | None = None
) -> Reply:
    """Send a webhook as another system does: no credential, no version, no namespace; each from a new address."""
    address = address or f"10.0.{next(_numbers) % 250}.{next(_numbers) % 250}"
    sent = {"x-forwarded-for": address} | headers
    return await client.request(
        "POST", f"/api/bridge-adapters/webhook/{adapter}", raw, role=None, headers=sent
    )


async def send_order(client: Client, kind: str, event_id: str, **data: Any) -> Reply:
    """Deliver an event of the shop, correctly signed."""
    raw = json.dumps({"type": kind, "data": data}).encode()
    return await deliver(client, "shop", raw, standard(raw, event_id))
