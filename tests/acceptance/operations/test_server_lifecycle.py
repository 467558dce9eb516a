"""Server processes: start, failures to start, shutdown, and the pages beside the API."""

from __future__ import annotations

import asyncio
import signal
import sqlite3
from pathlib import Path

import asyncpg
import pytest

from penstock.server.operations.table import OPERATIONS
from tests.acceptance.cluster import Cluster, open_polls, until
from tests.acceptance.conftest import database, serving
from tests.support.live import LiveServer, running, server
from tests.support.patience import PATIENCE_S
from tests.support.servers import Server

STORES = ("sqlite", "postgres")


def refusal(refused: LiveServer) -> tuple[int, str]:
    """The exit code and output of a server that fails to start."""
    return refused.start(wait=False).exited(), refused.log.read_text()


# --- stopping ---


@pytest.mark.parametrize("topology", STORES)
async def test_sigterm_ends_long_polls_at_once_and_the_server_leaves_in_peace(
    tmp_path: Path, postgres: Server, topology: str
) -> None:
    async with serving(topology, tmp_path, postgres, {}) as cluster:
        worker = await cluster.worker("w-1")
        polls = [
            asyncio.create_task(worker.poll(kind, timeout=60))
            for kind in ("workflow", "activity")
            for _ in range(3)
        ]
        run = (await cluster.start("order-1", task_queue="elsewhere")).expect(201)["run_id"]
        reader = asyncio.create_task(
            cluster.get(f"/api/workflows/order-1/runs/{run}/history?wait_new_event=true&next_page_token=MQ==")
        )
        await open_polls(cluster, 6)
        process = cluster.first.process
        assert process is not None
        process.send_signal(signal.SIGTERM)
        for reply in await asyncio.wait_for(asyncio.gather(*polls), PATIENCE_S):
            reply.expect(200)
            assert (reply["task"], reply["poll_status"]) == (None, "empty")
        assert (await asyncio.wait_for(reader, PATIENCE_S)).expect(200)["events"] == []
        assert await asyncio.to_thread(cluster.first.exited) == 0


@pytest.mark.parametrize("topology", STORES)
async def test_what_was_acknowledged_is_there_after_a_restart(
    tmp_path: Path, postgres: Server, topology: str
) -> None:
    async with serving(topology, tmp_path, postgres, {}) as cluster:
        worker = await cluster.worker("w-1", build_id="b1")
        (await cluster.start("order-1")).expect(201)
        held = await worker.take()
        (await cluster.start("order-2")).expect(201)
        assert await asyncio.to_thread(cluster.first.stop) == 0
        await asyncio.to_thread(cluster.first.start)
        assert (await cluster.get("/api/workers/w-1")).ok()["build_id"] == "b1"
        (await worker.finish(held, "held across the restart")).expect(200)
        (await worker.finish(await worker.take())).expect(200)
        assert (await cluster.describe("order-1"))["output"] == "held across the restart"
        assert (await cluster.describe("order-2"))["status"] == "completed"


# --- refusing to start ---


def test_a_second_server_on_the_same_file_refuses_to_start(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/penstock.db"
    with running(server(tmp_path, url, name="first")):
        code, said = refusal(server(tmp_path, url, name="second"))
    assert code == 1
    assert "store_in_use" in said
    with running(server(tmp_path, url, name="third")):
        pass


def test_an_sqlite_file_of_a_newer_release_is_refused(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/penstock.db"
    with running(server(tmp_path, url)):
        pass
    with sqlite3.connect(tmp_path / "penstock.db") as connection:
        connection.execute("INSERT INTO migrations VALUES (9999, 'from the future', 0)")
    connection.close()
    code, said = refusal(server(tmp_path, url, name="older"))
    assert code == 1
    assert "schema_too_new" in said
    assert "9999" in said


async def test_a_postgres_database_of_a_newer_release_is_refused(tmp_path: Path, postgres: Server) -> None:
    async with database("postgres", tmp_path, postgres) as url:
        connection = await asyncpg.connect(url)
        await connection.execute("INSERT INTO migrations VALUES (9999, 'from the future', 0)")
        await connection.close()
        code, said = await asyncio.to_thread(refusal, server(tmp_path, url))
    assert code == 1
    assert "schema_too_new" in said


async def test_a_postgres_database_without_our_schema_is_refused_and_left_alone(
    tmp_path: Path, postgres_url: str
) -> None:
    code, said = await asyncio.to_thread(refusal, server(tmp_path, postgres_url))
    assert code == 1
    assert "schema_outdated" in said
    assert "penstock db migrate" in said
    connection = await asyncpg.connect(postgres_url)
    tables = await connection.fetchval("SELECT count(*) FROM pg_tables WHERE schemaname = 'public'")
    await connection.close()
    assert tables == 0


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"DW_WORKFLOW_TASK_TIMOUT": "5"}, "DW_WORKFLOW_TASK_TIMEOUT"),
        ({"DW_OPERATOR_TOKN": "x"}, "DW_OPERATOR_TOKEN"),
        ({"DW_WORKFLOW_TASK_TIMEOUT": "soon"}, "DW_WORKFLOW_TASK_TIMEOUT"),
        ({"DW_AUTH_DRIVER": "tokens"}, "token"),
        ({"DW_DATABASE_URL": "mysql://localhost/x"}, "DW_DATABASE_URL"),
        ({"DW_AUTH_DRIVER": "signature"}, "DW_WORKER_SIGNATURE_KEY"),
        ({"DW_HOST": "0.0.0.0"}, "DW_HOST"),
        ({"DW_WORKER_TOKEN": "same", "DW_ADMIN_TOKEN": "same"}, "DW_ADMIN_TOKEN"),
    ],
)
def test_a_wrong_setting_refuses_to_start_and_names_the_right_one(
    tmp_path: Path, settings: dict[str, str], says: str
) -> None:
    code, said = refusal(server(tmp_path, f"sqlite:///{tmp_path}/a.db", settings=settings))
    assert code == 78
    assert "configuration_invalid" in said
    assert says in said
    assert not (tmp_path / "a.db").exists()


def test_a_port_that_is_taken_is_named_and_is_not_called_a_configuration_error(tmp_path: Path) -> None:
    first = server(tmp_path, f"sqlite:///{tmp_path}/a.db", name="first")
    with running(first):
        code, said = refusal(server(tmp_path, f"sqlite:///{tmp_path}/b.db", name="second", port=first.port))
    assert code == 1
    assert f"port_in_use: Port {first.port} of 127.0.0.1 is taken by another program." in said
    assert "--port" in said
    assert "configuration" not in said


# --- bounds of one process ---


async def test_a_server_that_holds_as_many_polls_as_it_may_says_when_to_come_back(
    tmp_path: Path, postgres: Server
) -> None:
    async with serving("sqlite", tmp_path, postgres, {"DW_MAX_LONG_POLLS": "1"}) as cluster:
        worker = await cluster.worker("w-1")
        held = asyncio.create_task(worker.poll(timeout=40))
        await open_polls(cluster, 1)
        refused = (await worker.poll("activity", timeout=40)).expect(429, "long_poll_capacity_exhausted")
        assert (refused["poll_status"], refused["task"]) == ("long_poll_capacity_exhausted", None)
        assert (refused["task_kind"], refused["task_queue"]) == ("activity_task", "q")
        assert (refused["retryable"], refused["retry_after_seconds"]) == (True, 1)
        assert refused.headers["Retry-After"] == "1"
        (await cluster.start("order-1")).expect(201)
        assert (await held)["poll_status"] == "leased"


# --- pages ---


async def test_health_and_readiness_need_no_credential(cluster: Cluster) -> None:
    health = (await cluster.get("/api/health", role=None)).expect(200)
    assert (health["status"], health["checks"]) == ("serving", {"database": "ok"})

    async def is_ready() -> bool:
        return (await cluster.get("/api/ready", role=None)).status == 200

    await until(is_ready)  # commits of other tests may be slow on a busy machine
    ready = await cluster.get("/api/ready", role=None)
    assert {"database", "migrations", "default_namespace", "cache", "auth"} <= ready["checks"].keys()
    assert all("status" in check for check in ready["checks"].values())


async def test_discovery_describes_the_server_and_both_protocols(cluster: Cluster) -> None:
    info = (await cluster.get("/api/cluster/info")).expect(200)
    assert info["default_namespace"] == "default"
    assert info["worker_protocol"]["version"] == "1.20"
    assert info["control_plane"]["request_contract"]["version"] == 1
    assert info["auth_composition_contract"]["schema"] == "durable-workflow.v2.auth-composition.contract"
    assert info["limits"]["max_payload_bytes"] == 2 * 1024 * 1024
    assert info["client_compatibility"]["authority"] == "protocol_manifests"


async def test_metrics_count_requests_by_operation_without_naming_tenants(cluster: Cluster) -> None:
    (await cluster.at("default").get("/api/workflows", server=cluster.first)).expect(200)
    page = await cluster.get("/metrics", role=None, server=cluster.first)
    assert page.status == 200
    assert page.headers["Content-Type"].startswith("text/plain; version=0.0.4")
    assert 'penstock_requests_total{operation="list_workflows",status="200"}' in page.body
    assert "penstock_open_polls" in page.body
    assert "default" not in page.body


async def test_the_openapi_document_lists_every_operation(cluster: Cluster) -> None:
    document = (await cluster.get("/openapi.json", role=None)).expect(200)
    assert document["openapi"].startswith("3.")
    listed = {(method.upper(), path) for path, methods in document["paths"].items() for method in methods}
    assert {(operation.method, operation.path) for operation in OPERATIONS} <= listed


async def test_the_documentation_is_a_page_that_loads_nothing_from_elsewhere(cluster: Cluster) -> None:
    for path, kind in (
        ("/", "text/html"),
        ("/docs", "text/html"),
        ("/docs/page.css", "text/css"),
    ):
        page = await cluster.get(path, role=None)
        assert page.status == 200
        assert page.headers["Content-Type"].startswith(kind)
        assert "default-src 'none'" in page.headers["Content-Security-Policy"]


async def test_large_answers_are_compressed_for_callers_that_accept_it(cluster: Cluster) -> None:
    for accepted, encoding in (("gzip", "gzip"), ("deflate", "deflate"), ("identity", None)):
        reply = await cluster.get("/api/cluster/info", more={"Accept-Encoding": accepted})
        reply.expect(200)
        assert reply.headers.get("Content-Encoding") == encoding
        assert reply.headers["Vary"] == "Accept-Encoding"
