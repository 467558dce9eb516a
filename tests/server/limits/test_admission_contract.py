"""The admission payload field by field, with the configuration and the numbers of the original contract."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator
from typing import Any

import pytest

from penstock import assembly
from penstock.core.timestamps import iso
from penstock.engine.context import EngineContext
from penstock.engine.workers import worker_registry
from penstock.engine.workers.worker_registry import Registration
from penstock.settings import load
from tests.acceptance.cluster import until
from tests.server.client import Client
from tests.support import live
from tests.support.builders import NOW_MS
from tests.support.clock import ManualClock
from tests.support.seed_admission import seed_environment

Json = dict[str, Any]
DEFAULTS = seed_environment()
OVERRIDES = DEFAULTS.pop("DW_TASK_QUEUE_ADMISSION_OVERRIDES")
WORKFLOWS = {
    "status": "throttled",
    "active_worker_count": 3,
    "configured_slot_count": 24,
    "leased_count": 8,
    "ready_count": 5,
    "available_slot_count": 16,
    "server_max_active_leases_per_queue": 8,
    "server_active_lease_count": 8,
    "server_remaining_active_lease_capacity": 0,
    "server_max_active_leases_per_namespace": 300,
    "server_namespace_active_lease_count": 149,
    "server_remaining_namespace_active_lease_capacity": 151,
    "server_max_dispatches_per_minute": 120,
    "server_dispatch_count_this_minute": 120,
    "server_remaining_dispatch_capacity": 0,
    "server_max_dispatches_per_minute_per_namespace": 6000,
    "server_namespace_dispatch_count_this_minute": 3520,
    "server_remaining_namespace_dispatch_capacity": 2480,
    "server_dispatch_budget_group": "downstream-openai",
    "server_max_dispatches_per_minute_per_budget_group": 600,
    "server_budget_group_dispatch_count_this_minute": 600,
    "server_remaining_budget_group_dispatch_capacity": 0,
    "server_lock_required": True,
    "server_lock_supported": True,
    "budget_source": "worker_registration.max_concurrent_workflow_tasks",
    "server_budget_source": "server.admission.queue_overrides",
}
ACTIVITIES = {
    "status": "accepting",
    "configured_slot_count": 36,
    "server_max_active_leases_per_queue": 12,
    "server_remaining_active_lease_capacity": 4,
    "server_max_dispatches_per_minute": 240,
    "server_remaining_dispatch_capacity": 197,
}
QUERIES = {
    "status": "accepting",
    "max_pending_per_queue": 1024,
    "approximate_pending_count": 7,
    "remaining_pending_capacity": 1017,
    "lock_required": True,
    "lock_supported": True,
    "budget_source": "server.query_tasks.max_pending_per_queue",
}


class Production:
    """The namespace of the seed, on a server whose clock stands in the middle of a minute."""

    def __init__(self, client: Client, ctx: EngineContext, clock: ManualClock) -> None:
        self.client = client
        self.ctx = ctx
        self.clock = clock
        self._started: Counter[str] = Counter()

    async def post(self, path: str, body: Json, role: str = "operator") -> Json:
        reply = await self.client.post(path, body, role=role, namespace="production")
        assert reply.status < 300, reply.raw
        found: Json = reply.json
        return found

    async def admission(self, queue: str = "payments") -> Json:
        reply = await self.client.get(f"/api/task-queues/{queue}", namespace="production")
        found: Json = reply.expect(200).json["admission"]
        return found

    async def worker(self, worker_id: str, queue: str = "payments", **fields: Any) -> None:
        body = {"worker_id": worker_id, "task_queue": queue, "runtime": "python"} | fields
        await self.post("/api/worker/register", body, role="worker")

    async def query(self, workflow_id: str) -> None:
        await self.client.post(f"/api/workflows/{workflow_id}/query/state", {}, namespace="production")

    async def start(self, queue: str, kind: str, count: int) -> None:
        noun = "activity" if kind == "activity" else "workflow"
        plural = "activities" if kind == "activity" else "workflows"
        for begin in range(0, count, 100):
            items = [
                {
                    f"{noun}_id": f"{queue}-{kind}-{self._started[queue + kind] + n}",
                    f"{noun}_type": "t",
                    "task_queue": queue,
                }
                for n in range(min(100, count - begin))
            ]
            self._started[queue + kind] += len(items)
            told = await self.post(f"/api/{plural}/batch", {"items": items})
            assert told["accepted"] == len(items), told

    async def poll(self, worker: str, queue: str, kind: str, most: int) -> Json:
        body = {"worker_id": worker, "task_queue": queue, "timeout_seconds": 0, "max_tasks": most}
        return await self.post(f"/api/worker/{kind}-tasks/poll", body, role="worker")

    async def dispatch(self, worker: str, queue: str, kind: str, total: int, held: int) -> None:
        """Have so many tasks given out, of which so many are held in the end."""
        await self.start(queue, kind, total)
        given = 0
        while given < total:
            tasks = (await self.poll(worker, queue, kind, min(100, total - given)))["tasks"]
            assert tasks, f"{queue} gave {given} of {total}"
            given += len(tasks)
            await self.complete(worker, kind, tasks[held:] if given == total else tasks)

    async def complete(self, worker: str, kind: str, tasks: list[Json]) -> None:
        done: Json = {"commands": [{"type": "complete_workflow", "result": None}]}
        lease = "workflow_task_attempt"
        if kind == "activity":
            done, lease = {"result": None}, "activity_attempt_id"
        items = [
            {"task_id": task["task_id"], "action": "complete", "lease_owner": worker, lease: task[lease]}
            | done
            for task in tasks
        ]
        if items:
            told = await self.post(f"/api/worker/{kind}-tasks/batch", {"items": items}, role="worker")
            assert told["refused"] == 0, told


@pytest.fixture
async def production(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Production]:
    clock = ManualClock(NOW_MS // 60_000 * 60_000 + 30_000)
    monkeypatch.setattr(assembly, "SystemClock", lambda: clock)
    overrides = json.loads(OVERRIDES)
    like_payments = overrides["production:payments"]["workflow_tasks"] | {"max_dispatches_per_minute": 6000}
    overrides["production:chat"] = {"workflow_tasks": like_payments}
    given = live.TOKENS | DEFAULTS | {"DW_DATABASE_URL": "memory://", "DW_WORKER_STALE_AFTER_SECONDS": "3600"}
    given["DW_TASK_QUEUE_ADMISSION_OVERRIDES"] = json.dumps(overrides)
    async with assembly.assembled(load(given)) as server:
        client = Client(server.application)
        (await client.post("/api/namespaces", {"name": "production"}, role="admin")).expect(201)
        yield Production(client, server.ctx, clock)


def without_caps(section: Json) -> Json:
    """The section without the fields that are ours alone."""
    ours = ("caps", "unserved", "unserved_ready_count")
    return {name: value for name, value in section.items() if name not in ours}


def test_the_configuration_of_the_seed_loads_verbatim() -> None:
    loaded = load({"DW_AUTH_DRIVER": "none", "DW_TASK_QUEUE_ADMISSION_OVERRIDES": OVERRIDES} | DEFAULTS)
    assert set(loaded.admission.overrides) == {"production:payments", "production:*", "email", "*"}


async def test_the_payload_of_the_seed_is_produced_field_for_field(production: Production) -> None:
    for number in (1, 2, 3):
        slots: Json = {"max_concurrent_workflow_tasks": 8, "max_concurrent_activity_tasks": 12}
        await production.worker(f"payments-{number}", supported_workflow_types=["t"], **slots)
    others = {"chat": (480, 0), "bulk-1": (600, 50), "bulk-2": (600, 50), "bulk-3": (600, 41)}
    others |= {"bulk-4": (600, 0), "bulk-5": (520, 0)}
    for queue, (total, held) in others.items():
        await production.worker(f"w-{queue}", queue)
        await production.dispatch(f"w-{queue}", queue, "workflow", total, held)
    await production.dispatch("payments-1", "payments", "activity", 35, 0)
    await production.dispatch("payments-1", "payments", "activity", 8, 8)
    await production.dispatch("payments-2", "payments", "workflow", 120, 8)
    await production.start("payments", "workflow", 5)
    queries = [asyncio.create_task(production.query("payments-workflow-0")) for _ in range(7)]

    async def all_wait() -> bool:
        return bool((await production.admission())["query_tasks"]["approximate_pending_count"] == 7)

    await until(all_wait)
    shown = await production.admission()
    for each in queries:
        each.cancel()
    assert list(shown) == ["workflow_tasks", "activity_tasks", "query_tasks"]
    assert without_caps(shown["workflow_tasks"]) == WORKFLOWS
    assert list(without_caps(shown["workflow_tasks"])) == list(WORKFLOWS)
    assert {name: shown["activity_tasks"][name] for name in ACTIVITIES} == ACTIVITIES
    assert shown["query_tasks"] == QUERIES
    polled = await production.poll("payments-3", "payments", "workflow", 1)
    assert polled["poll_status"] == shown["workflow_tasks"]["status"] == "throttled"


async def test_every_cap_names_who_holds_it_and_every_rate_when_it_opens(production: Production) -> None:
    await production.worker("w1")
    await production.dispatch("w1", "payments", "workflow", 120, 8)
    caps = {
        (each["scope"], each["limit"]): each
        for each in (await production.admission())["workflow_tasks"]["caps"]
    }
    own = caps["queue:production/payments/workflow", "active_leases"]
    assert (own["max"], own["used"], own["remaining"], own["opens_at"]) == (8, 8, 0, None)
    assert [each["lease_owner"] for each in own["holders"]] == ["w1"] * 8
    assert all(each["age_seconds"] == 0 for each in own["holders"])
    shared = caps["namespace:production/workflow", "active_leases"]
    assert (shared["max"], shared["used"], len(shared["holders"])) == (300, 8, 8)
    rate = caps["queue:production/payments/workflow", "dispatches_per_minute"]
    assert (rate["max"], rate["used"], rate["remaining"], rate["holders"]) == (120, 120, 0, [])
    next_minute = iso((production.clock.now_ms() // 60_000 + 1) * 60_000)
    assert rate["opens_at"] == next_minute
    group = caps["group:production/downstream-openai/workflow", "dispatches_per_minute"]
    assert (group["max"], group["used"], group["remaining"]) == (600, 120, 480)


async def test_the_next_minute_opens_what_was_spent_in_the_last(production: Production) -> None:
    await production.worker("w1")
    await production.dispatch("w1", "payments", "workflow", 120, 0)
    await production.start("payments", "workflow", 1)
    assert (await production.poll("w1", "payments", "workflow", 1))["poll_status"] == "throttled"
    production.clock.advance(29_999)
    assert (await production.poll("w1", "payments", "workflow", 1))["poll_status"] == "throttled"
    production.clock.advance(1)
    assert (await production.poll("w1", "payments", "workflow", 1))["poll_status"] == "leased"
    shown = (await production.admission())["workflow_tasks"]
    assert shown["server_dispatch_count_this_minute"] == 1
    assert shown["status"] == "accepting"


async def test_a_sliding_window_holds_no_more_than_allowed_in_any_sixty_seconds(
    production: Production,
) -> None:
    """Where calendar minutes would let twice as many go around their turn."""
    change = {"task_queue_type": "workflow", "dispatch_window": "sliding"}
    target = "/api/task-queues/payments/limits"
    (await production.client.patch(target, change, namespace="production")).expect(200)
    await production.worker("w1")
    await production.dispatch("w1", "payments", "workflow", 120, 0)
    await production.start("payments", "workflow", 1)
    production.clock.advance(59_999)
    assert (await production.poll("w1", "payments", "workflow", 1))["poll_status"] == "throttled"
    production.clock.advance(1_001)
    assert (await production.poll("w1", "payments", "workflow", 1))["poll_status"] == "leased"


async def test_workers_without_slots_for_a_kind_are_said_to_have_none(production: Production) -> None:
    """Over HTTP a worker offers at least one slot of each kind, so it is told to the engine."""
    await worker_registry.register(
        production.ctx, Registration("production", "w1", "plain", "python", workflow_slots=0)
    )
    shown = await production.admission("plain")
    assert (shown["workflow_tasks"]["status"], shown["activity_tasks"]["status"]) == ("no_slots", "accepting")
