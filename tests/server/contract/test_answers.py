"""Answers have the fields that clients of the contract in other languages read."""

from __future__ import annotations

import asyncio

import pytest

from tests.server.contract.conftest import Tenant, check_fixture


async def test_a_registration_answers_with_queue_runtime_and_status(tenant: Tenant) -> None:
    check_fixture("worker-register", await tenant.register())


@pytest.mark.parametrize("runtime", ["worker-runtime", "cli", "elixir", "dotnet/8"])
async def test_a_worker_in_a_language_we_have_not_heard_of_registers(tenant: Tenant, runtime: str) -> None:
    assert (await tenant.register(runtime=runtime))["runtime"] == runtime
    (listed,) = (await tenant.get("/api/workers")).expect(200).json["workers"]
    assert listed["runtime"] == runtime


async def test_a_worker_is_described_with_the_runtime_it_named(tenant: Tenant) -> None:
    await tenant.register()
    check_fixture("worker-describe", (await tenant.get("/api/workers/w-1")).expect(200).json)


async def test_the_list_of_runs_says_which_one_is_current(tenant: Tenant) -> None:
    await tenant.start("a")
    check_fixture("workflow-list-runs", (await tenant.get("/api/workflows/a/runs")).expect(200).json)
    (await tenant.post("/api/workflows/a/cancel", {})).expect(200)
    await tenant.start("a", id_reuse_policy="allow_duplicate")
    runs = (await tenant.get("/api/workflows/a/runs")).expect(200).json["runs"]
    assert [each["is_current_run"] for each in runs] == [False, True]


async def test_an_export_names_its_format_and_its_time_under_metadata(tenant: Tenant) -> None:
    run_id = (await tenant.start("a"))["run_id"]
    exported = (await tenant.get(f"/api/workflows/a/runs/{run_id}/history/export")).expect(200).json
    check_fixture("workflow-history-export", exported)
    assert exported["metadata"]["exported_at"] == exported["exported_at"]


async def test_each_queue_in_the_list_names_its_namespace(tenant: Tenant) -> None:
    await tenant.start("a")
    listed = (await tenant.get("/api/task-queues")).expect(200).json
    check_fixture("task-queue-list", listed)
    assert {each["namespace"] for each in listed["task_queues"]} == {tenant.namespace}


async def test_events_of_a_task_are_numbered_and_a_report_says_that_the_run_goes_on(tenant: Tenant) -> None:
    await tenant.register()
    await tenant.start("a")
    polled = await tenant.poll()
    check_fixture("workflow-task-poll", polled)
    task = polled["task"]
    lease = {"lease_owner": "w-1", "workflow_task_attempt": task["workflow_task_attempt"]}
    asked = lease | {"next_history_page_token": "MA=="}
    page = (await tenant.work(f"workflow-tasks/{task['task_id']}/history", asked)).expect(200).json
    check_fixture("workflow-task-history", page)
    report = lease | {"failure": {"message": "no"}}
    failed = (await tenant.work(f"workflow-tasks/{task['task_id']}/fail", report)).expect(200).json
    check_fixture("workflow-task-fail", failed)


async def test_a_completed_workflow_task_answers_with_the_status_of_its_run(tenant: Tenant) -> None:
    await tenant.register()
    await tenant.start("a")
    task = (await tenant.poll())["task"]
    completed = await tenant.complete(task, {"type": "schedule_activity", "activity_type": "charge"})
    check_fixture("workflow-task-complete", completed.expect(200).json)
    await tenant.start("b")
    task = (await tenant.poll())["task"]
    ended = (await tenant.complete(task, {"type": "complete_workflow", "result": 1})).expect(200).json
    assert ended["run_status"] == "completed"


async def test_a_query_task_has_its_arguments_under_input(tenant: Tenant) -> None:
    await tenant.register(capabilities=["query_tasks"])
    await tenant.start("a")
    asking = asyncio.create_task(tenant.post("/api/workflows/a/query/total", {"input": ["eu"]}))
    polled = await tenant.poll("query")
    while polled["task"] is None:
        await asyncio.sleep(0.01)
        polled = await tenant.poll("query")
    check_fixture("query-task-poll", polled)
    task = polled["task"]
    answer = {"lease_owner": "w-1", "query_task_attempt": task["query_task_attempt"], "result": 7}
    (await tenant.work(f"query-tasks/{task['query_task_id']}/complete", answer)).expect(200)
    assert (await asking).expect(200).json["result"] == 7


async def test_an_accepted_update_has_an_object_of_validation_errors(tenant: Tenant) -> None:
    await tenant.start("a")
    check_fixture("workflow-update", (await tenant.post("/api/workflows/a/update/put", {})).expect(202).json)


@pytest.mark.parametrize(("verb", "status"), [("cancel", "cancelled"), ("terminate", "terminated")])
async def test_cancelled_and_terminated_workflows_are_listed_by_their_own_status(
    tenant: Tenant, verb: str, status: str
) -> None:
    for name in ("a", "b", "c"):
        await tenant.start(name)
    (await tenant.post(f"/api/workflows/a/{verb}", {})).expect(200)
    other = "terminate" if verb == "cancel" else "cancel"
    (await tenant.post(f"/api/workflows/b/{other}", {})).expect(200)
    listed = (await tenant.get(f"/api/workflows?status={status}")).expect(200).json["workflows"]
    assert [each["workflow_id"] for each in listed] == ["a"]
    failed = (await tenant.get("/api/workflows?status=failed")).expect(200).json["workflows"]
    assert {each["workflow_id"] for each in failed} == {"a", "b"}


async def test_cancelled_activities_are_listed_by_their_own_status(tenant: Tenant) -> None:
    for name in ("a", "b"):
        body = {"activity_id": name, "activity_type": "charge", "task_queue": "orders"}
        (await tenant.post("/api/activities", body)).expect(201)
    (await tenant.post("/api/activities/a/cancel", {})).expect(200)
    listed = (await tenant.get("/api/activities?status=cancelled")).expect(200).json["activities"]
    assert [each["activity_id"] for each in listed] == ["a"]
