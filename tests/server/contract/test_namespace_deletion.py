"""A namespace is deleted with its closed runs if that is asked for, and never with open ones."""

from __future__ import annotations

from tests.server.client import Client, Reply
from tests.server.contract.conftest import Tenant


async def end_everything(tenant: Tenant) -> None:
    """Two closed workflows with history, one of them with two runs, and a closed activity."""
    await tenant.register()
    for name in ("a", "b", "a"):
        await tenant.start(name, id_reuse_policy="allow_duplicate")
        task = (await tenant.poll())["task"]
        (await tenant.complete(task, {"type": "complete_workflow", "result": name})).expect(200)
    activity = {"activity_id": "c", "activity_type": "charge", "task_queue": "orders"}
    (await tenant.post("/api/activities", activity)).expect(201)
    (await tenant.post("/api/activities/c/cancel", {})).expect(200)


async def delete(tenant: Tenant, query: str = "?with_closed_runs=true") -> Reply:
    return await tenant.ask("DELETE", f"/api/namespaces/{tenant.namespace}{query}", role="admin")


async def test_a_namespace_with_closed_runs_is_kept_unless_they_are_to_go_too(tenant: Tenant) -> None:
    await end_everything(tenant)
    refused = (await delete(tenant, "")).refused(409, "namespace_not_empty")
    assert "with_closed_runs=true" in refused.json["remediation"]
    assert (await tenant.get("/api/workflows/a")).expect(200).json["status"] == "completed"


async def test_a_namespace_is_deleted_with_its_closed_runs_and_says_what_went(tenant: Tenant) -> None:
    await end_everything(tenant)
    attribute = {"name": "Region", "type": "keyword"}
    (await tenant.post("/api/search-attributes", attribute)).expect(201)
    spec, action = {"cron_expressions": ["0 3 * * *"]}, {"workflow_type": "report", "task_queue": "orders"}
    (await tenant.post("/api/schedules", {"schedule_id": "s", "spec": spec, "action": action})).expect(201)
    gone = (await delete(tenant)).expect(200).json
    assert gone["status"] == "deleted"
    assert gone["deleted"] == {
        "namespaces": 1,
        "workflow_runs": 4,
        "workflow_schedules": 1,
        "search_attribute_definitions": 1,
        "workflow_worker_registrations": 1,
    }
    (await tenant.ask("GET", f"/api/namespaces/{tenant.namespace}", role="admin")).expect(
        404, "namespace_not_found"
    )


async def test_a_namespace_with_an_open_run_is_not_deleted_and_loses_nothing(tenant: Tenant) -> None:
    await end_everything(tenant)
    await tenant.start("open")
    (await delete(tenant)).refused(409, "namespace_not_empty")
    listed = (await tenant.get("/api/workflows")).expect(200).json["workflows"]
    assert {each["workflow_id"] for each in listed} == {"a", "b", "open"}


async def test_a_namespace_that_is_created_again_is_empty_and_works(tenant: Tenant, on_store: Client) -> None:
    await end_everything(tenant)
    config = {"task_queue_type": "activity", "max_running": 1, "reason": "of the old tenant"}
    (await tenant.ask("PATCH", "/api/task-queues/orders/config", config)).expect(200)
    (await delete(tenant)).expect(200)
    (await on_store.post("/api/namespaces", {"name": tenant.namespace}, role="admin")).expect(201)
    for target, part in (
        ("/api/workflows", "workflows"),
        ("/api/activities", "activities"),
        ("/api/workers", "workers"),
        ("/api/task-queues", "task_queues"),
    ):
        assert (await tenant.get(target)).expect(200).json[part] == []
    settings = (await tenant.get("/api/task-queues/orders/config")).expect(200).json
    assert "of the old tenant" not in str(settings)
    await tenant.register()
    await tenant.start("a")
    task = (await tenant.poll())["task"]
    (await tenant.complete(task, {"type": "complete_workflow", "result": 1})).expect(200)
    assert [each["name"] for each in (await tenant.get("/api/task-queues")).json["task_queues"]] == ["orders"]
    (await delete(tenant)).expect(200)


async def test_an_empty_namespace_is_deleted_without_being_asked_about_runs(tenant: Tenant) -> None:
    assert (await delete(tenant, "")).expect(200).json["deleted"]["workflow_runs"] == 0
