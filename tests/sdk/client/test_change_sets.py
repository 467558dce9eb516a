"""Change sets by the SDK, against a real server."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from penstock.client import Client, SyncClient
from penstock.failures import InvalidRequest
from penstock.sdk.errors.server_errors import ServerRefused
from tests.acceptance.cluster import Cluster
from tests.sdk.server_fixtures import OPERATOR, connected

LATER = datetime(2099, 1, 1, tzinfo=UTC)


async def test_a_change_set_is_planned_approved_by_somebody_else_applied_and_rolled_back(
    client: Client, scene: Cluster
) -> None:
    path = f"/namespaces/{scene.namespace}/limits"
    await client.transport.control("PATCH", path, {"change_approvals": 1}, idempotent=True)
    made = await client.change_sets.new(
        "slow database",
        queues={"invoices": {"max_active_leases": 0, "weights": {"acme": 3}}},
        namespace={"max_dispatches_per_minute": 600},
        expires_in=timedelta(hours=2),
    )
    assert {each.path: (each.before, each.after) for each in made.items} == {
        "namespace.max_dispatches_per_minute": (None, 600),
        "queue:invoices.max_active_leases": (None, 0),
        "queue:invoices.weights.acme": (None, 3.0),
    }
    plan = await client.change_sets.plan(made.id)
    assert (plan.may_be_applied, plan.hash) == (False, made.plan)
    assert [(each.check, each.stops) for each in plan.checks] == [
        ("approvals_missing", True),
        ("closes", False),
    ]
    with pytest.raises(ServerRefused) as refused:
        await client.change_sets.apply(made.id)
    assert refused.value.reason == "change_needs_approval"
    async with await connected(scene, control_token="admin-secret") as other:
        approved = await other.change_sets.approve(made.id, plan=plan.hash)
        assert [(each.by, each.state) for each in approved.approvals] == [("admin", "counts")]
        done = await client.change_sets.apply(made.id, plan=plan.hash)
        assert (done.status, done.approved_by, done.plan) == ("applied", ("admin",), None)
        undo = await client.change_sets.rollback(made.id, "worse")
        broken = await other.change_sets.apply(undo.id, break_glass="fire")
    assert broken.broken_glass is not None
    assert (broken.broken_glass.by, broken.broken_glass.reason) == ("admin", "fire")
    assert [each.id async for each in client.change_sets.list(status="applied", limit=1)] == [undo.id]


async def test_a_change_set_is_edited_put_off_and_withdrawn(client: Client) -> None:
    made = await client.change_sets.new("r", queues={"q": {"max_active_leases": 5}}, apply_at=LATER)
    assert (made.status, made.apply_at) == ("scheduled", LATER)
    edited = await client.change_sets.edit(made.id, "again", groups={"g": {"paused": True}})
    assert ([each.path for each in edited.items], edited.apply_at) == (["group:g.paused"], None)
    assert (await client.change_sets.apply(made.id, at=LATER)).apply_at == LATER
    assert (await client.change_sets.unapprove(made.id)).approvals == ()
    assert (await client.change_sets.withdraw(made.id)).status == "withdrawn"
    assert (await client.change_sets.get(made.id)).ended_at is not None


async def test_mistakes_are_named(client: Client) -> None:
    with pytest.raises(InvalidRequest) as refused:
        await client.change_sets.new("r", queues={"q": {"max_active_leases": -1}})
    assert "queue:q.max_running" in refused.value.details["errors"]
    with pytest.raises(ValueError, match="no time zone"):
        await client.change_sets.new("r", queues={"q": {"paused": True}}, apply_at=datetime(2099, 1, 1))  # noqa: DTZ001


def test_the_client_without_asyncio_has_them_too(scene: Cluster) -> None:
    with SyncClient.connect(scene.first.url, namespace=scene.namespace, control_token=OPERATOR) as client:
        made = client.change_sets.new("r", queues={"q": {"max_active_leases": 5}})
        assert client.change_sets.apply(made.id).status == "applied"
        assert [each.id for each in client.change_sets.list()] == [made.id]
