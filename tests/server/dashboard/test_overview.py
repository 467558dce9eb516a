"""What the overview says needs attention."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from penstock.core.timestamps import iso
from penstock.server.dashboard.pages.overview import of_schedules
from tests.server.client import Client
from tests.server.dashboard.conftest import NOW_MS
from tests.server.dashboard.visitors import Visitor
from tests.support.clock import ManualClock


def a_schedule(**changes: Any) -> Any:
    return {
        "schedule_id": "nightly",
        "paused": False,
        "note": None,
        "next_fire_at": iso(NOW_MS + 1_000),
        "latest_workflow_instance_id": "nightly-1",
        "info": {"failed_at": None},
    } | changes


def test_a_schedule_whose_run_failed_needs_attention_and_says_since_when() -> None:
    failed = {"failed_at": iso(NOW_MS - 120_000)}
    [verdict] = of_schedules([a_schedule(info=failed)], "default", NOW_MS)
    assert (verdict.tone, verdict.since) == ("bad", "2 min ago")
    assert "nightly-1" in verdict.reason
    paused = a_schedule(info=failed, paused=True, note="paused because nightly-1 failed", next_fire_at=None)
    [verdict] = of_schedules([paused], "default", NOW_MS)
    assert verdict.what.endswith("and it is paused")
    assert verdict.reason == "paused because nightly-1 failed"


def test_a_schedule_that_fires_as_it_should_or_is_paused_on_purpose_needs_none() -> None:
    paused = a_schedule(paused=True, next_fire_at=None)
    just_due = a_schedule(next_fire_at=iso(NOW_MS - 1_000))
    assert list(of_schedules([a_schedule(), paused, just_due], "default", NOW_MS)) == []


async def test_a_schedule_that_no_server_fires_is_late(
    api: Client, somebody: Callable[[], Visitor], clock: ManualClock
) -> None:
    body = {
        "schedule_id": "nightly",
        "spec": {"intervals": [{"every": "PT1M"}]},
        "action": {"workflow_type": "report", "task_queue": "reports"},
    }
    (await api.post("/api/schedules", body)).expect(201)
    admin = somebody()
    await admin.sign_in("admin-secret")
    assert "nightly is late" not in await admin.page("/ui")
    clock.advance(5 * 60_000)
    assert "nightly is late" in await admin.page("/ui")
