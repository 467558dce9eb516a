"""What the command line can change, the dashboard can change: the guide's table of dialogs is complete."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import click

from penstock.cli.program import program

GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "dashboard.md"
_READS = frozenset(
    {
        "list",
        "count",
        "describe",
        "runs",
        "history",
        "timeline",
        "result",
        "debug",
        "deletions",
        "export",
        "replay",
        "get",
        "why",
        "preview",
        "build-ids",
        "storage",
        "test-storage",
        "explain",
        "doctor",
        "show",
        "metrics",
        "info",
        "health",
        "status",
        "check",
        "schema",
        "verify",
        "find",
        "completion",
        "top",
    }
)
"""Verbs that change nothing."""


def _verbs(command: click.Command, *words: str) -> Iterator[str]:
    if not isinstance(command, click.Group):
        yield " ".join(words)
        return
    context = click.Context(command, obj=None)
    for name in command.list_commands(context):
        found = command.get_command(context, name)
        assert found is not None
        yield from () if found.hidden else _verbs(found, *words, name)


def _section(title: str) -> list[str]:
    """The commands that a section of the guide names."""
    text = GUIDE.read_text(encoding="utf-8").partition(f"## {title}\n")[2].partition("\n## ")[0]
    return re.findall(r"`((?:[a-z][a-z-]* ?)+)`", text)


def verbs_with_a_dialog() -> list[str]:
    """The commands whose change can be made in the dashboard, by its guide; `tests/server/dashboard` opens each."""
    return _section("Commands and their dialogs")


def test_each_verb_that_changes_something_has_a_dialog_or_a_reason_to_have_none() -> None:
    changing = {verb for verb in _verbs(program) if verb.split()[-1] not in _READS}
    with_dialog, without = verbs_with_a_dialog(), _section("What only the command line does")
    named = [*with_dialog, *without]
    assert len(named) == len(set(named)), "a command stands in one place only"
    assert set(named) == changing
