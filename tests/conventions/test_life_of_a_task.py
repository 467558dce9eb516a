"""The pages about the code name files and functions that exist; the life of a task fits on one screen."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCES = ROOT / "src" / "penstock"
PAGE, CODE_MAP = (
    (ROOT / "docs" / "concepts" / name).read_text() for name in ("life-of-a-task.md", "code-map.md")
)
LINES_MAX = 50
NAMED = sorted(set(re.findall(r"`([\w/]+\.py)(?::([\w.]+))?`", PAGE + CODE_MAP)))


def defined(path: Path) -> set[str]:
    """The functions and classes of a module, and the methods of its classes."""
    found: set[str] = set()
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.add(node.name)
        if isinstance(node, ast.ClassDef):
            methods = [each for each in node.body if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)]
            found |= {f"{node.name}.{each.name}" for each in methods}
    return found


@pytest.mark.parametrize(("file", "name"), NAMED, ids=[":".join(each) for each in NAMED])
def test_what_the_pages_name_exists(file: str, name: str) -> None:
    assert (SOURCES / file).is_file()
    assert not name or name in defined(SOURCES / file)


def test_the_page_names_the_way_of_a_task() -> None:
    assert {file for file, _ in NAMED} >= {"core/scheduling/claim.py", "engine/matching/claim.py"}


def test_the_page_fits_on_one_screen() -> None:
    assert len(PAGE.splitlines()) <= LINES_MAX
