"""The caps of an app's configuration at the server: sent by its workers, and told of when somebody says otherwise."""

from __future__ import annotations

from typing import Any

from penstock import AppConfig, CustomQueueConfig, QueueMode
from penstock.sdk.client import Client
from penstock.sdk.tasks.caps import Caps
from tests.acceptance.cluster import Cluster
from tests.sdk.serving import WORKER, connected


def config(stripe: int | None = 3, cap: int | None = 15) -> AppConfig:
    queues = [
        CustomQueueConfig(name="stripe", priority=1, max_concurrency=stripe),
        CustomQueueConfig(name="reports", priority=100, max_concurrency=None),
    ]
    return AppConfig(queue_mode=QueueMode.CUSTOM, custom_queues=queues, cluster_wide_cap=cap)


async def in_force(client: Client) -> tuple[Any, Any, Any]:
    """The caps of both queues, and of all tasks."""
    queues = [
        await client.transport.control("GET", f"/task-queues/{name}/limits", idempotent=True)
        for name in ("stripe", "reports")
    ]
    found = [each["limits"]["max_active_leases_per_queue"]["value"] for each in queues]
    whole = await client.transport.control("GET", f"/namespaces/{client.namespace}/limits", idempotent=True)
    return found[0], found[1], whole["activity_tasks"]["limits"]["max_active_leases"]["value"]


async def test_the_first_worker_sets_them_and_the_next_one_with_the_same_has_nothing_to_say(
    client: Client,
) -> None:
    assert await Caps(client, "shop", config()).send() == []
    assert await in_force(client) == (3, None, 15)
    again = Caps(client, "shop", config())
    assert await again.send() == []
    assert await again.look() == []


async def test_workers_at_odds_are_both_warned_and_the_last_one_is_heard(client: Client) -> None:
    """Scenario 67."""
    first, second = Caps(client, "shop", config()), Caps(client, "shop", config(stripe=5, cap=20))
    await first.send()
    told = await second.send()
    assert told[0] == (
        "max_concurrency of queue 'stripe' is 5 here, and was 3 by the configuration of another worker"
        " (version 1): 5 holds from now on"
    )
    assert "cluster_wide_cap is 20 here, and was 15" in told[1]
    assert await in_force(client) == (5, None, 20)
    warned = await first.look()
    assert warned[0].startswith("max_concurrency of queue 'stripe' is 3 here, but 5 holds (version 2)")
    assert len(warned) == 2
    assert await first.look() == []


async def test_what_an_operator_has_set_stays(client: Client) -> None:
    await client.transport.control(
        "PATCH",
        "/task-queues/stripe/limits",
        {"max_active_leases_per_queue": 1, "task_queue_type": "activity", "reason": "slow today"},
        idempotent=True,
    )
    caps = Caps(client, "shop", config(cap=None))
    assert await caps.send() == [
        "max_concurrency of queue 'stripe' is 3 here; an operator has set 1 (version 1), which stays in force"
    ]
    assert await caps.look() == []
    assert await in_force(client) == (1, None, None)


class Declaring:
    """A server that declares a cap, and has not been told any."""

    namespace = "default"

    def __init__(self) -> None:
        self.transport = self
        self.declared = 2

    async def control(self, method: str, path: str, body: Any = None, **_: Any) -> dict[str, Any]:
        assert method == "GET"
        limit = {"value": self.declared, "declared": {"value": self.declared}, "live": None}
        limits = {"max_active_leases_per_queue": limit, "max_active_leases": limit}
        return {"version": 0, "limits": limits, "activity_tasks": {"version": 0, "limits": limits}}


async def test_a_lower_cap_of_the_server_is_told_when_the_worker_starts_and_when_it_changes() -> None:
    server: Any = Declaring()
    caps = Caps(server, "shop", config(cap=None))
    assert await caps.send() == [
        "max_concurrency of queue 'stripe' is 3 here; the server declares 2, which stays in force"
    ]
    assert await caps.look() == []
    server.declared = 1
    assert await caps.look() == [
        "max_concurrency of queue 'stripe' is 3 here, but the server declares 1, which holds"
    ]
    assert await caps.look() == []


async def test_a_cap_that_a_configuration_no_longer_has_is_taken_back(client: Client) -> None:
    await Caps(client, "shop", config()).send()
    await Caps(client, "shop", config(stripe=None, cap=None)).send()
    assert await in_force(client) == (None, None, None)


async def test_a_worker_that_may_not_set_them_says_which(scene: Cluster) -> None:
    async with await connected(scene, control_token=WORKER) as weak:
        caps = Caps(weak, "shop", config())
        told = await caps.send()
        assert [each.partition(" is ")[0] for each in told] == [
            "max_concurrency of queue 'stripe'",
            "cluster_wide_cap",
        ]
        assert await caps.cannot_bind(2) is None


async def test_a_cap_above_all_places_cannot_bind(client: Client) -> None:
    """Scenario 3, as far as a worker can know it: its own places, and those of the workers that are there."""
    caps = Caps(client, "shop", config(cap=50))
    told = await caps.cannot_bind(8)
    assert told == "cluster_wide_cap=50 cannot bind: the workers that are there run 8 tasks at the most"
    assert await caps.cannot_bind(51) is None
    assert await Caps(client, "shop", config(cap=None)).cannot_bind(8) is None
