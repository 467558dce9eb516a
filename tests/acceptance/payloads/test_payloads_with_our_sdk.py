"""Large payloads of our own SDK: every kind of them, and what happens when the storage fails."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
from collections.abc import AsyncIterator
from datetime import timedelta

import pytest

from penstock import RetryPolicy, activity, workflow
from penstock.client import Client
from penstock.errors import Reason
from penstock.failures import ExternalPayloadError, PayloadTooLarge, WorkflowFailureError
from penstock.worker import Worker
from tests.acceptance.cluster import Cluster, until
from tests.acceptance.payloads import storages
from tests.acceptance.payloads.storages import Storage
from tests.support.patience import PATIENCE_S

SETTINGS = storages.SETTINGS
LARGE = "x" * 1_700_000
"""More than a request may have."""


@activity.defn
async def double(text: str) -> str:
    return text * 2


@workflow.defn
class Collector:
    """Takes text as input, by signals and by updates, and returns the length of all of it."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    @workflow.run
    async def run(self, text: str, signals: int) -> int:
        self.texts.append(
            await workflow.execute_activity(double, text, start_to_close_timeout=timedelta(minutes=5))
        )
        await workflow.wait_condition(lambda: len(self.texts) > signals)
        return sum(map(len, self.texts))

    @workflow.signal
    def add(self, text: str) -> None:
        self.texts.append(text)

    @workflow.update
    def put(self, text: str) -> str:
        self.texts.append(text)
        return text

    @workflow.query
    def first(self, prefix: str) -> str:
        return prefix + self.texts[0]


@workflow.defn
class Caller:
    @workflow.run
    async def run(self, text: str) -> str:
        return await workflow.execute_activity(
            double,
            text,
            start_to_close_timeout=timedelta(minutes=5),
            retry_policy=RetryPolicy(maximum_attempts=1),
        )


def connecting(scene: Cluster) -> contextlib.AbstractAsyncContextManager[Client]:
    @contextlib.asynccontextmanager
    async def connected() -> AsyncIterator[Client]:
        client = await Client.connect(
            scene.first.url,
            namespace=scene.namespace,
            control_token="operator-secret",
            worker_token="worker-secret",
        )
        async with client:
            yield client

    return connected()


def working(client: Client) -> Worker:
    return Worker(client, task_queue="q", workflows=[Collector, Caller], activities=[double])


async def test_every_kind_of_payload_may_be_larger_than_a_request(scene: Cluster, storage: Storage) -> None:
    async with connecting(scene) as client, working(client):
        handle = await client.start_workflow(Collector.run, args=[LARGE, 2], id="all", task_queue="q")
        await handle.signal(Collector.add, LARGE)
        assert await handle.execute_update(Collector.put, LARGE) == LARGE
        async with asyncio.timeout(PATIENCE_S):
            assert await handle.result() == 4 * len(LARGE)
        assert len(await handle.query(Collector.first, LARGE)) in (2 * len(LARGE), 3 * len(LARGE))
    described = await scene.describe("all")
    assert "external_payload" in described["input_envelope"]
    assert "blob" in described["output_envelope"], "small payloads stay in the database"
    assert all(each.stat().st_size > storages.THRESHOLD for each in storage.objects)


async def test_a_client_that_knows_no_storage_gets_the_same_histories(
    scene: Cluster, storage: Storage
) -> None:
    """Plain JSON above the threshold, as curl sends it, is offloaded by the server."""
    (await scene.start("plain", "Collector", input=["y" * 100_000, 0])).expect(201)
    (await scene.start("small", "Collector", input=["y" * 10, 0])).expect(201)
    assert len(storage.objects) == 1
    assert "external_payload" in (await scene.describe("plain"))["input_envelope"]
    assert "blob" in (await scene.describe("small"))["input_envelope"]
    async with connecting(scene) as client, working(client):
        async with asyncio.timeout(PATIENCE_S):
            assert await client.get_workflow_handle("plain").result() == 200_000


async def test_without_a_policy_a_large_payload_is_refused_before_it_is_sent(scene: Cluster) -> None:
    async with connecting(scene) as client:
        with pytest.raises(PayloadTooLarge):
            await client.start_workflow(Caller.run, LARGE, id="big", task_queue="q")


async def test_a_lost_object_is_named_and_the_workflow_goes_on_when_it_is_back(scene: Cluster) -> None:
    assert scene.namespace is not None
    storage = Storage("local", scene.namespace)
    await storage.turn_on(scene)
    async with connecting(scene) as client:
        await client.start_workflow(Caller.run, LARGE, id="lost", task_queue="q")
    [file] = storage.objects
    kept = file.rename(file.with_name("aside"))

    async def is_told() -> bool:
        return Reason.EXTERNAL_PAYLOAD_NOT_FOUND.value in str(
            (await scene.get("/api/workflows/lost/debug")).ok().body
        )

    async with connecting(scene) as client, working(client):
        await until(is_told)
        assert (await scene.describe("lost"))["is_terminal"] is False
        why = (await scene.get("/api/workflows/lost/why")).ok().body
        assert Reason.EXTERNAL_PAYLOAD_NOT_FOUND.value in str(why), why
        kept.rename(file)
        async with asyncio.timeout(PATIENCE_S):
            assert await client.get_workflow_handle("lost").result() == LARGE * 2
    await storage_without_results(storage)
    async with connecting(scene) as client:
        with pytest.raises(ExternalPayloadError, match="other bytes") as damaged:
            await client.get_workflow_handle("lost").result()
    assert damaged.value.reason == "external_payload_integrity_mismatch"


async def storage_without_results(storage: Storage) -> None:
    for each in storage.objects:
        await asyncio.to_thread(each.write_bytes, b"damaged")


async def test_an_activity_whose_result_cannot_be_stored_fails_with_the_reason(scene: Cluster) -> None:
    """The storage fails between the start and the result: nothing is half done, and the workflow is told."""
    assert scene.namespace is not None
    storage = Storage("local", scene.namespace)
    await storage.turn_on(scene)
    async with connecting(scene) as client:
        handle = await client.start_workflow(Caller.run, "z" * 3000, id="full", task_queue="q")
        folder = storages.FOLDER / "files/shop" / scene.namespace
        shutil.rmtree(folder)
        folder.write_text("in the way")
        async with working(client):
            with pytest.raises(WorkflowFailureError):
                await handle.result()
        assert "external_payload_unavailable" in str(await scene.events("full"))
        folder.unlink()
        (await scene.post("/api/storage/test", {}, role="admin")).expect(200)
