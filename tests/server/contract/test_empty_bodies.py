"""PHP encodes a body without fields as `[]`."""

from __future__ import annotations

import pytest

from tests.server.contract.conftest import Tenant

EMPTY_LIST: list[object] = []


@pytest.mark.parametrize(
    ("verb", "outcome"),
    [("cancel", "cancelled"), ("terminate", "terminated"), ("repair", "repair_not_needed")],
)
async def test_a_php_client_ends_or_repairs_a_workflow_with_an_empty_list(
    tenant: Tenant, verb: str, outcome: str
) -> None:
    await tenant.start("a")
    answer = (await tenant.post(f"/api/workflows/a/{verb}", EMPTY_LIST)).expect(200).json
    assert answer["outcome"] == outcome


async def test_a_php_client_archives_a_closed_workflow_with_an_empty_list(tenant: Tenant) -> None:
    await tenant.start("a")
    (await tenant.post("/api/workflows/a/terminate", EMPTY_LIST)).expect(200)
    assert (await tenant.post("/api/workflows/a/archive", EMPTY_LIST)).expect(200).json[
        "outcome"
    ] == "archived"


async def test_a_php_client_signals_without_arguments(tenant: Tenant) -> None:
    run_id = (await tenant.start("a"))["run_id"]
    (await tenant.post("/api/workflows/a/signal/go", EMPTY_LIST)).expect(202)
    (await tenant.post(f"/api/workflows/a/runs/{run_id}/signal/go", EMPTY_LIST)).expect(202)


async def test_a_php_client_queries_without_arguments(tenant: Tenant) -> None:
    await tenant.start("a")
    (await tenant.post("/api/workflows/a/query/total", EMPTY_LIST)).expect(409, "query_worker_unavailable")


@pytest.mark.parametrize("system_pass", ["repair", "retention", "activity-timeouts"])
async def test_a_php_client_runs_the_system_passes(tenant: Tenant, system_pass: str) -> None:
    (await tenant.ask("POST", f"/api/system/{system_pass}/pass", EMPTY_LIST, role="admin")).expect(200)


async def test_a_php_client_updates_a_namespace_without_changes(tenant: Tenant) -> None:
    target = f"/api/namespaces/{tenant.namespace}"
    (await tenant.ask("PUT", target, EMPTY_LIST, role="admin")).expect(200)


@pytest.mark.parametrize("body", [[], [1], "text", 7, [[]]])
async def test_a_body_that_is_not_an_object_is_still_refused_where_a_field_is_required(
    tenant: Tenant, body: object
) -> None:
    raw = (await tenant.ask("POST", "/api/workflows", body)).json
    assert raw["errors"] == {"body": ["must be a JSON object"]}


async def test_a_list_with_something_in_it_is_not_taken_for_no_fields(tenant: Tenant) -> None:
    await tenant.start("a")
    (await tenant.post("/api/workflows/a/cancel", ["now"])).refused_fields("body")
    assert (await tenant.get("/api/workflows/a")).json["status"] == "pending"


async def test_a_php_client_starts_a_workflow_with_an_empty_memo_and_no_attributes(tenant: Tenant) -> None:
    await tenant.start("a", memo=EMPTY_LIST, search_attributes=EMPTY_LIST, input=EMPTY_LIST)
    found = (await tenant.get("/api/workflows/a")).expect(200).json
    assert found["memo"] == {}


async def test_a_php_client_creates_a_schedule_with_an_empty_memo(tenant: Tenant) -> None:
    body = {
        "schedule_id": "nightly",
        "spec": {"cron_expressions": ["@daily"], "intervals": EMPTY_LIST},
        "action": {"workflow_type": "order", "task_queue": "orders", "input": EMPTY_LIST, "memo": EMPTY_LIST},
        "memo": EMPTY_LIST,
        "search_attributes": EMPTY_LIST,
    }
    (await tenant.post("/api/schedules", body)).expect(201)
    assert (await tenant.get("/api/schedules/nightly")).json["memo"] == {}


async def test_a_php_worker_registers_and_schedules_an_activity_with_empty_options(tenant: Tenant) -> None:
    empty = ("workflow_definition_fingerprints", "workflow_command_contracts", "task_slots")
    await tenant.register(**dict.fromkeys(empty, EMPTY_LIST))
    await tenant.start("a")
    command = {"type": "schedule_activity", "activity_type": "charge", "retry_policy": EMPTY_LIST}
    reply = await tenant.complete((await tenant.poll())["task"], command)
    assert reply.expect(200).json["outcome"] == "completed"


async def test_a_list_for_an_object_is_refused_unless_it_is_empty(tenant: Tenant) -> None:
    body = {"workflow_type": "order", "task_queue": "orders", "memo": ["a"]}
    (await tenant.post("/api/workflows", body)).refused_fields("memo")
