"""What a dashboard of the contract reads: health, metrics, and the updates of a run."""

from __future__ import annotations

from tests.server.contract.conftest import Body, Tenant


async def read(tenant: Tenant, name: str) -> Body:
    answer: Body = (await tenant.ask("GET", f"/api/system/{name}", role="admin")).expect(200).json
    return answer


async def test_an_idle_namespace_is_healthy(tenant: Tenant) -> None:
    found = await read(tenant, "health")
    assert (found["namespace"], found["status"]) == (tenant.namespace, "healthy")
    assert {each["status"] for each in found["checks"]} == {"ok"}


async def test_tasks_that_no_worker_is_there_for_make_a_namespace_unhealthy(tenant: Tenant) -> None:
    await tenant.start("a")
    found = await read(tenant, "health")
    assert found["status"] == "unhealthy"
    (check,) = [each for each in found["checks"] if each["status"] != "ok"]
    assert (check["name"], check["count"]) == ("workers", 1)
    await tenant.register()
    assert (await read(tenant, "health"))["status"] == "healthy"


async def test_the_dashboard_has_the_metrics_the_health_and_what_needs_attention(tenant: Tenant) -> None:
    await tenant.start("a")
    found = await read(tenant, "operator-dashboard")
    assert found["operator_metrics"]["tasks"]["ready"] == 1
    assert found["operator_metrics"]["workers"]["registrations"] == 0
    assert found["health"]["status"] == "unhealthy"
    assert [each["name"] for each in found["needs_attention"]] == ["workers"]


async def test_a_health_check_needs_an_admin(tenant: Tenant) -> None:
    for name in ("health", "operator-dashboard"):
        (await tenant.get(f"/api/system/{name}")).refused(403, "forbidden")


async def test_an_accepted_update_is_found_in_its_run_and_by_its_id(tenant: Tenant) -> None:
    await tenant.register()
    await tenant.start("a")
    sent = (await tenant.post("/api/workflows/a/update/put", {"request_id": "r-1"})).expect(202).json
    update_id = sent["update_id"]
    (shown,) = (await tenant.get("/api/workflows/a")).expect(200).json["updates"]
    assert (shown["update_id"], shown["update_name"], shown["request_id"]) == (update_id, "put", "r-1")
    assert shown["update_status"] == "accepted"
    found = (await tenant.get(f"/api/workflows/a/updates/{update_id}")).expect(200).json
    assert (found["update_status"], found["outcome"], found["result"]) == ("accepted", None, None)


async def test_a_completed_update_is_read_with_its_result(tenant: Tenant) -> None:
    await tenant.register()
    await tenant.start("a")
    (
        await tenant.complete((await tenant.poll())["task"], {"type": "start_timer", "delay_seconds": 60})
    ).expect(200)
    sent = (await tenant.post("/api/workflows/a/update/put", {})).expect(202).json
    task = (await tenant.poll())["task"]
    command = {"type": "complete_update", "update_id": sent["update_id"], "result": 7}
    (await tenant.complete(task, command)).expect(200)
    found = (await tenant.get(f"/api/workflows/a/updates/{sent['update_id']}")).expect(200).json
    assert (found["update_status"], found["outcome"], found["result"]) == ("completed", "update_completed", 7)


async def test_an_update_of_another_workflow_is_not_found(tenant: Tenant) -> None:
    for name in ("a", "b"):
        await tenant.start(name)
    sent = (await tenant.post("/api/workflows/a/update/put", {})).expect(202).json
    for target in (f"/api/workflows/b/updates/{sent['update_id']}", "/api/workflows/a/updates/none"):
        (await tenant.get(target)).refused(404, "update_not_found")
