"""Settings in responses: public units, with author, time and reason."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from penstock.core.limits.policies import (
    QUEUE_SETTINGS,
    KeySettings,
    LimitSetting,
    Policy,
    PolicyChange,
    SettingValue,
)
from penstock.core.limits.rate_reports import WorkerRate
from penstock.core.model import Queue, QueueId, TaskKind
from penstock.core.timestamps import iso
from penstock.wire.limits import queue_settings
from tests.support.builders import NOW_MS

KEPT: dict[LimitSetting, int | str] = {
    LimitSetting.QUEUE_RATE: 33_300_000,
    LimitSetting.QUEUE_BURST: 1_500,
    LimitSetting.KEY_RATE: 0,
    LimitSetting.KEY_BURST: 0,
    LimitSetting.FAIRNESS: "off",
    LimitSetting.COUNTS: "running",
    LimitSetting.LEASE_CAP: 5,
    LimitSetting.KEY_LEASE_CAP: 0,
    LimitSetting.AGING_WAIT: 30_000,
    LimitSetting.AGING_EVERY: 20,
    LimitSetting.DISPATCHES: 600,
    LimitSetting.WINDOW: "sliding",
    LimitSetting.GROUP: "stripe",
    LimitSetting.PAUSED: "on",
    LimitSetting.RETRY_RATE: 2_500_000,
}


def a_line(policy: Policy | None = None, worker_rate: WorkerRate | None = None) -> Queue:
    return Queue(
        QueueId(1), "default", "orders", TaskKind.ACTIVITY, policy=policy or Policy(), worker_rate=worker_rate
    )


def test_every_setting_is_shown_in_its_public_unit() -> None:
    settings = {
        setting_name: SettingValue(value, "operator", NOW_MS, "why") for setting_name, value in KEPT.items()
    }
    body = queue_settings.config(a_line(Policy(7, settings)), (), 0)
    assert {setting_name.value: body[setting_name]["value"] for setting_name in QUEUE_SETTINGS} == {
        "queue_rps_limit": 33.3,
        "queue_rps_burst_seconds": 1.5,
        "fairness_key_rps_limit_default": 0.0,
        "fairness_key_rps_burst_seconds": 0.0,
        "fairness": "off",
        "fairness_counts": "running",
        "max_running": 5,
        "fairness_key_max_running_default": 0,
        "aging_wait_seconds": 30.0,
        "aging_every": 20,
        "max_dispatches_per_minute": 600,
        "dispatch_window": "sliding",
        "dispatch_budget_group": "stripe",
        "paused": True,
        "retry_rps_limit": 2.5,
    }
    told = {"reason": "why", "updated_by": "operator", "updated_at": iso(NOW_MS), "ends_at": None}
    assert body["max_running"] == {"value": 5} | told
    assert (body["version"], body["task_queue"], body["task_queue_type"]) == (7, "orders", "activity")


def test_a_setting_that_has_ended_is_not_shown() -> None:
    settings = {LimitSetting.PAUSED: SettingValue("on", "operator", NOW_MS, ends_at_ms=NOW_MS + 1_000)}
    line = a_line(Policy(1, settings))
    shown = queue_settings.config(replace(line, at_ms=NOW_MS + 999), (), 0)["paused"]
    assert shown is not None
    assert shown["ends_at"] == iso(NOW_MS + 1_000)
    assert queue_settings.config(replace(line, at_ms=NOW_MS + 1_000), (), 0)["paused"] is None


def test_what_is_not_set_is_null_and_nothing_is_in_force() -> None:
    body = queue_settings.config(a_line(), (), 0)
    assert {setting_name.value: body[setting_name] for setting_name in QUEUE_SETTINGS} == dict.fromkeys(
        QUEUE_SETTINGS
    )
    assert queue_settings.in_force(Policy()) == {}
    assert body["effective"] == {
        "queue_rps_limit": None,
        "queue_rps_limit_source": "none",
        "fairness": True,
        "fairness_source": "namespace",
    }


def test_the_rate_in_force_is_the_operators_if_there_is_one() -> None:
    conveyed = WorkerRate(50_000_000, "w1", NOW_MS, NOW_MS + 300_000, 250)
    by_worker = queue_settings.config(a_line(worker_rate=conveyed), (), 0)
    assert by_worker["worker_rps_limit"] == {
        "value": 50.0,
        "worker_id": "w1",
        "burst_seconds": 0.25,
        "updated_at": iso(NOW_MS),
        "lapses_at": iso(NOW_MS + 300_000),
    }
    assert by_worker["effective"]["queue_rps_limit"] == 50.0
    assert by_worker["effective"]["queue_rps_limit_source"] == "worker"
    own = Policy(1, {LimitSetting.QUEUE_RATE: SettingValue(0, "operator", NOW_MS)})
    by_operator = queue_settings.config(a_line(own, conveyed), (), 0)
    assert by_operator["effective"]["queue_rps_limit"] == 0.0
    assert by_operator["effective"]["queue_rps_limit_source"] == "operator"


def test_a_key_shows_only_what_was_asked_for_it() -> None:
    key = KeySettings("big", weight_milli=2_500, paused=1, author="admin", at_ms=NOW_MS, reason="late payer")
    [shown] = queue_settings.config(a_line(), [key], 1)["keys"]
    assert shown == {
        "fairness_key": "big",
        "weight_override": 2.5,
        "rps_limit": None,
        "max_running": None,
        "paused": True,
        "reason": "late payer",
        "updated_by": "admin",
        "updated_at": iso(NOW_MS),
    }


@pytest.mark.parametrize(
    ("setting", "before", "after", "shown"),
    [
        ("queue_rps_limit", None, "33300000", (None, 33.3)),
        ("worker_rps_limit", "5000000", None, (5.0, None)),
        ("queue_rps_burst_seconds", "1000", "0", (1.0, 0.0)),
        ("fairness", "on", "off", ("on", "off")),
        ("fairness_counts", None, "running", (None, "running")),
        ("max_running", "5", None, (5, None)),
        ("fairness_weight_override", "1000", "2500", (1.0, 2.5)),
        ("rps_limit", None, "0", (None, 0.0)),
        ("paused", None, "1", (False, True)),
        ("paused", "1", None, (True, False)),
    ],
)
def test_the_log_speaks_in_public_units_too(
    setting: str, before: str | None, after: str | None, shown: tuple[object, object]
) -> None:
    change = queue_settings.change(PolicyChange(3, NOW_MS, "operator", setting, "big", before, after, "why"))
    assert (change["before"], change["after"]) == shown
    assert (change["version"], change["fairness_key"], change["by"], change["reason"]) == (
        3,
        "big",
        "operator",
        "why",
    )
