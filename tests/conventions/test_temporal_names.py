"""The page of Temporal's names: every public name of the real package has a row, and what a row says is true."""

from __future__ import annotations

import ast
import importlib
import inspect
from collections import Counter
from fnmatch import fnmatchcase
from pathlib import Path

import pytest

from penstock.cli.migration.temporal_names import HOMES, PARTS, NameRow, Parity, name_rows
from penstock.cli.migration.temporal_page import temporal_markdown
from tests.conventions.temporal_signatures import gaps

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "temporalio.md"


def public_names(module: str) -> set[str]:
    """The names of a module of the installed package: those of `__all__`, or those that its source defines."""
    found = importlib.import_module(f"temporalio.{module}")
    declared = getattr(found, "__all__", None)
    names = set(declared) if declared is not None else set(defined_names(ast.parse(inspect.getsource(found))))
    return {name for name in names if not name.startswith("_")}


def defined_names(tree: ast.Module) -> list[str]:
    names: list[str] = []
    for node in tree.body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            names.append(node.name)
        elif isinstance(node, ast.Assign):
            names += [target.id for target in node.targets if isinstance(target, ast.Name)]
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            names.append(node.target.id)
    return names


@pytest.mark.parametrize("module", HOMES)
def test_every_public_name_of_the_real_package_has_one_row(module: str) -> None:
    rows = Counter(row.name for row in name_rows() if row.module == module)
    assert set(rows) == public_names(module), "add a row, or remove that of a name which is gone"
    assert not [name for name, count in rows.items() if count > 1]


@pytest.mark.parametrize(
    "row", [row for row in name_rows() if row.place], ids=lambda row: f"{row.module}.{row.name}"
)
def test_a_row_that_names_a_place_names_one_that_exists(row: NameRow) -> None:
    module, _, name = str(row.place).partition(":")
    assert hasattr(importlib.import_module(module), name), f"there is no {module}.{name}"
    assert row.parity is Parity.OTHER or name == row.name, "a name that differs is other, not same"


def test_every_row_that_is_not_the_same_says_what_to_do_or_why() -> None:
    silent = [row for row in name_rows() if row.parity is not Parity.SAME and not (row.place or row.note)]
    assert not silent


def test_the_page_is_the_one_that_the_program_prints() -> None:
    """After a change of the table: `penstock docs temporalio > docs/reference/temporalio.md`."""
    assert PAGE.read_text() == temporal_markdown()


def test_a_name_that_is_said_to_be_missing_is_not_in_our_module() -> None:
    there = [
        f"{HOMES[row.module]}.{row.name}"
        for row in name_rows()
        if row.parity is Parity.NOT_HERE
        and row.name in getattr(importlib.import_module(HOMES[row.module]), "__all__", ())
    ]
    assert not there, "say that they are here"


def test_a_name_that_is_said_to_be_the_same_has_all_parts_but_those_that_the_table_explains() -> None:
    """A part is a parameter or a member. Each pattern of the table explains at least one."""
    patterns = [each for names in PARTS.values() for each in names.split()]
    found = [gap for row in name_rows() if row.parity is Parity.SAME for gap in gaps(row)]
    explained = {gap: [each for each in patterns if fnmatchcase(gap, each)][:1] for gap in found}
    assert not [gap for gap, by in explained.items() if not by], "add the part, or say why it is not here"
    used = {pattern for by in explained.values() for pattern in by}
    assert not [each for each in patterns if each not in used], "remove the patterns that explain nothing"
