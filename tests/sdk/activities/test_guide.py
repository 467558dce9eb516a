"""The activities guide is correct."""

from __future__ import annotations

import re
import sys
import types
from importlib.util import find_spec
from pathlib import Path

import pytest

from penstock.sdk.activities.environment import ActivityEnvironment
from tests.sdk.activities.activities_support import a_runner, a_task, failure, value

GUIDE = Path(__file__).parents[3] / "docs/guides/activities.md"


@pytest.fixture
def guide(monkeypatch):
    """The definitions in the guide."""
    if find_spec("penstock.testing") is None:
        testing = types.ModuleType("penstock.testing")
        testing.ActivityEnvironment = ActivityEnvironment  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, "penstock.testing", testing)
    found: dict[str, object] = {"__name__": "guide"}
    for block in re.findall(r"^```python\n(.*?)^```$", GUIDE.read_text(), re.MULTILINE | re.DOTALL):
        exec(compile(block, str(GUIDE), "exec"), found)
    return types.SimpleNamespace(**found)


async def test_the_activities_of_the_guide_run(guide):
    async with a_runner(*guide.activities, guide.anything, guide.book, guide.copy) as runner:
        assert value(await runner.run(a_task("charge", "o-1"))) == "receipt for o-1"
        assert value(await runner.run(a_task("refund", "o-1"))) == "north gives back o-1"
        assert value(await runner.run(a_task("other", 1))) == "other with [1]"
        assert value(await runner.run(a_task("copy", ["a", "b"]))) is None
        assert failure(await runner.run(a_task("book", "")))["type"] == "NoSuchSeat"
        assert failure(await runner.run(a_task("book", "7a")))["retry_after_seconds"] == 30


async def test_the_test_of_the_guide_passes(guide):
    assert await guide.environment.run(guide.import_rows, ["a", "b", "c"]) == 2
    assert guide.heartbeats == [(2,), (3,)]
