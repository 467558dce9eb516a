"""The report as a page of Markdown."""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.console import Console

from benchmarks.report import show

WIDTH = 2000
"""A line for each row, however long."""


def page(report: Mapping[str, Any]) -> str:
    """What is printed, with headings over the tables and room around them."""
    printed = io.StringIO()
    show(report, Console(file=printed, width=WIDTH))
    return "\n".join(_lines([line.rstrip() for line in printed.getvalue().splitlines()])) + "\n"


def _lines(printed: Sequence[str]) -> Iterator[str]:
    for number, line in enumerate(printed):
        begins_table = "".join(printed[number + 1 : number + 3]).startswith("|")
        if line and begins_table and not line.startswith("|"):
            yield from ("", f"### {line}")
        elif line:
            ends_table = number > 0 and printed[number - 1].startswith("|") and not line.startswith("|")
            yield from ("", line) if ends_table or not line.startswith("|") else (line,)
        elif begins_table:
            yield ""
