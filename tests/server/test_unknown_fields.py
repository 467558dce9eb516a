"""Unknown fields: errors on Penstock's own routes, warnings on routes of the public contract."""

from __future__ import annotations

import itertools
import re
from pathlib import Path
from typing import Any

import durable_workflow
import pytest

from penstock.server.operations.contract import CONTRACT_OPERATIONS
from penstock.server.operations.table import OPERATIONS
from tests.server.client import Client

NUMBERS = itertools.count()
Body = dict[str, Any]


@pytest.fixture
def name() -> str:
    return f"unknown-{next(NUMBERS)}"


def fields(answer: Body) -> list[str]:
    return [each["field"] for each in answer.get("warnings", []) if each.get("reason") == "unknown_field"]


async def test_a_misspelt_slot_field_of_a_registration_is_named_with_the_one_that_was_meant(
    penstock: Client, name: str
) -> None:
    body = {"worker_id": name, "task_queue": name, "runtime": "python", "max_concurent_activity_tasks": 2}
    answer = (await penstock.post("/api/worker/register", body, role="worker")).expect(201).json
    (warning,) = answer["warnings"]
    assert warning["reason"] == "unknown_field"
    assert warning["field"] == "max_concurent_activity_tasks"
    assert warning["nearest_fields"][0] == "max_concurrent_activity_tasks"
    assert "did you mean max_concurrent_activity_tasks" in warning["message"]


async def test_a_request_whose_fields_are_all_known_is_answered_without_warnings(
    penstock: Client, name: str
) -> None:
    body = {"worker_id": name, "task_queue": name, "runtime": "python"}
    answer = (await penstock.post("/api/worker/register", body, role="worker")).expect(201).json
    assert "warnings" not in answer


async def test_a_refusal_names_the_misspelt_field_beside_the_one_that_is_missing(penstock: Client) -> None:
    refusal = (
        (await penstock.post("/api/workflows", {"workflow_typ": "greet"}))
        .expect(422, "validation_failed")
        .json
    )
    assert refusal["errors"] == {"workflow_type": ["is required"]}
    assert fields(refusal) == ["workflow_typ"]


async def test_a_field_for_which_a_start_is_refused_is_not_called_ignored(penstock: Client) -> None:
    body = {"workflow_type": "greet", "retry_policy": {"max_attempts": 3}, "task_que": "orders"}
    answer = (await penstock.post("/api/workflows", body)).refused(422, "validation_failed").json
    assert set(answer["errors"]) == {"retry_policy"}
    assert [each["field"] for each in answer["warnings"]] == ["task_que"]


async def test_unknown_fields_inside_objects_and_lists_are_named_by_their_path(
    penstock: Client, name: str
) -> None:
    body = {
        "activity_type": "charge",
        "task_queue": name,
        "input": [{"free": "form"}],
        "retry_policy": {"max_attempt": 3},
        "priority": {"fairness_kye": "acme"},
    }
    answer = (await penstock.post("/api/activities", body)).expect(201).json
    assert fields(answer) == ["priority.fairness_kye", "retry_policy.max_attempt"]


async def workflow_task(penstock: Client, name: str) -> Body:
    worker = {"worker_id": name, "task_queue": name, "runtime": "python"}
    (await penstock.post("/api/worker/register", worker, role="worker")).expect(201)
    (await penstock.post("/api/workflows", {"workflow_type": "greet", "task_queue": name})).expect(201)
    poll = {"worker_id": name, "task_queue": name, "timeout_seconds": 0}
    answer = (await penstock.post("/api/worker/workflow-tasks/poll", poll, role="worker")).expect(200)
    task: Body = answer.json["task"]
    return task


@pytest.mark.parametrize("in_batch", [False, True])
async def test_a_completion_with_a_misspelt_command_field_is_recorded_and_warned_about(
    penstock: Client, name: str, in_batch: bool
) -> None:
    """A refusal would fail the workflow task, and the same commands would come back for ever."""
    task = await workflow_task(penstock, name)
    report = {
        "lease_owner": name,
        "workflow_task_attempt": task["workflow_task_attempt"],
        "commands": [{"type": "start_timer", "delay_seconds": 60, "delay_second": 1, "summary": "a pause"}],
        "stickyness": True,
    }
    if in_batch:
        items = [report | {"task_id": task["task_id"], "action": "complete"}]
        answer = await penstock.post("/api/worker/workflow-tasks/batch", {"items": items}, role="worker")
        body = answer.expect(200).json["items"][0]
    else:
        target = f"/api/worker/workflow-tasks/{task['task_id']}/complete"
        body = (await penstock.post(target, report, role="worker")).expect(200).json
    assert body["outcome"] == "completed"
    assert fields(body) == ["stickyness", "commands.0.delay_second"]


OURS = [
    (
        "POST",
        "/api/workflows/signal-with-start",
        {"workflow_type": "a", "signal_name": "b", "signal_inputs": []},
    ),
    ("PATCH", "/api/task-queues/q/config", {"task_queue_type": "activity", "max_runing": 1}),
    ("PATCH", "/api/cluster/limits", {"max_active_lease": 1}),
    ("POST", "/api/activities/a/cancel", {"reasons": "x"}),
]


@pytest.mark.parametrize(("method", "path", "body"), OURS, ids=[each[1] for each in OURS])
async def test_a_route_of_our_own_refuses_a_misspelt_field_and_names_the_nearest(
    penstock: Client, method: str, path: str, body: Body
) -> None:
    async with penstock.unchanged():
        send = penstock.post if method == "POST" else penstock.patch
        refusal = (await send(path, body, role="admin")).expect(422, "validation_failed").json
    assert refusal["reason"] == "validation_failed"
    misspelt = list(body)[-1]
    (problem,) = refusal["errors"][misspelt]
    assert re.match(r"is not a known field; did you mean \w+", problem)


async def test_an_item_of_a_batch_of_starts_with_a_misspelt_field_is_refused_by_itself(
    penstock: Client, name: str
) -> None:
    known = {"activity_type": "charge", "task_queue": name}
    items = [known | {"cost_estimat": 5}, known | {"idempotency_key": name}]
    answer = (await penstock.post("/api/activities/batch", {"items": items})).expect(200).json
    refused, accepted = answer["items"]
    assert (refused["http_status"], accepted["http_status"]) == (422, 201)
    assert "cost_estimate" in refused["errors"]["cost_estimat"][0]


async def test_a_misspelt_query_parameter_is_refused_on_our_routes_and_warned_about_on_the_contracts(
    penstock: Client,
) -> None:
    refusal = (await penstock.get("/api/workflows/count?querry=x")).expect(422, "validation_failed").json
    assert "did you mean query" in refusal["errors"]["querry"][0]
    answer = (await penstock.get("/api/workflows?page_sise=1&namespace=default")).expect(200).json
    assert fields(answer) == ["page_sise"]


async def test_no_more_than_ten_unknown_fields_are_named(penstock: Client) -> None:
    body = {"workflow_type": "greet"} | {f"field_{number}": 1 for number in range(100)}
    answer = (await penstock.post("/api/workflows", body)).expect(201).json
    assert len(answer["warnings"]) == 10


def test_every_route_that_the_public_sdk_uses_is_one_of_the_contracts() -> None:
    """Paths in the source of the SDK, with what it fills in as one segment each."""
    source = (Path(durable_workflow.__file__).parent / "client.py").read_text()
    used = set()
    for path in re.findall(
        r'f?"(/(?:worker|workflows|activities|namespaces|task-queues|system)[^"?]*)"', source
    ):
        used.add(re.sub(r"\{[^{}]*\}", "{}", path))
    ours = {
        re.sub(r"\{[^{}]*\}", "{}", each.path.removeprefix("/api")): each.name
        for each in OPERATIONS
        if each.name not in CONTRACT_OPERATIONS
    }
    assert used & ours.keys() == set()
    assert len(used) > 30, "the paths are found"


def test_the_list_of_contract_operations_names_operations() -> None:
    assert {each.name for each in OPERATIONS} >= CONTRACT_OPERATIONS
