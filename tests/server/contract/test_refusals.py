"""What a client of the contract expects to be refused, or at least to be named."""

from __future__ import annotations

import asyncio
from urllib.parse import quote

import pytest

from penstock.wire import payloads
from tests.server.contract.conftest import Body, Tenant

DECLARED: Body = {
    "order": {
        "queries": ["sum"],
        "query_contracts": [
            {
                "name": "sum",
                "parameters": [
                    {"name": "a", "type": "int", "required": True},
                    {"name": "b", "type": "int", "required": True},
                ],
            }
        ],
        "signals": [],
        "updates": [],
    }
}


@pytest.mark.parametrize("name", [".", "..", "...", "__internal", "__x", "system", "System", "internal"])
async def test_a_reserved_or_path_like_namespace_is_not_created(tenant: Tenant, name: str) -> None:
    reply = await tenant.ask("POST", "/api/namespaces", {"name": name}, role="admin")
    reply.refused_fields("name")


@pytest.mark.parametrize("workflow_id", [".", "..", "../b", "a/../b", "a/.", "./a"])
async def test_an_id_that_clients_would_normalise_away_is_refused(tenant: Tenant, workflow_id: str) -> None:
    body = {"workflow_id": workflow_id, "workflow_type": "order"}
    (await tenant.post("/api/workflows", body)).refused_fields("workflow_id")
    activity = {"activity_id": workflow_id, "activity_type": "charge", "task_queue": "q"}
    (await tenant.post("/api/activities", activity)).refused_fields("activity_id")


@pytest.mark.parametrize("workflow_id", ["a/b", "a..b", "...", ".a", "a/..b", "eu/2026/", "system"])
async def test_an_id_with_slashes_or_dots_that_survive_is_started_and_described(
    tenant: Tenant, workflow_id: str
) -> None:
    await tenant.start(workflow_id)
    (await tenant.get(f"/api/workflows/{quote(workflow_id, safe='')}")).expect(200)


async def test_an_undefined_search_attribute_is_refused_at_start(tenant: Tenant) -> None:
    body = {"workflow_id": "a", "workflow_type": "order", "search_attributes": {"Region": "eu"}}
    refused = (await tenant.post("/api/workflows", body)).refused_fields("search_attributes.Region")
    assert "register it first" in refused.json["errors"]["search_attributes.Region"][0]
    (await tenant.get("/api/workflows/a")).expect(404, "instance_not_found")
    (await tenant.post("/api/search-attributes", {"name": "Region", "type": "keyword"})).expect(201)
    (await tenant.post("/api/workflows", body)).expect(201)


async def test_an_undefined_search_attribute_is_refused_at_an_upsert_and_may_be_removed(
    tenant: Tenant,
) -> None:
    await tenant.register()
    await tenant.start("a")
    task = (await tenant.poll())["task"]
    refused = await tenant.complete(
        task, {"type": "upsert_search_attributes", "attributes": {"Region": "eu"}}
    )
    refused.refused_fields("commands.0.attributes.Region")
    removal = {"type": "upsert_search_attributes", "attributes": {"Region": None}}
    (await tenant.complete(task, removal, {"type": "complete_workflow", "result": None})).expect(200)


@pytest.mark.parametrize("name", ["wf_id", "WF_status", "WorkflowId", "Status"])
async def test_a_reserved_search_attribute_is_not_registered(tenant: Tenant, name: str) -> None:
    body = {"name": name, "type": "keyword"}
    (await tenant.post("/api/search-attributes", body)).refused(409, "name_reserved")


async def test_a_query_with_arguments_of_the_wrong_type_is_refused_like_a_signal(tenant: Tenant) -> None:
    await tenant.register(workflow_command_contracts=DECLARED, capabilities=["query_tasks"])
    await tenant.start("a")
    refused = await tenant.post("/api/workflows/a/query/sum", {"input": ["x", "y"]})
    refused.refused(422, "invalid_query_arguments")
    assert refused.json["outcome"] == "rejected_invalid_arguments"
    (await tenant.post("/api/workflows/a/query/sum", [])).refused(422, "invalid_query_arguments")
    assert (await tenant.poll("query"))["task"] is None


async def test_a_query_with_arguments_as_declared_reaches_the_worker(tenant: Tenant) -> None:
    await tenant.register(workflow_command_contracts=DECLARED, capabilities=["query_tasks"])
    await tenant.start("a")
    asking = asyncio.create_task(tenant.post("/api/workflows/a/query/sum", {"input": [1, 2]}))
    while (task := (await tenant.poll("query"))["task"]) is None:
        await asyncio.sleep(0.01)
    answer = {"lease_owner": "w-1", "query_task_attempt": task["query_task_attempt"], "result": 3}
    (await tenant.work(f"query-tasks/{task['query_task_id']}/complete", answer)).expect(200)
    assert (await asking).expect(200).json["result"] == 3


async def test_an_activity_scheduled_with_task_queue_and_input_runs_there_with_its_arguments(
    tenant: Tenant,
) -> None:
    await tenant.register()
    await tenant.register(worker_id="w-2", task_queue="external-activities")
    await tenant.start("a")
    task = (await tenant.poll())["task"]
    command = {
        "type": "schedule_activity",
        "activity_type": "charge",
        "task_queue": "external-activities",
        "input": ["Ada", 12],
    }
    answer = (await tenant.complete(task, command)).expect(200).json
    assert answer["warnings"] == []
    activity = (await tenant.poll("activity", "external-activities", "w-2"))["task"]
    assert payloads.decode(activity["arguments"]["blob"]) == ["Ada", 12]


async def test_a_child_started_with_task_queue_and_input_runs_there_with_its_arguments(
    tenant: Tenant,
) -> None:
    await tenant.register()
    await tenant.register(worker_id="w-2", task_queue="children")
    await tenant.start("a")
    task = (await tenant.poll())["task"]
    command = {
        "type": "start_child_workflow",
        "workflow_type": "part",
        "task_queue": "children",
        "input": [{"of": "a"}],
    }
    (await tenant.complete(task, command)).expect(200)
    child = (await tenant.poll("workflow", "children", "w-2"))["task"]
    assert payloads.decode(child["arguments"]["blob"]) == [{"of": "a"}]


async def test_a_command_that_names_two_queues_is_refused(tenant: Tenant) -> None:
    await tenant.register()
    await tenant.start("a")
    task = (await tenant.poll())["task"]
    command = {"type": "schedule_activity", "activity_type": "charge", "queue": "x", "task_queue": "y"}
    (await tenant.complete(task, command)).refused_fields("commands.0.task_queue")


@pytest.mark.parametrize(
    ("command", "field"),
    [
        ({"type": "complete_workflow", "retry_policy": {"max_attempts": 3}}, "retry_policy"),
        ({"type": "start_timer", "delay_seconds": 1, "start_to_close_timeout": 5}, "start_to_close_timeout"),
        (
            {"type": "schedule_activity", "activity_type": "x", "run_timeout_seconds": 5},
            "run_timeout_seconds",
        ),
        ({"type": "complete_workflow", "non_retryable": True}, "non_retryable"),
        (
            {"type": "start_child_workflow", "workflow_type": "x", "heartbeat_timeout": 1},
            "heartbeat_timeout",
        ),
    ],
)
async def test_a_retry_policy_or_timeout_on_a_command_that_has_none_is_refused(
    tenant: Tenant, command: Body, field: str
) -> None:
    await tenant.register()
    await tenant.start("a")
    task = (await tenant.poll())["task"]
    (await tenant.complete(task, command)).refused_fields(f"commands.0.{field}")


async def test_a_misspelt_field_of_a_command_is_named_in_the_warnings(tenant: Tenant) -> None:
    await tenant.register()
    await tenant.start("a")
    task = (await tenant.poll())["task"]
    command = {"type": "schedule_activity", "activity_type": "charge", "argumens": [1]}
    answer = (await tenant.complete(task, command)).expect(200).json
    assert [each["field"] for each in answer["warnings"]] == ["commands.0.argumens"]
