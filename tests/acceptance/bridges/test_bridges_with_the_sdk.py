"""The bridge call of the unmodified public SDK, and signed webhooks, against real servers."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator

import pytest
from durable_workflow import Client
from durable_workflow.errors import Unauthorized

from tests.acceptance.cluster import Cluster, stranger
from tests.acceptance.sdk import sdk_worker
from tests.server.bridges.webhook import SECRETS, stripe

SETTINGS = {
    "PAY_SECRET": SECRETS["PAY_SECRET"],
    "DW_BRIDGE_ADAPTERS": json.dumps(
        {
            "pay": {
                "scheme": "stripe",
                "secrets": ["env:PAY_SECRET"],
                "idempotency_key": "{id}",
                "routes": [
                    {
                        "action": "start_workflow",
                        "target": {"workflow_type": "capture", "workflow_id": "pay-{payment}"},
                        "input": ["{}"],
                    }
                ],
            }
        }
    ),
}


@pytest.fixture
async def client(scene: Cluster) -> AsyncIterator[Client]:
    assert scene.namespace is not None
    async with sdk_worker.client_of(scene.first.url, scene.namespace) as made:
        yield made


async def test_the_bridge_call_of_the_sdk_works_unchanged(scene: Cluster, client: Client) -> None:
    first = await client.send_webhook_bridge_event(
        "stripe",
        action="start_workflow",
        idempotency_key="evt-1",
        target={"workflow_type": "greeting", "task_queue": "q", "business_key": "invoice-1"},
        input={"name": "Ada"},
        correlation={"provider": "stripe"},
    )
    assert (first.accepted, first.outcome, first.reason) == (True, "accepted", None)
    assert (first.schema, first.version) == ("durable-workflow.v2.bridge-adapter-outcome.contract", 1)
    assert first.control_plane_outcome == "started_new"
    assert first.correlation == {"provider": "stripe"}
    assert first.workflow_id is not None
    described = await client.describe_workflow(first.workflow_id)
    assert described.workflow_type == "greeting"

    again = await client.send_webhook_bridge_event(
        "stripe", action="start_workflow", idempotency_key="evt-1", target={"workflow_type": "greeting"}
    )
    assert (again.accepted, again.outcome, again.reason) == (False, "duplicate", "duplicate_start")
    assert (again.workflow_id, again.run_id) == (first.workflow_id, first.run_id)

    for action, name in (("signal_workflow", "signal_name"), ("update_workflow", "update_name")):
        target = {"workflow_id": first.workflow_id, name: "advance"}
        outcomes = [
            await client.send_webhook_bridge_event(
                "pagerduty", action=action, idempotency_key="evt-2", target=target
            )
            for _ in range(2)
        ]
        assert [each.outcome for each in outcomes] == ["accepted", "duplicate"]
        assert outcomes[1].control_plane_outcome == "deduped_existing_command"

    missing = await client.send_webhook_bridge_event(
        "pagerduty",
        action="signal_workflow",
        idempotency_key="evt-3",
        target={"workflow_id": "nowhere", "signal_name": "advance"},
    )
    assert (missing.accepted, missing.outcome, missing.reason) == (False, "rejected", "unknown_target")
    unknown = await client.send_webhook_bridge_event(
        "pagerduty", action="paint", idempotency_key="evt-4", target={}
    )
    assert (unknown.action, unknown.reason) == ("paint", "unsupported_action")
    assert scene.namespace is not None
    async with Client(scene.first.url, token="wrong", namespace=scene.namespace) as stranger_client:
        with pytest.raises(Unauthorized):
            await stranger_client.send_webhook_bridge_event(
                "stripe", action="start_workflow", idempotency_key="evt-5", target={"workflow_type": "t"}
            )


async def test_equal_webhooks_sent_to_all_servers_start_one_run(cluster: Cluster) -> None:
    """Idempotency is a fact of the store: it does not matter which servers receive the deliveries."""
    raw = json.dumps({"id": "evt-9", "payment": 9}).encode()
    headers = {**stripe(raw), **stranger()}
    path = "/api/bridge-adapters/webhook/pay"
    replies = await asyncio.gather(
        *(cluster.ask("POST", path, raw=raw, role=None, more=headers) for _ in range(30))
    )
    assert sorted(each.status for each in replies) == [200] * 29 + [202]
    assert {each["workflow_id"] for each in replies} == {"pay-9"}
    assert len({each["run_id"] for each in replies}) == 1
