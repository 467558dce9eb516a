"""Authorization by role, and the order of the checks of a request."""

from __future__ import annotations

import asyncio
import re

import pytest

from penstock.core.permissions import ACCESS
from penstock.server.operation import Operation
from penstock.server.operations.table import OPERATIONS
from tests.acceptance.cluster import Cluster, Json, Reply, stranger

SETTINGS = {"DW_MAX_PAYLOAD_BYTES": "20000"}
ROLES = ("worker", "operator", "admin")
VERSIONS = {"X-Durable-Workflow-Control-Plane-Version": "2", "X-Durable-Workflow-Protocol-Version": "1.20"}


def named(operation: Operation) -> str:
    return operation.name


def path_of(operation: Operation) -> str:
    return re.sub(r"\{\w+\}", "nobody", operation.path)


async def knock(
    cluster: Cluster, operation: Operation, role: str | None, more: dict[str, str] | None = None
) -> Reply:
    """The operation with a body that changes nothing, both version headers, and the role's token."""
    body: Json | None = {} if operation.method in ("POST", "PUT") else None
    token = {"Authorization": f"Bearer {role}-secret"} if role else stranger()
    namespace = {"X-Namespace": cluster.namespace} if cluster.namespace else {}
    return await cluster.ask(
        operation.method,
        path_of(operation),
        body,
        role=None,
        more=VERSIONS | namespace | token | (more or {}),
    )


@pytest.mark.parametrize("operation", OPERATIONS, ids=named)
async def test_an_operation_opens_to_its_roles_and_to_nobody_else(
    cluster: Cluster, operation: Operation
) -> None:
    allowed = ACCESS[operation.family].roles
    anonymous = await knock(cluster, operation, None)
    if allowed is None:
        anonymous.expect(200)
    else:
        anonymous.expect(401, "unauthorized")
        assert anonymous.headers["WWW-Authenticate"] == "Bearer"
    for role in ROLES:
        reply = await knock(cluster, operation, role)
        if allowed is None or role in allowed:
            assert reply.status not in (401, 403), reply.body
            assert reply.status < 500
        else:
            reply.expect(403, "forbidden")
            assert reply["role"] == role
            assert sorted(reply["allowed_roles"]) == sorted(allowed)


@pytest.mark.parametrize("operation", OPERATIONS, ids=named)
async def test_only_an_allowed_role_learns_that_a_namespace_is_missing(
    cluster: Cluster, operation: Operation
) -> None:
    access = ACCESS[operation.family]
    for role in ROLES:
        here = await knock(cluster.at("default"), operation, role)
        nowhere = await knock(cluster.at("no-such-namespace"), operation, role)
        if access.roles is not None and role not in access.roles:
            nowhere.expect(403, "forbidden")
            assert {**here.body, "timestamp": None} == {**nowhere.body, "timestamp": None}
        elif access.namespaced:
            nowhere.expect(404, "namespace_not_found")
        else:
            assert nowhere.reason == here.reason


async def test_requests_are_judged_in_the_order_of_the_contract(cluster: Cluster) -> None:
    """Each step mends what the step before was refused for, and nothing else."""
    lost = cluster.at(None)
    big, text = b"[" + b"9" * 30_000, {"Content-Type": "text/plain"}
    broken, fields = b'{"workflow_type": ', b'{"workflow_type": 7}'
    here, json = stranger(), {"Content-Type": "application/json"}
    wrong, right = {"Authorization": "Bearer worker-secret"}, {"Authorization": "Bearer operator-secret"}
    version = {"X-Durable-Workflow-Control-Plane-Version": "2"}
    nowhere = {"X-Namespace": "no-such-namespace"}
    for raw, sent, status, reason in (
        (big, nowhere | here | text, 413, "payload_too_large"),
        (broken, nowhere | here | text, 415, "unsupported_media_type"),
        (broken, nowhere | here | json, 400, "malformed_json"),
        (fields, nowhere | here | json, 401, "unauthorized"),
        (fields, nowhere | here | json | wrong, 403, "forbidden"),
        (fields, nowhere | json | right, 400, "missing_control_plane_version"),
        (fields, nowhere | json | right | version, 404, "namespace_not_found"),
        (fields, json | right | version, 422, "validation_failed"),
        (b'{"workflow_type": "t"}', json | right | version, 201, None),
    ):
        (await lost.ask("POST", "/api/workflows", role=None, raw=raw, more=sent)).expect(status, reason)


async def test_a_body_that_is_declared_too_large_is_refused_before_it_is_sent(cluster: Cluster) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", cluster.first.port)
    writer.write(
        b"POST /api/workflows HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
        b"Content-Length: 999999999999\r\n\r\n"
    )
    answer = await reader.read()
    writer.close()
    assert answer.startswith(b"HTTP/1.1 413 ")
    assert b'"reason":"payload_too_large"' in answer
    assert b'"limit":20000' in answer


async def test_a_body_of_unknown_length_is_measured_while_it_arrives(cluster: Cluster) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", cluster.first.port)
    writer.write(
        b"POST /api/workflows HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
        b"Transfer-Encoding: chunked\r\n\r\n" + b"4e20\r\n" + b" " * 20_000 + b"\r\n" + b"1\r\n \r\n"
    )
    answer = await reader.read()
    writer.close()
    assert answer.startswith(b"HTTP/1.1 413 ")


async def test_media_types_that_end_in_json_are_json(scene: Cluster) -> None:
    for media in ("application/json", "Application/JSON; charset=utf-8", "application/vnd.orders.v1+json"):
        reply = await scene.post("/api/workflows", {"workflow_type": "t"}, more={"Content-Type": media})
        reply.expect(201)
    refused = await scene.post("/api/workflows", {"workflow_type": "t"}, more={"Content-Type": "text/json"})
    refused.expect(415, "unsupported_media_type")
    assert refused["accepted_content_types"] == ["application/json", "application/*+json"]


async def test_a_post_without_a_body_is_an_empty_object(scene: Cluster) -> None:
    reply = (await scene.post("/api/workflows")).expect(422, "validation_failed")
    assert reply["errors"] == {"workflow_type": ["is required"]}


@pytest.mark.parametrize("version", ["0.9", "1.21", "2.0", "1", "1.x", "01.1"])
async def test_a_worker_protocol_that_is_not_served_is_refused(cluster: Cluster, version: str) -> None:
    reply = await cluster.post(
        "/api/worker/register", {}, role="worker", more={"X-Durable-Workflow-Protocol-Version": version}
    )
    reply.expect(400, "unsupported_protocol_version")
    assert (reply["supported_version"], reply["requested_version"]) == ("1.20", version)
    assert reply.headers["X-Durable-Workflow-Protocol-Version"] == "1.20"
    assert reply["protocol_version"] == "1.20"


@pytest.mark.parametrize("version", ["1.0", "1.1", "1.19", " 1.20 "])
async def test_every_minor_version_that_was_ever_sent_is_served(scene: Cluster, version: str) -> None:
    reply = await scene.post(
        "/api/worker/register",
        {"task_queue": "q", "runtime": "python"},
        role="worker",
        more={"X-Durable-Workflow-Protocol-Version": version},
    )
    reply.expect(201)
    assert reply["protocol_version"] == "1.20"
    assert reply["server_capabilities"]["poll_status"] is True


async def test_a_control_plane_version_that_is_not_served_is_refused(cluster: Cluster) -> None:
    reply = await cluster.get("/api/workflows", more={"X-Durable-Workflow-Control-Plane-Version": "3"})
    reply.expect(400, "unsupported_control_plane_version")
    assert (reply["supported_version"], reply["requested_version"]) == ("2", "3")


async def test_workflow_routes_carry_the_control_plane_envelope_in_success_and_refusal(
    scene: Cluster,
) -> None:
    started = (await scene.start("order-1")).expect(201)
    again = (await scene.start("order-1")).expect(409, "instance_already_started")
    for reply, operation in (
        (started, "start"),
        (again, "start"),
        (await scene.get("/api/workflows"), "list"),
        (await scene.get("/api/workflows/nobody"), "describe"),
        (await scene.get("/api/workflows/order-1/runs"), "list_runs"),
    ):
        envelope = reply["control_plane"]
        assert envelope["schema"] == "durable-workflow.v2.control-plane-response"
        assert (envelope["version"], envelope["operation"]) == (1, operation)
        assert envelope["contract"]["legacy_field_policy"] == "reject_non_canonical"
        assert reply.headers["X-Durable-Workflow-Control-Plane-Version"] == "2"
    assert started["control_plane"]["run_id"] == started["run_id"]
    assert again["control_plane"]["reason"] == "instance_already_started"


async def test_an_unknown_path_and_an_unknown_method_are_refused_in_the_same_shape(cluster: Cluster) -> None:
    (await cluster.get("/api/no-such-path")).expect(404, "not_found")
    refused = (await cluster.ask("PATCH", "/api/workflows")).expect(405, "method_not_allowed")
    assert refused.headers["Allow"] == "GET, POST"


async def test_a_token_in_the_url_is_refused_even_when_it_is_right(cluster: Cluster) -> None:
    reply = await cluster.get("/api/workflows?token=operator-secret")
    reply.expect(400, "token_in_url")


async def test_a_foreign_host_name_is_not_answered_on_loopback(cluster: Cluster) -> None:
    (await cluster.get("/api/health", more={"Host": "evil.example"})).expect(421, "misdirected_host")
    (await cluster.get("/api/workflows", more={"Host": "evil.example:80"})).expect(421, "misdirected_host")


async def test_a_header_that_decides_may_stand_once_only(cluster: Cluster) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", cluster.first.port)
    writer.write(
        b"GET /api/workflows HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer operator-secret\r\n"
        b"X-Namespace: default\r\nX-Namespace: other\r\n"
        b"X-Durable-Workflow-Control-Plane-Version: 2\r\nConnection: close\r\n\r\n"
    )
    answer = await reader.read()
    writer.close()
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert b'"reason":"malformed_request"' in answer


async def test_an_address_that_keeps_guessing_is_slowed_down_and_others_are_not(cluster: Cluster) -> None:
    guesser = stranger() | {"Authorization": "Bearer wrong"}
    refusals = [
        (await cluster.ask("GET", "/api/workflows", role=None, more=guesser, server=cluster.first)).reason
        for _ in range(12)
    ]
    assert refusals[:10] == ["unauthorized"] * 10
    slowed = await cluster.ask("GET", "/api/workflows", role=None, more=guesser, server=cluster.first)
    slowed.expect(429, "too_many_auth_failures")
    assert int(slowed.headers["Retry-After"]) == slowed["retry_after_seconds"] > 0
    (
        await cluster.get(
            "/api/workflows",
            server=cluster.first,
            more=dict(guesser) | {"Authorization": "Bearer operator-secret"},
        )
    ).expect(200)
    (await cluster.ask("GET", "/api/workflows", role=None, more=stranger(), server=cluster.first)).expect(
        401, "unauthorized"
    )
