"""The guide to writing workflows is correct."""

from __future__ import annotations

import re
import types
from datetime import timedelta
from pathlib import Path

import pytest

from penstock.testing import WorkflowEnvironment

GUIDE = Path(__file__).parents[3] / "docs/guides/writing-workflows.md"
BLOCKS = re.findall(r"^```python\n(.*?)^```$", GUIDE.read_text(), re.MULTILINE | re.DOTALL)


@pytest.fixture
def guide() -> types.SimpleNamespace:
    """The definitions in the guide; the lines about patches belong into a run method."""
    found: dict[str, object] = {"__name__": "guide"}
    for block in BLOCKS:
        if "workflow.patched" not in block:
            exec(compile(block, str(GUIDE), "exec"), found)
    return types.SimpleNamespace(**found)


async def test_the_workflow_of_the_guide_runs_and_its_history_fits_its_code(guide):
    from penstock import Worker

    async with (
        await WorkflowEnvironment.start_time_skipping() as env,
        Worker(env.client, task_queue="q", workflows=[guide.Order], activities=[guide.reserve]),
    ):
        order = await env.client.start_workflow(guide.Order.run, ["tea", "cup"], id="o-1", task_queue="q")
        await order.signal(guide.Order.approve)
        assert await order.result() == ["reserved tea", "reserved cup"]
        assert await order.query(guide.Order.is_approved) is True
        assert guide.replayer.replay(await order.fetch_history()).fits


async def test_an_order_that_nobody_approves_is_given_up_after_three_days(guide):
    from penstock import Worker, failures

    async with (
        await WorkflowEnvironment.start_time_skipping() as env,
        Worker(env.client, task_queue="q", workflows=[guide.Order], activities=[guide.reserve]),
    ):
        began = env.now()
        order = await env.client.start_workflow(guide.Order.run, ["tea"], id="o-2", task_queue="q")
        with pytest.raises(failures.WorkflowFailureError):
            await order.result()
        assert env.now() - began >= timedelta(days=3)
