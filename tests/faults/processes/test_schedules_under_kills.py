"""Schedules on servers that are killed around commits, and whose clocks differ: `one-fire-per-moment`."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.faults.schedule_campaign import schedule_campaign

pytestmark = pytest.mark.faults


async def test_no_fire_is_doubled_or_lost_by_kills_around_commits_and_clocks_that_differ(
    tmp_path: Path, database_url: str
) -> None:
    dice = random.Random(7)
    found = await schedule_campaign(tmp_path, database_url, dice, schedules=5, kills=4, fires=30)
    assert found.problems == []
    assert found.fires >= 30
