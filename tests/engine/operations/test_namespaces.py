"""Namespaces: created, changed, and deleted only when empty."""

from __future__ import annotations

import pytest

from penstock.engine.operations import namespaces
from penstock.errors import Conflict, NotFound, Reason
from tests.engine.support.scene import Scene
from tests.support.builders import NOW_MS


async def test_a_namespace_is_made_once(scene: Scene):
    made = await namespaces.create(scene.ctx, "billing", "invoices", 7)
    assert (made.name, made.description, made.retention_days, made.status) == (
        "billing",
        "invoices",
        7,
        "active",
    )
    assert await namespaces.describe(scene.ctx, "billing") == made
    with pytest.raises(Conflict) as refused:
        await namespaces.create(scene.ctx, "billing", "other", None)
    assert refused.value.reason is Reason.NAMESPACE_ALREADY_EXISTS
    assert await namespaces.describe(scene.ctx, "billing") == made


async def test_without_a_retention_the_default_holds(scene: Scene):
    made = await namespaces.create(scene.ctx, "billing", None, None)
    assert made.retention_days == scene.ctx.settings.retention_days_default


async def test_the_default_namespace_is_made_on_start_and_left_alone_afterwards(scene: Scene):
    await namespaces.ensure(scene.ctx, "default")
    before = await namespaces.describe(scene.ctx, "default")
    scene.clock.advance(1_000)
    await namespaces.ensure(scene.ctx, "default")
    assert await namespaces.list_namespaces(scene.ctx) == [before]


async def test_an_update_changes_what_is_given(scene: Scene):
    await namespaces.create(scene.ctx, "billing", "invoices", 7)
    scene.clock.advance(1_000)
    changed = await namespaces.update(scene.ctx, "billing", None, 30)
    assert (changed.description, changed.retention_days) == ("invoices", 30)
    assert (changed.created_at_ms, changed.updated_at_ms) == (NOW_MS, NOW_MS + 1_000)
    assert (await namespaces.update(scene.ctx, "billing", "", None)).description == ""
    assert await namespaces.find(scene.ctx, "billing") is not None


async def test_a_storage_policy_is_kept_as_text(scene: Scene):
    await namespaces.create(scene.ctx, "billing", None, None)
    await namespaces.store_payloads(scene.ctx, "billing", '{"driver":"s3"}')
    assert (await namespaces.describe(scene.ctx, "billing")).external_storage == '{"driver":"s3"}'


async def test_what_does_not_exist_is_not_found(scene: Scene):
    assert await namespaces.find(scene.ctx, "nobody") is None
    for asked in (
        namespaces.describe(scene.ctx, "nobody"),
        namespaces.update(scene.ctx, "nobody", "x", None),
        namespaces.store_payloads(scene.ctx, "nobody", "{}"),
        namespaces.delete(scene.ctx, "nobody"),
    ):
        with pytest.raises(NotFound) as refused:
            await asked
        assert refused.value.reason is Reason.NAMESPACE_NOT_FOUND


async def test_an_empty_namespace_is_deleted_and_its_name_is_free_again(scene: Scene):
    await namespaces.create(scene.ctx, "billing", None, None)
    assert (await namespaces.delete(scene.ctx, "billing")).namespace.status == "deleted"
    assert await namespaces.find(scene.ctx, "billing") is None
    await namespaces.create(scene.ctx, "billing", None, None)


async def test_a_namespace_that_holds_something_is_not_deleted(scene: Scene):
    await namespaces.create(scene.ctx, "billing", None, None)
    await scene.start(namespace="billing")
    with pytest.raises(Conflict) as refused:
        await namespaces.delete(scene.ctx, "billing")
    assert refused.value.reason is Reason.NAMESPACE_NOT_EMPTY
    assert await namespaces.find(scene.ctx, "billing") is not None


async def test_the_default_namespace_stays(scene: Scene):
    await namespaces.ensure(scene.ctx, "default")
    with pytest.raises(Conflict) as refused:
        await namespaces.delete(scene.ctx, "default")
    assert refused.value.reason is Reason.NAMESPACE_PROTECTED
