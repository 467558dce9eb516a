"""The pytest plugin, in a separate pytest process."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.patience import PATIENCE_S

A_TEST = """
from datetime import timedelta

import pytest

from penstock import Worker, workflow


@workflow.defn
class Sleeper:
    @workflow.run
    async def run(self) -> str:
        await workflow.sleep(timedelta(days=30))
        return "awake"


@pytest.mark.asyncio
async def test_a_month_passes(penstock_env, penstock_client):
    assert penstock_client is penstock_env.client
    began = penstock_env.now()
    async with Worker(penstock_client, task_queue="q", workflows=[Sleeper]):
        assert await penstock_client.execute_workflow(Sleeper.run, id="s", task_queue="q") == "awake"
    assert penstock_env.now() == began + timedelta(days=30)


@pytest.mark.asyncio
async def test_each_test_has_an_environment_of_its_own(penstock_client):
    assert [each async for each in penstock_client.list_workflows()] == []
"""
LAZY = """
import sys


def test_the_plugin_loads_nothing_by_itself():
    assert "penstock.testing.plugin" in sys.modules
    loaded = [name for name in sys.modules if name.startswith("penstock.") and "testing" not in name]
    assert loaded == []
"""


def run(folder: Path, text: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    (folder / "test_it.py").write_text(text)
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", *arguments, "-p", "penstock.testing.plugin", "test_it.py"],
        cwd=folder,
        env=os.environ | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTEST_ADDOPTS": ""},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )


@pytest.mark.parametrize("mode", ["strict", "auto"])
def test_the_fixtures_work_in_each_mode_of_pytest_asyncio(tmp_path: Path, mode: str) -> None:
    ran = run(tmp_path, A_TEST, "-p", "pytest_asyncio.plugin", "-o", f"asyncio_mode={mode}")
    assert "2 passed" in ran.stdout, ran.stdout + ran.stderr


def test_the_plugin_loads_nothing_until_a_fixture_is_used(tmp_path: Path) -> None:
    ran = run(tmp_path, LAZY, "-p", "pytest_asyncio.plugin")
    assert "1 passed" in ran.stdout, ran.stdout + ran.stderr


def test_without_pytest_asyncio_the_fixture_says_what_is_missing(tmp_path: Path) -> None:
    """As if pytest-asyncio were not installed."""
    (tmp_path / "pytest_asyncio.py").write_text("raise ImportError('not installed')\n")
    ran = run(tmp_path, "def test_it(penstock_env): ...\n")
    assert "needs pytest-asyncio" in ran.stdout, ran.stdout + ran.stderr
    assert run(tmp_path, "def test_it(): ...\n").returncode == 0
