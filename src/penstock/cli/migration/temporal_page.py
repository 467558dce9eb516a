"""The reference page of Temporal's names, from the table of decisions."""

from __future__ import annotations

from collections import Counter
from itertools import groupby

from penstock.cli.migration.temporal_names import HOMES, PARTS, NameRow, Parity, name_rows

_OPENING = """\
# Names of Temporal's SDK

<!-- Written by `penstock docs temporalio`. Change the table, then run it again. -->

For developers with `temporalio` code: every public name of its modules {modules},
and what it is here. A test compares the table with the real package. [Coming from
Temporal](../guides/coming-from-temporal.md) has what differs beyond names.

*Same*: the name is here, with the meaning that it has there; the test compares parameters and members, too, and
[the last table](#parts-that-are-not-here) has those that are missing. *Other*: what does its work. *Not here*: why.

{summary}
"""


def temporal_markdown() -> str:
    """Return the page as Markdown."""
    parts = [_OPENING.format(modules=_listed(HOMES), summary=_summary())]
    for module, rows in groupby(name_rows(), key=lambda row: row.module):
        parts.append(_section(module, list(rows)))
    return "\n".join([*parts, _parts()])


def _parts() -> str:
    lines = [
        "## Parts that are not here",
        "",
        "Parameters and members that names marked *same* lack. `*` stands for any text.",
        "",
        "| Instead, or why | Parts |",
        "|---|---|",
    ]
    for reason, patterns in PARTS.items():
        lines.append(f"| {reason} | {', '.join(f'`{each}`' for each in patterns.split())} |")
    return "\n".join([*lines, ""])


def _summary() -> str:
    lines = ["| Module | Here | Same | Other | Not here |", "|---|---|---|---|---|"]
    for module, rows in groupby(name_rows(), key=lambda row: row.module):
        count = Counter(row.parity for row in rows)
        numbers = " | ".join(str(count[parity]) for parity in Parity)
        lines.append(f"| [`temporalio.{module}`](#temporalio{module}) | `{HOMES[module]}` | {numbers} |")
    return "\n".join(lines)


def _section(module: str, rows: list[NameRow]) -> str:
    lines = [f"## temporalio.{module}", "", "| Name | Here | |", "|---|---|---|"]
    lines += [f"| `{row.name}` | {row.parity.value} | {_words(row)} |" for row in rows]
    return "\n".join([*lines, ""])


def _words(row: NameRow) -> str:
    if row.parity is Parity.NOT_HERE or row.place is None:
        return row.note
    place = row.place.replace(":", ".")
    is_at_home = row.parity is Parity.SAME and row.place == f"{HOMES[row.module]}:{row.name}"
    return "; ".join(part for part in ("" if is_at_home else f"`{place}`", row.note) if part)


def _listed(modules: dict[str, str]) -> str:
    names = [f"`{name}`" for name in modules]
    return f"{', '.join(names[:-1])} and {names[-1]}"
