"""The guide for Temporal users is correct."""

from __future__ import annotations

import re
import sys
import types
from pathlib import Path
from typing import Any

import pytest

from penstock import Worker
from penstock.dispatch import DispatchConfig, load_dispatch
from penstock.testing import WorkflowEnvironment

GUIDE = Path(__file__).parents[2] / "docs/guides/coming-from-temporal.md"


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", GUIDE.read_text(), re.MULTILINE | re.DOTALL)


@pytest.fixture
def guide(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The definitions in the guide."""
    module = types.ModuleType("coming_from_temporal")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    for block in blocks("python"):
        exec(compile(block, str(GUIDE), "exec"), module.__dict__)
    return module


@pytest.fixture
def config(tmp_path: Path) -> DispatchConfig:
    (file,) = blocks("toml")
    path = tmp_path / "penstock.toml"
    path.write_text(file)
    return load_dispatch(path, environ={})


def test_the_file_of_the_guide_has_nothing_to_warn_of(config: DispatchConfig) -> None:
    assert config.warnings == ()


async def test_the_code_as_it_was_runs_and_the_short_code_goes_where_the_file_says(
    guide: Any, config: DispatchConfig
) -> None:
    job = guide.Job("claude-4.6-opus", "hello")
    async with (
        await WorkflowEnvironment.start_time_skipping() as env,
        Worker(env.client, task_queue="q", workflows=[guide.Write], activities=[guide.act_llm_gen_text]),
    ):
        said = await env.client.execute_workflow(guide.Write.run, job, id="w", task_queue="q")
        assert said == "claude-4.6-opus says: hello"
    async with await WorkflowEnvironment.start_time_skipping(dispatch=config) as env:
        async with (
            Worker(env.client, task_queue="temporal_task_queue", workflows=[guide.WriteShort]),
            Worker(env.client, task_queue="anthropic-queue", activities=[guide.generate]),
        ):
            handle = await env.client.start_workflow(
                guide.WriteShort.run, job, id="w", task_queue="temporal_task_queue"
            )
            assert await handle.result() == "claude-4.6-opus says: hello"
        scheduled = (await handle.fetch_history()).events[2]["payload"]
    assert scheduled["task_queue"] == "anthropic-queue"
    assert scheduled["activity"]["retry_policy"]["start_to_close_timeout"] == 15 * 60
