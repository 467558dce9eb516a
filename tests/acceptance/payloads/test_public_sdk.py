"""Large payloads of the unmodified public SDK: it uploads and fetches them, and nobody configured it to."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Generator
from typing import Any

import pytest
from durable_workflow import Client, Worker, activity, workflow
from durable_workflow.errors import InvalidArgument, RuntimeCapabilityUnsupported
from durable_workflow.external_storage import LocalFilesystemExternalStorage

from tests.acceptance.cluster import Cluster
from tests.acceptance.payloads import storages
from tests.acceptance.payloads.storages import Storage
from tests.acceptance.sdk import sdk_worker
from tests.support.patience import PATIENCE_S

SETTINGS = storages.SETTINGS
LARGE = 1_700_000
"""More than a request may have."""


@activity.defn(name="repeat")
async def repeat(text: str) -> str:
    return text * 2


@workflow.defn(name="copier")
class Copier:
    def run(self, ctx: Any, text: str) -> Generator[Any, Any, Any]:
        doubled = yield ctx.schedule_activity("repeat", [text])
        return doubled


@pytest.fixture
async def client(scene: Cluster) -> AsyncIterator[Client]:
    assert scene.namespace is not None
    async with sdk_worker.client_of(scene.first.url, scene.namespace) as made:
        yield made


async def test_inputs_and_results_larger_than_a_request_pass_through_the_storage(
    scene: Cluster, storage: Storage, client: Client
) -> None:
    worker = Worker(client, task_queue="q", workflows=[Copier], activities=[repeat])
    working = asyncio.create_task(worker.run())
    try:
        text = "x" * (LARGE // 2)
        handle = await client.start_workflow(
            workflow_type="copier", workflow_id="big", task_queue="q", input=[text]
        )
        async with asyncio.timeout(PATIENCE_S):
            assert await client.get_result(handle) == text * 2
    finally:
        await worker.stop()
        working.cancel()
        await asyncio.gather(working, return_exceptions=True)
    described = await scene.describe("big")
    assert "external_payload" in described["input_envelope"]
    assert "external_payload" in described["output_envelope"]
    scheduled = next(each for each in await scene.events("big") if each["event_type"] == "ActivityCompleted")
    assert "external_payload" in scheduled["payload"]["result"]
    assert len(storage.objects) >= 3


async def test_the_storage_calls_of_the_sdk_work_unchanged(scene: Cluster) -> None:
    assert scene.namespace is not None
    client = Client(scene.first.url, token="admin-secret", namespace=scene.namespace)
    with pytest.raises(InvalidArgument, match="has no external payload storage"):
        await client.test_external_storage()
    policy = Storage("local", scene.namespace).policy
    stored = await client.set_namespace_external_storage(scene.namespace, **policy)
    assert stored.external_payload_storage is not None
    assert (stored.external_payload_storage.driver, stored.external_payload_storage.threshold_bytes) == (
        "local",
        storages.THRESHOLD,
    )
    passed = await client.test_external_storage(
        driver="local", small_payload_bytes=10, large_payload_bytes=70_000
    )
    assert passed.status == "passed"
    assert passed.large_payload is not None
    assert passed.large_payload.bytes == 70_000
    assert Storage("local", scene.namespace).objects == []
    await client.aclose()


async def test_addresses_of_a_users_own_storage_are_refused_by_the_sdk_itself(
    scene: Cluster, storage: Storage, client: Client, tmp_path: Any
) -> None:
    client.external_storage = LocalFilesystemExternalStorage(tmp_path)
    client.external_storage_threshold_bytes = 10
    with pytest.raises(RuntimeCapabilityUnsupported, match="runtime-mediated"):
        await client.start_workflow(
            workflow_type="copier", workflow_id="own", task_queue="q", input=["x" * 100]
        )
