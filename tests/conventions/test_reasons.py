"""Every reason has a status and a meaning, and the reference pages are what the program says."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from penstock.cli.program import program
from penstock.cli.reference.errors import errors_markdown
from penstock.errors import Reason
from penstock.server.operations.table import OPERATIONS
from penstock.server.problems import STATUS
from penstock.server.reference.markdown import MEANINGS, operations_markdown, reasons_markdown
from penstock.settings import reference_markdown

REFERENCE = Path(__file__).parents[2] / "docs" / "reference"


def test_every_reason_has_a_status_of_a_refusal() -> None:
    assert set(STATUS) == set(Reason)
    assert all(400 <= status <= 599 for status in STATUS.values())


def test_every_reason_is_explained_once() -> None:
    explained = [reason for group in MEANINGS.values() for reason in group]
    assert explained == list(Reason), "in the order of the enumeration, none twice"
    assert all(meaning.endswith(".") for group in MEANINGS.values() for meaning in group.values())


def test_reasons_are_words_that_programs_can_hold_on_to() -> None:
    for reason in Reason:
        assert reason.value == reason.name.lower()


PAGES = {
    "settings": reference_markdown,
    "reasons": reasons_markdown,
    "errors": errors_markdown,
    "http": operations_markdown,
}


@pytest.mark.parametrize("name", PAGES)
def test_the_reference_page_agrees_with_the_program(name: str) -> None:
    """After a change: `penstock docs NAME > docs/reference/NAME.md`."""
    assert (REFERENCE / f"{name}.md").read_text() == PAGES[name]()


@pytest.mark.parametrize(("name", "render"), PAGES.items())
def test_one_command_prints_the_page(name: str, render: Callable[[], str]) -> None:
    assert CliRunner().invoke(program, ["docs", name]).stdout == render()


def test_every_operation_stands_in_the_reference_once() -> None:
    rows = operations_markdown().splitlines()
    for operation in OPERATIONS:
        assert sum(row.startswith(f"| `{operation.method} {operation.path}` |") for row in rows) == 1


def test_every_table_has_as_many_columns_as_its_heading() -> None:
    for page in (reasons_markdown(), operations_markdown()):
        lines = page.splitlines()
        for line, following in itertools.pairwise(lines):
            if line.startswith("|") and following.startswith("|"):
                assert line.count("|") == following.count("|"), following
