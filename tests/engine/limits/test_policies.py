"""A queue's settings: versioned, logged, changed atomically."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.core.limits.policies import KEYS_WITH_SETTINGS_MAX, KeySettings, LimitSetting, PolicyChange
from penstock.core.model import TaskKind
from penstock.engine.limits import policies
from penstock.engine.limits.policies import (
    CHANGES_KEPT,
    UNSET,
    KeySettingsChange,
    PolicyUpdate,
    PolicyView,
    SettingChange,
)
from penstock.engine.operations import namespaces
from penstock.engine.workers import worker_registry
from penstock.errors import Conflict, InvalidInput, PenstockError, Reason, ValidationFailed
from penstock.ports.store import Tx
from penstock.ports.wakeups import queue_topic
from tests.engine.support.scene import ACTIVITY, WORKFLOW, Scene
from tests.support.builders import NOW_MS

RATE = LimitSetting.QUEUE_RATE


async def configure(
    scene: Scene, *, kind: TaskKind = ACTIVITY, author: str = "operator", **asked: Any
) -> PolicyView:
    return await policies.configure(scene.ctx, "default", "orders", kind, PolicyUpdate(**asked), author)


async def read(scene: Scene, kind: TaskKind = ACTIVITY) -> PolicyView:
    return await policies.read(scene.ctx, "default", "orders", kind)


async def log(scene: Scene, limit: int = 1_000) -> list[PolicyChange]:
    return list(await policies.history(scene.ctx, "default", "orders", ACTIVITY, limit))


def values(view: PolicyView) -> dict[LimitSetting, int | str]:
    return {setting_name: setting.value for setting_name, setting in view.queue.policy.settings.items()}


def weights(view: PolicyView) -> dict[str, int | None]:
    return {each.key: each.weight_milli for each in view.keys}


async def listened(scene: Scene, kind: TaskKind = ACTIVITY, name: str = "orders") -> list[str]:
    """The notifications of one queue from now on."""
    rung: list[str] = []
    queue = await scene.queue(kind, name)
    scene.wakeups.listen(queue_topic(queue.queue_id), lambda: rung.append(name))
    return rung


class TestSettings:
    async def test_an_unused_queue_has_none_and_reading_does_not_create_it(self, scene: Scene) -> None:
        view = await read(scene)
        assert (view.queue.policy.version, values(view), list(view.keys), view.key_count) == (0, {}, [], 0)
        assert await scene.read(lambda tx: tx.queues.list("default")) == []

    async def test_a_setting_keeps_who_set_it_when_and_why(self, scene: Scene) -> None:
        view = await configure(scene, settings={RATE: SettingChange(500, "overall limit")}, author="admin")
        setting = view.queue.policy.settings[RATE]
        assert (setting.value, setting.author, setting.at_ms, setting.reason) == (
            500,
            "admin",
            NOW_MS,
            "overall limit",
        )
        assert view.queue.policy.version == 1

    async def test_what_a_change_does_not_name_stays(self, scene: Scene) -> None:
        await configure(scene, settings={RATE: SettingChange(500)})
        view = await configure(scene, settings={LimitSetting.LEASE_CAP: SettingChange(5)})
        assert values(view) == {RATE: 500, LimitSetting.LEASE_CAP: 5}
        assert view.queue.policy.version == 2

    async def test_both_kinds_of_a_queue_have_settings_of_their_own(self, scene: Scene) -> None:
        await configure(scene, settings={LimitSetting.LEASE_CAP: SettingChange(5)})
        await configure(scene, kind=WORKFLOW, settings={LimitSetting.LEASE_CAP: SettingChange(7)})
        assert values(await read(scene)) == {LimitSetting.LEASE_CAP: 5}
        assert values(await read(scene, WORKFLOW)) == {LimitSetting.LEASE_CAP: 7}

    async def test_back_to_the_default(self, scene: Scene) -> None:
        await configure(scene, settings={RATE: SettingChange(500), LimitSetting.LEASE_CAP: SettingChange(5)})
        view = await configure(scene, settings={RATE: SettingChange(UNSET)})
        assert values(view) == {LimitSetting.LEASE_CAP: 5}
        assert view.queue.rules.queue_rate is None

    async def test_a_reason_alone_explains_the_value_that_is_there(self, scene: Scene) -> None:
        await configure(scene, settings={RATE: SettingChange(500, "guess")})
        view = await configure(scene, settings={RATE: SettingChange(None, "measured")}, author="admin")
        setting = view.queue.policy.settings[RATE]
        assert (setting.value, setting.reason, setting.author) == (500, "measured", "admin")
        assert view.queue.policy.version == 2

    async def test_a_reason_for_what_is_not_set_changes_nothing(self, scene: Scene) -> None:
        view = await configure(scene, settings={RATE: SettingChange(None, "measured")})
        assert (view.queue.policy.version, values(view)) == (0, {})

    async def test_a_new_value_does_not_keep_the_reason_of_the_old_one(self, scene: Scene) -> None:
        await configure(scene, settings={RATE: SettingChange(500, "guess")})
        view = await configure(scene, settings={RATE: SettingChange(600)})
        assert view.queue.policy.settings[RATE].reason is None

    async def test_the_reason_of_the_change_is_for_settings_without_their_own(self, scene: Scene) -> None:
        view = await configure(
            scene,
            settings={RATE: SettingChange(500, "own"), LimitSetting.LEASE_CAP: SettingChange(5)},
            keys={"big": KeySettingsChange(weight_milli=5_000)},
            reason="common",
        )
        settings = view.queue.policy.settings
        assert (settings[RATE].reason, settings[LimitSetting.LEASE_CAP].reason) == ("own", "common")
        assert [each.reason for each in view.keys] == ["common"]

    async def test_saying_the_same_again_is_no_change(self, scene: Scene) -> None:
        asked = PolicyUpdate(
            settings={RATE: SettingChange(500, "why")},
            keys={"big": KeySettingsChange(weight_milli=5_000, paused=True)},
        )
        for author in ("operator", "admin"):
            scene.clock.advance(1_000)
            await policies.configure(scene.ctx, "default", "orders", ACTIVITY, asked, author)
        view = await read(scene)
        assert view.queue.policy.version == 1
        assert view.queue.policy.settings[RATE].author == "operator"
        assert [each.author for each in view.keys] == ["operator"]
        assert len(await log(scene)) == 3

    async def test_waiting_polls_are_notified_of_a_change_and_of_nothing_else(self, scene: Scene) -> None:
        rung = await listened(scene)
        await configure(scene, settings={RATE: SettingChange(500)})
        await configure(scene, settings={RATE: SettingChange(500)})
        assert rung == ["orders"]

    @pytest.mark.parametrize("missing", [LimitSetting.AGING_WAIT, LimitSetting.AGING_EVERY])
    async def test_aging_needs_both_of_its_settings(self, scene: Scene, missing: LimitSetting) -> None:
        both = {LimitSetting.AGING_WAIT: SettingChange(30_000), LimitSetting.AGING_EVERY: SettingChange(20)}
        one = {setting_name: ask for setting_name, ask in both.items() if setting_name is not missing}
        with pytest.raises(ValidationFailed) as refused:
            await configure(scene, settings=one)
        assert list(refused.value.details["errors"]) == [missing]
        await configure(scene, settings=both)
        with pytest.raises(ValidationFailed):
            await configure(scene, settings={missing: SettingChange(UNSET)})
        assert (await read(scene)).queue.rules.aging is not None
        await configure(scene, settings=dict.fromkeys(both, SettingChange(UNSET)))
        assert (await read(scene)).queue.rules.aging is None

    @pytest.mark.parametrize(
        ("asked", "field"),
        [
            ({"settings": {RATE: SettingChange(5)}}, "queue_rps_limit"),
            ({"settings": {RATE: SettingChange(UNSET)}}, "queue_rps_limit"),
            ({"settings": {LimitSetting.QUEUE_BURST: SettingChange(5)}}, "queue_rps_burst_seconds"),
            ({"settings": {LimitSetting.KEY_RATE: SettingChange(5)}}, "fairness_key_rps_limit_default"),
            ({"settings": {LimitSetting.KEY_BURST: SettingChange(5)}}, "fairness_key_rps_burst_seconds"),
            ({"keys": {"big": KeySettingsChange(rate_micro=5)}}, "keys.big.rps_limit"),
            ({"forget_worker_rate": True}, "worker_rps_limit"),
        ],
    )
    async def test_workflow_tasks_have_no_rate(self, scene: Scene, asked: dict[str, Any], field: str) -> None:
        with pytest.raises(InvalidInput) as refused:
            await configure(scene, kind=WORKFLOW, **asked)
        assert refused.value.reason is Reason.RATE_LIMIT_NOT_FOR_WORKFLOW_TASKS
        assert list(refused.value.details["errors"]) == [field]

    async def test_workflow_tasks_have_weights_pauses_and_running_limits(self, scene: Scene) -> None:
        key = KeySettingsChange(weight_milli=2_000, lease_cap=1, paused=True)
        view = await configure(
            scene, kind=WORKFLOW, settings={LimitSetting.LEASE_CAP: SettingChange(5)}, keys={"big": key}
        )
        assert view.key_count == 1


class TestVersions:
    async def test_a_change_for_the_current_version_is_made(self, scene: Scene) -> None:
        await configure(scene, settings={RATE: SettingChange(500)}, if_version=0)
        view = await configure(scene, settings={RATE: SettingChange(600)}, if_version=1)
        assert (view.queue.policy.version, values(view)) == (2, {RATE: 600})

    async def test_a_change_for_another_version_is_refused_whole(self, scene: Scene) -> None:
        await configure(scene, settings={RATE: SettingChange(500)})
        with pytest.raises(Conflict) as refused:
            await configure(
                scene,
                settings={RATE: SettingChange(1)},
                keys={"big": KeySettingsChange(paused=True)},
                if_version=0,
            )
        assert refused.value.reason is Reason.CONFIG_VERSION_CONFLICT
        assert refused.value.details["current_version"] == 1
        view = await read(scene)
        assert (values(view), view.key_count) == ({RATE: 500}, 0)

    async def test_a_refused_change_does_not_create_a_queue(self, scene: Scene) -> None:
        with pytest.raises(PenstockError):
            await configure(scene, settings={RATE: SettingChange(1)}, if_version=3)
        assert await scene.read(lambda tx: tx.queues.list("default")) == []


class TestKeys:
    async def test_a_key_gets_weight_rate_limit_and_pause_one_by_one(self, scene: Scene) -> None:
        await configure(scene, keys={"big": KeySettingsChange(weight_milli=5_000)})
        await configure(scene, keys={"big": KeySettingsChange(rate_micro=0)})
        await configure(scene, keys={"big": KeySettingsChange(lease_cap=3)})
        view = await configure(
            scene, keys={"big": KeySettingsChange(paused=True)}, author="admin", reason="late payer"
        )
        assert list(view.keys) == [
            KeySettings("big", 5_000, 0, 3, 1, "admin", NOW_MS, "late payer"),
        ]
        policy = view.queue.policy
        assert (policy.overridden_keys, policy.limited_keys, policy.capped_keys) == (1, 1, 1)

    async def test_a_key_without_settings_is_no_longer_counted(self, scene: Scene) -> None:
        await configure(
            scene, keys={"big": KeySettingsChange(5_000, 10, 3, True), "small": KeySettingsChange(500)}
        )
        view = await configure(scene, keys={"big": KeySettingsChange(UNSET, UNSET, UNSET, False)})
        assert (weights(view), view.key_count) == ({"small": 500}, 1)
        policy = view.queue.policy
        assert (policy.overridden_keys, policy.limited_keys, policy.capped_keys) == (1, 0, 0)
        assert not view.queue.rules.limits_keys

    async def test_clearing_takes_every_weight_and_nothing_else(self, scene: Scene) -> None:
        await configure(
            scene,
            keys={
                "a": KeySettingsChange(2_000),
                "b": KeySettingsChange(3_000, paused=True),
                "c": KeySettingsChange(lease_cap=1),
            },
        )
        view = await configure(scene, clear_weights=True)
        assert [(each.key, each.weight_milli, each.paused, each.lease_cap) for each in view.keys] == [
            ("b", None, 1, None),
            ("c", None, 0, 1),
        ]
        assert view.queue.policy.overridden_keys == 0

    async def test_settings_of_a_key_in_the_same_change_survive_the_clearing(self, scene: Scene) -> None:
        await configure(
            scene,
            keys={
                "a": KeySettingsChange(2_000),
                "b": KeySettingsChange(3_000),
                "c": KeySettingsChange(4_000),
            },
        )
        view = await configure(
            scene,
            clear_weights=True,
            keys={
                "a": KeySettingsChange(7_000),
                "b": KeySettingsChange(paused=True),
                "d": KeySettingsChange(500),
            },
        )
        assert weights(view) == {"a": 7_000, "b": None, "d": 500}
        assert view.queue.policy.overridden_keys == 2

    async def test_more_weights_than_one_change_may_touch_are_cleared_in_several(
        self, scene: Scene, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(policies, "KEYS_PER_CHANGE_MAX", 2)
        named = {name: KeySettingsChange(2_000, paused=name == "e") for name in "abcde"}
        await configure(scene, keys=named)
        view = await configure(
            scene,
            clear_weights=True,
            keys={"a": KeySettingsChange(7_000), "e": KeySettingsChange(lease_cap=1)},
            reason="over",
        )
        assert [(each.key, each.weight_milli, each.paused, each.lease_cap) for each in view.keys] == [
            ("a", 7_000, 0, None),
            ("e", None, 1, 1),
        ]
        assert {change.reason for change in await log(scene) if change.version > 1} == {"over"}

    async def test_a_refused_change_clears_nothing(self, scene: Scene) -> None:
        await configure(scene, keys={"a": KeySettingsChange(2_000)})
        with pytest.raises(ValidationFailed):
            await configure(scene, clear_weights=True, settings={LimitSetting.AGING_EVERY: SettingChange(2)})
        assert weights(await read(scene)) == {"a": 2_000}

    async def test_too_many_keys_are_refused_and_unsetting_makes_room(
        self, scene: Scene, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(policies, "KEYS_WITH_SETTINGS_MAX", 2)
        await configure(scene, keys={"a": KeySettingsChange(2_000), "b": KeySettingsChange(3_000)})
        with pytest.raises(Conflict) as refused:
            await configure(scene, keys={"c": KeySettingsChange(paused=True)})
        assert refused.value.reason is Reason.TOO_MANY_FAIRNESS_KEYS
        await configure(scene, keys={"a": KeySettingsChange(9_000)})
        view = await configure(scene, keys={"a": KeySettingsChange(UNSET), "c": KeySettingsChange(4_000)})
        assert weights(view) == {"b": 3_000, "c": 4_000}
        assert KEYS_WITH_SETTINGS_MAX == 100_000

    async def test_a_view_shows_the_first_keys_and_counts_all(self, scene: Scene) -> None:
        many = {f"k{number:05}": KeySettingsChange(2_000) for number in range(1_200)}
        view = await configure(scene, keys=many)
        assert [each.key for each in view.keys] == sorted(many)[:1_000]
        assert view.key_count == 1_200


class TestHistory:
    async def test_the_log_shows_each_change_newest_first(self, scene: Scene) -> None:
        await configure(
            scene, settings={RATE: SettingChange(500, "guess")}, keys={"big": KeySettingsChange(5_000)}
        )
        scene.clock.advance(1_000)
        await configure(
            scene,
            settings={RATE: SettingChange(UNSET)},
            keys={"big": KeySettingsChange(UNSET, 10, 3, True)},
            reason="over",
            author="admin",
        )
        assert await log(scene) == [
            PolicyChange(2, NOW_MS + 1_000, "admin", "queue_rps_limit", None, "500", None, "over"),
            PolicyChange(2, NOW_MS + 1_000, "admin", "fairness_weight_override", "big", "5000", None, "over"),
            PolicyChange(2, NOW_MS + 1_000, "admin", "rps_limit", "big", None, "10", "over"),
            PolicyChange(2, NOW_MS + 1_000, "admin", "max_running", "big", None, "3", "over"),
            PolicyChange(2, NOW_MS + 1_000, "admin", "paused", "big", None, "1", "over"),
            PolicyChange(1, NOW_MS, "operator", "queue_rps_limit", None, None, "500", "guess"),
            PolicyChange(1, NOW_MS, "operator", "fairness_weight_override", "big", None, "5000", None),
        ]
        assert len(await log(scene, limit=3)) == 3

    async def test_an_unused_queue_has_no_history(self, scene: Scene) -> None:
        assert await log(scene) == []

    async def test_the_log_forgets_the_oldest_versions(self, scene: Scene) -> None:
        for number in range(CHANGES_KEPT + 5):
            await configure(scene, settings={RATE: SettingChange(number)})
        versions = [change.version for change in await log(scene)]
        assert versions == list(range(CHANGES_KEPT + 5, 5, -1))


class TestWorkerRates:
    async def test_the_rate_a_worker_reports_on_registration_is_kept(self, scene: Scene) -> None:
        rung = await listened(scene)
        await scene.register("w1", activities_per_second_micro=50_000_000)
        reported_rate = (await read(scene)).queue.worker_rate
        assert reported_rate is not None
        assert (reported_rate.micro, reported_rate.worker_id, reported_rate.at_ms) == (
            50_000_000,
            "w1",
            NOW_MS,
        )
        assert rung == ["orders"]
        assert (await read(scene, WORKFLOW)).queue.worker_rate is None

    async def test_the_last_report_wins_and_no_report_changes_nothing(self, scene: Scene) -> None:
        await scene.register("w1", activities_per_second_micro=50_000_000)
        await scene.register("w2", activities_per_second_micro=8_000_000)
        await scene.register("w3")
        await worker_registry.heartbeat(scene.ctx, "default", "w1", None, None, None)
        reported_rate = (await read(scene)).queue.worker_rate
        assert reported_rate is not None
        assert (reported_rate.micro, reported_rate.worker_id) == (8_000_000, "w2")
        await worker_registry.heartbeat(scene.ctx, "default", "w1", None, None, None, 50_000_000)
        reported_rate = (await read(scene)).queue.worker_rate
        assert reported_rate is not None
        assert (reported_rate.micro, reported_rate.worker_id) == (50_000_000, "w1")

    async def test_repeating_a_report_wakes_no_poll(self, scene: Scene) -> None:
        await scene.register("w1", activities_per_second_micro=50_000_000)
        rung = await listened(scene)
        await worker_registry.heartbeat(scene.ctx, "default", "w1", None, None, None, 50_000_000)
        await scene.register("w2", activities_per_second_micro=50_000_000)
        assert rung == []

    async def test_the_operator_overrides_the_worker(self, scene: Scene) -> None:
        await scene.register("w1", activities_per_second_micro=50_000_000)
        view = await configure(scene, settings={RATE: SettingChange(5_000_000)})
        assert view.queue.rules.queue_rate is not None
        assert view.queue.rules.queue_rate.micro == 5_000_000
        view = await configure(scene, settings={RATE: SettingChange(UNSET)})
        assert view.queue.rules.queue_rate is not None
        assert view.queue.rules.queue_rate.micro == 50_000_000

    async def test_an_operator_may_have_it_forgotten(self, scene: Scene) -> None:
        await scene.register("w1", activities_per_second_micro=50_000_000)
        view = await configure(scene, forget_worker_rate=True, reason="left over")
        assert view.queue.worker_rate is None
        assert view.queue.policy.version == 1
        [change] = await log(scene)
        assert (change.setting, change.before, change.after, change.reason) == (
            "worker_rps_limit",
            "50000000",
            None,
            "left over",
        )
        again = await configure(scene, forget_worker_rate=True)
        assert again.queue.policy.version == 1


class TestLeases:
    """Running tasks are counted only where a limit needs it."""

    async def test_leases_that_are_out_already_are_counted_when_a_limit_comes(self, scene: Scene) -> None:
        for number in range(3):
            await scene.start_activity(f"charge-{number}")
        held = [await scene.take(ACTIVITY) for _ in range(2)]
        await configure(scene, settings={LimitSetting.KEY_LEASE_CAP: SettingChange(2)})
        assert await running(scene) == 2
        assert await scene.claim(ACTIVITY) is None
        await scene.finish(held[0])
        assert await running(scene) == 1
        assert await scene.claim(ACTIVITY) is not None

    async def test_a_key_held_at_its_limit_continues_when_the_limit_is_removed(self, scene: Scene) -> None:
        for number in range(2):
            await scene.start_activity(f"charge-{number}")
        await configure(scene, settings={LimitSetting.KEY_LEASE_CAP: SettingChange(1)})
        await scene.take(ACTIVITY)
        assert await scene.claim(ACTIVITY) is None
        rung = await listened(scene)
        await configure(scene, settings={LimitSetting.KEY_LEASE_CAP: SettingChange(UNSET)})
        assert rung == ["orders"]
        assert await scene.claim(ACTIVITY) is not None


async def running(scene: Scene, key: str = "") -> int:
    queue = await scene.queue(ACTIVITY)

    async def question(tx: Tx) -> int:
        return (await tx.policies.key_states(queue.queue_id, [key]))[key].running

    return await scene.read(question)


class TestNamespaces:
    async def test_a_namespace_is_fair_by_default(self, scene: Scene) -> None:
        assert (await namespaces.create(scene.ctx, "billing", None, None)).fair == 1
        assert (await namespaces.create(scene.ctx, "batch", None, None, fair=False)).fair == 0

    async def test_its_setting_applies_to_every_queue_without_one_of_its_own(self, scene: Scene) -> None:
        await namespaces.ensure(scene.ctx, "default")
        await configure(scene, kind=WORKFLOW, settings={LimitSetting.FAIRNESS: SettingChange("on")})
        await namespaces.update(scene.ctx, "default", None, None, fair=False)
        assert (await read(scene)).queue.rules.order == "arrival"
        assert (await read(scene, WORKFLOW)).queue.rules.order == "fair"
        await configure(scene, kind=WORKFLOW, settings={LimitSetting.FAIRNESS: SettingChange(UNSET)})
        assert (await read(scene, WORKFLOW)).queue.rules.order == "arrival"

    async def test_polls_of_all_its_queues_are_woken_when_the_order_changes(self, scene: Scene) -> None:
        await namespaces.ensure(scene.ctx, "default")
        rung = await listened(scene)
        other = await listened(scene, WORKFLOW, "reports")
        await namespaces.update(scene.ctx, "default", "prose", None)
        await namespaces.update(scene.ctx, "default", None, None, fair=True)
        assert (rung, other) == ([], [])
        await namespaces.update(scene.ctx, "default", None, None, fair=False)
        assert (rung, other) == (["orders"], ["reports"])
