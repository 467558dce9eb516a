"""A short fault campaign with a new seed each time; `python -m tests.faults.campaign` runs long ones."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.faults.campaign import campaign
from tests.support.effort import times

pytestmark = pytest.mark.faults


@pytest.mark.slow
@pytest.mark.parametrize("store", ["sqlite", "postgres"])
async def test_a_campaign_of_kills_and_freezes_finds_nothing_lost_doubled_or_over_a_cap(
    store: str, tmp_path: Path
) -> None:
    seed = random.randrange(2**32)
    findings = await campaign(store, times(8), seed, tmp_path)
    print(findings.figures, findings.stalls)
    assert findings.problems == [], findings.figures
    assert findings.figures["acknowledged"] > 0
    assert findings.figures["attempts run"] > 0
