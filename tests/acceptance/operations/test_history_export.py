"""History export and archive: exported, replayed by the SDK, and written to disk by a server."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from durable_workflow import Client, Replayer
from durable_workflow.history_bundle_verify import verify_bundle

from tests.acceptance.cluster import Cluster
from tests.acceptance.conftest import serving
from tests.acceptance.sdk import flow_replay, sdk_worker
from tests.acceptance.sdk.flow_replay import Past
from tests.support.patience import PATIENCE_S
from tests.support.servers import Server

KEY = "a key for exports of these tests"


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("archive")


@pytest.fixture(scope="module", params=["sqlite", "postgres-3"])
async def ctx(
    request: pytest.FixtureRequest,
    postgres: Server,
    tmp_path_factory: pytest.TempPathFactory,
    archive: Path,
) -> AsyncIterator[Cluster]:
    settings = {"DW_ARCHIVE_DIR": f"file://{archive}/{request.param}", "DW_EXPORT_SIGNATURE_KEY": KEY}
    folder = tmp_path_factory.mktemp(request.param)
    async with serving(request.param, folder, postgres, settings) as made:
        yield made.at("default")


@pytest.fixture
async def client(ctx: Cluster) -> AsyncIterator[Client]:
    async with sdk_worker.client_of(ctx.first.url, "default") as made:
        yield made


async def run_patient(client: Client, workflow_id: str) -> str:
    """A workflow with retries, a timer and two activities, to its end."""
    handle = await client.start_workflow(
        workflow_type="patient", task_queue=workflow_id, workflow_id=workflow_id, input=["Ada"]
    )
    await sdk_worker.worker(client, workflow_id).run_until(workflow_id=workflow_id, timeout=PATIENCE_S)
    assert await client.get_result(handle) == [42, "Hello, Ada"]
    assert handle.run_id is not None
    return handle.run_id


async def test_an_export_is_verified_and_replayed_by_the_sdk_from_every_event_on(
    ctx: Cluster, client: Client, tmp_path: Path
) -> None:
    run_id = await run_patient(client, "exported")
    bundle = (await ctx.get("/api/workflows/exported/history/export")).ok().body
    report = verify_bundle(bundle, KEY)
    assert (report["status"], report["integrity"]["signature_verified"]) == ("ok", True)
    assert [each["status"] for each in bundle["activities"]] == ["completed", "completed"]
    assert [each["status"] for each in bundle["timers"]] == ["fired"]
    replayer = Replayer(workflows=sdk_worker.WORKFLOWS)
    replayer.replay(bundle)
    flow_replay.check(replayer, Past("exported", run_id, bundle["history_events"]))
    file = tmp_path / "exported.json"
    file.write_text(json.dumps(bundle))
    command = [
        sys.executable,
        "-m",
        "durable_workflow.history_bundle_verify",
        str(file),
        "--signing-key",
        KEY,
    ]
    assert subprocess.run([*command, "--strict-warnings"], check=False, capture_output=True).returncode == 0


async def test_a_run_that_is_put_aside_is_on_the_disk_before_the_answer(
    ctx: Cluster, client: Client, archive: Path
) -> None:
    run_id = await run_patient(client, "aside")
    done = (await ctx.post("/api/workflows/aside/archive", {})).ok()
    assert done["outcome"] == "archived"
    [file] = archive.rglob(f"{run_id}.*.json.gz")
    bundle = json.loads(gzip.decompress(file.read_bytes()))
    assert verify_bundle(bundle, KEY)["status"] == "ok"
    assert file.name.split(".")[1] == bundle["integrity"]["checksum"]
    Replayer(workflows=sdk_worker.WORKFLOWS).replay(bundle)


async def test_an_administrator_looks_after_a_namespace(ctx: Cluster, client: Client) -> None:
    await run_patient(client, "looked-after")
    found = (await ctx.get("/api/system/retention", role="admin")).ok()
    assert (found["expired_run_ids"], found["archive"]["is_configured"]) == ([], True)
    assert (await ctx.post("/api/system/retention/pass", {}, role="admin")).ok()["pruned"] == 0
    assert (await ctx.post("/api/system/repair/pass", {}, role="admin")).ok()["dispatched_tasks"] == 0
    assert (await ctx.post("/api/system/activity-timeouts/pass", {}, role="admin")).ok()["failed"] == 0
    numbers = (await ctx.get("/api/system/operator-metrics", role="admin")).ok()["operator_metrics"]
    assert numbers["runs"]["completed"] >= 1
    debug = (await ctx.get("/api/workflows/looked-after/debug")).ok()
    assert debug["diagnostic_status"] == "terminal"
