"""Operations on bridge adapters."""

from __future__ import annotations

from typing import Final

from penstock.core.permissions import RouteFamily as Family
from penstock.server.endpoints.bridges import webhooks
from penstock.server.operation import Operation
from penstock.wire.bridges.requests import BridgeEventBody

BRIDGE_OPERATIONS: Final = (
    Operation(
        "POST",
        "/api/bridge-adapters/webhook/{adapter}",
        "receive_bridge_event",
        "Start, signal or update a workflow by an event of another system, once per idempotency key.",
        Family.WORK,
        webhooks.webhook,
        BridgeEventBody,
        status=202,
        takes_webhooks=True,
        refuse=webhooks.refusal,
    ),
    Operation(
        "GET",
        "/api/bridge-adapters",
        "list_bridge_adapters",
        "List the adapters that the configuration declares, without their secrets.",
        Family.WORK,
        webhooks.list_adapters,
    ),
)
