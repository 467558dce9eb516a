"""The routes of external payloads: what they take, whom they refuse, and that a kill loses nothing."""

from __future__ import annotations

import asyncio
import hashlib
import sys
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from penstock.wire import payloads
from tests.acceptance.cluster import Cluster, Json, Reply
from tests.acceptance.payloads import storages
from tests.acceptance.payloads.storages import FOLDER, S3, Storage
from tests.support.live import running, server

SETTINGS = storages.SETTINGS | {
    "DW_EXTERNAL_PAYLOAD_BYTES_MAX": "300000",
    "DW_MAX_PAYLOAD_BYTES": "200000",
}
BLOB = payloads.encode(["x" * 20_000]).blob.encode()
PATH = "/api/external-payloads/v1"


def told(data: bytes, **changes: str | None) -> dict[str, str | None]:
    """The headers of an upload."""
    return {
        "Content-Type": "application/octet-stream",
        "X-Durable-Workflow-Payload-Codec": "avro",
        "X-Durable-Workflow-Payload-Size": str(len(data)),
        "X-Durable-Workflow-Payload-SHA256": hashlib.sha256(data).hexdigest(),
    } | {f"X-Durable-Workflow-Payload-{name}": value for name, value in changes.items()}


async def upload(
    scene: Cluster,
    data: bytes = BLOB,
    role: str = "operator",
    changes: dict[str, str | None] | None = None,
) -> Reply:
    return await scene.post(PATH, raw=data, more=told(data, **(changes or {})), role=role)


async def reference(scene: Cluster) -> Json:
    made = (await upload(scene)).expect(201)
    assert made["transport_version"] == 1
    found: Json = made["reference"]
    return found


def envelope(given: Json) -> Json:
    return {"codec": "avro", "external_payload": given}


async def test_bytes_come_back_with_their_metadata_for_every_role(scene: Cluster, storage: Storage) -> None:
    for role in ("operator", "worker", "admin"):
        made = (await upload(scene, role=role)).expect(201)["reference"]
        assert (made["size_bytes"], made["codec"]) == (len(BLOB), "avro")
        fetched = (await scene.get(f"{PATH}/{made['reference_id']}", role=role)).expect(200)
        assert fetched.body.encode() == BLOB
        assert fetched.headers["X-Durable-Workflow-Payload-SHA256"] == made["sha256"]
    (await upload(scene.at(None), role="operator")).expect(422, "external_storage_not_configured")
    refused = await scene.post(PATH, raw=BLOB, more=told(BLOB) | {"Authorization": None}, role="operator")
    refused.expect(401, "unauthorized")


@pytest.mark.parametrize(
    ("data", "changes", "expected"),
    [
        (BLOB, {"Codec": "json"}, (422, "external_payload_unsupported")),
        (BLOB, {"Codec": None}, (422, "external_payload_unsupported")),
        (BLOB, {"Size": "x"}, (422, "external_payload_unsupported")),
        (BLOB, {"SHA256": "abc"}, (422, "external_payload_unsupported")),
        (BLOB, {"Size": "1"}, (409, "external_payload_integrity_mismatch")),
        (BLOB, {"SHA256": "0" * 64}, (409, "external_payload_integrity_mismatch")),
        (b"not a payload", {}, (422, "external_payload_unsupported")),
        (b"", {}, (422, "external_payload_unsupported")),
        (b"x" * 300_001, {}, (413, "payload_too_large")),
    ],
)
async def test_an_upload_that_is_not_what_it_says_is_refused_and_leaves_nothing(
    scene: Cluster, data: bytes, changes: dict[str, str | None], expected: tuple[int, str]
) -> None:
    assert scene.namespace is not None
    storage = Storage("local", scene.namespace)
    await storage.turn_on(scene)
    (await upload(scene, data, changes=changes)).expect(*expected)
    assert storage.objects == []


async def test_only_references_of_the_own_namespace_are_taken_and_only_unchanged(
    cluster: Cluster, scene: Cluster, storage: Storage
) -> None:
    given = await reference(scene)
    other = scene.at("default")
    stolen = await other.start("thief", input=envelope(given))
    stolen.expect(404, "external_payload_not_found")
    (await other.get(f"{PATH}/{given['reference_id']}")).expect(404, "external_payload_not_found")
    for change, expected in (
        ({"size_bytes": 7}, (409, "external_payload_integrity_mismatch")),
        ({"sha256": "0" * 64}, (409, "external_payload_integrity_mismatch")),
        ({"reference_id": "ep_" + "0" * 26}, (404, "external_payload_not_found")),
        ({"reference_id": "ep_../../etc/passwd"}, (422, "validation_failed")),
        ({"uri": "http://169.254.169.254/"}, (422, "validation_failed")),
        ({"schema": "other"}, (422, "validation_failed")),
    ):
        refused = await scene.start("wrong", input=envelope(given | change))
        refused.expect(*expected)
    address = {"uri": "file:///etc/passwd", "sha256": "0" * 64, "size_bytes": 1, "codec": "avro"}
    refused = await scene.start("addressed", input={"codec": "avro", "external_storage": address})
    refused.expect(422, "validation_failed")
    assert "follows no addresses" in str(refused.body)
    for path in (f"{PATH}/ep_%2e%2e%2fpasswd", f"{PATH}/..%2f..%2fetc", f"{PATH}/nothing"):
        assert (await scene.get(path)).status == 404
    (await scene.start("right", input=envelope(given))).expect(201)


async def test_the_same_signal_uploaded_twice_is_one_signal(scene: Cluster, storage: Storage) -> None:
    (await scene.start("run")).expect(201)
    answers = []
    for _ in range(2):
        body = {"input": envelope(await reference(scene)), "request_id": "once"}
        answers.append((await scene.post("/api/workflows/run/signal/go", body)).ok())
    assert [each["retained"] for each in answers] == [False, True]
    assert answers[0]["command_id"] == answers[1]["command_id"]


async def test_memos_and_messages_may_refer_to_what_the_server_reads_itself(
    scene: Cluster, storage: Storage
) -> None:
    (await scene.start("run")).expect(201)
    sent = {"message_id": "m1", "input": envelope(await reference(scene))}
    (await scene.post("/api/workflows/run/message-streams/words/messages", sent)).expect(202)


async def test_a_message_refers_to_no_payload_that_would_not_fit_into_a_request(
    scene: Cluster, storage: Storage
) -> None:
    (await scene.start("run")).expect(201)
    large = (await upload(scene, payloads.encode(["x" * 220_000]).blob.encode())).expect(201)["reference"]
    sent = {"message_id": "m1", "input": envelope(large)}
    refused = await scene.post("/api/workflows/run/message-streams/words/messages", sent)
    refused.expect(413, "external_payload_oversized")


async def test_worker_reports_in_batches_are_offloaded_by_the_server(
    scene: Cluster, storage: Storage
) -> None:
    (await scene.start_activity("big")).ok()
    worker = await scene.worker("w")
    task = await worker.take("activity")
    report = {
        "task_id": task["task_id"],
        "action": "complete",
        "lease_owner": "w",
        "activity_attempt_id": task["activity_attempt_id"],
        "result": {"codec": "avro", "blob": BLOB.decode()},
    }
    done = await scene.post("/api/worker/activity-tasks/batch", {"items": [report]}, role="worker")
    assert done.expect(200)["items"][0].get("http_status", 200) == 200, done.body
    found = (await scene.get("/api/activities/big")).ok()
    assert "external_payload" in found["result"]


async def test_an_export_names_what_is_kept_elsewhere(scene: Cluster, storage: Storage) -> None:
    given = await reference(scene)
    started = (await scene.start("exported", input=envelope(given))).expect(201)
    path = f"/api/workflows/exported/runs/{started['run_id']}/history/export"
    bundle = (await scene.get(path)).ok().body
    assert bundle["payloads"]["arguments"]["external_payload"] == given
    assert bundle["payloads"]["arguments"]["data"] is None
    assert (await scene.get(f"/api/namespaces/{scene.namespace}"))["external_payloads"] == {
        "objects": 1,
        "bytes": len(BLOB),
    }


@pytest.mark.parametrize(
    "change", [{"config": {"uri": "../out"}}, {"driver": "gcs"}, {"threshold_bytes": 400_000}]
)
async def test_a_policy_that_does_not_work_is_refused_and_the_old_one_stays(
    scene: Cluster, change: dict[str, Any]
) -> None:
    assert scene.namespace is not None
    storage = Storage("local", scene.namespace)
    await storage.turn_on(scene)
    path = f"/api/namespaces/{scene.namespace}/external-storage"
    before = (await scene.get(f"/api/namespaces/{scene.namespace}"))["external_payload_storage"]
    refused = await scene.ask("PUT", path, storage.policy | change, role="admin")
    refused.expect(422, "storage_driver_unavailable")
    after = (await scene.get(f"/api/namespaces/{scene.namespace}"))["external_payload_storage"]
    assert after == before


async def test_while_the_storage_is_down_starts_are_refused_with_the_reason(scene: Cluster) -> None:
    """And small payloads, which need no storage, go on."""
    assert scene.namespace is not None
    storage = Storage("s3", scene.namespace)
    await storage.turn_on(scene)
    S3.stop()
    try:
        refused = await scene.start("big", input=["x" * 10_000])
        refused.expect(503, "external_payload_unavailable")
        (await scene.start("small", input=["x"])).expect(201)
        tested = await scene.post("/api/storage/test", {}, role="admin")
        assert tested.expect(422, "storage_driver_unavailable")["status"] == "failed"
    finally:
        S3.start()
    (await scene.get("/api/workflows/big")).expect(404, "instance_not_found")
    (await scene.start("big", input=["x" * 10_000])).expect(201)


async def test_every_reference_that_a_killed_server_gave_out_can_be_fetched_afterwards(
    tmp_path: Path,
) -> None:
    live = server(tmp_path, f"sqlite:///{tmp_path}/penstock.db", settings=SETTINGS)
    async with aiohttp.ClientSession() as session:
        with running(live):
            scene = Cluster([live], session).at("default")
            await Storage("local", "default").turn_on(scene)
            given: list[Json] = []

            async def uploading() -> None:
                while True:
                    given.append(await reference(scene))

            uploads = [asyncio.ensure_future(uploading()) for _ in range(4)]
            while len(given) < 20:
                await asyncio.sleep(0.01)
            live.kill()
            await asyncio.gather(*uploads, return_exceptions=True)
            live.start()
            for each in given:
                fetched = await scene.get(f"{PATH}/{each['reference_id']}")
                assert fetched.expect(200).body.encode() == BLOB
    left = list((FOLDER / "files/shop/default").rglob("*.part"))
    assert len(left) <= 4, "only what was being written"


async def test_the_command_line_prints_a_result_that_is_kept_outside(
    scene: Cluster, storage: Storage
) -> None:
    (await scene.start("printed")).expect(201)
    worker = await scene.worker("w")
    task = await worker.take()
    complete = {
        "lease_owner": "w",
        "workflow_task_attempt": task["workflow_task_attempt"],
        "commands": [{"type": "complete_workflow", "result": {"codec": "avro", "blob": BLOB.decode()}}],
    }
    path = f"/api/worker/workflow-tasks/{task['task_id']}/complete"
    (await scene.post(path, complete, role="worker")).expect(200)
    asking = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "penstock", "workflow", "result", "printed"),
        *("--server", scene.first.url, "--token", "operator-secret", "--namespace", str(scene.namespace)),
        stdout=asyncio.subprocess.PIPE,
    )
    printed, _ = await asking.communicate()
    assert "x" * 20_000 in printed.decode()
