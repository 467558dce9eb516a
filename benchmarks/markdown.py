"""The report as Markdown: as a page of its own, and as the part of the documentation that the program writes."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
from rich.console import Console

from benchmarks.charts import draw, kept, titles
from benchmarks.report import show, show_place
from benchmarks.report_flat import show_flat
from benchmarks.report_peers import show_peers, show_targets
from benchmarks.report_profiles import show_profile

Row = Mapping[str, Any]
WIDTH = 2000
"""A line for each row, however long."""
BEGIN, END = "<!-- python -m benchmarks --docs: begin -->", "<!-- python -m benchmarks --docs: end -->"
PAGE, PICTURES, FIGURES = "benchmarks.md", "benchmarks", "figures.json"


class NoPlace(ValueError):
    """The documentation does not say where the figures go."""


def page(report: Row) -> str:
    """All that is printed, with headings over the tables and room around them."""
    return _printed(lambda console: show(report, console))


def write_docs(report: Row, docs: Path) -> list[Path]:
    """Draw the pictures, and put the tables between two marks of the page; returns what was written."""
    target = docs / PAGE
    text = target.read_text()
    if not (BEGIN in text and END in text):
        raise NoPlace(f"{target} has no lines {BEGIN} and {END}")
    drawn = draw(report, docs / PICTURES)
    figures = docs / PICTURES / FIGURES
    figures.write_bytes(msgspec.json.format(msgspec.json.encode(kept(report)), indent=2) + b"\n")
    before, rest = text.split(BEGIN)
    block = "\n".join((BEGIN, "", *_block(report, drawn), END))
    target.write_text(before + block + rest.split(END)[1])
    return [target, figures, *drawn]


def _block(report: Row, drawn: Sequence[Path]) -> Iterator[str]:
    yield "## Beside peers, and what must not grow"
    named = titles()
    for path in drawn:
        yield from ("", f"![{named[path.name]}]({PICTURES}/{path.name})")

    def tables(console: Console) -> None:
        show_place(report, console)
        show_targets(report, console)
        show_peers(report.get("peers"), console)
        show_profile(report.get("profile"), console)
        show_flat(report, console)

    yield _printed(tables)


def _printed(printing: Callable[[Console], None]) -> str:
    printed = io.StringIO()
    printing(Console(file=printed, width=WIDTH))
    return "\n".join(_lines([line.rstrip() for line in printed.getvalue().splitlines()])) + "\n"


def _lines(printed: Sequence[str]) -> Iterator[str]:
    for number, line in enumerate(printed):
        begins_table = "".join(printed[number + 1 : number + 3]).startswith("|")
        if line and begins_table and not line.startswith("|"):
            yield from ("", f"### {line}")
        elif line:
            yield from (line,) if line.startswith("|") else ("", line)
        elif begins_table:
            yield ""
