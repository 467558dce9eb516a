"""The tests in the guide pass as written."""

from __future__ import annotations

import re
from pathlib import Path

import penstock.testing
from tests.testing.test_plugin import run

GUIDE = (Path(__file__).parents[2] / "docs" / "guides" / "testing.md").read_text()
BLOCKS = re.findall(r"^```python\n(.*?)^```$", GUIDE, re.MULTILINE | re.DOTALL)


def test_the_tests_of_the_guide_pass(tmp_path: Path) -> None:
    ran = run(tmp_path, "\n\n".join(BLOCKS), "-p", "pytest_asyncio.plugin", "-o", "asyncio_mode=auto")
    assert f"{len(BLOCKS)} passed" in ran.stdout, ran.stdout + ran.stderr


def test_the_guide_names_everything_that_can_be_imported() -> None:
    assert [name for name in penstock.testing.__all__ if name not in GUIDE] == ["MockedActivity"]
