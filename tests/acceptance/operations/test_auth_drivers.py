"""Authentication drivers: shared token, none, and signatures of both profiles."""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import json
import secrets
import time
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

import pytest

from penstock.wire.signatures import SignedRequest, sign
from tests.acceptance.cluster import Cluster, Json, Reply, stranger
from tests.acceptance.conftest import serving
from tests.support.live import server
from tests.support.servers import Server

NO_TOKENS = {"DW_WORKER_TOKEN": "", "DW_OPERATOR_TOKEN": "", "DW_ADMIN_TOKEN": ""}
VERSIONS = {"X-Durable-Workflow-Control-Plane-Version": "2", "X-Durable-Workflow-Protocol-Version": "1.0"}
DOORS = {
    "worker": ("POST", "/api/worker/heartbeat"),
    "operator": ("GET", "/api/workflows"),
    "admin": ("PUT", "/api/namespaces/nowhere"),
}
"""One door for each role; a caller who may enter gets an answer that is neither 401 nor 403."""

KEYS = {role: f"{role}-signature-secret" for role in ("worker", "operator", "admin")}
SIGNED = NO_TOKENS | {
    "DW_AUTH_DRIVER": "signature",
    **{f"DW_{role.upper()}_SIGNATURE_KEY": key for role, key in KEYS.items()},
}


@contextlib.asynccontextmanager
async def alone(
    folder: Path, postgres: Server, settings: Mapping[str, str], topology: str = "sqlite"
) -> AsyncIterator[Cluster]:
    async with serving(topology, folder, postgres, settings) as made:
        yield made


async def knock(cluster: Cluster, door: str, credential: Mapping[str, str]) -> Reply:
    method, path = DOORS[door]
    body: Json | None = None if method == "GET" else {}
    return await cluster.ask(method, path, body, role=None, more=VERSIONS | dict(credential))


async def opened(cluster: Cluster, credential: Mapping[str, str]) -> dict[str, str | None]:
    """What each door says: None if it opens, else the reason why not."""
    replies = {door: await knock(cluster, door, credential) for door in DOORS}
    return {door: reply.reason if reply.status in (401, 403) else None for door, reply in replies.items()}


async def test_a_shared_token_alone_opens_every_route(tmp_path: Path, postgres: Server) -> None:
    async with alone(tmp_path, postgres, NO_TOKENS | {"DW_AUTH_TOKEN": "shared"}) as cluster:
        assert set((await opened(cluster, {"Authorization": "Bearer shared"})).values()) == {None}
        assert set((await opened(cluster, stranger())).values()) == {"unauthorized"}


async def test_beside_a_role_token_the_shared_token_is_a_plain_admin(
    tmp_path: Path, postgres: Server
) -> None:
    settings = NO_TOKENS | {"DW_AUTH_TOKEN": "shared", "DW_WORKER_TOKEN": "only-worker"}
    async with alone(tmp_path, postgres, settings) as cluster:
        shared = {"Authorization": "Bearer shared"}
        assert await opened(cluster, shared) == {"worker": "forbidden", "operator": None, "admin": None}
        assert (await knock(cluster, "worker", shared))["role"] == "admin"
        assert await opened(cluster, {"Authorization": "Bearer only-worker"}) == {
            "worker": None,
            "operator": "forbidden",
            "admin": "forbidden",
        }


async def test_the_shared_token_can_be_switched_off(tmp_path: Path, postgres: Server) -> None:
    settings = {"DW_AUTH_TOKEN": "shared", "DW_AUTH_BACKWARD_COMPATIBLE": "false"}
    async with alone(tmp_path, postgres, settings) as cluster:
        shared = {"Authorization": "Bearer shared"} | stranger()
        assert set((await opened(cluster, shared)).values()) == {"unauthorized"}
        assert (await opened(cluster, {"Authorization": "Bearer operator-secret"}))["operator"] is None


async def test_without_any_secret_every_authenticated_route_says_that_the_server_is_at_fault(
    tmp_path: Path, postgres: Server
) -> None:
    async with alone(tmp_path, postgres, NO_TOKENS) as cluster:
        for door in DOORS:
            (await knock(cluster, door, {"Authorization": "Bearer anything"})).expect(500, "server_error")
        (await cluster.get("/api/health", role=None)).expect(200)
        ready = await cluster.get("/api/ready", role=None)
        assert (ready.status, ready["status"]) == (503, "not_ready")
        assert ready["checks"]["auth"]["status"] == "unconfigured"


@pytest.mark.parametrize("scheme", ["operator-secret", "Basic operator-secret", "Bearer ", "Bearer x y", ""])
async def test_only_a_bearer_token_is_a_credential(tmp_path: Path, postgres: Server, scheme: str) -> None:
    async with alone(tmp_path, postgres, {}) as cluster:
        reply = await knock(cluster, "operator", {"Authorization": scheme} | stranger())
        reply.expect(401, "unauthorized")


async def test_without_authentication_everybody_may_do_everything_on_loopback(
    tmp_path: Path, postgres: Server
) -> None:
    async with alone(tmp_path, postgres, NO_TOKENS | {"DW_AUTH_DRIVER": "none"}) as cluster:
        assert set((await opened(cluster, {})).values()) == {None}
        made = await cluster.ask("POST", "/api/namespaces", {"name": "n"}, role=None, more=VERSIONS)
        made.expect(201)


async def test_without_authentication_nothing_but_loopback_is_bound(tmp_path: Path) -> None:
    refused = server(
        tmp_path,
        f"sqlite:///{tmp_path}/a.db",
        settings=NO_TOKENS | {"DW_AUTH_DRIVER": "none", "DW_HOST": "0.0.0.0"},
    ).start(wait=False)
    assert refused.exited() == 78
    assert "DW_AUTH_DRIVER=none works on a loopback address only" in refused.log.read_text()


def signature(
    cluster: Cluster,
    method: str,
    target: str,
    body: bytes,
    *,
    role: str = "operator",
    key: str | None = None,
    namespace: str = "default",
    created: int | None = None,
    nonce: str | None = None,
) -> dict[str, str]:
    """The headers of a request to the first server, signed by a role."""
    path, _, query = target.partition("?")
    host = f"127.0.0.1:{cluster.first.port}"
    content_type = "application/json" if body else ""
    value = sign(
        SignedRequest(method, path, query, host, namespace, content_type, "", body),
        secret=key or KEYS[role],
        key_id=role,
        created=int(time.time()) if created is None else created,
        nonce=nonce or secrets.token_urlsafe(24),
    )
    return VERSIONS | stranger() | {"X-Penstock-Signature": value, "X-Namespace": namespace, "Host": host}


async def send(
    cluster: Cluster, method: str, target: str, body: bytes, headers: Mapping[str, str], server: int = 0
) -> Reply:
    return await cluster.ask(
        method,
        target,
        role=None,
        raw=body or None,
        more=dict(headers),
        server=cluster.servers[server],
    )


async def test_a_signed_request_is_served_by_the_role_of_its_key(tmp_path: Path, postgres: Server) -> None:
    start = json.dumps({"workflow_type": "t", "workflow_id": "signed-1"}).encode()
    register = json.dumps({"task_queue": "default", "runtime": "go"}).encode()
    async with alone(tmp_path, postgres, SIGNED) as cluster:

        async def signed(role: str, method: str, target: str, body: bytes = b"") -> Reply:
            return await send(
                cluster, method, target, body, signature(cluster, method, target, body, role=role)
            )

        (await signed("operator", "POST", "/api/workflows", start)).expect(201)
        (await signed("operator", "GET", "/api/workflows?status=running&page_size=5")).expect(200)
        (await signed("worker", "POST", "/api/worker/register", register)).expect(201)
        (await signed("admin", "POST", "/api/namespaces", b'{"name": "n"}')).expect(201)
        (await signed("worker", "GET", "/api/workflows")).expect(403, "forbidden")
        (await signed("operator", "POST", "/api/worker/register", register)).expect(403, "forbidden")
        unsigned = await send(cluster, "GET", "/api/workflows", b"", VERSIONS | stranger())
        unsigned.expect(401, "unauthorized")


async def test_a_signature_covers_the_whole_request_and_a_short_time(
    tmp_path: Path, postgres: Server
) -> None:
    body, target = json.dumps({"workflow_type": "t"}).encode(), "/api/workflows?x=1"
    async with alone(tmp_path, postgres, SIGNED) as cluster:

        def fresh(**changed: str | int) -> dict[str, str]:
            return signature(cluster, "POST", target, body, **changed)  # type: ignore[arg-type]

        async def refused(
            headers: Mapping[str, str], reason: str, *, sent: bytes = body, to: str = target
        ) -> None:
            reply = (await send(cluster, "POST", to, sent, headers)).expect(401, reason)
            assert reply["server_time"].endswith("Z")

        await refused(fresh(), "signature_invalid", sent=body + b" ")
        await refused(fresh(), "signature_invalid", to="/api/workflows?x=2")
        await refused(fresh(), "signature_invalid", to="/api/activities?x=1")
        await refused(fresh() | {"X-Namespace": "other"}, "signature_invalid")
        await refused(fresh() | {"Content-Type": "application/a+json"}, "signature_invalid")
        await refused(fresh(key="admin-signature-secret"), "signature_invalid")
        await refused(fresh() | {"X-Penstock-Signature": "nonsense"}, "signature_invalid")
        await refused(fresh(created=int(time.time()) - 3600), "signature_stale")
        await refused(fresh(created=int(time.time()) + 3600), "signature_stale")
        (await send(cluster, "POST", target, body, fresh())).expect(201)


async def test_a_captured_request_is_worth_nothing_on_any_server(tmp_path: Path, postgres: Server) -> None:
    body, target = json.dumps({"workflow_type": "t"}).encode(), "/api/workflows"
    async with alone(tmp_path, postgres, SIGNED, "postgres-3") as cluster:
        captured = signature(cluster, "POST", target, body)
        (await send(cluster, "POST", target, body, captured)).expect(201)
        for number in range(3):
            replayed = await send(cluster, "POST", target, body, captured | stranger(), server=number)
            replayed.expect(401, "signature_replayed")
        (await send(cluster, "POST", target, body, signature(cluster, "POST", target, body))).expect(201)


async def test_the_older_profile_signs_the_body_alone(tmp_path: Path, postgres: Server) -> None:
    def signed(body: bytes, key: str) -> dict[str, str]:
        proof = hmac.new(key.encode(), body, hashlib.sha256).hexdigest()
        return VERSIONS | stranger() | {"X-Signature": proof}

    async with alone(tmp_path, postgres, SIGNED | {"DW_SIGNATURE_PROFILE": "body"}) as cluster:
        start = json.dumps({"workflow_type": "t"}).encode()
        for _ in range(2):
            reply = await send(cluster, "POST", "/api/workflows", start, signed(start, KEYS["operator"]))
            reply.expect(201)
        (await send(cluster, "GET", "/api/workflows", b"", signed(b"", KEYS["admin"]))).expect(200)
        (await send(cluster, "GET", "/api/workflows", b"", signed(b"", KEYS["worker"]))).expect(
            403, "forbidden"
        )
        wrong = await send(cluster, "POST", "/api/workflows", start + b" ", signed(start, KEYS["operator"]))
        wrong.expect(401, "unauthorized")
        unsigned = await send(cluster, "GET", "/api/workflows", b"", VERSIONS | stranger())
        unsigned.expect(401, "unauthorized")


async def test_a_shared_signature_key_alone_opens_every_route(tmp_path: Path, postgres: Server) -> None:
    settings = NO_TOKENS | {"DW_AUTH_DRIVER": "signature", "DW_SIGNATURE_KEY": "one-key-for-all"}
    async with alone(tmp_path, postgres, settings) as cluster:
        for method, target in DOORS.values():
            body = b"" if method == "GET" else b"{}"
            headers = signature(cluster, method, target, body, role="shared", key="one-key-for-all")
            assert (await send(cluster, method, target, body, headers)).status not in (401, 403)
