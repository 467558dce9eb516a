"""The command line reference is what the program says of itself."""

from __future__ import annotations

from pathlib import Path

from penstock.cli.program import program
from penstock.cli.reference.commands import render

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "cli.md"


def test_the_reference_page_agrees_with_the_help() -> None:
    """After a change of the help: `penstock docs cli > docs/reference/cli.md`."""
    assert PAGE.read_text() == render(program)
