"""The code in the tasks guide runs."""

from __future__ import annotations

import ast
import asyncio
import inspect
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.cluster import Cluster
from tests.sdk.server_fixtures import OPERATOR, WORKER, serving
from tests.support.patience import PATIENCE_S

GUIDE = Path(__file__).parents[3] / "docs" / "guides" / "tasks.md"
BLOCKS = re.findall(r"^```python\n(.*?)^```$", GUIDE.read_text(), re.MULTILINE | re.DOTALL)


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Cluster]:
    async with serving(tmp_path) as made:
        yield made


async def test_everything_that_the_guide_shows_runs_from_top_to_bottom(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DURABLE_WORKFLOW_SERVER_URL", cluster.first.url)
    monkeypatch.setenv("DURABLE_WORKFLOW_CONTROL_TOKEN", OPERATOR)
    monkeypatch.setenv("DURABLE_WORKFLOW_WORKER_TOKEN", WORKER)
    found: dict[str, Any] = {"__name__": "guide"}
    *blocks, flows = BLOCKS
    await run(blocks[0], found)
    app = found["app"]
    async with app, app.worker(await app.client()), app.worker(await app.client(), "mail"):
        for block in blocks[1:]:
            found["total"] = None
            await run(block, found)
            assert found["total"] == (3 if "handle.result" in block else None)
        assert [await each.result(timeout=PATIENCE_S) for each in found["handles"]] == [3, 7, 11]
    define, use = flows.split("client = ")
    await run(define, found)
    async with app, app.worker(await app.client()), app.worker(await app.client(), "mail"):
        await run("client = " + use, found)
    assert found["greetings"] == ["Hello to ada", "Hello to bob"]
    app.close_sync()


async def run(block: str, names: dict[str, Any]) -> None:
    if "_sync(" in block:
        await asyncio.to_thread(exec, block, names)
        return
    code = compile(block, str(GUIDE), "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    value = eval(code, names)
    if inspect.isawaitable(value):
        await value
