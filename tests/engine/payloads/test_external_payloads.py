"""External payloads: stored before they are referred to, deleted after the last reference, never in between."""

from __future__ import annotations

import dataclasses
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from penstock.core import json_text
from penstock.core.external_payloads import (
    FAILED_WRITE_MARGIN_MS,
    LAST_USE_MARGIN_MS,
    ExternalReference,
    PayloadState,
    StoragePolicy,
)
from penstock.core.history.commands import CompleteWorkflow, ScheduleActivity
from penstock.core.model import ActivityTimeouts, RetrySchedule
from penstock.engine.context import EngineContext
from penstock.engine.operations import namespaces, retention
from penstock.engine.operations.retention import DAY_MS
from penstock.engine.payloads import storage_test, transfers
from penstock.engine.payloads.collection import collect, unused_payloads
from penstock.errors import Conflict, InvalidInput, NotFound, Unavailable
from penstock.ports.objects import ObjectStorage
from penstock.settings import ExternalStorageLimits
from penstock.stores.objects.drivers import Drivers
from penstock.wire import payloads
from tests.engine.support.scene import ACTIVITY, Scene, a_scene

POLICY = StoragePolicy("local", config={"uri": "shop"})
GRACE_MS = ExternalStorageLimits().grace_ms
BYTES = payloads.encode(["x" * 10_000]).blob.encode()


async def a_store(folder: Path) -> Scene:
    """A scene whose default namespace keeps its payloads in a folder."""
    scene = a_scene()
    drivers = Drivers(ExternalStorageLimits(folder), {})
    scene = dataclasses.replace(scene, ctx=replace(scene.ctx, drivers=drivers))
    await namespaces.ensure(scene.ctx, "default")
    policy = {"driver": "local", "threshold_bytes": 1000, "config": {"uri": "shop"}}
    await namespaces.store_payloads(scene.ctx, "default", json_text.written(policy))
    return scene


def files(folder: Path) -> list[Path]:
    return [each for each in folder.rglob("*") if each.is_file()]


async def state_of(scene: Scene, reference: ExternalReference) -> PayloadState | None:
    found = await scene.read(lambda tx: tx.external_payloads.get(reference.reference_id))
    return None if found is None else found.state


async def sweep(scene: Scene) -> int:
    return await unused_payloads(scene.ctx).sweep()


async def test_an_upload_is_durable_private_and_fetched_as_it_was(tmp_path: Path) -> None:
    scene = await a_store(tmp_path)
    reference = await transfers.upload(scene.ctx, "default", BYTES)
    [file] = files(tmp_path)
    assert file.read_bytes() == BYTES
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert file.is_relative_to(tmp_path / "shop" / "default")
    assert await transfers.fetch(scene.ctx, "default", reference) == BYTES
    assert await state_of(scene, reference) is PayloadState.AVAILABLE


async def test_another_namespace_finds_nothing_of_it(tmp_path: Path) -> None:
    scene = await a_store(tmp_path)
    await namespaces.create(scene.ctx, "other", None, 1)
    reference = await transfers.upload(scene.ctx, "default", BYTES)
    with pytest.raises(NotFound, match="external_payload_not_found"):
        await transfers.fetch(scene.ctx, "other", reference)
    with pytest.raises(NotFound):
        await transfers.admit(scene.ctx, "other", [reference])


async def test_without_a_policy_or_with_one_turned_off_nothing_is_taken(tmp_path: Path) -> None:
    scene = await a_store(tmp_path)
    await namespaces.create(scene.ctx, "other", None, 1)
    with pytest.raises(InvalidInput, match="external_storage_not_configured"):
        await transfers.upload(scene.ctx, "other", BYTES)
    reference = await transfers.upload(scene.ctx, "default", BYTES)
    off = {"driver": "local", "enabled": False, "config": {"uri": "shop"}}
    await namespaces.store_payloads(scene.ctx, "default", json_text.written(off))
    with pytest.raises(InvalidInput, match="external_storage_disabled"):
        await transfers.upload(scene.ctx, "default", BYTES)
    assert await transfers.fetch(scene.ctx, "default", reference) == BYTES, "what is there stays readable"


async def test_a_payload_that_nothing_came_to_use_goes_after_the_grace(tmp_path: Path) -> None:
    scene = await a_store(tmp_path)
    reference = await transfers.upload(scene.ctx, "default", BYTES)
    scene.clock.advance(GRACE_MS - 1)
    assert await sweep(scene) == 0
    scene.clock.advance(1)
    assert await sweep(scene) == 1
    assert files(tmp_path) == []
    assert await state_of(scene, reference) is None
    with pytest.raises(NotFound):
        await transfers.admit(scene.ctx, "default", [reference])


async def test_a_reference_that_is_used_late_gets_a_new_grace(tmp_path: Path) -> None:
    scene = await a_store(tmp_path)
    reference = await transfers.upload(scene.ctx, "default", BYTES)
    scene.clock.advance(GRACE_MS - 1)
    await transfers.admit(scene.ctx, "default", [reference])
    scene.clock.advance(LAST_USE_MARGIN_MS)
    assert await sweep(scene) == 0
    await scene.start(input=reference.blob)
    scene.clock.advance(10 * GRACE_MS)
    await sweep(scene)
    assert await transfers.fetch(scene.ctx, "default", reference) == BYTES


async def test_payloads_go_with_the_last_run_that_needs_them(tmp_path: Path) -> None:
    """One payload is the input of a workflow, the argument of its activity, and its output."""
    scene = await a_store(tmp_path)
    reference = await transfers.upload(scene.ctx, "default", BYTES)
    first = await scene.start("order-1", input=reference.blob)
    command = ScheduleActivity("Charge", None, reference.blob, RetrySchedule(), ActivityTimeouts())
    await scene.decide(command)
    await scene.finish(await scene.take(ACTIVITY))
    await scene.decide(CompleteWorkflow(reference.blob))
    second = await scene.start("order-2", input=reference.blob)
    await scene.decide(CompleteWorkflow(reference.blob))
    scene.clock.advance(31 * DAY_MS)
    await sweep(scene)
    for run, left in ((first, 1), (second, 0)):
        assert (await retention.prune(scene.ctx, run.run_id)).obstacle is None
        await sweep(scene)
        assert len(files(tmp_path)) == 1, "not before the margin after the last use"
        scene.clock.advance(LAST_USE_MARGIN_MS)
        await sweep(scene)
        assert len(files(tmp_path)) == left
    assert await state_of(scene, reference) is None


async def test_what_a_history_holds_is_an_envelope_that_clients_resolve(tmp_path: Path) -> None:
    scene = await a_store(tmp_path)
    reference = await transfers.upload(scene.ctx, "default", BYTES)
    run = await scene.start()
    await scene.decide(CompleteWorkflow(reference.blob))
    page = await scene.read(lambda tx: tx.histories.page(run.run_id, 0, 100))
    closing = json_text.read(page[-1].payload)
    assert closing["output"] == {"codec": "avro", "external_payload": reference.fields}
    assert scene.run(run.run_id).output == reference.blob


@pytest.mark.parametrize("damage", [b"", BYTES[:-1], BYTES + b"x", b"y" * len(BYTES)])
async def test_damaged_bytes_are_a_named_error_and_never_a_value(tmp_path: Path, damage: bytes) -> None:
    scene = await a_store(tmp_path)
    reference = await transfers.upload(scene.ctx, "default", BYTES)
    [file] = files(tmp_path)
    file.write_bytes(damage)
    with pytest.raises(Conflict, match="external_payload_integrity_mismatch"):
        await transfers.fetch(scene.ctx, "default", reference)


async def test_a_lost_object_is_a_named_error(tmp_path: Path) -> None:
    scene = await a_store(tmp_path)
    reference = await transfers.upload(scene.ctx, "default", BYTES)
    files(tmp_path)[0].unlink()
    with pytest.raises(NotFound, match="has lost the object"):
        await transfers.fetch(scene.ctx, "default", reference)


async def test_a_reference_with_another_hash_or_size_is_refused(tmp_path: Path) -> None:
    scene = await a_store(tmp_path)
    reference = await transfers.upload(scene.ctx, "default", BYTES)
    for wrong in (replace(reference, size_bytes=1), replace(reference, sha256="0" * 64)):
        with pytest.raises(Conflict, match="external_payload_integrity_mismatch"):
            await transfers.admit(scene.ctx, "default", [wrong])


async def test_an_upload_that_fails_leaves_no_object_and_no_row(tmp_path: Path) -> None:
    scene = await a_store(tmp_path)
    (tmp_path / "shop").write_text("a file where the folder should be")
    with pytest.raises(Unavailable, match="cannot be written"):
        await transfers.upload(scene.ctx, "default", BYTES)
    (tmp_path / "shop").unlink()
    scene.clock.advance(FAILED_WRITE_MARGIN_MS)
    assert await sweep(scene) == 1
    assert files(tmp_path) == []
    assert scene.tables.count("external_payloads") == 0


class ServerDied(BaseException):
    """Nothing that follows is carried out."""


@dataclass
class Mortal:
    """Storage and database of a server that dies once a request to the storage has taken effect."""

    scene: Scene
    method: str
    is_dead: bool = False

    @property
    def ctx(self) -> EngineContext:
        ctx: EngineContext = replace(self.scene.ctx, drivers=self, store=self)
        return ctx

    def open(self, place: str) -> Any:
        return MortalStorage(self, self.scene.ctx.drivers.open(place))

    async def transact(self, *given: Any, **named: Any) -> Any:
        if self.is_dead:
            raise ServerDied
        return await self.scene.ctx.store.transact(*given, **named)

    async def read(self, *given: Any, **named: Any) -> Any:
        return await self.scene.ctx.store.read(*given, **named)


@dataclass
class MortalStorage:
    server: Mortal
    storage: ObjectStorage

    async def put(self, key: str, data: bytes) -> None:
        await self.storage.put(key, data)
        self._die("put")

    async def delete(self, key: str) -> None:
        await self.storage.delete(key)
        self._die("delete")

    def _die(self, method: str) -> None:
        if method == self.server.method:
            self.server.is_dead = True
            raise ServerDied


async def test_a_server_that_dies_after_writing_an_object_leaves_it_for_another_to_delete(
    tmp_path: Path,
) -> None:
    scene = await a_store(tmp_path)
    with pytest.raises(ServerDied):
        await transfers.store(Mortal(scene, "put").ctx, "default", POLICY, BYTES)
    assert len(files(tmp_path)) == 1
    scene.clock.advance(GRACE_MS)
    assert await sweep(scene) == 1
    assert files(tmp_path) == []
    assert scene.tables.count("external_payloads") == 0


async def test_a_server_that_dies_after_deleting_an_object_leaves_its_row_for_another_to_delete(
    tmp_path: Path,
) -> None:
    scene = await a_store(tmp_path)
    reference = await transfers.upload(scene.ctx, "default", BYTES)
    scene.clock.advance(GRACE_MS)
    with pytest.raises(ServerDied):
        await collect(Mortal(scene, "delete").ctx, reference.reference_id)
    assert await state_of(scene, reference) is PayloadState.DELETING
    with pytest.raises(Conflict, match="external_payload_expired"):
        await transfers.fetch(scene.ctx, "default", reference)
    scene.clock.advance(LAST_USE_MARGIN_MS)
    assert await sweep(scene) == 1
    assert scene.tables.count("external_payloads") == 0


async def test_an_object_stays_where_it_was_uploaded_when_the_policy_changes(tmp_path: Path) -> None:
    scene = await a_store(tmp_path)
    reference = await transfers.upload(scene.ctx, "default", BYTES)
    moved = {"driver": "local", "config": {"uri": "elsewhere"}}
    await namespaces.store_payloads(scene.ctx, "default", json_text.written(moved))
    assert await transfers.fetch(scene.ctx, "default", reference) == BYTES


async def test_a_storage_test_leaves_nothing_behind(tmp_path: Path) -> None:
    scene = await a_store(tmp_path)
    small, large = await storage_test.check(scene.ctx, "default", POLICY, 10, 100_000)
    assert (small.size_bytes, large.size_bytes) == (10, 100_000)
    assert large.uri.startswith((tmp_path / "shop/default").as_uri())
    assert files(tmp_path) == []
    assert scene.tables.count("external_payloads") == 0
