"""The caps of an app's configuration: sent by its workers, and logged if the server has others."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from penstock import AppConfig, CustomQueueConfig, QueueMode
from penstock.sdk.clients.client import Client
from penstock.sdk.tasks.declared_caps import DeclaredCaps
from tests.acceptance.cluster import Cluster
from tests.sdk.server_fixtures import WORKER, connected


def config(stripe: int | None = 3, cap: int | None = 15, version: int = 0) -> AppConfig:
    queues = [
        CustomQueueConfig(name="stripe", priority=1, max_concurrency=stripe),
        CustomQueueConfig(name="reports", priority=100, max_concurrency=None),
    ]
    return AppConfig(
        queue_mode=QueueMode.CUSTOM, custom_queues=queues, cluster_wide_cap=cap, caps_version=version
    )


async def told(caps: DeclaredCaps) -> list[str]:
    return [each.message for each in await caps.send()]


async def warned(caps: DeclaredCaps) -> list[str]:
    return [each.message for each in await caps.send() if each.level >= logging.WARNING]


async def history(client: Client) -> list[tuple[Any, Any, Any]]:
    """The changes of the namespace's cap, newest first: before, after and reason."""
    path = f"/namespaces/{client.namespace}/limits/history"
    answer = await client.transport.control("GET", path, idempotent=True, query={"kind": "activity_tasks"})
    return [(each["before"], each["after"], each["reason"]) for each in answer["changes"]]


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
    first = DeclaredCaps(client, "shop", config())
    assert await told(first) == [
        "max_concurrency of queue 'stripe' is set to 3",
        "cluster_wide_cap is set to 15",
    ]
    assert await in_force(client) == (3, None, 15)
    again = DeclaredCaps(client, "shop", config())
    assert await told(again) == []
    assert await again.look() == []


async def test_caps_that_need_approval_are_left_as_they_are_and_the_worker_says_so(client: Client) -> None:
    path = f"/namespaces/{client.namespace}/limits"
    await client.transport.control("PATCH", path, {"change_approvals": 1}, idempotent=True)
    said = await warned(DeclaredCaps(client, "shop", config()))
    assert len(said) == 2
    assert all("need the approval of 1 other person" in each for each in said)
    assert await in_force(client) == (None, None, None)


async def test_a_second_worker_without_a_cap_does_not_lift_the_cap_of_the_first(
    client: Client,
) -> None:
    queues = [CustomQueueConfig(name="reports", priority=100, max_concurrency=None)]
    for cap in (2, None):
        config = AppConfig(queue_mode=QueueMode.CUSTOM, custom_queues=queues, cluster_wide_cap=cap)
        await DeclaredCaps(client, "shop", config).send()
    assert await in_force(client) == (None, None, 2)


async def test_a_worker_whose_configuration_has_no_cap_leaves_the_cap_of_another_in_force(
    client: Client,
) -> None:
    """Two workers of one app, one with `cluster_wide_cap=2` and one without: five ran."""
    await DeclaredCaps(client, "shop", config(stripe=None, cap=2)).send()
    without = DeclaredCaps(client, "shop", config(stripe=None, cap=None))
    assert await told(without) == [
        "cluster_wide_cap is not set here; 2 stays in force (AppConfig of shop, caps_version 0)"
    ]
    assert await in_force(client) == (None, None, 2)
    assert await told(DeclaredCaps(client, "mail", config(stripe=None, cap=None)))
    assert await told(DeclaredCaps(client, "shop", config(stripe=None, cap=None, version=7)))
    assert await in_force(client) == (None, None, 2)


async def test_a_worker_that_starts_raises_a_cap_only_with_a_newer_version(client: Client) -> None:
    """Scenario 67: two configurations with different caps, one wins by version, and both workers warn."""
    first = DeclaredCaps(client, "shop", config())
    await first.send()
    refused = await warned(DeclaredCaps(client, "shop", config(stripe=5, cap=20)))
    assert refused[0].startswith(
        "max_concurrency of queue 'stripe' is 5 here; 3 stays in force (AppConfig of shop, caps_version 0): a worker"
        " raises a cap only with a higher caps_version in its AppConfig"
    )
    assert "cluster_wide_cap is 20 here; 15 stays in force" in refused[1]
    assert await in_force(client) == (3, None, 15)
    newer = DeclaredCaps(client, "shop", config(stripe=5, cap=20, version=1))
    assert await warned(newer) == [
        "max_concurrency of queue 'stripe' is raised from 3 (AppConfig of shop, caps_version 0) to 5 by caps_version 1",
        "cluster_wide_cap is raised from 15 (AppConfig of shop, caps_version 0) to 20 by caps_version 1",
    ]
    assert await in_force(client) == (5, None, 20)
    seen = await first.look()
    assert seen[0].startswith("max_concurrency of queue 'stripe' is 3 here, but 5 holds (version 2)")
    assert len(seen) == 2
    assert await first.look() == []


async def test_an_old_pod_that_restarts_during_a_rollout_does_not_undo_the_new_cap(client: Client) -> None:
    old, new = config(cap=10, version=1), config(cap=4, version=2)
    await DeclaredCaps(client, "shop", old).send()
    await DeclaredCaps(client, "shop", new).send()
    assert await warned(DeclaredCaps(client, "shop", old)) == [
        "cluster_wide_cap is 10 here, by caps_version 1; 4 stays in force, which a newer configuration has set"
        " (AppConfig of shop, caps_version 2)"
    ]
    assert (await in_force(client))[2] == 4
    higher = config(cap=12, version=3)
    await DeclaredCaps(client, "shop", higher).send()
    assert len(await warned(DeclaredCaps(client, "shop", new))) == 1, (
        "nor does it lower a cap that was raised since"
    )
    assert (await in_force(client))[2] == 12


async def test_workers_that_start_at_the_same_time_agree_on_one_cap(client: Client) -> None:
    told = [(cap, version) for version in (0, 1, 2) for cap in (9, 3, 6, 12)]
    found = await asyncio.gather(
        *(
            DeclaredCaps(client, "shop", config(stripe=None, cap=cap, version=version)).send()
            for cap, version in told
        )
    )
    assert (await in_force(client))[2] == 3, "the lowest value of the highest version"
    assert not [each for notices in found for each in notices if "could not be set" in each.message]


async def test_every_change_by_a_start_is_logged_and_shows_in_the_change_history(client: Client) -> None:
    for cap, version in ((10, 1), (4, 1), (12, 2), (12, 3), (None, 4), (20, 3)):
        await DeclaredCaps(client, "shop", config(stripe=None, cap=cap, version=version)).send()
    assert await history(client) == [
        (12, 12, "AppConfig of shop, caps_version 3"),
        (4, 12, "AppConfig of shop, caps_version 2"),
        (10, 4, "AppConfig of shop, caps_version 1"),
        (None, 10, "AppConfig of shop, caps_version 1"),
    ]


async def test_another_app_of_the_namespace_lowers_a_cap_and_does_not_raise_it(client: Client) -> None:
    await DeclaredCaps(client, "shop", config(stripe=None, cap=10, version=1)).send()
    refused = await warned(DeclaredCaps(client, "mail", config(stripe=None, cap=12, version=9)))
    assert refused[0].startswith("cluster_wide_cap is 12 here; 10 stays in force, which another app has set")
    assert await warned(DeclaredCaps(client, "mail", config(stripe=None, cap=3, version=9))) == [
        "cluster_wide_cap is lowered from 10"
        " (AppConfig of shop, caps_version 1; AppConfig of mail, caps_version 9: 12) to 3"
    ]
    assert (await in_force(client))[2] == 3


async def test_an_app_that_raises_its_cap_leaves_the_lower_one_of_another_app_in_force(
    client: Client,
) -> None:
    await DeclaredCaps(client, "shop", config(stripe=None, cap=5)).send()
    await DeclaredCaps(client, "mail", config(stripe=None, cap=3)).send()
    raising = DeclaredCaps(client, "mail", config(stripe=None, cap=8, version=1))
    assert await warned(raising) == [
        "cluster_wide_cap is raised from 3 (AppConfig of mail, caps_version 0; AppConfig of shop, caps_version 0: 5)"
        " to 5 by caps_version 1; 8 is wanted here, and the cap of another app is lower"
    ]
    assert await raising.look() == []
    assert (await in_force(client))[2] == 5
    await DeclaredCaps(client, "shop", config(stripe=None, cap=9, version=1)).send()
    assert (await in_force(client))[2] == 8


async def test_the_cap_of_an_app_that_starts_second_counts_when_the_first_raises_its_own(
    client: Client,
) -> None:
    await DeclaredCaps(client, "mail", config(stripe=None, cap=3)).send()
    second = DeclaredCaps(client, "shop", config(stripe=None, cap=5))
    assert len(await warned(second)) == 1
    assert await second.look() == [], "its own start changed nothing that it would report"
    await DeclaredCaps(client, "mail", config(stripe=None, cap=8, version=1)).send()
    assert (await in_force(client))[2] == 5


async def test_an_app_with_a_very_long_name_sets_its_caps(client: Client) -> None:
    await DeclaredCaps(client, "x" * 2000, config(stripe=None, cap=5)).send()
    assert (await in_force(client))[2] == 5


async def test_what_an_operator_has_set_stays(client: Client) -> None:
    await client.transport.control(
        "PATCH",
        "/task-queues/stripe/limits",
        {"max_active_leases_per_queue": 1, "task_queue_type": "activity", "reason": "slow today"},
        idempotent=True,
    )
    caps = DeclaredCaps(client, "shop", config(cap=None))
    assert await told(caps) == [
        "max_concurrency of queue 'stripe' is 3 here; an operator has set 1 (version 1), which stays in force"
    ]
    assert await caps.look() == []
    assert await in_force(client) == (1, None, None)


class Declaring:
    """A server that declares a cap in its configuration and has no live one."""

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
    caps = DeclaredCaps(server, "shop", config(cap=None))
    assert await told(caps) == [
        "max_concurrency of queue 'stripe' is 3 here; the server declares 2, which stays in force"
    ]
    assert await caps.look() == []
    server.declared = 1
    assert await caps.look() == [
        "max_concurrency of queue 'stripe' is 3 here, but the server declares 1, which holds"
    ]
    assert await caps.look() == []


async def test_a_worker_that_may_not_set_them_says_which(scene: Cluster) -> None:
    async with await connected(scene, control_token=WORKER) as weak:
        caps = DeclaredCaps(weak, "shop", config())
        assert [each.partition(" is ")[0] for each in await told(caps)] == [
            "max_concurrency of queue 'stripe'",
            "cluster_wide_cap",
        ]
        assert await caps.cannot_bind(2) is None


async def test_a_cap_above_all_places_cannot_bind(client: Client) -> None:
    """Scenario 3, as far as a worker can know it: its own slots, and those of registered workers."""
    caps = DeclaredCaps(client, "shop", config(cap=50))
    assert (
        await caps.cannot_bind(8)
        == "cluster_wide_cap=50 cannot bind: the workers that are there run 8 tasks at the most"
    )
    assert await caps.cannot_bind(51) is None
    assert await DeclaredCaps(client, "shop", config(cap=None)).cannot_bind(8) is None
