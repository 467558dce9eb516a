"""The code in the guide to schedules runs."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from penstock import Client
from tests.acceptance.cluster import Cluster
from tests.sdk.server_fixtures import OPERATOR, WORKER

GUIDE = Path(__file__).parents[3] / "docs" / "guides" / "schedules.md"
BLOCKS = re.findall(r"^```python\n(.*?)^```$", GUIDE.read_text(), re.MULTILINE | re.DOTALL)


async def test_everything_that_the_guide_shows_runs_from_top_to_bottom(
    client: Client, scene: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in (
        ("SERVER_URL", scene.first.url),
        ("CONTROL_TOKEN", OPERATOR),
        ("WORKER_TOKEN", WORKER),
        ("NAMESPACE", client.namespace),
    ):
        monkeypatch.setenv(f"DURABLE_WORKFLOW_{name}", value)
    ran = 0
    for block in BLOCKS:
        found: dict[str, Any] = {"__name__": "guide"}
        exec(compile(block, str(GUIDE), "exec"), found)
        for name in ("main", "test_it_runs_every_night"):
            if name in found:
                await found[name]()
                ran += 1
        if "app" in found:
            await found["app"].apply_schedules()
            await found["app"].close()
    assert ran == 3
    assert {each.id async for each in client.list_schedules()} == {
        *("nightly-report", "shop.clean_up", "shop.remind", "shop.poll_the_mailbox")
    }
    updated = await client.get_schedule_handle("nightly-report").describe()
    assert updated.schedule.action.args == ["all", "with totals"]
