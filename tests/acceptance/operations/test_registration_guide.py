"""The page "Namespace, Auth, And Worker Registration" of the contract: its requests, sent verbatim."""

from __future__ import annotations

import json

import pytest

from tests.acceptance.cluster import Cluster, stranger

CONTROL = {"X-Durable-Workflow-Control-Plane-Version": "2"}
WORKER = {"X-Durable-Workflow-Protocol-Version": "1.0"}
JSON = {"Content-Type": "application/json"}
ORDERS = {"X-Namespace": "orders-prod"}
CREATE = b"""{
"name": "orders-prod",
"description": "production order workflows",
"retention_days": 90
}"""
START = b"""{
"workflow_type": "orders.fulfillment",
"workflow_id": "order-1001",
"task_queue": "orders",
"input": ["order-1001"]
}"""
REGISTER = b"""{
"worker_id": "py-orders-1",
"task_queue": "orders",
"runtime": "python",
"sdk_version": "0.2.0",
"build_id": "orders-worker-2026-04-22",
"supported_workflow_types": ["orders.fulfillment"],
"workflow_definition_fingerprints": {
"orders.fulfillment": "sha256:definition-fingerprint"
},
"supported_activity_types": ["payments.capture"],
"max_concurrent_workflow_tasks": 10,
"max_concurrent_activity_tasks": 50
}"""
POLL = b"""{
"worker_id": "py-orders-1",
"task_queue": "orders",
"timeout_seconds": 30
}"""


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


ADMIN, OPERATOR, HAND = bearer("admin-secret"), bearer("operator-secret"), bearer("worker-secret")


@pytest.fixture(scope="module")
async def orders(cluster: Cluster) -> Cluster:
    """The page's namespace, workflow and worker, made with the page's own requests."""
    made = await cluster.ask("POST", "/api/namespaces", role=None, raw=CREATE, more=ADMIN | CONTROL | JSON)
    made.expect(201)
    assert (made["name"], made["description"], made["retention_days"], made["status"]) == (
        "orders-prod",
        "production order workflows",
        90,
        "active",
    )
    started = await cluster.ask(
        "POST", "/api/workflows", role=None, raw=START, more=OPERATOR | ORDERS | CONTROL | JSON
    )
    started.expect(201)
    assert (started["workflow_id"], started["namespace"], started["outcome"]) == (
        "order-1001",
        "orders-prod",
        "started_new",
    )
    registered = await cluster.ask(
        "POST", "/api/worker/register", role=None, raw=REGISTER, more=HAND | ORDERS | WORKER | JSON
    )
    registered.expect(201)
    assert (registered["worker_id"], registered["registered"]) == ("py-orders-1", True)
    return cluster.at("orders-prod")


async def poll(cluster: Cluster, **changed: object) -> dict[str, object]:
    body = json.loads(POLL) | {"timeout_seconds": 0} | changed
    reply = await cluster.ask(
        "POST",
        "/api/worker/workflow-tasks/poll",
        body,
        role=None,
        more=HAND | ORDERS | WORKER | JSON,
    )
    return {"http": reply.status, **reply.body}


async def test_the_page_s_poll_leases_the_workflow_that_the_page_started(orders: Cluster) -> None:
    polled = await orders.ask(
        "POST",
        "/api/worker/workflow-tasks/poll",
        role=None,
        raw=POLL,
        more=HAND | ORDERS | WORKER | JSON,
    )
    polled.expect(200)
    assert polled["poll_status"] == "leased"
    assert (polled["task"]["workflow_id"], polled["task"]["lease_owner"]) == ("order-1001", "py-orders-1")
    again = await poll(orders)
    assert (again["http"], again["task"], again["poll_status"]) == (200, None, "empty")


async def test_the_page_s_queue_request_shows_the_worker_and_its_admission(orders: Cluster) -> None:
    queue = await orders.ask("GET", "/api/task-queues/orders", role=None, more=OPERATOR | ORDERS | CONTROL)
    queue.expect(200)
    poller = queue["pollers"][0]
    assert (poller["worker_id"], poller["runtime"], poller["sdk_version"], poller["build_id"]) == (
        "py-orders-1",
        "python",
        "0.2.0",
        "orders-worker-2026-04-22",
    )
    assert (poller["max_concurrent_workflow_tasks"], poller["max_concurrent_activity_tasks"]) == (10, 50)
    assert {"workflow_tasks", "activity_tasks", "query_tasks"} <= queue["admission"].keys()


async def test_discovery_opens_to_every_role_without_a_version_header(cluster: Cluster) -> None:
    for role in (HAND, OPERATOR, ADMIN):
        info = (await cluster.ask("GET", "/api/cluster/info", role=None, more=role)).expect(200)
        assert info["worker_protocol"]["server_capabilities"]["poll_status"] is True
        assert info["control_plane"]["version"] == "2"
    (await cluster.ask("GET", "/api/cluster/info", role=None, more=stranger())).expect(401, "unauthorized")


async def test_production_and_production_in_capitals_are_one_namespace(cluster: Cluster) -> None:
    for name, status, reason in (
        ("Production", 201, None),
        ("production", 409, "namespace_already_exists"),
        ("PRODUCTION", 409, "namespace_already_exists"),
    ):
        reply = await cluster.post("/api/namespaces", {"name": name}, role="admin")
        reply.expect(status, reason)
        assert (reply["name"] if reason is None else reply["namespace"]) == "production"


@pytest.mark.parametrize(
    ("reason", "status", "token", "path", "left_out"),
    [
        ("missing_control_plane_version", 400, OPERATOR, "/api/workflows", CONTROL),
        ("missing_protocol_version", 400, HAND, "/api/worker/register", WORKER),
    ],
)
async def test_a_missing_version_header_is_named_with_the_version_to_send(
    orders: Cluster, reason: str, status: int, token: dict[str, str], path: str, left_out: dict[str, str]
) -> None:
    plane = CONTROL | WORKER
    sent = {name: value for name, value in plane.items() if name not in left_out}
    reply = await orders.ask("POST", path, {}, role=None, more=token | ORDERS | sent)
    reply.expect(status, reason)
    assert reply["supported_version"] in ("2", "1.20")
    assert reply["requested_version"] is None
    assert next(iter(left_out)) in reply["remediation"]
    assert reply.headers[next(iter(left_out))] == reply["supported_version"]


async def test_an_unknown_namespace_is_named_whichever_way_it_was_asked_for(cluster: Cluster) -> None:
    for path, namespace in (("/api/workflows", "Nowhere"), ("/api/workflows?namespace=nowhere", None)):
        reply = await cluster.at(namespace).get(path)
        reply.expect(404, "namespace_not_found")
        assert reply["namespace"] == "nowhere"
        assert "remediation" in reply.body


async def test_a_worker_that_polls_another_queue_is_told_both_names(orders: Cluster) -> None:
    refused = await poll(orders, task_queue="payments")
    assert (refused["http"], refused["reason"]) == (409, "task_queue_mismatch")
    assert (refused["registered_task_queue"], refused["requested_task_queue"]) == ("orders", "payments")


async def test_a_draining_build_gets_nothing_new_until_it_is_resumed(orders: Cluster) -> None:
    build = {"build_id": "orders-worker-2026-04-22"}
    path = "/api/task-queues/orders/build-ids"
    (await orders.post(f"{path}/drain", build)).expect(200)
    for _ in orders.servers:
        refused = await poll(orders)
        assert (refused["http"], refused["reason"]) == (409, "worker_draining")
        assert (refused["poll_status"], refused["task"]) == ("draining", None)
    (await orders.post(f"{path}/resume", build)).expect(200)
    for _ in orders.servers:
        assert (await poll(orders))["poll_status"] == "empty"


async def test_changed_workflow_code_under_an_active_worker_id_is_refused(orders: Cluster) -> None:
    body = json.loads(REGISTER)
    (await orders.post("/api/worker/register", body, role="worker")).expect(201)
    body["workflow_definition_fingerprints"]["orders.fulfillment"] = "sha256:another"
    refused = await orders.post("/api/worker/register", body, role="worker")
    refused.expect(409, "workflow_definition_changed")
    assert refused["workflow_type"] == "orders.fulfillment"
    shown = (await orders.get("/api/workers/py-orders-1")).ok()
    assert shown["workflow_definition_fingerprints"] == {
        "orders.fulfillment": "sha256:definition-fingerprint"
    }
    (await orders.post("/api/worker/register", body | {"worker_id": "py-orders-2"}, role="worker")).expect(
        201
    )


@pytest.mark.parametrize(
    ("path", "role", "body", "fields"),
    [
        ("/api/workflows", "operator", {"task_queue": 7}, {"workflow_type", "task_queue"}),
        ("/api/worker/register", "worker", {"runtime": "co\tbol"}, {"task_queue", "runtime"}),
        ("/api/namespaces", "admin", {"name": "a b", "retention_days": 366}, {"name", "retention_days"}),
        (
            "/api/worker/register",
            "worker",
            {"task_queue": "q", "runtime": "go", "max_concurrent_workflow_tasks": 0},
            {"max_concurrent_workflow_tasks"},
        ),
    ],
)
async def test_every_wrong_field_is_reported_under_both_names(
    cluster: Cluster, path: str, role: str, body: dict[str, object], fields: set[str]
) -> None:
    reply = (await cluster.post(path, body, role=role)).expect(422, "validation_failed")
    assert set(reply["errors"]) == fields
    assert reply["errors"] == reply["validation_errors"]
    assert all(isinstance(problem, str) for problems in reply["errors"].values() for problem in problems)


async def test_a_worker_without_an_id_is_given_one_and_room_for_a_hundred_tasks(scene: Cluster) -> None:
    made = await scene.post("/api/worker/register", {"task_queue": "orders", "runtime": "php"}, role="worker")
    made.expect(201)
    shown = (await scene.get(f"/api/workers/{made['worker_id']}")).ok()
    assert (shown["max_concurrent_workflow_tasks"], shown["max_concurrent_activity_tasks"]) == (100, 100)
    assert (shown["supported_workflow_types"], shown["supported_activity_types"]) == ([], [])


@pytest.mark.parametrize("runtime", ["php", "python", "typescript", "go", "java"])
async def test_every_runtime_of_the_page_may_register(scene: Cluster, runtime: str) -> None:
    await scene.worker(f"{runtime}-1", runtime=runtime)
